# SPDX-License-Identifier: Apache-2.0
"""GPU memory for Python programs, allocated in stream order by libfallow.so.

Let a framework allocate from Fallow, before its first tensor:

    import fallow
    fallow.enable_torch()    # PyTorch
    fallow.enable_cupy()     # CuPy
    fallow.enable_numba()    # Numba
    fallow.enable_rmm()      # RMM, and cuDF with it

or without a change to the program, from the shell: FALLOW_AUTO=torch,cupy,numba,rmm python3 program.py

report(), stats() and Recording show the owners of memory; watch_oom() and report_html() need no allocations from
Fallow. Arena and Layout manage the scratch memory of a step. sleep() gives memory back and keeps every address.

devices  ordinals of CUDA, from 0
bytes    a number, or a text such as "512M" or "20G"; units are powers of 1,024
streams  None (the default stream), a number (a CUstream), or a stream of PyTorch, CuPy, Numba or cuda.core
pools    made by the first allocation on a device, and kept until the process ends. A device has up to two: in stream
         order, for PyTorch, RMM and arenas; in context order, for CuPy, Numba and torch_mempool(). The child of a
         fork has none and makes its own
errors   Error, which names the status and what to do; MemoryError; ValueError for arguments. A call that failed has
         changed nothing, unless its text says otherwise
threads  any thread may call any function at any time; the library runs without the interpreter lock

Importing the package loads no library and starts nothing. The first call loads libfallow.so: from FALLOW_LIBRARY if
set, else beside the package, then along the library path. Python 3.8 or later; no other package is needed. Without a
GPU, configure(driver="sim") uses the simulated device, which computes nothing.
"""
from __future__ import annotations

from fallow._arena import Arena, Lease
from fallow._capture import capture, capturing
from fallow._cupy import enable_cupy
from fallow._layout import Layout, layout
from fallow._library import Error, kernel_generations, library_path
from fallow._numba import enable_numba
from fallow._pool import allocate, allow_peer, configure, deny_peer, free, publish, set_limit, stats, tagged, trim
from fallow._recording import Recording
from fallow._report import report
from fallow._rmm import enable_rmm, rmm_resource
from fallow._sleep import sleep, wake, watch_sleep
from fallow._torch import enable_torch, torch_mempool
from fallow._typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fallow import kernels
    from fallow._oom import watch_oom
    from fallow._page import report_html

__all__ = [
    "Arena", "Error", "Layout", "Lease", "Recording", "allocate", "allow_peer", "capture", "capturing", "configure",
    "deny_peer", "enable_cupy", "enable_numba", "enable_rmm", "enable_torch", "free", "kernel_generations", "kernels",
    "layout", "library_path", "publish", "report", "report_html", "rmm_resource", "set_limit", "sleep", "stats", "tagged",
    "torch_mempool", "trim", "wake", "watch_oom", "watch_sleep",
]

_LATE = {  # attributes of modules that are slow to import, or need Numba
    "report_html": ("_page", "report_html"),
    "watch_oom": ("_oom", "watch_oom"),
    "_numba_memory_manager": ("_numba_manager", "FallowMemoryManager"),
    "kernels": ("kernels", ""),
}


def __getattr__(name: str) -> object:
    """Import the module of an attribute when it is first used."""
    if name not in _LATE:
        raise AttributeError("module 'fallow' has no attribute %r" % name)
    module, attribute = _LATE[name]
    value = __import__("fallow." + module, fromlist=["*"])
    globals()[name] = value = getattr(value, attribute) if attribute else value
    return value


def __dir__() -> list[str]:
    """List attributes that are not imported yet as well, for help()."""
    return sorted({*globals(), *__all__})
