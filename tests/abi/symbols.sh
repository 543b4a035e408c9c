#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# abi.symbols: a library exports exactly what its public headers declare, needs no driver, runtime
# or allocator, and takes at most so many bytes of thread-local storage that any process can load it.
# An archive exports the names that other objects can see; needed libraries are compared by name.
#
#   symbols.sh [--may-need <library>] <source root> <library.so|library.a> <most bytes of thread-local storage> <least
#   functions> <header> ...
set -eu
may_need='^$'
if [ "$1" = --may-need ]; then
    may_need=$2
    shift 2
fi
source=$1 library=$2 tls_limit=$3 least=$4
shift 4
command -v nm >/dev/null && command -v readelf >/dev/null || { echo "no binutils: nothing checked"; exit 77; }

# Declarations begin with FALLOW_API; comments name functions too and are removed first.
declared=$(cd "$source/include/fallow" && cat "$@" | sed -E 's|/\*.*\*/||' |
    awk '/^[[:space:]]*\/\*/ { comment = 1 } !comment { print } /\*\// { comment = 0 }' | tr '\n' ' ' |
    grep -oE 'FALLOW_API [^;(]*\bfallow_[a-z0-9_]+ ?\(' | grep -oE 'fallow_[a-z0-9_]+ ?\($' | tr -d ' (' | sort -u)
from=-D
[[ $library != *.a ]] || from=-g
exported=$(nm $from --defined-only "$library" | awk 'NF == 3 && $2 != "A" { sub(/@.*/, "", $3); print $3 }' | sort -u)
[ "$(echo "$declared" | wc -l)" -ge "$least" ] || { echo "only these declarations were found: $declared" >&2; exit 1; }
diff <(echo "$declared") <(echo "$exported") ||
    { echo "above: < declared in include/fallow, > exported by $library" >&2; exit 1; }

if [[ $library == *.a ]]; then
    if nm -u "$library" | grep -E ' (flw_|fallow_|cu[A-Z]|je_|mallocx|lzma_|ZSTD_|inflate)'; then
        echo "$library must not need these" >&2
        exit 1
    fi
    echo "$(echo "$declared" | wc -l) functions that other objects see"
    exit 0
fi
needed=$(readelf -dW "$library" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
if echo "$needed" | grep -vE "$may_need" | grep -E 'cuda|jemalloc|stdc\+\+|lzma|libz|zstd'; then
    echo "$library must not need these" >&2
    exit 1
fi
tls=$(readelf -lW "$library" | awk '$1 == "TLS" { print $6 }')
[ $((${tls:-0})) -le "$tls_limit" ] ||
    { echo "$library has $((tls)) bytes of thread-local storage, not at most $tls_limit" >&2; exit 1; }
echo "$(echo "$declared" | wc -l) functions, $((${tls:-0})) bytes of thread-local storage, needs:" $needed
