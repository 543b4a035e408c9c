#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# gpu.first_rehearsal: first.sh over steps that crash, hang, print half a line or a flood. Every line is there and
# is JSON, the folder stays within its limits, and each refusal has a reason.
#
#   first_test.sh <source root> <bundle or build folder> <scratch folder>
set -u
root=$1 bundle=$2 scratch=$3
first=$root/tests/gpu/first.sh out=$scratch/out
rm -rf "$scratch"
mkdir -p "$scratch/bin" || exit 1
failed=0
expect() { # WHAT COMMAND...
    local what=$1
    shift
    if ! "$@"; then
        echo "FAILED: $what"
        failed=1
    fi
}
# line STEP RESULT [TEXT]: there is one line of that step, with that result, and the text in it
line() {
    local found
    found=$(grep -F "{\"step\":\"$1\",\"result\":" "$out/results.jsonl")
    case $found in
    *$'\n'* | '') echo "FAILED: $1 has no line, or several"; failed=1 ;;
    "{\"step\":\"$1\",\"result\":\"$2\""*"${3-}"*) ;;
    *) echo "FAILED: $1 is not $2 with '${3-}': ${found:0:600}"; failed=1 ;;
    esac
}

# Nothing ends a process that waits in the driver; here it is a timeout(1) that does not return.
real=$(command -v timeout)
printf '#!/bin/sh\ncase "$*" in *stuck_step*) exec sleep 40 ;; esac\nexec %s "$@"\n' "$real" >"$scratch/bin/timeout"
chmod +x "$scratch/bin/timeout"

PATH=$scratch/bin:$PATH "$first" "$root/tests/gpu/rehearsal.sh" --device sim --bundle "$bundle" --out "$out" --budget 45 \
    >"$scratch/log" 2>&1
expect 'its exit status is 1' [ $? = 1 ]
line device pass '\"well\":true'
line before pass '"command":"device_probe --device sim"'
line crash died '"why":"signal 11"'
line crash died '"output":"on the way"'
line probe.after.crash pass
line killed died
line hang hung '"output":"waiting"'
line probe.after.hang pass
line hang_with_children hung
line half_line pass '"output":"{\"half\":[\"a line"'
line odd_bytes pass '"output":"tab here \"quoted\" back\\slash ?\nsecond"'
line fail fail '"errors":"the reason"'
line skip skip '"why":"needs another machine"'
line framework missing '"why":"no such framework"'
line absent missing '"why":"there is no no_such_program here"'
line much pass 'xxx\nthe end"'
line flood.14 pass
line row.before pass '"command":"device_probe --device sim"'
line row.fail fail
line row.hang hung
line probe.after.row.hang pass
line row.absent missing '"why":"there is no no_such_program here"'
line row.after pass '\"well\":true'
line stuck stuck '"why":"no signal ended it"'
line probe.after.stuck pass
line after pass 'pass  memory.zero_bytes_are_refused'
line too_late hung 's left"'
line not_run not_run '"why":"the budget of 45 s is spent"'
expect 'the last line has the counts' grep -q '^{"end":1,.*"died":2,"hung":4,"stuck":1,"not_run":1}$' "$out/results.jsonl"
expect 'every line says that it is simulated' [ "$(grep -c '"simulated":true' "$out/results.jsonl")" = $(($(wc -l <"$out/results.jsonl") - 1)) ]
expect 'at most 16 MiB a file' [ -z "$(find "$out" -size +16384k)" ]
expect 'the log says that it is full' grep -q '^(log.txt is full' "$out/log.txt"
if command -v python3 >/dev/null; then
    expect 'every line is an object of JSON' python3 -c 'import json, sys
for line in open(sys.argv[1], "rb"):
    assert isinstance(json.loads(line), dict)' "$out/results.jsonl"
fi

# The rest of an earlier run: only steps that were not run there are run.
"$first" "$root/tests/gpu/rehearsal.sh" --device sim --bundle "$bundle" --out "$scratch/rest" --budget 30 \
    --rest "$out/results.jsonl" >"$scratch/rest.log" 2>&1
expect 'the rest is one step' [ "$(grep -c '^{"step"' "$scratch/rest/results.jsonl")" = 2 ]
expect 'which now passes' grep -q '^{"step":"not_run","result":"pass"' "$scratch/rest/results.jsonl"

# refused WHAT SENTENCE ARGUMENTS...
refused() {
    local what=$1 sentence=$2
    shift 2
    "$first" "$@" >"$scratch/refusal" 2>&1
    expect "$what: exit 2" [ $? = 2 ]
    expect "$what: says '$sentence'" grep -qF -- "$sentence" "$scratch/refusal"
}
call=$root/tests/gpu/call_a.sh
refused 'results that are there' 'results.jsonl is there already' "$call" --device sim --bundle "$bundle" --out "$out"
refused 'no steps' 'which steps?' --device sim
refused 'a file that is not there' "there is no file '9' with steps" 9
refused 'an unknown device' "--device 'gpu'" "$call" --device gpu
refused 'a budget of words' "--budget 'long'" "$call" --budget long
refused 'no bundle' 'there is no bundle' "$call" --device sim --bundle "$scratch/nowhere"
refused 'a folder that is no bundle' 'has no device_probe' "$call" --device sim --bundle "$scratch"
[ $failed = 0 ] || { tail -n 40 "$scratch/log"; exit 1; }
echo "every result of $(grep -c '^{"step"' "$out/results.jsonl") steps is there: $(tail -n 1 "$scratch/log")"
