# SPDX-License-Identifier: Apache-2.0
"""The contents of the default pools, as text."""
from __future__ import annotations

import ctypes

from fallow import _abi
from fallow._arena import arenas_of
from fallow._library import check, lib
from fallow._pool import ORDERS, find_pool, stats
from fallow._typing import Any


def mib(count: int) -> str:
    return "%.1f MiB" % (count / 1048576.0)


def oom_report(pool: ctypes.c_void_p) -> _abi.OomReport:
    """Return a pool's record of its last failed allocation; size_bytes is 0 if none failed."""
    values = _abi.OomReport()
    check(lib().fallow_pool_get_oom_report(pool, ctypes.byref(values)), "fallow.report")
    return values


def report(device: int | None = None) -> str:
    """Return a text: the memory of each default pool and its arenas, and the reason of its last failed allocation.

    device  None: all devices

    The owners in it are streams and tags (see tagged()); for lines of code, use Recording(stacks=True). Cheap, as
    stats()."""
    lines = []
    for number in range(64) if device is None else [device]:
        for order in ORDERS:
            pool = find_pool(number, order)
            if pool is not None:
                lines.append("device %d, %s order:" % (number, order))
                lines += _describe_pool(pool, stats(number, order))
    return "\n".join(lines) if lines else "nothing was allocated from Fallow"


def _describe_pool(pool: ctypes.c_void_p, now: dict[str, int]) -> list[str]:
    arenas = arenas_of(pool)
    lines = [
        "  in use %s in %d blocks, reserved %s; peaks %s and %s"
        % (mib(now["requested_bytes"]), now["live_count"], mib(now["reserved_bytes"]),
           mib(now["peak_requested_bytes"]), mib(now["peak_reserved_bytes"])),
        "  %d allocated, %d of them hits; %d growths, %d waits, %d driver calls; graphs hold %s"
        % (now["alloc_count"], now["hit_count"], now["grow_count"], now["wait_count"], now["driver_call_count"],
           mib(now["captured_bytes"]))]
    lines += [
        "  arena '%s': scratch %s, persistent %s; %d leases, %d captures hold it%s%s"
        % (arena["name"], mib(arena["scratch_bytes"]), mib(arena["persistent_bytes"]), arena["lease_count"],
           arena["capture_count"], ", leased" * arena["is_leased"], ", locked" * arena["is_locked"])
        for arena in arenas]
    oom = oom_report(pool)
    return lines + (_describe_failure(oom, arenas) if oom.size_bytes != 0 else [])


def _describe_failure(oom: _abi.OomReport, arenas: list[dict[str, Any]]) -> list[str]:
    lines = ["  last failure: %s asked for, %s allowed; in use %s, largest hole %s, waiting %s, graphs %s"
             % (mib(oom.size_bytes), mib(oom.limit_bytes), mib(oom.requested_bytes), mib(oom.largest_free_bytes),
                mib(oom.deferred_bytes), mib(oom.captured_bytes))]
    if oom.lacks_addresses:
        lines.append("    addresses are short: %s reserved, %s of them in one piece without memory"
                     % (mib(oom.address_bytes), mib(oom.largest_address_bytes)))
    for owner in oom.owners[:oom.owner_count]:
        names = ["arena '%s'" % arena["name"] for arena in arenas if arena["tag"] == owner.tag != 0]
        lines.append("    %s in %d blocks of stream %d, tag %d%s"
                     % (mib(owner.bytes), owner.count, owner.stream_id, owner.tag,
                        " (%s)" % ", ".join(names) if names else ""))
    return lines
