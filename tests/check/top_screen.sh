#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# check.top_screen: `fallow top` on a terminal: what is on it at 80 columns, the keys, another size,
# colours and NO_COLOR, what is left when it ends. The terminal is tmux; skipped where there is none.
#
#   top_screen.sh <fallow> <top_target> <scratch folder>
set -u
fallow=$1 target=$2 work=$3
command -v tmux >/dev/null || { echo "no tmux: nothing checked (apt-get install tmux)"; exit 77; }
export LC_ALL=C TMUX='' TMPDIR=/tmp
unset NO_COLOR
rm -rf "$work" && mkdir -p "$work/boards" || exit 1
socket=$(mktemp -u /tmp/fallow-tmux-XXXXXX) # a socket's path is short
failed=0 process=

in_tmux() {
    tmux -S "$socket" -f /dev/null "$@"
}

# shellcheck disable=SC2317
clean_up() {
    in_tmux kill-server 2>/dev/null
    exec 9>&-
    [ -z "$process" ] || { kill "$process" 2>/dev/null; wait "$process" 2>/dev/null; }
    rm -f "$socket"
}
trap clean_up EXIT

complain() {
    echo "$1"
    in_tmux capture-pane -p -t top 2>/dev/null | sed 's/^/    | /'
    failed=1
}

screen() {
    in_tmux capture-pane -p -t top "$@" 2>/dev/null
}

# wait_for SENTENCE COMMAND...: until the command succeeds, at most 30 s
wait_for() {
    local sentence=$1 i
    shift
    for ((i = 0; i < 300; i++)); do
        "$@" >/dev/null 2>&1 && return 0
        sleep 0.1
    done
    complain "never seen: $sentence"
    return 1
}

shows() {
    screen | grep -q -- "$1"
}

shows_styled() {
    screen -e | grep -q "$(printf '\033')\[$1m"
}

# The clock ends the first line; at the right edge it tells how wide the program thinks the screen is.
is_wide() {
    [ "$(screen | head -n 1 | awk '{ print length($0) }')" -eq "$1" ]
}

# Cut, the first line may end before a blank, as long as the number of a process is.
is_cut_to() {
    screen | head -n 1 | awk -v most="$1" '{ exit !(length($0) <= most && length($0) >= most - 2) }'
}

open_top() {
    in_tmux kill-session -t top 2>/dev/null
    in_tmux new-session -d -s top -x 80 -y 24 "$1; echo \"left=\$?\"; stty -a | grep -qw -- '-icanon\|-echo' && echo raw || echo cooked; sleep 100" ||
        { echo "tmux cannot start"; exit 77; }
}

start_target() {
    rm -f "$work/orders"
    mkfifo "$work/orders"
    "$target" "$work/boards" "$1" <"$work/orders" >"$work/answers" 2>&1 &
    process=$!
    exec 9>"$work/orders"
    wait_for "the target is ready" grep -q ready "$work/answers"
    echo work >&9
    wait_for "the target works" grep -q works "$work/answers"
}

start_target 2
top="'$fallow' top --directory '$work/boards' --interval 0.2 $process"

# What is there, at 80 columns.
open_top "$top"
wait_for "a title" shows "^fallow top  top_target ($process)  2 pools "
in_tmux pipe-pane -t top "cat >'$work/raw'"
for part in '^> 0 ' '^  1 ' '^reserved ' '^live ' '^free ' '^hits .* now .*/s$' '^events .*queried' '^ladder ' '^STREAM ' '^CLASS '; do
    wait_for "a line '$part'" shows "$part"
done
is_wide 80 || complain "the first line does not end at column 80"
[ "$(screen | awk 'NF' | wc -l)" -le 24 ] || complain "more lines than there are"
shows_styled 7 || complain "headings are not set off"

# Keys.
in_tmux send-keys -t top Tab
wait_for "the second pool chosen" shows '^> 1 '
in_tmux send-keys -t top p
wait_for "the first pool again" shows '^> 0 '

# Another size: more of the tables, and the width.
before=$(screen | awk 'NF' | wc -l)
in_tmux resize-window -t top -x 110 -y 45
wait_for "the new width" is_wide 110
wait_for "more lines" eval '[ "$(screen | awk NF | wc -l)" -gt "$before" ]'
in_tmux resize-window -t top -x 60 -y 12
wait_for "a small screen" is_cut_to 60
[ "$(screen | awk 'NF' | wc -l)" -le 12 ] || complain "more lines than there are"

# The way out: the screen and the terminal are what they were.
in_tmux send-keys -t top q
wait_for "its end" shows '^left=0'
wait_for "the terminal as it was" shows '^cooked'
! shows '^reserved ' || complain "the view is still there"
in_tmux pipe-pane -t top

# A frame overwrites the last one: it begins at the first line, and clears nothing before.
frames=$(grep -ao "$(printf '\033')\[H" "$work/raw" | wc -l)
[ "$frames" -ge 3 ] || complain "only $frames frames"
! grep -aq "$(printf '\033')\[2J" "$work/raw" || complain "the screen is cleared before it is drawn"

# No colours, no bold: NO_COLOR.
open_top "NO_COLOR=1 $top"
wait_for "a view without colours" shows '^reserved '
for style in 1 7 31; do
    ! shows_styled "$style" || complain "NO_COLOR, and a style $style"
done

# An interrupt ends it too, and so does the end of the process.
in_tmux send-keys -t top C-c
wait_for "the end by an interrupt" shows '^left=0'
wait_for "the terminal as it was" shows '^cooked'
open_top "$top"
wait_for "the view again" shows '^reserved '
echo quit >&9
exec 9>&-
wait "$process"
ended=$process process=
wait_for "that the process has ended" shows "^process $ended has ended"
wait_for "its exit status" shows '^left=0'

[ $failed -eq 0 ] && echo "the screen, its keys, sizes, colours and end"
exit $failed
