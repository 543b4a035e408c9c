# SPDX-License-Identifier: Apache-2.0
#
# property.owners: who holds the memory of a snapshot when most is asked for, and the out-of-memory, counted by this
# script alone, with Python's own pickle, and by `fallow report`: the same owners, blocks and bytes. The snapshots named, which are to be
# trusted since unpickling may run code, and some that are made here: frees that are deferred, several devices and
# private pools, sizes so few that peaks are equal, blocks older than the recording, code of every kind.
#
#   owners.py FALLOW [SNAPSHOT...]
import json
import lzma
import os
import pickle
import random
import re
import subprocess
import sys
import tempfile

FRAMEWORKS = ("torch", "triton", "numpy", "functorch", "importlib", "multiprocessing")
SHOWN = 12
MADE = 40


def is_framework(path):
    folders = re.split(r"[/\\]", path)[:-1]
    return any(f in FRAMEWORKS or f.startswith("torchinductor_") for f in folders) or path.endswith("contextlib.py")


def worth(frame):
    """program, package, node, operator; None: says nothing"""
    path, function = frame["filename"], frame["name"]
    plain = path.replace("\\", "/")
    if path.startswith("<"):
        return None, ""
    if path.endswith(".py"):
        text = f"{function} ({path}:{frame['line']})"
        inside = re.search(r"/(site|dist)-packages/.*", plain)
        if inside:
            return (None, "") if is_framework(inside.group(0)) else ("package", text)
        is_standard = "/lib/python" in plain or "/Lib/" in plain or "/cpython-" in plain
        return (None, "") if is_framework(plain) or is_standard else ("program", text)
    node = re.search(r"(\w+)::apply\(", function)
    if node and "autograd::" in function:
        return "node", node.group(1)
    operator = re.match(r"at::_ops::(\w+)", function)
    return ("operator", "aten::" + operator.group(1)) if operator else (None, "")


def owner(frames):
    found = {}
    for frame in frames:
        kind, text = worth(frame)
        if kind and (kind == "operator" or kind not in found):
            found[kind] = text
    for kind in ("program", "package", "node", "operator"):
        if kind in found:
            return found[kind]
    return "code that is not known"


def size_class(size):
    bound = 1
    while bound < size:
        bound *= 2
    units = ["B", "KiB", "MiB", "GiB", "TiB"]
    unit = 0
    while bound >= 1024:
        bound //= 1024
        unit += 1
    return f"up to {bound} {units[unit]}"


def short(name):
    """As the report shows it: without the file's folders, cut to what it has room for."""
    name = re.sub(r"\([^()]*[/\\]([^()/\\]*:\d+\))$", r"(\1", name)
    return name.encode()[:63].decode(errors="ignore")


def blocks_at_start(events, segments):
    """By address: (bytes, owner); the heap at the end with all events undone, the newest first."""
    heap = {}
    for segment in segments:
        for block in segment["blocks"]:
            if block["state"] != "inactive":
                heap[block["address"]] = (block["requested_size"], block.get("frames") or [])
    for event in reversed(events):
        if event["action"] == "alloc":
            heap.pop(event["addr"], None)
        elif event["action"] in ("free_requested", "free_completed"):
            heap[event["addr"]] = (event["size"], [])
    return {address: (size, owner(frames) if frames else "before the recording, " + size_class(size))
            for address, (size, frames) in heap.items()}


def count(snapshot):
    events = max(snapshot["device_traces"], key=len)
    device = snapshot["device_traces"].index(events)
    live = blocks_at_start(events, [s for s in snapshot["segments"] if s["device"] == device])
    ooms = []
    held = sum(size for size, _ in live.values())
    peak, at_peak = held, dict(live)
    for event in events:
        address = event["addr"] if event["action"] != "oom" else None
        if event["action"] == "alloc":
            live[address] = (event["size"], owner(event["frames"]))
            held += event["size"]
            if held > peak:  # the first of equal ones
                peak, at_peak = held, dict(live)
        elif event["action"] == "oom":
            name = owner(event["frames"])
            ooms.append({"asked_bytes": event["size"], "live_bytes": held, "device_free_bytes": event["device_free"],
                         "owner": None if name == "code that is not known" else short(name)})
        elif event["action"] in ("free_requested", "free_completed") and address in live:
            held -= live.pop(address)[0]  # asked for until the program frees it
    owners = {}
    for size, name in at_peak.values():
        entry = owners.setdefault(name, [0, 0])
        entry[0] += size
        entry[1] += size > 0
    return peak, owners, ooms and {"count": len(ooms), **ooms[0]} or None


def frame(kind, dice):
    which = dice.randrange(4)
    name, path, line = {
        "program": (f"step{which}", f"/home/u/run/model{which}.py", 10 + which),
        "package": (f"forward{which}", "/usr/lib/python3/dist-packages/vllm/attention.py", which),
        "torch": ("empty", "C:\\venv\\Lib\\site-packages\\torch\\functional.py", 7),
        "standard": ("run", "/usr/lib/python3.11/threading.py", 982),
        "generated": ("forward", "<eval_with_key>.3", 5),
        "node": (f"torch::autograd::generated::Mm{which}Backward0::apply(std::vector<at::Tensor>&&)", "??", 0),
        "operator": (f"at::_ops::bmm{which}::call(at::Tensor const&)", "", 0),
        "native": ("c10::cuda::CUDACachingAllocator::malloc(unsigned long)", "CUDACachingAllocator.cpp", 0)}[kind]
    return {"name": name, "filename": path, "line": line}


def stack(dice):
    kinds = dice.choice([["native", "torch", "program", "program"], ["native", "operator", "torch", "package", "standard"],
                         ["native", "operator", "operator", "node"], ["native", "operator", "native"], ["native"], [],
                         ["generated", "standard", "torch", "package", "program"]])
    return [frame(kind, dice) for kind in kinds]


def device_trace(dice, length, base):
    """Events, and what is in the heap at the end."""
    events, live, waiting, next_address = [], {}, [], base
    old = {base + (i << 30): (dice.choice([3, 9]) << 20, stack(dice)) for i in range(8)}
    live.update(old)
    next_address += 9 << 30
    for step in range(length):
        chance = dice.random()
        if chance < 0.45 or not live:
            size, frames = dice.choice([1, 2, 4]) << 20, stack(dice)
            events.append({"action": "alloc", "addr": next_address, "size": size, "frames": frames})
            live[next_address] = (size, frames)
            next_address += 1 << 30
        elif chance < 0.9:
            address = dice.choice(list(live))
            size = live.pop(address)[0]
            events.append({"action": "free_requested", "addr": address, "size": size, "frames": stack(dice)})
            waiting.append((address, size))
        if dice.random() < 0.01:
            events.append({"action": "oom", "size": dice.choice([5, 70]) << 30, "device_free": dice.choice([0, 3 << 20]),
                           "frames": stack(dice)})
        if waiting and dice.random() < 0.4:
            address, size = waiting.pop(0)
            events.append({"action": "free_completed", "addr": address, "size": size, "frames": []})
        for event in events[-2:]:
            event.setdefault("stream", 0)
            event.setdefault("time_us", 1000 + step)
            event.setdefault("pool_id", (0, dice.randrange(2)))
    events += [{"action": "free_completed", "addr": a, "size": s, "frames": [], "stream": 0, "time_us": 1000 + length,
                "pool_id": (0, 0)} for a, s in waiting]
    return events, live


def make(seed):
    dice = random.Random(seed)
    traces, segments = [], []
    for device in range(dice.choice([1, 3])):
        base = 0x7F0000000000 + (device << 44)
        events, live = device_trace(dice, dice.choice([50, 400]), base)
        traces.append(events)
        segments += [{"device": device, "address": address, "total_size": size, "stream": 0, "segment_type": "large",
                      "is_expandable": False, "segment_pool_id": (0, 0),
                      "blocks": [{"address": address, "size": size, "requested_size": size,
                                  "state": "active_allocated", "frames": frames}]}
                     for address, (size, frames) in live.items()]
    return {"segments": segments, "device_traces": traces}


def compare_made(tool):
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(MADE):
            path = os.path.join(folder, f"made {seed}.pickle")
            with open(path, "wb") as file:
                pickle.dump(make(seed), file)
            results.append(compare(tool, path))
    return results


def reported(tool, path):
    run = subprocess.run([tool, "report", path, "--no-times", "--policy", "bound", "--json", "-"],
                         check=True, capture_output=True, text=True)
    trace = json.loads(run.stdout)["traces"][0]
    oom = trace["out_of_memory"]
    if oom:
        del oom["event"]  # repaired frees are events, too
    return trace["bound_bytes"], trace["at_peak_requested"]["by_code"], oom


def compare(tool, path):
    with (lzma.open if path.endswith(".xz") else open)(path, "rb") as file:
        snapshot = pickle.load(file)
    if not any(snapshot["device_traces"]):
        return None
    peak, owners, oom = count(snapshot)
    expected = sorted(([size, blocks, short(name)] for name, (size, blocks) in owners.items() if size), reverse=True)
    rest = expected[SHOWN:]
    expected = expected[:SHOWN]
    seen_peak, seen, seen_oom = reported(tool, path)
    other = [s for s in seen if s["owner"] == "other"]
    seen = sorted(([s["bytes"], s["blocks"], s["owner"]] for s in seen if s["owner"] != "other"), reverse=True)
    # Where the last places are equal in bytes, either may be shown.
    same = peak == seen_peak and [e[0] for e in expected] == [s[0] for s in seen]
    same &= all(s in expected + rest for s in seen)
    same &= oom == seen_oom
    same &= sum(r[0] for r in rest) == sum(o["bytes"] for o in other)
    print(f"{path}: {len(owners)} owners of {peak} bytes, {'the same' if same else 'NOT the same'}")
    if not same:
        print(peak, seen_peak, oom, seen_oom, *zip(expected, seen), sep="\n")
    return same


def main():
    results = compare_made(sys.argv[1]) + [compare(sys.argv[1], path) for path in sys.argv[2:]]
    counted = [r for r in results if r is not None]
    return 0 if counted and all(counted) else 1


sys.exit(main())
