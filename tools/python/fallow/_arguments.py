# SPDX-License-Identifier: Apache-2.0
"""Turn arguments of public functions into numbers for the library; import frameworks by name."""
from __future__ import annotations

import sys

from fallow._typing import Any, Sequence


def index_of(value: str, words: Sequence[str], what: str) -> int:
    """Return the place of a word. ValueError lists the words."""
    if value not in words:
        raise ValueError("%s is %r: one of %s" % (what, value, ", ".join(words)))
    return words.index(value)


def byte_count(value: int | str, what: str) -> int:
    """Return a number of bytes above 0, given as a number or as "20G"."""
    if isinstance(value, str):
        units = {"K": 10, "M": 20, "G": 30, "T": 40}
        digits, shift = (value[:-1], units[value[-1]]) if value[-1:] in units else (value, 0)
        if not (digits.isascii() and digits.isdigit()):
            raise ValueError('%s is %r: bytes, or a number with K, M, G or T behind, as "20G"' % (what, value))
        value = int(digits) << shift
    elif not hasattr(value, "__index__"):
        raise TypeError('%s is %r: bytes as an int, or a text as "20G"' % (what, value))
    if not 0 < value < 1 << 63:
        raise ValueError("%s is %r: it must be above 0 and below 2^63" % (what, value))
    return value


def stream_handle(stream: Any) -> int:
    """Return a CUstream as a number, from None (the default stream), a number, or a stream object of a framework."""
    if stream is None:
        return 0
    if isinstance(stream, int):
        return stream
    if hasattr(stream, "__cuda_stream__"):
        return int(stream.__cuda_stream__()[1])
    for name in ("cuda_stream", "ptr", "handle"):  # PyTorch; CuPy; Numba, cuda.core
        value = getattr(stream, name, None)
        if value is not None:
            return int(getattr(value, "value", value) or 0)
    raise TypeError("%r is no stream: give a number, None, or an object with __cuda_stream__" % (stream,))


def framework(name: str, user: str) -> Any:
    """Return a module of a framework. ImportError names the function of this package that needs it."""
    try:
        return sys.modules.get(name) or __import__(name, fromlist=["*"])
    except ImportError as error:
        raise ImportError("fallow.%s needs %s, which cannot be imported: %s" % (user, name, error)) from error
