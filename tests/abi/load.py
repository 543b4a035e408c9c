#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""abi.python: libfallow loads late, into a process in which other libraries have used the static thread-local storage,
and works.

    load.py <libfallow.so> <library that takes 1 KiB of static thread-local storage> <other libraries...>
"""
import ctypes
import os
import sys
import threading

library, hog, others = sys.argv[1], sys.argv[2], sys.argv[3:]

for module in ("ssl", "sqlite3", "lzma", "decimal", "numpy"):  # libraries that a Python program loads
    try:
        __import__(module)
    except ImportError:
        pass
for name in [hog] + others:
    ctypes.CDLL(name)
fallow = ctypes.CDLL(library, mode=os.RTLD_NOW | os.RTLD_LOCAL)

fallow.fallow_status_name.restype = ctypes.c_char_p
assert fallow.fallow_status_name(0) == b"FALLOW_OK", "fallow_status_name"


class Config(ctypes.Structure):
    """The front of fallow_pool_config: a caller with an older header."""

    _fields_ = [("struct_size", ctypes.c_size_t), ("device", ctypes.c_int), ("driver", ctypes.c_char_p)]


config, pool = Config(), ctypes.c_void_p()
init = fallow.fallow_pool_config_init_sized
init.argtypes, init.restype = [ctypes.POINTER(Config), ctypes.c_size_t], None
init(config, ctypes.sizeof(config))
assert config.struct_size == ctypes.sizeof(config), "fallow_pool_config_init_sized"
config.driver = b"sim"
status = fallow.fallow_pool_create(ctypes.byref(config), ctypes.byref(pool))
assert status == 0, "fallow_pool_create: %d" % status

fallow.fallow_alloc.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_void_p]
fallow.fallow_free.argtypes = [ctypes.c_void_p] * 3
fallow.fallow_pool_destroy.argtypes, fallow.fallow_pool_destroy.restype = [ctypes.c_void_p], None
failures = []


def alloc_and_free():
    block = ctypes.c_void_p()
    for size in (1, 4096, 1 << 21):
        if fallow.fallow_alloc(pool, size, None, ctypes.byref(block)) != 0 or not block.value:
            failures.append("fallow_alloc of %d" % size)
        elif fallow.fallow_free(pool, block, None) != 0:
            failures.append("fallow_free of %d" % size)


threads = [threading.Thread(target=alloc_and_free) for _ in range(3)]  # threads born before and after
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
alloc_and_free()
fallow.fallow_pool_destroy(pool)
assert not failures, failures
print("loaded after %d libraries, allocated on 4 threads" % (1 + len(others)))
