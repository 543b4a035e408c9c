#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""python.frameworks: the calls of the module fallow into PyTorch, CuPy, Numba and RMM. The frameworks are fakes (see
fakes.py), the functions behind the addresses are the library's, the device is simulated."""
import ctypes
import importlib
import sys
import types
import unittest

import fakes
import fallow


def setUpModule():
    print("torch, cupy, numba and rmm are fakes here: addresses and signatures are checked, not the frameworks")
    fallow.configure(driver="sim", limit="256M")


class Torch(unittest.TestCase):
    def test_the_pair_allocates_and_every_hook_is_set(self):
        fake = fakes.torch()
        with fakes.installed(torch=fake):
            allocator = fallow.enable_torch()
        self.assertIs(fake.current, allocator)
        before = fallow.stats().get("live_count", 0)
        address = allocator.alloc(5000, 0, None)
        self.assertEqual(fallow.stats()["live_count"], before + 1)
        size = ctypes.c_size_t()
        hooks = allocator.inner.addresses
        base = fakes.function(hooks["set_base_alloc_fn"], ctypes.c_void_p, ctypes.c_void_p,
                              ctypes.POINTER(ctypes.c_size_t))
        self.assertEqual(base(address + 4999, ctypes.byref(size)), address)
        self.assertGreaterEqual(size.value, 5000)
        fakes.function(hooks["set_record_stream_fn"], None, ctypes.c_void_p, ctypes.c_void_p)(address, None)
        allocator.free(address, 5000, 0, None)
        self.assertEqual(fallow.stats()["live_count"], before)
        fakes.function(hooks["set_reset_fn"], None)()
        self.assertEqual(sorted(set(hooks) ^ {
            "set_reset_fn", "set_memory_fraction_fn", "set_base_alloc_fn", "set_record_stream_fn",
            "set_begin_allocate_to_pool", "set_end_allocate_to_pool_fn", "set_release_pool"}), [])

    def test_the_id_of_graph_memory_goes_by_value(self):
        fake = fakes.torch()
        with fakes.installed(torch=fake):
            allocator = fallow.enable_torch()
        hooks = allocator.inner.addresses
        begin = fakes.function(hooks["set_begin_allocate_to_pool"], None, ctypes.c_int, fakes.MempoolId,
                               ctypes.c_void_p)
        end = fakes.function(hooks["set_end_allocate_to_pool_fn"], None, ctypes.c_int, fakes.MempoolId)
        release = fakes.function(hooks["set_release_pool"], None, ctypes.c_int, fakes.MempoolId)
        begin(0, fakes.MempoolId(0, 77), None)
        address = allocator.alloc(255 << 20, 0, None)
        self.assertIsNone(allocator.alloc(5 << 20, 0, None))
        owners = fallow._report.oom_report(fallow._pool.make_pool(0)).owners
        self.assertEqual([o.tag for o in owners if o.bytes >= 255 << 20], [77])
        allocator.free(address, 255 << 20, 0, None)
        end(0, fakes.MempoolId(0, 77))
        release(0, fakes.MempoolId(0, 77))

    def test_statistics_of_pytorch_are_those_of_its_pool(self):
        for version in ("2.3", "2.15"):
            fake = fakes.torch(version)
            own = fake._C._cuda_memoryStats
            with fakes.installed(torch=fake):
                allocator = fallow.enable_torch()
            cuda = fake._C
            self.assertNotIn(own, vars(cuda).values())
            with fakes.installed(torch=fake), self.assertRaisesRegex(RuntimeError, "call only one of them"):
                fallow.torch_mempool()
            self.assertEqual(hasattr(cuda, "_accelerator_emptyCache"), version == "2.15")
            allocator.free(allocator.alloc(5000, 0, None), 5000, 0, None)
            held = allocator.alloc(3 << 20, 0, None)
            allocator.free(allocator.alloc(9 << 20, 0, None), 9 << 20, 0, None)
            stats, ours = fakes.flat(cuda._cuda_memoryStats(0)), fallow.stats()
            self.assertGreaterEqual(stats["allocated_bytes.all.peak"], 12 << 20)
            self.assertEqual(stats["allocated_bytes.all.current"], ours["live_bytes"])
            self.assertEqual(stats["requested_bytes.all.peak"], ours["peak_requested_bytes"])
            self.assertEqual(stats["reserved_bytes.large_pool.peak"], ours["peak_reserved_bytes"])
            cuda._cuda_resetPeakMemoryStats(0)
            cuda._cuda_resetAccumulatedMemoryStats(0)
            after = fakes.flat(cuda._cuda_memoryStats(0))
            self.assertEqual(after["allocated_bytes.all.peak"], stats["allocated_bytes.all.current"])
            allocator.free(held, 3 << 20, 0, None)
            last = fakes.flat(cuda._cuda_memoryStats(0))
            self.assertEqual([last["allocation.all." + name] for name in ("current", "allocated", "freed")],
                             [ours["live_count"] - 1, 0, 1])
            if version == "2.15":
                self.assertIs(cuda._accelerator_isAllocatorInitialized(), False)
                cuda._accelerator_emptyCache()
                cuda._accelerator_resetPeakStats(0)
                cuda._accelerator_resetAccumulatedStats(0)
                last = fakes.flat(cuda._accelerator_getDeviceStats(0))
                self.assertLess(last["reserved_bytes.all.current"], after["reserved_bytes.all.current"])
                self.assertEqual(last["reserved_bytes.all.peak"], last["reserved_bytes.all.current"])
                self.assertEqual(last["allocation.all.freed"], 0)
            nothing = fakes.flat(cuda._cuda_memoryStats(5))  # a device without a pool
            self.assertEqual(set(nothing.values()), {0, -1})
            cuda._cuda_resetPeakMemoryStats(5)
            cuda._cuda_resetAccumulatedMemoryStats(5)

    def test_a_release_that_captures_without_our_functions_is_refused(self):
        fake = fakes.torch(version="2.0")
        with fakes.installed(torch=fake):
            with self.assertRaisesRegex(ImportError, "needs PyTorch 2.3 or newer with CUDA; this is 2.0; an older one "
                                                     "runs under `fallow run`"):
                fallow.enable_torch()
        self.assertIsNone(fake.current)

    def test_the_second_call_returns_the_same_allocator(self):
        fake = fakes.torch()
        with fakes.installed(torch=fake):
            self.assertIs(fallow.enable_torch(), fallow.enable_torch())
        self.assertEqual(fake.given, 1)

    def test_too_late_is_said(self):
        with fakes.installed(torch=fakes.torch(initialized=True)):
            with self.assertRaisesRegex(RuntimeError, "comes too late.*right after import torch"):
                fallow.enable_torch()

    def test_a_torch_without_cuda_or_none_at_all_is_said(self):
        without = fakes.torch()
        del without._C._cuda_customAllocator
        for fake in (types.ModuleType("torch"), without):
            with fakes.installed(torch=fake):
                with self.assertRaisesRegex(ImportError, "needs PyTorch 2.3 or newer with CUDA"):
                    fallow.enable_torch()
                with self.assertRaisesRegex(ImportError, "needs PyTorch 2.5 or newer with CUDA"):
                    fallow.torch_mempool()
        with fakes.installed(torch=fakes.torch(with_pool=False)):
            with self.assertRaisesRegex(ImportError, "needs PyTorch 2.5 or newer"):
                fallow.torch_mempool()
        with fakes.installed(torch=None):
            with self.assertRaisesRegex(ImportError, r"fallow.enable_torch\(\) needs torch"):
                fallow.enable_torch()

    def test_a_memory_pool_takes_the_segment_pair(self):
        for outer in (False, True):
            with fakes.installed(torch=fakes.torch(outer=outer)):
                pool = fallow.torch_mempool()
            allocator = fallow._library.kept[-1]
            self.assertIs(pool.allocator, allocator if outer else allocator.inner)
            before = fallow.stats(order="context").get("live_count", 0)
            address = allocator.alloc(2 << 20, 0, None)
            self.assertEqual(fallow.stats(order="context")["live_count"], before + 1)
            allocator.free(address, 2 << 20, 0, None)


class Cupy(unittest.TestCase):
    def test_the_allocator_allocates_and_raises_on_null(self):
        fake = fakes.cupy()
        with fakes.installed(cupy=fake):
            malloc = fallow.enable_cupy()
        self.assertIs(fake.current, malloc)
        block = malloc(5000)
        self.assertGreater(block.ptr, 0)
        self.assertGreaterEqual(fallow.stats(order="context")["requested_bytes"], 5000)
        with self.assertRaises(fake.cuda.memory.OutOfMemoryError):
            malloc(300 << 20)
        self.assertEqual(malloc(0).ptr, 0)
        block.free()

    def test_a_capture_is_announced_around(self):
        with fallow.capturing():
            block = fallow._library.lib().fallow_cupy_malloc(None, 5000, 0)
            fallow._library.lib().fallow_cupy_free(None, block, 0)
            again = fallow._library.lib().fallow_cupy_malloc(None, 5000, 0)
            self.assertNotEqual(again, block)  # nothing is reused inside a capture
        fallow._library.lib().fallow_cupy_free(None, again, 0)

    def test_a_capture_that_cannot_begin_announces_nothing(self):
        with self.assertRaisesRegex(fallow.Error, "NOT_FOUND"):
            with fallow.capture(None, device=7):
                pass
        for _ in range(2):  # the second one waits for the first one's end, which a capture forbids
            block = fallow._library.lib().fallow_cupy_malloc(None, 200 << 20, 0)
            self.assertIsNotNone(block)
            fallow._library.lib().fallow_cupy_free(None, block, 0)

    def test_a_missing_cupy_is_said(self):
        with fakes.installed(cupy=None):
            with self.assertRaisesRegex(ImportError, r"fallow.enable_cupy\(\) needs cupy"):
                fallow.enable_cupy()


class Numba(unittest.TestCase):
    def test_the_manager_allocates_by_both_bindings(self):
        for uses_binding in (False, True):
            package, cuda, cudadrv, driver = fakes.numba(uses_binding)
            with fakes.installed(numba=package, numba__cuda=cuda, numba__cuda__cudadrv=cudadrv,
                                 numba__cuda__cudadrv__driver=driver):
                sys.modules.pop("fallow._numba_manager", None)
                manager = importlib.import_module("fallow._numba_manager").FallowMemoryManager
            context = types.SimpleNamespace(device=types.SimpleNamespace(id=0))
            one = manager(context=context)
            self.assertEqual(one.interface_version, 1)
            one.initialize()
            memory = one.memalloc(5000)
            self.assertEqual(memory.size, 5000)
            address = memory.device_pointer if uses_binding else memory.device_pointer.value
            self.assertGreater(int(address), 0)
            info = one.get_memory_info()
            self.assertGreater(info.total, info.free)
            self.assertGreater(info.free, 0)
            with self.assertRaisesRegex(MemoryError, "fallow.report"):
                one.memalloc(300 << 20)
            self.assertIs(one.get_ipc_handle(memory), memory)  # Numba's own way works on cuMemAlloc memory
            memory.finalizer()
            one.reset()
            self.assertEqual(fallow.stats(order="context")["live_count"], 0)

    def test_the_module_is_a_memory_manager_by_name(self):
        package, cuda, cudadrv, driver = fakes.numba(True)
        with fakes.installed(numba=package, numba__cuda=cuda, numba__cuda__cudadrv=cudadrv,
                             numba__cuda__cudadrv__driver=driver):
            sys.modules.pop("fallow._numba_manager", None)
            self.assertIs(fallow._numba_memory_manager, fallow._numba_memory_manager)
            fallow.enable_numba()
        self.assertIs(cuda.manager, fallow._numba_memory_manager)
        with self.assertRaises(AttributeError):
            fallow.something_else

    def setUp(self):
        # cuMemGetInfo wants a context, which Numba has made current
        simulated = ctypes.CDLL(fallow.library_path().rsplit("/", 1)[0] + "/libfallow-simcuda.so")
        context = ctypes.c_void_p()
        self.assertEqual(simulated.cuInit(0), 0)
        self.assertEqual(simulated.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), 0)
        self.assertEqual(simulated.cuCtxSetCurrent(context), 0)


class Rmm(unittest.TestCase):
    def test_the_resource_allocates_on_the_stream(self):
        fake = fakes.rmm()
        with fakes.installed(rmm=fake):
            resource = fallow.enable_rmm()
        self.assertEqual(fake.current, {0: resource})
        before = fallow.stats().get("live_count", 0)
        stream = fake.pylibrmm.stream.Stream()
        address = resource.allocate(5000, stream)
        self.assertEqual(fallow.stats()["live_count"], before + 1)
        resource.deallocate(address, 5000, stream)
        self.assertEqual(fallow.stats()["live_count"], before)
        self.assertEqual(resource.allocate(0, stream), 0)
        with self.assertRaisesRegex(MemoryError, "fallow.report"):
            resource.allocate(300 << 20, stream)

    def test_a_release_whose_streams_have_no_numbers_is_refused(self):
        with fakes.installed(rmm=fakes.rmm("25.06.00")):
            with self.assertRaisesRegex(ImportError, "needs RMM 25.12 or newer, .*; this is 25.06.00"):
                fallow.enable_rmm()


if __name__ == "__main__":
    unittest.main()
