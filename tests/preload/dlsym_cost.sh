#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Count the instructions of dlsym with the preload and without (callgrind), and compare.
#
#   dlsym_cost.sh <dlsym_cost> <libfallow-preload.so> <folder of libcuda.so.1>
#
# Exit 1: a ratio is above the goal; 77: no valgrind.
set -eu
program=$1 library=$2 folder=$3 goal=1.5
command -v valgrind >/dev/null || { echo "no valgrind: nothing counted"; exit 77; }

calls=2000

# each WAY PRELOAD
each() {
    total=$(LD_LIBRARY_PATH=$folder LD_PRELOAD=$2 valgrind --tool=callgrind \
        --callgrind-out-file=/dev/null --collect-atstart=no --toggle-collect=call_many \
        "$program" $calls "$1" 2>&1 | sed -n 's/.*Collected : \([0-9]*\).*/\1/p')
    [ "${total:-0}" -gt $calls ] || { echo "valgrind did not count '$1'" >&2; exit 1; }
    echo $((total / calls))
}

missed=0
for way in hooked driver library default; do
    plain=$(each $way "")
    ours=$(each $way "$library")
    line=$(awk -v p="$plain" -v o="$ours" -v g=$goal -v w=$way 'BEGIN {
        printf "dlsym of %-8s plain %4d, preloaded %4d instructions: %.2f %s", w, p, o, o / p,
               (p > 0 && o / p <= g) ? "ok" : "MISSED, the goal is " g }')
    echo "$line"
    case $line in *MISSED*) missed=1 ;; esac
done
exit $missed
