#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Test `fallow top` on a terminal: sizes, keys, scrolling, colours and NO_COLOR, several processes, and the end. The
terminal is tmux; skipped without it, or if this build has no ncurses."""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

from test_top import FALLOW, Boards


class Screen(Boards):
    def setUp(self):
        super().setUp()
        self.socket = tempfile.mktemp(prefix="fallow-tmux-", dir="/tmp")  # a socket's path is short
        self.tmux("new-session", "-d", "-s", "stay", "sleep 1000")  # the server stays, too
        self.target = self.start(2)
        self.target.tell("work: works")
        self.top = "'%s' top --directory '%s' --interval 0.2" % (FALLOW, self.folder)

    def tearDown(self):
        self.tmux("kill-server")
        super().tearDown()

    def tmux(self, *words):
        environment = {name: value for name, value in os.environ.items() if name not in ("TMUX", "NO_COLOR")}
        return subprocess.run(["tmux", "-S", self.socket, "-f", "/dev/null", *words], env=dict(environment, LC_ALL="C"),
                              text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout

    def open(self, command):
        """Run a command on a terminal of 80 columns, then print its exit status and whether the terminal is restored."""
        self.tmux("kill-session", "-t", "top")
        self.tmux("new-session", "-d", "-s", "top", "-x", "80", "-y", "24", command + '; echo "left=$?"; '
                  "stty -a | grep -qw -- '-icanon\\|-echo' && echo raw || echo cooked; sleep 100")

    def press(self, *keys):
        self.tmux("send-keys", "-t", "top", *keys)

    def resize(self, columns, rows):
        self.tmux("resize-window", "-t", "top", "-x", str(columns), "-y", str(rows))

    def lines(self, *options):
        return self.tmux("capture-pane", "-p", "-t", "top", *options).splitlines()

    def shows(self, pattern):
        return any(re.search(pattern, line) for line in self.lines())

    def shows_style(self, style):
        return any("\033[%dm" % style in line for line in self.lines("-e"))

    def until(self, condition):
        """Wait until the condition holds, at most 30 s."""
        for _ in range(300):
            if condition():
                return
            time.sleep(0.1)
        self.fail("never seen:\n" + "\n".join(self.lines()))

    def until_shows(self, *patterns):
        for pattern in patterns:
            self.until(lambda: self.shows(pattern))

    def until_left(self):
        self.until_shows("^left=0", "^cooked")

    def is_wide(self, columns):
        """True if the clock ends the first line at the right edge."""
        return len((self.lines() or [""])[0]) == columns

    def test_80_columns_other_sizes_orders_and_scrolling(self):
        self.open("%s %d" % (self.top, self.target.pid))
        self.until_shows(
            r"^fallow top  top_target \(%d\)  2 pools" % self.target.pid, "^q quit .* by number  [0-9:]*$", "^POOL ",
            "^0  *0 sim ", "^pool 0", "^reserved ", "^live ", "^free ", "^hits .* now .*/s$", "^events .*queried",
            "^ladder ", "^STREAM ")
        self.assertTrue(self.is_wide(80))
        self.assertTrue(self.shows_style(7), "headings are not set off")
        self.press("c")
        self.until_shows(" by cached ")
        self.press("o", "Down", "Down")
        self.until(lambda: self.lines()[1].startswith("0 "))
        self.press("End")
        self.until(lambda: not self.shows("^pool 0") and self.shows("^CLASS "))
        self.press("Home")
        self.until_shows("^fallow top ")
        self.resize(110, 45)
        self.until(lambda: self.is_wide(110))
        self.until_shows("^CLASS ")
        self.resize(60, 12)
        self.until(lambda: "  by number" in (self.lines() or [""])[0])  # behind a gap
        self.until(lambda: not self.shows("^CLASS "))
        self.assertLessEqual(max(map(len, self.lines())), 60)
        self.resize(80, 24)
        self.press("q")
        self.until_left()
        self.assertFalse(self.shows("^reserved "))

    def test_several_processes_are_a_list_and_one_in_full(self):
        other = self.start(3)
        first, second = sorted((self.target.pid, other.pid))
        full = r"^fallow top  top_target \(%d\)"
        self.open(self.top)
        self.until_shows("^ PROCESS NAME ", full % first)
        self.press("Tab")
        self.until_shows(full % second)
        self.assertEqual(other.end(), 0)
        self.until(lambda: not self.shows("^ PROCESS NAME ") and self.shows(full % self.target.pid))
        self.press("q")
        self.until_left()

    def test_without_colours_and_the_ends(self):
        top = "%s %d" % (self.top, self.target.pid)
        self.open("NO_COLOR=1 " + top)
        self.until_shows("^reserved ")
        for style in (1, 7, 31):
            self.assertFalse(self.shows_style(style))
        self.press("C-c")
        self.until_left()
        self.open("TERM=none " + top)  # no control sequences: one view after the other
        self.until_shows("^CLASS ")
        self.press("C-c")
        self.open(top)
        self.until_shows("^reserved ")
        self.assertEqual(self.target.end(), 0)
        self.until_shows("^process %d has ended" % self.target.pid, "^left=0")

    def test_it_ends_if_the_terminal_closes_without_a_signal(self):
        """As after `docker exec -it`."""
        note = os.path.join(self.folder, "alone")
        self.open("sh -c 'echo $$ >%s; exec setsid \"$@\"' sh %s %d" % (note, self.top, self.target.pid))
        self.until_shows("^STREAM ")
        self.tmux("kill-session", "-t", "top")
        with open(note) as file:
            status = "/proc/%s/status" % file.read().strip()

        def has_ended():
            try:
                with open(status) as file:
                    return re.search("^State:.[RS]", file.read(), re.M) is None
            except OSError:
                return True

        self.until(has_ended)


if __name__ == "__main__":
    if shutil.which("tmux") is None:
        print("no tmux: nothing checked (apt-get install tmux)")
        sys.exit(77)
    if "ncurses" not in subprocess.run(["ldd", FALLOW], stdout=subprocess.PIPE, text=True).stdout:
        print("this build has no ncurses: nothing checked (apt-get install libncurses-dev)")
        sys.exit(77)
    unittest.main()
