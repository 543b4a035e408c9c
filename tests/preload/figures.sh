#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Measure a pair of cuMemAlloc and cuMemFree through the preload library and through the library itself, and the
# time that a program with an allocation for every operation saves by the simulated driver's latency model.
#
#   tests/preload/figures.sh [BUILD TREE]     (build/release; needs valgrind for the instructions)
#
#   thin    a driver that does nothing: the cost of the hooks alone
#   sim     the simulated driver, including its own cost
set -eu
tree=${1:-build/release}
tree=$(cd "$tree" && pwd)
bench=$tree/bin/pair_bench

# run DRIVER FOLDER, PRELOADED (yes|no), arguments of pair_bench
run() {
    folder=$tree/lib/$1
    library=
    [ "$2" = no ] || library=$tree/lib/libfallow-preload.so
    shift 2
    LD_LIBRARY_PATH=$folder LD_PRELOAD=$library FALLOW=mode:cache "$bench" "$@"
}

# A value of a line that run printed.
value() {
    printf '%s\n' "$1" | sed -n "s/.* $2 \([0-9.]*\).*/\1/p"
}

instructions() {
    folder=$tree/lib/thin-driver
    LD_LIBRARY_PATH=$folder LD_PRELOAD=$tree/lib/libfallow-preload.so FALLOW=mode:cache \
        valgrind --tool=callgrind --callgrind-out-file=/dev/null "$bench" "$@" 2>&1 |
        sed -n 's/.*Collected : \([0-9]*\).*/\1/p'
}

difference() {
    awk -v a="$(instructions "$1" "$2" 100000)" -v b="$(instructions "$1" "$2" 300000)" \
        'BEGIN { printf "%.1f", (b - a) / 200000 }'
}

for size in 64 4096 65536 1048576; do
    if command -v valgrind >/dev/null 2>&1; then
        pair=$(difference pair $size) loop=$(difference loop $size)
        awk -v s=$size -v p="$pair" -v l="$loop" \
            'BEGIN { printf "pair of %7d B, instructions, epoch included  %.1f\n", s, p - l }'
    fi
    line=$(run thin-driver yes pair $size 1000000)
    printf 'pair of %7d B, ns, thin driver                %s\n' $size "$(value "$line" ns)"
    line=$(run driver yes pair $size 300000)
    printf 'pair of %7d B, per 256 pairs                  %s records, %s queries\n' $size \
        "$(value "$line" records_per_256)" "$(value "$line" queries_per_256)"
done
line=$("$tree/bin/fallow" bench pair --count 1000000)
printf 'the library'"'"'s own pair of 4096 B, ns            %s\n' \
    "$(printf '%s\n' "$line" | sed -n 's/^ *ns_per_op *\([0-9.]*\).*/\1/p')"
for shape in pair churn; do
    plain=$(run driver no $shape 4096 100000)
    with=$(run driver yes $shape 4096 100000)
    # With the library the host's time counts too, including that of the simulated driver.
    awk -v what=$shape -v a="$(value "$plain" modelled_ns)" -v b="$(value "$with" modelled_ns)" \
        -v c="$(value "$with" ns)" 'BEGIN { printf \
        "%-5s on the typical profile, ns per operation      %.0f without, %.0f + %.0f of the host with: %.0f times less\n",
        what, a, b, c, a / (b + c) }'
done
