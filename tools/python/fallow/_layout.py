# SPDX-License-Identifier: Apache-2.0
"""Layouts of scratch memory, given by hand or sized from a model."""
from __future__ import annotations

import ctypes
import os

from fallow import _abi
from fallow._arguments import index_of
from fallow._library import check, lib
from fallow._typing import Any, Callable, Mapping, Sequence

_INITS = _abi.WORDS["fallow_init_class"]


class Layout:
    """Named regions of a step's scratch memory. Each region is a dict:

        {"name": "out", "bytes": 4096, "align": 256, "init": "dirty", "phases": (0, 3), "persistent": False,
         "value": 0, "step": 0, "element_bytes": 4}

    name        unique in the layout, at most 63 bytes; required
    bytes       size; required
    align       a power of two up to 2 MiB; 0: 256
    phases      first and last phase in which the region is alive; regions never alive together share bytes
    persistent  True: keep address and contents between leases, in a block apart from scratch
    init        required contents before the first read: "dirty", "prefix", "once", "leading_zero", "counter", "zero",
                "sentinel", "valid_tail", "neutral_tail" (fallow/init_class.h)
    value, step, element_bytes  initial values of persistent regions: element i holds value + i * step

    Layout(regions, name): `name` is for messages and reports. A layout holds no memory; arenas lease it. It never
    changes: any thread and several arenas may use it at once. Making one takes microseconds, for hundreds of regions
    up to 0.1 s. ValueError, Error: a region is invalid; the message names the fault."""

    def __init__(self, regions: Sequence[Mapping[str, Any]], name: str | None = None) -> None:
        array = (_abi.Region * len(regions))(*[_region_of(region) for region in regions])
        handle = ctypes.c_void_p()
        self._handle: ctypes.c_void_p | None = None
        status = lib().fallow_layout_create(array, len(regions), ctypes.byref(handle))
        check(status, "fallow.Layout", None if status == 0 else _refused_region(array))
        self._adopt(handle, regions)
        if name is not None:
            check(lib().fallow_layout_set_name(handle, name.encode()), "the name %r of a layout" % name)

    def _adopt(self, handle: ctypes.c_void_p, regions: Sequence[Mapping[str, Any]] | None = None) -> None:
        self._handle = handle
        self._indices = {region["name"]: index for index, region in enumerate(regions or self.regions)}

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None and lib is not None:
            lib().fallow_layout_destroy(self._handle)

    @property
    def name(self) -> str:
        """The name in messages and reports; for a ready layout the name of the path."""
        return str(lib().fallow_layout_name(self._handle), "utf-8")

    @property
    def bytes(self) -> int:
        """Bytes of the scratch block, which holds all regions that are not persistent."""
        return int(lib().fallow_layout_bytes(self._handle))

    @property
    def lower_bound(self) -> int:
        """The most bytes alive in one phase: no placement needs fewer."""
        return int(lib().fallow_layout_lower_bound(self._handle))

    @property
    def persistent_bytes(self) -> int:
        """Bytes of the persistent regions, outside of the scratch block."""
        return int(lib().fallow_layout_persistent_bytes(self._handle))

    @property
    def regions(self) -> list[dict[str, Any]]:
        """The regions as given, with defaults filled in and "offset" in the scratch block (0 if persistent)."""
        made = []
        for index in range(lib().fallow_layout_region_count(self._handle)):
            region, offset = _abi.Region(), ctypes.c_size_t()
            check(lib().fallow_layout_region(self._handle, index, ctypes.byref(region), ctypes.byref(offset)),
                  "region %d" % index)
            made.append(dict(describe(region), offset=offset.value))
        return made

    def _find(self, name: str) -> int:
        """Return the place of a region. KeyError lists the regions."""
        if name not in self._indices:
            raise KeyError("layout '%s' has no region %r: it has %s" % (self.name, name, ", ".join(self._indices)))
        return self._indices[name]


def _refused_region(array: ctypes.Array[_abi.Region]) -> str:
    """Return the reason for a refused layout: create a layout of each region alone."""
    for region in array:
        handle = ctypes.c_void_p()
        if lib().fallow_layout_create(region, 1, ctypes.byref(handle)) != 0:
            return "a layout cannot have the region %s: help(fallow.Layout)" % describe(region)
        lib().fallow_layout_destroy(handle)
    return "it has no region, two of one name, or more bytes than 2^62"


def _region_of(given: Mapping[str, Any]) -> _abi.Region:
    unknown = set(given) - {"name", "bytes", "align", "init", "phases", "persistent", "value", "step", "element_bytes"}
    if unknown:
        raise ValueError("a region has no %s" % ", ".join(sorted(unknown)))
    first, last = given.get("phases", (0, 0))
    return _abi.Region(
        name=given["name"].encode(), size_bytes=given["bytes"], align_bytes=given.get("align", 0),
        init=index_of(given.get("init", "dirty"), _INITS, "init"), first_phase=first, last_phase=last,
        flags=_abi.FALLOW_REGION_PERSISTENT if given.get("persistent") else 0, init_value=given.get("value", 0),
        init_step=given.get("step", 0), element_bytes=given.get("element_bytes", 0))


def describe(region: _abi.Region) -> dict[str, Any]:
    """Return a region as a dict, as Layout takes it."""
    return {"name": region.name.decode(), "bytes": region.size_bytes, "align": region.align_bytes,
            "init": _INITS[region.init], "phases": (region.first_phase, region.last_phase),
            "persistent": bool(region.flags & _abi.FALLOW_REGION_PERSISTENT), "value": region.init_value,
            "step": region.init_step, "element_bytes": region.element_bytes}


def _table(function: Callable[[int], Any]) -> dict[str, Any]:
    """Return the rows of a table of the library, by name."""
    rows: dict[str, Any] = {}
    while function(len(rows)):
        row = function(len(rows)).contents
        rows[row.name.decode()] = row
    return rows


def _model_of_config(config: Mapping[str, Any]) -> _abi.Model:
    """Return the Model of a HuggingFace config.json."""
    config = config.get("text_config") or config

    def first(*names: str) -> int:
        return next((int(config[name]) for name in names if config.get(name)), 0)

    model = _abi.Model(
        name=b"config.json", layers=first("num_hidden_layers"), hidden=first("hidden_size"),
        heads=first("num_attention_heads"), kv_heads=first("num_key_value_heads", "num_attention_heads"),
        head_dim=first("head_dim"), intermediate=first("intermediate_size"), vocab=first("vocab_size"),
        experts=first("n_routed_experts", "num_experts", "num_local_experts"))
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


def _model(given: Any) -> Any:
    presets = _table(lib().fallow_model_preset)
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


def layout(path: str, model: Any, **step: int) -> Layout:
    """Return a ready layout: the scratch memory of a step of `path`, sized from the model and the step.

        fallow.layout("moe-triton", "qwen3-30b-a3b", tokens=8192, expert_ranks=8)
        fallow.layout("flashmla-decode", "/models/DeepSeek-V3/config.json", batch=256, context=32768)

    path   "moe-triton" or another name that `fallow layout --help` lists
    model  a name that `fallow layout --help` lists, or a HuggingFace config.json: its path, its folder, or its
           contents as a dict
    step   sizes, by the names of fallow_step in fallow/layouts.h: batch, tokens, context, page_size, ...

    Needs no GPU. ValueError: a name or the config is not understood. Error: the model has nothing for that path, or a
    size is missing or too large."""
    paths = _table(lib().fallow_path_at)
    index_of(path, list(paths), "path")
    for name in step:
        index_of(name, list(_abi.Step().numbers()), "a size of the step")
    handle = ctypes.c_void_p()
    check(paths[path].make(ctypes.byref(_model(model)), ctypes.byref(_abi.Step(**step)), ctypes.byref(handle)),
          "fallow.layout(%r, %r)" % (path, model), "the model has nothing for that path, the step lacks a size, "
          "a size is too large, or ranks do not divide the model")
    made = Layout.__new__(Layout)
    made._adopt(handle)
    return made
