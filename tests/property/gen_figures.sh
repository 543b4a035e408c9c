#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# property.gen_figures: what the pool holds on generated traces, at two lags, against the bounds that the
# project promises. Reserved is the ledger's.
#
#   gen_figures.sh <fallow>
#
#   balanced      reserved <= 1.17 x requested + 16 MiB; of several streams within 1.05 times the larger of that
#                 and what an allocator without waits needs, up to 1.45 x, or the 256 MiB that they share
#   memory first  reserved <= 1.05 x requested + 16 MiB; from three streams on 1.10 x, and at most 0.10
#                 steals an allocation
#   both          no request fails, no rule is broken; at most three growths for each segment call of
#                 PyTorch's policy
#
# KNOWN's growths: with random sizes near the cap only memory buys fewer. Up to 256 MiB of 16 GiB, held /
# growths: 1.02 / 4,018, 1.045 / 2,320, 1.15 / 576; PyTorch's policy 1.39 / 122.
# `random query` spills at 80 %: sizes of three octaves at once, in pieces between which small blocks stay. Of the
# smaller one memory first misses its bound by 3 MiB.
#
# Each line of TRACES is a command line of `fallow gen`. KNOWN lists the goals that are missed today, one
# line a trace and goal; they are printed, and nothing else may join them. One that is met by now is
# printed too, so that its line can go.
# Prints the table; exit 1 if anything else is over its bound.
set -u
fallow=$1
# shellcheck source=tests/property/figures.sh
. "$(dirname "${BASH_SOURCE[0]}")/figures.sh"
TRACES='adversarial sawtooth
adversarial pin-small-between-large
adversarial comb-free --cycles 8
adversarial alternating-streams
adversarial half-max
adversarial batch-size-change
random rmm
random rmm --count 10000 --max 256M
random rmm --count 10000 --max 64M
random rmm --count 10000 --max 1M
random multi-stream --count 10000 --streams 3 --threads 3 --max 64M
random query --count 200
random query --count 200 --rows 1000000
train --layers 8 --steps 2
train --layers 16 --zero3 8 --attention flash --vary conversation
train --layers 16 --stages 4 --rank 3 --attention flash --vary code --seq 4096 --steps 2
serve llama-3-8b --mode graph --steps 100
serve qwen3-30b-a3b --ep 8 --expert-skew 80 --traffic code --steps 40
serve deepseek-v3 --ep 32 --mla flashmla --traffic long --steps 20'
KNOWN='random rmm|balanced growths over three a segment call
random rmm|memory first growths over three a segment call
random rmm --count 10000 --max 256M|balanced growths over three a segment call
random rmm --count 10000 --max 256M|memory first growths over three a segment call
random rmm --count 10000 --max 64M|memory first growths over three a segment call
random multi-stream --count 10000 --streams 3 --threads 3 --max 64M|memory first growths over three a segment call
random query --count 200|memory first growths over three a segment call
random query --count 200 --rows 1000000|memory first over 1.05'

work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
failed=0

HELD=(peak_requested_bytes peak_reserved_bytes failures violations grow_operations)

# goal TRACE GOAL MET: MET is 0 where the goal is met at every lag
goal() {
    if grep -qxF "$1|$2" <<<"$KNOWN"; then
        [ "$3" = 0 ] && echo "met by now, take it off the list: $1|$2" || echo "known: $1: $2"
    elif [ "$3" != 0 ]; then
        echo "over its bound: $1: $2" >&2
        failed=1
    fi
}

# over VALUE FACTOR REQUESTED: prints 1 where VALUE > FACTOR x REQUESTED + 16 MiB
over() {
    awk -v v="$1" -v f="$2" -v r="$3" 'BEGIN { print !(v > 0 && v <= f * r + 16777216) }'
}

held() {
    local name=$1 lag lag_words streams factor=1.05 missed_b=0 missed_m=0 broken=0 grown_b=0 grown_m=0 stole=0
    local b_asked b_held b_failed b_broken b_grows m_asked m_held m_failed m_broken m_grows m_steals
    local p_grows allocs waitless most
    # shellcheck disable=SC2086 # the words of a command line
    "$fallow" gen $name -o "$work/trace.ftext" 2>"$work/error" || { cat "$work/error" >&2; failed=1; return; }
    streams=$(grep -c '^stream ' "$work/trace.ftext")
    [ "$streams" -lt 3 ] || factor=1.10
    for lag in 2000 default; do
        lag_words=(--lag "$lag")
        [ "$lag" != default ] || lag_words=()
        if ! "$fallow" replay "$work/trace.ftext" --policy fallow,fallow-memory-first,pytorch,bound --no-times \
            "${lag_words[@]}" --json - >"$work/json" 2>"$work/error"; then
            cat "$work/error" >&2
            broken=1
            continue
        fi
        read -r b_asked b_held b_failed b_broken b_grows < <(figures fallow "${HELD[@]}")
        read -r m_asked m_held m_failed m_broken m_grows m_steals \
            < <(figures fallow-memory-first "${HELD[@]}" steals)
        read -r p_grows < <(figures pytorch grow_operations)
        allocs=$(trace_figure allocs)
        awk -v n="$name" -v l="$lag" -v a="$b_asked" -v b="$b_held" -v m="$m_held" -v g="$b_grows" \
            -v h="$m_grows" -v p="$p_grows" -v s="$m_steals" -v c="$allocs" 'BEGIN {
            printf "%-88s lag %-7s balanced %.3f  memory first %.3f  growths %d, %d; segments %d; steals %.4f\n",
                n, l, b / a, m / a, g, h, p, (c > 0 ? s / c : 0) }'
        [ "$b_failed$b_broken$m_failed$m_broken" = 0000 ] || broken=1
        read -r waitless < <(figures bound without_wait_bytes)
        most=$(awk -v w="$waitless" -v a="$b_asked" -v n="$streams" 'BEGIN {
            f = w / a < 1.45 ? w / a : 1.45
            print n < 2 ? 1.17 : 1.05 * (f > 1.17 ? f : 1.17) }')
        [ "$(over "$b_held" "$most" "$b_asked")" = 0 ] ||
            { [ "$streams" -gt 1 ] && [ "$b_held" -le $((256 << 20)) ]; } || missed_b=1
        [ "$(over "$m_held" $factor "$m_asked")" = 0 ] || missed_m=1
        [ "$b_grows" -le $((3 * p_grows)) ] || grown_b=1
        [ "$m_grows" -le $((3 * p_grows)) ] || grown_m=1
        [ "$streams" -lt 3 ] || [ $((10 * m_steals)) -le "$allocs" ] || stole=1
    done
    goal "$name" "balanced over its bound" $missed_b
    goal "$name" "memory first over $factor" $missed_m
    goal "$name" "failures or broken rules" $broken
    goal "$name" "balanced growths over three a segment call" $grown_b
    goal "$name" "memory first growths over three a segment call" $grown_m
    goal "$name" "memory first over 0.10 steals an allocation" $stole
}

while read -r line; do
    held "$line"
done <<<"$TRACES"
exit $failed
