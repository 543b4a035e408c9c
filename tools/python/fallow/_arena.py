# SPDX-License-Identifier: Apache-2.0
"""Arenas and leases: scratch memory of a step, borrowed once and reused."""
from __future__ import annotations

import ctypes
import math
import sys
import weakref

from fallow import _abi
from fallow._arguments import byte_count, framework, stream_handle
from fallow._dlpack import capsule_of, code_of, same_stream
from fallow._layout import Layout, describe
from fallow._library import call_back, check, in_python, lib, make
from fallow._pool import configure_with, make_pool
from fallow._typing import Any, Callable, Iterable, Sequence, Settings, Unpack

_LEVELS = _abi.WORDS["fallow_log_level"]


class Arena:
    """Scratch memory of a step, borrowed once and reused without initialisation, from the device's default pool:

        arena = fallow.Arena(name="decode")
        with arena.lease(layout) as lease:
            out = lease.torch("out", (tokens, 4096), torch.bfloat16)
        q, k = arena.get(("q", (tokens, 576), torch.bfloat16), ("k", (tokens, 64), torch.bfloat16))

    name      for messages and reports
    tag       of the arena's memory (see tagged()): sleep(save=[tag]) saves scratch too
    checks    for tests, a sum: 1 fills scratch with poison, 2 adds red zones, 4 reports regions that were not written
              and writes after the end of a lease. Leases then wait for the device. The simulated device needs
              FALLOW_SIMCUDA=contents
    log       called as log(level, message) for each refusal and finding; level: "error", "warning" or "info"
    settings  those of configure()

    The first lease that needs memory allocates it, and the arena keeps it until trim() or close(). One lease is open
    at a time, of any layout; each is ordered after the previous one on the device, also on another stream. Contents
    are those of earlier leases, except in persistent regions.

    Any thread may call. Methods raise Error with the library's message, or MemoryError; the arena is then unchanged.
    Captures of streams with leases must be announced: enable_torch() does so, otherwise use capture(). Each lease,
    end and guard makes one driver call, to query whether the stream is being captured; in steady state no other."""

    def __init__(self, device: int = 0, name: str = "arena", tag: int = 0, checks: int = 0,
                 log: Callable[[str, str], object] | None = None, **settings: Unpack[Settings]) -> None:
        configure_with(settings)
        self._device = device
        self._handle: ctypes.c_void_p | None = None
        self._got: Lease | None = None  # the lease of get()
        self._layouts: dict[Any, Layout] = {}  # of get(), most recently used last
        self._refusals = 0  # refuse_count already handled; the library counts refusals with a reason
        self._wake = _abi.WakeFunction()
        self._log = _abi.LogFunction()
        if log is not None:
            self._log = _abi.LogFunction(lambda _, level, text: log(_LEVELS[level], text.decode()))
        config = _abi.ArenaConfig(name=name.encode(), tag=tag, checks=checks, log=self._log, asks_captures=1)
        self._handle = make("fallow.Arena (a process has at most 4,096 at a time)", lib().fallow_arena_create,
                            make_pool(device), ctypes.byref(config))

    def close(self) -> None:
        """Return the arena's memory to the pool, after the work of the last lease. If a lease is open, this happens
        at its end. Launch no graph that was captured with the arena any more. A dropped arena is closed too."""
        if self._handle is not None and lib is not None:
            self._end_lease()
            lib().fallow_arena_destroy(self._handle)
        self._handle = None

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None:
            self.close()

    def _end_lease(self) -> None:
        """End the lease of get(); its tensors must not be used any more."""
        lease, self._got = self._got, None
        if lease is not None and lease._handle is not None:
            self._check(lib().fallow_lease_end(lease._handle, _abi.FALLOW_LEASE_STREAM), "end of the lease")
            lease._handle = None

    def _call(self, function: str, *arguments: Any) -> None:
        self._end_lease()
        self._check(getattr(lib(), "fallow_" + function)(self._handle, *arguments), function.split("_", 1)[1])

    def _check(self, status: int, what: str) -> None:
        """Raise unless the status is OK, with the reason that the library has for the arena."""
        if status == 0:
            return
        if self._handle is None:
            raise RuntimeError("%s: the arena is closed" % what)
        count = self.stats()["refuse_count"]
        has_reason, self._refusals = count != self._refusals, count
        text = ctypes.create_string_buffer(512 if has_reason else 1)
        lib().fallow_arena_last_error(self._handle, text, len(text))
        check(status, what, in_python(text.value.decode(errors="replace")))

    def reserve(self, need: Iterable[Layout] | int | str, stream: Any = None, lanes: Iterable[Arena] = ()) -> None:
        """Allocate now the memory that later leases need, and initialise persistent regions. Call it before captures
        and lock(), which forbid growth.

        need    layouts, or bytes of scratch
        stream  as in lease()
        lanes   further arenas; for each layout all of the arenas get the memory, or none"""
        if isinstance(need, (int, str)):
            need = [Layout([{"name": "reserve", "bytes": byte_count(need, "reserve")}], "reserve")]
        arenas = [self, *lanes]
        for arena in arenas:
            arena._end_lease()
        refusals = [arena.stats()["refuse_count"] for arena in arenas]
        handles = (ctypes.c_void_p * len(arenas))(*[arena._handle for arena in arenas])
        number = self._stream_of(stream)
        for each in sorted(need, key=lambda layout: -layout.bytes):
            status = lib().fallow_arenas_reserve(handles, len(arenas), each._handle, number)
            if status != 0:
                by = [arena for arena, count in zip(arenas, refusals) if arena.stats()["refuse_count"] > count]
                (by or arenas)[0]._check(status, "reserve")

    def lock(self) -> None:
        """Refuse leases for which the arena would have to grow. Call it after warm-up."""
        self._call("arena_lock")

    def unlock(self) -> None:
        """Undo lock() and set_budget()."""
        self._call("arena_unlock")

    def set_budget(self, bytes: int | str) -> None:
        """Refuse leases for which the arena would have to grow beyond `bytes`, scratch and persistent regions
        together. The error names the layout, its largest region, the bytes and the budget."""
        self._call("arena_set_budget", byte_count(bytes, "set_budget"))

    def trim(self) -> None:
        """Return the arena's memory to the pool; contents of persistent regions are lost, and the next lease
        allocates again. If captures hold addresses, only scratch that no graph uses is returned, and an Error gives
        the bytes that stay."""
        self._call("arena_trim")

    def lose_contents(self) -> None:
        """Declare the values of persistent regions lost, for example after an aborted step. The next lease
        initialises the regions of its layout again, the next guard() those of all layouts."""
        self._call("arena_lose_contents")

    def on_wake(self, wake: Callable[[dict[str, Any], int, int], object] | None) -> None:
        """Call wake(region, address, stream) for each persistent region that must be initialised, the first time or
        after its values were lost. None: no callback.

        region   a dict as in Layout.regions
        address  of the region on the device
        stream   a number; the callback queues the initialisation there and returns true

        If it returns false or raises an exception, which is printed, the region is initialised by its "init". The
        callback must not call the arena."""

        def call(_: int, region: Any, address: int, stream: int | None) -> int:
            assert wake is not None
            return 0 if call_back(wake, describe(region.contents), address, stream or 0, if_raised=False) else 1

        called = _abi.WakeFunction() if wake is None else _abi.WakeFunction(call)
        self._call("arena_on_wake", called, None)
        self._wake = called

    def guard(self, stream: Any = None) -> None:
        """Order the launch of a graph that was captured with leases of the arena after the previous lease or launch.
        Call it before each launch, with the launch's stream (as in lease()); no other thread may lease or guard in
        between."""
        self._call("lease_guard", self._stream_of(stream))

    def stats(self) -> dict[str, Any]:
        """Return the counters of the arena, by the names of fallow_arena_stats in fallow/arena.h: "scratch_bytes" and
        "persistent_bytes" held, "lease_count", "grow_count", "is_leased", "name", ..."""
        values = _abi.ArenaStats()
        self._check(lib().fallow_arena_get_stats(self._handle, ctypes.byref(values)), "stats")
        return _counters(values)

    def _stream_of(self, stream: Any) -> int:
        if stream is None:
            torch = sys.modules.get("torch")
            if torch is not None and torch.cuda.is_initialized():
                stream = torch.cuda.current_stream(self._device)
        return stream_handle(stream)

    def lease(self, layout: Layout, stream: Any = None, wait_ms: int | None = 0) -> Lease:
        """Borrow all regions of a layout for work queued on `stream` from now on.

        stream   None: PyTorch's current stream if PyTorch uses CUDA in this process, otherwise the default stream
        wait_ms  most milliseconds to wait while another thread has a lease, in the order of the calls; None: no limit

        Error: the arena is leased and the time has passed, the arena would have to grow in a capture or beyond its
        budget, or the stream is in a capture that was not announced. MemoryError: the pool has no memory."""
        number = self._stream_of(stream)
        handle = ctypes.c_void_p()
        most_ms = _abi.UINT32_MAX if wait_ms is None else wait_ms
        if not 0 <= most_ms <= _abi.UINT32_MAX:  # ctypes would keep the lower 32 bits
            raise ValueError("wait_ms is %r: 0 to 4,294,967,295 milliseconds, or None for no limit" % (wait_ms,))
        self._end_lease()
        status = lib().fallow_lease_begin_within(self._handle, layout._handle, number, most_ms, ctypes.byref(handle))
        self._check(status, "lease")
        return Lease(self, layout, number, handle)

    def get(self, *tensors: tuple[str, Sequence[int], Any], stream: Any = None) -> tuple[Any, ...]:
        """Borrow tensors in one line. Returns one tensor for each (name, shape, dtype), with undefined contents and
        no bytes in common:

            q, k = arena.get(("q", (tokens, 576), torch.bfloat16), ("k", (tokens, 64), torch.bfloat16))

        Use them for work queued on `stream` (as in lease()) before the next call on the arena by any thread, which
        ends their lease. A dtype of PyTorch gives a torch.Tensor, any other dtype (see Lease.tensor) an object with
        __dlpack__. The arena keeps the layouts of the last 256 different calls. Before captures and lock(), call it
        with the largest shapes."""
        key = tuple((name, tuple(shape), dtype) for name, shape, dtype in tensors)
        layout = self._layouts.pop(key, None) or Layout(
            [{"name": name, "bytes": math.prod(shape) * max(1, code_of(dtype)[1] // 8)} for name, shape, dtype in key],
            ", ".join([name for name, _, _ in key]).encode()[:63].decode(errors="ignore"))
        self._layouts[key] = layout
        if len(self._layouts) > 256:
            del self._layouts[next(iter(self._layouts))]
        self._got = lease = self.lease(layout, stream)
        lease._arena = weakref.proxy(self)  # no reference cycle: a dropped arena is closed at once
        return tuple([(lease.torch if str(each[2]).startswith("torch.") else lease.tensor)(*each) for each in key])


def _counters(values: _abi.ArenaStats) -> dict[str, Any]:
    return dict(values.numbers(), name=values.name.decode(errors="replace"))


def arenas_of(pool: ctypes.c_void_p) -> list[dict[str, Any]]:
    """Return the counters of each arena of a pool, as Arena.stats() does, also of arenas not made in Python."""
    made: list[dict[str, Any]] = []
    visit = _abi.ArenaVisitor(lambda _, values: made.append(_counters(values.contents)))
    check(lib().fallow_pool_visit_arenas(pool, visit, None), "the arenas of a pool")
    return made


class Lease:
    """One use of an arena's memory; see Arena.lease(). It ends with its `with` block, by end(), or when the object is
    garbage. Tensors hold addresses and do not extend the lease: after its end the next lease uses the same memory."""

    def __init__(self, arena: Arena, layout: Layout, stream: int, handle: ctypes.c_void_p) -> None:
        self._arena, self._layout, self._stream = arena, layout, stream
        self._handle: ctypes.c_void_p | None = handle
        self._streams = {same_stream(stream)}

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, *_: object) -> None:
        if self._handle is not None:
            self.end()

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None and lib is not None:
            lib().fallow_lease_end(self._handle, _abi.FALLOW_LEASE_STREAM)
            self._handle = None

    def end(self, stream: Any = None) -> None:
        """End the lease. Later leases are ordered after all work queued on `stream` so far, which must include every
        use of the regions. None: the lease's stream."""
        number = self._stream if stream is None else stream_handle(stream)
        self._arena._check(lib().fallow_lease_end(self._open(), number), "end of the lease")
        self._handle = None

    def _open(self) -> ctypes.c_void_p:
        if self._handle is None:
            raise RuntimeError("the lease has ended")
        return self._handle

    def join(self, stream: Any) -> None:
        """Allow tensors on another stream too. Make that stream wait for the lease's stream first, and the stream of
        end() for that stream at last."""
        self._streams.add(same_stream(stream_handle(stream)))

    def used(self, name: str, bytes: int) -> None:
        """Limit checks to the first `bytes` of a region until the lease ends, for a step smaller than the layout."""
        self._arena._check(lib().fallow_lease_set_used(self._open(), self._layout._find(name), bytes), "used")

    def address(self, name: str) -> int:
        """Return the device address of a region."""
        return int(lib().fallow_lease_region_at(self._open(), self._layout._find(name)) or 0)

    def tensor(self, name: str, shape: Sequence[int], dtype: Any, byte_offset: int = 0,
               strides: Sequence[int] | None = None) -> View:
        """Return a region, or a part of it, as an object with __dlpack__, for torch.from_dlpack() and others. Nothing
        is copied.

        shape        at most 8 dimensions
        dtype        "bfloat16", torch.bfloat16, numpy.float32, ...
        byte_offset  where the tensor begins in the region
        strides      in elements; None: row-major

        BufferError: the consumer's stream is neither the lease's nor joined. Error: the tensor exceeds the region.
        Both are raised when the consumer calls __dlpack__. Do not use the tensor after the end of the lease
        (Arena(checks=4) finds writes)."""
        self._open()
        return View(self, self._layout._find(name), tuple(shape), strides, code_of(dtype), byte_offset)

    def torch(self, name: str, shape: Sequence[int], dtype: Any, byte_offset: int = 0,
              strides: Sequence[int] | None = None) -> Any:
        """Return the same as a PyTorch tensor."""
        torch = framework("torch", "Lease.torch()")
        return torch.from_dlpack(self.tensor(name, shape, dtype, byte_offset, strides))


class View:
    """A region as a DLPack producer."""

    def __init__(self, lease: Lease, index: int, shape: Sequence[int], strides: Sequence[int] | None,
                 dtype: tuple[int, int], byte_offset: int) -> None:
        self._lease, self._index, self._dtype, self._byte_offset = lease, index, dtype, byte_offset
        self._shape = (ctypes.c_int64 * max(1, len(shape)))(*shape)
        self._strides = None if strides is None else (ctypes.c_int64 * max(1, len(strides)))(*strides)
        self._dimensions = len(shape)

    def require_stream(self, stream: int | None) -> None:
        """BufferError: the stream is neither the lease's nor joined."""
        lease = self._lease
        if same_stream(stream) not in lease._streams:
            raise BufferError("the lease is on stream %#x, the consumer on %#x: begin the lease on the consumer's "
                              "stream, or order it after the lease's and lease.join() it"
                              % (lease._stream, stream or 0))

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, self._lease._arena._device)

    def __dlpack__(self, *, stream: int | None = None, max_version: tuple[int, int] | None = None,
                   dl_device: tuple[int, int] | None = None, copy: bool | None = None) -> Any:
        """Return a capsule for the consumer. `stream`: the consumer's stream, which must be the lease's or joined;
        -1: the consumer orders the accesses itself."""
        if copy or (dl_device is not None and tuple(dl_device) != self.__dlpack_device__()):
            raise BufferError("a region is exported in place, neither copied nor moved")
        lease = self._lease
        if stream != -1:
            self.require_stream(stream)
        exported = ctypes.c_void_p()
        status = lib().fallow_lease_export(
            lease._open(), self._index, self._shape, self._strides, self._dimensions, *self._dtype,
            self._byte_offset, ctypes.byref(exported))
        lease._arena._check(status, "tensor")
        return capsule_of(exported, max_version)
