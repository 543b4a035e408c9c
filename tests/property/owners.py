# SPDX-License-Identifier: Apache-2.0
#
# property.owners: the owners of a snapshot's memory at the peak, at the out-of-memory and at the end, and the owners
# of memory that was not freed, counted by this script alone, with Python's own pickle, and by `fallow report`: the
# same owners, blocks and bytes, by the default rule and with --owner, --skip and --by. The files of --csv-owners,
# --folded and --chrome are read back and have the same sums; --chrome and `fallow trace export
# --to chrome` keep the rules of that form. At an out-of-memory, the JSON, the first screen and the page agree on the
# requested, idle and largest free memory. The snapshots named, which are to be trusted since unpickling may run code,
# each counted once more as if it had run out of memory at its peak, and some that are made here: frees that are
# deferred, several devices and private pools, sizes so few that peaks are equal, blocks older than the recording,
# phases in one another and across, code of every kind, names that contain the separator of frames.
#
#   owners.py FALLOW [SNAPSHOT...]
import csv
import functools
import gzip
import json
import lzma
import os
import pickle
import random
import re
import subprocess
import sys
import tempfile
import urllib.parse

import trace_events

FRAMEWORKS = ("torch", "triton", "numpy", "functorch", "importlib", "multiprocessing")
SEGMENTS = {"segment_alloc": 1, "segment_map": 1, "segment_free": -1, "segment_unmap": -1}
SHOWN = 12
OWNERS = 200
MADE = 48


def is_framework(path):
    folders = re.split(r"[/\\]", path)[:-1]
    return any(f in FRAMEWORKS or f.startswith("torchinductor_") for f in folders) or path.endswith("contextlib.py")


class Rule:
    """The options of owners, as arguments of the command line."""

    def __init__(self, owner=(), skip=(), by="frame"):
        self.owner, self.skip, self.by = owner, skip, by

    def arguments(self):
        pairs = [("--owner", o) for o in self.owner] + [("--skip", s) for s in self.skip]
        return [word for pair in pairs + [("--by", self.by)] for word in pair]


PLAIN = Rule()
UNKNOWN = "code that is not known"


def module(path):
    """the package that it was installed as, else its folder, else its own name"""
    installed = re.search(r"(?:^|[/\\])(?:site|dist)-packages[/\\]([^/\\]*)", path)
    folders = re.split(r"[/\\]", path)
    name = installed.group(1) if installed else folders[-2] if len(folders) > 1 and folders[-2] else folders[-1]
    return re.sub(r"(?<=.)\.py$", "", name)


def place(path, function, line, by):
    """the owner's whole name, and the one without folders"""
    base = re.split(r"[/\\]", path)[-1]
    if path in ("", "??"):
        return function, function
    return {"frame": (f"{function} ({path}:{line})", f"{function} ({base}:{line})"),
            "file": (path, base), "module": (module(path), module(path))}[by]


@functools.lru_cache(maxsize=None)
def worth(path, function, line, rule):
    """named, program, package, node, operator; None: no rule applies"""
    plain, whole = path.replace("\\", "/"), f"{function} ({path}:{line})"
    nothing = None, None
    if any(re.search(s, whole) for s in rule.skip):
        return nothing
    if any(re.search(o, whole) for o in rule.owner):
        return "named", place(path, function, line, rule.by)
    if path.startswith("<"):
        return nothing
    if path.endswith(".py"):
        inside = re.search(r"/(site|dist)-packages/.*", plain)
        if inside:
            kind = "library" if is_framework(inside.group(0)) else "package"
            return kind, place(path, function, line, rule.by)
        is_standard = "/lib/python" in plain or "/Lib/" in plain or "/cpython-" in plain
        kind = "library" if is_framework(plain) or is_standard else "program"
        return kind, place(path, function, line, rule.by)
    node = re.search(r"(\w+)::apply\(", function)
    if node and "autograd::" in function:
        return "node", (node.group(1), node.group(1))
    operator = re.match(r"at::_ops::(\w+)", function)
    return ("operator", ("aten::" + operator.group(1),) * 2) if operator else nothing


def owner(frames, rule):
    found = {}
    for frame in frames:
        kind, names = worth(frame["filename"], frame["name"], frame["line"], rule)
        if kind and (kind == "operator" or kind not in found):
            found[kind] = names
    for kind in ("named", "program", "package", "node", "operator", "library"):
        if kind in found:
            return found[kind]
    return UNKNOWN, UNKNOWN


def phase(frames):
    if not frames:
        name = "neither in a phase nor with a call stack"
    elif any("/torch/optim/" in f["filename"].replace("\\", "/") for f in frames):
        name = "optimizer"
    elif any("autograd::Engine::" in f["name"] or "_engine_run_backward" in f["name"] for f in frames):
        name = "backward"
    else:
        name = "neither backward nor optimizer"
    return name, name


def open_phase(snapshot, device, time_us):
    """the phase begun last of those that are not over; an end closes the last begin of its name"""
    open_ones = []
    for note in snapshot.get("external_annotations", []):
        if note["device"] == device and note["time_us"] <= time_us:
            if note["stage"] == "START":
                open_ones.append(note["name"])
            else:
                open_ones.reverse()
                open_ones.remove(note["name"])
                open_ones.reverse()
    return (open_ones[-1],) * 2 if open_ones else None


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
    """As the report shows a name: without characters that move a terminal's cursor, cut to its width."""
    name = re.sub(r"[\x00-\x1f\x7f]", "?", name).encode()
    kept = min(len(name) - name.rfind(b"("), 45) if b"(" in name else 0  # "(model.py:30)"
    if len(name) > 63:
        name = name[:60 - kept] + b"..." + name[len(name) - kept:]
    return name.decode(errors="ignore")


def blocks_at_start(events, segments, rule):
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
    for address, (size, frames) in heap.items():
        before = ("before the recording, " + size_class(size),) * 2
        names = phase(frames) if rule.by == "phase" else owner(frames, rule)
        heap[address] = (size, names if frames else before)
    return heap


def by_owner(blocks):
    """Name: [bytes, blocks]; blocks of nothing are none."""
    owners = {}
    for size, name in blocks:
        entry = owners.setdefault(name, [0, 0])
        entry[0] += size
        entry[1] += size > 0
    return {name: entry for name, entry in owners.items() if entry[1]}


def reserved_at_start(events, device, segments):
    """The segments at the end with all their events undone."""
    at_end = sum(s["total_size"] for s in segments if s["device"] == device)
    return at_end - sum(SEGMENTS.get(e["action"], 0) * e["size"] for e in events)


def idle_at(events, at, device, segments):
    """Return the reserved bytes before an event, the free bytes, the largest free piece, and the blocks in the rest.
    Starts from the heap at the end and undoes the later events."""
    whole = [(s["address"], s["address"] + s["total_size"], s["stream"], s.get("is_expandable", False))
             for s in segments if s["device"] == device]
    taken = {b["address"]: b["requested_size"] for s in segments if s["device"] == device for b in s["blocks"]
             if b["state"] != "inactive"}
    for event in reversed(events[at:]):
        begin, end = event.get("addr", 0), event.get("addr", 0) + event["size"]
        if event["action"] in ("segment_alloc", "segment_map"):
            whole = [piece for b, e, stream, kind in whole
                     for piece in ((b, min(e, begin), stream, kind), (max(b, end), e, stream, kind)) if piece[0] < piece[1]]
        elif event["action"] in ("segment_free", "segment_unmap"):
            whole.append((begin, end, event["stream"], event["action"] == "segment_unmap"))
        elif event["action"] == "alloc":
            taken.pop(event["addr"], None)
        elif event["action"] in ("free_requested", "free_completed"):
            taken[event["addr"]] = event["size"]
    ranges = []
    for begin, end, stream, is_mapped in sorted(whole):
        if ranges and is_mapped and ranges[-1][1:] == [begin, stream, True]:
            ranges[-1][1] = end
        else:
            ranges.append([begin, end, stream, is_mapped])
    holes = []
    rounded = {address: (size + 511) // 512 * 512 for address, size in taken.items() if size}
    for begin, end, _, _ in ranges:
        reached = begin
        for address in sorted(a for a in rounded if a < end and a + rounded[a] > begin):
            holes.append(max(0, address - reached))
            reached = max(reached, address + rounded[address])
        holes.append(max(0, end - reached))
    return sum(end - begin for begin, end, _, _ in whole), sum(holes), max(holes, default=0), taken


def device_shown(snapshot):
    """Return the device that ran out of memory first, else the busiest."""
    def weight(device):
        events = snapshot["device_traces"][device]
        return (min((e.get("time_us", i) for i, e in enumerate(events) if e["action"] == "oom"), default=1 << 64),
                -len(events))
    return min(range(len(snapshot["device_traces"])), key=weight)


def count(snapshot, rule):
    """The owners at each moment, and the out-of-memory."""
    device = device_shown(snapshot)
    events = snapshot["device_traces"][device]
    live = blocks_at_start(events, [s for s in snapshot["segments"] if s["device"] == device], rule)
    start = dict(live)
    ooms, at_oom = [], None
    reserved = reserved_at_start(events, device, snapshot["segments"])
    held = sum(size for size, _ in live.values())
    peak, at_peak = held, dict(live)

    def asker(event):
        if rule.by == "phase":
            return open_phase(snapshot, device, event["time_us"]) or phase(event["frames"])
        return owner(event["frames"], rule)

    for place, event in enumerate(events):
        address = event["addr"] if event["action"] != "oom" else None
        if event["action"] == "alloc":
            start.pop(address, None)
            live[address] = (event["size"], asker(event))
            held += event["size"]
            if held > peak:  # the first of equal ones
                peak, at_peak = held, dict(live)
        elif event["action"] in SEGMENTS:
            reserved += SEGMENTS[event["action"]] * event["size"]
        elif event["action"] == "oom":
            name = asker(event)[1]
            at_oom = at_oom if ooms else dict(live)
            whole, idle, hole, taken = (idle_at(events, place, device, snapshot["segments"]) if not ooms
                                        else (0, 0, 0, {}))
            pending = [size for address, size in taken.items() if address not in live]
            used = held + sum(pending)
            ooms.append({"asked_bytes": event["size"], "live_bytes": held, "device_free_bytes": event["device_free"],
                         "idle_bytes": min(whole - used, idle) if whole >= used else None,
                         "largest_hole_bytes": hole if whole >= used else None,
                         "pending_bytes": sum(pending), "pending_blocks": len(pending),
                         "owner": None if name == UNKNOWN else short(name),
                         "limit_bytes": max(reserved, held) + event["device_free"]})
        elif event["action"] in ("free_requested", "free_completed") and address in live:
            start.pop(address, None)
            held -= live.pop(address)[0]  # pending until the program frees it
    moments = {"at_peak": by_owner(at_peak.values()), "at_end": by_owner(live.values()),
               "at_out_of_memory": by_owner(at_oom.values()) if ooms else None,
               "survivors": by_owner(block for address, block in live.items() if address not in start)}
    return peak, moments, ooms and {"count": len(ooms), **ooms[0]} or None


def frame(kind, dice):
    which = dice.randrange(4)
    name, path, line = {
        "program": (f"step{which}", f"/home/u/run/model{which}.py", 10 + which),
        "package": (f"forward;{which} 50%41 \u00e9\n()", "/usr/lib/python3/dist-packages/vllm/attention.py", which),
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
    """Events, and the heap at the end."""
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
            event.setdefault("time_us", 1000 + 2 * step)
            event.setdefault("pool_id", (0, dice.randrange(2)))
    events += [{"action": "free_completed", "addr": a, "size": s, "frames": [], "stream": 0, "time_us": 1000 + 2 * length,
                "pool_id": (0, 0)} for a, s in waiting]
    return events, live


def annotations(dice, device_count):
    """Phases in one another and across, between events, some of which never end; each device's own."""
    notes = []
    for device in range(device_count):
        open_names = []
        for time_us in range(999, 1800, 2):
            chance = dice.random()
            if chance < 0.05:
                open_names.append(dice.choice(["ProfilerStep#1", "ProfilerStep#2", "forward", "Optimizer.step#SGD.step"]))
                notes.append({"stage": "START", "name": open_names[-1], "device": device, "time_us": time_us})
            elif chance < 0.12 and open_names:
                name = open_names.pop(-1 if dice.random() < 0.8 else dice.randrange(len(open_names)))
                notes.append({"stage": "END", "name": name, "device": device, "time_us": time_us})
    return notes


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
    return {"segments": segments, "device_traces": traces, "external_annotations": annotations(dice, len(traces))}


def compare_made(tool):
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(MADE):
            path = os.path.join(folder, f"made {seed}.pickle")
            with open(path, "wb") as file:
                pickle.dump(make(seed), file)
            results.append(compare(tool, path, RULES[seed % len(RULES)]))
    return results


def reported(tool, path, rule, at, folder, has_slices):
    """The trace's part of the JSON, the out-of-memory, and the files that were written beside it."""
    files = {"csv-owners": "owners.csv", "folded": "stacks.folded"}
    files.update({"chrome": "chrome.json.gz"} if has_slices else {})
    files = {option: os.path.join(folder, name) for option, name in files.items()}
    options = [word for option, name in files.items() for word in ("--" + option, name)] + ["--at", at]
    run = subprocess.run([tool, "report", path, "--no-times", "--policy", "bound", "--json", "-", *rule.arguments(),
                          *options], check=True, capture_output=True, text=True)
    trace = json.loads(run.stdout)["traces"][0]
    oom = trace["out_of_memory"]
    if oom:
        for key in ("event", "limit_given", "replayed"):  # repaired frees are events, too
            del oom[key]
        oom["owner"] = oom["owner"] and text_of(oom["owner"])
    return trace, oom, files


def parse_stack(text):
    """The frames, the innermost first, or the owner's name where there are none."""
    frames = []
    for part in reversed(text.split(";")):
        part = urllib.parse.unquote(part)
        placed = re.match(r"(.*) \((.*):(\d+)\)$", part, re.DOTALL)
        name, path, line = placed.groups() if placed else (part, "", 0)
        frames.append({"name": name, "filename": path, "line": int(line)})
    return frames


def text_of(written):
    """Without the bytes that are no UTF-8, which a name may have at the cut."""
    return written.encode(errors="surrogateescape").decode(errors="ignore")


def whole_names(owners):
    """By whole name alone."""
    return {name[0]: entry for name, entry in (owners or {}).items()}


def is_same_csv(path, moments, has_oom):
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    same = len({row["owner"] for row in rows}) == len(rows)
    for moment, key in (("at_peak", "peak"), ("at_end", "end"), ("survivors", "survivor"), ("at_out_of_memory", "oom")):
        if moment == "at_out_of_memory" and not has_oom:
            same &= all(row["oom_bytes"] == row["oom_blocks"] == "" for row in rows)
            continue
        seen = {row["owner"]: [int(row[key + "_bytes"]), int(row[key + "_blocks"])] for row in rows}
        same &= {name: entry for name, entry in seen.items() if entry[1]} == whole_names(moments[moment])
    return same


def is_same_folded(path, expected, rule):
    """The sums by owner of the frames that the lines name; of other rules, the sum of all."""
    sums, lines = {}, []
    with open(path) as file:
        for line in file:
            text, size = line.rstrip("\n").rsplit(" ", 1)
            lines.append(text)
            name = owner(parse_stack(text), PLAIN)[0]
            name = text if name == UNKNOWN and ";" not in text and text.startswith("before the recording, ") else name
            sums[name] = sums.get(name, 0) + int(size)
    bytes_of = {name: entry[0] for name, entry in whole_names(expected).items() if entry[0]}
    same = len(set(lines)) == len(lines) and sum(sums.values()) == sum(bytes_of.values())
    return same and (rule is not PLAIN or sums == bytes_of)


def is_same_chrome(path, moments, rule):
    """Slices: those open at the end, and the most at any time; their owners, by their stacks. Counters: the same."""
    with gzip.open(path) as file:
        document = trace_events.read(file.read())
    wrong, events = trace_events.broken_rules(document), [e for e in document["traceEvents"] if e["ph"] != "M"]
    print(*wrong[:3], sep="\n", end="\n" * bool(wrong))
    open_slices, counters, held, peak = {}, {}, 0, 0
    same = not wrong and all(a["ts"] <= b["ts"] for a, b in zip(events, events[1:]))
    for event in events:
        if event["ph"] == "b":
            about = event["args"]
            open_slices[event["id2"]["local"]] = about
            held += about["bytes"]
            peak = max(peak, held)
            if rule is PLAIN and "stack" in about:
                same &= owner(parse_stack(about["stack"]), rule)[0] == about["owner"]
        elif event["ph"] == "e":
            held -= open_slices.pop(event["id2"]["local"])["bytes"]
        elif event["ph"] == "C":
            counters[event["name"]] = event["args"]["bytes"]
    at_end = by_owner((about["bytes"], about["owner"]) for about in open_slices.values())
    same &= at_end == whole_names(moments["at_end"])
    same &= sorted(c for c in counters.values() if c) == sorted(entry[0] for entry in at_end.values() if entry[0])
    return same and peak == sum(size for size, _ in moments["at_peak"].values())


def is_export_sound(tool, path, snapshot, device, folder):
    """The trace as Chrome's JSON: the rules of the form are kept, and each phase that ends is in some row."""
    out = os.path.join(folder, "export.json")
    subprocess.run([tool, "trace", "export", path, "--to", "chrome", "-o", out], check=True, capture_output=True)
    with open(out, "rb") as file:
        document = trace_events.read(file.read())
    wrong = trace_events.broken_rules(document)
    print(*wrong[:3], sep="\n", end="\n" * bool(wrong))
    first = min((e["time_us"] for e in snapshot["device_traces"][device] if "time_us" in e), default=0)
    notes = [n for n in snapshot.get("external_annotations", []) if n["device"] == device and n["time_us"] >= first]
    ends = sorted(e["name"] for e in document["traceEvents"] if e["ph"] == "E")
    return not wrong and ends == sorted(n["name"] for n in notes if n["stage"] == "END")


def is_same_moment(expected, holding):
    """To the byte and block: each owner, and all of them."""
    if expected is None or holding is None:
        return expected is None and holding is None
    rows = sorted(([size, blocks, short(name[1])] for name, (size, blocks) in expected.items()), reverse=True)
    seen = sorted(([s["bytes"], s["blocks"], text_of(s["owner"])] for s in holding["owners"]), reverse=True)
    places = len(seen)
    # Where the last places are equal in bytes, any may be shown.
    same = [r[0] for r in rows[:places]] == [s[0] for s in seen] and all(s in rows for s in seen)
    same &= sum(r[0] for r in rows) == holding["bytes"] and sum(r[1] for r in rows) == holding["blocks"]
    same &= sum(r[0] for r in rows[places:]) == holding["rest_bytes"]
    same &= places == min(len(rows), OWNERS)
    for s in holding["owners"]:
        same &= "left_bytes" not in s or (sum(s["left_bytes"]), sum(s["left_blocks"])) == (s["bytes"], s["blocks"])
    if not same:
        print(rows, seen, sep="\n")
    return same


def compare(tool, path, rule=PLAIN, has_slices=True, dice=random.Random(1)):
    with (lzma.open if path.endswith(".xz") else open)(path, "rb") as file:
        snapshot = pickle.load(file)
    if not any(snapshot["device_traces"]):
        return None
    peak, moments, oom = count(snapshot, rule)
    at, moment = dice.choice([("peak", "at_peak"), ("end", "at_end")] + ([("oom", "at_out_of_memory")] * bool(oom)))
    with tempfile.TemporaryDirectory() as folder:
        trace, seen_oom, files = reported(tool, path, rule, at, folder, has_slices)
        same = {moment: is_same_moment(owners, trace["holders"][moment]) for moment, owners in moments.items()}
        same["csv"] = is_same_csv(files["csv-owners"], moments, bool(oom))
        same["folded " + at] = is_same_folded(files["folded"], moments[moment], rule)
        same["chrome"] = not has_slices or is_same_chrome(files["chrome"], moments, rule)
        device = device_shown(snapshot)
        same["export"] = not has_slices or is_export_sound(tool, path, snapshot, device, folder)
        same["what is said of the oom"] = not oom or not has_slices or says_oom(tool, path, folder)
    same["peak"] = peak == trace["bound_bytes"]
    same["oom"] = oom == seen_oom
    stretches = trace["holders"]["stretches"]
    same["stretches"] = sum(s["left_bytes"] for s in stretches) == trace["holders"]["survivors"]["bytes"]
    by_code = [s for s in trace["at_peak_requested"]["by_code"] if s["owner"] != "other"]
    same["by_code"] = by_code == trace["holders"]["at_peak"]["owners"][:SHOWN]
    wrong = [what for what, is_same in same.items() if not is_same]
    print(f"{path} {' '.join(rule.arguments())}: {len(moments['at_peak'])} owners of {peak} bytes,",
          f"{len(moments['survivors'])} of survivors, {'NOT the same: ' + ', '.join(wrong) if wrong else 'the same'}")
    if wrong:
        print(peak, trace["bound_bytes"], oom, seen_oom)
    return not wrong


MIB = 1 << 20


def run_out(snapshot):
    """The recording as if it had run out of memory at its peak, just after it mapped a range in two pieces."""
    events = max(snapshot["device_traces"], key=len)
    device, held, peak, at = snapshot["device_traces"].index(events), 0, -1, 0
    for place, event in enumerate(events):
        held += {"alloc": event["size"], "free_requested": -event["size"]}.get(event["action"], 0)
        if held > peak:
            peak, at = held, place
    address = max([s["address"] + s["total_size"] for s in snapshot["segments"]] + [e["addr"] for e in events]) + (1 << 40)
    common = {"stream": 0, "time_us": events[at].get("time_us", 0), "frames": events[at]["frames"]}
    maps = [{"action": "segment_map", "addr": address + i * 600 * MIB, "size": 600 * MIB, **common} for i in (0, 1)]
    oom = {"action": "oom", "size": 5 << 30, "device_free": 123 * MIB, **common}
    events[at + 1:at + 1] = maps + [oom]
    snapshot["segments"].append({"device": device, "address": address, "total_size": 1200 * MIB, "stream": 0,
                                 "segment_type": "large", "is_expandable": True, "segment_pool_id": (0, 0), "blocks": []})
    return snapshot


def in_words(size):
    """a size as the command formats it: three digits"""
    unit = 0
    while size >= 1023.5:
        size, unit = size / 1024, unit + 1
    digits = 0 if size == int(size) or size >= 99.95 else 1 if size >= 9.995 else 2
    return f"{size:.{digits}f} {['B', 'KiB', 'MiB', 'GiB'][unit]}"


def says_oom(tool, path, folder):
    """Check that the first screen and the page agree with the JSON, which compare() checks."""
    page_path = os.path.join(folder, "page.html")
    run = subprocess.run([tool, "report", path, "--no-times", "--policy", "bound", "--json", "-", "--html", page_path],
                         check=True, capture_output=True, text=True)
    oom = json.loads(run.stdout)["traces"][0]["out_of_memory"]
    run = subprocess.run([tool, "report", path, "--no-times", "--policy", "bound"], check=True, capture_output=True,
                         text=True)
    screen = " ".join(run.stdout.split())
    with open(page_path) as file:
        data = json.loads(re.search(r"id=data>(.*?)</script>", file.read(), re.S).group(1))
    figures = {" requested {} with": "asked_bytes", " with {} live": "live_bytes",
               "free on the device {} ": "device_free_bytes", "reserved and unused {} ": "idle_bytes",
               "largest hole {} ": "largest_hole_bytes"}
    figures = {words: key for words, key in figures.items() if oom[key] is not None}
    missing = [words for words, key in figures.items() if words.format(in_words(oom[key])) not in screen]
    missing += [] if text_of(oom["owner"] or "")[:40] in screen else ["owner"]
    missing += [] if data["analyses"][0]["report"]["out_of_memory"] == oom else ["page"]
    for words in missing:
        print(f"{path}: not said: {words}", oom)
    return not missing


def compare_run_out(tool, path):
    """A recorded snapshot that runs out of memory."""
    with (lzma.open if path.endswith(".xz") else open)(path, "rb") as file:
        snapshot = pickle.load(file)
    if not any(snapshot["device_traces"]):
        return None
    with tempfile.TemporaryDirectory() as folder:
        made = os.path.join(folder, "out of memory.pickle")
        with open(made, "wb") as file:
            pickle.dump(run_out(snapshot), file)
        return compare(tool, made)


RULES = [PLAIN, Rule(by="file"), Rule(by="module"), Rule(by="phase"), Rule(skip=["model[12]\\.py", "^step3 "]),
         Rule(owner=["torch/functional|torch.functional", "c10::cuda"], skip=["bmm1"]),
         Rule(owner=["eval_with"], by="file"), Rule(owner=["[.]py:[0-9]+[)]$"], by="module")]


def main():
    tool, paths = sys.argv[1], sys.argv[2:]
    results = compare_made(tool)
    for path in paths:
        results += [compare(tool, path), compare(tool, path, Rule(by="module"), has_slices=False), compare_run_out(tool, path)]
    counted = [r for r in results if r is not None]
    return 0 if counted and all(counted) else 1


sys.exit(main())
