# SPDX-License-Identifier: Apache-2.0
"""One report of a job of many ranks, its snapshots read by Ray's workers:

    python3 ray_ranks.py /shared/job/oom_rank*.pickle

Each worker makes the record of a snapshot with the command `fallow` of its machine, which needs access to the file;
the records, a few KB each, are merged here."""
import subprocess
import sys

import ray


@ray.remote
def make_record(path):
    return subprocess.run(["fallow", "report", "--json-lines", path], check=True, stdout=subprocess.PIPE).stdout


def main():
    ray.init(ignore_reinit_error=True)  # RAY_ADDRESS names a cluster
    records = ray.get([make_record.remote(path) for path in sys.argv[1:]])
    subprocess.run(["fallow", "report", "merge", "-"], input=b"".join(records), check=True)


main()
