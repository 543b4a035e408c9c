#!/bin/sh
# Randomised tests of a build with ever new seeds, until one fails or the time is over.
#   tests/stress/soak.sh BUILD_DIR SECONDS [NAME ...]     NAME: programs of BUILD_DIR/bin; default: those below
# ctest runs each with a fixed seed, so that a build passes or fails the same way twice; this script searches further.
# The seed of a failure is printed with the command that repeats it.
set -eu
if [ $# -lt 2 ]; then
    sed -n '2,3s/^# *//p' "$0" >&2
    exit 2
fi
bin=$1/bin until=$(($(date +%s) + $2))
shift 2
if [ $# -eq 0 ]; then
    set -- stress_pool stress_arena test_pool_model test_sleep_model
    for path in "$bin"/test_kernel_*; do
        set -- "$@" "${path##*/}"
    done
fi
log=$(mktemp) runs=0
trap 'rm -f "$log"' EXIT
while :; do
    for name in "$@"; do
        if [ "$(date +%s)" -ge "$until" ]; then
            echo "soak: $runs runs, none failed"
            exit 0
        fi
        seed=$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')
        status=0
        case $name in
        stress_pool) more="--draw --rounds 4 --ops 40000" ;;
        stress_arena) more="--threads 6 --ops 60000" ;;
        *) more= ;;
        esac
        # shellcheck disable=SC2086 # words
        timeout 300 "$bin/$name" $more --seed "$seed" >"$log" 2>&1 || status=$?
        if [ "$status" -ne 0 ] && [ "$status" -ne 77 ]; then
            cat "$log"
            echo "soak: exit code $status of: $bin/$name $more --seed $seed"
            exit 1
        fi
        runs=$((runs + 1))
    done
done
