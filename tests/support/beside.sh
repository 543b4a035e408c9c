#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# unit.beside_all, unit.beside_all_host, kernel.beside_all: no public function is without a case beside another
# thread's capture. The exports of a library are compared with the calls of the programs that run beside a capture.
#
#   beside.sh <library.so> <program> ...
set -eu
command -v nm >/dev/null || { echo "no binutils: nothing checked"; exit 77; }
library=$1
shift
exported=$(nm -D --defined-only "$library" | awk 'NF == 3 && $2 != "A" { sub(/@.*/, "", $3); print $3 }' | sort -u)
called=$(nm -D --undefined-only "$@" | awk '$1 == "U" { sub(/@.*/, "", $2); print $2 }' | sort -u)
[ -n "$exported" ] || { echo "$library exports nothing" >&2; exit 1; }
missing=$(comm -23 <(echo "$exported") <(echo "$called"))
if [ -n "$missing" ]; then
    echo "$missing" | sed "s/\$/: no case calls it beside a capture/" >&2
    exit 1
fi
echo "$(echo "$exported" | wc -l) functions are called beside another thread's capture"
