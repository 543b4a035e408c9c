#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# check.top_screen: `fallow top` on a terminal: what is on it at 80 columns, the keys, another size,
# colours and NO_COLOR, what is left when it ends; orders, rows that scroll, the last minute, several processes. The terminal is tmux; skipped where there is none.
#
#   top_screen.sh <fallow> <top_target> <scratch folder>
set -u
fallow=$1 target=$2 work=$3
command -v tmux >/dev/null || { echo "no tmux: nothing checked (apt-get install tmux)"; exit 77; }
export LC_ALL=C TMUX='' TMPDIR=/tmp
unset NO_COLOR
rm -rf "$work" && mkdir -p "$work/boards" || exit 1
socket=$(mktemp -u /tmp/fallow-tmux-XXXXXX) # a socket's path is short
failed=0 process='' other=''

in_tmux() {
    tmux -S "$socket" -f /dev/null "$@"
}

# shellcheck disable=SC2317
clean_up() {
    in_tmux kill-server 2>/dev/null
    exec 9>&-
    exec 8>&-
    for target in $process $other; do
        kill "$target" 2>/dev/null
        wait "$target" 2>/dev/null
    done
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

# The last minute, in ASCII where the locale has no more.
wait_for "the minute" shows '^minute   \[ *[.:=+*#@-]*\] live, of '
wait_for "a second of it" shows '^minute   \[ *[.:=+*#@-][.:=+*#@-]*\] live'
! LC_ALL=C grep -aq "$(printf '\342\226')" "$work/raw" || complain "blocks of UTF-8, and LC_ALL=C"

# Orders and rows.
first_class() {
    screen | awk '/^CLASS/ { getline; print $1; exit }'
}
wait_for "the runs first" eval '[ "$(first_class)" = runs ]'
in_tmux send-keys -t top c
wait_for "the order by what is cached" shows ' by cached  ? help '
wait_for "another class first" eval '[ "$(first_class)" != runs ]'
in_tmux send-keys -t top o
wait_for "their own order" eval '! shows " by " && [ "$(first_class)" = runs ]'
in_tmux send-keys -t top Down Down
wait_for "rows that are past" shows '^\.\.\. 2 before, [0-9]* more classes'
in_tmux send-keys -t top End
wait_for "the last rows" shows '^\.\.\. [0-9]* classes before'
in_tmux send-keys -t top Up
wait_for "one back" shows '^\.\.\. [0-9]* before, 1 more classes'
in_tmux send-keys -t top Home
wait_for "the first rows" eval '[ "$(first_class)" = runs ]'
! shows 'before' || complain "rows are past at the top"
in_tmux send-keys -t top '?'
wait_for "the keys" shows '^any key goes on'
! shows '^reserved ' || complain "the view beside the keys"
in_tmux send-keys -t top x
wait_for "the view again" shows '^reserved '

# Whose the memory is: here no call stacks are recorded, and it says so.
in_tmux send-keys -t top w
wait_for "the owners" shows '^ *ASKED *SHARE *BLOCKS *WHOSE'
shows 'no recording with call stacks' || complain "nothing is said where owners are not known"
! shows '^CLASS ' || complain "classes beside the owners"
in_tmux send-keys -t top w
wait_for "the classes again" shows '^CLASS '

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

# Several processes: a list, an order, one of them and back.
rm -f "$work/others"
mkfifo "$work/others"
"$target" "$work/boards" 3 <"$work/others" >"$work/other_answers" 2>&1 &
other=$!
exec 8>"$work/others"
wait_for "the other is ready" grep -q ready "$work/other_answers"
open_top "LC_ALL=C.UTF-8 '$fallow' top --directory '$work/boards' --interval 0.2 --sort reserved"
in_tmux pipe-pane -t top "cat >'$work/raw'"
wait_for "two processes" shows '^fallow top  2 processes .* by reserved  ? help '
wait_for "the first chosen" eval 'screen | sed -n 4p | grep -q "^>"'
wait_for "blocks of UTF-8" env LC_ALL=C grep -aq "$(printf '\342\226')" "$work/raw"
chosen() {
    screen | awk '$1 == ">" { print $2 }'
}
by_number=$(printf '%s\n' "$process" "$other" | sort -n | head -n 1)
in_tmux send-keys -t top o Home
wait_for "the order of numbers" eval '[ "$(chosen)" = "$by_number" ]'
in_tmux send-keys -t top Down
wait_for "the other chosen" eval '[ -n "$(chosen)" ] && [ "$(chosen)" != "$by_number" ]'
next=$(chosen)
in_tmux send-keys -t top Enter
wait_for "the process in full" shows "^fallow top  top_target ($next) "
in_tmux send-keys -t top Escape
wait_for "the list again" shows '^fallow top  2 processes'
in_tmux resize-window -t top -x 120 -y 24
wait_for "each minute in its line" shows 'HITS  LIVE, LAST MINUTE$'
in_tmux resize-window -t top -x 80 -y 24
echo quit >&8
exec 8>&-
wait "$other"
other=
wait_for "one process is left" shows '^fallow top  1 process '
in_tmux send-keys -t top q
wait_for "its end" shows '^left=0'

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
