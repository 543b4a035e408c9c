# SPDX-License-Identifier: Apache-2.0
"""Numba."""
from __future__ import annotations

from fallow._arguments import framework
from fallow._library import lib
from fallow._pool import configure_with
from fallow._typing import Settings, Unpack


def enable_numba(**settings: Unpack[Settings]) -> None:
    """Make Numba allocate device memory from Fallow, as the variable NUMBA_CUDA_MEMORY_MANAGER=fallow does.

    Call it before Numba uses the GPU. `settings` are those of configure(). Streams and captures are as in
    enable_cupy()."""
    cuda = framework("numba.cuda", "enable_numba()")
    configure_with(settings)
    lib()  # fails here if there is none, not at the first allocation
    from fallow._numba_manager import FallowMemoryManager

    cuda.set_memory_manager(FallowMemoryManager)
