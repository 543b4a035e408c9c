# SPDX-License-Identifier: Apache-2.0
"""CuPy."""
from __future__ import annotations

from fallow._arguments import framework
from fallow._library import address_of, kept, lib
from fallow._pool import configure_with, stats
from fallow._typing import Any, Settings, Unpack


def enable_cupy(**settings: Unpack[Settings]) -> Any:
    """Make CuPy allocate from Fallow in place of its own pool. Returns the function given to
    cupy.cuda.set_allocator(); cupy.cuda.set_allocator(None) turns it off for later allocations.

    `settings` are those of configure(). CuPy names no stream when it frees, so Fallow reuses a block when all work
    submitted to the context before its free is complete. Announce captures with capturing(). Out of memory raises
    CuPy's OutOfMemoryError; report() gives the reason."""
    cupy = framework("cupy", "enable_cupy()")
    configure_with(settings)
    memory = cupy.cuda.memory
    allocator = memory.CFunctionAllocator(0, address_of("fallow_cupy_malloc"), address_of("fallow_cupy_free"), lib())

    def malloc(size: int) -> Any:
        """CuPy does not look for NULL itself."""
        pointer = allocator.malloc(size)
        if size > 0 and pointer.ptr == 0:
            now = stats(cupy.cuda.device.get_device_id(), "context")
            raise memory.OutOfMemoryError(size, now.get("requested_bytes", 0))
        return pointer

    cupy.cuda.set_allocator(malloc)
    kept.append((allocator, malloc))
    return malloc
