# SPDX-License-Identifier: Apache-2.0
#
# property.round_trip: a snapshot becomes a trace file, text, a trace file and a snapshot again, and no frame is lost:
# every event, block and segment of the last has the frames of the first (name, file, line, in order), every event its
# compile context and user metadata, and the moment at which it was, by Python's own pickle. The two trace files are the
# same bytes, and so are the two texts. The snapshots named, which are to be trusted since unpickling may run code, and
# some that are made here: texts with quotes, newlines, tabs, UTF-8, no text at all, 1,000 deep, events without frames,
# segments that grow and are freed, pools, deferred frees, several devices, clocks that are set back.
#
#   round_trip.py FALLOW [SNAPSHOT...]
import itertools
import json
import lzma
import os
import pickle
import random
import subprocess
import sys
import tempfile

MADE = 60
MIB = 1 << 20
TEXTS = ["forward", "a b", 'say "x"', "back\\slash", "line\nbreak", "tab\there", "\x01\x1f\x7f\r", "é 模型 🔥", "\udc80 half", "",
         "?", "'", "x" * 7999, "C:\\dev\\model.py", "void f<T>(T const&)::{lambda()#1}::operator()() const"]


def run(*words):
    done = subprocess.run(words, capture_output=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(words)}: {done.stderr.decode()}")
    return done.stdout


# ---- made snapshots ----

def make_frame(dice):
    return {"name": dice.choice(TEXTS), "filename": dice.choice(TEXTS), "line": dice.choice([0, 1, 77, dice.randrange(1 << 32)])}


class Device:
    """One device's events and its heap at the end, as a caching allocator would leave them."""

    def __init__(self, dice, number):
        self.dice, self.number, self.time = dice, number, dice.choice([10, 1700000000123456])
        self.stacks = [[make_frame(dice) for _ in range(dice.choice([1, 2, 5]))] for _ in range(8)]
        self.stacks.append([{"name": f"deep{i % 7}", "filename": "d.py", "line": i} for i in range(1000)])
        self.next = 0x7F0000000000 + (number << 44)
        self.events = []
        self.segments = {}  # address: segment
        self.live, self.waiting = [], []  # (segment, block)
        self.range = None
        for _ in range(dice.randrange(4)):
            self.take_segment(dice.choice([2, 6, 20]) * MIB)
            self.allocate()
        self.events = []  # earlier events were not recorded

    def frames(self):
        return self.dice.choice(self.stacks) if self.dice.random() < 0.8 else []

    def say(self, action, address, size, stream, frames, pool):
        self.time += self.dice.randrange(3)
        time_us = self.time - (5 if self.dice.random() < 0.05 else 0)
        event = {"action": action, "size": size, "stream": stream, "time_us": time_us, "frames": frames, "pool_id": pool}
        if self.dice.random() < 0.5:
            event["compile_context"] = self.dice.choice(["N/A", "0/1", self.dice.choice(TEXTS)])
        if self.dice.random() < 0.5:
            event["user_metadata"] = self.dice.choice(["", "step 7", self.dice.choice(TEXTS)])
        event["device_free" if action == "oom" else "addr"] = address
        if not frames and self.dice.random() < 0.3:
            del event["frames"]
        self.events.append(event)

    def take_segment(self, size):
        pool, stream = self.dice.choice([(0, 0), (0, 0), (0, 1)]), self.dice.choice([0, 7])
        frames = self.frames()
        segment = {"device": self.number, "address": self.next, "total_size": size, "stream": stream,
                   "segment_type": "large" if size > 2 * MIB else "small", "segment_pool_id": pool, "is_expandable": False,
                   "frames": frames, "blocks": []}
        self.next += size + 2 * MIB
        self.segments[segment["address"]] = segment
        self.say("segment_alloc", segment["address"], size, stream, frames, pool)

    def grow_range(self):
        frames = self.frames()
        if self.range is None:
            address = 0x7E0000000000 + (self.number << 44)
            self.range = {"device": self.number, "address": address, "total_size": 0, "stream": 0, "segment_type": "large",
                          "segment_pool_id": (0, 0), "is_expandable": True, "frames": frames, "blocks": []}
            self.segments[address] = self.range
        end = self.range["address"] + self.range["total_size"]
        self.range["total_size"] += 20 * MIB
        self.say("segment_map", end, 20 * MIB, 0, frames, (0, 0))

    def free_bytes(self, segment):
        blocks = segment["blocks"]
        return segment["total_size"] - (blocks[-1]["address"] + blocks[-1]["size"] - segment["address"] if blocks else 0)

    def allocate(self):
        size = self.dice.choice([512, 4096, MIB])
        held = [s for s in self.segments.values() if self.free_bytes(s) >= size]
        if held:
            segment, frames = self.dice.choice(held), self.frames()
            address = segment["address"] + segment["total_size"] - self.free_bytes(segment)
            block = {"address": address, "size": size, "requested_size": size, "state": "active_allocated", "frames": frames}
            segment["blocks"].append(block)
            self.live.append((segment, block))
            self.say("alloc", address, size, segment["stream"], frames, segment["segment_pool_id"])

    def free(self):
        if self.live:
            segment, block = self.live.pop(self.dice.randrange(len(self.live)))
            block["state"] = "active_pending_free"
            self.waiting.append((segment, block))
            self.say("free_requested", block["address"], block["size"], segment["stream"], self.frames(), segment["segment_pool_id"])

    def complete(self):
        if self.waiting:
            segment, block = self.waiting.pop(0)
            segment["blocks"].remove(block)
            self.say("free_completed", block["address"], block["size"], segment["stream"], self.frames(), segment["segment_pool_id"])

    def release(self):
        empty = [s for s in self.segments.values() if not s["blocks"]]
        if empty:
            segment = self.dice.choice(empty)
            if segment["is_expandable"]:
                self.range = None
            del self.segments[segment["address"]]
            self.say("segment_unmap" if segment["is_expandable"] else "segment_free", segment["address"], segment["total_size"],
                     segment["stream"], self.frames(), segment["segment_pool_id"])

    def step(self):
        chance = self.dice.random()
        if chance < 0.08:
            self.take_segment(self.dice.choice([2, 6, 20]) * MIB)
        elif chance < 0.12:
            self.grow_range()
        elif chance < 0.5:
            self.allocate()
        elif chance < 0.7:
            self.free()
        elif chance < 0.88:
            self.complete()
        elif chance < 0.94:
            self.release()
        else:
            self.say(self.dice.choice(["oom", "snapshot"]), 0, 9 * MIB, 0, self.frames(), (0, 0))


def fill(segment):
    """The blocks and the holes between them."""
    blocks, at, end = [], segment["address"], segment["address"] + segment["total_size"]
    for block in segment["blocks"] + [{"address": end, "size": 0}]:
        if block["address"] > at:
            blocks.append({"address": at, "size": block["address"] - at, "requested_size": 0, "state": "inactive", "frames": []})
        at = block["address"] + block["size"]
        blocks += [block] if block["size"] else []
    return {**segment, "blocks": blocks}


def make(seed):
    dice = random.Random(seed)
    devices = [Device(dice, number) for number in range(dice.choice([1, 3]))]
    steps = [dice.choice([0, 30, 300]) for _ in devices]
    steps[0] = steps[0] or 30  # an empty snapshot is refused
    for device, count in zip(devices, steps):
        for _ in range(count):
            device.step()
        device.complete()  # where no free is complete, a trace is one of an allocator that defers none
    return {"segments": [fill(s) for d in devices for s in d.segments.values()], "device_traces": [d.events for d in devices]}


# ---- there and back ----

def frames_of(thing):
    return [(f["name"], f["filename"], f["line"]) for f in thing.get("frames") or []]


def said(event):
    return tuple(event.get(key) for key in ("compile_context", "user_metadata"))


def event_of(event):
    action = event["action"]
    if action in ("snapshot", "user_defined", "workspace_snapshot"):
        return "a moment", said(event), frames_of(event)
    return said(event), action, event.get("addr"), event.get("device_free"), event["size"], event["stream"], frames_of(event)


def heap_of(snapshot, device):
    segments = [s for s in snapshot["segments"] if s["device"] == device]
    blocks = [(b["address"], b["requested_size"], b["state"], frames_of(b)) for s in segments for b in s["blocks"]
              if b["state"] != "inactive"]
    return sorted(blocks), sorted((s["address"], s["total_size"], frames_of(s)) for s in segments)


def compare_events(before, after, put_in, left_out):
    """The same, but for so many frees that the first lacks, and so many frees of unknown blocks; and at the same
    moments, in ascending order."""
    at = 0
    for event, time_us in zip(before, itertools.accumulate((e.get("time_us", 0) for e in before), max)):
        wanted = event_of(event)
        while at < len(after) and put_in > 0 and event_of(after[at]) != wanted and not after[at]["frames"]:
            put_in -= 1
            at += 1
        if at < len(after) and event_of(after[at]) == wanted:
            if after[at].get("time_us", 0) != time_us:
                return f"event {at}: at {time_us} us, not {after[at].get('time_us')}"
            at += 1
        elif left_out > 0 and event["action"].startswith("free"):
            left_out -= 1
        else:
            return f"event {at}: {wanted}, not {event_of(after[at]) if at < len(after) else 'there'}"
    return None if at == len(after) else f"{len(after) - at} events more"


def there_and_back(tool, path, folder):
    """Return the resulting snapshot, and the messages about the trace file."""
    first, second = (os.path.join(folder, name + ".ftrace") for name in ("first", "second"))
    text, out = os.path.join(folder, "text"), os.path.join(folder, "out.pickle")
    run(tool, "trace", "import", path, "-o", first)
    run(tool, "trace", "dump", first, "-o", text)
    run(tool, "trace", "pack", text, "-o", second)
    with open(first, "rb") as a, open(second, "rb") as b:
        assert a.read() == b.read(), f"{path}: another trace file after the text"
    with open(text, "rb") as file:
        assert file.read() == run(tool, "trace", "dump", second), f"{path}: another text after the trace file"
    run(tool, "trace", "verify", second)
    run(tool, "trace", "export", second, "--to", "pytorch", "-o", out)
    with open(out, "rb") as file:
        return pickle.load(file), json.loads(run(tool, "trace", "info", second, "--json"))


def compare(tool, path, snapshot, folder):
    after, info = there_and_back(tool, path, folder)
    device = info["device"]
    events = snapshot["device_traces"][device]
    wrong = compare_events(events, after["device_traces"][device], info["lost_frees"], info["unknown_frees"])
    taken = {e["addr"]: frames_of(e) for e in events if e["action"] == "segment_alloc"}
    (blocks, segments), heap = heap_of(snapshot, device), heap_of(after, device)
    # A segment may lack the frames that the event has which took it.
    segments = [(address, size, frames or taken.get(address, [])) for address, size, frames in segments]
    for what, was, now in zip(("blocks", "segments"), (blocks, segments), heap):
        if was != now:
            wrong = wrong or f"other {what}: {[pair for pair in zip(was, now) if pair[0] != pair[1]][:1]}"
    count = sum(len(frames_of(e)) for e in events)
    stacks = {json.dumps(frames_of(e)) for e in events if frames_of(e)}
    if info["stacks"] < len(stacks) or info["records_with_stacks"] < sum(1 for e in events if frames_of(e)) - info["unknown_frees"]:
        wrong = wrong or f"{info['stacks']} stacks, {info['records_with_stacks']} records with one"
    return count, wrong


def main():
    tool, failures, frames = sys.argv[1], 0, 0
    with tempfile.TemporaryDirectory() as folder:
        for number in range(MADE):
            path, snapshot = os.path.join(folder, f"made {number}"), make(number)
            with open(path, "wb") as file:
                pickle.dump(snapshot, file, protocol=2 + number % 4)
            count, wrong = compare(tool, path, snapshot, folder)
            frames += count
            failures += wrong is not None
            if wrong is not None:
                print(f"made {number}: {wrong}")
        print(f"{MADE} made snapshots, {frames} frames of events, {failures} differ")
        for path in sys.argv[2:]:
            with (lzma.open if path.endswith(".xz") else open)(path, "rb") as file:
                count, wrong = compare(tool, path, pickle.load(file), folder)
            failures += wrong is not None
            print(f"{os.path.basename(path)}: {count} frames of events, {wrong or 'the same'}")
    return 1 if failures or not frames else 0


sys.exit(main())
