# SPDX-License-Identifier: Apache-2.0
"""PyTorch."""
from __future__ import annotations

from fallow._arguments import framework
from fallow._library import address_of, kept, library_path
from fallow._pool import configure_with
from fallow._typing import Any, Settings, Unpack

_HOOKS = {
    "set_reset_fn": "fallow_torch_reset",
    "set_memory_fraction_fn": "fallow_torch_memory_fraction",
    "set_base_alloc_fn": "fallow_torch_base_alloc",
    "set_record_stream_fn": "fallow_torch_record_stream",
    "set_begin_allocate_to_pool": "fallow_torch_begin_allocate_to_pool",
    "set_end_allocate_to_pool_fn": "fallow_torch_end_allocate_to_pool",
    "set_release_pool": "fallow_torch_release_pool",
}

_enabled: tuple[Any, Any] | None = None  # the module torch, and the allocator that it was given


def _version(torch: Any) -> str:
    return str(getattr(torch, "__version__", "an unknown version"))


def enable_torch(**settings: Unpack[Settings]) -> Any:
    """Make PyTorch allocate its CUDA memory from Fallow, graphs included. Returns PyTorch's allocator object.

    Call it right after `import torch`, before anything uses the GPU. `settings` are those of configure(). Blocks are
    reused in stream order, as with PyTorch's own allocator. Out of memory raises torch.OutOfMemoryError; report()
    tells why. Captures announce themselves. Further calls return the same allocator.

    With any such allocator PyTorch refuses torch.cuda.memory_stats(), memory_allocated(), memory snapshots and
    CUDA-graph trees (torch.compile(mode="reduce-overhead")): use stats(), or torch_mempool() for a part of the
    program.

    ImportError: needs PyTorch 2.3 or newer with CUDA. RuntimeError: CUDA is initialised already."""
    global _enabled
    torch = framework("torch", "enable_torch()")
    if _enabled is not None and _enabled[0] is torch:
        configure_with(settings)
        return _enabled[1]
    memory: Any = getattr(getattr(torch, "cuda", None), "memory", None)
    allocator = None
    if hasattr(memory, "CUDAPluggableAllocator"):
        allocator = memory.CUDAPluggableAllocator(library_path(), "fallow_torch_alloc", "fallow_torch_free")
    # Without the functions for graphs a capture would be given ordinary memory.
    if allocator is None or not hasattr(allocator.allocator(), "set_begin_allocate_to_pool"):
        raise ImportError("fallow.enable_torch() needs PyTorch 2.3 or newer with CUDA; this is %s; an older one "
                          "runs under `fallow run`" % _version(torch))
    if torch.cuda.is_initialized():
        raise RuntimeError("fallow.enable_torch() comes too late: CUDA is initialised already; call it "
                           "right after import torch")
    configure_with(settings)
    inner = allocator.allocator()
    for setter, function in _HOOKS.items():
        if hasattr(inner, setter):
            getattr(inner, setter)(address_of(function))
    memory.change_current_allocator(allocator)
    _enabled = torch, allocator
    return allocator


def torch_mempool(**settings: Unpack[Settings]) -> Any:
    """Return a torch.cuda.MemPool whose segments come from Fallow, with PyTorch's own allocator on top:

        with torch.cuda.use_mem_pool(fallow.torch_mempool()):
            ...

    Statistics, snapshots and graph trees of PyTorch go on working. `settings` are those of configure(). Segments are
    in context order: Fallow reuses one when all work submitted to the context before its free is complete.
    ImportError: needs PyTorch 2.5 or newer with CUDA."""
    torch = framework("torch", "torch_mempool()")
    if not hasattr(getattr(torch, "cuda", None), "MemPool"):
        raise ImportError("fallow.torch_mempool() needs PyTorch 2.5 or newer with CUDA; this is %s" % _version(torch))
    configure_with(settings)
    allocator = torch.cuda.memory.CUDAPluggableAllocator(
        library_path(), "fallow_torch_segment_alloc", "fallow_torch_segment_free")
    try:
        pool = torch.cuda.MemPool(allocator.allocator())
    except (TypeError, AttributeError):  # one release took the outer object
        pool = torch.cuda.MemPool(allocator)
    kept.append(allocator)  # PyTorch frees segments through it as long as the process lives
    return pool
