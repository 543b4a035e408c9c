# SPDX-License-Identifier: Apache-2.0
#
# Recorded traces through every form and back. Through the trace file: the same text, for at most 6 bytes an event.
# Through the forms of others: the same blocks in the same order, with addresses, streams, times and stacks as far as
# the form has them. Missing traces are left out; no trace at all: exit 77.
#
#   roundtrip.py FALLOW TRACE...
import json
import os
import subprocess
import sys
import tempfile

EVENT_BYTES = 6  # of files of some size, without their texts, frames and stacks
EVENTS_MIN = 300
FORMS = {"pytorch": "address stream time stack", "chrome": "address time stack", "rmm": "address stream time"}


def run(*words):
    return subprocess.run(words, check=True, capture_output=True).stdout


class Trace:
    """Return the blocks of a text: those of the start, and the events; and the output of info."""

    def __init__(self, text, info):
        self.head, self.start, self.events, self.ops = [], [], [], set()
        frames, stacks, size, address = [], [()], {}, {}
        for line in text.split("\n")[:-1]:
            words = line.split(" ")
            if words[0] == "L":
                frames.append(line.replace(";", ","))
            elif words[0] == "W":
                stacks.append(tuple(frames[int(n)] for n in words[1:]))
            elif not line[0].isupper():
                self.head.append(line)
            elif words[0] in "PAF":
                number, keyed = words[2], dict(w.split("=") for w in words if "=" in w)
                if words[0] != "F":
                    size[number], address[number] = int(words[3]), next((w for w in words if w[0] == "@"), None)
                event = {"kind": words[0], "size": size[number], "address": address[number], "time": int(words[1]) // 1000,
                         "stream": words[4 if words[0] != "F" else 3], "stack": stacks[int(keyed.get("stack", 0))]}
                if words[0] == "P":
                    self.start.append(event)
                elif event["size"] > 0 or words[0] == "F":
                    self.events.append(event)
            self.ops.add(words[0])
        self.streams = [line.split()[1] for line in self.head if line.startswith("stream ")]
        self.fields = [line for line in self.head if line.startswith("fields")][0]
        self.info = info

    def seen(self, events, keeps):
        first = self.events[0]["time"] if self.events else 0
        return [[self.streams[int(e["stream"])] if key == "stream" else e["time"] - first if key == "time" else e[key]
                 for key in ["kind", "size"] + keeps] for e in events]


def read(tool, path):
    info = json.loads(run(tool, "trace", "info", path, "--json"))
    return Trace(run(tool, "trace", "dump", path).decode(errors="surrogateescape"), info)


def check_file(tool, path, trace, folder, wrong):
    packed, text = os.path.join(folder, "packed.ftrace"), run(tool, "trace", "dump", path)
    run(tool, "trace", "import", path, "-o", packed)
    if run(tool, "trace", "dump", packed) != text:
        wrong.append("another text after the trace file")
    texts = sum(len(line) for line in text.split(b"\n") if line[:1] in (b"L", b"W", b"V"))
    if trace.info["events"] >= EVENTS_MIN and os.path.getsize(packed) > EVENT_BYTES * trace.info["events"] + texts:
        wrong.append(f"{os.path.getsize(packed)} bytes for {trace.info['events']} events")


def check_form(tool, path, trace, form, folder):
    wrong, out = [], os.path.join(folder, form)
    if form == "chrome" and not {"A", "F"} & trace.ops:
        return []  # a profile of no memory event is refused
    run(tool, "trace", "export", path, "--to", form, "-o", out)
    again = read(tool, out)
    keeps = [key for key in FORMS[form].split() if (key != "address" or "addresses" in trace.fields) and
             (key != "time" or "times" in trace.fields and "times" in again.fields)]
    if form == "rmm":  # blocks of the start are allocations there
        if again.info["allocations"] != trace.info["allocations"] + len(trace.start) or again.start:
            wrong.append("another number of blocks")
        if trace.start:
            return wrong
    if trace.seen(trace.events, keeps) != again.seen(again.events, keeps):
        wrong.append("other events")
    if again.info["unknown_frees"] + again.info["lost_frees"]:
        wrong.append("gaps")
    if sum(b["size"] for b in again.start) != sum(b["size"] for b in trace.start) or (
            form == "pytorch" and [(b["size"], b["stack"]) for b in again.start] != [(b["size"], b["stack"]) for b in trace.start]):
        wrong.append("another heap at the start")
    if (form == "pytorch" or "C" not in trace.ops) and again.info["peak_requested_bytes"] != trace.info["peak_requested_bytes"]:
        wrong.append("another peak")
    if form == "pytorch" and "F" in trace.ops and "C" not in again.ops and "C" not in trace.ops:
        wrong.append("frees are not completed")
    if form == "pytorch" and trace.info["format"] == "pytorch pickle":
        wrong += [f"another {key}" for key in ("events", "start_segments", "start_reserved_bytes", "peak_reserved_bytes", "segment_events")
                  if again.info[key] != trace.info[key]]
    if form == "chrome" and "kineto_total_mismatches 0" not in again.head:
        wrong.append("totals that do not add up")
    return wrong


def main():
    tool, failures, count = sys.argv[1], 0, 0
    for path in filter(os.path.exists, sys.argv[2:]):
        count += 1
        wrong, trace = [], read(tool, path)
        with tempfile.TemporaryDirectory() as folder:
            check_file(tool, path, trace, folder, wrong)
            for form in FORMS:
                wrong += [f"as {form}: {what}" for what in check_form(tool, path, trace, form, folder)]
        failures += bool(wrong)
        print(f"{path}: {'; '.join(wrong) or 'the same'}", flush=True)
    return 1 if failures else 0 if count else 77


sys.exit(main())
