#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""python.tensors: arenas, and their regions as DLPack tensors, read as a consumer reads them: the capsule's
name, the structure behind it, its deleter. On the simulated device, where there are no bytes to look at."""
import ctypes
import gc
import unittest

import fallow

_get = ctypes.pythonapi.PyCapsule_GetPointer
_get.restype, _get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
_name = ctypes.pythonapi.PyCapsule_GetName
_name.restype, _name.argtypes = ctypes.c_char_p, [ctypes.py_object]
_rename = ctypes.pythonapi.PyCapsule_SetName
_rename.restype, _rename.argtypes = ctypes.c_int, [ctypes.py_object, ctypes.c_char_p]


class Tensor(ctypes.Structure):
    """DLTensor, from its specification."""

    _fields_ = [
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class Versioned(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("manager", ctypes.c_void_p),
                ("deleter", ctypes.c_void_p), ("flags", ctypes.c_uint64), ("tensor", Tensor)]


class Unversioned(ctypes.Structure):
    _fields_ = [("tensor", Tensor), ("manager", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


_forms = {b"dltensor_versioned": (Versioned, b"used_dltensor_versioned"), b"dltensor": (Unversioned, b"used_dltensor")}


def consume(capsule):
    """As a framework does: take the tensor, rename the capsule, call the deleter when done."""
    name = _name(capsule)
    form, used = _forms[name]
    address = _get(capsule, name)
    _rename(capsule, used)
    taken = form.from_address(address)
    return taken, lambda: ctypes.CFUNCTYPE(None, ctypes.c_void_p)(taken.deleter)(address)


class Arenas(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        fallow.configure(driver="sim", limit="256M")

    def setUp(self):
        self.arena = fallow.Arena(name="decode")
        self.layout = fallow.Layout([{"name": "out", "bytes": 4096}, {"name": "counter", "bytes": 64,
                                     "init": "counter", "persistent": True, "element_bytes": 4}])

    def tearDown(self):
        self.arena.close()
        self.assertEqual(fallow.stats()["live_count"], 0)

    def test_a_region_is_a_tensor_in_both_forms(self):
        lease = self.arena.lease(self.layout)
        view = lease.tensor("out", (3, 5), "float32", byte_offset=64)
        self.assertEqual(view.__dlpack_device__(), (2, 0))
        for version, major in (((1, 0), 1), (None, None)):
            taken, delete = consume(view.__dlpack__(stream=1, max_version=version))
            tensor = taken.tensor
            if major is not None:
                self.assertEqual((taken.major, taken.minor), (1, 0))
            self.assertEqual(tensor.data, lease.address("out"))
            self.assertEqual((tensor.device_type, tensor.device_id, tensor.ndim), (2, 0, 2))
            self.assertEqual((tensor.code, tensor.bits, tensor.lanes), (2, 32, 1))
            self.assertEqual((tensor.shape[0], tensor.shape[1], tensor.strides[0]), (3, 5, 5))
            self.assertEqual(tensor.byte_offset, 64)
            delete()
        lease.end()
        self.arena.lease(self.layout).end()

    def test_a_tensor_holds_the_lease_open(self):
        with self.arena.lease(self.layout) as lease:
            capsule = lease.tensor("out", (4,), "bfloat16").__dlpack__(max_version=(1, 1))
            taken, delete = consume(capsule)
        with self.assertRaisesRegex(fallow.Error, "a lease is open"):
            self.arena.lease(self.layout)
        delete()
        del taken, capsule
        self.arena.lease(self.layout).end()

    def test_a_capsule_that_nobody_takes_gives_its_tensor_back(self):
        for version in ((1, 0), None):
            lease = self.arena.lease(self.layout)
            capsule = lease.tensor("out", (4,), "int64").__dlpack__(max_version=version)
            lease.end()
            del capsule
            gc.collect()
            self.arena.lease(self.layout).end()

    def test_what_cannot_be_is_refused(self):
        with self.arena.lease(self.layout, stream=0) as lease:
            with self.assertRaisesRegex(fallow.Error, "leaves region 'out' of 4096 bytes"):
                lease.tensor("out", (1025,), "float32").__dlpack__()
            with self.assertRaisesRegex(BufferError, "begin the lease on the consumer's stream"):
                lease.tensor("out", (4,), "float32").__dlpack__(stream=0x1234)
            with self.assertRaisesRegex(BufferError, "neither copied nor moved"):
                lease.tensor("out", (4,), "float32").__dlpack__(copy=True)
            with self.assertRaisesRegex(BufferError, "neither copied nor moved"):
                lease.tensor("out", (4,), "float32").__dlpack__(dl_device=(1, 0))
            with self.assertRaisesRegex(TypeError, "complex64"):
                lease.tensor("out", (4,), "complex64")
            with self.assertRaisesRegex(KeyError, "no region 'in'"):
                lease.address("in")
        with self.assertRaisesRegex(RuntimeError, "the lease has ended"):
            lease.address("out")
        with self.assertRaisesRegex(ValueError, "a region has no size"):
            fallow.Layout([{"name": "x", "size": 4}])
        with self.assertRaises(fallow.Error):
            fallow.Layout([{"name": "x", "bytes": 0}])

    def test_a_locked_arena_says_what_does_not_fit(self):
        self.arena.lease(self.layout).end()
        self.arena.lock()
        larger = fallow.Layout([{"name": "out", "bytes": 1 << 20}])
        with self.assertRaisesRegex(MemoryError, "region 'out'"):
            self.arena.lease(larger)
        self.arena.unlock()
        self.arena.lease(larger).end()
        self.arena.trim()

    def test_regions_that_are_never_alive_together_share_bytes(self):
        layout = fallow.Layout([{"name": "a", "bytes": 4096, "phases": (0, 1)},
                                {"name": "b", "bytes": 4096, "phases": (2, 3)}])
        self.assertEqual(layout.bytes, 4096)


if __name__ == "__main__":
    unittest.main()
