#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Measure the cost that mode trace adds to a call of a driver without effects: ns, the best of five rounds, and
# instructions of the calling thread.
#
#   trace_cost.sh <build tree>
set -eu
build=$(cd "$1" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export LD_LIBRARY_PATH="$build/lib/empty-driver"
library=$build/lib/libfallow-preload.so client=$build/bin/preload_alloc_client pairs=60000
unset FALLOW LD_PRELOAD

plain=$("$client" time $pairs)
traced=$(FALLOW=mode:trace,trace:$work/t.ftrace LD_PRELOAD=$library "$client" time $pairs)
events=$("$build/bin/fallow" trace info "$work/t.ftrace" --json | sed -n 's/^ "events": \([0-9]*\),/\1/p')
[ "$events" = $((pairs * 10)) ] || { echo "$events of $((pairs * 10)) calls are on record: run it again on a quieter machine"; exit 1; }
awk -v a="${plain%% *}" -v b="${traced%% *}" 'BEGIN { printf "%.1f ns a call (goal: 60)\n", (b - a) / 2 }'

command -v valgrind >/dev/null || { echo "no valgrind: instructions were not counted"; exit 0; }

# count PAIRS FALLOW LD_PRELOAD: instructions of the first thread, five rounds of so many pairs
count() {
    FALLOW=$2 LD_PRELOAD=$3 valgrind --tool=callgrind --separate-threads=yes \
        --callgrind-out-file="$work/counts" "$client" time "$1" >/dev/null 2>&1
    sed -n 's/^totals: \([0-9]*\)/\1/p' "$work/counts-01" | tail -1
}
low=1000 high=5000
with_low=$(count $low "mode:trace,trace:$work/t.ftrace" "$library")
with_high=$(count $high "mode:trace,trace:$work/t.ftrace" "$library")
plain_low=$(count $low "" "") plain_high=$(count $high "" "")
echo "$(((with_high - with_low - plain_high + plain_low) / ((high - low) * 10))) instructions a call"
