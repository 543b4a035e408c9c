# SPDX-License-Identifier: Apache-2.0
"""Fill from several lines, for the tests of the audit. Prints "lines" if this Python exposes its lines."""
import ctypes

driver = ctypes.CDLL("libcuda.so.1")
context = ctypes.c_void_p()
driver.cuInit(0)
driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
driver.cuCtxSetCurrent(context)


def allocate():
    block = ctypes.c_uint64()
    assert driver.cuMemAlloc_v2(ctypes.byref(block), ctypes.c_size_t(4096)) == 0
    return block


def fill(block):
    assert driver.cuMemsetD8_v2(block, 0, ctypes.c_size_t(4096)) == 0


def one():
    fill(allocate())


def other():
    fill(allocate())


for deed in (one, other, one):
    deed()
print("lines" if hasattr(ctypes.pythonapi, "_Py_DumpTraceback") else "no lines")
