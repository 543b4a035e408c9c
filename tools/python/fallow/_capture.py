# SPDX-License-Identifier: Apache-2.0
"""Announce captures of streams into CUDA graphs."""
from __future__ import annotations

import ctypes

from fallow._arguments import stream_handle
from fallow._library import check, lib
from fallow._pool import make_pool

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class capturing:
    """Around a capture of a stream by CuPy or Numba, from before its begin to after its end:

        with fallow.capturing():
            stream.begin_capture(); ...; graph = stream.end_capture()

    Pools in context order record no event meanwhile, which would end the capture. A capture of PyTorch's is
    announced by its first allocation; if other threads use CuPy while one begins, put it inside, too."""

    def __enter__(self) -> capturing:
        lib().fallow_context_capture_begin()
        return self

    def __exit__(self, *_: object) -> None:
        lib().fallow_context_capture_end()


class capture:
    """Announce the capture of a stream, from before its begin to after its end. Needed with PyTorch's own allocator, or
    with graphs that the program captures itself; enable_torch() announces PyTorch's captures.

        captured = fallow.capture(stream)
        with captured, torch.cuda.graph(graph, stream=stream):
            with arena.lease(layout) as lease: ...

    The graph may be launched until release(), each time after arena.guard(). Until then, arenas leased inside keep
    their memory at the same addresses."""

    def __init__(self, stream: Any, device: int = 0) -> None:
        self._stream, self._device = stream_handle(stream), device
        self._handle: ctypes.c_void_p | None = None

    def __enter__(self) -> capture:
        handle = ctypes.c_void_p()
        lib().fallow_context_capture_begin()
        status = lib().fallow_capture_begin(make_pool(self._device), self._stream, ctypes.byref(handle))
        if status != 0:
            lib().fallow_context_capture_end()
        check(status, "fallow.capture")
        self._handle = handle
        return self

    def __exit__(self, *_: object) -> None:
        lib().fallow_context_capture_end()
        check(lib().fallow_capture_end(self._handle), "the end of a capture")

    def join(self, stream: Any) -> None:
        """Add a stream that takes part in the capture: it waits on an event of the capture."""
        check(lib().fallow_capture_join(self._handle, stream_handle(stream)), "fallow.capture.join")

    def release(self) -> None:
        """Release the capture's memory. The graph must be destroyed, and its launches complete or ordered before the
        present end of the stream."""
        if self._handle is not None:
            check(lib().fallow_capture_release(self._handle), "fallow.capture.release")
            self._handle = None
