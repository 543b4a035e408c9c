#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs a stage of what belongs on a GPU, so that nothing is lost whatever happens: every step is a process of
# its own under a time limit, and its line is in results.jsonl as soon as it ends. Never stops at a failure.
#
#   tests/gpu/first.sh STAGE [--device N|sim] [--bundle DIR] [--out DIR] [--budget SECONDS] [--only PATTERN]
#                      [--rest FILE]
#
# STAGE           1 to 4, or a file of steps like stage1.sh beside this one:
#                   1  what only hardware can answer: nine minutes, the most important first
#                   2  other frameworks, the runtime's ways in, kernels beside what they replace
#                   3  compute-sanitizer on the kernels that use shared memory
#                   4  recordings of real programs, end-to-end times of a small transformer
# --device N|sim  (0) sim: the same steps on the simulated driver. Every line then says "simulated": true,
#                 and digest takes none of it for a GPU's.
# --bundle DIR    what bundle.sh made, or a build folder (this one's own, else build/bundle)
# --out DIR       (build/first) gets results.jsonl, log.txt and, by stage 4, the recordings: at most eight
#                 files of at most 16 MiB. A results.jsonl that is there is never written over.
# --budget N      seconds for all of it (540). A step that does not fit is listed as not run.
# --only PATTERN  the steps whose name matches, as a shell pattern
# --rest FILE     without the steps that FILE, an earlier results.jsonl of the same stage, has run
#
# A line is an object. The first has "head", the last "end"; between them one a step: "step", "result", "exit",
# "seconds", "limit", "command", "why" where there is a reason, "output" and "errors" as text, never as JSON of
# their own: half a line of a program spoils nothing. Results:
#   pass, fail      what the program said
#   skip, missing   this machine cannot tell; a program or a framework is not here
#   died, hung      ended by a signal; by its time limit. Then device_probe asks whether the device is well:
#                   its line is "probe.after.NAME", and later lines have "broken_since" if it is not
#   stuck           not even a kill ended it: left behind
#   not_run         did not fit into the budget
#
# Needs bash and coreutils only. STATE: has only ever run with --device sim.
#
# Exit: 0 nothing failed; 1 something did, or was not run; 2 usage; 77 no such device.
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

stage='' device=0 bundle='' out='' budget=540 only='*' rest=''
while [ $# -gt 0 ]; do
    case $1 in
    --device | --bundle | --out | --budget | --only | --rest)
        [ $# -ge 2 ] || refuse "$1 lacks its value"
        declare "${1#--}=$2"
        shift 2 ;;
    --help | -h) usage; exit 0 ;;
    -*) refuse "cannot use '$1'; see tests/gpu/first.sh --help" ;;
    *) [ -z "$stage" ] || refuse "one stage at a time, not '$stage' and '$1'"; stage=$1; shift ;;
    esac
done
case $stage in
'') refuse "which stage? 1 to 4, or a file of steps; see tests/gpu/first.sh --help" ;;
[1-4]) steps=$tests/stage$stage.sh ;;
*) steps=$stage; stage=${stage##*/}; stage=${stage%.sh} ;;
esac
[ -r "$steps" ] || refuse "there is no file '$steps' with steps"
case $device in sim | [0-9] | [0-9][0-9]) ;; *) refuse "--device '$device': a number or sim" ;; esac
[[ $budget =~ ^[1-9][0-9]{0,5}$ ]] || refuse "--budget '$budget': a number of seconds"
[ -z "$rest" ] || [ -r "$rest" ] || refuse "--rest '$rest': cannot be read"
if [ -z "$bundle" ]; then
    bundle=$root/build/bundle
    [ ! -x "$root/bin/device_probe" ] || bundle=$root
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

simulated=false
asked=$device
if [ "$device" = sim ]; then
    simulated=true
else
    export CUDA_VISIBLE_DEVICES=$device # every program sees it as its device 0
    device=0
fi
export PYTHONDONTWRITEBYTECODE=1
unset LD_PRELOAD FALLOW FALLOW_PLUGIN

# ---- lines

log_room=$((12 << 20)) results_room=$((12 << 20)) # bytes left; short lines go on behind that
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
# read_text FILE MOST: $text is what the file has, of more than MOST bytes the first two thirds and the last one
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
append() { # one line, whole, as soon as it is known; the disk has it a few seconds later
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
# run LIMIT COMMAND...: $status is its exit status, or stuck; $us how long it took
number=0
run() {
    local limit=$1 begun of
    shift
    number=$((number + 1))
    now_us
    begun=$us
    # The shell between answers when the command ends; if nothing ends it, we go on without an answer.
    (
        exec 2>/dev/null
        cd "$work" && timeout -k 5 "$limit" "$@" >"$work/out" 2>"$work/err" </dev/null {answers}>&-
        echo "$number $?" >&"$answers"
    ) &
    status=stuck
    while IFS=' ' read -r -t $((limit + 15)) -u "$answers" of status && [ "$of" != $number ]; do status=stuck; done
    status=${status:-stuck}
    now_us
    us=$((us - begun))
}
# The last line that a file has: a reason, where a program gives one.
last_line() {
    text=$(tail -n 1 "$1" | head -c 400 | plain)
}
# judge LIMIT: $result and $why of what run has found
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
# What run has left in $work, as members of a line, and in the log.
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
# Is the device well? A broken one is known from here on.
probe() {
    local on_77=''
    run 20 "$bin/device_probe" --device "$device"
    judge 20
    if [ "$result" = pass ]; then broken_since=''; else broken_since=${broken_since:-${1#probe.after.}}; fi
    record "$1" 20 device_probe --device "$device"
}
# has_time SECONDS: $limit is that, or less where the budget is
has_time() {
    local left=$((budget - (SECONDS - began)))
    limit=$(($1 < left ? $1 : left))
    [ "$left" -ge 3 ]
}
# wanted NAME: neither left out nor run before
wanted() { # shellcheck disable=SC2254 # the pattern is one
    case $1 in $only) [ -z "${done_before[$1]-}" ] ;; *) false ;; esac
}
# missing NAME WHY: a step that cannot be tried
missing() {
    ! wanted "$1" || line "$1" missing "$2" ''
}
# step NAME SECONDS COMMAND [ARGUMENT...]: a program of the bundle, else of the machine; it may be run again at
# any time. $on_77 is what exit 77 means (skip).
step() {
    local name=$1 most=$2 program=$3 limit
    wanted "$name" || return 0
    shift 3
    if [ -f "$bin/$program" ]; then
        program=$bin/$program
    elif ! command -v "$program" >/dev/null 2>&1; then
        missing "$name" "there is no $program here"
        return
    fi
    if ! has_time "$most"; then
        line "$name" not_run "the budget of $budget s is spent" ''
        return
    fi
    run "$limit" "$program" "$@"
    judge "$limit"
    if [ "$limit" -lt "$most" ] && [ "$result" = hung ]; then why="the budget had $limit of its $most s left"; fi
    record "$name" "$limit" "${program#"$bin/"}" "$@"
    case $result in died | hung | stuck) probe "probe.after.$name" ;; esac
}
# keep FILE: a file of the work folder that is to come back; eight come back, of 16 MiB each
kept=2
keep() {
    local file=$work/$1
    [ -s "$file" ] || return 0
    if [ "$kept" -ge 8 ] || [ "$(wc -c <"$file")" -gt $((16 << 20)) ]; then
        log_text "not kept: $1 (eight files of 16 MiB)"$'\n'
        return 0
    fi
    cp "$file" "$out/" && kept=$((kept + 1))
}

# ---- the run

while [ -n "$rest" ] && IFS= read -r text; do
    if [[ $text =~ ^\{\"step\":\"([^\"]+)\",\"result\":\"([a-z_]+)\" && ${BASH_REMATCH[2]} != not_run ]]; then
        done_before[${BASH_REMATCH[1]}]=1
    fi
done <"${rest:-/dev/null}"

quote "$(uname -srm)"
head="{\"head\":1,\"stage\":\"$stage\",\"simulated\":$simulated,\"date\":\"$(date -u +%Y-%m-%dT%H:%M:%SZ)\",\"host\":$quoted"
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
probe device
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
