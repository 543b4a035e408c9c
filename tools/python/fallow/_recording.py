# SPDX-License-Identifier: Apache-2.0
"""Record the calls of a default pool to a file."""
from __future__ import annotations

import ctypes
import os
import warnings

from fallow import _abi
from fallow._library import check, lib
from fallow._pool import make_pool


class Recording:
    """What a default pool allocates and frees, in a file for `fallow report`, `fallow replay` and
    `fallow trace`:

        with fallow.Recording("mine.ftrace") as recording:
            with recording.phase("warm-up"): ...
            recording.mark("ready")

    flight=True keeps only the latest calls in memory, and writes them when dump() is called or an allocation
    fails. whole=True loses nothing: a thread that is faster than the file is written waits; without it what it
    does meanwhile is missing, and the end warns of it.

    stacks=True records each allocation with the call stack that asked for it, at most 16 frames of Python and as
    many of C, or as many as are given (up to 64): `fallow report` then says whose the memory is. A thread that has
    let the interpreter go, as PyTorch's operators do, takes it for that look; enter_python=False leaves it out, where
    some thread allocates with a lock held that another one, which has the interpreter, waits for."""

    def __init__(self, path: str | os.PathLike[str], device: int = 0, order: str = "stream", flight: bool = False,
                 whole: bool = False, stacks: bool | int = False, enter_python: bool = True) -> None:
        if flight and whole:
            raise ValueError("a flight recording keeps the latest calls only: flight or whole, not both")
        depth = 16 if stacks is True else int(stacks)
        if not 0 <= depth <= 64:
            raise ValueError("stacks=%r: True, or a number of frames up to 64" % (stacks,))
        flags = _abi.FALLOW_RECORD_BLOCK_WHEN_FULL if whole else 0
        if flight:
            flags = _abi.FALLOW_RECORD_RING_ONLY | _abi.FALLOW_RECORD_DUMP_ON_OOM
        if depth and enter_python:
            flags |= _abi.FALLOW_RECORD_ENTER_PYTHON
        config = _abi.RecordConfig(path=os.fsencode(path), flags=flags, stack_depth=depth)
        handle = ctypes.c_void_p()
        self._handle: ctypes.c_void_p | None = None
        check(lib().fallow_record_start(make_pool(device, order), ctypes.byref(config), ctypes.byref(handle)),
              "a recording to %s" % path)
        self._handle = handle

    def __enter__(self) -> Recording:
        return self

    def __exit__(self, *_: object) -> None:
        if self._handle is not None:
            self.stop()

    def stop(self) -> None:
        """End it. An error says that the file could not be written whole, a warning that calls are missing."""
        handle, self._handle = self._handle, None
        status = lib().fallow_record_stop(handle)
        if status == _abi.FALLOW_RECORDS_LOST:
            text = lib().fallow_status_message(status).decode()
            warnings.warn("%s; here that is whole=True" % text, RuntimeWarning, stacklevel=2)
            return
        check(status, "the end of a recording")

    def dump(self, path: str | os.PathLike[str] | None = None) -> None:
        """Write what there is now; a path of its own is for flight=True."""
        name = None if path is None else os.fsencode(path)
        check(lib().fallow_record_dump(self._handle, name), "a dump")

    def mark(self, name: str) -> None:
        """Something happened."""
        check(lib().fallow_record_mark(self._handle, name.encode()), "a mark")

    def phase(self, name: str) -> _Phase:
        """What is allocated inside belongs to the phase."""
        return _Phase(self._handle, name.encode())


class _Phase:
    """A `with` block whose allocations belong to a phase."""

    def __init__(self, handle: ctypes.c_void_p | None, name: bytes) -> None:
        self._arguments = (handle, name)

    def __enter__(self) -> None:
        check(lib().fallow_record_phase_begin(*self._arguments), "a phase")

    def __exit__(self, *_: object) -> None:
        check(lib().fallow_record_phase_end(*self._arguments), "the end of a phase")
