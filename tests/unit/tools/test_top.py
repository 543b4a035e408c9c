#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Test `fallow top` as a command, on processes of the test: every form except the screen, and the messages if there is
nothing to show. FALLOW_COMMAND and FALLOW_TOP_TARGET name the programs."""
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import unittest

FALLOW, TARGET = os.environ["FALLOW_COMMAND"], os.environ["FALLOW_TOP_TARGET"]
NOBODY = 2147483647  # no process has this number


class Target:
    """A process with published pools (top_target.c)."""

    def __init__(self, folder, pools):
        self.process = subprocess.Popen([TARGET, folder, str(pools)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True, bufsize=1)
        self.pid = self.process.pid
        self.file = "%s/fallow.%d.%d" % (folder, os.geteuid(), self.pid)
        self.expect("ready")

    def expect(self, answer):
        line = self.process.stdout.readline().rstrip("\n")
        assert line == answer, line

    def tell(self, *orders):
        """Give each order, written "order: answer", and wait for its answer."""
        for order in orders:
            word, answer = order.split(": ")
            self.process.stdin.write(word + "\n")
            self.expect(answer)

    def work(self):
        self.tell("work: works", "rest: rests")

    def stats(self):
        """Return (pool, name, value) for each of the pools' statistics."""
        self.process.stdin.write("stats\n")
        for line in iter(self.process.stdout.readline, "end\n"):
            name, value = line.split()
            pool, name = name.split(".")
            yield pool, name, int(value)

    def end(self, order="quit"):
        """Let the process end, and return its status."""
        self.process.stdin.write(order + "\n")
        return self.reap()

    def reap(self):
        self.process.communicate()
        return self.process.returncode


class Boards(unittest.TestCase):
    """A folder in which targets publish."""

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="fallow-top-")
        self.targets = []

    def tearDown(self):
        for target in self.targets:
            if target.process.returncode is None:
                target.process.kill()
                target.reap()
        shutil.rmtree(self.folder)

    def start(self, pools):
        self.targets.append(Target(self.folder, pools))
        return self.targets[-1]


class Top(Boards):
    def run_top(self, *arguments, code=0):
        """Return the output of `fallow top`. A number or a target selects a process."""
        words = [str(getattr(word, "pid", word)) for word in arguments]
        done = subprocess.run([FALLOW, "top", "--directory", self.folder] + words, text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.assertEqual(done.returncode, code, done.stdout)
        return done.stdout

    def read(self, *arguments):
        """Return one process as an object of JSON."""
        (line,) = self.run_top(*arguments, "--once", "--json").splitlines()
        return json.loads(line)

    def read_text(self, *arguments):
        text = self.run_top(*arguments)
        for line in text.splitlines():
            self.assertLessEqual(len(line), 80)
            self.assertNotIn("\033", line)
        return text

    def expect_refusal(self, part, *arguments, code=1):
        text = self.run_top(*arguments, code=code)
        self.assertRegex(text, "^fallow: top: .*\n$")
        self.assertIn(part, text)

    def expect_stats(self, target, seen):
        pools = {pool["pool"]: pool for pool in seen["pools"]}
        stats = list(target.stats())
        self.assertEqual(len(stats), 2 * 38)
        for pool, name, value in stats:
            self.assertEqual(pools[pool][name], value, name)

    def test_at_a_quiet_point_the_json_holds_the_pools_statistics(self):
        target = self.start(2)
        self.expect_stats(target, self.read(target))
        for _ in range(2):
            target.tell("work: works")
            self.read(target)  # also during work
            target.tell("rest: rests")
            seen = self.read(target)
            self.expect_stats(target, seen)
        pool = seen["pools"][0]
        self.assertEqual(seen["name"], "top_target")
        self.assertIn("stream", [row["kind"] for row in pool["streams"]])
        self.assertIn(None, [row["size_bytes"] for row in pool["classes"]])
        self.assertTrue(pool["last_climb"]["stage"])
        self.assertEqual(target.end(), 0)

    def test_owners_of_memory_are_named_while_it_is_recorded(self):
        """A pool with three kinds of blocks: older than the recording, and of two functions of the program."""
        def owners():
            return {(row["requested_bytes"], row["live_count"]): row["owner"]
                    for row in self.read(target)["pools"][0]["owners"]}

        target = self.start(1)
        self.assertIsNone(self.read(target)["pools"][0]["owners"])
        self.assertNotIn("OWNER", self.run_top(target, "--once"))
        target.work()
        target.tell("record %s/x.ftrace: records" % self.folder, "keep: kept")
        self.assertLess({(5 * 3 << 20, 5), (7 << 20, 7)}, set(owners()))
        self.assertIn("no call stack, or before the recording", owners().values())
        text = self.read_text(target, "--once")
        self.assertIn("  BLOCKS  OWNER\n    15 MiB ", text)
        self.assertIn("top_target+0x", text)
        target.tell("drop: dropped")
        self.assertLess({(3 * 3 << 20, 3), (7 << 20, 7)}, set(owners()))
        target.tell("stop: stopped")
        self.assertIsNone(self.read(target)["pools"][0]["owners"])
        self.assertEqual(target.end(), 0)

    def test_arenas_are_named(self):
        target = self.start(1)
        self.assertEqual(self.read(target)["pools"][0]["arenas"], [])
        target.tell("lease: leased")
        pool = self.read(target)["pools"][0]
        self.assertEqual((pool["arena_bytes"], pool["arena_count"]), (1048576, 1))
        self.assertEqual(pool["arenas"], [{
            "name": "decode?of lane 0", "scratch_bytes": 1048576, "persistent_bytes": 0, "lease_count": 1,
            "capture_count": 0, "is_leased": 1, "is_locked": 0}])
        self.assertIn("\narena        1 MiB  decode?of lane 0, leased  kept 0 B  1 leases  0 captures\n",
                      self.read_text(target, "--once"))
        self.assertIn("\nfallow_pool_arenas{process=", self.run_top("--prometheus"))
        target.tell("end: ended")
        self.assertEqual(target.end(), 0)

    def test_the_text_is_plain_and_fits_80_columns(self):
        target = self.start(3)
        target.tell("work: works")
        text = self.read_text(target, "--once")
        for part in ("3 pools", *("\npool %d\n" % i for i in range(3)), "\nreserved ", "\nlive ", "\nfree ", "\nhits ",
                     "\nevents ", "\nladder ", "\nSTREAM ", "\nCLASS ", "\nruns "):
            self.assertIn(part, text)
        listed = self.read_text().splitlines()
        self.assertEqual(len(listed), 2)
        self.assertIn("top_target", listed[1])
        self.read()
        target.tell("rest: rests")
        self.assertEqual(target.end(), 0)
        self.assertIn("no process of this user shows pools", self.run_top())
        self.assertEqual(self.run_top("--json"), "")

    def test_without_a_terminal_views_follow_each_other_to_the_end(self):
        target = self.start(1)
        target.tell("work: works")
        views = rates = 0
        with subprocess.Popen([FALLOW, "top", "--directory", self.folder, str(target.pid), "--interval", "0.1"],
                              text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as top:
            for line in top.stdout:
                views += line.startswith("fallow top ")
                rates += re.match("hits .* now ", line) is not None
                if views == 3 and target.process.returncode is None:
                    target.tell("rest: rests")
                    self.assertEqual(target.end(), 0)
        self.assertEqual(top.returncode, 0)
        self.assertGreaterEqual(views, 3)
        self.assertEqual(rates + 1, views)

    def test_the_prometheus_text_is_one(self):
        one, two = self.start(2), self.start(1)
        one.work()
        text = self.run_top("--prometheus")
        for part in ('fallow_process_pools{process="%d",command="top_target"} 2\n' % one.pid,
                     'fallow_pool_info{process="%d",pool="0",device="0",command="top_target",driver="sim"} 1\n'
                     % two.pid,
                     'fallow_pool_limit_bytes{process="%d",pool="1",device="0"} 2147483648\n' % one.pid,
                     "fallow_ladder_climb_total{", ',class="runs"} '):
            self.assertIn(part, text)
        self.assertEqual(text[-1], "\n")
        heads, samples = [], set()
        for line in text.splitlines():
            if line.startswith("# HELP "):
                heads.append(re.match(r"# HELP ([a-z_][a-z0-9_]*) .", line)[1])
                self.assertFalse(heads[-1].endswith("_count"))
                kind = "counter" if heads[-1].endswith("_total") else "gauge"
                continue
            if line.startswith("#"):
                self.assertEqual(line, "# TYPE %s %s" % (heads[-1], kind))
                continue
            label = r'[a-z_]+="(?:[^"\\]|\\[\\"n])*"'
            sample = re.match(r"(([a-z_]+)\{%s(?:,%s)*\}) [0-9.]+$" % (label, label), line)
            self.assertEqual(sample[2], heads[-1])
            self.assertNotIn(sample[1], samples)
            samples.add(sample[1])
        self.assertEqual(len(heads), len(set(heads)))
        self.assertGreater(len(heads), 40)
        self.assertNotIn('"%d"' % one.pid, self.run_top(two, "--prometheus"))

    def test_mistakes_are_named_in_one_line(self):
        for line, part in (
                ("nobody", "'nobody' is no process number"),
                ("0", "'0' is no process number"),
                ("12 x", "'x' is no process number"),
                ("--sort live_bytes", "none of number, reserved, live, cached and hits"),
                ("--sort hts", "did you mean 'hits'?"),
                ("--interval 0", "0.1 to 3600"),
                ("--interval 1s", "0.1 to 3600"),
                ("--interval nan", "0.1 to 3600"),
                ("--json --prometheus", "not both")):
            self.expect_refusal(part, *line.split(), code=2)
        for line, part in (
                ("%d %d --once" % (NOBODY - 1, NOBODY), "there is no process %d" % NOBODY),
                (str(NOBODY), "there is no process %d" % NOBODY),
                (str(os.getpid()), "fallow_publish_start"),
                ("--directory /nonexistent/folder", "/nonexistent/folder: No such file"),
                ("--directory /nonexistent/folder 7 --json", "/nonexistent/folder")):
            self.expect_refusal(part, *line.split())

    def test_several_processes_are_shown_as_they_were_named(self):
        """Named processes in that order, each in full; else a line each, in the requested order."""
        one, two = self.start(1), self.start(3)
        text = self.read_text(two, one, "--once")
        self.assertTrue(text.startswith("fallow top  top_target (%d)  3 pools\n" % two.pid))
        self.assertIn("\n\nfallow top  top_target (%d)  1 pool\n" % one.pid, text)
        lines = self.run_top(two, one, "--once", "--json").splitlines()
        self.assertEqual([json.loads(line)["process"] for line in lines], [two.pid, one.pid])
        two.work()
        first = self.run_top("--once", "--sort", "reserved").splitlines()[1]
        self.assertTrue(first.startswith("%8d top_target" % two.pid))
        self.assertEqual(two.end(), 0)
        text = self.run_top(two, one, "--once")  # the remaining process
        self.assertTrue(text.startswith("fallow top  top_target (%d)  1 pool\n" % one.pid))

    def test_an_unreadable_board_is_named_in_one_line(self):
        def poke(offset, data):
            with open(target.file, "r+b") as file:
                file.seek(offset)
                file.write(data)
            os.chmod(target.file, 0o600)

        target = self.start(1)
        os.chmod(target.file, 0o666)  # others could have changed the file
        self.expect_refusal("was not read", target, "--once")
        poke(8, b"\7\0\0\0")
        self.expect_refusal("publishes in version 7", target, "--once")
        poke(8, b"\3\0\0\0")
        self.run_top(target, "--once")
        poke(0, b"?")
        self.expect_refusal("damaged", target, "--once")
        poke(0, b"F")
        os.kill(target.pid, signal.SIGSTOP)
        self.assertTrue(os.WIFSTOPPED(os.waitpid(target.pid, os.WUNTRACED)[1]))
        self.expect_refusal("does not respond", target, "--once")
        os.kill(target.pid, signal.SIGCONT)
        self.run_top(target, "--once")
        self.assertEqual(target.end(), 0)

    def test_a_process_without_pools_is_shown_as_that(self):
        target = self.start(0)
        self.assertIn("0 pools\nno pools\n", self.run_top(target, "--once"))
        seen = self.read(target)
        self.assertEqual((seen["pool_total"], seen["pools"]), (0, []))

    def test_a_kill_leaves_a_file_that_the_next_look_removes(self):
        target = self.start(1)
        self.assertTrue(os.path.exists(target.file))
        target.process.kill()
        self.assertEqual(target.reap(), -signal.SIGKILL)
        self.assertTrue(os.path.exists(target.file))
        self.expect_refusal("there is no process", target, "--once")
        self.assertFalse(os.path.exists(target.file))
        target = self.start(1)
        self.assertEqual(target.end("exit"), 0)  # without a stop
        self.assertFalse(os.path.exists(target.file))


if __name__ == "__main__":
    unittest.main()
