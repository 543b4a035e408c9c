#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# property.streams_figures: what each economy holds, on what it waits and what it asks the driver on the workloads of
# `fallow gen streams`, when work is done 200 us and 5 ms later.
#
#   streams_figures.sh <fallow>
#
#   balanced      held <= the larger of 1.17 x requested and what an allocator without waits needs, up to 1.45 x; in the
#                 last quarter the host waits once in 1,000 allocations at most, and there are 4 driver calls for each
#   speed first   nobody waits; held <= 1.15 x what an allocator without waits needs, and <= PyTorch's policy
#   memory first  held <= 1.10 x requested; in the last quarter the host waits 50 times in 1,000 allocations at most
#   all           no request fails, no rule is broken
#
# KNOWN has what is missed today: workload, lag, what, and how much of it may be. Where blocks of tens of MiB go from
# stream to stream, each used by another one, a miss is a record, a question or two, and the section around them; and
# with nothing but 1.17 x to hold, pieces are moved.
# Prints the table; exit 1 if anything is over.
set -u
fallow=$1
# shellcheck source=tests/property/figures.sh
. "$(dirname "${BASH_SOURCE[0]}")/figures.sh"
KNOWN='experts|5ms|driver calls of balanced above 4,000 for 1,000 allocations|700'

work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
failed=0

# last_quarter POLICY KEY: the count of the last quarter
last_quarter() {
    sed -n "s/.*\"name\": \"$1\".*\"last_quarter\": {[^}]*\"$2\": \([0-9]*\).*/\1/p" "$work/json"
}

# ratio A B: thousandths, rounded up
ratio() {
    echo $((($1 * 1000 + $2 - 1) / $2))
}

over() {
    echo $(($1 > $2 ? $1 - $2 : 0))
}

check() {
    local kind=$1 lag=$2 policy asked held refused broken host_waits stream_waits calls allocs waitless model most
    "$fallow" replay "$work/trace.ftext" --lag "$lag" --no-times --json - \
        --policy fallow,fallow-speed-first,fallow-memory-first,pytorch,bound >"$work/json" 2>"$work/error" ||
        { cat "$work/error" >&2; failed=1; return; }
    read -r model < <(figures pytorch peak_reserved_bytes)
    read -r waitless < <(figures bound without_wait_bytes)
    for policy in fallow fallow-speed-first fallow-memory-first; do
        read -r asked held refused broken host_waits stream_waits \
            < <(figures $policy peak_requested_bytes peak_reserved_bytes failures violations waits stream_waits)
        expect "$kind" "$lag" "requests of $policy failed" "$refused"
        expect "$kind" "$lag" "rules broken by $policy" "$broken"
        [ $policy != fallow-speed-first ] ||
            expect "$kind" "$lag" "waits of speed first" $((host_waits + stream_waits))
        allocs=$(last_quarter $policy allocations)
        host_waits=$(ratio "$(last_quarter $policy waits)" "$allocs")
        calls=$(ratio "$(last_quarter $policy driver_calls)" "$allocs")
        printf '%-8s %-6s %-20s held %4d and %4d thousandths of what is asked for, without a wait %4d; ' "$kind" \
            "$lag" $policy "$(ratio "$held" "$asked")" "$(ratio "$model" "$asked")" "$(ratio "$waitless" "$asked")"
        printf 'last quarter, 1,000 allocations: %2d host waits, %5d calls\n' \
            "$host_waits" "$calls"
        case $policy in
        fallow)
            most=$((waitless < asked * 145 / 100 ? waitless : asked * 145 / 100))
            most=$((most > asked * 117 / 100 ? most : asked * 117 / 100))
            expect "$kind" "$lag" "host waits of balanced above 1 in 1,000 allocations" "$(over "$host_waits" 1)"
            expect "$kind" "$lag" "driver calls of balanced above 4,000 for 1,000 allocations" "$(over "$calls" 4000)"
            ;;
        fallow-speed-first)
            most=$((waitless * 115 / 100 < model ? waitless * 115 / 100 : model))
            ;;
        *)
            most=$((asked * 110 / 100))
            expect "$kind" "$lag" "host waits of memory first above 50 in 1,000 allocations" "$(over "$host_waits" 50)"
            ;;
        esac
        expect "$kind" "$lag" "bytes of $policy above its bound" "$(over "$held" "$most")"
    done
}

while read -r kind; do
    "$fallow" gen streams "$kind" -o "$work/trace.ftext" 2>"$work/error" || { cat "$work/error" >&2; failed=1; }
    for lag in 200us 5ms; do
        check "$kind" $lag
    done
done < <("$fallow" gen streams --list)
exit $failed
