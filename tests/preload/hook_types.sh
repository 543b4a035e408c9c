#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Check that each hook has the type of its name and version in the toolkit's cudaTypedefs.h. A wrapper of another
# type would be called with wrong arguments, and no other test would notice.
#
#   hook_types.sh <source root> <C compiler> <folder of cuda.h, or empty> <scratch folder>
#
# 77: no toolkit.
set -eu
root=$1 compiler=$2 toolkit=$3 scratch=$4
[ -f "$toolkit/cudaTypedefs.h" ] || { echo "no cudaTypedefs.h on this machine: nothing to compare with"; exit 77; }
mkdir -p "$scratch"
list=$root/src/preload/hook_list.h
{
    echo '#include "preload/hooks.h"'
    echo '#include <cudaTypedefs.h>'
    sed -nE 's/^    X\((cu[A-Za-z0-9_]+), (cu[A-Za-z0-9]+), ([0-9]+), .*/\1 \2 \3/p' "$list" |
        while read -r symbol base since; do
            case $symbol in *_ptsz) twin=_ptsz ;; *_ptds) twin=_ptds ;; *) twin= ;; esac
            echo "extern PFN_${base}_v$since$twin type_of_$symbol;"
            echo "_Static_assert(__builtin_types_compatible_p(__typeof__(*type_of_$symbol),"
            echo "    __typeof__(flw_hook_$symbol)), \"$symbol\");"
        done
} >"$scratch/hook_types.c"
count=$(grep -c '^extern' "$scratch/hook_types.c")
[ "$count" -ge 70 ] || { echo "only $count hooks were found in $list: has its form changed?"; exit 1; }
"$compiler" -std=gnu11 -fsyntax-only -DFLW_USES_CUDA_H=1 -D__CUDA_API_VERSION_INTERNAL -I "$root/src" -I "$root/include" -isystem "$toolkit" \
    "$scratch/hook_types.c"
echo "$count hooks have the types of $toolkit/cudaTypedefs.h"
