# SPDX-License-Identifier: Apache-2.0
"""CuPy."""
from __future__ import annotations

from fallow._arguments import framework
from fallow._library import address_of, kept, lib
from fallow._pool import configure_with, stats

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def enable_cupy(**settings: Any) -> Any:
    """Make CuPy allocate from Fallow, in the place of its own pool. `settings`: as configure().

    CuPy names no stream, so a block is reused when everything that the context had been given at its free
    is complete; captures are announced with capturing(). cupy.cuda.set_allocator(None) turns it off for what is allocated from then on."""
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
