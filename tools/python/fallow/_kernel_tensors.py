# SPDX-License-Identifier: Apache-2.0
"""Read address, shape, strides, type and device of the tensors that kernel modules take."""
from __future__ import annotations

import ctypes
import os
import sys
from typing import NamedTuple

from fallow._arena import View
from fallow._dlpack import TensorView, code_of
from fallow._kernel_headers import DTYPES
from fallow._typing import Any


class Tensor(NamedTuple):
    """A tensor on a device."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # in elements
    dtype: int | None  # a fallow_dtype; None: no kernel accepts it
    device: int
    read_only: bool = False


def dense(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides of a dense tensor."""
    strides = [1]
    for size in reversed(shape[1:]):
        strides.insert(0, strides[0] * size)
    return tuple(strides[:len(shape)])


def _of_dlpack(dtype: tuple[int, int]) -> int | None:
    known = [code_of(word) for word in DTYPES]
    return 2 if dtype == (6, 8) else known.index(dtype) if dtype in known else None


def dtype_code(dtype: Any) -> int:
    """Return a fallow_dtype from a number, "bfloat16" or torch.bfloat16. TypeError: kernels accept no such type."""
    code = dtype if isinstance(dtype, int) else _of_dlpack(code_of(dtype))
    if code is None:
        raise TypeError("fallow.kernels: %r is no type that kernels accept: one of %s" % (dtype, ", ".join(DTYPES)))
    return code


def _accepted(dtype: Any) -> int | None:
    try:
        return _of_dlpack(code_of(dtype))
    except TypeError:
        return None


def is_torch(tensor: Any) -> bool:
    """Return True for a tensor of PyTorch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(tensor, torch.Tensor)


def read_tensor(tensor: Any) -> Tensor:
    """Return the memory of a tensor. TypeError: it is not on a device."""
    if is_torch(tensor):
        if tensor.get_device() < 0:
            raise TypeError("fallow.kernels: a tensor of PyTorch is not on a GPU")
        return Tensor(tensor.data_ptr(), tuple(tensor.shape), tuple(tensor.stride()), _accepted(tensor.dtype),
                      tensor.get_device())
    if hasattr(tensor, "__cuda_array_interface__"):
        return _read_interface(tensor)
    if hasattr(tensor, "__dlpack__"):
        with TensorView(tensor) as view:
            return Tensor(view.address, view.shape, view.strides or dense(view.shape), _of_dlpack(view.dtype),
                          view.device, view.read_only)
    raise TypeError("fallow.kernels: %r is no tensor on a device: give one of PyTorch or CuPy, or an object with "
                    "__cuda_array_interface__ or __dlpack__" % (tensor,))


def _read_interface(tensor: Any) -> Tensor:
    given = tensor.__cuda_array_interface__
    kind, size = given["typestr"][1], int(given["typestr"][2:])
    code = {"i4": 0, "i8": 1, "u1": 2, "b1": 2, "f4": 3, "f2": 4}.get("%s%d" % (kind, size))
    if code in (None, 2) and hasattr(tensor, "dtype"):  # types of ml_dtypes have no typestr of their own
        code = _accepted(tensor.dtype)
    strides = given.get("strides")
    if any(step % size for step in strides or ()):
        raise ValueError("fallow.kernels: a tensor has strides of %s bytes, no multiples of its %d-byte elements" % (
            text_of(strides), size))
    steps = dense(given["shape"]) if strides is None else tuple(step // size for step in strides)
    device = getattr(getattr(tensor, "device", None), "id", None)
    return Tensor(given["data"][0], tuple(given["shape"]), steps, code,
                  _device_of(given["data"][0]) if device is None else device, bool(given["data"][1]))


def loaded_driver() -> ctypes.CDLL | None:
    """Return the process's libcuda.so.1; None: it has loaded none."""
    try:
        return ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOW | os.RTLD_NOLOAD)
    except OSError:
        return None


def _device_of(address: int) -> int:
    """Return the device of an address, 0 if the driver cannot tell."""
    driver, device = loaded_driver(), ctypes.c_int(0)
    if driver is not None:
        driver.cuPointerGetAttribute(ctypes.byref(device), 9, ctypes.c_uint64(address))  # DEVICE_ORDINAL
    return max(0, device.value)


def current_stream(tensor: Any, device: int) -> int:
    """Return the current stream of a tensor's framework as a number."""
    if is_torch(tensor):
        return int(sys.modules["torch"]._C._cuda_getCurrentRawStream(device))
    if type(tensor).__module__.split(".")[0] == "cupy":
        return int(sys.modules["cupy"].cuda.get_current_stream().ptr)
    if isinstance(tensor, View):
        return tensor._lease._stream
    return getattr(tensor, "__cuda_array_interface__", {}).get("stream") or 0


def require_shape(tensor: Tensor, wanted: tuple[int | None, ...]) -> None:
    """ValueError if a dimension has another size than wanted. None: any."""
    if len(tensor.shape) != len(wanted) or any(size not in (None, given) for size, given in zip(wanted, tensor.shape)):
        raise ValueError("has the shape %s, not %s" % (text_of(tensor.shape), text_of(wanted)))


def strides_of(tensor: Tensor, names: tuple[str, ...]) -> list[int]:
    """Return the strides that are parameters, those of the last dimensions but one; 0: the default. ValueError if
    another stride is not a dense tensor's."""
    shape, strides = tensor.shape, [*tensor.strides, 1]
    named = range(len(shape) - 1 - len(names), len(shape) - 1)
    for i in reversed(range(len(shape))):
        step = strides[i + 1] * (shape[i + 1] if i + 1 < len(shape) else 1)
        if shape[i] <= 1:
            strides[i] = step
        if 0 not in shape and (strides[i] != step if i not in named else strides[i] <= 0):
            raise ValueError("has the shape %s and the strides %s, %s" % (
                text_of(shape), text_of(tensor.strides),
                "where only %s may differ from a dense tensor's" % " and ".join(names) if names else "but must be dense"))
    return [0 if 0 in shape or shape[i] <= 1 else strides[i] for i in named]


def text_of(sizes: tuple[int | None, ...]) -> str:
    """Return a shape for a message."""
    return "[%s]" % ", ".join("any" if size is None else str(size) for size in sizes)
