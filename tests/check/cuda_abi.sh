#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# check.cuda_abi: src/driver/cuda_abi.h agrees with the toolkit's cuda.h, to the byte.
#
#   cuda_abi.sh <source root> <C compiler> <folder of cuda.h, or empty> <scratch folder>
#
# Every name of our header is compared: the names are extracted from the header, so none can be forgotten. Values
# that grow with each toolkit (CUDA_VERSION, CU_DEVICE_ATTRIBUTE_MAX) and the *_MAX that only widen
# an enum are left out. 77: no toolkit.
set -eu
root=$1 compiler=$2 toolkit=$3 scratch=$4
case $toolkit in '' | *NOTFOUND*) echo "no cuda.h on this machine: nothing to compare with"; exit 77 ;; esac
[ -f "$toolkit/cuda.h" ] || { echo "no cuda.h in $toolkit"; exit 77; }
header=$root/src/driver/cuda_abi.h
mkdir -p "$scratch"

# Names: enumerators and numeric macros, then types. Comments are dropped first.
sed -e 's,/\*.*\*/,,' "$header" | grep -oE '^ *(#define +)?CU[A-Z]*_[A-Z0-9_]+' |
    sed -e 's/#define//' -e 's/ //g' | grep -vE '^CUDA_CB$|^CU_STREAM_(LEGACY|PER_THREAD)$|^CUDA_VERSION$|_MAX$' |
    sed -e 's/.*/VALUE(&)/' >"$scratch/list.h"
{
    sed -nE 's/^\} (CU[A-Za-z_]+);.*/TYPE(\1)/p' "$header"
    sed -nE 's/^typedef [A-Za-z0-9_ ]+[ *](CU[A-Za-z]+|cuuint[0-9]+_t);.*/TYPE(\1)/p' "$header"
    echo 'TYPE(CUhostFn)'
} >>"$scratch/list.h"
names=$(wc -l <"$scratch/list.h")
[ "$names" -ge 120 ] || { echo "only $names names were found in $header: has its form changed?"; exit 1; }
structs=$(sed -nE 's/^typedef struct ([A-Za-z]+)_st \{.*/\1/p' "$header")
for name in $structs; do
    grep -q "MEMBER($name, " "$root/tests/check/cuda_abi.c" ||
        { echo "$name: its members are not in tests/check/cuda_abi.c"; exit 1; }
done

"$compiler" -std=c11 -Werror -w -I "$root/src" -DPROBE_LIST="\"$scratch/list.h\"" \
    "$root/tests/check/cuda_abi.c" -o "$scratch/ours"
"$compiler" -std=c11 -w -DPROBE_TOOLKIT -I "$toolkit" -DPROBE_LIST="\"$scratch/list.h\"" \
    "$root/tests/check/cuda_abi.c" -o "$scratch/theirs"
"$scratch/ours" >"$scratch/ours.txt"
"$scratch/theirs" >"$scratch/theirs.txt"
if ! diff -u "$scratch/ours.txt" "$scratch/theirs.txt"; then
    echo "src/driver/cuda_abi.h (-) disagrees with $toolkit/cuda.h (+)"
    exit 1
fi
echo "$(wc -l <"$scratch/ours.txt") values, sizes and offsets agree with $toolkit/cuda.h"
