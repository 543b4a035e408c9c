# SPDX-License-Identifier: Apache-2.0
"""Layouts, arenas, leases and their tensors. The module fallow re-exports the public names.

    layout = fallow.Layout([{"name": "out", "bytes": 1 << 20}, {"name": "sums", "bytes": 4096}])
    layout = fallow.layout("moe-triton", "qwen3-30b-a3b", tokens=8192)      # sized from a model
    arena = fallow.Arena(name="decode")
    arena.reserve([layout])                                                 # allocate now
    with arena.lease(layout) as lease:
        out = lease.torch("out", (tokens, 4096), torch.bfloat16)
"""
import ctypes
import math
import os
import sys
import weakref

from fallow import _bytes, _check, _configure, _framework, _in_python, _lib, _pool, _stream_handle, _word

# ---- structures of the headers; tests compare their offsets with the compiler's


class Region(ctypes.Structure):
    """fallow_region"""

    _fields_ = [
        ("name", ctypes.c_char_p),
        ("size_bytes", ctypes.c_size_t),
        ("align_bytes", ctypes.c_size_t),
        ("init", ctypes.c_int),
        ("first_phase", ctypes.c_uint32),
        ("last_phase", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("init_value", ctypes.c_int64),
        ("init_step", ctypes.c_int64),
        ("element_bytes", ctypes.c_uint32),
        ("reserved_0", ctypes.c_uint32),
    ]


_LOG = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p)
_WAKE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(Region), ctypes.c_void_p, ctypes.c_void_p)


class ArenaConfig(ctypes.Structure):
    """fallow_arena_config"""

    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("name", ctypes.c_char_p),
        ("tag", ctypes.c_uint32),
        ("checks", ctypes.c_uint32),
        ("scratch_bytes", ctypes.c_size_t),
        ("log", _LOG),
        ("log_context", ctypes.c_void_p),
        ("asks_captures", ctypes.c_uint8),
        ("reserved_0", ctypes.c_uint8 * 7),
    ]


class ArenaStats(ctypes.Structure):
    """fallow_arena_stats"""

    _fields_ = [("struct_size", ctypes.c_size_t)] + [
        (name, ctypes.c_uint64)
        for name in (
            "scratch_bytes persistent_bytes lease_count grow_count wait_count init_count refuse_count "
            "damage_count unwritten_count generation"
        ).split()
    ] + [("is_locked", ctypes.c_uint8), ("is_leased", ctypes.c_uint8), ("is_pinned", ctypes.c_uint8),
         ("reserved_0", ctypes.c_uint8 * 5), ("capture_count", ctypes.c_uint64), ("tag", ctypes.c_uint32),
         ("reserved_1", ctypes.c_uint32), ("name", ctypes.c_char * 64)]


_VISIT = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(ArenaStats))


class Model(ctypes.Structure):
    """fallow_model"""

    _fields_ = [("name", ctypes.c_char_p)] + [
        (name, ctypes.c_uint64)
        for name in (
            "layers hidden heads kv_heads head_dim intermediate vocab experts top_k expert_intermediate "
            "dense_layers shared_experts query_rank kv_rank rope_dim weight_bytes"
        ).split()
    ]


class Step(ctypes.Structure):
    """fallow_step"""

    _fields_ = [("struct_size", ctypes.c_size_t)] + [
        (name, ctypes.c_uint64)
        for name in (
            "batch tokens context page_size chunk draft_tokens splits sm_count tensor_ranks expert_ranks "
            "block_rows value_bytes"
        ).split()
    ] + [("pads_values", ctypes.c_uint8), ("quantises", ctypes.c_uint8), ("activates_in_place", ctypes.c_uint8),
         ("overlaps", ctypes.c_uint8), ("reserved_0", ctypes.c_uint8 * 4)]


class Path(ctypes.Structure):
    """fallow_path"""

    _fields_ = [
        ("name", ctypes.c_char_p),
        ("summary", ctypes.c_char_p),
        ("make", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Model), ctypes.POINTER(Step),
                                  ctypes.POINTER(ctypes.c_void_p))),
        ("phases", ctypes.c_void_p),
    ]


def declare(say):
    """Declare the functions of arena.h, layouts.h and model.h, with say(name, result, *arguments)."""
    pointer, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    out = ctypes.POINTER(ctypes.c_void_p)
    say("fallow_layout_create", number, ctypes.POINTER(Region), size, out)
    say("fallow_layout_destroy", None, pointer)
    for name in ("bytes", "lower_bound", "persistent_bytes", "region_count"):
        say("fallow_layout_" + name, size, pointer)
    say("fallow_layout_set_name", number, pointer, ctypes.c_char_p)
    say("fallow_layout_name", ctypes.c_char_p, pointer)
    say("fallow_layout_region", number, pointer, size, ctypes.POINTER(Region), ctypes.POINTER(size))
    say("fallow_arena_create", number, pointer, ctypes.POINTER(ArenaConfig), out)
    say("fallow_arena_destroy", None, pointer)
    say("fallow_arena_set_budget", number, pointer, ctypes.c_size_t)
    for name in ("lock", "unlock", "trim", "lose_contents"):
        say("fallow_arena_" + name, number, pointer)
    say("fallow_arena_on_wake", number, pointer, _WAKE, pointer)
    say("fallow_arena_get_stats", number, pointer, ctypes.POINTER(ArenaStats))
    say("fallow_pool_visit_arenas", number, pointer, _VISIT, pointer)
    say("fallow_arena_last_error", None, pointer, ctypes.c_char_p, size)
    say("fallow_lease_begin_within", number, pointer, pointer, pointer, ctypes.c_uint32, out)
    say("fallow_lease_end", number, pointer, pointer)
    say("fallow_arenas_reserve", number, ctypes.POINTER(pointer), size, pointer, pointer)
    say("fallow_lease_set_used", number, pointer, size, size)
    say("fallow_lease_guard", number, pointer, pointer)
    say("fallow_lease_region_at", pointer, pointer, size)
    say(
        "fallow_lease_export", number, pointer, size, ctypes.POINTER(ctypes.c_int64),
        ctypes.POINTER(ctypes.c_int64), number, ctypes.c_uint8, ctypes.c_uint8, ctypes.c_uint64, out,
    )
    say("fallow_export_unversioned", pointer, pointer)
    say("fallow_path_at", ctypes.POINTER(Path), size)
    say("fallow_model_preset", ctypes.POINTER(Model), size)


_INITS = ["dirty", "prefix", "once", "leading_zero", "counter", "zero", "sentinel", "valid_tail", "neutral_tail"]
_LEVELS = ["error", "warning", "info"]
_DTYPES = {  # DLPack code and bits
    "int8": (0, 8), "int16": (0, 16), "int32": (0, 32), "int64": (0, 64),
    "uint8": (1, 8), "uint16": (1, 16), "uint32": (1, 32), "uint64": (1, 64),
    "float16": (2, 16), "float32": (2, 32), "float64": (2, 64),
    "bfloat16": (4, 16), "bool": (6, 8),
    "float8_e3m4": (7, 8), "float8_e4m3": (8, 8), "float8_e4m3b11fnuz": (9, 8), "float8_e4m3fn": (10, 8),
    "float8_e4m3fnuz": (11, 8), "float8_e5m2": (12, 8), "float8_e5m2fnuz": (13, 8), "float8_e8m0fnu": (14, 8),
    "float4_e2m1fn_x2": (17, 4),  # a pair in a byte
}
_LEASE_STREAM = -1  # FALLOW_LEASE_STREAM


def _dlpack_of(dtype):
    """Return DLPack's code and bits of "bfloat16", torch.bfloat16, numpy.float32 ..."""
    word = (getattr(dtype, "__name__", None) or str(dtype)).rsplit(".", 1)[-1]
    if word not in _DTYPES:
        raise TypeError("%r is no type that a region can have: one of %s" % (dtype, ", ".join(_DTYPES)))
    return _DTYPES[word]


def _same(stream):
    """Return a stream's number. DLPack's numbers for the default stream are 1 and None."""
    return 0 if stream in (None, 1) else stream


def _is_torch(dtype):
    return str(dtype).startswith("torch.")


class Layout:
    """Named regions of a step's scratch memory (fallow_layout). Each region is a dict:

        {"name": "out", "bytes": 4096, "align": 256, "init": "dirty", "phases": (0, 3), "persistent": False,
         "value": 0, "step": 0, "element_bytes": 4}

    name        at most 63 bytes, unique in the layout; required
    bytes       size; required
    align       a power of two up to 2 MiB; 0: 256
    phases      the first and the last phase in which the region is alive; regions never alive together share bytes
    persistent  True: keep address and contents between leases, in a block apart from scratch
    init        required contents before the first read: "dirty", "prefix", "once", "leading_zero", "counter",
                "zero", "sentinel", "valid_tail", "neutral_tail" (fallow/init_class.h)
    value, step, element_bytes   initial values of persistent regions: element i holds value + i * step

    `name` is the layout's name in messages and reports."""

    def __init__(self, regions, name=None):
        array = (Region * len(regions))()
        for place, region in zip(array, regions):
            unknown = set(region) - {"name", "bytes", "align", "init", "phases", "persistent", "value", "step",
                                     "element_bytes"}
            if unknown:
                raise ValueError("a region has no %s" % ", ".join(sorted(unknown)))
            place.name = region["name"].encode()
            place.size_bytes = min(region["bytes"], 1 << 63)  # refused; ctypes would cut larger numbers
            place.align_bytes = region.get("align", 0)
            place.init = _word(region.get("init", "dirty"), _INITS, "init")
            place.first_phase, place.last_phase = region.get("phases", (0, 0))
            place.flags = 1 if region.get("persistent", False) else 0
            place.init_value = region.get("value", 0)
            place.init_step = region.get("step", 0)
            place.element_bytes = region.get("element_bytes", 0)
        handle = ctypes.c_void_p()
        self._handle = None
        status = _lib().fallow_layout_create(array, len(regions), ctypes.byref(handle))
        _check(status, "fallow.Layout", None if status == 0 else _refused_region(array))
        self._adopt(handle, regions)
        if name is not None:
            _check(_lib().fallow_layout_set_name(handle, name.encode()), "the name %r of a layout" % name)

    def _adopt(self, handle, regions=None):
        self._handle = handle
        self._indices = {region["name"]: index for index, region in enumerate(regions or self.regions)}

    def __del__(self):
        if getattr(self, "_handle", None) is not None and _lib is not None:
            _lib().fallow_layout_destroy(self._handle)

    @property
    def name(self):
        """The name in messages and reports; for a ready layout the name of the path."""
        return _lib().fallow_layout_name(self._handle).decode()

    @property
    def bytes(self):
        """Bytes of the scratch block."""
        return _lib().fallow_layout_bytes(self._handle)

    @property
    def lower_bound(self):
        """The most bytes alive in any one phase: no placement is smaller."""
        return _lib().fallow_layout_lower_bound(self._handle)

    @property
    def persistent_bytes(self):
        """Bytes of the persistent regions, outside of the scratch block."""
        return _lib().fallow_layout_persistent_bytes(self._handle)

    @property
    def regions(self):
        """A dict for each region, as given to __init__ with defaults filled in, plus "offset" in the scratch block
        (0 for persistent regions)."""
        made = []
        for index in range(_lib().fallow_layout_region_count(self._handle)):
            region, offset = Region(), ctypes.c_size_t()
            _check(_lib().fallow_layout_region(self._handle, index, ctypes.byref(region), ctypes.byref(offset)),
                   "region %d" % index)
            made.append(dict(_describe(region), offset=offset.value))
        return made

    def _find(self, name):
        if name not in self._indices:
            raise KeyError("layout '%s' has no region %r: it has %s" % (self.name, name, ", ".join(self._indices)))
        return self._indices[name]


def _refused_region(array):
    """Return the reason for a refused layout: create a layout of each region alone."""
    for region in array:
        handle = ctypes.c_void_p()
        if _lib().fallow_layout_create(region, 1, ctypes.byref(handle)) != 0:
            return "a layout cannot have the region %s: help(fallow.Layout)" % _describe(region)
        _lib().fallow_layout_destroy(handle)
    return "it has no region, two of one name, or more bytes than 2^62"


def _describe(region):
    return {"name": region.name.decode(), "bytes": region.size_bytes, "align": region.align_bytes,
            "init": _INITS[region.init], "phases": (region.first_phase, region.last_phase),
            "persistent": bool(region.flags & 1), "value": region.init_value, "step": region.init_step,
            "element_bytes": region.element_bytes}


# ---- ready layouts


def _table(function):
    """Return the rows of a table of the library, by name."""
    rows = {}
    while function(len(rows)):
        row = function(len(rows)).contents
        rows[row.name.decode()] = row
    return rows


def _model_of_config(config):
    """Return the Model of a HuggingFace config.json."""
    config = config.get("text_config") or config

    def first(*names):
        return next((int(config[name]) for name in names if config.get(name)), 0)

    model = Model(b"config.json", first("num_hidden_layers"), first("hidden_size"), first("num_attention_heads"),
                  first("num_key_value_heads", "num_attention_heads"), first("head_dim"), first("intermediate_size"),
                  first("vocab_size"), first("n_routed_experts", "num_experts", "num_local_experts"))
    if not model.hidden or not model.heads:
        raise ValueError("a config.json without hidden_size or num_attention_heads describes no language model")
    if model.experts:
        model.top_k = first("num_experts_per_tok", "num_experts_per_token", "moe_topk")
        model.expert_intermediate = first("moe_intermediate_size", "intermediate_size")
        model.dense_layers = first("first_k_dense_replace")
        model.shared_experts = (first("n_shared_experts", "num_shared_experts")
                                or first("shared_expert_intermediate_size") // max(1, model.expert_intermediate))
        model.intermediate = model.intermediate if model.dense_layers else 0
    model.kv_rank = first("kv_lora_rank")
    if model.kv_rank:  # latent attention: one row for all heads
        model.query_rank, model.rope_dim = first("q_lora_rank"), first("qk_rope_head_dim")
        model.kv_heads, model.head_dim = 1, first("qk_nope_head_dim")
        if model.head_dim != first("v_head_dim"):
            raise ValueError("values of %d elements and keys of %d without rope: the ready layouts are for models "
                             "where they are equal" % (first("v_head_dim"), model.head_dim))
    model.head_dim = model.head_dim or model.hidden // model.heads
    quantised = config.get("quantization_config") or {}
    model.weight_bytes = 1 if "fp8" in str(quantised.get("quant_method")) else 2
    return model


def _model(given):
    presets = _table(_lib().fallow_model_preset)
    if isinstance(given, str) and given in presets:
        return presets[given]
    if not isinstance(given, dict):
        path = os.path.join(given, "config.json") if os.path.isdir(given) else given
        if not os.path.exists(path):
            raise ValueError("model is %r: one of %s, or the config.json of a model: its path, its folder, or what it "
                             "holds as a dict" % (given, ", ".join(presets)))
        import json  # slow to import

        with open(path, encoding="utf-8") as file:
            given = json.load(file)
    return _model_of_config(given)


def layout(path, model, **step):
    """Return a ready layout (layouts.h): the scratch memory of a step of `path`, sized from the model and the step.

        fallow.layout("moe-triton", "qwen3-30b-a3b", tokens=8192, expert_ranks=8)
        fallow.layout("flashmla-decode", "/models/DeepSeek-V3/config.json", batch=256, context=32768)

    path   a name in the list of `fallow layout --help`
    model  a name in the list of `fallow layout --help`, or a HuggingFace config.json: file, folder, or dict
    step   fields of fallow_step: batch, tokens, context, page_size, ..."""
    paths = _table(_lib().fallow_path_at)
    values = Step(struct_size=ctypes.sizeof(Step))
    _word(path, list(paths), "path")
    for name, value in step.items():
        _word(name, [field for field, _ in Step._fields_[1:-1]], "a size of the step")
        setattr(values, name, value)
    handle = ctypes.c_void_p()
    _check(paths[path].make(ctypes.byref(_model(model)), ctypes.byref(values), ctypes.byref(handle)),
           "fallow.layout(%r, %r)" % (path, model), "the model has nothing for that path, the step lacks a size, "
           "a size is too large, or ranks do not divide the model")
    made = Layout.__new__(Layout)
    made._adopt(handle)
    return made


class Arena:
    """Scratch memory of a step, borrowed once and reused dirty (fallow_arena), from the device's default
    pool:

        arena = fallow.Arena(name="decode")
        with arena.lease(layout) as lease:
            out = lease.torch("out", (tokens, 4096), torch.bfloat16)
        q, k = arena.get(("q", (tokens, 576), torch.bfloat16), ("k", (tokens, 64), torch.bfloat16))

    name      for messages and reports
    tag       of the arena's memory: see tagged(). sleep(save=[tag]) saves scratch too
    checks    for tests and debugging, a sum: 1 fills scratch with poison, 2 adds red zones, 4 reports regions that were
              not written and writes after the end of a lease. The simulated device needs FALLOW_SIMCUDA=contents
    log       called as log(level, message) for each refusal and finding; level: "error", "warning" or "info"
    settings  as configure()

    The first lease that needs memory allocates it; the arena keeps it. One lease is open at a time. Any thread may
    call. Methods raise fallow.Error with the library's message, or MemoryError; the arena is then unchanged.
    Captures of streams with leases must be announced: enable_torch() does so, otherwise use capture(). Each lease, end
    and guard makes one driver call, to query whether the stream is being captured; in steady state no other."""

    def __init__(self, device=0, name="arena", tag=0, checks=0, log=None, **settings):
        _configure(settings)
        self._device = device
        self._handle = None
        self._got = None  # the lease of get()
        self._layouts = {}  # of get(), most recently used last
        self._refusals = 0  # refuse_count already handled; the library counts refusals with a reason
        self._wake = _WAKE()
        self._log = _LOG() if log is None else _LOG(lambda _, level, text: log(_LEVELS[level], text.decode()))
        config = ArenaConfig(ctypes.sizeof(ArenaConfig), name.encode(), tag, checks, 0, self._log, asks_captures=1)
        handle = ctypes.c_void_p()
        status = _lib().fallow_arena_create(_pool(device), ctypes.byref(config), ctypes.byref(handle))
        _check(status, "fallow.Arena (a process has at most 4,096 at a time)")
        self._handle = handle

    def close(self):
        """Destroy the arena and return its memory to the pool. If a lease is open, this happens when the lease ends."""
        if self._handle is not None and _lib is not None:
            self._settle()
            _lib().fallow_arena_destroy(self._handle)
        self._handle = None

    def __del__(self):
        if getattr(self, "_handle", None) is not None:
            self.close()

    def _settle(self):
        """End the lease of get(); its tensors must not be used any more."""
        lease, self._got = self._got, None
        if lease is not None and lease._handle is not None:
            self._refused(_lib().fallow_lease_end(lease._handle, _LEASE_STREAM), "end of the lease")
            lease._handle = None

    def _call(self, function, *arguments):
        self._settle()
        self._refused(getattr(_lib(), "fallow_" + function)(self._handle, *arguments), function.split("_", 1)[1])

    def _refused(self, status, what):
        if status == 0:
            return
        if self._handle is None:
            raise RuntimeError("%s: the arena is closed" % what)
        count = self.stats()["refuse_count"]
        has_reason, self._refusals = count != self._refusals, count
        text = ctypes.create_string_buffer(512 if has_reason else 1)
        _lib().fallow_arena_last_error(self._handle, text, len(text))
        _check(status, what, _in_python(text.value.decode(errors="replace")))

    def reserve(self, need, stream=None, lanes=()):
        """Allocate now the memory that later leases need, and initialise persistent regions. Call before captures and
        lock(), which forbid growth. Without reserve(), the first lease that needs memory allocates it.

        need    a list of layouts, or bytes of scratch, also as "2G"
        stream  as in lease()
        lanes   further arenas; for each layout all arenas get the memory, or none"""
        if isinstance(need, (int, str)):
            need = [Layout([{"name": "reserve", "bytes": _bytes(need, "reserve")}], "reserve")]
        arenas = [self, *lanes]
        for arena in arenas:
            arena._settle()
        refusals = [arena.stats()["refuse_count"] for arena in arenas]
        handles = (ctypes.c_void_p * len(arenas))(*[arena._handle.value for arena in arenas])
        number = self._stream_of(stream)
        for each in sorted(need, key=lambda layout: -layout.bytes):
            status = _lib().fallow_arenas_reserve(handles, len(arenas), each._handle, number)
            if status != 0:
                by = [arena for arena, count in zip(arenas, refusals) if arena.stats()["refuse_count"] > count]
                (by or arenas)[0]._refused(status, "reserve")

    def lock(self):
        """Set the budget to the bytes that the arena holds. Call after warm-up."""
        self._call("arena_lock")

    def unlock(self):
        """Remove the budget of lock() or set_budget()."""
        self._call("arena_unlock")

    def set_budget(self, bytes):
        """Refuse leases that need the arena to hold more than `bytes` (a number, or "2G"), scratch and persistent
        regions together. The error names the layout, its largest region, the bytes and the budget."""
        self._call("arena_set_budget", _bytes(bytes, "set_budget"))

    def trim(self):
        """Return the arena's memory to the pool; contents of persistent regions are lost. While captures hold
        addresses, return only scratch that no graph uses, and raise an Error with the bytes that stay."""
        self._call("arena_trim")

    def lose_contents(self):
        """Declare the values of persistent regions lost, for example after an aborted step. The next lease initialises
        the regions of its layout again, the next guard() those of all layouts."""
        self._call("arena_lose_contents")

    def on_wake(self, wake):
        """Call wake(region, address, stream) for each persistent region that must be initialised, at first or again
        after its values were lost. None: no callback. The callback queues the initialisation on `stream`, a number, and
        returns true. If it returns false or raises an exception, which is printed, the region is initialised by "init".
        region: a dict as in Layout.regions. The callback must not call the arena."""

        def call(_, region, address, stream):
            try:
                return 0 if wake(_describe(region.contents), address, stream or 0) else 1
            except Exception:  # no caller above could catch it
                import traceback  # slow to import

                traceback.print_exc()
                return 1

        called = _WAKE() if wake is None else _WAKE(call)
        self._call("arena_on_wake", called, None)
        self._wake = called

    def guard(self, stream=None):
        """Order a graph launch on `stream` after the previous lease or launch. Call before each launch of a graph that
        was captured with leases of the arena. `stream`: as in lease()."""
        self._call("lease_guard", self._stream_of(stream))

    def stats(self):
        """Return the counters as a dict (fallow_arena_stats)."""
        values = ArenaStats(struct_size=ctypes.sizeof(ArenaStats))
        self._refused(_lib().fallow_arena_get_stats(self._handle, ctypes.byref(values)), "stats")
        return _counters(values)

    def _stream_of(self, stream):
        if stream is None:
            torch = sys.modules.get("torch")
            if torch is not None and torch.cuda.is_initialized():
                stream = torch.cuda.current_stream(self._device)
        return _stream_handle(stream)

    def lease(self, layout, stream=None, wait_ms=0):
        """Borrow all regions for work queued on `stream` from now on. Returns a Lease.

        stream   None: PyTorch's current stream if PyTorch is imported and uses CUDA, otherwise the default stream
        wait_ms  most time to wait, in the order of calls, while another thread leases the arena; None: no limit"""
        number = self._stream_of(stream)
        handle = ctypes.c_void_p()
        most_ms = 0xFFFFFFFF if wait_ms is None else wait_ms
        if not 0 <= most_ms <= 0xFFFFFFFF:  # ctypes would keep the lower 32 bits
            raise ValueError("wait_ms is %r: 0 to 4,294,967,295 milliseconds, or None for no limit" % (wait_ms,))
        self._settle()
        status = _lib().fallow_lease_begin_within(self._handle, layout._handle, number, most_ms, ctypes.byref(handle))
        self._refused(status, "lease")
        return Lease(self, layout, number, handle)

    def get(self, *tensors, stream=None):
        """Borrow tensors in one line. Returns a tuple with a tensor for each (name, shape, dtype).

            q, k = arena.get(("q", (tokens, 576), torch.bfloat16), ("k", (tokens, 64), torch.bfloat16))

        The tensors are dirty and share no bytes. Use them for work queued on `stream` (as in lease()) before the next
        call on the arena by any thread, which ends their lease. A dtype of PyTorch gives a torch.Tensor, any other
        dtype (see Lease.tensor) an object with __dlpack__. The arena keeps the layouts of the last 256 different
        calls. Before captures and lock(), call get() with the largest shapes."""
        key = tuple((name, tuple(shape), dtype) for name, shape, dtype in tensors)
        layout = self._layouts.pop(key, None) or Layout([
            {"name": name, "bytes": math.prod(shape) * max(1, _dlpack_of(dtype)[1] // 8)}
            for name, shape, dtype in key], ", ".join([name for name, _, _ in key]).encode()[:63].decode(errors="ignore"))
        self._layouts[key] = layout
        if len(self._layouts) > 256:
            del self._layouts[next(iter(self._layouts))]
        self._got = lease = self.lease(layout, stream)
        lease._arena = weakref.proxy(self)  # no reference cycle: a dropped arena is closed at once
        return tuple([lease.torch(*each) if _is_torch(each[2]) else lease.tensor(*each) for each in key])


def _counters(values):
    made = {name: getattr(values, name) for name, _ in ArenaStats._fields_[1:] if not name.startswith("reserved")}
    made["name"] = values.name.decode(errors="replace")
    return made


def arenas_of(pool):
    """Return the counters of each arena of a pool, as Arena.stats() does, also of arenas not made in Python."""
    made = []
    visit = _VISIT(lambda _, values: made.append(_counters(values.contents)))
    _check(_lib().fallow_pool_visit_arenas(pool, visit, None), "the arenas of a pool")
    return made


class Lease:
    """One use of an arena. A lease ends with its `with` block, by end(), or when the object is freed. Tensors of a
    lease hold addresses and do not extend the lease: after its end the next lease uses the same memory."""

    def __init__(self, arena, layout, stream, handle):
        self._arena, self._layout, self._stream, self._handle = arena, layout, stream, handle
        self._streams = {_same(stream)}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self._handle is not None:
            self.end()

    def __del__(self):
        if getattr(self, "_handle", None) is not None and _lib is not None:
            _lib().fallow_lease_end(self._handle, _LEASE_STREAM)
            self._handle = None

    def end(self, stream=None):
        """End the lease. Order later leases after all work queued on `stream` so far; None: the lease's stream."""
        number = self._stream if stream is None else _stream_handle(stream)
        self._arena._refused(_lib().fallow_lease_end(self._open(), number), "end of the lease")
        self._handle = None

    def _open(self):
        if self._handle is None:
            raise RuntimeError("the lease has ended")
        return self._handle

    def join(self, stream):
        """Allow tensors on another stream too. The caller must have made that stream wait for the lease's stream, and
        must make the stream of end() wait for that stream."""
        self._streams.add(_same(_stream_handle(stream)))

    def used(self, name, bytes):
        """Limit checks to the first `bytes` of a region, for a step smaller than the layout (fallow_lease_set_used)."""
        self._arena._refused(_lib().fallow_lease_set_used(self._open(), self._layout._find(name), bytes), "used")

    def address(self, name):
        """Return the region's device address."""
        return _lib().fallow_lease_region_at(self._open(), self._layout._find(name))

    def tensor(self, name, shape, dtype, byte_offset=0, strides=None):
        """Return the region, or a part, as an object with __dlpack__, for torch.from_dlpack and others. Do not use the
        object after the end of the lease (Arena(checks=4) finds writes).
        dtype: "bfloat16", torch.bfloat16, numpy.float32 ..."""
        self._open()
        return _View(self, self._layout._find(name), tuple(shape), strides, _dlpack_of(dtype), byte_offset)

    def torch(self, name, shape, dtype, byte_offset=0, strides=None):
        """Return the same as a PyTorch tensor."""
        torch = _framework("torch", "Lease.torch()")
        return torch.from_dlpack(self.tensor(name, shape, dtype, byte_offset, strides))


def _python(name, result, *arguments):
    return ctypes.PYFUNCTYPE(result, *arguments)((name, ctypes.pythonapi))


_capsule_new = _python("PyCapsule_New", ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
_capsule_is = _python("PyCapsule_IsValid", ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)
_capsule_get = _python("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)

_NAMES = {True: b"dltensor_versioned", False: b"dltensor"}  # static: capsules keep the pointer


class _Versioned(ctypes.Structure):
    """DLManagedTensorVersioned, up to the deleter."""

    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("manager", ctypes.c_void_p),
                ("deleter", ctypes.c_void_p)]


class _Unversioned(ctypes.Structure):
    """DLManagedTensor, from before DLPack 1.0."""

    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16), ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p),
                ("byte_offset", ctypes.c_uint64), ("manager", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


def _delete(address, is_versioned):
    form = _Versioned if is_versioned else _Unversioned
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(form.from_address(address).deleter)(address)


@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def _drop_capsule(capsule):
    """Free the tensor of a capsule that was never consumed. A consumer renames its capsule."""
    for is_versioned, name in _NAMES.items():
        if _capsule_is(capsule, name):
            _delete(_capsule_get(capsule, name), is_versioned)


_drop = ctypes.cast(_drop_capsule, ctypes.c_void_p)


class _View:
    """A region as a DLPack producer."""

    def __init__(self, lease, index, shape, strides, dtype, byte_offset):
        self._lease, self._index, self._dtype, self._byte_offset = lease, index, dtype, byte_offset
        self._shape = (ctypes.c_int64 * max(1, len(shape)))(*shape)
        self._strides = None if strides is None else (ctypes.c_int64 * max(1, len(strides)))(*strides)
        self._dimensions = len(shape)

    def __dlpack_device__(self):
        return (2, self._lease._arena._device)

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        """Return a capsule for the consumer. `stream`: the consumer's stream, which must be the lease's or joined; -1:
        the consumer orders the accesses itself."""
        if copy or (dl_device is not None and tuple(dl_device) != self.__dlpack_device__()):
            raise BufferError("a region is exported where it lies: it is neither copied nor moved")
        lease = self._lease
        if stream != -1 and _same(stream) not in lease._streams:
            raise BufferError("the lease is on stream %#x, the consumer on %#x: begin the lease on the consumer's stream, "
                              "or order it after the lease's and lease.join() it" % (lease._stream, stream or 0))
        exported = ctypes.c_void_p()
        status = _lib().fallow_lease_export(
            lease._open(), self._index, self._shape, self._strides, self._dimensions, self._dtype[0],
            self._dtype[1], self._byte_offset, ctypes.byref(exported))
        lease._arena._refused(status, "tensor")
        is_versioned = max_version is not None and tuple(max_version) >= (1, 0)
        address = exported.value
        if not is_versioned:
            address = _lib().fallow_export_unversioned(exported)
            if not address:
                _delete(exported.value, True)
                raise MemoryError("no host memory for a tensor")
        return _capsule_new(address, _NAMES[is_versioned], _drop)
