#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# property.steady_passes: a program that repeats, balanced: what the pool still does from the third pass on, up to
# the thirtieth (generated workloads: the sixth). What two passes did is taken off what all did.
#
#   steady_passes.sh <fallow> <deal_streams> <demo trace> <folder of recorded traces>
#
#   one stream       every trace of one, five lags: no driver call, no event, no wait of the host or of a stream, no
#                    move that waited; held within 1.15 x requested + 16 MiB
#   several streams  the same blocks dealt out to 3 and 8 streams, and the workloads of `fallow gen streams`: no
#                    host wait where work is done at once or 200 events later, and where it is done at once no driver
#                    calls but those that record events, ask for them, or frame that
#
# Missed today, and bounded: of several streams, whose blocks meet in ever other places, handles are moved and made anew
# once 1.17 x is held, and streams wait for each other: OTHERS_MOST, and more where KNOWN says so (trace, lag, what, how
# much). How many it are changes with every change of the pool, by half and more. On one stream shard's blocks, whose
# sizes are drawn, are moved as often: there is no hole for a hundred MiB within what may be held. Where work is done 2,000 and 20,000
# events later, the host waits for some of the moves: LATE_MOST.
# Exit 1 if anything is over, 77 without recorded traces (the rest passed).
set -u
fallow=$1 deal=$2 demo=$3 folder=$4
# shellcheck source=tests/property/figures.sh
. "$(dirname "${BASH_SOURCE[0]}")/figures.sh"
KNOWN='gen streams offload|0|other driver calls in 1,000 allocations|130
gen streams shard|0|other driver calls in 1,000 allocations|300
gen streams images|0|other driver calls in 1,000 allocations|120
gen streams experts|0|other driver calls in 1,000 allocations|500'
OTHERS_MOST=30 # in 1,000 allocations
LATE_MOST=1

work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
failed=0
COUNTS=(driver_calls events_recorded queries frame_calls waits synchronising_calls remap_waits stream_waits steals
    allocations)

# replay TRACE LAG PASSES
replay() {
    local lag_words=()
    [ "$2" = default ] || lag_words=(--lag "$2")
    "$fallow" replay "$1" --policy fallow --no-times --repeat "$3" "${lag_words[@]}" --json - \
        >"$work/json" 2>"$work/error" && return
    cat "$work/error" >&2
    echo "cannot be replayed: $1, lag $2" >&2
    failed=1
    return 1
}

# from_third TRACE LAG PASSES: what the passes after the second did, in the order of COUNTS
from_third() {
    local first all i
    replay "$1" "$2" 2 || return
    read -r -a first < <(figures fallow "${COUNTS[@]}")
    replay "$1" "$2" "$3" || return
    read -r -a all < <(figures fallow "${COUNTS[@]}")
    counts=()
    for i in "${!COUNTS[@]}"; do
        if [ "${first[i]:--1}" -lt 0 ] || [ "${all[i]:--1}" -lt "${first[i]}" ]; then
            echo "${COUNTS[i]} is not counted up: $1, lag $2: ${first[i]-}, ${all[i]-}" >&2
            failed=1
            return 1
        fi
        counts+=($((all[i] - first[i])))
    done
}

one_stream() {
    local name lag asked held over failures calls events stops syncs moves orders steals
    name=$(basename "$1")
    for lag in 0 200 2000 20000 default; do
        from_third "$1" "$lag" 30 || return
        [ "$(trace_figure streams)" = 1 ] || return
        read -r calls events _ _ stops syncs moves orders steals _ <<<"${counts[*]}"
        read -r asked held failures < <(figures fallow peak_requested_bytes peak_reserved_bytes failures)
        expect "$name" "$lag" "driver calls" "$calls"
        expect "$name" "$lag" "events" "$events"
        expect "$name" "$lag" "host waits" $((stops + syncs))
        expect "$name" "$lag" "moves that waited" "$moves"
        expect "$name" "$lag" "waits of streams" $((orders + steals))
        expect "$name" "$lag" "failures" "$failures"
        over=$((held - asked * 115 / 100 - 16777216))
        expect "$name" "$lag" "bytes over 1.15" $((over > 0 ? over : 0))
        echo "$name, lag $lag, passes 3 to 30: $calls driver calls"
    done
}

# several_streams NAME TRACE PASSES LAG...
several_streams() {
    local name=$1 trace=$2 passes=$3 lag calls events queries frames stops syncs moves allocs failures late
    shift 3
    for lag in "$@"; do
        from_third "$trace" "$lag" "$passes" || return
        read -r calls events queries frames stops syncs moves _ _ allocs <<<"${counts[*]}"
        read -r failures < <(figures fallow failures)
        echo "$name, lag $lag, passes 3 to $passes: $allocs allocations, $calls driver calls, $events records," \
            "$queries queries, $frames frames, $syncs host waits ($stops stops), $moves moves that waited"
        late=$LATE_MOST
        case $lag in 0 | 200) late=0 ;; esac
        expect "$name" "$lag" "failures" "$failures"
        expect "$name" "$lag" "host waits in 1,000 allocations" "$(in_1000 "$syncs" "$allocs")" "$late"
        expect "$name" "$lag" "moves that waited in 1,000" "$(in_1000 "$moves" "$allocs")" "$late"
        [ "$lag" != 0 ] || expect "$name" "$lag" "other driver calls in 1,000 allocations" \
            "$(in_1000 $((calls - events - queries - frames)) "$allocs")" "$OTHERS_MOST"
    done
}

# in_1000 COUNT ALLOCATIONS: rounded up
in_1000() {
    echo $((($1 * 1000 + $2 - 1) / $2))
}

found=0
for path in "$demo" "$folder"/*.pickle.xz "$folder"/*.json.gz; do
    [ -e "$path" ] || continue
    [ "$path" = "$demo" ] || found=$((found + 1))
    one_stream "$path"
    for streams in 3 8; do
        "$deal" "$path" $streams "$work/trace.ftext" || { failed=1; continue; }
        several_streams "$streams streams: $(basename "$path")" "$work/trace.ftext" 30 0 200 2000 20000
    done
done
for kind in serving offload shard images experts; do
    "$fallow" gen streams $kind -o "$work/trace.ftext" 2>"$work/error" || { cat "$work/error" >&2; failed=1; }
    several_streams "gen streams $kind" "$work/trace.ftext" 6 0
done

[ $failed = 0 ] || exit 1
[ $found -gt 0 ] || { echo "no recorded trace in '$folder': only the demo and workloads were checked"; exit 77; }
exit 0
