#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
#
# check.columns: output for people fits 100 columns of a pipe and 100 or 80 of a terminal, whatever the names are; the
# output is ASCII if the locale is, and has nothing that would move a terminal's cursor. Folding loses nothing: every
# cell of the wide table is in the narrow one.
#
#   columns.py <fallow> <demo trace> <scratch folder>
import os
import re
import shutil
import subprocess
import sys

import on_terminal

FALLOW, DEMO, WORK = sys.argv[1:4]
failures = []
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def environment(locale, columns=None):
    kept = {k: v for k, v in os.environ.items() if not k.startswith("LC_") and k not in ("LANG", "COLUMNS", "NO_COLOR")}
    kept.update({"LC_ALL": locale} if locale else {})
    kept.update({"COLUMNS": str(columns)} if columns else {})
    return kept


def run_in_pipe(words, locale="C.UTF-8", columns=None):
    done = subprocess.run([FALLOW] + words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          env=environment(locale, columns), cwd=WORK, check=False)
    return done.stdout


def run_on_terminal(words, width, locale="C.UTF-8"):
    """Return standard output as received by a terminal of that width, without standard error."""
    return on_terminal.run([FALLOW] + words, "stdout", width, stderr=subprocess.DEVNULL, env=environment(locale),
                           cwd=WORK)[1]


def expect(is_so, what):
    if not is_so:
        failures.append(what)


def expect_fits(printed, width, what):
    text = COLOUR.sub("", printed.decode("utf-8", "strict"))
    lines = text.split("\n")
    expect(len(lines) > 3, "%s: %d lines" % (what, len(lines)))
    for line in lines:
        if len(line) > width:
            failures.append("%s: %d columns of %d: %s" % (what, len(line), width, line))
            break
    moved = [c for c in text if ord(c) < 32 and c != "\n" or 0x7f <= ord(c) < 0xa0]
    expect(not moved, "%s: control characters %r" % (what, moved[:4]))


def write_job():
    """Make a folder of two ranks, and their records as another program may write them, with arbitrary names."""
    os.makedirs(os.path.join(WORK, "job"))
    for rank in range(2):
        with open(os.path.join(WORK, "job", "s_rank%d.ftext" % rank), "w", encoding="utf-8") as file:
            file.write('#fallow-trace 1\ndevice 0\nstream 0\nfields times\nL 7 "caf\u00e9" "train.py"\nW 0\n'
                       "A 0 0 %d 0 stack=1\nO 9 104857600 0 free=1048576\n" % ((rank + 1) << 23))
    records = run_in_pipe(["report", "job", "--json-lines"]).decode()
    expect(records.count("caf\u00e9 (train.py:7)") >= 2, "records without their owners: " + records)
    with open(os.path.join(WORK, "records.jsonl"), "w", encoding="utf-8") as file:
        file.write(records.replace("caf\u00e9", "caf\u00e9 \\u009b31mRED\\u001b[2J"))


def cells(printed):
    return sorted(COLOUR.sub("", printed.decode()).split())


def main():
    shutil.rmtree(WORK, ignore_errors=True)
    os.makedirs(WORK)
    long_name = "recorded-" + "on_a_machine_with_many_devices-" * 5 + ".ftext"
    strange_name = "m\u00e9moire-\u8a18\u61b6-\x1b[2Jred-\x9b-" + "x" * 60 + ".ftext"
    subprocess.run([FALLOW, "gen", "random", "--count", "200", "-o", long_name], cwd=WORK, check=True,
                   stderr=subprocess.DEVNULL)
    shutil.copy(os.path.join(WORK, long_name), os.path.join(WORK, strange_name))
    write_job()
    policies = ("fallow,pytorch:max_split_size_mb=128,roundup_power2_divisions=8,garbage_collection_threshold=0.8,"
                "bound")
    commands = [["replay", DEMO, "--no-times", "--no-check", "--policy", "fallow-memory-first,async,bound"],
                ["replay", long_name, "--policy", policies, "--find-limit", "--repeat", "2"],
                ["replay", strange_name, "--no-times", "--policy", policies],
                ["report", DEMO, "--no-times", "--policy", "fallow-memory-first,pytorch"],
                ["report", strange_name, "--no-times", "--policy", policies],
                ["report", long_name, strange_name, "--no-times"],
                ["report", "job", "--no-times", "--policy", "bound"],
                ["report", "merge", "records.jsonl"],
                ["trace", "info", strange_name],
                ["doctor", "--device", "sim"]]
    if subprocess.run([FALLOW, "bench", "--help"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                      check=False).returncode == 0:
        commands.append(["bench", "streams", "--sweep", "--count", "100", "--beside", "0", "--streams", "1,8"])
    for words in commands:
        what = " ".join(words)[:60]
        expect_fits(run_in_pipe(words), 100, what + " in a pipe")
        for width in (100, 80):
            expect_fits(run_on_terminal(words, width), width, "%s on a terminal of %d" % (what, width))
        if DEMO in words:
            continue  # large, and has a plain name
        plain = run_in_pipe(words, "C")
        expect_fits(plain, 100, what + " in a pipe, LC_ALL=C")
        expect(plain.isascii(), what + ": LC_ALL=C, and not ASCII")
        expect(run_on_terminal(words, 80, "C").isascii(), what + ": LC_ALL=C on a terminal, and not ASCII")
        expect(run_in_pipe(words, None).isascii(), what + ": no locale, and not ASCII")
    # So does every --help.
    words = re.findall(r"^  ([a-z]+)  +\S", run_in_pipe(["--help"]).decode(), re.M)
    expect(len(words) > 8, "%s: hardly all subcommands" % words)
    helps = [[word] for word in words] + [["report", "diff"], ["bench", "kernels"]]
    for word in ("trace", "gen"):
        helps += [[word, inner] for inner in re.findall(r"^  ([a-z]+)  +\S", run_in_pipe([word, "--help"]).decode(), re.M)]
    for words in helps:
        printed = run_in_pipe(words + ["--help"])
        for line in printed.decode().split("\n"):
            expect(len(line) <= 100, "%s --help: %d columns: %s" % (" ".join(words), len(line), line))
    # UTF-8 is used if the locale has UTF-8: for blocks of the curve, and names.
    shown = run_in_pipe(["report", strange_name, "--no-times", "--policy", "pytorch"])
    expect("\u2588" in shown.decode() and "\u8a18\u61b6" in shown.decode(), "C.UTF-8, and ASCII alone")
    expect(run_in_pipe(["report", strange_name, "--no-times", "--ascii"]).isascii(), "--ascii, and not ASCII")
    for words in (["report", "job", "--no-times", "--policy", "bound"], ["report", "merge", "records.jsonl"]):
        expect("caf\u00e9" in run_in_pipe(words).decode(), "%s: C.UTF-8, and ASCII alone" % words)
    # Folding loses nothing.
    shutil.copy(os.path.join(WORK, long_name), os.path.join(WORK, "short.ftext"))
    words = ["replay", "short.ftext", "--no-times", "--find-limit"]
    wide, narrow = run_in_pipe(words, columns=400), run_in_pipe(words, columns=60)
    expect_fits(narrow, 60, "replay, COLUMNS=60")
    expect(max(len(line) for line in wide.decode().split("\n")) > 100, "COLUMNS=400, and folded")
    lost = set(cells(wide)) - set(cells(narrow))
    expect(not lost, "lost by folding: %s" % sorted(lost)[:5])
    for failure in failures:
        print(failure)
    if not failures:
        print("%d commands fit" % len(commands))
    return 1 if failures else 0


sys.exit(main())
