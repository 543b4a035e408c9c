#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# check.top_screen: `fallow top` on a terminal: 80 columns and other sizes, keys, scrolling, colours and NO_COLOR,
# several processes, and its end. The terminal is tmux; skipped without it, or if this build has no ncurses.
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

# The clock ends the first line, at the right edge.
is_wide() {
    [ "$(screen | head -n 1 | awk '{ print length($0) }')" -eq "$1" ]
}

open_top() {
    in_tmux kill-session -t top 2>/dev/null
    in_tmux new-session -d -s top -x 80 -y 24 "$1; echo \"left=\$?\"; stty -a | grep -qw -- '-icanon\|-echo' && echo raw || echo cooked; sleep 100"
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

ldd "$fallow" | grep -q ncurses || { echo "this build has no ncurses: nothing checked (apt-get install libncurses-dev)"; exit 77; }
in_tmux new-session -d -s stay 'sleep 1000' || { echo "tmux cannot start"; exit 77; } # the server stays, too
start_target 2
top="'$fallow' top --directory '$work/boards' --interval 0.2 $process"

# 80 columns.
open_top "$top"
wait_for "a title" shows "^fallow top  top_target ($process)  2 pools"
for part in '^q quit .* by number  [0-9:]*$' '^POOL ' '^0  *0 sim ' '^pool 0' '^reserved ' '^live ' '^free ' '^hits .* now .*/s$' \
    '^events .*queried' '^ladder ' '^STREAM '; do
    wait_for "a line '$part'" shows "$part"
done
is_wide 80 || complain "the first line does not end at column 80"
shows_styled 7 || complain "headings are not set off"

# Orders and scrolling.
in_tmux send-keys -t top c
wait_for "the order by cached bytes" shows ' by cached '
in_tmux send-keys -t top o Down Down
wait_for "two lines further" eval 'screen | sed -n 2p | grep -q "^0 "'
in_tmux send-keys -t top End
wait_for "the last lines" eval '! shows "^pool 0" && shows "^CLASS "'
in_tmux send-keys -t top Home
wait_for "the first lines" shows '^fallow top '

# Another size.
in_tmux resize-window -t top -x 110 -y 45
wait_for "the new width" is_wide 110
wait_for "more lines" shows '^CLASS '
in_tmux resize-window -t top -x 60 -y 12
wait_for "the order behind a gap" eval 'screen | head -n 1 | grep -q "  by number"'
wait_for "a small screen" eval '! shows "^CLASS "'
[ "$(screen | awk '{ if (length($0) > most) most = length($0) } END { print most + 0 }')" -le 60 ] ||
    complain "more than 60 columns"
in_tmux resize-window -t top -x 80 -y 24

# The end: the screen and the terminal are restored.
in_tmux send-keys -t top q
wait_for "its end" shows '^left=0'
wait_for "the terminal as it was" shows '^cooked'
! shows '^reserved ' || complain "the view is still there"

# Several processes: a list, and one of them in full.
rm -f "$work/others"
mkfifo "$work/others"
"$target" "$work/boards" 3 <"$work/others" >"$work/other_answers" 2>&1 &
other=$!
exec 8>"$work/others"
wait_for "the other is ready" grep -q ready "$work/other_answers"
open_top "'$fallow' top --directory '$work/boards' --interval 0.2"
wait_for "a list" shows '^ PROCESS NAME '
wait_for "the one with the lower number in full" shows "^fallow top  top_target ($(printf '%s\n' "$process" "$other" | sort -n | head -n 1))"
in_tmux send-keys -t top Tab
wait_for "the next one in full" shows "^fallow top  top_target ($(printf '%s\n' "$process" "$other" | sort -n | tail -n 1))"
echo quit >&8
exec 8>&-
wait "$other"
other=
wait_for "the process that is left" eval "! shows '^ PROCESS NAME ' && shows '^fallow top  top_target ($process)'"
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

# It ends if the terminal closes without a signal, as after `docker exec -it`.
start_target 1
open_top "sh -c 'echo \$\$ >$work/alone; exec setsid \"\$@\"' sh '$fallow' top --directory '$work/boards' $process"
wait_for "a view without a controlling terminal" shows '^CLASS '
in_tmux kill-session -t top
alone=$(cat "$work/alone")
wait_for "its end without a terminal" eval '! grep -q "^State:.[RS]" "/proc/$alone/status"' || kill -9 "$alone"

# A terminal without control sequences gets one view after the other.
open_top "TERM=none '$fallow' top --directory '$work/boards' --interval 0.2 $process"
wait_for "views that follow each other" shows '^CLASS '
in_tmux send-keys -t top C-c

[ $failed -eq 0 ] && echo "the screen, its keys, sizes, colours and end"
exit $failed
