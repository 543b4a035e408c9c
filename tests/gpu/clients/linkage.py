#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How the frameworks that are installed reach CUDA: their needed libraries, and whether they contain a runtime. One
line each; exit 77 if there are none."""
import glob
import importlib.util
import os
import subprocess
import sys

LIBRARIES = {
    "torch": ["lib/libtorch_cuda.so", "lib/libc10_cuda.so"],
    "cupy": ["_core/core*.so", "cuda/memory*.so", "cuda/*runtime*.so"],
    "jax_cuda12_plugin": ["xla_cuda_plugin.so"],
    "jax_cuda13_plugin": ["xla_cuda_plugin.so"],
    "jax_plugins.xla_cuda12": ["xla_cuda_plugin.so"],
    "jax_plugins.xla_cuda13": ["xla_cuda_plugin.so"],
    "triton": ["_C/libtriton.so", "backends/nvidia/**/*.so"],
}


def folder_of(name):
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None
    if spec is None:
        return None
    places = list(spec.submodule_search_locations or [])
    return places[0] if places else os.path.dirname(spec.origin)


def needs(path):
    text = subprocess.run(["readelf", "-d", path], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                          universal_newlines=True).stdout
    names = [line.split("[")[1].split("]")[0] for line in text.splitlines() if "(NEEDED)" in line]
    return [name for name in names if "cuda" in name]


def carries_runtime(path):
    """A static runtime looks for this name itself."""
    tail = b""
    with open(path, "rb") as file:
        while True:
            piece = file.read(1 << 24)
            if not piece:
                return False
            if b"cuGetProcAddress_v2" in tail + piece:
                return True
            tail = piece[-32:]


def main():
    lines = []
    for package, patterns in LIBRARIES.items():
        folder = folder_of(package)
        for pattern in patterns if folder else []:
            for path in sorted(glob.glob(os.path.join(folder, pattern), recursive=True))[:3]:
                lines.append("%s: needs %s; %s" % (os.path.relpath(path, os.path.dirname(folder)),
                                                   ", ".join(needs(path)) or "no CUDA library",
                                                   "looks entry points up itself" if carries_runtime(path) else
                                                   "does not look entry points up"))
    if not lines:
        print("no framework is installed")
        sys.exit(77)
    print("\n".join(lines))


main()
