#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# property.trace_figures: what the pool holds on the demo and on every recorded trace, at five lags,
# against the bounds that the project promises. Reserved is the ledger's.
#
#   trace_figures.sh <fallow> <deal_streams> <demo trace> <folder of recorded traces>
#
#   balanced      reserved <= 1.17 x requested + 16 MiB at every lag; on recorded traces at a lag of 200
#                 events <= 1.05 x + 16 MiB without one wait
#   memory first  reserved <= 1.05 x + 16 MiB at every lag
#   both          no request fails, no rule is broken; at most three growths for each segment call of
#                 PyTorch's policy, where both start cold
#   three streams the same blocks, dealt out to three streams that take turns: balanced within 1.05 times the
#                 larger of 1.17 x and what an allocator without waits needs, up to 1.45 x (pieces that cannot be
#                 moved without a wait take the rest), memory first 1.10 x + 16 MiB with at most 0.05 steals an
#                 allocation, growths as above; the smallest limit at most 1.10 x + 16 MiB with both
#
# KNOWN lists the goals that are missed today, one line a trace and goal; they are printed, and nothing
# else may join them. A trace whose goal of 1.05 is missed is still held to 1.17. attention_naive_bench has
# 36 allocations in 60 turns, of which four wait for another stream: each wants a half, a third or a sixth of
# the peak so far, all that is free was another stream's, and a tenth is the most that may be held beyond.
# hta_df_index_resolver begins with one block of 3.8 GiB, all that was allocated before: in one handle, whose last
# 1.2 MiB serve nothing. By that a growth at a lag of 200 misses the tight budget and 1.062 is held, not 1.046;
# without such handles a first block that is 1.2 MiB larger does the same (1.061).
# Prints the table; exit 1 if anything else is over its bound, 77 without recorded traces (the demo passed).
set -u
fallow=$1 deal=$2 demo=$3 folder=$4
# shellcheck source=tests/property/figures.sh
. "$(dirname "${BASH_SOURCE[0]}")/figures.sh"
KNOWN='3 streams: attention_naive_bench.pickle.xz|memory first over 0.05 steals an allocation
hta_df_index_resolver.json.gz|balanced over 1.05'

work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

HELD=(peak_requested_bytes peak_reserved_bytes failures violations grow_operations)

# at_most VALUE FACTOR REQUESTED: VALUE <= FACTOR x REQUESTED + 16 MiB
at_most() {
    awk -v v="$1" -v f="$2" -v r="$3" 'BEGIN { exit !(v + 0 > 0 && v + 0 <= f * r + 16777216) }'
}

# miss TRACE LAG GOAL
failed=0
miss() {
    if grep -qxF "$1|$3" <<<"$KNOWN"; then
        echo "known: $1, lag $2: $3"
    else
        echo "over its bound: $1, lag $2: $3" >&2
        failed=1
    fi
}

held() {
    local path=$1 lag=$2 is_recorded=$3 name factor=1.17 lag_words=()
    local b_asked b_held b_failed b_broken b_grows b_waits m_asked m_held m_failed m_broken m_grows
    local p_grows p_seeded
    name=$(basename "$path")
    [ "$lag" = default ] || lag_words=(--lag "$lag")
    if ! "$fallow" replay "$path" --policy fallow,fallow-memory-first,pytorch --no-times "${lag_words[@]}" \
        --json - >"$work/json" 2>"$work/error"; then
        cat "$work/error" >&2
        miss "$name" "$lag" "replay failed"
        return
    fi
    read -r b_asked b_held b_failed b_broken b_grows b_waits < <(figures fallow "${HELD[@]}" waits)
    read -r m_asked m_held m_failed m_broken m_grows < <(figures fallow-memory-first "${HELD[@]}")
    read -r p_grows p_seeded < <(figures pytorch grow_operations seeded)
    awk -v n="$name" -v l="$lag" -v a="$b_asked" -v b="$b_held" -v m="$m_held" 'BEGIN {
        printf "%-38s lag %-7s balanced %.3f  memory first %.3f\n", n, l, b / a, m / a }'
    if [ "$is_recorded" = yes ] && [ "$lag" = 200 ]; then
        factor=1.05
        [ "$b_waits" = 0 ] || miss "$name" "$lag" "balanced waits"
    fi
    at_most "$b_held" 1.17 "$b_asked" || miss "$name" "$lag" "balanced over 1.17"
    at_most "$b_held" $factor "$b_asked" || miss "$name" "$lag" "balanced over $factor"
    at_most "$m_held" 1.17 "$m_asked" || miss "$name" "$lag" "memory first over 1.17"
    at_most "$m_held" 1.05 "$m_asked" || miss "$name" "$lag" "memory first over 1.05"
    [ "$b_failed$b_broken$m_failed$m_broken" = 0000 ] || miss "$name" "$lag" "failures or broken rules"
    [ "$p_seeded" = true ] || { [ "$b_grows" -le $((3 * p_grows)) ] && [ "$m_grows" -le $((3 * p_grows)) ]; } ||
        miss "$name" "$lag" "growths over three a segment call"
}

three_streams() {
    local lag name asked held refused broken grows steals limit p_grows allocs policy lag_words waitless factor
    name="3 streams: $(basename "$1")"
    "$deal" "$1" 3 "$work/dealt.ftext" || { miss "$name" - "cannot be dealt"; return; }
    for lag in 0 200 2000 20000 default; do
        lag_words=(--lag "$lag")
        [ "$lag" != default ] || lag_words=(--find-limit)
        if ! "$fallow" replay "$work/dealt.ftext" --policy fallow,fallow-memory-first,pytorch,bound --no-times \
            "${lag_words[@]}" --json - >"$work/json" 2>"$work/error"; then
            cat "$work/error" >&2
            miss "$name" "$lag" "replay failed"
            return
        fi
        read -r p_grows < <(figures pytorch grow_operations)
        read -r waitless < <(figures bound without_wait_bytes)
        allocs=$(trace_figure allocs)
        for policy in fallow fallow-memory-first; do
            read -r asked held refused broken grows steals limit \
                < <(figures $policy "${HELD[@]}" steals smallest_limit_bytes)
            awk -v n="$name" -v l="$lag" -v p=$policy -v a="$asked" -v h="$held" -v s="$steals" -v c="$allocs" \
                -v g="$grows" -v pg="$p_grows" 'BEGIN {
                    printf "%-49s lag %-7s %-19s %.3f  steals an allocation %.4f  growths %d of %d\n", n, l, p,
                        h / a, (c > 0 ? s / c : 0), g, pg }'
            [ "$refused$broken" = 00 ] || miss "$name" "$lag" "$policy: failures or broken rules"
            [ "$grows" -le $((3 * p_grows)) ] || [ "$allocs" = 0 ] ||
                miss "$name" "$lag" "$policy: growths over three a segment call"
            [ "$limit" = -1 ] || at_most "$limit" 1.10 "$asked" || miss "$name" "$lag" "$policy: limit over 1.10"
            if [ $policy = fallow ]; then
                factor=$(awk -v w="$waitless" -v a="$asked" 'BEGIN {
                    f = w / a < 1.45 ? w / a : 1.45
                    print 1.05 * (f > 1.17 ? f : 1.17) }')
                at_most "$held" "$factor" "$asked" || miss "$name" "$lag" "balanced over its bound"
            else
                at_most "$held" 1.10 "$asked" || miss "$name" "$lag" "memory first over 1.10"
                [ $((20 * steals)) -le "$allocs" ] ||
                    miss "$name" "$lag" "memory first over 0.05 steals an allocation"
            fi
        done
    done
}

found=0
for path in "$demo" "$folder"/*.pickle.xz "$folder"/*.json.gz; do
    [ -e "$path" ] || continue
    is_recorded=no
    [ "$path" = "$demo" ] || { is_recorded=yes; found=$((found + 1)); }
    for lag in 0 200 2000 20000 default; do
        held "$path" "$lag" $is_recorded
    done
    three_streams "$path"
done

[ $failed = 0 ] || exit 1
[ $found -gt 0 ] || { echo "no recorded trace in '$folder': only the demo was checked"; exit 77; }
exit 0
