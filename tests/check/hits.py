# SPDX-License-Identifier: Apache-2.0
"""Counts of hits under valgrind, each with a planted fault that must be found. Exit 77: no valgrind.

  hits.py lines HITS          check.shared_lines: two threads' hits share no cache line that either writes
  hits.py cost HITS FALLOW    check.publish_cost: a hit takes as many instructions whether its pool is published, and read
                              by `fallow top`, or not
"""
import collections
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

MARKS, LINE_BYTES, ROUNDS = 0x4a5a5a0000, 64, 20  # the first and last as in hits.c
TRIES = 60  # of `fallow top`, which waits 2 s for a process


def touched_lines(program, *words):
    """Return {cache line: {(thread, is_write)}} of the threads' turns."""
    ends = os.pipe()
    with subprocess.Popen(["valgrind", "--tool=lackey", "--trace-mem=yes", "--basic-counts=no", f"--log-fd={ends[1]}",
                           program, "turns", *words], pass_fds=ends[1:]) as child:
        os.close(ends[1])
        lines, thread = collections.defaultdict(set), None
        with open(ends[0]) as trace:
            for text in trace:  # " S 04222c3c,8", " L ...", " M ...", "I  ..."
                if text[:2] not in (" S", " L", " M"):
                    continue
                address, count = text[2:].split(",")
                address = int(address, 16)
                if MARKS <= address < MARKS + 4096:
                    index, what = divmod((address - MARKS) // 64, 2)
                    thread = index if what == 0 else None
                elif thread is not None:
                    for line in range(address // LINE_BYTES, (address + int(count) - 1) // LINE_BYTES + 1):
                        lines[line].add((thread, text[1] != "L"))
    if child.returncode != 0:
        sys.exit(f"{program} turns: {child.returncode}")
    return lines


def check_lines(program):
    for words in ("planted",), ():
        lines = touched_lines(program, *words)
        written = [sum((thread, True) in uses for uses in lines.values()) for thread in (0, 1)]
        shared = [line for line, uses in lines.items()
                  if len({thread for thread, _ in uses}) == 2 and any(is_write for _, is_write in uses)]
        print(f"{''.join(words) or 'hits'}: lines written by the threads {written}, shared {len(shared)}")
        if min(written) == 0 or bool(shared) != bool(words):
            sys.exit(f"above: {[hex(line * LINE_BYTES) for line in shared]}")


def count_instructions(program, fallow, variant, folder):
    """Run the rounds; between two of them read the pool's page if the variant is watched."""
    words = [] if variant == "quiet" else [folder]
    with subprocess.Popen(["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", "--toggle-collect=measured",
                           program, "rounds", *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, bufsize=0) as child:
        for _ in range(ROUNDS):
            child.stdout.read(1)
            if variant in ("watched", "planted"):
                command = [fallow, "top", str(child.pid), "--once", "--json", "--directory", folder]
                pages = (subprocess.run(command, capture_output=True).stdout for _ in range(TRIES))
                if not any(page and len(json.loads(page)["pools"]) == 1 for page in pages):
                    sys.exit("no page of the pool was read")
            child.stdin.write(b"p" if variant == "planted" else b"g")
        said = child.stderr.read().decode()
    collected = re.search(r"Collected : (\d+)", said)
    if child.returncode != 0 or collected is None:
        sys.exit(f"{program} rounds: {child.returncode}\n{said}")
    return int(collected[1])


def check_cost(program, fallow):
    with tempfile.TemporaryDirectory() as folder:
        counts = {variant: count_instructions(program, fallow, variant, folder)
                  for variant in ("quiet", "alone", "watched", "planted")}
    print(f"instructions: {counts}")
    if len({counts[variant] for variant in ("quiet", "alone", "watched")}) != 1 or counts["planted"] == counts["quiet"]:
        sys.exit("a hit costs more while its pool is published, or the planted cost was not found")


if __name__ == "__main__":
    if shutil.which("valgrind") is None:
        print("no valgrind: nothing counted")
        sys.exit(77)
    {"lines": check_lines, "cost": check_cost}[sys.argv[1]](*sys.argv[2:])
