# SPDX-License-Identifier: Apache-2.0
#
# Owns: the check that a written snapshot has the form that PyTorch's memory_viz expects, by Python's own unpickler.
# Usage: snapshot_shape.py FALLOW TRACE:EVENTS...     EVENTS: how many block events it holds at least
import os
import pickle
import subprocess
import sys
import tempfile

SEGMENT = {"device", "address", "total_size", "allocated_size", "active_size", "requested_size", "stream",
           "segment_type", "segment_pool_id", "is_expandable", "frames", "blocks"}
FRAME = {"name": str, "filename": str, "line": int}
BLOCK = {"address", "size", "requested_size", "state", "frames"}
EVENT = {"action", "addr", "size", "stream", "frames"}
STATES = {"active_allocated", "active_pending_free", "inactive"}
ACTIONS = {"alloc", "free_requested", "free_completed", "segment_alloc", "segment_free", "segment_map",
           "segment_unmap", "snapshot", "oom"}


class DataOnly(pickle.Unpickler):
    def find_class(self, module, name):
        raise AssertionError(f"the snapshot wants {module}.{name}")


def check_frames(frames):
    for frame in frames:
        assert {key: type(value) for key, value in frame.items()} == FRAME, frame


def check_segment(segment):
    assert set(segment) == SEGMENT, set(segment) ^ SEGMENT
    assert segment["segment_type"] in ("large", "small")
    assert segment["segment_pool_id"][0] == 0
    assert isinstance(segment["is_expandable"], bool)
    check_frames(segment["frames"])
    address = segment["address"]
    active = allocated = 0
    for block in segment["blocks"]:
        assert set(block) == BLOCK, set(block) ^ BLOCK
        check_frames(block["frames"])
        assert block["state"] in STATES
        assert block["address"] == address, "blocks do not adjoin"
        address += block["size"]
        active += block["size"] * (block["state"] != "inactive")
        allocated += block["size"] * (block["state"] == "active_allocated")
        assert block["requested_size"] <= block["size"] or block["state"] == "inactive"
    assert address == segment["address"] + segment["total_size"], "blocks do not fill the segment"
    assert (active, allocated) == (segment["active_size"], segment["allocated_size"])


def check_events(events, segments):
    """Every live block of the end is where the events left it, and frees meet their blocks."""
    live = {}
    time_us = 0
    for event in events:
        action = event["action"]
        assert action in ACTIONS
        wanted = EVENT - {"addr"} | {"device_free"} if action == "oom" else EVENT
        kept = {"time_us", "pool_id", "compile_context", "user_metadata"}  # where the recording has them
        assert set(event) - kept == wanted, set(event) ^ wanted
        check_frames(event["frames"])
        free = event.get("device_free", 0)
        assert isinstance(free, int) or free != free, free  # or not a number: unknown
        assert event.get("time_us", 0) >= time_us
        time_us = event.get("time_us", 0)
        if action == "alloc":
            live[event["addr"]] = event["size"]
        elif action == "free_completed":
            assert live.pop(event["addr"], event["size"]) == event["size"]
    held = {b["address"]: b["requested_size"] for s in segments for b in s["blocks"] if b["state"] != "inactive"}
    for address, size in live.items():
        assert held.get(address) == size, f"{address:#x} is allocated at the end, but in no segment"


def check(path, count):
    with open(path, "rb") as file:
        assert file.read(2) == b"\x80\x04", "not protocol 4"
        file.seek(0)
        snapshot = DataOnly(file).load()
        assert file.read() == b""
    assert list(snapshot) in (["segments", "device_traces"], ["segments", "device_traces", "external_annotations"])
    for segment in snapshot["segments"]:
        check_segment(segment)
    for events in snapshot["device_traces"]:
        check_events(events, snapshot["segments"])
    blocks = sum(e["action"] in ("alloc", "free_requested") for t in snapshot["device_traces"] for e in t)
    assert blocks >= count, blocks
    print(len(snapshot["segments"]), "segments,", blocks, "allocations and frees")


def main():
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "snapshot.pickle")
        for sample in sys.argv[2:]:
            path, count = sample.rsplit(":", 1)
            if os.path.exists(path):
                subprocess.run([sys.argv[1], "trace", "export", path, "--to", "pytorch", "-o", out], check=True)
                check(out, int(count))


main()
