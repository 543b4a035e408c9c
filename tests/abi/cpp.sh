#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# abi.cpp: fallow.hpp compiles alone as C++17 and C++20 without a warning, by each compiler found, and does as documented.
# abi.cpp_adaptors: so do cuda_mr.hpp and rmm.hpp with the headers of CUDA's toolkit, and with those of each RMM that
# tools/quickstart installs from PyPI. RMM needs g++: clang 14 refuses RMM's own headers. Exit 77: nothing was compiled.
#
#   cpp.sh <source root> <libfallow.so> <scratch folder>
#   cpp.sh <source root> <libfallow.so> <scratch folder> <folder of cuda.h, or empty>
set -eu
source=$1 library=$2 work=$3
ran=0
mkdir -p "$work"

# build_and_run COMPILERS PROGRAM FLAGS...
build_and_run() {
    local cxx standard compilers=$1 program=$2
    shift 2
    for cxx in $compilers; do
        command -v "$cxx" >/dev/null || continue
        for standard in 17 20; do
            "$cxx" "-std=c++$standard" -O1 -Wall -Wextra -Werror "-I$source/include" "$source/tests/abi/$program.cpp" \
                -o "$work/$program" "$library" "$@" "-Wl,-rpath,$(dirname "$library")" -pthread
            "$work/$program" || { echo "$program by $cxx for C++$standard failed" >&2; exit 1; }
            ran=$((ran + 1))
        done
    done
}

if [ $# = 3 ]; then
    build_and_run 'g++ clang++' cpp -Wpedantic -Wshadow -Wconversion
else
    toolkit=$4 headers=$4
    [ -n "$headers" ] || headers=$(find "$source/build/pypi" -path '*/nvidia/cu*/include' 2>/dev/null | head -n 1)
    [ -n "$headers" ] || { echo "no CUDA headers, of a toolkit or from PyPI (tools/quickstart): nothing checked"; exit 77; }
    if [ -e "$toolkit/cccl/cuda/memory_resource" ]; then
        build_and_run 'g++ clang++' cpp_adaptors -isystem "$toolkit/cccl" -isystem "$toolkit"
        said=$(printf '#include <cuda/memory_resource>\n#include <fallow/cuda_mr.hpp>\n' |
            g++ -std=c++17 -fsyntax-only -isystem "$toolkit/cccl" -isystem "$toolkit" -I"$source/include" -x c++ - 2>&1) ||
            [[ $said == *'error: #error "include fallow/cuda_mr.hpp before'* ]] ||
            { echo "cuda_mr.hpp behind CUDA's header: $said"; exit 1; }
    else
        echo "no CCCL of a toolkit"
    fi
    # RMM before 26.06 demands the macro. Linked whether needed or not, the logger is found for librmm.
    for rmm in "$source"/build/pypi/*/librmm; do
        [ -e "$rmm" ] || { echo "no RMM in build/pypi (tools/quickstart)"; break; }
        logger=$(dirname "$rmm")/rapids_logger
        build_and_run g++ cpp_adaptors -DWITH_RMM -DLIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE \
            -isystem "$rmm/include" -isystem "$rmm/include/rapids" -isystem "$rmm/include/rapids/libcudacxx" \
            -isystem "$logger/include" -isystem "$headers" -Wl,--no-as-needed "$rmm/lib64/librmm.so" \
            "$logger/lib64/librapids_logger.so" "-Wl,-rpath,$rmm/lib64:$logger/lib64"
    done
fi
[ $ran != 0 ] || { echo "no C++ compiler, or nothing to compile with: nothing checked"; exit 77; }
echo "$ran programs compile and run"
