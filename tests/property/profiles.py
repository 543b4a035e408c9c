# SPDX-License-Identifier: Apache-2.0
#
# property.profiles: the call stacks and owners of memory in a profile of PyTorch's, counted by this script alone,
# which tests for every slice whether the slice encloses the event, and by `fallow report`. A real profile
# (make_profile.py), and some that are made here: several threads, slices in one another, lines of calls, older
# profiles with the caller of each operator; and the same once more after `fallow trace export --to chrome`.
#
#   profiles.py FALLOW [PROFILE.json.gz...]
import csv
import gzip
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import urllib.parse
from decimal import Decimal

MADE = 24
CALLS = ("cpu_op", "python_function")


def frame(name):
    """(function, file, line) of a slice's name"""
    placed = re.match(r"(.*?)\((\d+)\): (.*)$", name, re.DOTALL)
    if placed:
        return placed.group(3), placed.group(1), int(placed.group(2))
    return (re.sub(r" at 0x[0-9a-f]+", "", name, count=1) if name.startswith("<") else name), "", 0


def text(function, file, line):
    """as --folded has it"""
    return f"{function} ({file}:{line})" if file else function


def stack(memory, slices):
    """The frames around an event, the innermost first."""
    around = [s for s in slices if (s["pid"], s["tid"]) == (memory["pid"], memory["tid"]) and
              s["ts"] <= memory["ts"] <= s["ts"] + s["dur"]]
    around.sort(key=lambda s: (s["ts"], -s["dur"]), reverse=True)
    frames, inner, callers = [], None, []
    for s in around:
        function, file, line = frame(s["name"])
        if inner:
            path, _, called = inner["args"].get("CallFrom", "").rpartition(":")
            line = int(called) if path and path == file else line
        frames.append((function, file, line))
        inner = s if s["cat"] == "python_function" else inner
        callers = callers or [frame(name) for name in s["args"].get("Call stack", "").split(";") if name]
    return frames if inner else frames + callers


def owner(frames):
    """the innermost frame of the program; else the node; else the outermost operator; else the innermost frame"""
    for function, file, line in frames:
        if file.endswith(".py") and not re.match(r"torch/|contextlib|typing|functools", file):
            return text(function, file, line)
    for function, _, _ in frames:
        if function.startswith("autograd::engine::evaluate_function: "):
            return function.split(": ")[1]
    operators = [f for f, _, _ in frames if f.startswith("aten::")]
    library = [text(*f) for f in frames if f[1].endswith(".py")]
    return operators[-1] if operators else library[0] if library else "code that is not known"


def count(trace):
    """{stack: bytes}, {owner: bytes}, at the peak; of blocks that are not older than the profile."""
    events = trace["traceEvents"]
    slices = [e for e in events if e.get("ph") == "X" and e.get("cat") in CALLS]
    memory = sorted((e for e in events if e["name"] == "[memory]"), key=lambda e: e["ts"])
    live, held = {}, memory[0]["args"]["Total Allocated"] - memory[0]["args"]["Bytes"]
    peak, at_peak = held, {}
    for event in memory:
        about = event["args"]
        held += about["Bytes"]
        if about["Bytes"] > 0:
            live[about["Addr"]] = (about["Bytes"], stack(event, slices))
        else:
            live.pop(about["Addr"], None)
        if held > peak:
            peak, at_peak = held, dict(live)
    stacks, owners = {}, {}
    for size, frames in at_peak.values():
        line = ";".join(text(*f) for f in reversed(frames)) or owner(frames)
        stacks[line] = stacks.get(line, 0) + size
        owners[owner(frames)] = owners.get(owner(frames), 0) + size
    return stacks, owners


def reported(tool, path, folder):
    owners_path = os.path.join(folder, "owners.csv")
    run = subprocess.run([tool, "report", path, "--no-times", "--policy", "bound", "--folded", "-", "--csv-owners",
                          owners_path], check=True, capture_output=True, text=True)
    stacks = {}
    for line in run.stdout.splitlines():
        name, size = line.rsplit(" ", 1)
        stacks[";".join(urllib.parse.unquote(part) for part in name.split(";"))] = int(size)
    with open(owners_path, newline="") as file:
        owners = {row["owner"]: int(row["peak_bytes"]) for row in csv.DictReader(file)}
    return tuple({name: size for name, size in sizes.items() if size and not name.startswith("before the recording")}
                 for sizes in (stacks, owners))


def make_slices(dice, thread, begin, end, depth, is_old, out):
    """Calls in one another; times in nanoseconds, none used twice."""
    name, call = dice.choice([
        (f"train.py({dice.randrange(1, 9)}): step{depth}", "python_function"),
        (f"torch/nn/module.py(7): call{depth % 3}", "python_function"),
        ("<built-in method mm of Tensor object at 0x7f%x>" % dice.randrange(1 << 20), "python_function"),
        (f"aten::op{dice.randrange(3)}", "cpu_op"), (f"Mm{depth}Backward0", "cpu_op"),
        (f"autograd::engine::evaluate_function: Mm{depth}Backward0", "cpu_op"),
        ("caf\u00e9 \"quoted\" \\ x", "cpu_op")])
    about = {}
    if is_old:
        call = "cpu_op"
        if dice.random() < 0.5:
            about["Call stack"] = dice.choice(["a.py(3): f;b.py(4): g", "torch/x.py(1): h;train.py(2): <module>"])
    elif call == "python_function":
        about["CallFrom"] = dice.choice([f"train.py:{dice.randrange(10, 90)}", "torch/nn/module.py:70", ""])
    out.append({"ph": "X", "cat": call, "name": name, "pid": 5, "tid": thread, "ts": begin, "dur": end - begin,
                "args": about})
    at = begin + 1
    while depth < 9 and at + 20 < end and dice.random() < 0.9:
        until = dice.randrange(at + 10, end)
        make_slices(dice, thread, at, until, depth + 1, is_old, out)
        at = until + 2


def make(seed):
    dice = random.Random(seed)
    slices, memory, live, held = [], [], {}, 0
    threads = range(1, dice.randrange(2, 5))
    for thread in threads:
        make_slices(dice, thread, 1000 + thread, 90000, 0, seed % 2 == 1, slices)
    taken = {t for s in slices for t in (s["ts"], s["ts"] + s["dur"])}
    times = sorted(set(dice.randrange(900, 95000) for _ in range(300)) - taken)
    for time in times:
        if live and dice.random() < 0.4:
            address = dice.choice(list(live))
            size = -live.pop(address)
        else:
            address, size = 4096 * (1 + time), dice.choice([512, 2048, 1 << 20])
            live[address] = size
        held += size
        memory.append({"ph": "i", "s": "t", "name": "[memory]", "pid": 5, "tid": dice.choice(threads), "ts": time,
                       "args": {"Device Type": 1, "Device Id": 0, "Addr": address, "Bytes": size,
                                "Total Allocated": held, "Total Reserved": 1 << 30}})
    for event in slices + memory:  # microseconds with a fraction, as the profiler writes them
        for key in ("ts", "dur"):
            if key in event:
                event[key] = event[key] / 1000
    events = slices + memory
    dice.shuffle(events)
    return {"schemaVersion": 1, "traceEvents": events}


def compare(tool, path):
    with gzip.open(path, "rt", encoding="utf-8") as file:
        stacks, owners = count(json.load(file, parse_float=Decimal))
    with tempfile.TemporaryDirectory() as folder:
        again = os.path.join(folder, "again.json")
        subprocess.run([tool, "trace", "export", path, "--to", "chrome", "-o", again], check=True, capture_output=True)
        results = {"the profile": reported(tool, path, folder), "what is exported": reported(tool, again, folder)}
    wrong = [what for what, seen in results.items() if seen != (stacks, owners)]
    print(f"{path}: {len(stacks)} stacks of {len(owners)} owners, {'NOT the same: ' + ', '.join(wrong) if wrong else 'the same'}")
    for what in wrong:
        print(stacks, owners, *results[what], sep="\n")
    return bool(stacks) and not wrong


def main():
    tool, paths = sys.argv[1], sys.argv[2:]
    results = [compare(tool, path) for path in paths]
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(MADE):
            path = os.path.join(folder, f"made {seed}.json.gz")
            with gzip.open(path, "wt", encoding="utf-8") as file:
                json.dump(make(seed), file, ensure_ascii=seed % 3 == 0)
            results.append(compare(tool, path))
    return 0 if results and all(results) else 1


sys.exit(main())
