#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Owns: the check of the code that a compiler generates for a hit on AArch64: after the store of busy, the first load
# is that of the key, an acquire (ldar, ldapr), as in the model of the lock (asym_model.c). Does not: run anything. On
# x86-64 the same source is a compare with memory; tools/measure counts it.
set -u
source=${1:?usage: asym_arm.sh SOURCE_TREE}
compiler=${FALLOW_AARCH64_CC:-aarch64-linux-gnu-gcc}
root=${FALLOW_AARCH64_ROOT:+--sysroot=$FALLOW_AARCH64_ROOT}
if ! command -v "$compiler" >/dev/null; then
    echo "check.asym_arm: skipped, no '$compiler' (install gcc-aarch64-linux-gnu, or set FALLOW_AARCH64_CC)"
    exit 77
fi
if ! echo '#include <errno.h>' | "$compiler" ${root:+"$root"} -E - >/dev/null 2>&1; then
    echo "check.asym_arm: skipped, '$compiler' has no C library (install libc6-dev-arm64-cross, or set FALLOW_AARCH64_ROOT)"
    exit 77
fi
failures=0
for options in -O2 '-O2 -march=armv8.3-a+rcpc' -O3; do
    # shellcheck disable=SC2086 # several options
    if ! code=$("$compiler" ${root:+"$root"} -std=c11 $options -fPIC -D_GNU_SOURCE -DNDEBUG -DFLW_CHECK_LEVEL=0 \
        -fno-strict-aliasing -fno-semantic-interposition -I"$source/include" -I"$source/src" \
        -S -o - "$source/src/pool/calls/entry.c"); then
        echo "FAILED: '$compiler $options' does not compile src/pool/calls/entry.c" >&2
        exit 1
    fi
    for function in fallow_alloc fallow_free fallow_free_sized; do
        first=$(awk -v name="$function:" '
            $1 == name { inside = 1 }
            inside && $1 ~ /^st/ && !/\[sp/ { stored = 1 }
            inside && stored && $1 ~ /^ld/ { print $1; exit }' <<<"$code")
        case $first in
            ldar | ldapr) ;;
            *)
                echo "FAILED: $function ($options): the first load behind the store to busy is" \
                    "'${first:-none}', not an acquire of the key" >&2
                failures=$((failures + 1)) ;;
        esac
    done
done
[ $failures = 0 ] && echo "ok: in each hit the key is loaded by an acquire, before anything that it guards"
exit $((failures != 0))
