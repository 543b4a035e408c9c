# SPDX-License-Identifier: Apache-2.0
"""Read the parameters of the kernel modules from fallow/*.h: names, C types, and the description of buffers in the
comments, in the notation of kernels.h."""
from __future__ import annotations

import os
import re
import struct
from typing import NamedTuple

GROUPS = {"attention": "attention", "mla": "mla", "moe": "moe", "debug_kernels": "debug"}

#: For each C type of a number its letter in struct.pack.
LETTERS = {"size_t": "Q", "uint64_t": "Q", "int64_t": "q", "int32_t": "i", "uint32_t": "I", "uint8_t": "B", "float": "f"}

#: The types of elements, in the order of fallow_dtype.
DTYPES = ("int32", "int64", "uint8", "float32", "float16", "bfloat16", "float8_e4m3fn")

_C_DTYPES = {"int32_t": 0, "uint8_t": 2, "float": 3}


class Buffer(NamedTuple):
    """A parameter that is a pointer."""

    name: str
    direction: str  # "", "out" or "in/out"
    optional: bool
    shapes: tuple[list[str], ...]  # of each dimension an expression in C; the second shape is for the flag
    flag: str
    strides: tuple[str, ...]  # parameters that are strides: of the last dimensions but one
    dtype: int | str | None  # a fallow_dtype, the parameter that has it, or None: any


class Module(NamedTuple):
    """A kernel module."""

    name: str
    function: str  # exported by libfallow-kernels
    text: str  # summary
    fields: list[tuple[str, str, str]]  # name, letter of struct.pack with count, comment
    buffers: dict[str, Buffer]
    numbers: list[str]  # parameters that are neither buffers nor strides
    words: dict[str, list[str]]  # of parameters that are enumerations
    dtypes: list[str]  # parameters that are types of elements


def find_folder(roots: list[str]) -> str:
    """Return the folder of the headers below one of the roots, or of the source tree above them."""
    tried = [os.path.join(root, part, "fallow") for root in roots for part in ("include", "../include", "../../include")]
    for folder in tried:
        if os.path.exists(os.path.join(folder, "kernels.h")):
            return folder
    raise ImportError("fallow.kernels: no fallow/kernels.h in any of: " + ", ".join(tried))


def _plain(comment: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"\n\s*\*", "\n", comment)).strip()


def _buffer(name: str, kind: str, comment: str, dtypes: list[str], sizes: dict[str, int]) -> Buffer:
    if kind in sizes:  # a struct, as its bytes
        return Buffer(name, comment.split(" ")[0], False, ([str(sizes[kind])],), "", (), 2)
    shape = re.match(r"(in/out|out)? ?\[([^\]]*)\]", comment)
    assert shape is not None, name
    other = re.match(r", with `(\w+)` \[([^\]]*)\]", comment[shape.end():])
    strides = re.search(r", (?:row stride|strides) `?(\w+)`?(?: and (\w+))?", comment)
    named = [word for word in re.findall(r"\w+", comment) if word in dtypes]
    return Buffer(
        name, shape[1] or "", "NULL" in comment,
        tuple(re.split(r", (?![^(]*\))", text) for text in ([shape[2], other[2]] if other else [shape[2]])),
        other[1] if other else "", tuple(filter(None, strides.groups())) if strides else (),
        _C_DTYPES.get(kind, named[0] if named else 2 if "U8" in comment else None))


def _fields(body: str) -> list[tuple[str, str, str, str]]:
    """Return type, name, count and comment of each field of a struct."""
    found = re.findall(r"(\w+)\s+(\**\w+)(?:\[(\d+)\])?;(?:\s*/\*\*<\s*(.*?)\s*\*/)?", body, re.S)
    return [(kind, name, count, _plain(comment)) for kind, name, count, comment in found]


def _module(name: str, group: str, text: str, body: str, enums: dict[str, list[str]], sizes: dict[str, int]) -> Module:
    fields = _fields(re.sub(r"\bconst\b", "", body))
    dtypes = [field for kind, field, *_ in fields if kind == "fallow_dtype"]
    buffers = {field[1:]: _buffer(field[1:], kind, comment, dtypes, sizes)
               for kind, field, _, comment in fields if field[0] == "*"}
    strides = {stride for buffer in buffers.values() for stride in buffer.strides}
    plain = [(field, kind) for kind, field, *_ in fields[1:] if field[0] != "*" and not field.startswith("reserved_")]
    return Module(
        name, "fallow_%s_%s" % (group, name), text,
        [(field.lstrip("*"), "Q" if field[0] == "*" else "%s%s" % (count, LETTERS.get(kind, "i")), comment)
         for kind, field, count, comment in fields],
        buffers, [field for field, _ in plain if field not in strides],
        {field: enums[kind] for field, kind in plain if kind in enums}, dtypes)


def read_modules(folder: str) -> dict[str, Module]:
    """Return the kernel modules that the headers of a folder declare."""
    modules = {}
    for header, group in GROUPS.items():
        with open(os.path.join(folder, header + ".h"), encoding="utf-8") as file:
            source = file.read()
        enums = {}
        for name, body in re.findall(r"typedef enum (\w+) \{(.*?)\}", source, re.S):
            values = re.findall(r"FALLOW_(\w+) = \d+", body)
            prefix = os.path.commonprefix([value + "_" for value in values])
            prefix = prefix[:prefix.rfind("_") + 1]
            enums[name] = [value[len(prefix):].lower() or "default" for value in values]
        sizes = {name: struct.calcsize("".join(LETTERS.get(kind, "i") for kind, *_ in _fields(body)))
                 for name, body in re.findall(r"typedef struct (\w+(?<!_params)) \{(.*?)\n\} ", source, re.S)}
        for text, name, body in re.findall(r"/\*\*((?:(?!\*/).)*)\*/\s*typedef struct fallow_(\w+)_params \{(.*?)\n\} ",
                                           source, re.S):
            modules[name] = _module(name, group, re.sub(r"(?m)^ \* ?", "", text).strip(), body, enums, sizes)
    return modules
