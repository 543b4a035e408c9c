#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""python.workspace: the example workspace_manager.py on a simulated device that checks the order of every access,
with a substitute for PyTorch that has addresses as tensors."""
import ctypes
import math
import os
import types
import unittest

import fakes
import fallow
from test_tensors import consume
from workspace_manager import WorkspaceManager, use_workspace_lane


class World(ctypes.Structure):
    """First fields of flw_sim_config"""

    _fields_ = [("struct_size", ctypes.c_size_t), ("device_bytes", ctypes.c_uint64), ("device_count", ctypes.c_int),
                ("driver_version", ctypes.c_int), ("seed", ctypes.c_uint64), ("schedule", ctypes.c_int),
                ("profile", ctypes.c_int), ("lag_ns", ctypes.c_uint64), ("backed", ctypes.c_uint8),
                ("check", ctypes.c_uint8), ("rest", ctypes.c_uint8 * 6)]


class Range(ctypes.Structure):
    """flw_sim_range"""

    _fields_ = [("address", ctypes.c_uint64), ("bytes", ctypes.c_uint64), ("is_write", ctypes.c_uint32),
                ("flags", ctypes.c_uint32)]


class Type:
    def __init__(self, word, itemsize):
        self.word, self.itemsize = word, itemsize

    def __repr__(self):
        return "torch." + self.word


class Tensor:
    """Substitute for a PyTorch tensor: a range of addresses."""

    def __init__(self, view):
        taken, self._delete = consume(view.__dlpack__(stream=-1, max_version=(1, 0)))
        tensor = taken.tensor
        count = math.prod(tensor.shape[i] for i in range(tensor.ndim))
        self.begin, self.end = tensor.data, tensor.data + count * tensor.bits // 8

    def __del__(self):
        self._delete()


def driver(name, result=ctypes.c_int):
    return ctypes.CFUNCTYPE(result)(fallow._library.lib().fallow_pool_driver_entry(fallow._pool.make_pool(0), name.encode()))


bf16, u8 = Type("bfloat16", 2), Type("uint8", 1)


class Workspaces(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        simulated = ctypes.CDLL(os.path.join(os.path.dirname(fallow._library.lib()._name), "libfallow-simcuda.so"))
        simulated.flw_sim_reset(ctypes.byref(World(ctypes.sizeof(World), backed=1, check=1)))
        fallow.configure(driver="sim")
        cls.violation = driver("flw_sim_violation", ctypes.c_char_p)
        context = ctypes.c_void_p()
        driver("cuDevicePrimaryCtxRetain")(ctypes.byref(context), 0)
        driver("cuCtxSetCurrent")(context)

    def setUp(self):
        self.torch = fakes.torch(initialized=True)
        self.torch.from_dlpack = Tensor
        self.torch.cuda.current_stream = lambda device: types.SimpleNamespace(cuda_stream=self.stream)
        self.streams = [ctypes.c_void_p() for _ in range(2)]
        for stream in self.streams:
            self.call("cuStreamCreate", ctypes.byref(stream), 1)
        installed = fakes.installed(torch=self.torch)
        installed.__enter__()
        self.addCleanup(installed.__exit__, None, None, None)
        self.ubatch = 0
        self.run_on(0)
        self.manager = WorkspaceManager(types.SimpleNamespace(index=0), 2, 2, lambda: self.ubatch)

    def tearDown(self):
        self.call("cuCtxSynchronize")
        self.assertIsNone(self.violation(0))

    def call(self, name, *arguments):
        self.assertEqual(driver(name)(*arguments), 0, name)

    def run_on(self, index):
        self.stream = self.streams[index].value

    def kernel(self, reads=(), writes=()):
        ranges = [Range(tensor.begin, tensor.end - tensor.begin, tensor in writes) for tensor in (*reads, *writes)]
        array = (Range * len(ranges))(*ranges)
        self.call("flw_sim_touch", ctypes.c_void_p(self.stream), array, len(ranges))

    def expert_layer(self):
        """Launch two kernels, and between them one of a library that keeps tensors."""
        up, act, down = self.manager.get_simultaneous(((8, 4096), bf16), ((8, 2048), bf16), ((8, 1024), bf16))
        self.kernel(writes=[up])
        self.kernel(reads=[up], writes=[act])
        self.kernel(reads=[act], writes=[down])
        self.kernel(reads=[down])
        return up, act, down

    def test_tensors_of_a_call_lie_apart_and_the_next_call_takes_their_memory(self):
        first = self.expert_layer()
        ranges = sorted((tensor.begin, tensor.end) for tensor in first)
        self.assertTrue(all(end <= begin for (_, end), (begin, _) in zip(ranges, ranges[1:])), ranges)
        self.assertEqual([begin % 256 for begin, _ in ranges], [0, 0, 0])
        second = self.expert_layer()
        self.assertEqual([tensor.begin for tensor in first], [tensor.begin for tensor in second])

    def test_streams_that_share_a_workspace_are_ordered(self):
        for step in range(6):
            self.run_on(step % 2)
            self.expert_layer()

    def test_micro_batches_and_lanes_have_workspaces_of_their_own(self):
        places = set()
        for step in range(2):
            for self.ubatch in range(2):
                self.run_on(self.ubatch)
                for lane in range(2):
                    with use_workspace_lane(lane):
                        places.add(self.expert_layer()[0].begin)
        self.assertEqual(len(places), 4)

    def test_a_locked_workspace_names_what_it_lacks_and_an_unlocked_one_grows_in_place(self):
        before, = self.manager.get_simultaneous(((1 << 20,), u8))
        self.assertFalse(self.manager.is_locked())
        self.manager.lock()
        self.assertTrue(self.manager.is_locked())
        self.manager.get_simultaneous(((1 << 20,), u8))
        with self.assertRaisesRegex(fallow.Error, "scratch of ubatch 0, lane 0.*tensor 0.*4194304"):
            self.manager.get_simultaneous(((4, 1 << 20), u8))
        with self.assertRaisesRegex(fallow.Error, "kept of ubatch 0, lane 0"):
            self.manager.get_persistent("counters", (64,), u8)
        self.manager.unlock()
        after, = self.manager.get_simultaneous(((4, 1 << 20), u8))
        self.kernel(writes=[after])
        self.assertEqual(before.begin, after.begin)

    def test_persistent_tensors_keep_address_and_contents_beside_scratch(self):
        counters = self.manager.get_persistent("counters", (64,), u8, zero_init=True)
        self.kernel(reads=[counters])
        up, _, _ = self.expert_layer()
        self.kernel(writes=[counters])
        again = self.manager.get_persistent("counters", (64,), u8, zero_init=True)
        self.assertEqual(counters.begin, again.begin)
        self.kernel(reads=[up], writes=[again])
        self.ubatch = 1
        self.assertNotEqual(self.manager.get_persistent("counters", (64,), u8).begin, again.begin)

    def test_graphs_replay_between_eager_steps(self):
        self.expert_layer()
        self.manager.get_simultaneous(((1 << 20,), u8))
        graph, executable = ctypes.c_void_p(), ctypes.c_void_p()
        captured = fallow.capture(self.stream)
        with captured:
            self.call("cuStreamBeginCapture_v2", self.streams[0], 0)
            addresses = [tensor.begin for tensor in self.expert_layer()]
            self.call("cuStreamEndCapture", self.streams[0], ctypes.byref(graph))
        self.call("cuGraphInstantiateWithFlags", ctypes.byref(executable), graph, ctypes.c_ulonglong(0))
        for step in range(6):
            self.call("cuGraphLaunch", executable, self.streams[0])
            large, = self.manager.get_simultaneous((((1 + step) << 20,), u8))  # a prefill: grows in place
            self.kernel(writes=[large])
        self.assertEqual(addresses, [tensor.begin for tensor in self.expert_layer()])
        self.call("cuGraphExecDestroy", executable)
        captured.release()

if __name__ == "__main__":
    unittest.main()
