#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# abi.torch: the functions of fallow/plugin.h accept the arguments of PyTorch's C++ and throw the exceptions
# that it catches, with and without a libc10. Skipped without a C++ compiler.
#
#   torch_abi.sh <source root> <libfallow.so> <scratch folder>
set -eu
source=$1 library=$2 work=$3
cxx=
for candidate in "${CXX:-}" g++ clang++ c++; do
    [ -n "$candidate" ] && command -v "$candidate" >/dev/null && { cxx=$candidate; break; }
done
[ -n "$cxx" ] || { echo "no C++ compiler: nothing checked"; exit 77; }
mkdir -p "$work"
flags=(-std=c++17 -O1 -Wall -Wextra "-I$source/include")
here=$source/tests/abi
"$cxx" "${flags[@]}" "$here/torch_abi.cpp" -o "$work/torch_abi" "$library" "-Wl,-rpath,$(dirname "$library")" -pthread
"$work/torch_abi"
for abi in 1 0; do # of std::string: PyTorch's packages have had both
    mkdir -p "$work/abi$abi"
    flags+=("-D_GLIBCXX_USE_CXX11_ABI=$abi")
    "$cxx" "${flags[@]}" -fPIC -shared -Wl,-soname,libc10.so "$here/c10_look_alike.cpp" -o "$work/abi$abi/libc10.so"
    "$cxx" "${flags[@]}" -DWITH_C10 "$here/torch_abi.cpp" -o "$work/abi$abi/torch_abi" "$library" \
        "$work/abi$abi/libc10.so" "-Wl,-rpath,$(dirname "$library"):$work/abi$abi" -pthread
    "$work/abi$abi/torch_abi"
done
