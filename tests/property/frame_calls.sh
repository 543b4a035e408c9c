#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# property.frame_calls: how many driver calls only frame others (contexts, capture modes, questions for
# captures), for each call that does something, while the pool serves generated programs: 0.29 and 0.34.
# What is left are the two exchanges of the mode and the question of each climb, and the question of a stream
# whose fence somebody needs. Sections that were opened around each call took 1.74 and 2.21; a question for
# each record, an event made at a time, and a context for handles and mappings, 0.48 and 0.47.
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
    calls=$(grep -oE '"driver_calls": [0-9]+' "$work/report.json" | head -1 | grep -oE '[0-9]+')
    frames=$(grep -oE '"frame_calls": [0-9]+' "$work/report.json" | head -1 | grep -oE '[0-9]+')
    awk -v c="$calls" -v f="$frames" -v most="$most" -v what="$command" 'BEGIN {
        ratio = f / (c - f)
        printf "%-60s %d of %d calls are frames: %.2f a call, at most %s\n", what, f, c, ratio, most
        exit !(ratio <= most) }' || failed=1
done <<'TEXT'
0.30 serve llama-3-8b --mode graph --steps 60
0.37 random multi-stream --count 10000 --streams 3 --threads 3 --max 64M
TEXT
exit $failed
