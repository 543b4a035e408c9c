# SPDX-License-Identifier: Apache-2.0
"""Numba's memory manager. Importing this module imports Numba."""
from __future__ import annotations

import ctypes

from fallow._arguments import framework
from fallow._library import lib
from fallow._pool import make_pool, stats, trim
from fallow._typing import Any

_cuda: Any = framework("numba.cuda", "enable_numba()")
_driver: Any = framework("numba.cuda.cudadrv.driver", "enable_numba()")


def _free_and_total(pool: ctypes.c_void_p) -> tuple[int, int]:
    """Return cuMemGetInfo of the current context."""
    entry = lib().fallow_pool_driver_entry(pool, b"cuMemGetInfo_v2")
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    out = ctypes.POINTER(ctypes.c_size_t)
    result = ctypes.CFUNCTYPE(ctypes.c_int, out, out)(entry)(ctypes.byref(free), ctypes.byref(total))
    if result != 0:
        raise RuntimeError("cuMemGetInfo answered %d: is a context current?" % result)
    return free.value, total.value


class FallowMemoryManager(_cuda.GetIpcHandleMixin, _cuda.HostOnlyCUDAMemoryManager):  # type: ignore[misc]
    """Device memory of Numba from Fallow's pools; pinned host memory stays Numba's own."""

    def initialize(self) -> None:
        parent = getattr(super(), "initialize")
        if not getattr(parent, "__isabstractmethod__", False):
            parent()

    def memalloc(self, size: int) -> Any:
        device = self.context.device.id
        address = lib().fallow_cupy_malloc(None, size, device)
        if not address and size > 0:
            self.deallocations.clear()
            address = lib().fallow_cupy_malloc(None, size, device)
        if not address and size > 0:
            raise MemoryError("no %d bytes on device %d; fallow.report() says whose they are" % (size, device))
        if getattr(_driver, "USE_NV_BINDING", True):
            pointer = _driver.binding.CUdeviceptr(address or 0)
        else:
            pointer = ctypes.c_uint64(address or 0)
        free = lib().fallow_cupy_free

        def finalizer() -> None:
            free(None, address, device)

        return _cuda.MemoryPointer(self.context, pointer, size, finalizer=finalizer)

    def get_memory_info(self) -> Any:
        device = self.context.device.id
        free, total = _free_and_total(make_pool(device, "context"))
        now = stats(device, "context")
        return _cuda.MemoryInfo(free=free + now["reserved_bytes"] - now["live_bytes"], total=total)

    def reset(self) -> None:
        super().reset()
        trim()

    @property
    def interface_version(self) -> int:
        return 1
