#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""python.module: the module fallow finds and loads the library in a plain Python, its structures are the header's,
its settings reach the pools, and its refusals name the remedy. On the simulated device."""
import contextlib
import ctypes
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
import warnings
from unittest import mock

import fallow


def run(code, **environment):
    """Another Python: (exit status, stdout, stderr)."""
    full = dict(os.environ)
    for name, value in environment.items():
        full.pop(name, None)
        if value is not None:
            full[name] = value
    done = subprocess.run([sys.executable, "-S", "-c", code], env=full, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          universal_newlines=True, timeout=60)
    return done.returncode, done.stdout, done.stderr


class Loading(unittest.TestCase):
    def test_importing_is_cheap_loads_no_library_and_starts_nothing(self):
        code = ("import __future__, ctypes, math, os, sys, warnings, weakref; before = set(sys.modules); import fallow\n"
                "print(sorted(set(sys.modules) - before), os.listdir('/proc/self/task') == [str(os.getpid())],"
                "'libfallow' in open('/proc/self/maps').read())")
        ours = ["fallow"] + ["fallow._" + name for name in (
            "abi arena arguments capture cupy dlpack layout library numba pool recording report rmm sleep torch "
            "typing").split()]
        self.assertEqual(run(code)[:2], (0, "%s True False\n" % ours))

    def test_sizes_may_be_texts(self):
        code = ("import fallow; fallow.configure(driver='sim'); block = fallow.allocate('3M')\n"
                "print(fallow.stats()['live_bytes'], fallow.allocate(0))\n"
                "for bad in -1, 1e9, '1Q':\n"
                "    try: fallow.allocate(bad)\n"
                "    except (TypeError, ValueError) as error: print(error)")
        status, out, _ = run(code)
        self.assertEqual((status, out.split("\n")[0]), (0, "%d 0" % (3 << 20)))
        self.assertEqual([line[:8] for line in out.split("\n")[1:4]], ["size is "] * 3)

    def test_loading_and_asking_makes_no_pool_and_opens_no_driver(self):
        code = ("import fallow; print(fallow.stats(), fallow.report());"
                "maps = open('/proc/self/maps').read(); print('libcuda' in maps, 'simcuda' in maps)")
        self.assertEqual(run(code)[:2], (0, "{} nothing was allocated from Fallow\nFalse False\n"))

    def test_a_missing_library_says_where_it_was_looked_for_and_what_to_do(self):
        status, _, error = run("import fallow; fallow.stats()", FALLOW_LIBRARY="/nowhere/libfallow.so")
        self.assertNotEqual(status, 0)
        self.assertRegex(error, "OSError: libfallow.so could not be loaded; install Fallow, or set FALLOW_LIBRARY "
                                "to the file. Tried: /nowhere/libfallow.so: no such file")

    def test_empty_variables_count_as_unset(self):
        code = ("import fallow; from fallow import _page; fallow._library._candidates() == ["
                "''] and print('the empty path'); _page._command() == '' and print('the empty command')")
        self.assertEqual(run(code, FALLOW_LIBRARY="", FALLOW_COMMAND="")[:2], (0, ""))

    def test_an_editable_installation_has_its_libraries_in_another_folder(self):
        with tempfile.TemporaryDirectory() as folder:
            os.mkdir(os.path.join(folder, "lib"))
            code = "import fallow; fallow.__path__.insert(0, %r); print(fallow._library._roots())" % folder
            self.assertEqual(run(code)[:2], (0, "%r\n" % [folder]))

    def test_another_library_is_told_apart(self):
        status, _, error = run("import fallow; fallow.stats()", FALLOW_LIBRARY="libm.so.6")
        self.assertNotEqual(status, 0)
        self.assertIn("libm.so.6 is of another version than this module", error)

    def test_a_machine_without_a_driver_gets_null_and_a_line(self):
        code = "import fallow; print(fallow._library.lib().fallow_torch_alloc(4096, 0, None))"
        status, out, error = run(code, FALLOW_PLUGIN="driver:/nowhere/libcuda.so.1")
        self.assertEqual((status, out), (0, "None\n"))
        self.assertRegex(error, "fallow: cannot load the CUDA driver '/nowhere/libcuda.so.1'")


class Reports(unittest.TestCase):
    def test_arenas_are_named(self):
        code = ("import fallow; fallow.configure(driver='sim', limit='64M');"
                "arena = fallow.Arena(name='decode', tag=7); other = fallow.Arena(name='prefill');"
                "layout = fallow.Layout([{'name': 'x', 'bytes': 32 << 20}]); arena.reserve([layout]); arena.lock();"
                "lease = arena.lease(layout); print(fallow.report());\n"
                "try: fallow.allocate(60 << 20)\n"
                "except MemoryError: print(fallow.report())")
        status, out, _ = run(code)
        self.assertEqual(status, 0)
        before, after = out.split("device 0, stream order:")[1:]
        for text in before, after:
            self.assertIn("  arena 'decode': scratch 32.0 MiB, persistent 0.0 MiB; 1 leases, 0 captures hold it, "
                          "leased, locked\n  arena 'prefill': scratch 0.0 MiB", text)
        self.assertRegex(after, r"32.0 MiB in 1 blocks of stream \d+, tag 7 \(arena 'decode'\)")


class Settings(unittest.TestCase):
    def test_the_variable_reaches_the_pool(self):
        code = ("import fallow; lib = fallow._library.lib(); print(lib.fallow_torch_alloc(65 << 20, 0, None));"
                "lib.fallow_torch_alloc(4096, 0, None); "
                "print(fallow._report.oom_report(fallow._pool.make_pool(0)).limit_bytes)")
        status, out, error = run(code, FALLOW_PLUGIN="driver:sim,limit:64M")
        self.assertEqual((status, out), (0, "None\n%d\n" % (64 << 20)))
        self.assertEqual(error.count("\n"), 1)
        self.assertRegex(error, "^fallow: no 68157440 bytes on device 0")

    def test_an_unknown_key_is_one_line_and_nothing_is_used(self):
        code = "import fallow; print(fallow._library.lib().fallow_torch_alloc(4096, 0, None))"
        status, out, error = run(code, FALLOW_PLUGIN="driver:sim,colour:red")
        self.assertEqual(status, 0)
        self.assertRegex(error.splitlines()[0], "^fallow: FALLOW_PLUGIN: 'colour:red' is not a setting")

    def test_configure_comes_first_and_before_the_pools(self):
        code = ("import fallow\nfallow.configure(limit='64M', driver='sim', economy='memory_first', decay_ms=0,\n"
                "                 one_handle='none')\n"
                "fallow._library.lib().fallow_torch_alloc(4096, 0, None)\n"
                "try: fallow.configure(driver='sim')\nexcept RuntimeError as error: print(error)")
        status, out, _ = run(code, FALLOW_PLUGIN="driver:/nowhere")
        self.assertEqual(status, 0)
        self.assertRegex(out, "^fallow.configure comes too late: memory was allocated already; call it first\n$")

    def test_settings_that_are_none_are_refused(self):
        for settings in ({"limit": "20X"}, {"limit": 0}, {"limit": "G"}, {"economy": "frugal"}, {"reuse": "never"},
                         {"one_handle": "few"}, {"limit": 1 << 64 | 1}, {"decay_ms": 1 << 32}, {"decay_ms": -1}):
            with self.assertRaises(ValueError):
                fallow.configure(**settings)

    def test_every_economy_has_its_number(self):
        with mock.patch.object(fallow._pool, "lib") as library:
            configure = library.return_value.fallow_plugin_configure
            configure.return_value = 0
            for number, economy in enumerate(("balanced", "memory_first", "speed_first")):  # as in fallow.h
                fallow.configure(economy=economy)
                self.assertEqual(configure.call_args[0][0]._obj.economy, number)

    def test_a_decay_of_0_is_the_default_as_in_fallow_h(self):
        with mock.patch.object(fallow._pool, "lib") as library:
            configure = library.return_value.fallow_plugin_configure
            configure.return_value = 0
            for given, number in ((None, 0), (0, 0), (500, 500), ("never", 0xFFFFFFFF)):
                fallow.configure(decay_ms=given)
                self.assertEqual(configure.call_args[0][0]._obj.decay_ms, number)


    def test_the_helper_thread_is_a_setting(self):
        code = ("import fallow, os; count = lambda: len(os.listdir('/proc/self/task'))\n"
                "fallow.configure(driver='sim', helper_thread=%s)\nbefore = count()\n"
                "fallow._library.lib().fallow_torch_alloc(4096, 0, None); print(count() - before)")
        self.assertEqual([run(code % on)[1] for on in (True, False)], ["1\n", "0\n"])


class Pools(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        fallow.configure(driver="sim", limit="256M")

    def test_allocated_freed_counted_and_reported(self):
        lib = fallow._library.lib()
        before = fallow.stats().get("alloc_count", 0)
        address = lib.fallow_torch_alloc(5000, 0, None)
        self.assertEqual(fallow.stats()["alloc_count"], before + 1)
        self.assertGreaterEqual(fallow.stats()["requested_bytes"], 5000)
        other = lib.fallow_cupy_malloc(None, 6000, 0)
        self.assertEqual(fallow.stats(order="context")["requested_bytes"], 6000)
        self.assertIsNone(lib.fallow_torch_alloc(300 << 20, 0, None))
        text = fallow.report()
        self.assertRegex(text, "device 0, stream order:")
        self.assertRegex(text, "device 0, context order:")
        self.assertRegex(text, "last failure: 300.0 MiB asked for, 256.0 MiB allowed;")
        lib.fallow_torch_free(address, 5000, 0, None)
        lib.fallow_cupy_free(None, other, 0)
        fallow.trim()
        self.assertEqual(fallow.stats()["reserved_bytes"], 0)
        self.assertEqual(fallow.stats(order="context")["reserved_bytes"], 0)

    def test_a_pool_sleeps_and_wakes_with_its_addresses(self):
        lib = fallow._library.lib()
        with fallow.tagged(7):
            kept = lib.fallow_torch_alloc(4 << 20, 0, None)
        lost = lib.fallow_torch_alloc(4 << 20, 0, None)
        held = fallow.stats()["reserved_bytes"]
        fallow.sleep(save=[7])
        self.assertEqual(fallow.stats()["reserved_bytes"], 0)
        self.assertEqual(fallow.stats()["saved_bytes"], 4 << 20)  # the other one is not
        self.assertIsNone(lib.fallow_torch_alloc(4096, 0, None))
        with self.assertRaisesRegex(fallow.Error, "ASLEEP"):
            fallow.sleep()
        fallow.wake()
        self.assertGreaterEqual(held, fallow.stats()["reserved_bytes"])
        self.assertGreater(fallow.stats()["reserved_bytes"], (8 << 20) - 1)
        lib.fallow_torch_free(kept, 4 << 20, 0, None)
        lib.fallow_torch_free(lost, 4 << 20, 0, None)
        self.assertEqual(fallow.stats()["live_count"], 0)
        with self.assertRaises(ValueError):
            fallow.tagged(0)

    def test_watchers_are_called_around_a_sleep_and_may_refuse_it(self):
        seen, answer = [], [None]

        def before():
            seen.append("before")
            if answer[0] == "raise":
                raise ValueError("no sleep now")
            return answer[0]

        end = fallow.watch_sleep(before, lambda: seen.append("after"))
        for refusal in (True, "raise"):
            answer[0] = refusal
            with contextlib.redirect_stderr(io.StringIO()) as errors:
                with self.assertRaisesRegex(fallow.Error, "BUSY"):
                    fallow.sleep()
            self.assertEqual("no sleep now" in errors.getvalue(), refusal == "raise")
        answer[0] = None
        fallow.sleep()
        self.assertEqual(seen, ["before", "after"] * 2 + ["before"])
        fallow.wake()
        self.assertEqual(seen, ["before", "after"] * 3)
        end()
        fallow.sleep()
        fallow.wake()
        self.assertEqual(len(seen), 6)
        with self.assertRaisesRegex(fallow.Error, "NOT_FOUND"):
            end()
        with self.assertRaises(ValueError):
            fallow.watch_sleep()

    def test_memory_for_every_stream_is_given_and_comes_back(self):
        before = fallow.stats().get("live_count", 0)
        blocks = [fallow.allocate(size) for size in (100, 5 << 20)]
        self.assertEqual(fallow.stats()["live_count"], before + 2)
        for block in blocks:
            fallow.free(block)
        self.assertEqual(fallow.stats()["live_count"], before)
        self.assertEqual(fallow.allocate(0), 0)
        with self.assertRaisesRegex(fallow.Error, "INVALID_POINTER"):
            fallow.free(blocks[0])
        with self.assertRaises(MemoryError):
            fallow.allocate(1 << 40)
        for size in (1 << 64, -1):
            with self.assertRaisesRegex(ValueError, r"size is .*: it must be above 0 and below 2\^63"):
                fallow.allocate(size)
        for size in (1e9, b"1G"):
            with self.assertRaisesRegex(TypeError, "limit is .*: bytes as an int, or a text as \"20G\""):
                fallow.configure(limit=size)
        with self.assertRaisesRegex(ValueError, "limit is '²': bytes"):
            fallow.configure(limit="²")
        with self.assertRaisesRegex(ValueError, "tags are 0 to"):
            fallow.sleep(save=[1 << 32])

    def test_the_limit_changes_while_pools_are_in_use(self):
        lib = fallow._library.lib()
        lib.fallow_torch_free(lib.fallow_torch_alloc(5000, 0, None), 5000, 0, None)
        fallow.set_limit("512M")
        large = lib.fallow_torch_alloc(300 << 20, 0, None)
        self.assertIsNotNone(large)
        lib.fallow_torch_free(large, 300 << 20, 0, None)
        fallow.trim()
        fallow.set_limit("64M")
        self.assertIsNone(lib.fallow_torch_alloc(65 << 20, 0, None))
        fallow.set_limit("256M")
        with self.assertRaises(RuntimeError):
            fallow.set_limit("1G", device=5)

    def test_a_recording_is_a_trace(self):
        lib = fallow._library.lib()
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "mine.ftrace")
            with fallow.Recording(path) as recording:
                with recording.phase("warm-up"):
                    for _ in range(100):
                        lib.fallow_torch_free(lib.fallow_torch_alloc(5000, 0, None), 5000, 0, None)
                recording.mark("ready")
            self.assertGreater(os.path.getsize(path), 388)  # the headers
            if "FALLOW_COMMAND" in os.environ:
                text = subprocess.check_output([os.environ["FALLOW_COMMAND"], "trace", "info", "--json", path],
                                               universal_newlines=True, timeout=60)
                self.assertEqual(json.loads(text)["allocations"], 100)
            flight = os.path.join(folder, "flight.ftrace")
            with fallow.Recording(flight, flight=True) as recording:
                lib.fallow_torch_free(lib.fallow_torch_alloc(5000, 0, None), 5000, 0, None)
                self.assertFalse(os.path.exists(flight))
                recording.dump()
                self.assertTrue(os.path.exists(flight))
            with self.assertRaisesRegex(ValueError, "flight or whole"):
                fallow.Recording(flight, flight=True, whole=True)
            with self.assertRaisesRegex(fallow.Error, "a recording to /nowhere/x.*FALLOW_IO"):
                fallow.Recording("/nowhere/x")

    @unittest.skipUnless("FALLOW_COMMAND" in os.environ, "the command is not built")
    def test_a_recording_with_stacks_says_whose_the_memory_is(self):
        lib = fallow._library.lib()  # its calls release the interpreter, as PyTorch's operators do

        def weights():
            return lib.fallow_torch_alloc(3 << 20, 0, None)

        def activations():
            return lib.fallow_torch_alloc(1000, 0, None)

        def owners(path):
            text = subprocess.check_output([os.environ["FALLOW_COMMAND"], "report", "--json", "-", path], timeout=60)
            trace = json.loads(text.decode())["traces"][0]
            return {owner["owner"].split(" (")[0].rsplit(".", 1)[-1]: owner["bytes"]
                    for owner in trace["at_peak_requested"]["by_code"]}

        with tempfile.TemporaryDirectory() as folder:
            for mode in ({}, {"flight": True}):
                path = os.path.join(folder, "mine.ftrace")
                with fallow.Recording(path, stacks=True, **mode) as recording:
                    kept = [weights(), weights()]
                    for _ in range(40000):
                        lib.fallow_torch_free(activations(), 1000, 0, None)
                    one = activations()
                    if mode:
                        recording.dump()
                for block in kept:
                    lib.fallow_torch_free(block, 3 << 20, 0, None)
                lib.fallow_torch_free(one, 1000, 0, None)
                seen = owners(path)
                self.assertEqual(seen.pop("activations"), 1000, mode)
                if not mode:
                    self.assertEqual(seen, {"weights": 6 << 20})
        for wrong in (65, -1):
            with self.assertRaisesRegex(ValueError, "a number of frames up to 64"):
                fallow.Recording("/nowhere/x", stacks=wrong)

    def test_a_recording_that_lacks_calls_has_ended_and_warns(self):
        lib = fallow._library.lib()

        class Hasty:  # as if this program had been faster than its file
            def __getattr__(self, name):
                if name == "fallow_record_stop":
                    return lambda handle: lib.fallow_record_stop(handle) or fallow._abi.FALLOW_RECORDS_LOST
                return getattr(lib, name)

        self.assertEqual(lib.fallow_status_name(fallow._abi.FALLOW_RECORDS_LOST), b"FALLOW_RECORDS_LOST")
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "mine.ftrace")
            with mock.patch.object(fallow._recording, "lib", Hasty):
                with self.assertWarnsRegex(RuntimeWarning, "lacks events.*whole=True"):
                    with fallow.Recording(path):
                        pass
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                with fallow.Recording(path, whole=True):  # the pool is free to be recorded again
                    for _ in range(1000):
                        lib.fallow_torch_free(lib.fallow_torch_alloc(5000, 0, None), 5000, 0, None)
            if "FALLOW_COMMAND" in os.environ:
                subprocess.check_call([os.environ["FALLOW_COMMAND"], "trace", "verify", path],
                                      stdout=subprocess.DEVNULL, timeout=60)

    def test_a_process_that_publishes_has_its_file_until_it_ends(self):
        if not os.access("/dev/shm", os.W_OK):
            self.skipTest("no /dev/shm")
        code = "import fallow, os; fallow.publish(); fallow.publish(); print(os.getpid(), %s)" \
               % "os.path.exists('/dev/shm/fallow.%d.%d' % (os.geteuid(), os.getpid()))"
        status, out, err = run(code)
        self.assertEqual((status, err), (0, ""))
        process, is_there = out.split()
        self.assertEqual(is_there, "True")
        self.assertFalse(os.path.exists("/dev/shm/fallow.%d.%s" % (os.geteuid(), process)))

    def test_streams_come_from_numbers_and_objects(self):
        class Protocol:
            def __cuda_stream__(self):
                return (0, 0x30)

        class Torch:
            cuda_stream = 0x40

        class Numba:
            handle = ctypes.c_void_p(0x50)

        handles = [fallow._arguments.stream_handle(s) for s in (None, 7, Protocol(), Torch(), Numba())]
        self.assertEqual(handles, [0, 7, 0x30, 0x40, 0x50])
        with self.assertRaises(TypeError):
            fallow._arguments.stream_handle(object())

    def test_an_unknown_device_says_so(self):
        with self.assertRaisesRegex(fallow.Error, "the pool of device 7.*FALLOW_NOT_FOUND"):
            fallow._pool.make_pool(7)

    def test_peers_are_named(self):
        for change in (fallow.allow_peer, fallow.deny_peer):
            with self.assertRaisesRegex(fallow.Error, r"_peer\(0, 1\).*FALLOW_NOT_FOUND"):
                change(0, 1)  # one device is simulated

    def test_every_public_name_has_a_text(self):
        self.assertEqual(set(fallow.__all__) - set(dir(fallow)), set())  # help(fallow) lists dir(fallow)
        for name in fallow.__all__:
            self.assertTrue(re.search(r"\w", getattr(fallow, name).__doc__ or ""), name)


if __name__ == "__main__":
    unittest.main()
