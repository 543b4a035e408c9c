# SPDX-License-Identifier: Apache-2.0
"""Bounds on memory, waits and driver calls of replayed traces. One test a name; the bounds are in the functions below.

  figures.py traces|passes|pytorch FALLOW DEMO FOLDER      the demo and the recorded traces in FOLDER
  figures.py generated|streams|frames FALLOW               traces of `fallow gen`

Prints a table. Exit 1: a figure is over its bound. Exit 77: no recorded trace is there, and the demo passed.

KNOWN lists the goals that are missed today: (trace, lag or *, goal): the bound that is kept instead. Reserved bytes are
those of the simulated device.
"""
import glob
import json
import os
import subprocess
import sys
import tempfile

MIB = 1 << 20
NO_EVENTS = ("L", "N", "P", "S", "V", "W")  # records of `fallow trace dump`
EVENT_LAGS = (0, 200, 2000, 20000, None)  # None: the default
BALANCED, SPEED, MEMORY = "fallow", "fallow-speed-first", "fallow-memory-first"
ABOVE_EXPANDABLE = "MiB above expandable segments"
GROWTHS = "growths above three a segment call"
OTHER_CALLS = "other driver calls in 1,000 allocations"
KNOWN = {
    # 36 allocations in 60 turns, four of which wait for another stream: each needs a half to a sixth of the peak so
    # far, all free memory belongs to another stream, and at most a tenth may be held in addition.
    ("3 streams: attention_naive_bench.pickle.xz", "*", f"steals of {MEMORY} above 0.05 an allocation"): 4,
    # The first allocation is one block of 3.8 GiB in one handle, with its last 1.2 MiB unused. So a later growth at a
    # lag of 200 misses the tight budget: 1.062 is held, not 1.046.
    ("hta_df_index_resolver.json.gz", "200", f"thousandths of {BALANCED} above 1050"): 20,
    # Expandable segments need pages and no contiguous place. Memory first grows by 3 % and 14 MiB, at most 112 MiB,
    # above the peak before it moves anything.
    ("cs336_attention_train.pickle.xz", "*", ABOVE_EXPANDABLE): 112,
    ("cs336_large_train.pickle.xz", "*", ABOVE_EXPANDABLE): 48,
    ("cs336_medium_infer_ctx1024.pickle.xz", "*", ABOVE_EXPANDABLE): 72,
    ("decomfl_opt_zo_finetune.pickle.xz", "*", ABOVE_EXPANDABLE): 48,
    ("snap_diffusion_attention_a.pickle.xz", "*", ABOVE_EXPANDABLE): 80,
    ("hta_df_index_resolver.json.gz", "*", ABOVE_EXPANDABLE): 100,
    ("gen streams offload", "0", OTHER_CALLS): 130,
    ("gen streams shard", "0", OTHER_CALLS): 300,
    ("gen streams images", "0", OTHER_CALLS): 120,
    ("gen streams experts", "0", OTHER_CALLS): 500,
    # Blocks of tens of MiB pass from stream to stream, each used by another one. A miss is a record, a query or two,
    # and the section around them; with 1.17 x held, pieces are moved.
    ("experts", "5ms", "driver calls of balanced above 4,000 in 1,000 allocations"): 700,
    # With random sizes near the cap only memory buys fewer growths. Up to 256 MiB of 16 GiB, held / growths: 1.02 /
    # 4,018, 1.045 / 2,320, 1.16 / 603; PyTorch's policy 1.39 / 122.
    ("random rmm", "*", f"{BALANCED}: {GROWTHS}"): 250,
    ("random rmm", "*", f"{MEMORY}: {GROWTHS}"): 350,
    ("random rmm --count 10000 --max 256M", "*", f"{BALANCED}: {GROWTHS}"): 260,
    ("random rmm --count 10000 --max 256M", "*", f"{MEMORY}: {GROWTHS}"): 2400,
    ("random rmm --count 10000 --max 64M", "*", f"{MEMORY}: {GROWTHS}"): 900,
    # Of the bytes that the sizes are rounded to, of which the documented bound is, 1.02 is held.
    ("random rmm --count 10000 --max 1M", "*", f"thousandths of {MEMORY} above 1050"): 10,
    ("random query --count 200", "*", f"{MEMORY}: {GROWTHS}"): 110,
    # Sizes of three octaves at once, in pieces between which small blocks stay.
    ("random query --count 200 --rows 1000000", "*", f"thousandths of {MEMORY} above 1050"): 90,
}


class Figures:
    """The command, a scratch folder, and the comparison with bounds."""

    def __init__(self, fallow, folder):
        self.fallow, self.folder, self.failed = fallow, folder, False

    def fallow_run(self, *words):
        run = subprocess.run([self.fallow, *map(str, words)], capture_output=True, text=True)
        if run.returncode != 0:
            raise RuntimeError(f"fallow {' '.join(map(str, words))}: {run.returncode}\n{run.stderr}")
        return run.stdout

    def replay(self, trace, lag, policies, *words):
        """Return (the trace's figures, those of each policy)."""
        lag_words = () if lag is None else ("--lag", lag)
        report = json.loads(self.fallow_run("replay", trace, "--policy", ",".join(policies), "--no-times", *lag_words,
                                            *words, "--json", "-"))
        rows = ({**row, "ok": row["failures"] == 0 and not row["violations"]} for row in report["policies"])
        return (report["trace"], *rows)

    def expect(self, name, lag, what, count, most=0):
        """Fail if the count is above `most`, or above the bound in KNOWN."""
        lag = "default" if lag is None else str(lag)
        most = KNOWN.get((name, lag, what), KNOWN.get((name, "*", what), most))
        if not 0 <= count <= most:
            print(f"above its bound: {name}, lag {lag}: {count} {what}, at most {most}", file=sys.stderr)
            self.failed = True
        elif count > 0:
            print(f"known: {name}, lag {lag}: {count} {what}, at most {most}")

    def bounded(self, name, lag, policy, row, factor, slack=16 * MIB):
        """Fail if the policy reserved more than factor x requested + slack, in thousandths of requested."""
        most = int(1000 * factor + 0.5)
        held = row["peak_reserved_bytes"] - slack
        print(f"{name}, lag {lag}: {policy} holds {row['peak_reserved_bytes'] / row['peak_requested_bytes']:.3f} x")
        over = -(-1000 * held // row["peak_requested_bytes"]) - most
        self.expect(name, lag, f"thousandths of {policy} above {most}", max(0, over))
        self.expect(name, lag, f"failed requests or broken rules of {policy}", int(not row["ok"]))
        self.expect(name, lag, f"reserved bytes of {policy} are missing", int(row["peak_reserved_bytes"] <= 0))

    def grows(self, name, lag, policy, row, pytorch):
        """Fail if a pool that starts cold grows more than three times for each segment call of PyTorch's policy."""
        self.expect(name, lag, f"{policy}: {GROWTHS}", max(0, row["grow_operations"] - 3 * pytorch["grow_operations"]))

    def deal(self, trace, streams):
        """Write the blocks of a trace to several streams, which allocate alternately, a sixtieth of the events each. A
        block is freed on its stream. Other events and the recorded allocator's segments are dropped."""
        path = os.path.join(self.folder, "dealt.ftext")
        lines = self.fallow_run("trace", "dump", trace).splitlines()
        fields = next(line for line in lines if line.startswith("fields")).split()
        shift = "times" in fields
        events = [line for line in lines if line[0].isupper() and line.split(" ")[0] not in NO_EVENTS]
        turn, owner, initial, number = len(events) // 60 + 1, {}, 0, 0
        with open(path, "w") as out:
            for line in lines:
                words = line.split(" stack=")[0].split(" ")
                kind = words[0]
                if kind == "fields":
                    out.write("".join(f"stream {i}\n" for i in range(streams)))
                    words = [word for word in words if word != "segments"]
                elif kind == "P":
                    owner[words[2]] = words[4] = str(initial % streams)
                    initial += 1
                elif kind == "A":
                    owner[words[1 + shift]] = words[3 + shift] = str(number // turn % streams)
                elif kind == "F":
                    words[2 + shift] = owner[words[1 + shift]]
                number += kind.isupper() and kind not in NO_EVENTS
                if not kind[0].isupper() and kind != "stream" or kind in ("A", "F", "P"):
                    out.write(" ".join(words) + "\n")
        return path


def without_waits(bound, row):
    """The factor that an allocator without waits needs, between 1.17 and 1.45."""
    return max(1.17, min(1.45, bound["without_wait_bytes"] / row["peak_requested_bytes"]))


def per_1000(count, allocations):
    return -(-1000 * count // max(1, allocations))


def three_streams(f, path, name):
    dealt = f.deal(path, 3)
    for lag in EVENT_LAGS:
        words = ("--find-limit",) if lag is None else ()
        trace, balanced, memory, pytorch, bound = f.replay(dealt, lag, (BALANCED, MEMORY, "pytorch", "bound"), *words)
        f.bounded(name, lag, BALANCED, balanced, 1.05 * without_waits(bound, balanced))
        f.bounded(name, lag, MEMORY, memory, 1.10)
        f.expect(name, lag, f"steals of {MEMORY} above 0.05 an allocation", max(0, memory["steals"] - trace["allocs"] // 20))
        for policy, row in (BALANCED, balanced), (MEMORY, memory):
            if trace["allocs"] > 0:
                f.grows(name, lag, policy, row, pytorch)
            if lag is None:
                f.bounded(name, lag, f"the smallest limit of {policy}",
                          {**row, "peak_reserved_bytes": row["smallest_limit_bytes"]}, 1.10)


def traces(f, path, is_recorded):
    """Balanced holds 1.17 x requested + 16 MiB at every lag; on recorded traces 1.05 x at a lag of 200 events, without
    a wait. Memory first holds 1.05 x. No request fails, no rule is broken. Of the same blocks on three streams
    balanced holds 1.05 times the larger of 1.17 x and the need of an allocator without waits, up to 1.45 x (other
    pieces cannot be moved without a wait); memory first 1.10 x; the smallest limit is 1.10 x."""
    name = os.path.basename(path)
    for lag in EVENT_LAGS:
        _, balanced, memory, pytorch = f.replay(path, lag, (BALANCED, MEMORY, "pytorch"))
        is_tight = is_recorded and lag == 200
        f.expect(name, lag, "waits of balanced", balanced["waits"] if is_tight else 0)
        f.bounded(name, lag, BALANCED, balanced, 1.05 if is_tight else 1.17)
        f.bounded(name, lag, MEMORY, memory, 1.05)
        for policy, row in (BALANCED, balanced), (MEMORY, memory):
            if not pytorch["seeded"]:  # both start cold
                f.grows(name, lag, policy, row, pytorch)
    three_streams(f, path, f"3 streams: {name}")


PASS_COUNTS = ("driver_calls", "events_recorded", "queries", "frame_calls", "waits", "synchronising_calls", "remap_waits",
               "stream_waits", "steals", "allocations")


def from_third(f, trace, lag, passes):
    """Return the counts of the passes after the second, and the policy's row."""
    _, first = f.replay(trace, lag, (BALANCED,), "--repeat", 2)
    described, row = f.replay(trace, lag, (BALANCED,), "--repeat", passes)
    counts = {key: row[key] - first[key] for key in PASS_COUNTS}
    if min(counts.values()) < 0:
        raise RuntimeError(f"{trace}, lag {lag}: a count falls: {counts}")
    return counts, row, described["streams"]


def several_passes(f, name, trace, passes, lags):
    """No host wait if work completes at once or 200 events later. If it completes at once, no driver calls but those
    that record events, query them, or frame either.

    Missed and bounded: blocks of several streams meet at new addresses in each pass, so handles are moved and created
    above 1.17 x, and streams wait for each other. The counts vary by half with each change of the pool. `shard` draws
    its sizes, so its blocks move as often on one stream. Later completion makes the host wait for some moves."""
    for lag in lags:
        counts, row, _ = from_third(f, trace, lag, passes)
        others = sum(counts[key] * sign for key, sign in (("driver_calls", 1), ("events_recorded", -1), ("queries", -1),
                                                          ("frame_calls", -1)))
        print(f"{name}, lag {lag}, passes 3 to {passes}: {counts}")
        f.expect(name, lag, "failures", row["failures"])
        for key in "synchronising_calls", "remap_waits":
            f.expect(name, lag, f"{key} in 1,000 allocations", per_1000(counts[key], counts["allocations"]), int(lag > 200))
        f.expect(name, lag, OTHER_CALLS,
                 per_1000(others, counts["allocations"]) if lag == 0 else 0, 30)


def passes(f, path, _):
    """From the third of thirty passes on, balanced, on one stream: no driver call, no event, no wait, no move that
    waited; 1.16 x requested + 16 MiB are held. Several streams: see several_passes."""
    name = os.path.basename(path)
    for lag in EVENT_LAGS:
        counts, row, streams = from_third(f, path, lag, 30)
        if streams != 1:
            break
        for key, count in counts.items():
            f.expect(name, lag, f"{key} after two passes", count if key != "allocations" else 0)
        f.bounded(name, lag, BALANCED, row, 1.16)
    for streams in 3, 8:
        several_passes(f, f"{streams} streams: {name}", f.deal(path, streams), 30, (0, 200, 2000, 20000))


def passes_generated(f):
    for kind in "serving", "offload", "shard", "images", "experts":
        path = os.path.join(f.folder, "trace.ftext")
        f.fallow_run("gen", "streams", kind, "-o", path)
        several_passes(f, f"gen streams {kind}", path, 6, (0,))


def pytorch(f, path, _):
    """Memory first never holds more than PyTorch held, than the model of its policy, and than that with expandable
    segments, at four lags. On a device with just the memory that PyTorch held no request fails, memory first or balanced."""
    name = os.path.basename(path)
    lags = (0, "200us", "5ms", "20ms")
    try:
        f.replay(path, "1us", ("bound",))
    except RuntimeError:  # a trace without times
        lags = (0, 200, 2000, 20000)
    for lag in lags:
        trace, memory, model, expandable = f.replay(path, lag, (MEMORY, "pytorch", "pytorch-expandable"))
        mine, model = memory["peak_reserved_bytes"], model["peak_reserved_bytes"]
        recorded = trace["recorded_peak_reserved_bytes"] or model
        print(f"{name}, lag {lag}, MiB: memory first {mine // MIB}, PyTorch {recorded // MIB}, model {model // MIB}")
        f.expect(name, lag, "broken rules", memory["violations"])
        for what, theirs in (("MiB above what was recorded", recorded), ("MiB above the model", model),
                             (ABOVE_EXPANDABLE, expandable["peak_reserved_bytes"])):
            f.expect(name, lag, what, max(0, -(-(mine - theirs) // MIB)))
        for row in f.replay(path, lag, (BALANCED, MEMORY, "pytorch"), "--device-bytes", recorded)[1:]:
            f.expect(name, lag, f"failed requests of {row['name']} on a full device", row["failures"])


GENERATED = """adversarial sawtooth
adversarial pin-small-between-large
adversarial comb-free --cycles 8
adversarial alternating-streams
adversarial half-max
adversarial batch-size-change
random rmm
random rmm --count 10000 --max 256M
random rmm --count 10000 --max 64M
random rmm --count 10000 --max 1M
random multi-stream --count 10000 --streams 3 --threads 3 --max 64M
random query --count 200
random query --count 200 --rows 1000000
train --layers 8 --steps 2
train --layers 16 --zero3 8 --attention flash --vary conversation
train --layers 16 --stages 4 --rank 3 --attention flash --vary code --seq 4096 --steps 2
serve llama-3-8b --mode graph --steps 100
serve qwen3-30b-a3b --ep 8 --expert-skew 80 --traffic code --steps 40
serve deepseek-v3 --ep 32 --mla flashmla --traffic long --steps 20"""


def generated(f):
    """Balanced holds 1.17 x requested + 16 MiB; of several streams 1.05 times the larger of that and the need of an
    allocator without waits, up to 1.45 x, or the 256 MiB that they share. Memory first holds 1.05 x; from three
    streams on 1.10 x, with 0.10 steals an allocation. No request fails, no rule is broken."""
    path = os.path.join(f.folder, "trace.ftext")
    for name in GENERATED.splitlines():
        f.fallow_run("gen", *name.split(), "-o", path)
        with open(path) as text:
            streams = sum(line.startswith("stream ") for line in text)
        for lag in 2000, None:
            trace, balanced, memory, pytorch, bound = f.replay(path, lag, (BALANCED, MEMORY, "pytorch", "bound"))
            factor = 1.17 if streams < 2 else 1.05 * without_waits(bound, balanced)
            if streams < 2 or balanced["peak_reserved_bytes"] > 256 * MIB:
                f.bounded(name, lag, BALANCED, balanced, factor)
            f.expect(name, lag, "failures of balanced", int(not balanced["ok"]))
            f.bounded(name, lag, MEMORY, memory, 1.05 if streams < 3 else 1.10)
            for policy, row in (BALANCED, balanced), (MEMORY, memory):
                f.grows(name, lag, policy, row, pytorch)
            f.expect(name, lag, "steals of memory first above 0.10 an allocation",
                     max(0, memory["steals"] - trace["allocs"] // 10) if streams > 2 else 0)


def streams(f):
    """Work completes 200 us and 5 ms later. Balanced holds the larger of 1.17 x requested and the need of an allocator
    without waits, up to 1.45 x; in the last quarter the host waits once in 1,000 allocations, with 4 driver calls for
    each allocation. Speed first never waits and holds 1.15 times the need of an allocator without waits, and no more
    than PyTorch's policy. Memory first holds 1.10 x, and the host waits 50 times in 1,000 allocations of the last quarter."""
    path = os.path.join(f.folder, "trace.ftext")
    for kind in f.fallow_run("gen", "streams", "--list").split():
        f.fallow_run("gen", "streams", kind, "-o", path)
        for lag in "200us", "5ms":
            _, balanced, speed, memory, model, bound = f.replay(path, lag, (BALANCED, SPEED, MEMORY, "pytorch", "bound"))
            need = bound["without_wait_bytes"] / balanced["peak_requested_bytes"]
            most = {BALANCED: without_waits(bound, balanced), MEMORY: 1.10,
                    SPEED: min(1.15 * need, model["peak_reserved_bytes"] / model["peak_requested_bytes"])}
            f.expect(kind, lag, "waits of speed first", speed["waits"] + speed["stream_waits"])
            for row in balanced, speed, memory:
                quarter, policy = row["last_quarter"], row["name"]
                waits, calls = (per_1000(quarter[key], quarter["allocations"]) for key in ("waits", "driver_calls"))
                print(f"{kind}, lag {lag}, {policy}: {row['peak_reserved_bytes'] / row['peak_requested_bytes']:.3f} x held, "
                      f"{need:.3f} x without waits; last quarter, 1,000 allocations: {waits} host waits, {calls} calls")
                f.bounded(kind, lag, policy, row, most[policy], slack=0)
                f.expect(kind, lag, f"host waits of {policy} in 1,000 allocations", waits,
                         {BALANCED: 1, SPEED: 0, MEMORY: 50}[policy])
            f.expect(kind, lag, "driver calls of balanced above 4,000 in 1,000 allocations",
                     max(0, per_1000(balanced["last_quarter"]["driver_calls"], balanced["last_quarter"]["allocations"]) - 4000))


def frames(f):
    """Driver calls that only frame others (contexts, capture modes, queries for captures), for each allocation: two
    exchanges of the mode and the query of each climb, and the query of each stream that needs a fence. Not for each
    other call, because then fewer of those would look worse."""
    path = os.path.join(f.folder, "trace.ftrace")
    for most, name in ((0.028, "serve llama-3-8b --mode graph --steps 60"),
                       (0.63, "random multi-stream --count 10000 --streams 3 --threads 3 --max 64M")):
        f.fallow_run("gen", *name.split(), "-o", path)
        trace, row = f.replay(path, None, (BALANCED,))
        print(f"{name}: {row['frame_calls']} frame calls for {trace['allocs']} allocations, at most {most} each")
        f.expect(name, None, "frame calls above the bound", max(0, row["frame_calls"] - int(most * trace["allocs"])))
        f.expect(name, None, "frame calls are missing", int(row["frame_calls"] == 0))


def main(test, fallow, demo=None, recorded=None):
    with tempfile.TemporaryDirectory() as folder:
        f = Figures(fallow, folder)
        if demo is None:
            {"generated": generated, "streams": streams, "frames": frames}[test](f)
            return int(f.failed)
        found = sorted(glob.glob(f"{recorded}/*.pickle.xz") + glob.glob(f"{recorded}/*.json.gz"))
        for path in [demo, *found]:
            {"traces": traces, "passes": passes, "pytorch": pytorch}[test](f, path, path != demo)
        if test == "passes":
            passes_generated(f)
    if not f.failed and not found:
        print(f"no recorded trace in '{recorded}': only the demo was checked")
        return 77
    return int(f.failed)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
