#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check.view: `fallow view` serves the page that `fallow report` makes, on the loopback, at its own address and to
its own host alone, beside connections that say nothing, until it is told to end, and leaves nothing; with a display
it asks xdg-open instead, and serves where that finds no browser.

  view.py FALLOW TRACE"""
import contextlib
import http.client
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
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

    def expected(self):
        return subprocess.check_output([FALLOW, "report", TRACE, "--html", "-"] + REPORT, timeout=PATIENCE)

    def serve(self, *arguments):
        """(process, port, path) of a server."""
        process = subprocess.Popen([FALLOW, "view"] + list(arguments), env=self.environment, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, universal_newlines=True)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.lines = []
        for line in process.stdout:
            self.lines.append(line)
            found = re.search(r"http://127\.0\.0\.1:(\d+)(/[0-9a-f]{32}/)$", line)
            if found:
                self.lines += [process.stdout.readline(), process.stdout.readline()]
                return process, int(found.group(1)), found.group(2)
        self.fail("no address: %s" % process.stderr.read())

    def ask(self, port, path, method="GET", **head):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        self.addCleanup(connection.close)
        connection.request(method, path, headers=head)
        answer = connection.getresponse()
        return answer.status, answer.read(), answer

    def end(self, process, number=signal.SIGINT):
        process.send_signal(number)
        self.assertEqual(process.wait(PATIENCE), 0)
        self.assertEqual(process.stderr.read(), "")
        self.assertEqual(os.listdir(self.temporary), [])

    def test_the_page_at_its_address_alone(self):
        process, port, path = self.serve(TRACE, *REPORT)
        self.assertIn("ssh -N -L %d:127.0.0.1:%d %s" % (port, port, socket.gethostname()), "".join(self.lines))
        made = os.path.join(self.temporary, os.listdir(self.temporary)[0])
        self.assertEqual(os.stat(made).st_mode & 0o777, 0o700)
        page = self.expected()
        status, body, answer = self.ask(port, path)
        self.assertEqual((status, body), (200, page))
        self.assertEqual(answer.getheader("Content-Type"), "text/html; charset=utf-8")
        self.assertEqual(answer.getheader("Cache-Control"), "no-store")
        self.assertIn("default-src 'none'", answer.getheader("Content-Security-Policy"))
        self.assertEqual(self.ask(port, path + "?x=1")[0], 200)
        self.assertEqual(self.ask(port, path, "HEAD")[:2], (200, b""))
        self.assertEqual(self.ask(port, path, Host="LocalHost:1234")[0], 200)  # a tunnel from another port
        wrong = path[:-2] + ("0" if path[-2] != "0" else "1") + "/"
        for other in ("/", wrong, path[:-1], path + "x", "/" + "0" * 32 + "/", "/../../etc/passwd"):
            status, body, _ = self.ask(port, other)
            self.assertEqual(status, 404, other)
            self.assertNotIn(path.strip("/").encode(), body)
        for method in ("POST", "PUT", "DELETE", "OPTIONS"):
            self.assertEqual(self.ask(port, path, method)[0], 405)
        for host in ("evil.example", "127.0.0.1.evil.example", "evil.example:%d" % port, ""):
            self.assertEqual(self.ask(port, path, Host=host)[0], 403, host)
        self.end(process)

    def test_clients_that_say_nothing_or_nonsense_hold_nobody_up(self):
        process, port, path = self.serve(TRACE, *REPORT)
        idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(5)]
        for text in (b"\r\n\r\n", b"GET\r\n\r\n", b"GET \r\n\r\n", b"\0" * 100, b"GET / HTTP/1.1\r\n" + b"x" * 20000,
                     b"GET " + path.encode() + b" HTTP/1.1\r\n\r\n"):
            with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as client:
                try:
                    client.sendall(text)
                    client.shutdown(socket.SHUT_WR)
                    answer = client.recv(100)
                except socket.timeout:
                    raise
                except OSError:  # it has hung up before all was said
                    answer = b""
            self.assertNotIn(b" 200 ", answer, text)
        self.assertEqual(self.ask(port, path)[0], 200)
        for client in idle:
            client.close()
        self.end(process, signal.SIGTERM)

    def test_as_many_clients_as_it_serves_do_not_keep_it(self):
        process, port, _ = self.serve(TRACE, *REPORT)
        idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(30)]
        stopped = set()
        while len(stopped) < 16:  # stopped at once: a child ends by itself after a while
            for child in self.children(process):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(child), signal.SIGSTOP)
                    stopped.add(child)
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(PATIENCE), 0)
        for child in stopped:
            with contextlib.suppress(ProcessLookupError):  # the kernel wakes an orphaned group of stopped processes
                os.kill(int(child), signal.SIGCONT)
        self.assertEqual(process.stderr.read(), "")
        self.assertEqual(os.listdir(self.temporary), [])
        for client in idle:
            client.close()

    def children(self, process):
        with open("/proc/%d/task/%d/children" % (process.pid, process.pid)) as file:
            return file.read().split()

    def test_only_this_machine_can_connect(self):
        process, port, _ = self.serve(TRACE, *REPORT)
        with open("/proc/net/tcp") as file:
            listening = [line.split()[1] for line in file if line.split()[3] == "0A"]
        self.assertIn("0100007F:%04X" % port, listening)
        self.assertNotIn("00000000:%04X" % port, listening)
        self.end(process)

    def test_a_page_that_is_there_is_served_and_stays(self):
        page = os.path.join(self.folder, "mine.HTML")
        with open(page, "w") as file:
            file.write("<!doctype html>mine")
        process, port, path = self.serve(page)
        self.assertEqual(self.ask(port, path)[:2], (200, b"<!doctype html>mine"))
        self.end(process, signal.SIGHUP)
        self.assertTrue(os.path.exists(page))

    def test_a_signal_that_it_was_told_to_ignore_is_ignored(self):
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        try:
            process, port, path = self.serve(TRACE, *REPORT)
        finally:
            signal.signal(signal.SIGHUP, signal.SIG_DFL)
        process.send_signal(signal.SIGHUP)
        self.assertEqual(self.ask(port, path)[:2], (200, self.expected()))
        self.end(process)

    def test_a_port_that_is_named_and_one_that_is_taken(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            done = self.run_view("--port", str(port), TRACE, *REPORT)
            self.assertEqual(done.returncode, 1)
            self.assertRegex(done.stderr, "^fallow: cannot serve on 127.0.0.1, port %d: .*--port" % port)
        self.assertEqual(os.listdir(self.temporary), [])
        process, there, _ = self.serve("--port", str(port), TRACE, *REPORT)
        self.assertEqual(there, port)
        self.end(process)

    def run_view(self, *arguments):
        return subprocess.run([FALLOW, "view"] + list(arguments), env=self.environment, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, universal_newlines=True, timeout=PATIENCE)

    def make_browser(self, status, command=":"):
        with open(os.path.join(self.folder, "xdg-open"), "w") as file:
            file.write('#!/bin/sh\ncp "$1" "%s/seen"\n%s\nexit %d\n' % (self.folder, command, status))
        os.chmod(file.name, 0o755)

    def test_with_a_display_xdg_open_opens_it(self):
        self.make_browser(0)
        for name in ("DISPLAY", "WAYLAND_DISPLAY"):
            done = subprocess.run([FALLOW, "view", TRACE] + REPORT, env=dict(self.environment, **{name: ":9"}),
                                  stdout=subprocess.PIPE, timeout=PATIENCE, universal_newlines=True)
            self.assertEqual(done.returncode, 0)
            page = re.search("^the page of .*: (.*)$", done.stdout, re.M).group(1)
            with open(page, "rb") as there, open(os.path.join(self.folder, "seen"), "rb") as seen:
                self.assertEqual(there.read(), seen.read())

    def test_where_no_browser_is_found_or_wanted_it_is_served(self):
        self.environment["DISPLAY"] = ":9"
        self.make_browser(3)
        process, port, path = self.serve(TRACE, *REPORT)
        self.assertEqual(self.ask(port, path)[0], 200)
        self.end(process)
        self.make_browser(0)
        os.unlink(os.path.join(self.folder, "seen"))
        process, port, path = self.serve("--serve", TRACE, *REPORT)
        self.end(process)
        self.assertFalse(os.path.exists(os.path.join(self.folder, "seen")))

    def interrupt(self, process, number=signal.SIGINT):
        process.send_signal(number)
        self.assertEqual(process.wait(PATIENCE), -number)
        self.assertEqual(process.communicate()[1], "")
        self.assertEqual(os.listdir(self.temporary), [])

    def start(self, *arguments):
        return subprocess.Popen([FALLOW, "view"] + list(arguments), env=self.environment, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, universal_newlines=True)

    def test_a_signal_while_the_page_is_made_leaves_nothing(self):
        pipe = os.path.join(self.folder, "pipe")
        os.mkfifo(pipe)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            with self.start(pipe) as process, open(pipe, "wb"):  # it is open when the page is begun
                self.assertEqual(len(os.listdir(self.temporary)), 1)
                self.interrupt(process, number)

    def test_a_signal_while_the_browser_starts_leaves_nothing(self):
        self.environment["DISPLAY"] = ":9"
        self.make_browser(0, "echo $$ >%s/ready; exec sleep 60" % self.folder)
        with self.start(TRACE, *REPORT) as process:
            while not os.path.exists(os.path.join(self.folder, "ready")):
                time.sleep(0.01)
            self.interrupt(process)

    def test_the_browser_has_the_signals_that_this_program_was_given(self):
        self.environment["DISPLAY"] = ":9"
        self.make_browser(0, "grep -E 'Sig(Ign|Blk)' /proc/self/status >%s/signals" % self.folder)
        self.assertEqual(self.run_view(TRACE, *REPORT).returncode, 0)
        with open(os.path.join(self.folder, "signals")) as file:
            self.assertEqual([int(line.split()[1], 16) for line in file], [0, 0])

    def test_its_own_options_stand_anywhere(self):
        self.environment["DISPLAY"] = ":9"
        self.make_browser(0)
        for arguments in ([TRACE, "--serve"] + REPORT, [TRACE] + REPORT + ["--serve"]):
            process, port, path = self.serve(*arguments)
            self.assertEqual(self.ask(port, path)[:2], (200, self.expected()))
            self.end(process)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        for words in (["--port", str(port)], ["--port=%d" % port]):
            process, there, _ = self.serve(TRACE, *words, *REPORT, "--serve")
            self.assertEqual(there, port)
            self.end(process)

    def test_what_cannot_be_shown(self):
        for arguments, status, said in (([], 2, "view needs a trace or a page"),
                                        ([self.folder], 2, "is a folder: fallow report .* --html"),
                                        (["/nowhere/x"], 1, "/nowhere/x"), (["/nowhere/x.html"], 1, "/nowhere/x.html"),
                                        (["x.html", "--no-times"], 2, "is a page already"),
                                        (["--port", "0", TRACE], 2, "--port"), (["--nothing", TRACE], 2, "--nothing"),
                                        ([TRACE, "--nothing"], 2, "report has no option '--nothing'"),
                                        ([TRACE, "--port"], 2, "--port needs a value; see fallow view"),
                                        ([TRACE, "--port", "x"], 2, "--port 'x' is not"),
                                        ([TRACE, "other.ftext"], 2, "shows one trace, and 'other.ftext' is one more")):
            done = self.run_view(*arguments)
            self.assertEqual(done.returncode, status, arguments)
            self.assertRegex(done.stderr, "^fallow: .*" + said)
            self.assertEqual(done.stderr.count("\n"), 1)
            self.assertEqual(os.listdir(self.temporary), [])
        self.environment["TMPDIR"] = "/nowhere"
        self.assertRegex(self.run_view(TRACE).stderr, "^fallow: cannot make a folder in '/nowhere'.*TMPDIR")


for ending in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(ending, signal.SIG_DFL)  # this may be told to ignore them, and what it starts would be too
unittest.main()
