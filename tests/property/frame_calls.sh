#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# property.frame_calls: how many driver calls only frame others (contexts, capture modes, questions for
# captures), for each allocation, while the pool serves generated programs: 0.027 and 0.62. What is left are
# the two exchanges of the mode and the question of each climb, and the question of a stream whose fence
# somebody needs. (Not for each call that does something: where those get fewer, frames must not look dearer.)
#
#   frame_calls.sh <fallow>
set -eu
fallow=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
while read -r most command; do
    "$fallow" gen $command -o "$work/trace.ftrace" >/dev/null
    "$fallow" replay "$work/trace.ftrace" --policy fallow --no-times --json "$work/report.json" >/dev/null
    allocs=$(grep -oE '"allocs": [0-9]+' "$work/report.json" | head -1 | grep -oE '[0-9]+')
    frames=$(grep -oE '"frame_calls": [0-9]+' "$work/report.json" | head -1 | grep -oE '[0-9]+')
    awk -v a="$allocs" -v f="$frames" -v most="$most" -v what="$command" 'BEGIN {
        ratio = f / a
        printf "%-60s %d frames for %d allocations: %.3f each, at most %s\n", what, f, a, ratio, most
        exit !(f > 0 && ratio <= most) }' || failed=1
done <<'TEXT'
0.028 serve llama-3-8b --mode graph --steps 60
0.63 random multi-stream --count 10000 --streams 3 --threads 3 --max 64M
TEXT
exit $failed
