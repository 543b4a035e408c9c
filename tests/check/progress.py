#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
#
# check.progress: on a terminal a command of more than a second shows the progress on a line of standard error, and
# removes the line at the end; elsewhere there is none. The slow file is a named pipe that is written or read slowly.
#
#   progress.py <fallow> <demo trace> <scratch folder>
import os
import shutil
import subprocess
import sys
import threading
import time

import on_terminal

FALLOW, DEMO, WORK = sys.argv[1:4]
SLOW_SECONDS = 1.6
failures = []


def expect(is_so, what):
    if not is_so:
        failures.append(what)


def feed(path, data):
    """Write the data into the pipe: some of it at once, the rest after the command has waited."""
    with open(path, "wb") as pipe:
        pipe.write(data[:1000])
        pipe.flush()
        time.sleep(SLOW_SECONDS)
        pipe.write(data[1000:])


def take(path):
    with open(path, "rb") as pipe:
        time.sleep(SLOW_SECONDS)
        while pipe.read(65536):
            pass


def run(words, stderr, terminal="xterm", columns=70):
    """Run the command and return standard error, without standard output."""
    words, more = [FALLOW] + words, dict(cwd=WORK, env=dict(os.environ, TERM=terminal), stdout=subprocess.DEVNULL)
    if stderr == "terminal":
        code, printed = on_terminal.run(words, "stderr", columns, **more)
    else:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False, **more)
        code, printed = done.returncode, done.stderr
    expect(code == 0, "%s: exit code %d: %s" % (words, code, printed[-200:]))
    return printed.decode()


def slowly(words, data, stderr="terminal", **more):
    """The same beside a thread that feeds 'slow.ftext', or, without data, drains the pipe."""
    path = os.path.join(WORK, "slow.ftext")
    if not os.path.exists(path):
        os.mkfifo(path)
    other = threading.Thread(target=feed if data else take, args=(path, data) if data else (path,))
    other.start()
    said = run(words, stderr, **more)
    other.join()
    return said


def expect_line(said, parts, what):
    shown = [line for line in said.split("\r") if line.endswith("\x1b[K") and line != "\x1b[K"]
    for part in parts:
        expect(any(part in line for line in shown), "%s: no '%s' in %r" % (what, part, said[-300:]))
    expect(all(len(line) - 3 < 70 for line in shown), "%s: a line of progress is folded: %r" % (what, shown))
    # The line is gone: it was overwritten by nothing, and no newline was printed.
    expect("\r\x1b[K" in said and said.rindex("\r\x1b[K") > said.rindex(shown[-1]) if shown else False,
           "%s: the line stays: %r" % (what, said[-200:]))
    expect(not any("\n" in line for line in shown), "%s: a line of progress has ended" % what)


def main():
    shutil.rmtree(WORK, ignore_errors=True)
    os.makedirs(WORK)
    demo = subprocess.run([FALLOW, "trace", "dump", DEMO], stdout=subprocess.PIPE, check=True).stdout
    long_name = "a_trace_with_a_name_that_is_longer_than_what_a_line_of_progress_has.ftext"
    with open(os.path.join(WORK, long_name), "wb") as file:
        file.write(demo)
    expect_line(slowly(["trace", "import", "slow.ftext", "-o", "x.ftrace"], demo),
                ["reading slow.ftext: ", "writing x.ftrace: 0 MiB"], "import")
    expect_line(slowly(["trace", "pack", "slow.ftext", "-o", "x.ftrace"], demo), ["reading slow.ftext: "], "pack")
    expect_line(slowly(["trace", "verify", long_name, "slow.ftext", long_name], demo),
                ["reading slow.ftext (2 of 3): ", "reading ...", "of_progress_has.ftext (3 of 3): "], "verify")
    expect_line(slowly(["replay", "slow.ftext", "--policy", "async,driver"], demo),
                ["reading slow.ftext: ", "replaying slow.ftext: async, 0 %", " %"], "replay")
    expect_line(slowly(["report", "slow.ftext", long_name, "--policy", "async"], demo),
                ["reading slow.ftext (1 of 2): ", "replaying slow.ftext (1 of 2): ", "(2 of 2): "], "report")
    expect_line(slowly(["gen", "random", "--count", "20000", "-o", "slow.ftext"], None),
                ["writing slow.ftext: "], "gen")
    # Nothing is shown without a terminal, or on one that cannot move back.
    said = slowly(["trace", "verify", "slow.ftext"], demo, stderr="pipe")
    expect(said == "", "into a pipe: %r" % said)
    said = slowly(["trace", "verify", "slow.ftext"], demo, terminal="dumb")
    expect(said == "", "TERM=dumb: %r" % said)
    for failure in failures:
        print(failure)
    if not failures:
        print("progress is shown, and goes")
    return 1 if failures else 0


sys.exit(main())
