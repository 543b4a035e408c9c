#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""python.auto: FALLOW_AUTO in fresh interpreters of an environment with fallow.pth among its site packages. The
frameworks are fakes (see fakes.py) in files, which Python imports like the real ones."""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import venv
import zipfile

import fakes
import fallow

SOURCES = os.path.dirname(os.path.dirname(os.path.abspath(fallow.__file__)))
FAKE = """import fakes
_fake = fakes.%s
globals().update({name: value for name, value in vars(_fake).items() if name[:2] != "__" or name == "__version__"})
"""
GIVEN = "print(torch._fake.given)"  # the number of allocators that PyTorch was given


class Auto(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.root = tempfile.mkdtemp()
        venv.EnvBuilder(with_pip=False, symlinks=True).create(os.path.join(cls.root, "env"))
        cls.python = os.path.join(cls.root, "env", "bin", "python3")
        cls.site = os.path.join(cls.root, "env", "lib", "python%d.%d" % sys.version_info[:2], "site-packages")
        cls.write("a.pth", "%s\n%s\n" % (SOURCES, os.path.dirname(os.path.abspath(fakes.__file__))))
        shutil.copy(os.path.join(SOURCES, "fallow.pth"), cls.site)
        for path, fake in (("torch.py", "torch()"), ("cupy.py", "cupy()"), ("rmm.py", "rmm()"),
                           ("old/torch.py", "torch(version='2.0')"), ("late/torch.py", "torch(initialized=True)"),
                           ("numba/__init__.py", "numba(True)[0]"),
                           ("numba/cuda/__init__.py", "numba(True)[1]"),
                           ("numba/cuda/cudadrv/__init__.py", "numba(True)[2]"),
                           ("numba/cuda/cudadrv/driver.py", "numba(True)[3]")):
            cls.write(path, FAKE % fake)
        cls.write("flaky/torch.py", "import os, sys\nif not hasattr(sys, 'again'):\n    sys.again = 1\n    1 / 0\n"
                  + FAKE % "torch()")

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.root)

    @classmethod
    def write(cls, path, text):
        path = os.path.join(cls.site, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(text)

    def run_python(self, *arguments, auto="torch", first=None, **more):
        """Run Python with `first` before its site packages. Return its output and its lines on stderr."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        environment = dict(kept, FALLOW_PLUGIN="driver:sim", PYTHONDONTWRITEBYTECODE="1", **more)
        if auto is not None:
            environment["FALLOW_AUTO"] = auto
        if first is not None:
            environment["PYTHONPATH"] = os.path.join(self.site, first)
        result = subprocess.run([self.python, *arguments], env=environment, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, universal_newlines=True, timeout=60, cwd=self.root)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout.strip(), result.stderr.splitlines()

    def check(self, program, output, lines=(), **more):
        """Run a program and compare its output; its lines on stderr must match `lines`."""
        printed, errors = self.run_python("-c", program, **more)
        self.assertEqual((printed, len(errors)), (output, len(lines)), errors)
        for error, line in zip(errors, lines):
            self.assertRegex(error, "^fallow: FALLOW_AUTO=%s: .*%s" % (more.get("auto", "torch"), line))

    def test_python_starts_as_before_without_the_variable(self):
        ask = "import sys; print(len(sys.meta_path), sorted(sys.modules))"
        with_file, _ = self.run_python("-c", ask, auto=None)
        os.rename(self.site + "/fallow.pth", self.site + "/fallow.off")
        try:
            without, _ = self.run_python("-c", ask, auto=None)
        finally:
            os.rename(self.site + "/fallow.off", self.site + "/fallow.pth")
        self.assertEqual(with_file, without)
        self.check("import torch, sys; %s; print('fallow' in sys.modules)" % GIVEN, "0\nFalse", auto=None)
        self.check("import torch; " + GIVEN, "0", auto="")
        self.check("import sys; print('torch' in sys.modules)", "False")

    def test_the_module_looks_as_without_and_allocates_from_fallow(self):
        self.check("import torch; a = torch._fake.current; a.alloc(5000, 0, None); import fallow\n"
                   "print(fallow.stats()['live_count'], type(torch.__loader__).__name__)\n"
                   "print(torch.__spec__.loader is torch.__loader__, torch.__spec__._initializing)",
                   "1 SourceFileLoader\nTrue False")

    def test_every_way_to_start_python(self):
        self.write("program.py", "import multiprocessing, sys\ndef work(_):\n    import torch; return torch._fake.given\n"
                   "if __name__ == '__main__':\n"
                   "    print(multiprocessing.get_context(sys.argv[1]).Pool(1).map(work, [0]))\n")
        for flags in (["-m", "program", "spawn"], ["-m", "program", "fork"], [self.site + "/program.py", "forkserver"]):
            self.assertEqual(self.run_python(*flags), ("[1]", []))
        for flag, output in (("-E", "1"), ("-I", "1"), ("-s", "1"), ("-O", "1"), ("-S", "0")):
            program = "import sys; sys.path[:0] = %r; import torch; %s" % (
                [self.site, os.path.dirname(fakes.__file__)], GIVEN)
            self.assertEqual(self.run_python(flag, "-c", program), (output, []), flag)
        output, errors = self.run_python("-X", "importtime", "-c", "import torch; " + GIVEN)
        self.assertEqual((output, [line for line in errors if "import time" not in line]), ("1", []))

    def test_every_way_to_import(self):
        for statement in ("from torch import cuda; import torch", "torch = __import__('torch')",
                          "import importlib.util as u; u.find_spec('torch'); import torch",
                          "import importlib, torch; importlib.reload(torch)",
                          "import threading as t\nall = [t.Thread(target=__import__, args=('torch',)) for _ in 'abcd']\n"
                          "[a.start() for a in all]; [a.join() for a in all]\nimport torch"):
            self.check(statement + "\n" + GIVEN, "0" if "reload" in statement else "1")

    def test_a_failed_import_is_tried_again(self):
        self.check("try:\n    import torch\nexcept ZeroDivisionError:\n    print('failed')\nimport torch\n" + GIVEN,
                   "failed\n1", first="flaky")
        self.check("try:\n    import torch.no\nexcept ImportError:\n    print('none')", "none")

    def test_modules_of_archives_and_other_finders(self):
        path = os.path.join(self.root, "torch.zip")
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("torch.py", FAKE % "torch()")
        self.check("import torch; print(torch.__file__); " + GIVEN, 
                   "%s/torch.py\n%d" % (path, sys.version_info >= (3, 10)), first=path)
        finder = ("import importlib.util as u, sys\nclass Finder:\n    is_asked = False\n"
                  "    def find_spec(self, name, path, target=None):\n"
                  "        if self.is_asked:\n            return None\n"
                  "        self.is_asked = True\n        spec = u.find_spec(name)\n        self.is_asked = False\n"
                  "        return spec\nsys.meta_path.insert(%d, Finder())\nimport torch\n" + GIVEN)
        for place in (0, 1):
            self.check(finder % place, "1")

    def test_frameworks_imported_at_the_start_of_python(self):
        path = "b.pth"
        self.write(path, "import torch\n")
        try:
            self.check("import sys; torch = sys.modules['torch']; " + GIVEN, "1")
        finally:
            os.remove(os.path.join(self.site, path))

    def test_another_module_of_the_name(self):
        self.write("other/fallow.py", "")
        self.check("import torch\n" + GIVEN, "0", ["cannot import the package"], first="other")

    def test_a_list(self):
        self.check("import torch, cupy, rmm, numba.cuda\nprint(torch._fake.given, cupy._fake.current is not None, "
                   "list(rmm._fake.current), numba.cuda._fake.manager.__name__)",
                   "1 True [0] FallowMemoryManager", auto="torch,cupy, numba,,rmm,torch")
        self.check("import torch, cupy\nprint(torch._fake.given, cupy._fake.current is not None)", "0 True", auto="cupy")

    def test_a_program_that_enables_fallow_itself(self):
        self.check("import torch, fallow; print(fallow.enable_torch(limit='1G') is torch._fake.current)\n" + GIVEN,
                   "True\n1")

    def test_the_plugin_of_vllm(self):
        """load_general_plugins() of vLLM 0.33 catches exceptions of the loading, but none of the function."""
        with open(os.path.join(SOURCES, "../../pyproject.toml")) as file:
            (group, name, value) = re.search(r'^\[project.entry-points."(vllm.*)"\]\n(\w+) = "(.*)"$', file.read(), re.M).groups()
        self.write("plugin-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: plugin\nVersion: 1\n")
        self.write("plugin-1.dist-info/entry_points.txt", "[%s]\n%s = %s\n" % (group, name, value))
        load = ("import torch\nfrom importlib.metadata import entry_points as e\n"
                "for plugin in e(group='vllm.general_plugins') if %r else e()['vllm.general_plugins']:\n"
                "    plugin.load()()\n" % (sys.version_info >= (3, 10)))
        for auto, given in ((None, 0), ("cupy", 0), ("vllm", 1), ("torch", 1), ("vllm,torch", 1)):
            self.check(load + load + GIVEN, str(given), auto=auto)
        self.check(load, "", ["comes too late.*; correct this, or remove vllm from FALLOW_AUTO"], auto="vllm", first="late")
        shutil.rmtree(os.path.join(self.site, "plugin-1.dist-info"))

    def test_a_spec_can_be_copied(self):
        self.check("import copy, importlib.util as u; copy.deepcopy(u.find_spec('torch')); print(1)", "1")

    def test_failures_print_one_line(self):
        self.check("import torch; print(1)", "1", ["torch allocates without Fallow: fallow.enable_torch.. needs PyTorch "
                   "2.3 or newer.*; correct this, or remove torch from FALLOW_AUTO"], first="old")
        self.check("import torch; print(1)", "1", ["/no/libfallow.so: no such file"], FALLOW_LIBRARY="/no/libfallow.so")
        self.check("import torch; " + GIVEN, "1", ["no framework 'tensorflow'; use cupy, numba, rmm, torch or vllm, separated"],
                   auto="torch,tensorflow")
        self.check("import sys; sys.stderr = None; import torch; print(1)", "1", first="old")


if __name__ == "__main__":
    unittest.main()
