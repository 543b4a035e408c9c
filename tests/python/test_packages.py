#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check.frameworks: the real CuPy, Numba, RMM and cuda.core of PyPI in build/pypi/frameworks, and the sources of
PyTorch that tests/peers/measure fetches. The fakes must have their signatures. The parts that work with the simulated
driver run; LD_LIBRARY_PATH names its folder. CUDA's runtime refuses that driver, and with it tensors of PyTorch,
arrays of CuPy and buffers of RMM."""
import ast
import gc
import importlib
import importlib.util
import inspect
import os
import re
import site
import sys
import unittest
import unittest.mock

import fakes

FOLDER = sys.argv.pop(1)
TORCH = os.path.join(FOLDER, "peers", "torch")
if not os.path.isdir(os.path.join(FOLDER, "frameworks")) or not os.path.isfile(os.path.join(TORCH, "cuda", "memory.py")):
    print("no packages of PyPI in %s: tools/quickstart installs them" % FOLDER)
    sys.exit(77)
os.environ["FALLOW_AUTO"] = "cupy,numba,rmm"
import fallow
import fallow._auto
from fallow._arguments import stream_handle

site.addsitedir(os.path.join(FOLDER, "frameworks"))  # runs the .pth file of numba-cuda
try:
    import cuda.core
    import cupy
    import numpy
    import rmm
    from numba import cuda as numba_cuda
except ImportError as error:
    print("the packages in %s are not for this Python: %s" % (FOLDER, error))
    sys.exit(77)
DRIVER = importlib.import_module("numba.cuda.cudadrv.driver")


def parameters(thing):
    """Return the names of a callable's parameters; optional ones end in "=". Cython writes them into docstrings
    only."""
    try:
        found = inspect.signature(thing).parameters.values()
    except ValueError:
        texts = re.match(r"[\w.]+\((.*?)\)", thing.__doc__).group(1).split(", ")
        names = [re.sub(r"=.*", "=", text).split()[-1] for text in texts if text]
    else:
        names = [str(p.replace(annotation=p.empty, default=p.empty)) + "=" * (p.default is not p.empty) for p in found]
    return [name for name in names if name != "self"]


def source_parameters(path, name):
    """The same for a function or a class, "Class.method" or "function", in a source file that is not imported."""
    with open(os.path.join(TORCH, path), encoding="utf-8") as file:
        body = ast.parse(file.read()).body
    for part in name.split("."):
        (found,) = [node for node in body if getattr(node, "name", None) == part]
        body = found.body
    names = [argument.arg for argument in found.args.args]
    first = len(names) - len(found.args.defaults)
    return [name + "=" * (place >= first) for place, name in enumerate(names) if name != "self"]


class Signatures(unittest.TestCase):
    def test_the_fakes_have_those_of_the_packages(self):
        mine, (_, numba, _, _), resources = fakes.cupy().cuda, fakes.numba(True), fakes.rmm().mr
        for fake, real in (
                (mine.memory.CFunctionAllocator, cupy.cuda.memory.CFunctionAllocator),
                (mine.memory.CFunctionAllocator.malloc, cupy.cuda.memory.CFunctionAllocator.malloc),
                (mine.memory.OutOfMemoryError, cupy.cuda.memory.OutOfMemoryError),
                (mine.set_allocator, cupy.cuda.set_allocator),
                (mine.device.get_device_id, cupy.cuda.device.get_device_id),
                (numba.HostOnlyCUDAMemoryManager, numba_cuda.HostOnlyCUDAMemoryManager),
                (numba.HostOnlyCUDAMemoryManager.initialize, numba_cuda.HostOnlyCUDAMemoryManager.initialize),
                (numba.HostOnlyCUDAMemoryManager.reset, numba_cuda.HostOnlyCUDAMemoryManager.reset),
                (numba.GetIpcHandleMixin.get_ipc_handle, numba_cuda.GetIpcHandleMixin.get_ipc_handle),
                (numba.MemoryPointer, numba_cuda.MemoryPointer),
                (numba.MemoryInfo, numba_cuda.MemoryInfo),
                (numba.set_memory_manager, numba_cuda.set_memory_manager),
                (resources.CallbackMemoryResource, rmm.mr.CallbackMemoryResource),
                (resources.set_per_device_resource, rmm.mr.set_per_device_resource)):
            self.assertEqual(parameters(fake), parameters(real), real)

    def test_the_fakes_have_those_of_pytorch(self):
        torch, recording = fakes.torch("2.15"), fakes.torch_memory()
        mine = torch.cuda
        memory, bindings = "cuda/memory.py", "_C/__init__.pyi"
        for fake, path, name in (
                (mine.memory.CUDAPluggableAllocator, memory, "CUDAPluggableAllocator.__init__"),
                (mine.memory.CUDAPluggableAllocator.allocator, memory, "_CUDAAllocator.allocator"),
                (mine.memory.change_current_allocator, memory, "change_current_allocator"),
                (mine.MemPool, memory, "MemPool.__init__"),
                (mine.is_initialized, "cuda/__init__.py", "is_initialized"),
                (recording.cuda.memory._record_memory_history, memory, "_record_memory_history_impl"),
                (recording.cuda.memory._snapshot, memory, "_snapshot"),
                (recording._C._cuda_isHistoryEnabled, bindings, "_cuda_isHistoryEnabled")):
            self.assertEqual(parameters(fake), source_parameters(path, name), name)
        with fakes.installed(torch=torch):
            fallow.enable_torch()
        for name, function in vars(torch._C).items():
            self.assertEqual(len(parameters(function)), len(source_parameters(bindings, name)), name)

    @unittest.skipUnless(importlib.util.find_spec("torch"), "PyTorch can be read here, not imported")
    def test_pytorch_takes_the_allocator_and_every_function(self):
        torch = importlib.import_module("torch")
        allocator = fallow.enable_torch()
        self.assertIs(torch.cuda.memory._get_current_allocator().allocator(), allocator.allocator())
        self.assertIs(fallow.enable_torch(), allocator)
        mine, real = fakes.torch().cuda.memory.CUDAPluggableAllocator, torch.cuda.memory.CUDAPluggableAllocator
        arguments = fallow.library_path(), "fallow_torch_alloc", "fallow_torch_free"
        setters = [{name for name in dir(kind(*arguments).allocator()) if name.startswith("set_")} for kind in (mine, real)]
        self.assertEqual(*setters)
        with unittest.mock.patch("torch.cuda.memory.is_initialized", return_value=True):
            torch.cuda.reset_peak_memory_stats(0)
            torch.cuda.reset_accumulated_memory_stats(0)
            self.assertIn("Allocated memory", torch.cuda.memory_summary(0))
            self.assertEqual(torch.cuda.max_memory_allocated(0), torch.cuda.memory_allocated(0))


class Runs(unittest.TestCase):
    def live(self, order):
        gc.collect()
        return fallow.stats(order=order).get("live_count", 0)

    def test_numba_allocates_from_fallow(self):
        before = self.live("context")
        host = numpy.arange(5000, dtype=numpy.float32)
        array, stream = numba_cuda.device_array(5000, numpy.float32), numba_cuda.stream()
        self.assertEqual(self.live("context"), before + 1)
        array.copy_to_device(host, stream)
        stream.synchronize()
        self.assertTrue((array.copy_to_host() == host).all())
        self.assertGreater(stream_handle(stream), 0)
        context = numba_cuda.current_context()
        self.assertGreater(context.get_memory_info().free, 0)
        with self.assertRaisesRegex(MemoryError, "fallow.report"):
            numba_cuda.device_array(1 << 40, numpy.uint8)
        del array
        gc.collect()
        context.deallocations.clear()
        self.assertEqual(self.live("context"), before)

    def test_rmm_allocates_from_fallow(self):
        before = self.live("stream")
        resource = rmm.mr.get_per_device_resource(0)
        address = resource.allocate(5000)
        self.assertEqual(self.live("stream"), before + 1)
        resource.deallocate(address, 5000)
        self.assertEqual(self.live("stream"), before)
        with self.assertRaisesRegex(MemoryError, "fallow.report"):
            resource.allocate(1 << 40)

    def test_a_lease_takes_a_stream_of_cuda_core(self):
        device = cuda.core.Device(0)
        device.set_current()
        stream = device.create_stream()
        self.assertEqual(stream_handle(stream), int(stream.handle))
        arena = fallow.Arena(name="packages")
        with arena.lease(fallow.Layout([{"name": "out", "bytes": 5000}]), stream=stream) as lease:
            self.assertGreater(lease.address("out"), 0)

    def test_cupy_has_the_allocator(self):
        self.assertEqual(cupy.cuda.get_allocator().__module__, "fallow._cupy")


if __name__ == "__main__":
    print("cupy %s, numba-cuda %s, rmm %s, cuda.core %s" % (
        cupy.__version__, importlib.import_module("numba_cuda").__version__, rmm.__version__, cuda.core.__version__))
    unittest.main()
