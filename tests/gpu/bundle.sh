#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds the programs for a GPU machine on which nothing can be built or installed: libfallow, preload, kernels,
# simulated driver, `fallow`, the programs of tests/gpu, the conformance suite, the kernel tests, and the scripts
# that run them, in one folder laid out like the source tree. It needs the C library and nothing else.
#
#   tests/gpu/bundle.sh [--out DIR] [--jobs N] [--generation 90] [--without-kernels]
#
# --out DIR          (build/bundle) is made anew; the build itself is in DIR.build and is kept
# --generation N     compute capability, times ten, that kernels are compiled for
# --without-kernels  for the simulated device only; the default without nvcc
#
# Needs a C compiler, CMake 3.22, make or ninja, strip and readelf. DIR/MANIFEST describes the bundle.
#
# Exit: 0 built and verified; 1 it could not be built, or lacks a property; 2 usage.
set -u
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd) || exit 2
out=$root/build/bundle jobs=$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2) generation=90 images=ON
most_bytes=$((40 << 20))

die() {
    echo "bundle.sh: $1" >&2
    exit "${2-1}"
}
while [ $# -gt 0 ]; do
    case $1 in
    --out | --jobs | --generation)
        [ $# -ge 2 ] || die "$1 lacks its value" 2
        declare "${1#--}=$2"
        shift 2 ;;
    --without-kernels) images=OFF; shift ;;
    --help | -h) sed -e '1,2d' -e '/^set -u/,$d' -e 's/^# \{0,1\}//' "$0"; exit 0 ;;
    *) die "cannot use '$1'; see tests/gpu/bundle.sh --help" 2 ;;
    esac
done
[[ $jobs =~ ^[1-9][0-9]*$ ]] || die "--jobs '$jobs': a number" 2
[[ $generation =~ ^[1-9][0-9]+$ ]] || die "--generation '$generation': a number, 90 for an H200" 2
case ${out##*/} in '' | . | ..) die "--out '$out': name the folder itself" 2 ;; esac
mkdir -p "$out.build" && out=$(cd "$(dirname "$out")" && pwd)/${out##*/} || die "cannot write in --out '$out'"
build=$out.build

# ---- build: no library but the C library's, and paths relative to its own folder

generator=()
if [ ! -e "$build/CMakeCache.txt" ] && command -v ninja >/dev/null; then generator=(-G Ninja); fi
if ! { cmake -S "$root" -B "$build" "${generator[@]}" -DCMAKE_BUILD_TYPE=Release -DFALLOW_LIBDW=OFF -DFALLOW_NCURSES=OFF \
    -DCMAKE_C_FLAGS_RELEASE='-O2 -DNDEBUG' -DCMAKE_BUILD_RPATH_USE_ORIGIN=ON \
    -DCMAKE_EXE_LINKER_FLAGS=-static-libgcc -DCMAKE_SHARED_LINKER_FLAGS=-static-libgcc -DFALLOW_INSTALL=OFF \
    -DFALLOW_TESTS=ON -DFALLOW_TOOLS=ON -DFALLOW_HOST=OFF -DFALLOW_JEMALLOC=OFF \
    -DCMAKE_DISABLE_FIND_PACKAGE_LibLZMA=ON -DCMAKE_DISABLE_FIND_PACKAGE_ZLIB=ON -DZSTD_INCLUDE= -DZSTD_LIBRARY= \
    -DFALLOW_KERNEL_IMAGES=$images "-DFALLOW_KERNEL_GENERATIONS=$generation" &&
    cmake --build "$build" -j "$jobs" --target gpu_programs; } >"$build/log" 2>&1 </dev/null; then
    tail -n 20 "$build/log" >&2
    die "the build failed; all of it: $build/log"
fi

# ---- pack

rm -rf "$out"
mkdir -p "$out/bin" "$out/lib/driver" "$out/tests/gpu/clients" "$out/tools/python" || die "cannot write $out"
for program in fallow driver_conformance gpu_stress first_run device_probe vmm_probe client_plain client_plain_linked; do
    cp "$build/bin/$program" "$out/bin/" || die "$program was not built"
done
cp "$build"/bin/test_kernel_* "$out/bin/" || die "no kernel test was built"
# Copy each library under all names by which programs open it, without links: copies of folders may lose links.
for library in "$build"/lib/*.so; do
    name=$(readelf -d "$library" | sed -n 's/.*(SONAME).*\[\(.*\)\]/\1/p')
    cp -L "$library" "$out/lib/" || die "cannot copy $library"
    [ -z "$name" ] || [ "$name" = "${library##*/}" ] || cp -L "$library" "$out/lib/$name" || die "cannot copy $library"
done
cp -L "$build/lib/driver/libcuda.so.1" "$out/lib/driver/" || die "the simulated driver was not built"
find "$out/bin" "$out/lib" -type f -exec strip --strip-unneeded {} + || die "strip failed"
cd "$root/tests/gpu" || die "no $root/tests/gpu"
cp first.sh call_[ab].sh calls_test.sh rehearsal.sh clients.sh kernels_torch.py torch_tour.py transformer.py "$out/tests/gpu/" &&
    cp clients/*.py clients/plain.cu "$out/tests/gpu/clients/" && mkdir "$out/tools/python/fallow" && cp "$root"/tools/python/fallow/*.py "$out/tools/python/fallow/" ||
    die "the scripts could not be copied"

# ---- look

problems=0
problem() {
    echo "bundle.sh: $1" >&2
    problems=$((problems + 1))
}
glibc=0
for file in "$out"/bin/* "$out"/lib/*.so* "$out"/lib/driver/*; do
    while read -r needed; do
        case $needed in
        libc.so.6 | libm.so.6 | libdl.so.2 | libpthread.so.0 | librt.so.1 | ld-linux* | libcuda.so.1) ;;
        *) [ -e "$out/lib/$needed" ] || problem "${file#"$out/"} needs $needed" ;;
        esac
    done < <(readelf -d "$file" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
    while read -r path; do
        case $path in '$ORIGIN' | '$ORIGIN/../lib' | '$ORIGIN/../lib:') ;; *) problem "${file#"$out/"} looks for libraries in $path" ;; esac
    done < <(readelf -d "$file" | sed -n 's/.*(R.*PATH).*\[\(.*\)\]/\1/p')
    ! readelf -S -W "$file" | grep -qE ' \.(symtab|debug_info) ' || problem "${file#"$out/"} is not stripped"
    glibc=$({ echo "$glibc"; readelf -V -W "$file" | grep -oE 'GLIBC_2\.[0-9]+' | sed 's/GLIBC_//'; } | sort -V | tail -n 1)
done
kernels=none
! grep -q 'kernels for sm_' "$build/log" || kernels=sm_$generation
[ "$images" = OFF ] || [ "$kernels" != none ] || echo "bundle.sh: no kernels for GPUs: there is no nvcc that works ($build/log)" >&2
bytes=$(du -sb "$out" | cut -f1)
[ "$bytes" -le $most_bytes ] || problem "$bytes bytes are more than 40 MiB"
{
    echo "commit $(git -C "$root" describe --always --dirty --abbrev=40 2>/dev/null || echo unknown)"
    echo "made $(date -u +%Y-%m-%dT%H:%M:%SZ) on $(uname -srm) by $(sed -n 's/^CMAKE_C_COMPILER:[A-Z]*=//p' "$build/CMakeCache.txt" | xargs -I{} sh -c '"{}" --version | head -n 1')"
    echo "kernels $kernels"
    echo "needs glibc $glibc"
} >"$out/MANIFEST"
[ $problems = 0 ] || die "the bundle is not as promised"
cat "$out/MANIFEST"
echo "$((bytes >> 10)) KiB in $(find "$out" -type f | wc -l) files: $out"
