#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# check.kernel_rounding: the PTX of every kernel, compiled with the flags of the build, names the rounding of each
# float product, sum and difference. Without a rounding (mul.f32) an assembler may fuse a product with a sum, and the
# result differs from the definition; with one (mul.rn.f32) it may not. Needs nvcc, no GPU.
#
#   kernel_rounding.sh <source root> <scratch folder> <nvcc> [FLAG ...]
set -u
root=$1 work=$2 nvcc=$3
shift 3
mkdir -p "$work" || exit 2
failed=0
count=0
for kernel in "$root"/kernels/*/*.cu; do
    name=$(basename "$kernel" .cu)
    if ! "$nvcc" -ptx -arch=compute_80 "$@" -I"$root/kernels" -I"$root/include" -o "$work/$name.ptx" "$kernel"; then
        echo "$name: not compiled"
        failed=1
        continue
    fi
    count=$((count + 1))
    loose=$(grep -cE '[[:space:]](mul|add|sub|mad)(\.ftz|\.sat)*\.f(32|64)[[:space:]]' "$work/$name.ptx")
    if [ "$loose" != 0 ]; then
        echo "$name: $loose products, sums and differences that an assembler may fuse; is -fmad=false missing?"
        failed=1
    fi
done
if [ "$count" = 0 ]; then
    echo "no kernel in $root/kernels was compiled"
    exit 1
fi
exit $failed
