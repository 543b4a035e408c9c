#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# check.bare_build: configures and builds everything with cmocka and every optional library hidden, as on a
# machine that has a compiler, CMake and the C library alone; then one program of each kind runs.
#
#   bare_build.sh <source root> <C compiler> <scratch folder>
set -eu
source=$1 cc=$2 build=$3
machine=$("$cc" -print-multiarch 2>/dev/null || true)
rm -rf "$build"
mkdir -p "$build"
# pkg-config finds nothing, neither does CMake in the system's own folders; the compiler still does.
if ! PKG_CONFIG_LIBDIR=/nonexistent cmake -S "$source" -B "$build" -DCMAKE_C_COMPILER="$cc" \
    -DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_FLAGS_DEBUG=-O0 -DFALLOW_CUDA_H=OFF \
    "-DCMAKE_IGNORE_PATH=/usr/include;/usr/local/include;/usr/lib;/usr/local/lib;/usr/lib/$machine;/lib/$machine" \
    >"$build/configure.log" 2>&1; then
    cat "$build/configure.log" >&2
    exit 1
fi
for library in LZMA ZLIB ZSTD 'cmocka'; do
    grep -q "$library not found" "$build/configure.log" ||
        { cat "$build/configure.log"; echo "$library was to be hidden and was found" >&2; exit 1; }
done
if grep -q 'jemalloc_INCLUDE:PATH=/' "$build/CMakeCache.txt"; then
    echo "jemalloc was to be hidden and was found" >&2
    exit 1
fi
if ! cmake --build "$build" -j 2 >"$build/build.log" 2>&1; then
    grep -E 'error|Error|warning' "$build/build.log" | head -20 >&2
    exit 1
fi
if grep -q 'warning:' "$build/build.log"; then
    grep -A3 'warning:' "$build/build.log" | head -40 >&2
    exit 1
fi
"$build/bin/fallow" --version
ctest --test-dir "$build" --no-tests=error -R '^(kernel\.route|property\.waste_bound|example\.quickstart|check\.conformance)$' \
    --output-on-failure >"$build/test.log" || { cat "$build/test.log" >&2; exit 1; }
grep '% tests passed' "$build/test.log"
rm -rf "$build"
