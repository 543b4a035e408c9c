# SPDX-License-Identifier: Apache-2.0
#
# The cost of a trace is linear in its size: instructions (callgrind) at three sizes, each twice the one before. The second
# doubling may add little more than twice as many as the first one; if each event searched all others, it would add four
# times as many. Times are not measured.
#
#   linear_cost.py FALLOW     exit 1: something grows faster; 77: no valgrind
import os
import re
import shutil
import subprocess
import sys
import tempfile

BIG_SNAPSHOT = os.path.join(os.path.dirname(__file__), "../unit/trace/big_snapshot.py")
MOST = 2.6  # sorting, searching and the planner, which stops somewhen, take a little more than twice
MEGABYTE = 1 << 20


def count_instructions(command):
    run = subprocess.run(["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", *command],
                         stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    collected = re.search(r"Collected : (\d+)", run.stderr)
    if run.returncode != 0 or collected is None:
        sys.exit(f"{' '.join(command)}: {run.returncode}\n{run.stderr}")
    return int(collected[1])


def make_random(fallow, count, largest, path):
    subprocess.run([fallow, "gen", "random", "--count", str(count), "--max", largest, "-o", path], check=True,
                   stderr=subprocess.DEVNULL)


def make_snapshot(size, how, path):
    with open(path, "wb") as file:
        subprocess.run([sys.executable, BIG_SNAPSHOT, str(size), how], stdout=file, check=True)


def main(fallow):
    if shutil.which("valgrind") is None:
        print("no valgrind: nothing counted")
        return 77
    reads = [MEGABYTE // 2, MEGABYTE, 2 * MEGABYTE]
    counts = [4000, 8000, 16000]
    ways = [
        (f"trace info of a snapshot, frames {how}", reads, ["trace", "info"], ".pickle",
         lambda size, path, how=how: make_snapshot(size, how, path))
        for how in ("shared", "apart", "none")
    ] + [
        (what, counts, command, ".ftrace",
         lambda count, path, largest=largest: make_random(fallow, count, largest, path))
        for what, largest, command in (
            ("replay with all policies", "64M", ["replay", "--no-times"]),
            # so small that live and free blocks only become more
            ("replay with models, ever more blocks", "64K",
             ["replay", "--no-times", "--policy", "pytorch,pytorch-expandable,async"]),
            ("report of one policy", "64M", ["report", "--no-times", "--policy", "driver"]))
    ]
    has_failed = False
    with tempfile.TemporaryDirectory() as folder:
        for what, sizes, command, ending, make in ways:
            costs = []
            for size in sizes:
                path = f"{folder}/{size}{ending}"
                make(size, path)
                costs.append(count_instructions([fallow, *command, path]))
            ratio = (costs[2] - costs[1]) / (costs[1] - costs[0])
            has_failed |= ratio > MOST
            print(f"{what}: {', '.join(f'{cost:,}' for cost in costs)} instructions, {ratio:.2f}"
                  f"{f', more than {MOST}' if ratio > MOST else ''}", flush=True)
    return 1 if has_failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
