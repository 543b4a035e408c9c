#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check.convert: tools/convert prints the trace of a log, and `fallow` reads the trace.

  convert.py SOURCE FALLOW [TRACES]

TRACES may have MiniMalloc's eleven published problems, with blocks and largest live sum counted by another program.
"""
import os
import re
import subprocess
import sys

SOURCE, FALLOW, TRACES = sys.argv[1], sys.argv[2], sys.argv[3:]
CONVERT = os.path.join(SOURCE, "tools", "convert")
MIB = 1 << 20
PROBLEMS = {"A": (154, MIB), "B": (170, MIB), "C": (203, 1039360), "D": (213, 986112), "E": (215, MIB), "F": (296, MIB),
            "G": (308, MIB), "H": (316, MIB), "I": (374, MIB), "J": (409, 989184), "K": (454, MIB)}
# form, log, lines of the trace after the header
GOOD = [
    ("gtrace", "# gtrace-text 0\nP 0 100 7\nA 5 1 64 7 tid=3\nF 6 0\nC 9 0\n",
     "P 0 0 100 0\nA 5000 1 64 0\nF 6000 0 0\nC 9000 0 0\n"),
    ("minimalloc", "id,lower,upper,size\nb,5,9,30\na,0,5,10\nc,0,7,20\n",
     "A 0 0 10 0\nA 0 1 20 0\nF 0 0 0\nA 0 2 30 0\nF 0 1 0\nF 0 2 0\n"),
    ("minimalloc", "size,end,start,buffer_id,alignment,gaps\n30,8,5,1,1,6-7@0:2\n10,4,0,2,8,\n20,6,0,3,1,\n",
     "A 0 0 10 0\nA 0 1 20 0\nF 0 0 0\nA 0 2 30 0\nF 0 1 0\nF 0 2 0\n"),
    ("stalloc", "1 512 64 0\n1\t0x400 32 0x2a\n\n0 512 64 0\r\n0 4096 2048 42\n",
     "P 0 0 2048 0 @4096\nA 0 1 64 1 @512\nA 0 2 32 0 @1024\nF 0 1 1\nF 0 0 0\n"),
    ("stalloc", "1 512 64 0\n1 512 64 0\n0 512 64 0\n0 512 64 0\n",
     "A 0 0 64 0 @512\nF 0 0 0\nA 0 1 64 0 @512\nF 0 1 0\n"),
]
BAD = [
    ("gtrace", "A 0 1 5 0\n", "line 1: .* next block's number is 0"),
    ("gtrace", "A 0 0 5 0\nQ 0\n", "line 2: .* not a record"),
    ("gtrace", "A 0 0 5 0\nF 0 1\n", "line 2: .* block 1 does not exist"),
    ("minimalloc", "id,lower,size\n", "line 1: .* lacks one of lower, upper and size"),
    ("minimalloc", "id,lower,upper,size\n1,5,5,8\n", "line 2: .* ends before it begins"),
    ("minimalloc", "id,lower,upper,size\n1,5\n", "line 2: .* column is missing"),
    ("minimalloc", "", "line 0: .* lacks one of lower, upper and size"),
    ("stalloc", "1 512 64 0\n2 512 64 0\n", "line 2: .* neither 1"),
    ("stalloc", "1 x 64 0\n", "line 1: "),
    ("stalloc", "1 512 64 0\n1 512\n", "line 2: .* 2 numbers, not 4"),
    ("gtrace", "A 0\n", "line 1: .* 1 numbers, not 4"),
]


def run(*command, text=None):
    return subprocess.run(command, input=text, capture_output=True, text=True, check=False)


def read(form, log):
    """Return the trace's text, and that text as converted by fallow."""
    made = run(CONVERT, form, text=log)
    assert made.returncode == 0, made.stderr
    again = run(FALLOW, "trace", "dump", "-", "-o", "-", text=made.stdout)
    assert again.returncode == 0, again.stderr
    assert again.stdout == made.stdout, (made.stdout, again.stdout)
    return made.stdout


for form, log, wanted in GOOD:
    assert re.sub(r"(?s).*origin [a-z ]+\n", "", read(form, log)) == wanted, read(form, log)
for form, log, wanted in BAD:
    refused = run(CONVERT, form, text=log)
    assert refused.returncode == 1 and refused.stdout == "", refused
    assert re.search("standard input: " + wanted, refused.stderr), refused.stderr
with open("/dev/full", "w", encoding="ascii") as full:
    said = subprocess.run([CONVERT, "stalloc"], input="1 512 64 0\n", stdout=full, stderr=subprocess.PIPE, text=True)
assert (said.returncode, said.stderr) == (1, "convert: standard output: No space left on device\n"), said.stderr
assert run(CONVERT, "stalloc", "absent").returncode == 1 and run(CONVERT, "rmm").returncode == 2
problems = 0
for name, (blocks, peak) in PROBLEMS.items():
    path = os.path.join(*TRACES, "minimalloc", name + ".1048576.csv") if TRACES else ""
    if os.path.exists(path):
        with open(path, encoding="ascii") as file:
            text = read("minimalloc", file.read())
        live, most, sizes = 0, 0, {}
        for line in text.splitlines():
            words = line.split()
            if words[0] == "A":
                sizes[words[2]] = int(words[3])
            live += {"A": 1, "F": -1}.get(words[0], 0) * sizes.get(words[2] if len(words) > 2 else "", 0)
            most = max(most, live)
        assert (len(sizes), most, live) == (blocks, peak, 0), (name, len(sizes), most, live)
        problems += 1
print("%d logs, %d broken ones, %d published problems" % (len(GOOD), len(BAD), problems))
