# SPDX-License-Identifier: Apache-2.0
"""Fallow for Python programs: GPU memory allocated in stream order, through libfallow.so and ctypes.

    import fallow
    fallow.enable_torch()           # before the first CUDA tensor: PyTorch allocates from Fallow
    fallow.enable_cupy()            # CuPy does
    NUMBA_CUDA_MEMORY_MANAGER=fallow python program.py        # Numba does
    fallow.enable_rmm()             # RMM, and cuDF with it
    arena = fallow.Arena()          # scratch memory of a step: see Arena, Layout, layout()
    print(fallow.report())

Needs Python 3.8 and libfallow.so, nothing else: no build step, no CUDA toolkit. The library is looked
for in FALLOW_LIBRARY, then beside this file's installation, then along the library path. Importing this
module loads nothing; the first call does. driver="sim" takes the simulated device: for tests, it computes
nothing.

A failure raises fallow.Error, which names the status and says what to do, or MemoryError.
"""
from __future__ import annotations

from fallow._arena import Arena, Lease
from fallow._capture import capture, capturing
from fallow._cupy import enable_cupy
from fallow._layout import Layout, layout
from fallow._library import Error, library_path
from fallow._pool import allocate, allow_peer, configure, deny_peer, free, publish, set_limit, stats, tagged, trim
from fallow._recording import Recording
from fallow._report import report
from fallow._rmm import enable_rmm, rmm_resource
from fallow._sleep import sleep, wake, watch_sleep
from fallow._torch import enable_torch, torch_mempool

TYPE_CHECKING = False
if TYPE_CHECKING:
    from fallow._oom import watch_oom
    from fallow._page import report_html

__all__ = [
    "Arena", "Error", "Layout", "Lease", "Recording", "allocate", "allow_peer", "capture", "capturing", "configure",
    "deny_peer", "enable_cupy", "enable_rmm", "enable_torch", "free", "layout", "library_path", "publish", "report",
    "report_html", "rmm_resource", "set_limit", "sleep", "stats", "tagged", "torch_mempool", "trim", "wake", "watch_oom",
    "watch_sleep",
]

_LATE = {  # modules that are slow to import, or need Numba
    "report_html": ("_page", "report_html"),
    "watch_oom": ("_oom", "watch_oom"),
    "_numba_memory_manager": ("_numba", "FallowMemoryManager"),
}


def __getattr__(name: str) -> object:
    """Import the module of an attribute when it is first used."""
    if name not in _LATE:
        raise AttributeError("module 'fallow' has no attribute %r" % name)
    module, attribute = _LATE[name]
    globals()[name] = value = getattr(__import__("fallow." + module, fromlist=["*"]), attribute)
    return value
