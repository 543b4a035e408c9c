# SPDX-License-Identifier: Apache-2.0
"""stress.mutation: the scenarios, or random programs under the rule checker, catch every planted fault of base/mutant.h
within a bounded number of operations, and pass without a fault. A fault that survives fails the test.

  mutation.py MUTANT_H STRESS_MUTANT [NAME ...]

Seeds are fixed, so a run can be repeated; with several threads the interleaving is not.
"""
import concurrent.futures
import os
import re
import signal
import subprocess
import sys

ROUNDS, CLEAN_ROUNDS = 6, 2
MOST_SECONDS = 600  # then a program hangs, under any load
# Cheap ones first. Each is run once a round, with another seed.
PROFILES = (
    "scenario",
    "arena --ops 3000 --threads 2",
    "quiescence --ops 30000 --threads 2 --contexts 2",
    "--threads 1 --ops 20000 --validate 200",
    "--threads 1 --ops 20000 --validate 500 --streams 8 --live 400",
    "--threads 2 --ops 20000 --streams 4",
    "--threads 4 --ops 20000 --schedule random",
    "--threads 2 --ops 20000 --economy 1 --limit 200000000",
    "--threads 2 --ops 20000 --streams 10 --live 600 --most 65536",
    "--threads 1 --ops 8000 --limit 60000000",
    "--threads 3 --ops 30000 --sleep --foreign",
)
REASON = re.compile("scenario:|violation|invariant|overlap:|answered|left behind|stats:|failed:|is allocated while")


def caught_by(program, number, profile, number_of_profile, rnd):
    """Return the reason that a program gives for its failure; None if it passes."""
    seed = [] if profile == "scenario" else ["--seed", str(1000 * (rnd + 1) + number_of_profile)]
    try:
        run = subprocess.run([program, "--mutant", str(number), *profile.split(), *seed], stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, text=True, errors="replace", timeout=MOST_SECONDS)
    except subprocess.TimeoutExpired:
        return "it hung"
    if run.returncode == 0:
        return None
    if run.returncode == 2:
        raise RuntimeError(f"{program} {profile}: {run.stdout}")
    how = signal.Signals(-run.returncode).name if run.returncode < 0 else f"exit {run.returncode}"
    lines = (line for line in run.stdout.splitlines() if REASON.search(line) and "out of memory" not in line)
    return next(lines, how)


def search(program, number, rounds):
    """Return (profile, round, reason) of the first program that fails; None if none does."""
    for rnd in range(rounds):
        for at, profile in enumerate(PROFILES):
            reason = caught_by(program, number, profile, at, rnd)
            if reason is not None:
                return profile, rnd, reason
    return None


def main(header, program, *only):
    with open(header) as file:
        names = re.findall(r"^    X\((\w+), \"", file.read(), re.M)
    jobs = [(number, name) for number, name in enumerate(["NONE", *names]) if not only or name in only]
    failures = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        found = pool.map(lambda job: search(program, job[0], ROUNDS if job[0] else CLEAN_ROUNDS), jobs)
        for (number, name), result in zip(jobs, found):
            is_good = (result is not None) == (number != 0)
            failures += not is_good
            print(f"{name:26} {'' if is_good else 'FAILED: '}{'caught' if result else 'not caught'} "
                  f"{result[0] + ', round ' + str(result[1]) + ': ' + result[2] if result else ''}", flush=True)
    print(f"{len(jobs)} programs, {failures} failures")
    return int(failures > 0 or not jobs)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
