# SPDX-License-Identifier: Apache-2.0
"""The default pools: settings, counters, limits, peers, and memory allocated by hand."""
from __future__ import annotations

import ctypes

from fallow import _abi
from fallow._arguments import byte_count, index_of
from fallow._library import check, lib, make
from fallow._typing import Settings

ORDERS = _abi.WORDS["fallow_plugin_order"]


def configure(limit: int | str | None = None, economy: str = "balanced", reuse: str = "wait",
              decay_ms: int | str | None = None, driver: str | None = None, page_source: str = "automatic",
              one_handle: int | str | None = None, helper_thread: bool = False) -> None:
    """Set up the default pools, in place of the variable FALLOW_PLUGIN. Call it before the first allocation. It makes
    no pool.

    limit          most bytes that each pool may hold; None: the device's total
    economy        "balanced"; "memory_first": hold as little as possible; "speed_first": grow to the limit rather
                   than wait
    reuse          when a stream may take memory that another stream freed: "wait": at any time, waiting on the device
                   if need be; "completed": after the other stream's work; "same_stream": never
    decay_ms       milliseconds between releases of idle memory; None or 0: 10,000; "never"
    driver         None: the GPU's; "sim": the simulated device, which computes nothing; or the path of a libcuda.so.1
    page_source    "automatic"; "handles": mapped memory; "segments": memory of cuMemAlloc, for libraries that can use
                   no other
    one_handle     blocks of at least so many bytes have one physical handle each, for libraries that register them;
                   None: from 1 GiB on; "none": no block has to
    helper_thread  True: a thread per pool polls it, so that an idle process releases memory

    RuntimeError: a pool exists already. ValueError: a setting is not one of these."""
    if decay_ms == "never":
        decay_ms = _abi.UINT32_MAX
    config = _abi.PoolConfig(
        economy=index_of(economy, _abi.WORDS["fallow_economy"], "economy"),
        reuse_policy=index_of(reuse, _abi.WORDS["fallow_reuse_policy"], "reuse"),
        page_source=index_of(page_source, _abi.WORDS["fallow_page_source"], "page_source"),
        decay_ms=decay_ms or 0, helper_thread=bool(helper_thread))
    if limit is not None:
        config.limit_bytes = byte_count(limit, "limit")
    if one_handle is not None:
        is_none = one_handle == "none"
        config.one_handle_bytes = _abi.FALLOW_ONE_HANDLE_NONE if is_none else byte_count(one_handle, "one_handle")
    if driver is not None:
        config.driver = driver.encode()
    status = lib().fallow_plugin_configure(ctypes.byref(config))
    if status == _abi.FALLOW_BUSY:
        raise RuntimeError("fallow.configure comes too late: memory was allocated already; call it first")
    check(status, "fallow.configure")


def configure_with(settings: Settings) -> None:
    """Call configure() if there are settings."""
    if settings:
        configure(**settings)


def make_pool(device: int, order: str = "stream") -> ctypes.c_void_p:
    """Return the handle of a default pool, which is made if it does not exist."""
    return make("the pool of device %d" % device, lib().fallow_plugin_pool, device, index_of(order, ORDERS, "order"), 1)


def find_pool(device: int, order: str) -> ctypes.c_void_p | None:
    """Return the handle of a default pool, or None if it does not exist."""
    pool = ctypes.c_void_p()
    status = lib().fallow_plugin_pool(device, index_of(order, ORDERS, "order"), 0, ctypes.byref(pool))
    if status == _abi.FALLOW_NOT_FOUND:
        return None
    check(status, "the pool of device %d" % device)
    return pool


def stats(device: int = 0, order: str = "stream") -> dict[str, int]:
    """Return the counters of a default pool, or {} if it does not exist.

    order  "stream": the pool of PyTorch, RMM and arenas; "context": that of CuPy, Numba and torch_mempool()

    The names are those of fallow_stats in fallow/fallow.h: bytes held now ("requested_bytes", "reserved_bytes", ...)
    and at most ("peak_requested_bytes", ...), events since the pool was made ("alloc_count", "hit_count", ...), and
    flags ("is_asleep", ...). Cheap: sums the threads' counters and stops no thread."""
    pool = find_pool(device, order)
    if pool is None:
        return {}
    values = _abi.Stats()
    check(lib().fallow_pool_get_stats(pool, ctypes.byref(values)), "fallow.stats")
    return values.numbers()


def trim() -> None:
    """Release the idle memory of every default pool to the driver. Live blocks, and memory that captures hold, stay."""
    lib().fallow_torch_reset()


def set_limit(limit: int | str | None, device: int = 0) -> None:
    """Change the most bytes that each default pool of a device may hold; None: the device's total.

    A pool above the limit releases its free memory, and takes no more from the driver until it holds less than the
    limit. Live blocks stay. For pools that do not exist yet, use configure(). RuntimeError: the device has no pool."""
    size = 0 if limit is None else byte_count(limit, "limit")
    pools = [pool for pool in (find_pool(device, order) for order in ORDERS) if pool is not None]
    if not pools:
        raise RuntimeError("fallow.set_limit: device %d has no pool yet; fallow.configure(limit=...) is for pools to "
                           "come" % device)
    for pool in pools:
        check(lib().fallow_pool_set_limit(pool, size), "fallow.set_limit")


def allocate(size: int | str, device: int = 0) -> int:
    """Allocate memory for work of every stream, and return its address; 0 if size is 0. For libraries that allocate
    without a stream.

    The contents are undefined. No unfinished work uses the memory. It is from the pool of PyTorch, RMM and arenas,
    and the caller's until free(). The call may wait for the device. Inside a capture the block is ordinary memory,
    not the graph's. MemoryError: no memory within the limit; report() gives the reason."""
    request = _abi.Request(size_bytes=byte_count(size, "size") if size else 0, flags=_abi.FALLOW_REQUEST_EVERY_STREAM)
    address = make("fallow.allocate(%r)" % size, lib().fallow_alloc_request, make_pool(device), ctypes.byref(request),
                   None)
    return address.value or 0


def free(address: int, device: int = 0) -> None:
    """Free memory of allocate(). All work that uses it must be complete: synchronise first. Any stream may reuse the
    memory at once. Makes no driver call. Error: the address is no live block (nothing is changed)."""
    check(lib().fallow_free_complete(make_pool(device), address), "fallow.free")


def allow_peer(device: int, peer: int) -> None:
    """Let the device `peer` read and write all memory, present and future, that the pool of PyTorch, RMM and arenas
    holds on `device`.

    The pool of a second device in a process does this when it is made; call this to retry if that failed. Costs a
    driver call for each piece of memory. Error: `peer` cannot reach the device, or 16 devices have access already."""
    check(lib().fallow_pool_allow_peer(make_pool(device), peer), "fallow.allow_peer(%d, %d)" % (device, peer))


def deny_peer(device: int, peer: int) -> None:
    """Revoke the access of allow_peer(). The peer's work on the memory must be complete."""
    check(lib().fallow_pool_deny_peer(make_pool(device), peer), "fallow.deny_peer(%d, %d)" % (device, peer))


def publish() -> None:
    """Show the pools of this process, those made later too, to `fallow top` until the process ends.

    Starts a thread that sleeps unless `fallow top` looks, and makes a file of 256 KiB in /dev/shm. Error: /dev/shm has
    no room; a program may ignore that. A second call has no effect."""
    check(lib().fallow_publish_start(None), "fallow.publish: no file in /dev/shm")


class tagged:
    """Tag the allocations of this thread through enable_torch() or rmm_resource() inside the block:

        with fallow.tagged(1):
            model.cuda()

    Reports name the tag, 1 to 4,294,967,295, and sleep(save=[1]) keeps the contents. Tags nest; the innermost counts.
    Each allocation inside takes a lock."""

    def __init__(self, tag: int, device: int = 0) -> None:
        if not 0 < tag <= _abi.UINT32_MAX:
            raise ValueError("a tag of %r: 1 to 4294967295" % (tag,))
        self._arguments = (device, _abi.MempoolId(tag, _abi.FALLOW_MEMPOOL_TAG))

    def __enter__(self) -> tagged:
        lib().fallow_torch_begin_allocate_to_pool(*self._arguments, None)
        return self

    def __exit__(self, *_: object) -> None:
        lib().fallow_torch_end_allocate_to_pool(*self._arguments)
        lib().fallow_torch_release_pool(*self._arguments)
