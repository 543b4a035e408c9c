#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# abi.torch: the functions of fallow/plugin.h take what PyTorch's C++ passes to them. Skipped where there is
# no C++ compiler.
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
"$cxx" -std=c++17 -O1 -Wall -Wextra "-I$source/include" "$source/tests/abi/torch_abi.cpp" -o "$work/torch_abi" \
    "$library" "-Wl,-rpath,$(dirname "$library")"
"$work/torch_abi"
