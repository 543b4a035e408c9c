# SPDX-License-Identifier: Apache-2.0
"""Announce captures of streams into CUDA graphs."""
from __future__ import annotations

import ctypes

from fallow._arguments import stream_handle
from fallow._library import check, lib
from fallow._pool import make_pool
from fallow._typing import Any


class capturing:
    """Announce a capture by CuPy or Numba, from before its begin until after its end:

        with fallow.capturing():
            stream.begin_capture()
            ...
            graph = stream.end_capture()

    Pools in context order record and query no event meanwhile, since that would end the capture; a call that would
    have to synchronise fails. Announcements nest and concern every thread. PyTorch's captures are announced by their
    first allocation; if other threads use CuPy while one begins, put it inside too."""

    def __enter__(self) -> capturing:
        lib().fallow_context_capture_begin()
        return self

    def __exit__(self, *_: object) -> None:
        lib().fallow_context_capture_end()


class capture:
    """Announce the capture of a stream into a graph, from before its begin until after its end. Needed with PyTorch's
    own allocator, and for graphs that the program captures itself; enable_torch() announces PyTorch's captures.

        captured = fallow.capture(stream)
        with captured, torch.cuda.graph(graph, stream=stream):
            with arena.lease(layout) as lease:
                ...

    Memory allocated on the stream inside belongs to the capture, and arenas leased inside keep their memory, at the
    same addresses until release(). Launch the graph only before that, each time after arena.guard(). Error: the
    stream is in another capture, or the pool is asleep."""

    def __init__(self, stream: Any, device: int = 0) -> None:
        self._stream, self._device = stream_handle(stream), device
        self._handle: ctypes.c_void_p | None = None

    def __enter__(self) -> capture:
        pool, handle = make_pool(self._device), ctypes.c_void_p()
        lib().fallow_context_capture_begin()
        status = lib().fallow_capture_begin(pool, self._stream, ctypes.byref(handle))
        if status != 0:
            lib().fallow_context_capture_end()
        check(status, "fallow.capture")
        self._handle = handle
        return self

    def __exit__(self, *_: object) -> None:
        lib().fallow_context_capture_end()
        check(lib().fallow_capture_end(self._handle), "the end of a capture")

    def join(self, stream: Any) -> None:
        """Add a stream that takes part in the capture: it waits on an event of the capture. At most 32 streams take
        part."""
        check(lib().fallow_capture_join(self._handle, stream_handle(stream)), "fallow.capture.join")

    def release(self) -> None:
        """Return the capture's memory to the pool. The graph must be destroyed, and its launches complete or ordered
        before the work that the stream gets from now on. Error: the capture is still open."""
        if self._handle is not None:
            check(lib().fallow_capture_release(self._handle), "fallow.capture.release")
            self._handle = None
