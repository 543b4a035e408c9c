# SPDX-License-Identifier: Apache-2.0
"""A library that carries a CUDA runtime of its own inside: does that runtime come to the hooks?

inner_runtime.py LIBRARY FUNCTION: calls FUNCTION(&handle), whatever it answers, and prints how many
addresses of four entry points it was given by the preload.
"""
import ctypes
import sys

handle = ctypes.c_void_p()
library = ctypes.CDLL(sys.argv[1])
print("answer", getattr(library, sys.argv[2])(ctypes.byref(handle)))
try:
    answers = ctypes.CDLL(None).fallow_preload_answers
except AttributeError:
    sys.exit(0)  # not preloaded
answers.restype = ctypes.c_ulonglong
for name in ("cuGetProcAddress_v2", "cuMemAlloc_v2", "cuMemFree_v2", "cuMemAllocAsync",
             "cuMemAllocAsync_ptsz"):
    print("answers", name, answers(name.encode()))
