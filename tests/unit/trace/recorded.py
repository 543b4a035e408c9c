# SPDX-License-Identifier: Apache-2.0
#
# Recorded traces against independent counts. Snapshots: the figures that an independent reader wrote into the folder's
# manifest.json, counted once more from the text form, and printed by `fallow trace info`. A profile: in the
# text the live bytes after every event are the total that the profiler wrote down, at its address and its time. Exits
# 77 where there is no manifest.
#
#   recorded.py FALLOW FOLDER
import gzip
import json
import os
import subprocess
import sys


def read(tool, path):
    """The lines of the text form's head, and the records as words; numbers are numbers."""
    lines = subprocess.run([tool, "trace", "dump", path], check=True, capture_output=True, text=True).stdout.splitlines()
    first = next((i for i, line in enumerate(lines) if line[0].isupper()), len(lines))
    records = [[int(word) if word.isdigit() else word for word in line.split()] for line in lines[first:] if line[0] not in "LWV"]
    return lines[:first], records


def walk(records):
    """The figures of the manifest, and whether every block of the start is in a segment of the start."""
    start = [r for r in records if r[0] in ("S", "P")]
    segments, blocks = ([r for r in start if r[0] == kind] for kind in "SP")
    events = [r for r in records[len(start):] if r[0] not in "BE"]
    done = {r[2] for r in events if r[0] == "C"}
    size = {r[2]: r[3] for r in blocks + [r for r in events if r[0] == "A"]}
    live = live_most = sum(r[3] for r in blocks)
    held = held_most = sum(r[2] for r in segments)
    for r in events:
        live += size[r[2]] if r[0] == "A" else -size[r[2]] if r[0] == "C" or (r[0] == "F" and r[2] not in done) else 0
        held += r[2] * (r[0] in ("S+", "M+")) - r[2] * (r[0] in ("S-", "M-"))
        live_most, held_most = max(live_most, live), max(held_most, held)
    places = [(address_of(s), s[2], s[3]) for s in segments]
    allocs = [r for r in events if r[0] == "A"]
    freed = {r[2] for r in events if r[0] == "F"}
    return {"events": len(events), "allocs": len(allocs), "distinct_sizes": len({r[3] for r in allocs}),
            "streams": len({r[4] for r in allocs}), "pre_blocks": len(blocks), "pre_bytes": sum(r[3] for r in blocks),
            "peak_live": live_most, "peak_reserved": held_most, "never_freed": sum(r[2] not in freed for r in allocs),
            "deferred_frees": sum(r[0] == "F" and n[:1] + n[2:3] != ["C", r[2]] for r, n in zip(events, events[1:] + [[]]))}, \
        all(any(a <= address_of(b) and address_of(b) + b[3] <= a + held and b[4] == stream for a, held, stream in places)
            for b in blocks)


def address_of(record):
    return next(int(word[1:]) for word in record if str(word).startswith("@"))


def compare_snapshot(tool, folder, wanted):
    path = os.path.join(folder, wanted["name"] + ".pickle.xz")
    head, records = read(tool, path)
    figures, is_covered = walk(records)
    figures["unknown"] = sum(int(n) for line in head if line.startswith("gaps ") for n in line.split()[1:])
    info = json.loads(subprocess.run([tool, "trace", "info", path, "--json"], check=True, capture_output=True).stdout)
    told = {"allocs": info["allocations"], "distinct_sizes": info["distinct_sizes"] or 0, "pre_blocks": info["start_blocks"],
            "pre_bytes": info["start_bytes"], "peak_live": info["peak_requested_bytes"],
            "peak_reserved": info["peak_reserved_bytes"], "unknown": info["unknown_frees"] + info["lost_frees"]}
    wrong = [f"{key} is {seen[key]}, the manifest says {wanted[key]}" for seen in (figures, told) for key in seen
             if seen[key] != wanted[key]]
    wrong += [] if is_covered else ["a block of the start is in no segment of the start"]
    print(f"{wanted['name']}: {figures['events']} events; {'; '.join(wrong) or 'as the manifest says'}")
    return not wrong


def compare_profile(tool, path):
    head, records = read(tool, path)
    with gzip.open(path) as file:
        rows = [e for e in json.load(file)["traceEvents"] if e.get("name") == "[memory]" and e["args"]["Device Type"] == 1]
    rows.sort(key=lambda e: e["ts"])
    size = {r[2]: r for r in records if r[0] in "PA"}
    live, equal = sum(r[3] for r in records if r[0] == "P"), 0
    events = [r for r in records if r[0] in "AF"]
    for r, row in zip(events, rows):
        live += size[r[2]][3] if r[0] == "A" else -size[r[2]][3]
        about = row["args"]
        equal += (live, address_of(size[r[2]]), r[1]) == (about["Total Allocated"], about["Addr"], (row["ts"] - rows[0]["ts"]) * 1000)
    reserved = walk(records)[0]["peak_reserved"] == max(row["args"]["Total Reserved"] for row in rows)
    is_whole = "kineto_total_mismatches 0" in head and not any(line.startswith("gaps ") for line in head)
    print(f"{path}: {equal} of {len(rows)} running totals, addresses and times as recorded, {len(events)} events")
    return equal == len(rows) == len(events) > 0 and reserved and is_whole


def main():
    tool, folder = sys.argv[1:]
    if not os.path.exists(os.path.join(folder, "manifest.json")):
        return 77
    with open(os.path.join(folder, "manifest.json")) as file:
        results = [compare_snapshot(tool, folder, wanted) for wanted in json.load(file)]
    results.append(compare_profile(tool, os.path.join(folder, "hta_df_index_resolver.json.gz")))
    return 0 if all(results) else 1


sys.exit(main())
