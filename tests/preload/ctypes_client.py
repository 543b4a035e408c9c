# SPDX-License-Identifier: Apache-2.0
"""Call the driver from Python by ctypes, as numba and cuda-bindings do: libcuda.so first."""
import ctypes

driver = ctypes.CDLL("libcuda.so")
block = ctypes.c_uint64()
context = ctypes.c_void_p()
print("init", driver.cuInit(0))
print("retain", driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
print("set current", driver.cuCtxSetCurrent(context))
print("alloc", driver.cuMemAlloc_v2(ctypes.byref(block), ctypes.c_size_t(1 << 20)))
print("free", driver.cuMemFree_v2(block))


class Info(ctypes.Structure):
    _fields_ = [("file", ctypes.c_char_p), ("base", ctypes.c_void_p), ("name", ctypes.c_char_p),
                ("address", ctypes.c_void_p)]


info = Info()
ctypes.CDLL(None).dladdr(ctypes.cast(driver.cuMemAlloc_v2, ctypes.c_void_p), ctypes.byref(info))
print("from cuMemAlloc_v2", info.file.decode().rsplit("/", 1)[-1])
