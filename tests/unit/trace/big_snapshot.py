# SPDX-License-Identifier: Apache-2.0
#
# Owns: writing a PyTorch memory snapshot of any size, in a stream, of the form of recorded snapshots: protocol 4, for
# each allocation a list of 40 shared stack frames that its frees share, 115 to 127 bytes an event (shared); or as
# after a copy without identities: 4 frames, each a dict of its own (apart); or without frames (none). Usage:
# big_snapshot.py BYTES [shared|apart|none] >SNAPSHOT
import random
import struct
import sys

FRAMES = 2000
DEPTH = {"shared": 40, "apart": 4, "none": 0}
LIVE = 1000


class Writer:
    def __init__(self, file):
        self.file, self.memo, self.bytes, self.words = file, 0, 0, {}

    def put(self, data):
        self.file.write(data)
        self.bytes += len(data)

    def word(self, text):
        if text in self.words:
            return self.get(self.words[text])
        self.words[text] = self.memo
        data = text.encode()
        return b"\x8c" + bytes([len(data)]) + data + self.memoize()

    def memoize(self):
        self.memo += 1
        return b"\x94"

    @staticmethod
    def get(place):
        return b"h" + bytes([place]) if place < 256 else b"j" + struct.pack("<I", place)

    @staticmethod
    def number(value):
        if value < 256:
            return b"K" + bytes([value])
        if value < 1 << 31:
            return b"J" + struct.pack("<i", value)
        return b"\x8a\x08" + struct.pack("<q", value)


def main():
    target, way = int(sys.argv[1]), (sys.argv[2:] or ["shared"])[0]
    w = Writer(sys.stdout.buffer)
    dice = random.Random(1)
    w.put(b"\x80\x04}" + w.memoize() + b"(" + w.word("segments") + b"]" + w.memoize())
    w.put(w.word("device_traces") + b"]" + w.memoize() + b"(]" + w.memoize() + b"(")
    for name in ("action", "addr", "size", "stream", "time_us", "frames", "alloc", "free_requested",
                 "free_completed", "filename", "line", "name"):
        w.put(w.word(name) + b"0")
    frames = []
    for i in range(FRAMES):
        place = w.memo
        w.put(b"}" + w.memoize() + b"(" + w.word("filename") + w.word(f"/site/module_{i % 97}.py") + w.word("line") +
              w.number(i) + w.word("name") + w.word(f"function_{i}") + b"u0")
        frames.append(w.get(place) if way != "apart" else
                      b"}(" + w.word("filename") + w.word(f"/site/module_{i % 97}.py") + w.word("line") + w.number(i) +
                      w.word("name") + w.word(f"function_{i}") + b"u")
    heads = {action: b"(" + w.word("action") + w.word(action) + w.word("addr")
             for action in ("alloc", "free_requested", "free_completed")}
    middle, stream, time, stack = w.word("size"), w.word("stream") + b"K\0" + w.word("time_us"), 0, w.word("frames")
    live, free = [], [0x7F0000000000 + (i << 21) for i in range(4 * LIVE)]
    count = 0

    def event(action, address, size, frames):
        nonlocal time, count
        time += dice.randrange(20)
        w.put(b"}" + w.memoize() + heads[action] + w.number(address) + middle + w.number(size) + stream +
              w.number(10 ** 15 + time) + stack + frames + b"u")
        count += 1
        if count % 1000 == 0:
            w.put(b"e(")

    while w.bytes < target:
        if len(live) < LIVE:
            address, size = free.pop(), dice.randrange(1, 4096) * 512
            event("alloc", address, size, b"]\x94(" + b"".join(dice.choices(frames, k=DEPTH[way])) + b"e")
            w.memo += 1  # the event's frames; the event itself precedes them
            live.append((address, size, w.memo - 1))
        else:
            address, size, place = live.pop(dice.randrange(LIVE))
            event("free_requested", address, size, w.get(place))
            event("free_completed", address, size, w.get(place))
            free.append(address)
    w.put(b"ee" + b"u.")


main()
