#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""python.report: the snapshot and the page that watch_oom() writes, and pages for notebooks, by the real command.
PyTorch is a fake with the signatures of 2.15; where a real one can be imported, they are compared with its own."""
import contextlib
import html
import inspect
import io
import os
import pickle
import re
import stat
import subprocess
import sys
import tempfile
import threading
import unittest
from unittest import mock

import fakes
import fallow
from fallow import _library, _oom, _page

JOB = ("RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID", "SLURM_NTASKS")
NAMES = {"_record_memory_history": {"enabled", "stacks", "max_entries"}, "_snapshot": set()}


class InFolder(unittest.TestCase):
    """In a folder of its own, outside of any job; `said` is the text on standard error."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.addCleanup(os.chdir, os.getcwd())
        self.folder = os.path.realpath(folder.name)
        os.chdir(self.folder)
        job = mock.patch.dict(os.environ)
        job.start()
        self.addCleanup(job.stop)
        for name in JOB:
            os.environ.pop(name, None)
        self.said = io.StringIO()
        stack = contextlib.ExitStack()
        stack.enter_context(contextlib.redirect_stderr(self.said))
        self.addCleanup(stack.close)

    def run_out(self, torch, size=40 << 20):
        with self.assertRaises(torch.cuda.OutOfMemoryError):
            torch.run_out(size)

    def files(self):
        return sorted(os.listdir(self.folder))

    def make_command(self, text):
        path = os.path.join(self.folder, "bin", "fallow")
        os.makedirs(os.path.dirname(path))
        with open(path, "w") as file:
            file.write("#!/bin/sh\n" + text)
        os.chmod(path, 0o755)
        os.environ["FALLOW_COMMAND"] = path


@unittest.skipUnless("FALLOW_COMMAND" in os.environ, "the command was not built")
class Watch(InFolder):
    def test_snapshot_and_page_of_the_moment(self):
        torch = fakes.torch_memory()
        with fakes.installed(torch=torch):
            watch = fallow.watch_oom()
            self.assertEqual(torch.history, {"stacks": "all", "max_entries": 100000})
            self.assertEqual(self.files(), [])
            self.run_out(torch)
            page, snapshot = os.path.join(self.folder, "oom.html"), os.path.join(self.folder, "oom.pickle")
            self.assertEqual(watch.pages, [page])
            watch.stop()
        self.assertEqual(self.files(), ["oom.html", "oom.pickle"])
        with open(snapshot, "rb") as file:
            self.assertEqual(pickle.load(file), torch.cuda.memory._snapshot())
        with open(page) as file:
            text = file.read()
        self.assertTrue(text.startswith("<!doctype html>"))
        self.assertIn("forward (model.py:39)", text)
        self.assertEqual(self.said.getvalue().splitlines(), [
            "fallow: device 0 is out of memory: 40.0 MiB asked for, 1.0 MiB of 64.0 MiB free",
            "fallow: wrote " + snapshot, "fallow: wrote " + page])

    def test_a_recording_that_is_on_stays_as_it_is(self):
        torch = fakes.torch_memory()
        torch.cuda.memory._record_memory_history("all", stacks="python", max_entries=7)
        with fakes.installed(torch=torch):
            with fallow.watch_oom(stacks="all", max_entries=9):
                self.assertEqual(torch.history, {"stacks": "python", "max_entries": 7})
        self.assertEqual(torch.history, {"stacks": "python", "max_entries": 7})

    def test_stopped_it_records_and_writes_nothing(self):
        torch = fakes.torch_memory()
        with fakes.installed(torch=torch):
            watch = fallow.watch_oom()
            watch.stop()
            watch.stop()
            self.assertIsNone(torch.history)
            self.run_out(torch)
        self.assertEqual((self.files(), self.said.getvalue(), watch.pages), ([], "", []))

    def test_the_first_three_times(self):
        torch = fakes.torch_memory()
        with fakes.installed(torch=torch):
            watch = fallow.watch_oom("deep/er/oom.html")
            for _ in range(5):
                self.run_out(torch)
        names = [os.path.relpath(page, self.folder) for page in watch.pages]
        self.assertEqual(names, ["deep/er/oom.html", "deep/er/oom-2.html", "deep/er/oom-3.html"])
        with open("deep/er/oom-3.pickle", "rb") as file:
            actions = [event["action"] for event in pickle.load(file)["device_traces"][0]]
        self.assertEqual(actions.count("oom"), 3)

    def test_a_rank_that_becomes_known_later_has_its_folder(self):
        torch = fakes.torch_memory()
        with fakes.installed(torch=torch):
            watch = fallow.watch_oom("out{rank}/oom.html")
            with mock.patch.dict(os.environ, RANK="3"):
                self.run_out(torch)
        self.assertEqual(watch.pages, [os.path.join(self.folder, "out3", "oom.html")])
        self.assertEqual(sorted(os.listdir("out3")), ["oom.html", "oom.pickle"])

    def test_threads_that_run_out_at_once_have_a_page_each(self):
        torch = fakes.torch_memory()
        with fakes.installed(torch=torch):
            watch = fallow.watch_oom()
            threads = [threading.Thread(target=self.run_out, args=(torch,)) for _ in range(3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(120)
        self.assertEqual(len(set(watch.pages)), 3)
        self.assertEqual(len(self.files()), 6)


class Refusals(InFolder):
    """Whatever happens, the program sees PyTorch's own error and no other."""

    def watched(self, torch, **settings):
        with fakes.installed(torch=torch):
            watch = fallow.watch_oom(**settings)
            self.run_out(torch)
        return watch

    def test_a_snapshot_that_cannot_be_taken(self):
        for error in (RuntimeError("no"), KeyboardInterrupt("by hand"), MemoryError()):
            torch = fakes.torch_memory()
            torch.cuda.memory._snapshot = mock.Mock(side_effect=error)
            watch = self.watched(torch)
            self.assertEqual((self.files(), watch.pages), ([], []))
            self.assertIn("of this out-of-memory no page was written: %s" % type(error).__name__, self.said.getvalue())

    def test_a_full_disk_leaves_no_part_of_a_file(self):
        torch = fakes.torch_memory()
        with mock.patch("fallow._oom.pickle.dump", side_effect=OSError(28, "No space left on device")):
            self.watched(torch)
        self.assertEqual(self.files(), [])
        self.assertIn("No space left on device", self.said.getvalue())

    def test_without_the_command_the_snapshot_stays_and_what_to_type_is_said(self):
        os.environ["FALLOW_COMMAND"] = "/nowhere/fallow"
        watch = self.watched(fakes.torch_memory())
        self.assertEqual((self.files(), watch.pages), (["oom.pickle"], []))
        self.assertRegex(self.said.getvalue(), "no page: the command fallow cannot be run: .*FALLOW_COMMAND")
        self.assertRegex(self.said.getvalue(), "fallow report /.*/oom.pickle --trace-device 0 --html /.*/oom.html\n$")
        os.environ.pop("FALLOW_COMMAND")
        with mock.patch("fallow._page._command", return_value=None):
            self.watched(fakes.torch_memory())
        self.assertIn("no page: the command fallow was not found; install Fallow", self.said.getvalue())

    def test_a_command_that_hangs_or_fails(self):
        self.make_command("exec sleep 60\n")
        self.watched(fakes.torch_memory(), seconds=0.2)
        self.assertIn("no page: fallow report took more than 0.2 s", self.said.getvalue())
        with open("bin/fallow", "w") as file:
            file.write("#!/bin/sh\necho 'fallow: this is no trace' >&2\nexit 1\n")
        self.watched(fakes.torch_memory())
        self.assertIn("no page: fallow: this is no trace\n", self.said.getvalue())

    def test_a_page_that_is_written_counts_whatever_the_command_complains_of(self):
        self.make_command('echo new >"$5"\necho "fallow: a policy failed" >&2\nexit 1\n')
        with open("oom.html", "w") as file:
            file.write("of an earlier run")
        watch = self.watched(fakes.torch_memory())
        self.assertEqual(watch.pages, [os.path.join(self.folder, "oom.html")])
        self.assertIn("oom.html; fallow: a policy failed\n", self.said.getvalue())
        with open("oom.html") as file:
            self.assertEqual(file.read(), "new\n")
        with open("bin/fallow", "w") as file:
            file.write("#!/bin/sh\nexit 1\n")
        self.assertEqual(self.watched(fakes.torch_memory()).pages, [])
        self.assertFalse(os.path.exists("oom.html"))

    def test_the_command_is_not_preloaded_with_what_the_program_is(self):
        self.make_command('[ -z "$LD_PRELOAD" ] || exit 1\n[ "$1" = report ] || exit 1\n')
        with mock.patch.dict(os.environ, LD_PRELOAD=""):
            os.environ["LD_PRELOAD"] = "/nowhere/other.so"
            watch = self.watched(fakes.torch_memory())
        self.assertEqual(len(watch.pages), 1)

    def test_standard_error_that_is_gone(self):
        self.make_command("exit 0\n")
        with mock.patch.object(sys, "stderr", None):
            self.assertEqual(len(self.watched(fakes.torch_memory()).pages), 1)

    def test_what_cannot_be_watched_is_said_at_once(self):
        torch = fakes.torch_memory(refuses="CUDAPluggableAllocator does not yet support attachOutOfMemoryObserver.")
        with fakes.installed(torch=torch):
            with self.assertRaisesRegex(RuntimeError, r"CUDAPluggableAllocator.*Recording\(flight=True\)"):
                fallow.watch_oom()
            self.assertIsNone(torch.history)
            del torch._C._cuda_attach_out_of_memory_observer
            with self.assertRaisesRegex(ImportError, "needs PyTorch 2.1 or newer with CUDA; this is 2.15.0"):
                fallow.watch_oom()
        with mock.patch.dict(sys.modules, torch=None):
            with self.assertRaisesRegex(ImportError, "fallow.watch_oom.. needs torch"):
                fallow.watch_oom()

    @unittest.skipIf(os.geteuid() == 0, "root may write anywhere")
    def test_a_folder_that_may_not_be_written(self):
        os.mkdir("closed", 0o500)
        with fakes.installed(torch=fakes.torch_memory()):
            with self.assertRaises(PermissionError):
                fallow.watch_oom("closed/oom.html")

    def test_a_page_that_would_be_the_snapshot(self):
        torch = fakes.torch_memory()
        with fakes.installed(torch=torch):
            with self.assertRaisesRegex(ValueError, "the path of the page, such as oom.html, not .*/w/oom.pickle"):
                fallow.watch_oom("w/oom.pickle")
        self.assertEqual((self.files(), torch.history), ([], None))

    def test_a_folder_that_is_a_file(self):
        with open("file", "w"):
            pass
        with fakes.installed(torch=fakes.torch_memory()):
            with self.assertRaises(OSError):
                fallow.watch_oom("file/oom.html")


class Names(InFolder):
    def name(self, pattern, number=1, **job):
        with mock.patch.dict(os.environ, job):
            return _oom._name_page(pattern, number)

    def test_one_file_a_rank(self):
        self.assertEqual(self.name("a/oom.html"), "a/oom.html")
        self.assertEqual(self.name("a/oom.html", RANK="3"), "a/oom_rank3.html")
        self.assertEqual(self.name("a/oom.html", 2, RANK="3"), "a/oom_rank3-2.html")
        self.assertEqual(self.name("oom.html", OMPI_COMM_WORLD_RANK="4"), "oom_rank4.html")
        self.assertEqual(self.name("oom.html", SLURM_PROCID="5", SLURM_NTASKS="8"), "oom_rank5.html")
        self.assertEqual(self.name("oom.html", SLURM_PROCID="0", SLURM_NTASKS="1"), "oom.html")
        self.assertEqual(self.name("oom.html", SLURM_PROCID="0"), "oom.html")
        self.assertEqual(self.name("oom.html", RANK="none"), "oom.html")
        self.assertEqual(self.name("r{rank}/oom.html", RANK="12"), "r12/oom.html")
        self.assertEqual(self.name("r{rank}.html"), "r0.html")
        self.assertEqual(self.name("oom.{pid}.html", RANK="12"), "oom.%d.html" % os.getpid())
        self.assertEqual(self.name("{other}.html"), "{other}.html")

    def test_the_rank_of_a_group_is_first(self):
        torch = fakes.torch_memory()
        group = torch.distributed = mock.Mock()
        with fakes.installed(torch=torch):
            group.is_available.return_value, group.is_initialized.return_value = True, True
            group.get_rank.return_value = 9
            self.assertEqual(self.name("oom.html", RANK="3"), "oom_rank9.html")
            group.is_initialized.return_value = False
            self.assertEqual(self.name("oom.html", RANK="3"), "oom_rank3.html")


@unittest.skipUnless("FALLOW_COMMAND" in os.environ, "the command was not built")
class Notebook(InFolder):
    def test_a_dict_bytes_and_a_path_give_the_same_page(self):
        snapshot = fakes.torch_memory().cuda.memory._snapshot()
        with open("snapshot.pickle", "wb") as file:
            pickle.dump(snapshot, file)
        options = ("--no-times", "--policy", "fallow,pytorch")
        page = fallow.report_html(snapshot, *options)
        self.assertTrue(page.html.startswith("<!doctype html>"))
        self.assertIn("forward (model.py:39)", page.html)
        self.assertEqual(fallow.report_html(pickle.dumps(snapshot), *options).html, page.html)
        self.assertEqual(fallow.report_html("snapshot.pickle", *options).html, page.html)
        self.assertEqual(self.files(), ["snapshot.pickle"])

    def test_shown_in_a_frame_of_its_own_and_saved(self):
        page = fallow.report_html(fakes.torch_memory().cuda.memory._snapshot(), "--no-times", height=321)
        frame = page._repr_html_()
        found = re.fullmatch(r'<iframe srcdoc="([^"<>]*)" ([^<>]*)></iframe>', frame)
        self.assertIsNotNone(found)  # nothing of the page is outside of the quotes
        self.assertEqual(html.unescape(found.group(1)), page.html)
        self.assertIn("height:321px", found.group(2))
        self.assertNotIn("allow-same-origin", found.group(2))
        self.assertEqual(page.save("saved.html"), "saved.html")
        with open("saved.html", encoding="utf-8") as file:
            self.assertEqual(file.read(), page.html)
        self.assertEqual(stat.S_IMODE(os.stat("saved.html").st_mode) & 0o111, 0)
        with self.assertRaises(OSError):
            page.save("nowhere/saved.html")
        self.assertEqual(self.files(), ["saved.html"])
        self.assertLess(len(repr(page)), 100)

    def test_what_is_no_snapshot_is_said(self):
        for thing in (5, ["segments"], None):
            with self.assertRaisesRegex(TypeError, "a snapshot is a dict, a path or bytes"):
                fallow.report_html(thing)
        with self.assertRaisesRegex(RuntimeError, "^fallow: .*/nowhere/x"):
            fallow.report_html("/nowhere/x")
        with self.assertRaisesRegex(RuntimeError, "^fallow: .*snapshot.pickle"):
            fallow.report_html(b"no trace at all")
        with self.assertRaisesRegex(RuntimeError, "^fallow: .*--nonsense"):
            fallow.report_html({"segments": [], "device_traces": []}, "--nonsense")


class Command(InFolder):
    def test_found_beside_the_module_then_along_the_path(self):
        os.environ.pop("FALLOW_COMMAND", None)
        module = os.path.join(self.folder, "share", "fallow", "python", "fallow", "__init__.py")
        with mock.patch.object(_library, "__file__", module):
            self.make_command("exit 0\n")
            os.environ.pop("FALLOW_COMMAND")
            self.assertEqual(_page._command(), os.path.join(self.folder, "bin", "fallow"))
            os.rename("bin", "elsewhere")
            with mock.patch.dict(os.environ, PATH=os.path.join(self.folder, "elsewhere")):
                self.assertEqual(_page._command(), os.path.join(self.folder, "elsewhere", "fallow"))
            with mock.patch.dict(os.environ, PATH=self.folder):
                self.assertIsNone(_page._command())


class Real(unittest.TestCase):
    """The fake's signatures, and where PyTorch is installed, its own."""

    def check(self, torch):
        for name, wanted in NAMES.items():
            parameters = inspect.signature(getattr(torch.cuda.memory, name)).parameters
            self.assertLessEqual(wanted, set(parameters), name)

    def test_the_fake_has_what_is_called(self):
        self.check(fakes.torch_memory())

    def test_so_has_the_real_one(self):
        found = subprocess.run([sys.executable, "-c", "import torch"], stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL, timeout=120)
        if found.returncode != 0:
            self.skipTest("PyTorch cannot be imported here")
        import torch
        self.check(torch)
        if torch.version.cuda is None:
            self.skipTest("this PyTorch is without CUDA, and so without the observer")
        self.assertTrue(callable(torch._C._cuda_attach_out_of_memory_observer))
        self.assertTrue(callable(torch._C._cuda_isHistoryEnabled))


if __name__ == "__main__":
    unittest.main()
