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
import contextlib
import ctypes
import os
import sys
import threading
import warnings

__all__ = [
    "Error",
    "configure",
    "enable_torch",
    "torch_mempool",
    "enable_cupy",
    "capturing",
    "capture",
    "rmm_resource",
    "enable_rmm",
    "stats",
    "report",
    "trim",
    "sleep",
    "wake",
    "watch_sleep",
    "set_limit",
    "allocate",
    "free",
    "tagged",
    "allow_peer",
    "deny_peer",
    "Recording",
    "publish",
    "library_path",
    "report_html",
    "watch_oom",
    "layout",
    "Layout",
    "Arena",
    "Lease",
]

_lock = threading.RLock()
_library = None
_library_file = None
_kept = []  # what frameworks hold by address only


class Error(RuntimeError):
    """A call of the library failed: `status` is its number, `name` its name."""

    def __init__(self, status, what, reason=None):
        self.status = status
        self.name = _lib().fallow_status_name(status).decode()
        super().__init__("%s: %s (%s)" % (what, reason or _message(status), self.name))


# ---- structures of the headers; tests compare their offsets with the compiler's


class Config(ctypes.Structure):
    """fallow_pool_config"""

    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("device", ctypes.c_int),
        ("driver", ctypes.c_char_p),
        ("context", ctypes.c_void_p),
        ("limit_bytes", ctypes.c_size_t),
        ("economy", ctypes.c_int),
        ("cache_bytes", ctypes.c_size_t),
        ("decay_ms", ctypes.c_uint32),
        ("reuse_policy", ctypes.c_int),
        ("checks", ctypes.c_uint32),
        ("streams_may_die", ctypes.c_uint8),
        ("helper_thread", ctypes.c_uint8),
        ("reserved_0", ctypes.c_uint8 * 2),
        ("wait_ms", ctypes.c_uint32),
        ("peer_devices", ctypes.c_void_p),
        ("peer_device_count", ctypes.c_size_t),
        ("handle_types", ctypes.c_uint32),
        ("order", ctypes.c_int),
        ("log", ctypes.c_void_p),
        ("log_context", ctypes.c_void_p),
        ("on_oom", ctypes.c_void_p),
        ("oom_context", ctypes.c_void_p),
        ("page_source", ctypes.c_int),
        ("reserved_1", ctypes.c_uint32),
        ("one_handle_bytes", ctypes.c_size_t),
    ]


class Stats(ctypes.Structure):
    """fallow_stats"""

    _fields_ = [("struct_size", ctypes.c_size_t)] + [
        (name, ctypes.c_uint64)
        for name in (
            "requested_bytes live_bytes reserved_bytes peak_requested_bytes peak_live_bytes "
            "peak_reserved_bytes alloc_count free_count zero_size_count hit_count event_count "
            "steal_count wait_count driver_call_count remap_count remap_wait_count grow_count "
            "trim_count lost_streams misuse_count oom_count cached_bytes deferred_bytes "
            "captured_bytes host_bytes live_count"
        ).split()
    ] + [("stream_count", ctypes.c_uint32), ("uses_vmm", ctypes.c_uint8), ("uses_membarrier", ctypes.c_uint8),
         ("is_asleep", ctypes.c_uint8), ("lost_membarrier", ctypes.c_uint8)] + [
        (name, ctypes.c_uint64)
        for name in "damage_count unchecked_count asleep_bytes saved_bytes exported_bytes imported_bytes bound_bytes".split()
    ] + [("handle_types", ctypes.c_uint32), ("page_source", ctypes.c_uint8), ("allows_rdma", ctypes.c_uint8),
         ("reserved_1", ctypes.c_uint8 * 2), ("idle_bytes", ctypes.c_uint64), ("question_count", ctypes.c_uint64)]


class Owner(ctypes.Structure):
    """fallow_oom_owner"""

    _fields_ = [
        ("stream_id", ctypes.c_uint64),
        ("tag", ctypes.c_uint32),
        ("count", ctypes.c_uint32),
        ("bytes", ctypes.c_uint64),
    ]


class OomReport(ctypes.Structure):
    """fallow_oom_report"""

    _fields_ = (
        [("struct_size", ctypes.c_size_t)]
        + [
            (name, ctypes.c_uint64)
            for name in (
                "size_bytes limit_bytes reserved_bytes requested_bytes free_bytes largest_free_bytes "
                "deferred_bytes captured_bytes device_free_bytes"
            ).split()
        ]
        + [
            ("fragmentation", ctypes.c_double),
            ("stage_count", ctypes.c_uint64 * 12),
            ("stage_ns", ctypes.c_uint64 * 12),
            ("owner_count", ctypes.c_uint32),
            ("reserved_0", ctypes.c_uint32),
            ("owners", Owner * 8),
            ("address_bytes", ctypes.c_uint64),
            ("largest_address_bytes", ctypes.c_uint64),
            ("lacks_addresses", ctypes.c_uint32),
            ("reserved_1", ctypes.c_uint32),
        ]
    )


class SleepRequest(ctypes.Structure):
    """fallow_sleep_request"""

    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("flags", ctypes.c_uint32),
        ("reserved_0", ctypes.c_uint32),
        ("saved_tags", ctypes.POINTER(ctypes.c_uint32)),
        ("saved_tag_count", ctypes.c_size_t),
    ]


class Request(ctypes.Structure):
    """fallow_request"""

    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("size_bytes", ctypes.c_size_t),
        ("align_bytes", ctypes.c_size_t),
        ("flags", ctypes.c_uint32),
        ("tag", ctypes.c_uint32),
    ]


class MempoolId(ctypes.Structure):
    """fallow_mempool_id"""

    _fields_ = [("first", ctypes.c_uint64), ("second", ctypes.c_uint64)]


class RecordConfig(ctypes.Structure):
    """fallow_record_config"""

    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("path", ctypes.c_char_p),
        ("ring_bytes", ctypes.c_size_t),
        ("flags", ctypes.c_uint32),
        ("dump_signal", ctypes.c_int),
        ("stack_depth", ctypes.c_uint32),
        ("reserved_0", ctypes.c_uint32),
    ]


# ---- the library


def _roots():
    """Return the folders to search for lib and bin, in order."""
    here = os.path.dirname(os.path.abspath(__file__))
    if os.path.isdir(os.path.join(here, "lib")):
        return [here]  # installed by a wheel
    source = os.path.normpath(os.path.join(here, "../../.."))  # tools/python/fallow of a source tree
    builds = [os.path.join(source, "build", preset) for preset in ("release", "quickstart", "dev")]
    return [os.path.dirname(source)] + builds  # PREFIX/share/fallow/python/fallow


def _candidates():
    """Return the paths of libfallow.so to try, in order."""
    if "FALLOW_LIBRARY" in os.environ:
        return [os.environ["FALLOW_LIBRARY"]]
    folders = ("lib", "lib64", "lib/%s-linux-gnu" % os.uname().machine)
    found = [os.path.join(root, folder, "libfallow.so.0.2") for root in _roots() for folder in folders]
    return found + ["libfallow.so.0.2", "libfallow.so"]


def _find_command():
    """Return the path of the command fallow that belongs to this module, or None if there is none."""
    found = [os.path.join(root, "bin", "fallow") for root in _roots()]
    return next((path for path in found if os.access(path, os.X_OK)), None)


def _declare(lib):
    pointer, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    out = ctypes.POINTER(ctypes.c_void_p)

    def say(name, result, *arguments):
        function = getattr(lib, name)
        function.restype, function.argtypes = result, arguments

    say("fallow_status_name", ctypes.c_char_p, number)
    say("fallow_status_message", ctypes.c_char_p, number)
    say("fallow_plugin_configure", number, ctypes.POINTER(Config))
    say("fallow_plugin_pool", number, number, number, number, out)
    say("fallow_pool_get_stats", number, pointer, ctypes.POINTER(Stats))
    say("fallow_pool_get_oom_report", number, pointer, ctypes.POINTER(OomReport))
    say("fallow_alloc_request", number, pointer, ctypes.POINTER(Request), pointer, out)
    say("fallow_free_complete", number, pointer, pointer)
    say("fallow_pool_driver_entry", pointer, pointer, ctypes.c_char_p)
    say("fallow_record_start", number, pointer, ctypes.POINTER(RecordConfig), out)
    say("fallow_record_dump", number, pointer, ctypes.c_char_p)
    say("fallow_record_stop", number, pointer)
    for name in ("phase_begin", "phase_end", "mark"):
        say("fallow_record_" + name, number, pointer, ctypes.c_char_p)
    say("fallow_pool_sleep", number, pointer, ctypes.POINTER(SleepRequest))
    say("fallow_pool_wake", number, pointer)
    say("fallow_pool_allow_peer", number, pointer, number)
    say("fallow_pool_deny_peer", number, pointer, number)
    say("fallow_pool_watch_sleep", number, pointer, _BEFORE_SLEEP, _AFTER_WAKE, pointer)
    say("fallow_pool_unwatch_sleep", number, pointer, _BEFORE_SLEEP, _AFTER_WAKE, pointer)
    say("fallow_pool_set_limit", number, pointer, size)
    say("fallow_publish_start", number, pointer)
    say("fallow_torch_begin_allocate_to_pool", None, number, MempoolId, pointer)
    say("fallow_torch_end_allocate_to_pool", None, number, MempoolId)
    say("fallow_torch_release_pool", None, number, MempoolId)
    say("fallow_torch_alloc", pointer, ctypes.c_ssize_t, number, pointer)
    say("fallow_rmm_alloc", pointer, ctypes.c_ssize_t, number, pointer)
    say("fallow_torch_free", None, pointer, ctypes.c_ssize_t, number, pointer)
    say("fallow_torch_reset", None)
    say("fallow_cupy_malloc", pointer, pointer, size, number)
    say("fallow_cupy_free", None, pointer, pointer, number)
    say("fallow_context_capture_begin", None)
    say("fallow_context_capture_end", None)
    say("fallow_capture_begin", number, pointer, pointer, out)
    say("fallow_capture_join", number, pointer, pointer)
    for name in ("end", "release"):
        say("fallow_capture_" + name, number, pointer)
    _arena.declare(say)


def _lib():
    """The library, loaded by the first call."""
    global _library, _library_file
    with _lock:
        if _library is not None:
            return _library
        tried = []
        for path in _candidates():
            if os.path.isabs(path) and not os.path.exists(path):
                tried.append("%s: no such file" % path)
                continue
            try:
                lib = ctypes.CDLL(path, mode=os.RTLD_NOW | os.RTLD_LOCAL)
            except OSError as error:
                tried.append(str(error))
                continue
            try:
                _declare(lib)
            except AttributeError as error:
                tried.append("%s is of another version than this module: %s" % (path, error))
                continue
            _library, _library_file = lib, path
            return lib
        raise OSError(
            "libfallow.so could not be loaded; install Fallow, or set FALLOW_LIBRARY to the file. Tried: "
            + "; ".join(tried)
        )


def library_path():
    """The path that the library was loaded from, for other users of its functions."""
    _lib()
    return _library_file


def _address(name):
    return ctypes.cast(getattr(_lib(), name), ctypes.c_void_p).value


_PYTHON_NAMES = [  # replacements in messages of the library
    ("fallow_pool_get_oom_report", "fallow.report()"),
    ("fallow_pool_wake", "fallow.wake()"),
    ("fallow_capture_begin", "fallow.capture(stream)"),
    ("fallow_lease_guard", "Arena.guard()"),
    ("fallow_lease_end", "the lease's end"),
    ("; fallow_arena_last_error names both", ""),
]


def _in_python(text):
    for name, here in _PYTHON_NAMES:
        text = text.replace(name, here)
    return text


def _message(status):
    return _in_python(_lib().fallow_status_message(status).decode())


def _check(status, what, reason=None):
    """Raise unless OK. `reason` replaces the message of the status, if given."""
    if status in (20, 21):
        raise MemoryError("%s: %s" % (what, reason or _message(status)))
    if status != 0:
        raise Error(status, what, reason)


def _framework(name, how):
    try:
        return sys.modules.get(name) or __import__(name, fromlist=["*"])
    except ImportError as error:
        raise ImportError("fallow.%s needs %s, which cannot be imported: %s" % (how, name, error)) from error


def _word(value, words, what):
    if value not in words:
        raise ValueError("%s is %r: one of %s" % (what, value, ", ".join(words)))
    return words.index(value)


def _bytes(value, what):
    """A number, or "20G"."""
    if isinstance(value, str):
        units = {"K": 10, "M": 20, "G": 30, "T": 40}
        digits, shift = (value[:-1], units[value[-1]]) if value[-1:] in units else (value, 0)
        if not digits.isdigit():
            raise ValueError('%s is %r: bytes, or a number with K, M, G or T behind, as "20G"' % (what, value))
        value = int(digits) << shift
    if value <= 0:
        raise ValueError("%s is %r: it must be above 0" % (what, value))
    return value


# ---- default pools


def configure(limit=None, economy="balanced", reuse="wait", decay_ms=None, driver=None, page_source="automatic",
              one_handle=None, helper_thread=False):
    """Settings of the pools that frameworks use, in the place of the variable FALLOW_PLUGIN; before the
    first allocation.

    limit     most that a pool may hold, bytes or "20G"; None: the device's total
    economy   "balanced"; "memory_first": hold as little as possible; "speed_first": grow rather than wait
    reuse     "wait", "completed" or "same_stream" (fallow_reuse_policy)
    decay_ms  how often idle memory goes back; "never"; None or 0: the default, every 10,000
    driver    None: the GPU's; "sim": the simulated device; or a path
    page_source  "automatic", "handles" or "segments": memory of cuMemAlloc, for libraries that can do
              nothing with any other (fallow_page_source)
    one_handle  a block from so many bytes on, or "2G", is all of one handle, for libraries that register
              it; "none": no block has to be; None: from 1 GiB on (one_handle_bytes in fallow.h)
    helper_thread  True: each pool has a thread that polls it, so that an idle process releases memory
    """
    config = Config(struct_size=ctypes.sizeof(Config))
    if limit is not None:
        config.limit_bytes = _bytes(limit, "limit")
    config.economy = _word(economy, ["balanced", "memory_first", "speed_first"], "economy")
    config.reuse_policy = _word(reuse, ["wait", "completed", "same_stream"], "reuse")
    config.page_source = _word(page_source, ["automatic", "handles", "segments"], "page_source")
    if one_handle is not None:
        none = ctypes.c_size_t(-1).value  # FALLOW_ONE_HANDLE_NONE
        config.one_handle_bytes = none if one_handle == "none" else _bytes(one_handle, "one_handle")
    if decay_ms is not None:
        config.decay_ms = 0xFFFFFFFF if decay_ms == "never" else decay_ms
    if driver is not None:
        config.driver = driver.encode()
    config.helper_thread = 1 if helper_thread else 0
    status = _lib().fallow_plugin_configure(ctypes.byref(config))
    if status == 7:
        raise RuntimeError("fallow.configure comes too late: memory was allocated already; call it first")
    _check(status, "fallow.configure")


def _configure(settings):
    if settings:
        configure(**settings)


_ORDERS = ["stream", "context"]


def _pool(device, order="stream", make=True):
    """The default pool's handle; None: there is none, and none is to be made."""
    pool = ctypes.c_void_p()
    number = _word(order, _ORDERS, "order")
    status = _lib().fallow_plugin_pool(device, number, 1 if make else 0, ctypes.byref(pool))
    if status == 40 and not make:
        return None
    _check(status, "the pool of device %d" % device)
    return pool


def stats(device=0, order="stream"):
    """The counters of a default pool as a dict (fallow_stats); {} if nothing was allocated from it.

    order: "stream" for PyTorch, RMM and arenas; "context" for CuPy, Numba and torch_mempool."""
    pool = _pool(device, order, make=False)
    if pool is None:
        return {}
    values = Stats(struct_size=ctypes.sizeof(Stats))
    _check(_lib().fallow_pool_get_stats(pool, ctypes.byref(values)), "fallow.stats")
    return {name: getattr(values, name) for name, _ in Stats._fields_[1:]}


def _oom(pool):
    values = OomReport(struct_size=ctypes.sizeof(OomReport))
    _check(_lib().fallow_pool_get_oom_report(pool, ctypes.byref(values)), "fallow.report")
    return values


def _mib(count):
    return "%.1f MiB" % (count / 1048576.0)


def report(device=None):
    """What the default pools hold, and why the last allocation of each failed, as text."""
    lines = []
    for number in range(64) if device is None else [device]:
        for order in _ORDERS:
            pool = _pool(number, order, make=False)
            if pool is None:
                continue
            now = stats(number, order)
            lines.append("device %d, %s order:" % (number, order))
            lines.append(
                "  in use %s in %d blocks, reserved %s; peaks %s and %s"
                % (
                    _mib(now["requested_bytes"]), now["live_count"], _mib(now["reserved_bytes"]),
                    _mib(now["peak_requested_bytes"]), _mib(now["peak_reserved_bytes"]),
                )
            )
            lines.append(
                "  %d allocated, %d of them hits; %d growths, %d waits, %d driver calls; graphs hold %s"
                % (
                    now["alloc_count"], now["hit_count"], now["grow_count"], now["wait_count"],
                    now["driver_call_count"], _mib(now["captured_bytes"]),
                )
            )
            arenas = _arena.arenas_of(pool)
            for arena in arenas:
                lines.append(
                    "  arena '%s': scratch %s, persistent %s; %d leases, %d captures hold it%s%s"
                    % (
                        arena["name"], _mib(arena["scratch_bytes"]), _mib(arena["persistent_bytes"]),
                        arena["lease_count"], arena["capture_count"], ", leased" * arena["is_leased"],
                        ", locked" * arena["is_locked"],
                    )
                )
            oom = _oom(pool)
            if oom.size_bytes != 0:
                lines.append(
                    "  last failure: %s of %s; in use %s, largest hole %s, waiting %s, graphs %s"
                    % (
                        _mib(oom.size_bytes), _mib(oom.limit_bytes), _mib(oom.requested_bytes),
                        _mib(oom.largest_free_bytes), _mib(oom.deferred_bytes), _mib(oom.captured_bytes),
                    )
                )
                if oom.lacks_addresses:
                    lines.append(
                        "    addresses are the limit: %s reserved, %s of them in one piece without memory"
                        % (_mib(oom.address_bytes), _mib(oom.largest_address_bytes))
                    )
                for owner in oom.owners[: oom.owner_count]:
                    names = ["arena '%s'" % arena["name"] for arena in arenas if arena["tag"] == owner.tag != 0]
                    lines.append(
                        "    %s in %d blocks of stream %d, tag %d%s"
                        % (_mib(owner.bytes), owner.count, owner.stream_id, owner.tag,
                           " (%s)" % ", ".join(names) if names else "")
                    )
    return "\n".join(lines) if lines else "nothing was allocated from Fallow"


def trim():
    """Give idle memory of every default pool back to the driver."""
    _lib().fallow_torch_reset()


def sleep(device=0, save=(), wait=True):
    """Give the physical memory of what PyTorch, RMM and arenas hold on a device back to the driver, and keep
    every address: after wake() tensors and graphs are where they were.

    save  tags (see tagged()) of blocks whose contents are kept in pinned host memory meanwhile; 0 stands for
          blocks without a tag; "all": every block. All other contents are lost.
    wait  False: a device that is busy is an error, instead of waited for"""
    tags = [] if save == "all" else list(save)
    array = (ctypes.c_uint32 * max(1, len(tags)))(*tags)
    request = SleepRequest(ctypes.sizeof(SleepRequest), (1 if wait else 0) | (2 if save == "all" else 0), 0,
                           array, len(tags))
    _check(_lib().fallow_pool_sleep(_pool(device), ctypes.byref(request)), "fallow.sleep")


_EVERY_STREAM = 1 << 6  # of fallow_request.flags


def allocate(size, device=0):
    """Allocate `size` bytes and return their address. Every stream may use the memory immediately: no unfinished work
    uses it. From the pool of PyTorch, RMM and arenas. For libraries that allocate without a stream."""
    request = Request(ctypes.sizeof(Request), size, 0, _EVERY_STREAM, 0)
    address = ctypes.c_void_p()
    _check(_lib().fallow_alloc_request(_pool(device), ctypes.byref(request), None, ctypes.byref(address)),
           "fallow.allocate(%r)" % size)
    return address.value or 0


def free(address, device=0):
    """Free memory of allocate(). All work that uses the memory must be complete: synchronise first. Any stream may
    reuse the memory immediately."""
    _check(_lib().fallow_free_complete(_pool(device), address), "fallow.free")


def set_limit(limit, device=0):
    """Change the limit of each default pool of a device: bytes, "20G", or None for the device's total. A pool above the
    limit releases its free memory, and allocates no more from the driver until it is below. To limit pools before they
    exist, use configure()."""
    size = 0 if limit is None else _bytes(limit, "limit")
    pools = [pool for pool in (_pool(device, order, make=False) for order in _ORDERS) if pool is not None]
    if not pools:
        raise RuntimeError("fallow.set_limit: device %d has no pool yet; fallow.configure(limit=...) is for pools to come"
                           % device)
    for pool in pools:
        _check(_lib().fallow_pool_set_limit(pool, size), "fallow.set_limit")


_BEFORE_SLEEP = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
_AFTER_WAKE = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def watch_sleep(before_sleep=None, after_wake=None, device=0):
    """Call before_sleep() before each sleep of the pool of PyTorch, RMM and arenas on a device, and after_wake() after
    each wake and after a failed sleep. The sleep is refused if before_sleep returns true or raises an exception, which
    is printed. Deregister the memory there (from network cards, collective libraries).

    Returns a function that removes the watcher. Up to 16 watchers; a wake calls the last one first."""
    if before_sleep is None and after_wake is None:
        raise ValueError("fallow.watch_sleep needs before_sleep, after_wake, or both")

    def before(_):
        try:
            return 1 if before_sleep() else 0
        except Exception:  # no caller above could catch it
            import traceback  # slow to import

            traceback.print_exc()
            return 1

    pool = _pool(device)
    pair = (_BEFORE_SLEEP(before) if before_sleep is not None else _BEFORE_SLEEP(),
            _AFTER_WAKE(lambda _: after_wake()) if after_wake is not None else _AFTER_WAKE())
    _kept.append(pair)  # a concurrent sleep or wake may still call it after the removal
    _check(_lib().fallow_pool_watch_sleep(pool, *pair, None), "fallow.watch_sleep")
    return lambda: _check(_lib().fallow_pool_unwatch_sleep(pool, *pair, None), "the end of fallow.watch_sleep")


def wake(device=0):
    """Get the memory again, behind the same addresses, and what was saved into it. A MemoryError leaves it
    asleep: make room, and try again."""
    _check(_lib().fallow_pool_wake(_pool(device)), "fallow.wake")


def allow_peer(device, peer):
    """Let another device read and write all memory that a device's pool of PyTorch, RMM and arenas holds. Creating the
    pool of a second device in a process already does this; call it to retry if that failed."""
    _check(_lib().fallow_pool_allow_peer(_pool(device), peer), "fallow.allow_peer(%d, %d)" % (device, peer))


def deny_peer(device, peer):
    """Revoke the access of allow_peer(). The peer's work on the memory must be complete."""
    _check(_lib().fallow_pool_deny_peer(_pool(device), peer), "fallow.deny_peer(%d, %d)" % (device, peer))


def publish():
    """Show the pools of this process to `fallow top`, from now to its end. A machine without room in
    /dev/shm is an Error, which a program may well ignore."""
    _check(_lib().fallow_publish_start(None), "fallow.publish: no file in /dev/shm")


class tagged:
    """What this thread allocates through enable_torch() or rmm_resource() meanwhile bears a tag, 1 to
    4,294,967,295, by which reports name it and sleep() saves it:

        with fallow.tagged(1): model.cuda()"""

    def __init__(self, tag, device=0):
        if not 0 < tag < 1 << 32:
            raise ValueError("a tag of %r: 1 to 4294967295" % (tag,))
        self._arguments = (device, MempoolId(tag, 1 << 63))  # FALLOW_MEMPOOL_TAG

    def __enter__(self):
        _lib().fallow_torch_begin_allocate_to_pool(*self._arguments, None)
        return self

    def __exit__(self, *_):
        _lib().fallow_torch_end_allocate_to_pool(*self._arguments)
        _lib().fallow_torch_release_pool(*self._arguments)


_RECORDS_LOST = 26  # of fallow/status.h


class Recording:
    """What a default pool allocates and frees, in a file for `fallow report`, `fallow replay` and
    `fallow trace`:

        with fallow.Recording("mine.ftrace") as recording:
            with recording.phase("warm-up"): ...
            recording.mark("ready")

    flight=True keeps only the latest calls in memory, and writes them when dump() is called or an allocation
    fails. whole=True loses nothing: a thread that is faster than the file is written waits; without it what it
    does meanwhile is missing, and the end warns of it.

    stacks=True records each allocation with the call stack that asked for it, at most 16 frames of Python and as
    many of C, or as many as are given (up to 64): `fallow report` then says whose the memory is. A thread that has
    let the interpreter go, as PyTorch's operators do, takes it for that look; enter_python=False leaves it out, where
    some thread allocates with a lock held that another one, which has the interpreter, waits for."""

    def __init__(self, path, device=0, order="stream", flight=False, whole=False, stacks=False, enter_python=True):
        if flight and whole:
            raise ValueError("a flight recording keeps the latest calls only: flight or whole, not both")
        depth = 16 if stacks is True else int(stacks)
        if not 0 <= depth <= 64:
            raise ValueError("stacks=%r: True, or a number of frames up to 64" % (stacks,))
        flags = ((2 | 4) if flight else 1 if whole else 0) | (8 if depth and enter_python else 0)
        config = RecordConfig(ctypes.sizeof(RecordConfig), os.fsencode(path), 0, flags, 0, depth, 0)
        handle = ctypes.c_void_p()
        self._handle = None
        _check(_lib().fallow_record_start(_pool(device, order), ctypes.byref(config), ctypes.byref(handle)),
               "a recording to %s" % path)
        self._handle = handle

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self._handle is not None:
            self.stop()

    def stop(self):
        """End it. An error says that the file could not be written whole, a warning that calls are missing."""
        handle, self._handle = self._handle, None
        status = _lib().fallow_record_stop(handle)
        if status == _RECORDS_LOST:
            text = _lib().fallow_status_message(status).decode()
            warnings.warn("%s; here that is whole=True" % text, RuntimeWarning, stacklevel=2)
            return
        _check(status, "the end of a recording")

    def dump(self, path=None):
        """Write what there is now; a path of its own is for flight=True."""
        name = None if path is None else os.fsencode(path)
        _check(_lib().fallow_record_dump(self._handle, name), "a dump")

    def mark(self, name):
        """Something happened."""
        _check(_lib().fallow_record_mark(self._handle, name.encode()), "a mark")

    @contextlib.contextmanager
    def phase(self, name):
        """What is allocated inside belongs to the phase."""
        _check(_lib().fallow_record_phase_begin(self._handle, name.encode()), "a phase")
        try:
            yield
        finally:
            _check(_lib().fallow_record_phase_end(self._handle, name.encode()), "the end of a phase")


# ---- PyTorch

_TORCH_HOOKS = [
    ("set_reset_fn", "fallow_torch_reset"),
    ("set_memory_fraction_fn", "fallow_torch_memory_fraction"),
    ("set_base_alloc_fn", "fallow_torch_base_alloc"),
    ("set_record_stream_fn", "fallow_torch_record_stream"),
    ("set_begin_allocate_to_pool", "fallow_torch_begin_allocate_to_pool"),
    ("set_end_allocate_to_pool_fn", "fallow_torch_end_allocate_to_pool"),
    ("set_release_pool", "fallow_torch_release_pool"),
]


def enable_torch(**settings):
    """Make PyTorch allocate its CUDA memory from Fallow (change_current_allocator), graphs included.

    Call it before anything touches the GPU. `settings`: as configure(). Returns PyTorch's allocator object.
    Out of memory raises torch.OutOfMemoryError.
    PyTorch refuses torch.cuda.memory_stats(), memory_allocated(), memory snapshots and CUDA-graph trees
    (torch.compile(mode="reduce-overhead")) with any allocator of this kind: take fallow.stats(), or
    torch_mempool() for a part of the program."""
    torch = _framework("torch", "enable_torch()")
    memory = getattr(getattr(torch, "cuda", None), "memory", None)
    allocator = None
    if hasattr(memory, "CUDAPluggableAllocator"):
        allocator = memory.CUDAPluggableAllocator(library_path(), "fallow_torch_alloc", "fallow_torch_free")
    # Without the functions for graphs a capture would be given ordinary memory.
    if allocator is None or not hasattr(allocator.allocator(), "set_begin_allocate_to_pool"):
        raise ImportError("fallow.enable_torch() needs PyTorch 2.3 or newer with CUDA; this is %s; an older one "
                          "runs under `fallow run`" % getattr(torch, "__version__", "an unknown version"))
    if torch.cuda.is_initialized():
        raise RuntimeError("fallow.enable_torch() comes too late: CUDA is initialised already; call it "
                           "right after import torch")
    _configure(settings)
    inner = allocator.allocator()
    for setter, function in _TORCH_HOOKS:
        if hasattr(inner, setter):
            getattr(inner, setter)(_address(function))
    memory.change_current_allocator(allocator)
    _kept.append(allocator)
    return allocator


def torch_mempool(**settings):
    """A torch.cuda.MemPool whose segments come from Fallow, PyTorch's own allocator on top:

        with torch.cuda.use_mem_pool(fallow.torch_mempool()): ...

    Needs PyTorch 2.5 or newer. Statistics, snapshots and graph trees of PyTorch go on working."""
    torch = _framework("torch", "torch_mempool()")
    if not hasattr(getattr(torch, "cuda", None), "MemPool"):
        raise ImportError("fallow.torch_mempool() needs PyTorch 2.5 or newer with CUDA; this is %s"
                          % getattr(torch, "__version__", "an unknown version"))
    _configure(settings)
    allocator = torch.cuda.memory.CUDAPluggableAllocator(
        library_path(), "fallow_torch_segment_alloc", "fallow_torch_segment_free")
    try:
        pool = torch.cuda.MemPool(allocator.allocator())
    except (TypeError, AttributeError):  # one release took the outer object
        pool = torch.cuda.MemPool(allocator)
    _kept.append(allocator)  # PyTorch frees segments through it as long as the process lives
    return pool


# ---- CuPy


def enable_cupy(**settings):
    """Make CuPy allocate from Fallow, in the place of its own pool. `settings`: as configure().

    CuPy names no stream, so a block is reused when everything that the context had been given at its free
    is complete; captures are announced with capturing(). cupy.cuda.set_allocator(None) turns it off for what is allocated from then on."""
    cupy = _framework("cupy", "enable_cupy()")
    _configure(settings)
    memory = cupy.cuda.memory
    allocator = memory.CFunctionAllocator(
        0, _address("fallow_cupy_malloc"), _address("fallow_cupy_free"), _library)

    def malloc(size):
        """CuPy does not look for NULL itself."""
        pointer = allocator.malloc(size)
        if size > 0 and pointer.ptr == 0:
            now = stats(cupy.cuda.device.get_device_id(), "context")
            raise memory.OutOfMemoryError(size, now.get("requested_bytes", 0))
        return pointer

    cupy.cuda.set_allocator(malloc)
    _kept.append((allocator, malloc))
    return malloc


class capturing:
    """Around a capture of a stream by CuPy or Numba, from before its begin to after its end:

        with fallow.capturing():
            stream.begin_capture(); ...; graph = stream.end_capture()

    Pools in context order record no event meanwhile, which would end the capture. A capture of PyTorch's is
    announced by its first allocation; if other threads use CuPy while one begins, put it inside, too."""

    def __enter__(self):
        _lib().fallow_context_capture_begin()
        return self

    def __exit__(self, *_):
        _lib().fallow_context_capture_end()


class capture:
    """Announce the capture of a stream, from before its begin to after its end. Needed with PyTorch's own allocator, or
    with graphs that the program captures itself; enable_torch() announces PyTorch's captures.

        captured = fallow.capture(stream)
        with captured, torch.cuda.graph(graph, stream=stream):
            with arena.lease(layout) as lease: ...

    The graph may be launched until release(), each time after arena.guard(). Until then, arenas leased inside keep
    their memory at the same addresses."""

    def __init__(self, stream, device=0):
        self._stream, self._device, self._handle = _stream_handle(stream), device, None

    def __enter__(self):
        handle = ctypes.c_void_p()
        _lib().fallow_context_capture_begin()
        status = _lib().fallow_capture_begin(_pool(self._device), self._stream, ctypes.byref(handle))
        if status != 0:
            _lib().fallow_context_capture_end()
        _check(status, "fallow.capture")
        self._handle = handle
        return self

    def __exit__(self, *_):
        _lib().fallow_context_capture_end()
        _check(_lib().fallow_capture_end(self._handle), "the end of a capture")

    def join(self, stream):
        """Add a stream that takes part in the capture: it waits on an event of the capture."""
        _check(_lib().fallow_capture_join(self._handle, _stream_handle(stream)), "fallow.capture.join")

    def release(self):
        """Release the capture's memory. The graph must be destroyed, and its launches complete or ordered before the
        present end of the stream."""
        if self._handle is not None:
            _check(_lib().fallow_capture_release(self._handle), "fallow.capture.release")
            self._handle = None


# ---- Numba: NUMBA_CUDA_MEMORY_MANAGER=fallow, or numba.cuda.set_memory_manager(fallow._numba_memory_manager)


def _device_free_and_total(pool):
    """cuMemGetInfo of the current context."""
    entry = _lib().fallow_pool_driver_entry(pool, b"cuMemGetInfo_v2")
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    out = ctypes.POINTER(ctypes.c_size_t)
    ask = ctypes.CFUNCTYPE(ctypes.c_int, out, out)(entry)
    result = ask(ctypes.byref(free), ctypes.byref(total))
    if result != 0:
        raise RuntimeError("cuMemGetInfo answered %d: is a context current?" % result)
    return free.value, total.value


def _make_numba_manager():
    cuda = _framework("numba.cuda", "_numba_memory_manager")
    driver = _framework("numba.cuda.cudadrv.driver", "_numba_memory_manager")

    class FallowMemoryManager(cuda.GetIpcHandleMixin, cuda.HostOnlyCUDAMemoryManager):
        """Device memory of Numba from Fallow's pools; pinned host memory stays Numba's own."""

        def initialize(self):
            parent = getattr(super(), "initialize")
            if not getattr(parent, "__isabstractmethod__", False):
                parent()

        def memalloc(self, size):
            device = self.context.device.id
            address = _lib().fallow_cupy_malloc(None, size, device)
            if not address and size > 0:
                self.deallocations.clear()
                address = _lib().fallow_cupy_malloc(None, size, device)
            if not address and size > 0:
                raise MemoryError("no %d bytes on device %d; fallow.report() says whose they are" % (size, device))
            if getattr(driver, "USE_NV_BINDING", True):
                pointer = driver.binding.CUdeviceptr(address or 0)
            else:
                pointer = ctypes.c_uint64(address or 0)
            free = _lib().fallow_cupy_free

            def finalizer():
                free(None, address, device)

            return cuda.MemoryPointer(self.context, pointer, size, finalizer=finalizer)

        def get_memory_info(self):
            device = self.context.device.id
            pool = _pool(device, "context")
            free, total = _device_free_and_total(pool)
            now = stats(device, "context")
            return cuda.MemoryInfo(free=free + now["reserved_bytes"] - now["live_bytes"], total=total)

        def reset(self):
            super().reset()
            trim()

        @property
        def interface_version(self):
            return 1

    return FallowMemoryManager


def __getattr__(name):
    """Load attributes on first use that need Numba or the modules of reports, so that the import needs neither."""
    if name == "_numba_memory_manager":
        value = _make_numba_manager()
    elif name in ("report_html", "watch_oom"):
        from fallow import _report

        value = getattr(_report, name)
    else:
        raise AttributeError("module 'fallow' has no attribute %r" % name)
    globals()[name] = value
    return value


# ---- RMM


def _stream_handle(stream):
    """A CUstream as a number, from None (default), a number, or an object of a framework."""
    if stream is None:
        return 0
    if isinstance(stream, int):
        return stream
    if hasattr(stream, "__cuda_stream__"):
        return int(stream.__cuda_stream__()[1])
    for name in ("cuda_stream", "ptr", "handle"):  # PyTorch; CuPy; Numba, cuda.core
        value = getattr(stream, name, None)
        if value is not None:
            return int(getattr(value, "value", value) or 0)
    raise TypeError("%r is no stream: give a number, None, or an object with __cuda_stream__" % (stream,))


def rmm_resource(device=0, **settings):
    """A memory resource for RMM whose memory is Fallow's, on the streams that RMM names, which have to live as
    long as the program allocates. Each call goes through Python."""
    rmm = _framework("rmm", "rmm_resource()")
    _configure(settings)
    lib = _lib()

    def allocate(size, stream=None):
        address = lib.fallow_rmm_alloc(size, device, _stream_handle(stream))
        if not address and size > 0:
            raise MemoryError("no %d bytes on device %d; fallow.report() says whose they are" % (size, device))
        return address or 0

    def deallocate(address, size, stream=None):
        lib.fallow_torch_free(address, size, device, _stream_handle(stream))

    return rmm.mr.CallbackMemoryResource(allocate, deallocate)


def enable_rmm(device=0, **settings):
    """rmm_resource(), set as RMM's for the device."""
    rmm = _framework("rmm", "enable_rmm()")
    resource = rmm_resource(device, **settings)
    rmm.mr.set_per_device_resource(device, resource)
    return resource


from fallow import _arena  # last: imports names from above
from fallow._arena import Arena, Layout, Lease, layout
