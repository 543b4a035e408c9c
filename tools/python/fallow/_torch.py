# SPDX-License-Identifier: Apache-2.0
"""PyTorch."""
from __future__ import annotations

from fallow._arguments import framework
from fallow._library import address_of, check, kept, lib, library_path
from fallow._pool import configure_with, find_pool, stats, trim
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

# PyTorch's statistics, and the names in stats() of the current value, the peak, and the totals allocated and freed.
# "" is not counted, and shown as 0.
_BLOCKS = ("live_count", "live_count", "alloc_count", "free_count")
_BYTES = ("live_bytes", "peak_live_bytes", "", "")
_UNKNOWN = ("", "", "", "")
_STATISTICS = {
    "allocation": _BLOCKS,
    "active": _BLOCKS,
    "allocated_bytes": _BYTES,
    "active_bytes": _BYTES,
    "requested_bytes": ("requested_bytes", "peak_requested_bytes", "", ""),
    "reserved_bytes": ("reserved_bytes", "peak_reserved_bytes", "", ""),
    "segment": _UNKNOWN,
    "inactive_split": _UNKNOWN,
    "inactive_split_bytes": _UNKNOWN,
}
_COUNTERS = {
    "num_ooms": "oom_count",
    "num_sync_all_streams": "wait_count",
    "num_device_alloc": "grow_count",
    "num_device_free": "trim_count",
    "num_alloc_retries": "",
    "num_oom_rejections": "",
}

_totals: dict[int, dict[str, int]] = {}  # stats() of each device when its totals were reset
_enabled: tuple[Any, Any] | None = None  # the module torch, and the allocator that it was given


def _version(torch: Any) -> str:
    return str(getattr(torch, "__version__", "an unknown version"))


def _has_cuda(torch: Any) -> bool:
    """True if PyTorch can take an allocator. Builds without CUDA have the Python part of that only."""
    return hasattr(getattr(torch, "_C", None), "_cuda_customAllocator")


def enable_torch(**settings: Unpack[Settings]) -> Any:
    """Make PyTorch allocate its CUDA memory from Fallow, graphs included. Returns PyTorch's allocator object.

    Call it right after `import torch`, before anything uses the GPU. `settings` are those of configure(). Blocks are
    reused in stream order, as with PyTorch's own allocator. Out of memory raises torch.OutOfMemoryError; report()
    gives the reason. Captures announce themselves. Further calls return the same allocator.

    The statistics of torch.cuda and torch.accelerator (memory_stats(), max_memory_allocated(), ...) are those of the
    device's pool in stream order, RMM and arenas included. Not counted, so 0: totals of bytes, segments, retries. The
    peak number of blocks is the current one. The large pool has all sizes. num_ooms counts attempts: two for each
    error raised.

    With any such allocator PyTorch refuses torch.cuda.MemPool, so torch_mempool(); memory snapshots and their history,
    so watch_oom(); CUDA-graph trees (torch.compile(mode="reduce-overhead")); sending CUDA tensors to another process;
    get_per_process_memory_fraction(). If you need one of these, use torch_mempool() instead of enable_torch().

    ImportError: needs PyTorch 2.3 or newer with CUDA. RuntimeError: CUDA is initialised already."""
    global _enabled
    torch = framework("torch", "enable_torch()")
    if _enabled is not None and _enabled[0] is torch:
        configure_with(settings)
        return _enabled[1]
    allocator = None
    if _has_cuda(torch):
        allocator = torch.cuda.memory.CUDAPluggableAllocator(library_path(), "fallow_torch_alloc", "fallow_torch_free")
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
    torch.cuda.memory.change_current_allocator(allocator)
    _serve_statistics(torch)
    _enabled = torch, allocator
    return allocator


def _serve_statistics(torch: Any) -> None:
    """Replace the functions behind PyTorch's statistics. Its own raise, or query an allocator that nothing uses."""
    for name, function in {
            "_cuda_memoryStats": _memory_stats, "_accelerator_getDeviceStats": _memory_stats,
            "_cuda_resetPeakMemoryStats": _reset_peaks, "_accelerator_resetPeakStats": _reset_peaks,
            "_cuda_resetAccumulatedMemoryStats": _reset_totals, "_accelerator_resetAccumulatedStats": _reset_totals,
            "_accelerator_emptyCache": trim,
            "_accelerator_isAllocatorInitialized": torch.cuda.is_initialized}.items():
        if hasattr(torch._C, name):  # older releases lack torch.accelerator
            setattr(torch._C, name, function)


def _memory_stats(device: int) -> dict[str, Any]:
    """Return torch.cuda.memory_stats_as_nested_dict(device)."""
    now, before = stats(device), _totals.get(device, {})
    since = {name: value - before.get(name, 0) for name, value in now.items()}

    def four(current: str, peak: str, allocated: str, freed: str) -> dict[str, int]:
        return {"current": now.get(current, 0), "peak": now.get(peak, 0), "allocated": since.get(allocated, 0),
                "freed": since.get(freed, 0)}

    result: dict[str, Any] = {name: since.get(field, 0) for name, field in _COUNTERS.items()}
    for name, fields in _STATISTICS.items():
        result[name] = {"all": four(*fields), "large_pool": four(*fields), "small_pool": four(*_UNKNOWN)}
    return dict(result, oversize_allocations=four(*_UNKNOWN), oversize_segments=four(*_UNKNOWN), max_split_size=-1,
                reserved_bytes_by_private_pools={})


def _reset_peaks(device: int) -> None:
    pool = find_pool(device, "stream")
    if pool is not None:
        check(lib().fallow_pool_reset_peaks(pool), "reset_peak_memory_stats(%d)" % device)


def _reset_totals(device: int) -> None:
    _totals[device] = stats(device)


def torch_mempool(**settings: Unpack[Settings]) -> Any:
    """Return a torch.cuda.MemPool with segments of Fallow, and PyTorch's own allocator on top:

        with torch.cuda.use_mem_pool(fallow.torch_mempool()):
            ...

    Use it instead of enable_torch(). use_mem_pool() covers allocations of its own thread only, not those of a backward
    pass, which runs in threads of PyTorch.

    Statistics, snapshots and graph trees of PyTorch keep working. `settings` are those of configure(). Segments are
    in context order: Fallow reuses one when all work submitted to the context before its free is complete.
    ImportError: needs PyTorch 2.5 or newer with CUDA. RuntimeError: enable_torch() was called."""
    torch = framework("torch", "torch_mempool()")
    if not _has_cuda(torch) or not hasattr(torch.cuda, "MemPool"):
        raise ImportError("fallow.torch_mempool() needs PyTorch 2.5 or newer with CUDA; this is %s" % _version(torch))
    if _enabled is not None and _enabled[0] is torch:
        raise RuntimeError("fallow.torch_mempool() needs PyTorch's own allocator, which fallow.enable_torch() replaced; "
                           "call only one of them")
    configure_with(settings)
    allocator = torch.cuda.memory.CUDAPluggableAllocator(
        library_path(), "fallow_torch_segment_alloc", "fallow_torch_segment_free")
    try:
        pool = torch.cuda.MemPool(allocator.allocator())
    except (TypeError, AttributeError):  # one release took the outer object
        pool = torch.cuda.MemPool(allocator)
    kept.append(allocator)  # PyTorch frees segments through it as long as the process lives
    return pool
