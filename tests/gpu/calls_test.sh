#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Rehearses call_a.sh and call_b.sh within their budgets. Nothing may fail, hang, not fit, or be missing without a
# reason.
#
#   tests/gpu/calls_test.sh sim|0 BUNDLE OUT
#
# sim  every program opens the simulated driver under its own name
# 0    every program opens libcuda.so.1 as on a GPU machine, and finds the simulated driver under that name, with
#      contents and queues of 1,024 entries
#
# Needs the tools of first.sh, and grep.
set -u
tests=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd) || exit 1
device=$1 bundle=$2 out=$3
if [ "$device" = 0 ]; then export LD_LIBRARY_PATH=$bundle/lib/driver; fi
rm -rf "$out"
mkdir -p "$out" || exit 1
failed=0
expect() { # WHAT COMMAND...
    local what=$1
    shift
    if ! "$@"; then
        echo "FAILED: device $device, $what"
        failed=1
    fi
}
# count REGEX: print the number of lines in results.jsonl that match
count() { grep -c -- "$1" "$out/$call/results.jsonl"; }
for call in call_a:370 call_b:235; do
    budget=${call#*:} call=${call%:*}
    bash "$tests/first.sh" "$tests/$call.sh" --device "$device" --bundle "$bundle" --out "$out/$call" --budget "$budget" \
        >"$out/$call.log" 2>&1
    code=$?
    echo "$call, device $device: $(tail -n 1 "$out/$call.log")"
    expect "$call: exit 0, not $code" [ $code = 0 ]
    expect "$call: what is missing has a reason" [ "$(count '"result":"missing"')" = "$(count '"result":"missing",.*"why":"[^"]')" ]
    expect "$call: every line says that it is simulated" [ "$(count '"simulated":true')" = $(($(wc -l <"$out/$call/results.jsonl") - 1)) ]
    grep -vE '^(pass|missing|skip) ' "$out/$call.log" | tail -n 20
done
call=call_a
cases=$("$bundle/bin/driver_conformance" --list | wc -l)
expect 'more than a hundred cases' [ "$cases" -gt 100 ]
expect "all $cases cases passed" [ "$(count '^{"step":"conformance\.[^"]*","result":"pass"')" = "$cases" ]
for program in "$bundle"/bin/test_kernel_*; do
    step=kernel.${program##*/test_kernel_} result=pass
    if [ "$device$step" = 0kernel.seed_negatives ]; then result=skip; fi # its kernels are in no GPU
    expect "$step: $result" [ "$(count "^{\"step\":\"$step\",\"result\":\"$result\"")" = 1 ]
done
for step in attributes doctor first_run vmm.{reserve,creates,ipc,life,unmap,access,fill} stress.{streams,captures,threads,segments,sleep,share,all} \
    bench.{kernels,pair,threads,streams,deferred} gen replay.serve client.c_{dlopen,linked,lookup,contexts,reset,strict}; do
    expect "$step passed" [ "$(count "^{\"step\":\"$step\",\"result\":\"pass\"")" = 1 ]
done
exit $failed
