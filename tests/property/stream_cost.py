# SPDX-License-Identifier: Apache-2.0
#
# Check the cost of a stream that is new to the pool, in instructions (callgrind) of libfallow without the driver: it
# must not grow with the number of streams. Destroyed streams must leave no memory behind. Times are not measured.
#
#   stream_cost.py PROGRAM     exit 1: something costs more, or grows; 77: no valgrind
import os
import re
import shutil
import subprocess
import sys
import tempfile

MIB = 1 << 20
HELD_MOST, HOST_MOST = 64 * MIB, 8 * MIB  # by a pool after all its streams were destroyed
BESIDE_HELD_MOST, BESIDE_HOST_MOST = 384 * MIB, 64 * MIB  # 2,000 live, and no more that are gone


def count(program, way, streams):
    """(instructions spent by calls from the program into libfallow, less those of calls from there into the driver;
    the output of the program)"""
    with tempfile.TemporaryDirectory() as folder:
        out = f"{folder}/out"
        run = subprocess.run(["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", program, way, str(streams)],
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                             env={**os.environ, "LD_BIND_NOW": "1"})
        if run.returncode != 0:
            sys.exit(f"{program} {way} {streams}: {run.returncode}\n{run.stderr}")
        names, cost, caller, callee, is_call = {}, 0, "", "", False
        for line in open(out):
            name = re.match(r"(c?)ob=(\(\d+\))(?: (.*))?", line)
            if name:
                names[name[2]] = os.path.basename(name[3]) if name[3] else names.get(name[2], "")
                if name[1]:
                    callee = names[name[2]]
                else:
                    caller = callee = names[name[2]]
            elif line.startswith("cfn="):
                pass
            elif line.startswith("fn="):
                callee = caller
            elif line.startswith("calls="):
                is_call = True
            elif is_call:
                inclusive = int(line.split()[1])
                into = callee.startswith("libfallow.so"), caller.startswith("libfallow.so")
                if into == (True, False) and not caller.startswith("libfallow-simcuda"):
                    cost += inclusive
                if into[1] and callee.startswith("libfallow-simcuda"):
                    cost -= inclusive
                is_call, callee = False, caller
        return cost, run.stdout.strip()


def main(program):
    if shutil.which("valgrind") is None:
        print("no valgrind: nothing counted")
        return 77
    has_failed = False
    for way, most, steps in (("touch", 6000, (64, 512, 2048, 4096, 65536)), ("go", 15000, (500, 1000, 4000)),
                             ("vanish", 15000, (500, 1000, 4000)), ("fade", 15000, (500, 1000, 4000)), ("beside", 15000, (2000, 6000)),
                             ("die", 15000, (500, 1000, 4000)), ("retire", 15000, (500, 1000, 4000))):
        before, _ = count(program, way, steps[0])
        for low, high in zip(steps, steps[1:]):
            cost, said = count(program, way, high)
            each = (cost - before) / (high - low)
            before = cost
            held, host = (int(number) for number in re.findall(r"\d+", said)[:2])
            held_most, host_most = (BESIDE_HELD_MOST, BESIDE_HOST_MOST) if way == "beside" else (HELD_MOST, HOST_MOST)
            keeps = way != "touch" and (held > held_most or host > host_most)
            has_failed |= each > most or keeps
            print(f"{way}, streams {low} to {high}: {each:,.0f} instructions each"
                  f"{f', more than {most}' if each > most else ''}; {said}{', too much' if keeps else ''}", flush=True)
    return 1 if has_failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
