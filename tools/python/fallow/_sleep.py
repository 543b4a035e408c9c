# SPDX-License-Identifier: Apache-2.0
"""Sleep and wake: give the physical memory of a pool back, and keep its addresses."""
from __future__ import annotations

import ctypes

from fallow import _abi
from fallow._library import call_back, check, kept, lib
from fallow._pool import make_pool
from fallow._typing import Callable, Iterable


def sleep(device: int = 0, save: Iterable[int] | str = (), wait: bool = True) -> None:
    """Give the physical memory of the pool of PyTorch, RMM and arenas back to the driver and keep every address:
    after wake() tensors and graphs are where they were.

    save  tags (see tagged()) of blocks to keep the contents of, in pinned host memory; 0: blocks without a tag; "all":
          every block. All other contents are lost.
    wait  True: wait until the work of the device's context is complete; False: an Error if it is not

    No work may use the memory until wake(). Allocations fail meanwhile; frees succeed. Memory that network cards or
    collective libraries registered is unmapped too: see watch_sleep(). Costs driver calls for each piece of memory,
    and the copies.
    Error: the pool is asleep, a capture is open, or a watcher refuses."""
    tags = [] if save == "all" else [int(tag) for tag in save]
    if any(not 0 <= tag <= _abi.UINT32_MAX for tag in tags):
        raise ValueError("save is %r: tags are 0 to 4294967295" % (save,))
    request = _abi.SleepRequest(
        flags=(_abi.FALLOW_SLEEP_WAIT if wait else 0) | (_abi.FALLOW_SLEEP_SAVE_ALL if save == "all" else 0),
        saved_tags=(ctypes.c_uint32 * max(1, len(tags)))(*tags), saved_tag_count=len(tags))
    check(lib().fallow_pool_sleep(make_pool(device), ctypes.byref(request)), "fallow.sleep")


def wake(device: int = 0) -> None:
    """Get the memory of sleep() again, at the same addresses, with the saved contents. No effect on a pool that is
    awake. MemoryError: the driver has no memory, and the pool stays asleep with nothing lost; make room and call
    again."""
    check(lib().fallow_pool_wake(make_pool(device)), "fallow.wake")


def watch_sleep(before_sleep: Callable[[], object] | None = None, after_wake: Callable[[], object] | None = None,
                device: int = 0) -> Callable[[], None]:
    """Call before_sleep() before each sleep of the pool of PyTorch, RMM and arenas, and after_wake() after each wake
    and each failed sleep. Returns a function that removes the watcher.

    Deregister the memory in before_sleep (from network cards, collective libraries), and register it again in
    after_wake. If before_sleep returns true or raises an exception, which is printed, the sleep is refused. It may
    use the pool, but not put it to sleep. The thread that sleeps or wakes calls both. A pool has up to 16 watchers;
    after a wake the last is called first. Error: there are 16 already."""
    if before_sleep is None and after_wake is None:
        raise ValueError("fallow.watch_sleep needs before_sleep, after_wake, or both")

    def before(_: int) -> int:
        return 1 if before_sleep is not None and call_back(before_sleep, if_raised=True) else 0

    def after(_: int) -> None:
        if after_wake is not None:
            after_wake()

    pool = make_pool(device)
    pair = (_abi.BeforeSleepFunction(before), _abi.AfterWakeFunction(after))
    kept.append(pair)  # a concurrent sleep or wake may still call it after the removal
    check(lib().fallow_pool_watch_sleep(pool, *pair, None), "fallow.watch_sleep")
    return lambda: check(lib().fallow_pool_unwatch_sleep(pool, *pair, None), "the end of fallow.watch_sleep")
