# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154 # first.sh sources this, and has the names
#
# Steps that fail in every way in which a step on a GPU may, between steps that succeed: no failure may lose another
# step's result. first_test.sh checks the results.

step before 20 device_probe --device "$device"
step crash 20 bash -c 'echo "on the way"; kill -SEGV $$'
step killed 20 bash -c 'kill -KILL $$'
step hang 1 bash -c 'echo waiting; sleep 600'
step hang_with_children 1 bash -c 'trap "" TERM; sleep 600 & wait; sleep 600'
step half_line 20 printf '{"half":["a line'
step odd_bytes 20 printf 'tab\there "quoted" back\\slash \001\033\377\r\nsecond\n'
step fail 20 bash -c 'echo "{\"whole\":true}"; echo "the reason" >&2; exit 1'
step skip 20 bash -c 'echo "needs another machine" >&2; exit 77'
on_77=missing step framework 20 bash -c 'echo "no such framework" >&2; exit 77'
step absent 20 no_such_program
step much 20 bash -c 'head -c 1000000 /dev/zero | tr "\0" x; echo; echo the end'
for part in 1 2 3 4 5 6 7 8 9 10 11 12 13 14; do
    step "flood.$part" 20 bash -c 'head -c 4000000 /dev/zero | tr "\0" y'
done
together 3 1 <<'END'
row.before device_probe --device sim
row.fail false
row.hang sleep 600
row.absent no_such_program
row.after device_probe --device sim
END
step stuck 1 bash -c ': stuck_step'
step after 20 driver_conformance sim --case memory.zero_bytes_are_refused
step too_late 1000 bash -c 'sleep 1000'
step not_run 20 true
