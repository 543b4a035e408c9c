# SPDX-License-Identifier: Apache-2.0
"""Check whether the CUDA runtime inside a library reaches the hooks.

inner_runtime.py LIBRARY FUNCTION calls FUNCTION(&handle), ignores its status and prints how many addresses of five
entry points the preload returned.
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
