# SPDX-License-Identifier: Apache-2.0
#
# A snapshot as long as a real one of days: the events of a recorded one, again and again, as Python's pickle writes
# them. Each round of them begins with the heap of the first: what the last one left is freed, what it took away is
# allocated. Stacks are as in PyTorch's own: a list is new with each event, but that the end of a free has the free's,
# and a frame is written once (shared); or as after a copy that knows no identities: a frame is a dict each time that
# it is met (apart); or left out (none).
#
#   long_snapshot.py SNAPSHOT BYTES OUT [shared|apart|none]
import itertools
import lzma
import pickle
import struct
import sys

LONGEST = 1000  # items between a mark and its APPENDS


def get(place):
    """the opcode that brings back what was memoized there"""
    return b"h%c" % place if place < 256 else b"j" + struct.pack("<I", place)


def key_of(frame):
    return frame["name"], frame["filename"], frame["line"]


class Writer:
    """The opcodes of protocol 4."""

    def __init__(self, file):
        self.file, self.places, self.memo_count, self.written = file, {}, 0, 0
        self.put(b"\x80\x04")

    def put(self, code):
        self.file.write(code)
        self.written += len(code)

    def memoize(self):
        self.put(b"\x94")
        self.memo_count += 1
        return self.memo_count - 1

    def again(self, place):
        self.put(get(place))

    def text(self, text):
        if text in self.places:
            return self.again(self.places[text])
        coded = text.encode()
        self.put((b"\x8c%c" % len(coded) if len(coded) < 256 else b"X" + struct.pack("<I", len(coded))) + coded)
        self.places[text] = self.memoize()

    def number(self, number):
        if 0 <= number < 1 << 31:
            self.put(b"J" + struct.pack("<i", number))
        else:
            coded = number.to_bytes(number.bit_length() // 8 + 1, "little", signed=True)
            self.put(b"\x8a%c" % len(coded) + coded)

    def sequence(self, items, write):
        """a list whose items `write` writes; its place"""
        self.put(b"]")
        place = self.memoize()
        items = iter(items)
        while batch := list(itertools.islice(items, LONGEST)):
            self.put(b"(")
            for item in batch:
                write(item)
            self.put(b"e")
        return place

    def mapping(self, pairs, special={}):
        self.put(b"}")
        place = self.memoize()
        self.put(b"(")
        for key, value in pairs.items():
            self.text(key)
            self.value(key, value, special)
        self.put(b"u")
        return place

    def value(self, key, value, special):
        if key in special:
            special[key](value)
        elif isinstance(value, bool):
            self.put(b"\x88" if value else b"\x89")
        elif isinstance(value, int):
            self.number(value)
        elif isinstance(value, str):
            self.text(value)
        elif isinstance(value, tuple):
            for item in value:
                self.number(item)
            self.put(b"\x86")
        else:
            raise TypeError(f"{key}: {value!r}")


class Frames:
    """How lists of frames are written."""

    def __init__(self, writer, way):
        self.writer, self.way, self.places, self.coded, self.of_frees = writer, way, {}, {}, {}

    def frame(self, frame):
        key = key_of(frame)
        if key in self.places and self.way == "shared":
            return self.writer.again(self.places[key])
        self.places[key] = self.writer.mapping(frame)

    def fresh(self, frames):
        """a list of its own; its place"""
        if self.way == "none":
            frames = []
        if id(frames) not in self.coded:
            place = self.writer.sequence(frames, self.frame)
            if self.way == "shared":
                self.coded[id(frames)] = b"".join(
                    b"(" + b"".join(get(self.places[key_of(f)]) for f in frames[i:i + LONGEST]) + b"e"
                    for i in range(0, len(frames), LONGEST))
            return place
        self.writer.put(b"]")
        place = self.writer.memoize()
        self.writer.put(self.coded[id(frames)])
        return place

    def of_event(self, event):
        if event["action"] == "free_completed" and event["addr"] in self.of_frees:
            self.writer.again(self.of_frees[event["addr"]])
        else:
            place = self.fresh(event["frames"])
            if event["action"] == "free_requested":
                self.of_frees[event["addr"]] = place


def live_blocks(events):
    """addresses alive at the start that the events free, and the allocations that they leave"""
    taken, left = {}, {}
    for event in events:
        if event["action"] == "alloc":
            left[event["addr"]] = event
        elif event["action"] == "free_completed" and left.pop(event["addr"], None) is None:
            taken[event["addr"]] = event
    return taken, left


def between(events):
    """what makes the heap of the end the heap of the start"""
    taken, left = live_blocks(events)
    for event in left.values():
        yield {**event, "action": "free_requested"}
        yield {**event, "action": "free_completed"}
    for event in taken.values():
        yield {**event, "action": "alloc"}


def write_events(writer, frames, events, byte_count):
    """rounds of the events, until about so many bytes are written"""
    begin, span = events[0]["time_us"], events[-1]["time_us"] - events[0]["time_us"] + 1
    moves = [{**event, "time_us": begin} for event in between(events)]

    def rounds():
        for turn in itertools.count():
            for event in events if turn == 0 else moves + events:
                yield {**event, "time_us": event["time_us"] + turn * span}
            if writer.written >= byte_count:
                return

    writer.sequence(rounds(), lambda event: writer.mapping(event, {"frames": lambda _: frames.of_event(event)}))


def write_segment(writer, frames, segment):
    def write_block(block):
        writer.mapping(block, {"frames": frames.fresh})

    def write_blocks(blocks):
        writer.sequence(blocks, write_block)

    writer.mapping(segment, {"frames": frames.fresh, "blocks": write_blocks})


def main(source, byte_count, out, way="shared"):
    opened = lzma.open if source.endswith(".xz") else open
    with opened(source) as file:
        snapshot = pickle.load(file)
    with open(out, "wb") as file:
        writer = Writer(file)
        frames = Frames(writer, way)
        writer.mapping({"segments": snapshot["segments"], "device_traces": snapshot["device_traces"]}, {
            "segments": lambda items: writer.sequence(items, lambda s: write_segment(writer, frames, s)),
            "device_traces": lambda items: writer.sequence(
                items, lambda events: write_events(writer, frames, events, byte_count / len(items)))})
        writer.put(b".")


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), *sys.argv[3:])
