# SPDX-License-Identifier: Apache-2.0
"""Structures, constants and functions of include/fallow/*.h for ctypes. The test python.abi compares them with the
headers: PoolConfig with fallow_pool_config, and so on."""
from __future__ import annotations

from ctypes import (CFUNCTYPE, POINTER, Structure, c_char, c_char_p, c_double, c_int, c_int64, c_size_t, c_ssize_t,
                    c_uint8, c_uint32, c_uint64, c_void_p, sizeof)

from fallow._typing import Any

# ---- constants

FALLOW_OK = 0
FALLOW_BUSY = 7
FALLOW_OUT_OF_MEMORY = 20
FALLOW_OUT_OF_HOST_MEMORY = 21
FALLOW_RECORDS_LOST = 26
FALLOW_NOT_FOUND = 40

FALLOW_REQUEST_EVERY_STREAM = 1 << 6
FALLOW_SLEEP_WAIT = 1 << 0
FALLOW_SLEEP_SAVE_ALL = 1 << 1
FALLOW_RECORD_BLOCK_WHEN_FULL = 1 << 0
FALLOW_RECORD_RING_ONLY = 1 << 1
FALLOW_RECORD_DUMP_ON_OOM = 1 << 2
FALLOW_RECORD_ENTER_PYTHON = 1 << 3
FALLOW_REGION_PERSISTENT = 1 << 0
FALLOW_MEMPOOL_TAG = 1 << 63
FALLOW_ONE_HANDLE_NONE = (1 << 8 * sizeof(c_size_t)) - 1
FALLOW_LEASE_STREAM = FALLOW_ONE_HANDLE_NONE  # all bits of a pointer
UINT32_MAX = (1 << 32) - 1

#: The words that this package has for the constants of an enumeration, in the order of their values from 0.
WORDS = {
    "fallow_economy": ("balanced", "memory_first", "speed_first"),
    "fallow_reuse_policy": ("wait", "completed", "same_stream"),
    "fallow_page_source": ("automatic", "handles", "segments"),
    "fallow_plugin_order": ("stream", "context"),
    "fallow_log_level": ("error", "warning", "info"),
    "fallow_init_class": ("dirty", "prefix", "once", "leading_zero", "counter", "zero", "sentinel", "valid_tail",
                          "neutral_tail"),
}

# ---- structures


def _fields(kind: type[Any], names: str) -> list[tuple[str, type[Any]]]:
    return [(name, kind) for name in names.split()]


class _Checked(Structure):
    """A structure. The constructor sets struct_size, if there is that field, and refuses numbers that ctypes would
    cut."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields)
        for name, value in fields.items():
            if isinstance(value, int) and getattr(self, name) != value:
                raise ValueError("%s is %r: out of range" % (name, value))
        if self._fields_[0][0] == "struct_size":
            self.struct_size = sizeof(self)

    def numbers(self) -> dict[str, Any]:
        """Return the fields as a dict, without struct_size and the reserved ones."""
        return {name: getattr(self, name) for name, *_ in self._fields_[1:] if name[:-1] != "reserved_"}


LogFunction = CFUNCTYPE(None, c_void_p, c_int, c_char_p)
OomFunction = CFUNCTYPE(c_int, c_void_p, c_size_t, c_void_p)


class PoolConfig(_Checked):
    _fields_ = [
        ("struct_size", c_size_t), ("device", c_int), ("driver", c_char_p), ("context", c_void_p),
        ("limit_bytes", c_size_t), ("economy", c_int), ("cache_bytes", c_size_t), ("decay_ms", c_uint32),
        ("reuse_policy", c_int), ("checks", c_uint32), ("streams_may_die", c_uint8), ("helper_thread", c_uint8),
        ("reserved_0", c_uint8 * 2), ("wait_ms", c_uint32), ("peer_devices", POINTER(c_int)),
        ("peer_device_count", c_size_t), ("handle_types", c_uint32), ("order", c_int), ("log", LogFunction),
        ("log_context", c_void_p), ("on_oom", OomFunction), ("oom_context", c_void_p), ("page_source", c_int),
        ("reserved_1", c_uint32), ("one_handle_bytes", c_size_t),
    ]


class Stats(_Checked):
    _fields_ = [
        ("struct_size", c_size_t),
        *_fields(c_uint64, "requested_bytes live_bytes reserved_bytes peak_requested_bytes peak_live_bytes "
                 "peak_reserved_bytes alloc_count free_count zero_size_count hit_count event_count steal_count "
                 "wait_count driver_call_count remap_count remap_wait_count grow_count trim_count lost_streams "
                 "misuse_count oom_count cached_bytes deferred_bytes captured_bytes host_bytes live_count"),
        ("stream_count", c_uint32),
        *_fields(c_uint8, "uses_vmm uses_membarrier is_asleep lost_membarrier"),
        *_fields(c_uint64, "damage_count unchecked_count asleep_bytes saved_bytes exported_bytes imported_bytes "
                 "bound_bytes"),
        ("handle_types", c_uint32), ("page_source", c_uint8), ("allows_rdma", c_uint8), ("reserved_1", c_uint8 * 2),
        ("idle_bytes", c_uint64), ("question_count", c_uint64),
    ]


class OomOwner(Structure):
    _fields_ = [("stream_id", c_uint64), ("tag", c_uint32), ("count", c_uint32), ("bytes", c_uint64)]


class OomReport(_Checked):
    _fields_ = [
        ("struct_size", c_size_t),
        *_fields(c_uint64, "size_bytes limit_bytes reserved_bytes requested_bytes free_bytes largest_free_bytes "
                 "deferred_bytes captured_bytes device_free_bytes"),
        ("fragmentation", c_double), ("stage_count", c_uint64 * 12), ("stage_ns", c_uint64 * 12),
        ("owner_count", c_uint32), ("reserved_0", c_uint32), ("owners", OomOwner * 8), ("address_bytes", c_uint64),
        ("largest_address_bytes", c_uint64), ("lacks_addresses", c_uint32), ("reserved_1", c_uint32),
    ]


class SleepRequest(_Checked):
    _fields_ = [("struct_size", c_size_t), ("flags", c_uint32), ("reserved_0", c_uint32),
                ("saved_tags", POINTER(c_uint32)), ("saved_tag_count", c_size_t)]


class Request(_Checked):
    _fields_ = [("struct_size", c_size_t), ("size_bytes", c_size_t), ("align_bytes", c_size_t), ("flags", c_uint32),
                ("tag", c_uint32)]


class MempoolId(Structure):
    _fields_ = [("first", c_uint64), ("second", c_uint64)]


class RecordConfig(_Checked):
    _fields_ = [("struct_size", c_size_t), ("path", c_char_p), ("ring_bytes", c_size_t), ("flags", c_uint32),
                ("dump_signal", c_int), ("stack_depth", c_uint32), ("reserved_0", c_uint32)]


class Region(_Checked):
    _fields_ = [
        ("name", c_char_p), ("size_bytes", c_size_t), ("align_bytes", c_size_t), ("init", c_int),
        ("first_phase", c_uint32), ("last_phase", c_uint32), ("flags", c_uint32), ("init_value", c_int64),
        ("init_step", c_int64), ("element_bytes", c_uint32), ("reserved_0", c_uint32),
    ]


WakeFunction = CFUNCTYPE(c_int, c_void_p, POINTER(Region), c_void_p, c_void_p)
BeforeSleepFunction = CFUNCTYPE(c_int, c_void_p)
AfterWakeFunction = CFUNCTYPE(None, c_void_p)


class ArenaConfig(_Checked):
    _fields_ = [("struct_size", c_size_t), ("name", c_char_p), ("tag", c_uint32), ("checks", c_uint32),
                ("scratch_bytes", c_size_t), ("log", LogFunction), ("log_context", c_void_p),
                ("asks_captures", c_uint8), ("reserved_0", c_uint8 * 7)]


class ArenaStats(_Checked):
    _fields_ = [
        ("struct_size", c_size_t),
        *_fields(c_uint64, "scratch_bytes persistent_bytes lease_count grow_count wait_count init_count refuse_count "
                 "damage_count unwritten_count generation"),
        *_fields(c_uint8, "is_locked is_leased is_pinned"), ("reserved_0", c_uint8 * 5), ("capture_count", c_uint64),
        ("tag", c_uint32), ("reserved_1", c_uint32), ("name", c_char * 64),
    ]


ArenaVisitor = CFUNCTYPE(None, c_void_p, POINTER(ArenaStats))


class Model(_Checked):
    _fields_ = [("name", c_char_p), *_fields(
        c_uint64, "layers hidden heads kv_heads head_dim intermediate vocab experts top_k expert_intermediate "
        "dense_layers shared_experts query_rank kv_rank rope_dim weight_bytes")]


class Step(_Checked):
    _fields_ = [
        ("struct_size", c_size_t),
        *_fields(c_uint64, "batch tokens context page_size chunk draft_tokens splits sm_count tensor_ranks "
                 "expert_ranks block_rows value_bytes"),
        *_fields(c_uint8, "pads_values quantises activates_in_place overlaps"), ("reserved_0", c_uint8 * 4),
    ]


LayoutFunction = CFUNCTYPE(c_int, POINTER(Model), POINTER(Step), POINTER(c_void_p))


class Path(Structure):
    _fields_ = [("name", c_char_p), ("summary", c_char_p), ("make", LayoutFunction), ("phases", POINTER(c_char_p))]


# ---- functions

_OUT = POINTER(c_void_p)  # for a handle or an address

#: For each function fallow_NAME its result and its arguments. Handles, streams and addresses are c_void_p.
FUNCTIONS: dict[str, list[Any]] = {name: signature for names, *signature in (
    ("status_name status_message", c_char_p, c_int),
    # pools
    ("plugin_configure", c_int, POINTER(PoolConfig)),
    ("plugin_pool", c_int, c_int, c_int, c_int, _OUT),
    ("pool_get_stats", c_int, c_void_p, POINTER(Stats)),
    ("pool_get_oom_report", c_int, c_void_p, POINTER(OomReport)),
    ("pool_reset_peaks", c_int, c_void_p),
    ("pool_set_limit", c_int, c_void_p, c_size_t),
    ("pool_allow_peer pool_deny_peer", c_int, c_void_p, c_int),
    ("pool_driver_entry", c_void_p, c_void_p, c_char_p),
    ("pool_visit_arenas", c_int, c_void_p, ArenaVisitor, c_void_p),
    ("pool_sleep", c_int, c_void_p, POINTER(SleepRequest)),
    ("pool_watch_sleep pool_unwatch_sleep", c_int, c_void_p, BeforeSleepFunction, AfterWakeFunction, c_void_p),
    ("pool_wake publish_start", c_int, c_void_p),
    ("alloc_request", c_int, c_void_p, POINTER(Request), c_void_p, _OUT),
    ("free_complete", c_int, c_void_p, c_void_p),
    ("record_start", c_int, c_void_p, POINTER(RecordConfig), _OUT),
    ("record_dump record_phase_begin record_phase_end record_mark", c_int, c_void_p, c_char_p),
    ("record_stop", c_int, c_void_p),
    # frameworks and captures
    ("torch_alloc rmm_alloc", c_void_p, c_ssize_t, c_int, c_void_p),
    ("torch_free", None, c_void_p, c_ssize_t, c_int, c_void_p),
    ("torch_begin_allocate_to_pool", None, c_int, MempoolId, c_void_p),
    ("torch_end_allocate_to_pool torch_release_pool", None, c_int, MempoolId),
    ("torch_reset context_capture_begin context_capture_end", None),
    ("cupy_malloc", c_void_p, c_void_p, c_size_t, c_int),
    ("cupy_free", None, c_void_p, c_void_p, c_int),
    ("capture_begin", c_int, c_void_p, c_void_p, _OUT),
    ("capture_join", c_int, c_void_p, c_void_p),
    ("capture_end capture_release", c_int, c_void_p),
    # layouts
    ("layout_create", c_int, POINTER(Region), c_size_t, _OUT),
    ("layout_destroy", None, c_void_p),
    ("layout_bytes layout_lower_bound layout_persistent_bytes layout_region_count", c_size_t, c_void_p),
    ("layout_region", c_int, c_void_p, c_size_t, POINTER(Region), POINTER(c_size_t)),
    ("layout_set_name", c_int, c_void_p, c_char_p),
    ("layout_name", c_char_p, c_void_p),
    ("path_at", POINTER(Path), c_size_t),
    ("model_preset", POINTER(Model), c_size_t),
    # arenas and leases
    ("arena_create", c_int, c_void_p, POINTER(ArenaConfig), _OUT),
    ("arena_destroy", None, c_void_p),
    ("arena_lock arena_unlock arena_trim arena_lose_contents", c_int, c_void_p),
    ("arena_set_budget", c_int, c_void_p, c_size_t),
    ("arena_on_wake", c_int, c_void_p, WakeFunction, c_void_p),
    ("arena_get_stats", c_int, c_void_p, POINTER(ArenaStats)),
    ("arena_last_error", None, c_void_p, c_char_p, c_size_t),
    ("arenas_reserve", c_int, _OUT, c_size_t, c_void_p, c_void_p),
    ("lease_begin_within", c_int, c_void_p, c_void_p, c_void_p, c_uint32, _OUT),
    ("lease_end lease_guard", c_int, c_void_p, c_void_p),
    ("lease_set_used", c_int, c_void_p, c_size_t, c_size_t),
    ("lease_region_at", c_void_p, c_void_p, c_size_t),
    ("lease_export", c_int, c_void_p, c_size_t, POINTER(c_int64), POINTER(c_int64), c_int, c_uint8, c_uint8, c_uint64,
     _OUT),
    ("export_unversioned", c_void_p, c_void_p),
) for name in str(names).split()}
