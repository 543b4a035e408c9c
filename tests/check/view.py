#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check.view: `fallow view` writes the page of `fallow report` to a private folder or the file of --html, prints the
path, and opens the page with xdg-open if there is a display, else prints the command that copies it.

  view.py FALLOW TRACE"""
import os
import re
import shlex
import socket
import subprocess
import sys
import tempfile
import unittest

FALLOW, TRACE = sys.argv.pop(1), sys.argv.pop(1)
REPORT = ["--no-times", "--policy", "bound,pytorch"]
PATIENCE = 600  # seconds after which a wait counts as a hang, on a machine under any load


class View(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.temporary = os.path.join(self.folder, "tmp")
        os.mkdir(self.temporary)
        self.environment = dict(os.environ, TMPDIR=self.temporary, PATH=self.folder + ":" + os.environ["PATH"])
        for name in ("DISPLAY", "WAYLAND_DISPLAY"):
            self.environment.pop(name, None)
        self.make_browser(0)

    def make_browser(self, status):
        with open(os.path.join(self.folder, "xdg-open"), "w") as file:
            file.write('#!/bin/sh\ncp "$1" "%s/seen"\nexit %d\n' % (self.folder, status))
        os.chmod(file.name, 0o755)

    def view(self, *arguments, **environment):
        return subprocess.run([FALLOW, "view"] + list(arguments), env=dict(self.environment, **environment),
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True, timeout=PATIENCE)

    def page_of(self, done):
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return re.search("^page: (/.*)$", done.stdout, re.M).group(1)

    def seen(self):
        with open(os.path.join(self.folder, "seen"), "rb") as file:
            return file.read()

    def test_with_a_display_the_page_of_report_is_opened(self):
        page = subprocess.check_output([FALLOW, "report", TRACE, "--html", "-"] + REPORT, timeout=PATIENCE)
        for name in ("DISPLAY", "WAYLAND_DISPLAY"):
            done = self.view(TRACE, *REPORT, **{name: ":9"})
            path = self.page_of(done)
            self.assertNotIn("scp", done.stdout)
            self.assertEqual(self.seen(), page)
            self.assertEqual(os.stat(os.path.dirname(path)).st_mode & 0o777, 0o700)
            self.assertEqual(os.path.dirname(os.path.dirname(path)), os.path.realpath(self.temporary))
            os.unlink(os.path.join(self.folder, "seen"))

    def test_without_a_browser_the_copy_command_is_printed(self):
        self.make_browser(3)
        for display in ({}, {"DISPLAY": ":9"}):
            done = self.view(TRACE, *REPORT, **display)
            self.assertIn("\n  scp '%s:%s' .\n" % (socket.gethostname(), self.page_of(done)), done.stdout)

    def test_a_named_place_and_a_finished_page(self):
        page = os.path.join(self.folder, "mine.HTML")
        self.assertEqual(self.page_of(self.view(TRACE, "--html", page, *REPORT)), os.path.realpath(page))
        self.assertEqual(self.page_of(self.view(page, DISPLAY=":9")), os.path.realpath(page))
        self.assertTrue(self.seen().startswith(b"<!"))
        self.assertEqual(os.listdir(self.temporary), [])
        odd = os.path.join(self.folder, "it's $HOME.html")
        os.rename(page, odd)
        command = self.view(odd).stdout.split("\n")[2]
        self.assertEqual(shlex.split(command), ["scp", "%s:%s" % (socket.gethostname(), os.path.realpath(odd)), "."])

    def test_failures_leave_nothing(self):
        for arguments, status, said in (([], 2, "view needs a trace"), (["/nowhere/x"], 1, "/nowhere/x"),
                                        (["/nowhere/x.html"], 1, "/nowhere/x.html"),
                                        (["--nothing", TRACE], 2, "view has no option '--nothing'"),
                                        ([TRACE, "--html", "-"], 2, "needs a file")):
            done = self.view(*arguments)
            self.assertEqual(done.returncode, status, arguments)
            self.assertRegex(done.stderr, "^fallow: .*" + said)
            self.assertEqual(done.stderr.count("\n"), 1)
            self.assertEqual(os.listdir(self.temporary), [])
        self.assertRegex(self.view(TRACE, TMPDIR="/nowhere").stderr,
                         "^fallow: cannot make a folder in '/nowhere'.*TMPDIR")


unittest.main()
