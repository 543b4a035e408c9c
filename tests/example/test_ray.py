#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""example.ray: ray_ranks.py on two workers of Ray prints the same as one process that reads all snapshots itself.

  test_ray.py FALLOW     status 77: Ray cannot be imported by this Python"""
import os
import pickle
import runpy
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
RANKS = 6
# Return the calling process, slowly enough that one worker does not do all the work.
SHIM = """#!/bin/sh
echo $PPID >>"$FALLOW_TEST_LOG"
[ "$2" = merge ] || sleep 1
exec "$FALLOW_TEST_COMMAND" "$@"
"""


def make_snapshot(rank):
    """A rank with two blocks, the second larger by its rank; the last one runs out."""
    frames = [[{"filename": "/home/me/train/model.py", "line": 10 + i, "name": "forward"}] for i in range(3)]
    events, blocks, at = [], [], 1 << 40
    for i, size in enumerate((64 << 20, (8 + rank) << 20)):
        for action in ("segment_alloc", "alloc"):
            events.append({"action": action, "addr": at, "size": size, "stream": 0, "frames": frames[i],
                           "time_us": 1700000000000000 + 1000 * rank + len(events)})
        blocks.append({"device": 0, "address": at, "total_size": size, "stream": 0, "segment_type": "large",
                       "segment_pool_id": (0, 0), "is_expandable": False, "allocated_size": size,
                       "active_size": size, "requested_size": size, "frames": [],
                       "blocks": [{"address": at, "size": size, "requested_size": size,
                                   "state": "active_allocated", "frames": frames[i]}]})
        at += 1 << 30
    if rank == RANKS - 1:
        events.append({"action": "oom", "size": 1 << 30, "stream": 0, "frames": frames[2], "device_free": 5 << 20,
                       "time_us": 1700000000000000 + 1000 * rank + len(events)})
    return {"segments": blocks, "device_traces": [events]}


def write_snapshots(folder):
    os.mkdir(folder)
    paths = [os.path.join(folder, "oom_rank%d.pickle" % rank) for rank in range(RANKS)]
    for rank, path in enumerate(paths):
        with open(path, "wb") as file:
            pickle.dump(make_snapshot(rank), file)
    return paths


def main():
    try:
        import ray
    except ImportError as error:
        print("Ray cannot be imported by %s: %s" % (sys.executable, error))
        return 77
    command = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        paths = write_snapshots(os.path.join(folder, "job"))
        records = subprocess.check_output([command, "report", "--json-lines", os.path.join(folder, "job")], timeout=60)
        alone = subprocess.run([command, "report", "merge", "-"], input=records, stdout=subprocess.PIPE, timeout=60)
        with open(os.path.join(folder, "fallow"), "w") as file:
            file.write(SHIM)
        os.chmod(file.name, 0o755)
        log = os.path.join(folder, "log")
        os.environ.update(PATH=folder + os.pathsep + os.environ["PATH"], FALLOW_TEST_LOG=log,
                          FALLOW_TEST_COMMAND=command, RAY_USAGE_STATS_ENABLED="0", RAY_AUTH_MODE="disabled")
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
        said = os.path.join(folder, "said")
        before = os.dup(1)
        with open(said, "wb") as file:  # a child writes it
            os.dup2(file.fileno(), 1)
        try:
            sys.argv = ["ray_ranks.py"] + paths
            runpy.run_path(os.path.join(HERE, "ray_ranks.py"), run_name="__main__")
        finally:
            os.dup2(before, 1)
            ray.shutdown()
        with open(log) as file:
            asked = file.read().split()
        with open(said) as file:
            text = file.read()
    workers = set(asked) - {str(os.getpid())}
    print(text)
    print("%d calls by %d workers and this process" % (len(asked), len(workers)))
    is_right = (text == alone.stdout.decode() and "rank 5 ran out of memory\n" in text and len(asked) == RANKS + 1
                and len(workers) == 2)
    return 0 if is_right else 1


sys.exit(main())
