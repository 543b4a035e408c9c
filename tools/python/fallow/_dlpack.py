# SPDX-License-Identifier: Apache-2.0
"""Types and capsules of DLPack tensors."""
from __future__ import annotations

import ctypes

from fallow._library import lib
from fallow._typing import Any

_DTYPES = {  # code and bits of DLPack
    "int8": (0, 8), "int16": (0, 16), "int32": (0, 32), "int64": (0, 64),
    "uint8": (1, 8), "uint16": (1, 16), "uint32": (1, 32), "uint64": (1, 64),
    "float16": (2, 16), "float32": (2, 32), "float64": (2, 64),
    "bfloat16": (4, 16), "bool": (6, 8),
    "float8_e3m4": (7, 8), "float8_e4m3": (8, 8), "float8_e4m3b11fnuz": (9, 8), "float8_e4m3fn": (10, 8),
    "float8_e4m3fnuz": (11, 8), "float8_e5m2": (12, 8), "float8_e5m2fnuz": (13, 8), "float8_e8m0fnu": (14, 8),
    "float4_e2m1fn_x2": (17, 4),  # a pair in a byte
}


def code_of(dtype: Any) -> tuple[int, int]:
    """Return DLPack's code and bits of "bfloat16", torch.bfloat16, numpy.float32 ..."""
    word = (getattr(dtype, "__name__", None) or str(dtype)).rsplit(".", 1)[-1]
    if word not in _DTYPES:
        raise TypeError("%r is no type that a region can have: one of %s" % (dtype, ", ".join(_DTYPES)))
    return _DTYPES[word]


def same_stream(stream: int | None) -> int:
    """Return a stream's number. DLPack's numbers for the default stream are 1 and None."""
    return 0 if stream is None or stream == 1 else stream


def _python(name: str, result: Any, *arguments: Any) -> Any:
    return ctypes.PYFUNCTYPE(result, *arguments)((name, ctypes.pythonapi))


_capsule_new = _python("PyCapsule_New", ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
_capsule_is = _python("PyCapsule_IsValid", ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)
_capsule_get = _python("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)

_VERSIONED, _UNVERSIONED = b"dltensor_versioned", b"dltensor"  # static: capsules keep the pointer
_DELETERS = {_VERSIONED: 16, _UNVERSIONED: 56}  # offsets in DLManagedTensorVersioned and DLManagedTensor


def _delete(address: int, name: bytes) -> None:
    deleter = ctypes.c_void_p.from_address(address + _DELETERS[name]).value
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(deleter or 0)(address)


def _drop_capsule(capsule: int) -> None:
    """Free the tensor of a capsule that was never consumed. A consumer renames its capsule."""
    for name in _DELETERS:
        if _capsule_is(capsule, name):
            _delete(_capsule_get(capsule, name), name)


_destructor = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(_drop_capsule)
_drop = ctypes.cast(_destructor, ctypes.c_void_p)


def capsule_of(exported: ctypes.c_void_p, max_version: tuple[int, int] | None) -> Any:
    """Return the capsule of a DLManagedTensorVersioned, which it owns, for a consumer of that version of DLPack.
    MemoryError: no host memory; the tensor is freed."""
    if max_version is not None and tuple(max_version) >= (1, 0):
        return _capsule_new(exported, _VERSIONED, _drop)
    address = lib().fallow_export_unversioned(exported)
    if not address:
        _delete(exported.value or 0, _VERSIONED)
        raise MemoryError("no host memory for a tensor")
    return _capsule_new(address, _UNVERSIONED, _drop)


class _Tensor(ctypes.Structure):
    """DLTensor, from its specification."""

    _fields_ = [("data", ctypes.c_uint64), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
                ("byte_offset", ctypes.c_uint64)]


class TensorView:
    """The tensor of an object with __dlpack__, during a `with` block. No stream waits for another."""

    def __init__(self, producer: Any) -> None:
        try:
            self._capsule = producer.__dlpack__(stream=-1, max_version=(1, 0))
        except TypeError:  # a producer of an older version
            self._capsule = producer.__dlpack__(stream=-1)

    def __enter__(self) -> TensorView:
        name = _VERSIONED if _capsule_is(self._capsule_id(), _VERSIONED) else _UNVERSIONED
        managed = _capsule_get(self._capsule_id(), name)
        tensor = _Tensor.from_address(managed + (32 if name == _VERSIONED else 0))
        if tensor.device_type not in (2, 13) or tensor.lanes != 1:  # CUDA, managed
            raise TypeError("a tensor is on DLPack's device %d with %d lanes; it must be CUDA's, with one"
                            % (tensor.device_type, tensor.lanes))
        count = tensor.ndim
        self.read_only = name == _VERSIONED and bool(ctypes.c_uint64.from_address(managed + 24).value & 1)
        self.address, self.device, self.dtype = tensor.data + tensor.byte_offset, tensor.device_id, (tensor.code, tensor.bits)
        self.shape = tuple(tensor.shape[:count])
        self.strides = tuple(tensor.strides[:count]) if tensor.strides else None
        return self

    def _capsule_id(self) -> int:
        return id(self._capsule)  # the address of the object

    def __exit__(self, *_: object) -> None:
        del self._capsule  # its destructor frees the tensor
