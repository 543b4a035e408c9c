# SPDX-License-Identifier: Apache-2.0
"""Sleep and wake: give the physical memory of a pool back, and keep its addresses."""
from __future__ import annotations

import ctypes

from fallow import _abi
from fallow._library import call_back, check, kept, lib
from fallow._pool import make_pool

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Iterable


def sleep(device: int = 0, save: Iterable[int] | str = (), wait: bool = True) -> None:
    """Give the physical memory of what PyTorch, RMM and arenas hold on a device back to the driver, and keep
    every address: after wake() tensors and graphs are where they were.

    save  tags (see tagged()) of blocks whose contents are kept in pinned host memory meanwhile; 0 stands for
          blocks without a tag; "all": every block. All other contents are lost.
    wait  False: a device that is busy is an error, instead of waited for"""
    tags = [] if save == "all" else [int(tag) for tag in save]
    request = _abi.SleepRequest(
        flags=(_abi.FALLOW_SLEEP_WAIT if wait else 0) | (_abi.FALLOW_SLEEP_SAVE_ALL if save == "all" else 0),
        saved_tags=(ctypes.c_uint32 * max(1, len(tags)))(*tags), saved_tag_count=len(tags))
    check(lib().fallow_pool_sleep(make_pool(device), ctypes.byref(request)), "fallow.sleep")


def wake(device: int = 0) -> None:
    """Get the memory again, behind the same addresses, and what was saved into it. A MemoryError leaves it
    asleep: make room, and try again."""
    check(lib().fallow_pool_wake(make_pool(device)), "fallow.wake")


def watch_sleep(before_sleep: Callable[[], object] | None = None, after_wake: Callable[[], object] | None = None,
                device: int = 0) -> Callable[[], None]:
    """Call before_sleep() before each sleep of the pool of PyTorch, RMM and arenas on a device, and after_wake() after
    each wake and after a failed sleep. The sleep is refused if before_sleep returns true or raises an exception, which
    is printed. Deregister the memory there (from network cards, collective libraries).

    Returns a function that removes the watcher. Up to 16 watchers; a wake calls the last one first."""
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
