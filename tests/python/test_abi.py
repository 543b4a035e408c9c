#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""python.abi: structures, constants and functions in fallow/_abi.py are those of include/fallow/*.h. Names, order and
types are read from the preprocessed headers; offsets, sizes and values are printed by a compiled program."""
import ctypes
import glob
import os
import re
import subprocess
import tempfile
import unittest

from fallow import _abi

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
INCLUDE = os.path.join(ROOT, "include")
CC = os.environ.get("FALLOW_CC", "cc")

STRUCTURES = {"fallow" + re.sub("([A-Z])", r"_\1", name).lower(): kind for name, kind in vars(_abi).items()
              if name[0] != "_" and hasattr(kind, "_fields_")}
CONSTANTS = {name: value for name, value in vars(_abi).items() if re.match("FALLOW_|UINT32_MAX", name)}
SIMPLE = {"void": None, "char": ctypes.c_char, "int": ctypes.c_int, "double": ctypes.c_double,
          "size_t": ctypes.c_size_t, "ssize_t": ctypes.c_ssize_t, "int64_t": ctypes.c_int64,
          "uint8_t": ctypes.c_uint8, "uint32_t": ctypes.c_uint32, "uint64_t": ctypes.c_uint64}


class Headers:
    """The declarations of the headers, with the types that ctypes should have for them."""

    def __init__(self):
        names = sorted(os.path.basename(path) for path in glob.glob(os.path.join(INCLUDE, "fallow", "*.h")))
        self.includes = "".join("#include <fallow/%s>\n" % name for name in names)
        text = run("-E", "-P", "-DFALLOW_STATIC", source=self.includes)
        self.opaque = set(re.findall(r"\bstruct (\w+)", text))
        text = re.sub(r"__attribute__\(\(\w+\)\)|\bconst\b|\bstruct\b(?!.*?\{)", " ", text)
        self.enums = {name: re.findall(r"FALLOW_\w+", body)
                      for name, body in re.findall(r"typedef enum (fallow_\w+)\s*\{(.*?)\}", text, re.S)}
        self.bodies = dict(re.findall(r"typedef struct (fallow_\w+)\s*\{(.*?)\}", text, re.S))
        self.callbacks = {name: (result, arguments) for result, name, arguments
                          in re.findall(r"typedef\s+([\w *]+?)\(\*(fallow_\w+)\)\((.*?)\);", text, re.S)}
        self.functions = {name: (result, arguments) for result, name, arguments
                          in re.findall(r"([\w\s*]+?)\b(fallow_\w+)\(([^()]*)\)\s*;", text)}

    def kind(self, declaration):
        """Return the ctypes type and the name of `uint64_t stage_ns[12]`, `fallow_pool **out`, `void` ..."""
        base, stars, name, length = re.fullmatch(r"\s*(\w+)((?:\s|\*)*)(\w*)\s*(?:\[(\w+)\])?\s*", declaration).groups()
        if base in SIMPLE:
            kind = SIMPLE[base]
        elif base in self.enums:
            kind = ctypes.c_int
        elif base in self.callbacks:
            kind = ctypes.CFUNCTYPE(*self.signature(*self.callbacks[base]))
        elif base in STRUCTURES:
            kind = STRUCTURES[base]
        elif base == "fallow_stream":
            kind = ctypes.c_void_p
        else:
            assert base in self.opaque, "a type that the test does not know: " + declaration
            kind = None
        for _ in range(stars.count("*")):
            kind = {None: ctypes.c_void_p, ctypes.c_char: ctypes.c_char_p}.get(kind) or ctypes.POINTER(kind)
        return kind * int(length) if length else kind, name

    def signature(self, result, arguments):
        parts = [] if arguments.strip() == "void" else arguments.split(",")
        return tuple(self.kind(part)[0] for part in [result] + parts)

    def fields(self, structure):
        return [self.kind(part)[::-1] for part in self.bodies[structure].split(";") if part.strip()]


def run(*arguments, source):
    return subprocess.run([CC, "-I", INCLUDE, "-x", "c", *arguments, "-"], input=source, stdout=subprocess.PIPE,
                          check=True, timeout=120, universal_newlines=True).stdout


class Abi(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.headers = Headers()
        lines = ["%s %%zu\\n\", sizeof(%s)" % (name, name) for name in STRUCTURES]
        lines += ["%s.%s %%zu %%zu\\n\", offsetof(%s, %s), sizeof((%s){0}.%s)" % ((name, field) * 3)
                  for name, kind in STRUCTURES.items() for field, _ in kind._fields_]
        names = list(CONSTANTS) + [name for enum in _abi.WORDS for name in cls.headers.enums[enum]]
        lines += ["%s %%ju\\n\", (uintmax_t)%s" % (name, name) for name in names]
        source = "#include <stdint.h>\n#include <stdio.h>\n%sint main(void)\n{\n%s}\n" % (
            cls.headers.includes, "".join("    printf(\"%s);\n" % line for line in lines))
        with tempfile.TemporaryDirectory() as folder:
            program = os.path.join(folder, "abi")
            run("-o", program, source=source)
            text = subprocess.run([program], stdout=subprocess.PIPE, check=True, universal_newlines=True).stdout
        cls.compiled = {name: tuple(map(int, numbers)) for name, *numbers in map(str.split, text.splitlines())}

    def test_structures(self):
        self.assertGreater(len(STRUCTURES), 10)
        for name, kind in STRUCTURES.items():
            self.assertEqual(list(kind._fields_), self.headers.fields(name), name)
            self.assertEqual((ctypes.sizeof(kind),), self.compiled[name], name)
            for field, _ in kind._fields_:
                place = getattr(kind, field)
                self.assertEqual((place.offset, place.size), self.compiled["%s.%s" % (name, field)], field)

    def test_constants(self):
        for name, value in CONSTANTS.items():
            self.assertEqual((value,), self.compiled[name], name)

    def test_words(self):
        for enum, words in _abi.WORDS.items():
            names = self.headers.enums[enum]
            self.assertEqual(len(names), len(words), enum)
            for value, (name, word) in enumerate(zip(names, words)):
                self.assertTrue(name.endswith("_" + word.upper()), name)
                self.assertEqual((value,), self.compiled[name], name)

    def test_functions(self):
        for name, declared in _abi.FUNCTIONS.items():
            self.assertEqual(tuple(declared), self.headers.signature(*self.headers.functions["fallow_" + name]), name)

    def test_functions_that_are_called_and_no_others_are_declared(self):
        package = os.path.dirname(_abi.__file__)
        text = ""
        for path in set(glob.glob(os.path.join(package, "*.py"))) - {_abi.__file__}:
            with open(path, encoding="utf-8") as file:
                text += file.read()
        self.assertLessEqual(set(re.findall(r"\)\.fallow_(\w+)", text)), set(_abi.FUNCTIONS))
        self.assertLessEqual(set(_abi.FUNCTIONS), set(re.findall(r"(?:\bfallow_|_call\(\")(\w+)", text)))


if __name__ == "__main__":
    unittest.main()
