#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs the steps of a file on a GPU, so that no result is ever lost: every step is a process of its
# own under a time limit, and its line is in results.jsonl as soon as it ends. Never stops at a failure.
#
#   tests/gpu/first.sh STEPS [--device N|sim] [--bundle DIR] [--out DIR] [--budget SECONDS] [--only PATTERN]
#                      [--rest FILE]
#
# STEPS           a file of steps: call_a.sh or call_b.sh beside this one
# --device N|sim  (0) sim: the same steps on the simulated driver. Lines then have "simulated": true, also if
#                 device N is the simulated driver under the name libcuda.so.1, and digest refuses them.
# --bundle DIR    made by bundle.sh, or a build folder (this one's own, else build/bundle)
# --out DIR       (build/first) receives results.jsonl and log.txt, of at most 16 MiB each. A results.jsonl
#                 in the folder is never overwritten.
# --budget N      seconds for all steps (370). A step that does not fit is listed as not run.
# --only PATTERN  run the steps with a matching name (a shell pattern)
# --rest FILE     skip the steps that FILE, an earlier results.jsonl, has run
#
# A line is an object. The first has "head", the last "end"; between them one a step: "step", "result", "exit",
# "seconds", "limit", "command", "why" if there is a reason, "output" and "errors" as text, never as JSON, so
# that half a line of a program spoils nothing. Results:
#   pass, fail      by the program's exit status
#   skip, missing   the program cannot run on this machine; a program or a framework is not installed
#   died, hung      ended by a signal; by its time limit. device_probe then tests the device: its line is
#                   "probe.after.NAME", and later lines have "broken_since" if the test fails
#   stuck           not even a kill ended it: left behind
#   not_run         did not fit into the budget
#
# Needs bash and coreutils only. STATE: has only ever run on the simulated driver.
#
# Exit: 0 nothing failed; 1 a step failed or was not run; 2 usage; 77 no such device.
set -u
LC_ALL=C # a character is a byte, and decimals have points

tests=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd) || exit 2
root=$(cd "$tests/../.." && pwd) || exit 2

usage() {
    local line
    while IFS= read -r line && [ "$line" != 'set -u' ]; do
        case $line in '#!'* | *SPDX*) ;; '# '*) echo "${line#\# }" ;; *) echo ;; esac
    done <"${BASH_SOURCE[0]}"
}
refuse() {
    echo "first.sh: $1" >&2
    exit 2
}

steps='' device=0 bundle='' out='' budget=370 only='*' rest=''
while [ $# -gt 0 ]; do
    case $1 in
    --device | --bundle | --out | --budget | --only | --rest)
        [ $# -ge 2 ] || refuse "$1 lacks its value"
        declare "${1#--}=$2"
        shift 2 ;;
    --help | -h) usage; exit 0 ;;
    -*) refuse "cannot use '$1'; see tests/gpu/first.sh --help" ;;
    *) [ -z "$steps" ] || refuse "one file of steps at a time, not '$steps' and '$1'"; steps=$1; shift ;;
    esac
done
[ -n "$steps" ] || refuse "which steps? name a file, such as tests/gpu/call_a.sh; see tests/gpu/first.sh --help"
[ -f "$steps" ] && [ -r "$steps" ] || refuse "there is no file '$steps' with steps"
case $steps in /*) ;; *) steps=$PWD/$steps ;; esac
case $device in sim | [0-9] | [0-9][0-9]) ;; *) refuse "--device '$device': a number or sim" ;; esac
[[ $budget =~ ^[1-9][0-9]{0,5}$ ]] || refuse "--budget '$budget': a number of seconds"
[ -z "$rest" ] || [ -r "$rest" ] || refuse "--rest '$rest': cannot be read"
if [ -z "$bundle" ]; then
    bundle=$root/build/bundle
    [ ! -f "$root/bin/device_probe" ] || bundle=$root
fi
bundle=$(cd "$bundle" 2>/dev/null && pwd) || refuse "there is no bundle; tests/gpu/bundle.sh makes it in build/bundle"
bin=$bundle/bin
[ -f "$bin/device_probe" ] || refuse "$bin has no device_probe: make the bundle anew with tests/gpu/bundle.sh"
chmod +x "$bin"/* 2>/dev/null # a copy may have lost it
out=${out:-$root/build/first}
mkdir -p "$out" && out=$(cd "$out" && pwd) || refuse "cannot write in --out '$out'"
results=$out/results.jsonl log=$out/log.txt
[ ! -e "$results" ] || refuse "$results is there already: name another folder with --out"
work=$(mktemp -d) || refuse "no folder for what the steps write: look at TMPDIR"
trap 'rm -rf "$work"' EXIT
mkfifo "$work/answers" && exec {answers}<>"$work/answers" || refuse "cannot make a pipe in $work"
: >"$results" && : >"$log" || refuse "cannot write in $out"
ulimit -c 0

asked=$device
if [ "$device" != sim ]; then
    export CUDA_VISIBLE_DEVICES=$device # every program sees it as its device 0
    device=0
    # Without persistence the driver takes a second or three to start each time that nobody has the device open.
    for node in /dev/nvidia[0-9]*; do
        # shellcheck disable=SC2034 # held open, not used
        { [ ! -r "$node" ] || exec {held}<"$node"; } 2>/dev/null || echo "first.sh: $node cannot be held open" >&2
    done
fi
simulated=false # until device_probe finds another device
export PYTHONDONTWRITEBYTECODE=1
unset LD_PRELOAD FALLOW FALLOW_PLUGIN

# ---- lines

log_room=$((12 << 20)) results_room=$((12 << 20)) # bytes left; short lines follow
output_most=$((256 << 10)) errors_most=$((8 << 10)) log_most=$((1 << 20))
synced=0

# quote TEXT: $quoted is a string of JSON
quote() {
    local text=$1
    text=${text//\\/\\\\}
    text=${text//\"/\\\"}
    text=${text//$'\n'/\\n}
    quoted=\"${text//$'\t'/ }\"
}
# read_text FILE MOST: set $text to the contents of the file; of more than MOST bytes, to the first two thirds of MOST
# and the last third
read_text() {
    local bytes
    bytes=$(wc -c <"$1")
    if [ "$bytes" -le "$2" ]; then
        text=$(plain <"$1")
    else
        text=$(head -c $(($2 * 2 / 3)) "$1" | plain)$'\n'"[... $((bytes - $2)) of $bytes bytes left out ...]"$'\n'$(tail -c $(($2 / 3)) "$1" | plain)
    fi
}
plain() { # ASCII without control characters but tab and end of line
    tr -d '\000-\010\013-\037\177' | tr '\200-\377' '?'
}
append() { # one line, whole, as soon as the step ends; the disk has it a few seconds later
    printf '%s\n' "$1" >>"$results"
    results_room=$((results_room - ${#1}))
    if [ $((SECONDS - synced)) -ge 5 ]; then
        sync "$results" "$log" 2>/dev/null
        synced=$SECONDS
    fi
}
# log_text TEXT [FILE]: while there is room, and of a long file its ends
log_text() {
    local text=$1 part
    if [ $# -gt 1 ] && [ -s "$2" ]; then
        part=$text
        read_text "$2" "$log_most"
        text=$part$text$'\n'
    fi
    [ "$log_room" -gt 0 ] || return 0
    printf '%s' "$text" >>"$log"
    log_room=$((log_room - ${#text}))
    [ "$log_room" -gt 0 ] || echo "(log.txt is full: results.jsonl goes on)" >>"$log"
}

# ---- steps

declare -A counts=([pass]=0 [fail]=0 [skip]=0 [missing]=0 [died]=0 [hung]=0 [stuck]=0 [not_run]=0)
declare -A done_before=()
broken_since=''
began=$SECONDS

# line NAME RESULT WHY MEMBERS: the members are JSON with a leading comma
line() {
    local text
    quote "$1"
    text="{\"step\":$quoted,\"result\":\"$2\",\"simulated\":$simulated"
    if [ -n "$3" ]; then quote "$3"; text+=",\"why\":$quoted"; fi
    if [ -n "$broken_since" ]; then quote "$broken_since"; text+=",\"broken_since\":$quoted"; fi
    append "$text$4}"
    counts[$2]=$((counts[$2] + 1))
    printf '%-8s %s%s\n' "$2" "$1" "${3:+ -- $3}"
}
now_us() {
    local time=$EPOCHREALTIME
    us=${time/./}
}
# start LIMIT COMMAND...: start the command as job $number
number=0
declare -A deadline=() # of the jobs that run
start() {
    local limit=$1 begun
    shift
    number=$((number + 1))
    deadline[$number]=$((SECONDS + limit + 15))
    now_us
    begun=$us
    # The shell between answers when the command ends; if nothing ends it, the script continues without an answer.
    (
        exec 2>/dev/null
        cd "$work" && timeout -k 5 "$limit" "$@" >"$work/out.$number" 2>"$work/err.$number" </dev/null {answers}>&-
        status=$?
        now_us
        echo "$number $status $((us - begun))" >&"$answers"
    ) &
}
# await: wait until a job ends: set $ended to its number, $status to its exit status or "stuck", $us to its time (0 if
# stuck)
await() {
    local job next
    ended=''
    while [ -z "$ended" ]; do
        next=''
        for job in "${!deadline[@]}"; do
            [ -n "$next" ] && [ "${deadline[$next]}" -le "${deadline[$job]}" ] || next=$job
        done
        # Read until the deadline without a retry: a read that times out may drop half of an answer.
        if IFS=' ' read -r -t $((deadline[$next] > SECONDS ? deadline[$next] - SECONDS : 1)) -u "$answers" job status us; then
            ended=${deadline[$job]+$job} # empty: the late answer of a job recorded as stuck
        elif [ $SECONDS -ge "${deadline[$next]}" ]; then
            ended=$next status=stuck us=0
        fi
    done
    unset "deadline[$ended]"
    mv "$work/out.$ended" "$work/out"
    mv "$work/err.$ended" "$work/err"
}
run() { # LIMIT COMMAND...: start and await, while nothing else runs
    start "$@"
    await
}
# The last line that a file has: a reason, where a program gives one.
last_line() {
    text=$(tail -n 1 "$1" | head -c 400 | plain)
}
# judge LIMIT: set $result and $why for the job that ended
judge() {
    why=''
    case $status in
    0) result=pass ;;
    77) result=${on_77:-skip}; last_line "$work/err"; why=$text
        if [ -z "$why" ]; then last_line "$work/out"; why=$text; fi ;;
    stuck) result=stuck; why="no signal ended it" ;;
    124 | 137)
        result=hung; why="ended after $1 s"
        if [ "$us" -lt $(($1 * 1000000)) ]; then result=died; why="killed (exit $status)"; fi ;;
    *)
        result=fail
        if [ "$status" -gt 128 ]; then result=died; why="signal $((status - 128))"; fi ;;
    esac
}
# record NAME LIMIT COMMAND...: write the line of the job that ended, and its output to the log
record() {
    local name=$1 limit=$2 members seconds
    shift 2
    printf -v seconds '%d.%03d' $((us / 1000000)) $((us / 1000 % 1000))
    members=",\"exit\":\"$status\",\"seconds\":$seconds,\"limit\":$limit"
    quote "${*//$work\//}"
    members+=",\"command\":$quoted"
    if [ "$results_room" -gt 0 ]; then
        read_text "$work/out" $output_most
        quote "$text"
        members+=",\"output\":$quoted"
        read_text "$work/err" $errors_most
        quote "$text"
        members+=",\"errors\":$quoted"
    else
        members+=",\"cut\":true"
    fi
    line "$name" "$result" "$why" "$members"
    log_text "=== $name: $result, $seconds s: ${*//$work\//}"$'\n' "$work/out"
    log_text '' "$work/err"
}
# probe NAME: test the device; if the test fails, later lines have "broken_since"
probe() {
    run_probe
    record_probe "$1"
}
run_probe() {
    local on_77=''
    run 20 "$bin/device_probe" --device "$device"
    judge 20
}
record_probe() {
    if [ "$result" = pass ]; then broken_since=''; else broken_since=${broken_since:-${1#probe.after.}}; fi
    record "$1" 20 device_probe --device "$device"
}
# has_time SECONDS: $limit is that, or less where the budget is
has_time() {
    local left=$((budget - (SECONDS - began)))
    limit=$(($1 < left ? $1 : left))
    [ "$left" -ge 3 ]
}
# fits NAME SECONDS: true if the budget has room, else list the step as not run
fits() {
    has_time "$2" || { line "$1" not_run "the budget of $budget s is spent" ''; false; }
}
# wanted NAME: neither left out nor run before
wanted() { # shellcheck disable=SC2254 # the pattern is one
    case $1 in $only) [ -z "${done_before[$1]-}" ] ;; *) false ;; esac
}
# missing NAME WHY: a step that cannot be tried
missing() {
    ! wanted "$1" || line "$1" missing "$2" ''
}
# find_program NAME PROGRAM: set $program to its path in the bundle, else on the machine; else list the step as missing
find_program() {
    program=$bin/$2
    [ -f "$program" ] || program=$(command -v "$2") || { missing "$1" "there is no $2 here"; false; }
}
# record_step NAME LIMIT SECONDS COMMAND...: judge and record the job that ended. SECONDS: its limit without the budget.
record_step() {
    local name=$1 limit=$2 most=$3
    shift 3
    judge "$limit"
    if [ "$limit" -lt "$most" ] && [ "$result" = hung ]; then why="the budget had $limit of its $most s left"; fi
    record "$name" "$limit" "$@"
}
# step NAME SECONDS COMMAND [ARGUMENT...]: run a program. $on_77: the result for exit 77 (skip).
step() {
    local name=$1 most=$2 command=$3 program limit
    shift 3
    wanted "$name" && find_program "$name" "$command" && fits "$name" "$most" || return 0
    run "$limit" "$program" "$@"
    record_step "$name" "$limit" "$most" "$command" "$@"
    case $result in died | hung | stuck) probe "probe.after.$name" ;; esac
}
# together JOBS SECONDS: run the steps of stdin, lines "NAME COMMAND ARGUMENT...", up to JOBS at a time. After a step
# that died, test the device before the next step starts.
together() {
    local jobs=$1 most=$2 name command words program limit suspect=''
    local -A names=() commands=() limits=()
    while read -r name command words; do
        while [ ${#names[@]} -ge "$jobs" ] || [ -n "$suspect" ]; do collect; done
        wanted "$name" && find_program "$name" "$command" && fits "$name" "$most" || continue
        # shellcheck disable=SC2086 # words
        start "$limit" "$program" $words
        names[$number]=$name commands[$number]="$command $words" limits[$number]=$limit
    done
    while [ ${#names[@]} -gt 0 ] || [ -n "$suspect" ]; do collect; done
}
collect() { # for together: record one of its jobs; once none runs, test the device if one died
    local name
    if [ ${#names[@]} = 0 ]; then
        probe "probe.after.$suspect"
        suspect=''
        return
    fi
    await
    name=${names[$ended]}
    # shellcheck disable=SC2086 # words
    record_step "$name" "${limits[$ended]}" "$most" ${commands[$ended]}
    case $result in died | hung | stuck) suspect=$name ;; esac
    unset "names[$ended]"
}

# ---- the run

while [ -n "$rest" ] && IFS= read -r text; do
    if [[ $text =~ ^\{\"step\":\"([^\"]+)\",\"result\":\"([a-z_]+)\" && ${BASH_REMATCH[2]} != not_run ]]; then
        done_before[${BASH_REMATCH[1]}]=1
    fi
done <"${rest:-/dev/null}"

run_probe
if [ "$asked" = sim ] || grep -q '"simulated":true' "$work/out"; then simulated=true; fi
calls=${steps##*/}
calls=${calls%.sh}
quote "$(uname -srm)"
head="{\"head\":1,\"steps\":\"$calls\",\"simulated\":$simulated,\"date\":\"$(date -u +%Y-%m-%dT%H:%M:%SZ)\",\"host\":$quoted"
quote "$asked"
head+=",\"device\":$quoted,\"budget\":$budget"
text=''
if [ "$simulated" = false ]; then
    text=$(timeout -k 2 20 nvidia-smi -i "$asked" --format=csv,noheader \
        --query-gpu=name,driver_version,memory.total,mig.mode.current,compute_mode 2>/dev/null | head -n 1 | plain)
fi
quote "$text"
head+=",\"nvidia_smi\":$quoted"
text=''
[ ! -r "$bundle/MANIFEST" ] || text=$(plain <"$bundle/MANIFEST")
quote "$text"
append "$head,\"bundle\":$quoted}"
record_probe device
code=0
if [ "$result" = skip ]; then
    echo "first.sh: no CUDA device can be used here: $why; --device sim rehearses" >&2
    code=77
else
    # shellcheck disable=SC1090 # the steps
    . "$steps"
    [ $((counts[fail] + counts[died] + counts[hung] + counts[stuck] + counts[not_run])) = 0 ] || code=1
fi
members='' text=''
for result in pass fail skip missing died hung stuck not_run; do
    members+=",\"$result\":${counts[$result]}"
    [ "${counts[$result]}" = 0 ] || text+=", ${counts[$result]} $result"
done
append "{\"end\":1,\"seconds\":$((SECONDS - began))$members}"
sync "$results" "$log" 2>/dev/null
echo "${text#, } in $((SECONDS - began)) s; results: $results"
exit $code
