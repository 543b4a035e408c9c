# SPDX-License-Identifier: Apache-2.0
"""Stand-ins for frameworks that are not installed here: just enough of their surface to see which
addresses are handed over, and to call those with the frameworks' own signatures through ctypes. They prove
nothing about the frameworks themselves: check.frameworks compares their signatures with the real packages, and
tests/gpu/clients.sh runs those."""
import contextlib
import ctypes
import sys
import types

pointer, number = ctypes.c_void_p, ctypes.c_int


class MempoolId(ctypes.Structure):
    _fields_ = [("first", ctypes.c_uint64), ("second", ctypes.c_uint64)]


def function(address, result, *arguments):
    return ctypes.CFUNCTYPE(result, *arguments)(address)


@contextlib.contextmanager
def installed(**modules):
    """Put modules into sys.modules; a dot is two underscores."""
    modules = {name.replace("__", "."): module for name, module in modules.items()}
    before = {name: sys.modules.get(name) for name in modules}
    sys.modules.update(modules)
    try:
        yield
    finally:
        for name, module in before.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module


class TorchInner:
    """Substitute for the result of CUDAPluggableAllocator.allocator(): setters that take addresses."""

    def __init__(self, names):
        self.addresses = {}
        for name in names:
            setattr(self, name, self._setter(name))

    def _setter(self, name):
        def set_address(address):
            assert isinstance(address, int) and address > 0
            self.addresses[name] = address

        return set_address


def torch(version="2.8", initialized=False, with_pool=True, outer=False):
    newer = ["set_begin_allocate_to_pool", "set_end_allocate_to_pool_fn"]
    older = ["set_begin_allocate_stream_to_pool", "set_end_allocate_stream_to_pool_fn"]
    names = ["set_init_fn", "set_reset_fn", "set_memory_fraction_fn", "set_base_alloc_fn", "set_record_stream_fn",
             "set_release_pool"] + (older if version == "2.0" else newer)
    fake = types.ModuleType("torch")
    fake.__version__ = version
    fake.cuda = types.SimpleNamespace()
    fake.cuda.is_initialized = lambda: initialized
    fake.cuda.is_available = lambda: False
    fake.current = None
    fake.given = 0

    class CUDAPluggableAllocator:
        def __init__(self, path_to_so_file, alloc_fn_name, free_fn_name):
            library = ctypes.CDLL(path_to_so_file)  # as PyTorch does
            self.alloc = function(ctypes.cast(getattr(library, alloc_fn_name), pointer).value, pointer,
                                  ctypes.c_ssize_t, number, pointer)
            self.free = function(ctypes.cast(getattr(library, free_fn_name), pointer).value, None, pointer,
                                 ctypes.c_size_t, number, pointer)
            fake._C._cuda_customAllocator(self.alloc, self.free)
            self.inner = TorchInner(names)

        def allocator(self):
            return self.inner

    class MemPool:
        def __init__(self, allocator=None, use_on_oom=False, no_split=False):
            if isinstance(allocator, TorchInner) == outer:
                raise TypeError("incompatible constructor arguments")
            self.allocator = allocator

    def change_current_allocator(allocator):
        if fake.current is not None:
            raise RuntimeError("Can't swap an already initialized allocator")
        fake.current = allocator
        fake.given += 1

    def refuse(*_):
        raise RuntimeError("CUDAPluggableAllocator does not yet support getDeviceStats.")

    served = ["_cuda_memoryStats", "_cuda_resetPeakMemoryStats", "_cuda_resetAccumulatedMemoryStats"]
    if version == "2.15":
        served += ["_accelerator_isAllocatorInitialized", "_accelerator_emptyCache", "_accelerator_getDeviceStats",
                   "_accelerator_resetPeakStats", "_accelerator_resetAccumulatedStats"]
    fake._C = types.SimpleNamespace(**{name: refuse for name in served})
    fake._C._cuda_customAllocator = lambda alloc_fn, free_fn: None  # builds without CUDA lack it
    fake.cuda.memory = types.SimpleNamespace(
        CUDAPluggableAllocator=CUDAPluggableAllocator, change_current_allocator=change_current_allocator)
    if with_pool:
        fake.cuda.MemPool = MemPool
    return fake


def flat(stats):
    """As torch.cuda.memory_stats() shows a nested dict, and with the keys of PyTorch 2.15."""
    pools, metrics = ("all", "large_pool", "small_pool"), ("current", "peak", "allocated", "freed")
    keys = {(name, pool, metric) for pool in pools for metric in metrics for name in (
        "allocation", "active", "segment", "inactive_split", "allocated_bytes", "active_bytes", "requested_bytes",
        "reserved_bytes", "inactive_split_bytes")}
    keys |= {(name, metric) for name in ("oversize_allocations", "oversize_segments") for metric in metrics}
    keys |= {(name,) for name in ("num_alloc_retries", "num_ooms", "num_sync_all_streams", "num_device_alloc",
                                  "num_device_free", "num_oom_rejections", "max_split_size")}
    result = {}

    def add(path, value):
        if isinstance(value, dict):
            for key in value:
                add(path + (key,), value[key])
        else:
            assert type(value) is int
            result[path] = value

    add((), stats)
    assert set(result) == keys, set(result) ^ keys
    return {".".join(path): value for path, value in result.items()}


def cupy():
    fake = types.ModuleType("cupy")
    fake.current = None

    class OutOfMemoryError(MemoryError):
        def __init__(self, size, total, limit=0):
            super().__init__("Out of memory allocating %d bytes (allocated so far: %d bytes)" % (size, total))

    class CFunctionAllocator:
        def __init__(self, param, malloc_func, free_func, owner):
            self._malloc = function(malloc_func, pointer, pointer, ctypes.c_size_t, number)
            self._free = function(free_func, None, pointer, pointer, number)
            self._param = param

        def malloc(self, size):
            address = self._malloc(self._param, size, 0) if size > 0 else 0
            return types.SimpleNamespace(ptr=address or 0, free=lambda: self._free(self._param, address, 0))

    def set_allocator(allocator=None):
        fake.current = allocator

    memory = types.SimpleNamespace(CFunctionAllocator=CFunctionAllocator, OutOfMemoryError=OutOfMemoryError)
    device = types.SimpleNamespace(get_device_id=lambda: 0)
    fake.cuda = types.SimpleNamespace(memory=memory, device=device, set_allocator=set_allocator)
    return fake


def numba(uses_binding):
    """numba, numba.cuda, numba.cuda.cudadrv, numba.cuda.cudadrv.driver"""
    cuda = types.ModuleType("numba.cuda")
    driver = types.ModuleType("numba.cuda.cudadrv.driver")
    driver.USE_NV_BINDING = uses_binding

    class CUdeviceptr(int):
        pass

    driver.binding = types.SimpleNamespace(CUdeviceptr=CUdeviceptr)

    class HostOnlyCUDAMemoryManager:
        def __init__(self, *args, **kwargs):
            self.context = kwargs.pop("context")
            self.allocations = {}
            self.deallocations = types.SimpleNamespace(clear=lambda: None)

        def initialize(self):
            raise NotImplementedError

        initialize.__isabstractmethod__ = True

        def reset(self):
            self.allocations.clear()

    class MemoryPointer:
        def __init__(self, context, pointer, size, owner=None, finalizer=None):
            self.context, self.device_pointer, self.size, self.finalizer = context, pointer, size, finalizer

    class MemoryInfo:
        def __init__(self, free, total):
            self.free, self.total = free, total

    class GetIpcHandleMixin:
        def get_ipc_handle(self, memory):
            return memory

    def set_memory_manager(mm_plugin):
        cuda.manager = mm_plugin

    cuda.set_memory_manager = set_memory_manager
    cuda.HostOnlyCUDAMemoryManager, cuda.MemoryPointer, cuda.MemoryInfo, cuda.GetIpcHandleMixin = (
        HostOnlyCUDAMemoryManager, MemoryPointer, MemoryInfo, GetIpcHandleMixin)
    return types.ModuleType("numba"), cuda, types.ModuleType("numba.cuda.cudadrv"), driver


def rmm(version="26.10.00"):
    fake = types.ModuleType("rmm")
    fake.__version__ = version
    fake.current = {}

    class CallbackMemoryResource:
        def __init__(self, allocate_func, deallocate_func):
            self.allocate, self.deallocate = allocate_func, deallocate_func

    def set_per_device_resource(device, mr):
        fake.current[device] = mr

    class Stream:
        if version >= "25.12":

            def __cuda_stream__(self):
                return (0, 0)

    fake.pylibrmm = types.SimpleNamespace(stream=types.SimpleNamespace(Stream=Stream))
    fake.mr = types.SimpleNamespace(CallbackMemoryResource=CallbackMemoryResource,
                                    set_per_device_resource=set_per_device_resource)
    return fake


def torch_memory(free_bytes=1 << 20, refuses=None):
    """PyTorch 2.15's memory recording, by its own signatures, of a device with 64 MiB. `refuses`: the exception that a
    pluggable allocator raises when an observer is attached. fake.run_out(bytes) is a tensor too many."""
    fake = types.ModuleType("torch")
    fake.__version__ = "2.15.0"
    fake.history = None  # the last argument of _record_memory_history; None: off
    fake.observers = []
    fake.events = []
    total_bytes = 64 << 20

    class OutOfMemoryError(RuntimeError):
        pass

    def attach(observer, /):
        if refuses is not None:
            raise RuntimeError(refuses)
        fake.observers.append(observer)

    def record(enabled="all", context="all", stacks="all", max_entries=sys.maxsize, device=None, clear_history=False,
               compile_context=False, global_record_annotations=False, skip_actions=None,
               record_pinned_host_memory=False, record_cuda=True):
        assert enabled in (None, "state", "all") and stacks in ("python", "all") and context in (
            None, "state", "alloc", "all")
        fake.history = None if enabled is None else {"stacks": stacks, "max_entries": max_entries}

    def snapshot(device=None, augment_with_fx_traces=False):
        block = {"address": 0x7f0000000000, "size": total_bytes - free_bytes, "requested_size": total_bytes - free_bytes,
                 "state": "active_allocated", "frames": FRAMES}
        segment = {"device": 0, "address": 0x7f0000000000, "total_size": total_bytes - free_bytes, "stream": 0,
                   "segment_type": "large", "segment_pool_id": (0, 0), "is_expandable": False,
                   "allocated_size": total_bytes - free_bytes, "active_size": total_bytes - free_bytes,
                   "requested_size": total_bytes - free_bytes, "frames": [], "blocks": [block]}
        return {"segments": [segment], "device_traces": [list(fake.events)], "allocator_settings": {}}

    def event(action, size, **more):
        fake.events.append(dict({"action": action, "size": size, "stream": 0, "frames": FRAMES,
                                 "time_us": 1000 + len(fake.events)}, **more))

    def run_out(size):
        event("oom", size, device_free=free_bytes)
        for observer in list(fake.observers):  # with four numbers by place; its exceptions reach the caller
            observer(0, size, total_bytes, free_bytes)
        raise OutOfMemoryError("CUDA out of memory. Tried to allocate %d bytes" % size)

    held = total_bytes - free_bytes
    event("segment_alloc", held, addr=0x7f0000000000)
    event("alloc", held, addr=0x7f0000000000)
    memory = types.SimpleNamespace(_record_memory_history=record, _snapshot=snapshot)
    fake.cuda = types.SimpleNamespace(memory=memory, OutOfMemoryError=OutOfMemoryError)
    fake._C = types.SimpleNamespace(_cuda_attach_out_of_memory_observer=attach,
                                    _cuda_isHistoryEnabled=lambda: fake.history is not None)
    fake.run_out = run_out
    return fake


FRAMES = [{"filename": "/home/me/train/model.py", "line": 39, "name": "forward"}]
