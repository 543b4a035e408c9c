# SPDX-License-Identifier: Apache-2.0
"""Shared by the clients. A client prints its results, and nothing that may differ between two right runs, to
stdout; "seconds: N" and everything else to stderr. With --fallow it uses Fallow's plug-in and writes its counters to
FALLOW_CLIENT_STATS. Exit 77: its framework, or a GPU, is absent."""
import contextlib
import ctypes
import hashlib
import importlib
import json
import os
import sys
import time

is_plugged = "--fallow" in sys.argv


def absent(why):
    print(why, file=sys.stderr)
    sys.exit(77)


def need(name):
    """The module; absent without it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        absent("%s is not installed (%s)" % (name, error))


def need_torch():
    """PyTorch with a GPU, its sums in a fixed order; with --fallow on Fallow's allocator."""
    torch = need("torch")
    if not torch.cuda.is_available():
        absent("torch finds no CUDA device")
    if is_plugged and os.environ.get("FALLOW_CLIENT_FORM") != "mempool":
        import fallow

        fallow.enable_torch()
    torch.use_deterministic_algorithms(True)
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.manual_seed(1)
    return torch


class SimConfig(ctypes.Structure):
    """flw_sim_config of fallow/simcuda.h"""

    _fields_ = [("struct_size", ctypes.c_size_t), ("device_bytes", ctypes.c_uint64), ("device_count", ctypes.c_int),
                ("driver_version", ctypes.c_int), ("seed", ctypes.c_uint64), ("schedule", ctypes.c_int),
                ("profile", ctypes.c_int), ("lag_ns", ctypes.c_uint64), ("backed", ctypes.c_uint8),
                ("rest", ctypes.c_uint8 * 7), ("mild", ctypes.c_uint32), ("queue_depth", ctypes.c_uint32)]


def give_contents():
    """The simulated driver has memory with contents only on request; a real driver has no such function."""
    try:
        reset = ctypes.CDLL("libcuda.so.1").flw_sim_reset
    except (OSError, AttributeError):
        return
    config = SimConfig(struct_size=ctypes.sizeof(SimConfig), device_bytes=4 << 30, seed=1, backed=1)
    reset(ctypes.byref(config))


def torch_context(torch):
    """Where allocations are made: with --fallow and FALLOW_CLIENT_FORM=mempool in a memory pool over Fallow."""
    if not is_plugged or os.environ.get("FALLOW_CLIENT_FORM") != "mempool":
        return contextlib.nullcontext()
    if not hasattr(torch.cuda, "MemPool"):
        absent("this torch has no MemPool")
    import fallow

    return torch.cuda.use_mem_pool(fallow.torch_mempool())


def digest(text_or_bytes):
    data = text_or_bytes.encode() if isinstance(text_or_bytes, str) else bytes(text_or_bytes)
    return hashlib.sha256(data).hexdigest()[:16]


def tensor_digest(tensor):
    """Of the bits."""
    return digest(tensor.detach().cpu().contiguous().numpy().tobytes())


def write_stats():
    """Return the allocations that Fallow's pools served, in both orders."""
    path = os.environ.get("FALLOW_CLIENT_STATS")
    if is_plugged and path:
        import fallow

        count = sum(fallow.stats(0, order).get("alloc_count", 0) for order in ("stream", "context"))
        with open(path + ".part", "w") as file:
            json.dump({"all": {"allocs": count}, "report": fallow.report()}, file)
        os.replace(path + ".part", path)


class Timer:
    def __enter__(self):
        self.begun = time.monotonic()
        return self

    def __exit__(self, *_):
        print("seconds: %.3f" % (time.monotonic() - self.begun), file=sys.stderr)
