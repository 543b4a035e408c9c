# SPDX-License-Identifier: Apache-2.0
"""Record the calls of a default pool to a file."""
from __future__ import annotations

import ctypes
import os
import warnings

from fallow import _abi
from fallow._library import check, lib, make
from fallow._pool import make_pool


class Recording:
    """Record the allocations and frees of a default pool, in a file for `fallow report`, `replay` and `trace`:

        with fallow.Recording("mine.ftrace") as recording:
            with recording.phase("warm-up"):
                ...
            recording.mark("ready")

    path           of the file
    device, order  the pool, as in stats()
    flight         True: keep only the latest calls, in memory; dump() writes them, and so does an allocation that
                   fails
    whole          True: lose nothing: a thread that is faster than the file is written waits; False: some of its
                   calls are then missing, and stop() warns
    stacks         True: record the call stack of each allocation, up to 16 frames of Python and of C each, so that
                   `fallow report` can name the owners; or the number of frames, up to 64
    enter_python   False: no Python frames for threads that have released the interpreter lock, as PyTorch's operators
                   do. Needed if such a thread allocates while it holds a lock for which the thread with the
                   interpreter lock waits

    It ends with the `with` block, or with stop(). A pool has one recording at a time. Any thread may call the
    methods. A recorded call costs a clock and four stores, a stack some hundred ns to some us. Error: the pool is
    being recorded, or the file cannot be written."""

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
        self._handle: ctypes.c_void_p | None = None
        self._handle = make("a recording to %s" % path, lib().fallow_record_start, make_pool(device, order),
                            ctypes.byref(config))

    def __enter__(self) -> Recording:
        return self

    def __exit__(self, *_: object) -> None:
        if self._handle is not None:
            self.stop()

    def stop(self) -> None:
        """End the recording and wait for the file. Error: the file could not be written completely. RuntimeWarning:
        calls are missing, which whole=True prevents."""
        handle, self._handle = self._handle, None
        status = lib().fallow_record_stop(handle)
        if status == _abi.FALLOW_RECORDS_LOST:
            text = lib().fallow_status_message(status).decode()
            warnings.warn("%s; here that is whole=True" % text, RuntimeWarning, stacklevel=2)
            return
        check(status, "the end of a recording")

    def dump(self, path: str | os.PathLike[str] | None = None) -> None:
        """Write the records so far, and wait for the file. `path`: only with flight=True; None: the
        recording's own."""
        name = None if path is None else os.fsencode(path)
        check(lib().fallow_record_dump(self._handle, name), "a dump")

    def mark(self, name: str) -> None:
        """Record that something happened at this moment. Names have 1 to 1,000 bytes; use few different ones."""
        check(lib().fallow_record_mark(self._handle, name.encode()), "a mark")

    def phase(self, name: str) -> _Phase:
        """Return a `with` block. Its allocations belong to a phase of the program. Phases nest. Names are as in
        mark()."""
        return _Phase(self._handle, name.encode())


class _Phase:
    """A `with` block. Its allocations belong to a phase."""

    def __init__(self, handle: ctypes.c_void_p | None, name: bytes) -> None:
        self._arguments = (handle, name)

    def __enter__(self) -> None:
        check(lib().fallow_record_phase_begin(*self._arguments), "a phase")

    def __exit__(self, *_: object) -> None:
        check(lib().fallow_record_phase_end(*self._arguments), "the end of a phase")
