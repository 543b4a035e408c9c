#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Check the preload library: it exports the hooked names, dlsym, _exit and a few fallow_preload_ functions, needs
# no other library of CUDA, is bound at once and never unloaded. If it contains a jemalloc, it imports nothing from
# the program's allocator.
#
#   exports.sh <source root> <libfallow-preload.so>
set -eu
root=$1 library=$2
command -v readelf >/dev/null && command -v nm >/dev/null || { echo "no binutils: nothing checked"; exit 77; }
wrong=0
say() {
    echo "$1"
    wrong=1
}

wanted=$( (printf '%s\n' dlsym _exit _Exit; sed -nE 's/^    X\((cu[A-Za-z0-9_]+), .*/\1/p' "$root/src/preload/hook_list.h") | sort)
got=$(nm -D --defined-only "$library" | sed -E 's/.* //; s/@.*//' | grep -v '^fallow_preload_' | sort)
[ "$wanted" = "$got" ] || say "exported are not just the hooks:
$(printf '%s\n%s\n' "$wanted" "$got" | sort | uniq -u)"
needed=$(readelf -dW "$library" | sed -nE 's/.*\(NEEDED\).*\[(.*)\]/\1/p')
for name in $needed; do
    case $name in
    libc.so.* | ld-linux* | libm.so.* | libpthread.so.* | libdl.so.* | libgcc_s.so.* | libubsan.so.*) ;;
    *) say "it needs $name, which is then loaded into every process" ;;
    esac
done
readelf -dW "$library" | grep -q 'NOW' || say "it is not bound at once (-z now)"
readelf -dW "$library" | grep -q 'NODELETE' || say "it can be unloaded (-z nodelete)"
readelf -dW "$library" | grep -q '(SYMBOLIC)' && say "it is symbolic as a whole: it would not see an interposer before it"
nm -D --undefined-only "$library" | grep -q '__tls_get_addr' && say "thread-local storage that is not initial-exec: it allocates"
if nm "$library" 2>/dev/null | grep -q ' [tT] je_arena_boot$'; then # its own jemalloc
    foreign=$(nm -D --undefined-only "$library" | sed -nE 's/.* (malloc|calloc|realloc|free|aligned_alloc|posix_memalign|strdup)(@.*)?$/\1/p')
    [ -z "$foreign" ] || say "it takes memory from the program's allocator: $(echo $foreign)"
fi
[ $wrong -eq 0 ] && echo "$(echo "$got" | wc -l) exports; needs: $(echo $needed)"
exit $wrong
