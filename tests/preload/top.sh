#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# preload.top: `fallow top` shows the pool of a program under the preload library with top:1. Without top:1, in mode
# off and in the child of a fork it shows nothing.
#
#   top.sh <fallow> <libfallow-preload.so> <watched> <folder of the simulated libcuda.so.1> <scratch folder>
set -u
fallow=$1 library=$2 watched=$3 drivers=$4 work=$5
[ -d /dev/shm ] && [ -w /dev/shm ] || { echo "no /dev/shm: nothing checked"; exit 77; }
rm -rf "$work" && mkdir -p "$work" || exit 1
failed=0 process=

# shellcheck disable=SC2317
clean_up() {
    exec 9>&-
    [ -z "$process" ] || { kill "$process" 2>/dev/null; wait "$process" 2>/dev/null; }
}
trap clean_up EXIT

complain() {
    echo "$1"
    cat "$work"/*.txt
    failed=1
}

# with SETTINGS: start a program; set process to its number and child to that of its child
with() {
    local i
    rm -f "$work/in"
    mkfifo "$work/in"
    : >"$work/out.txt" # the program truncates it late: the last one's child would be taken for its own
    FALLOW=$1 LD_PRELOAD=$library LD_LIBRARY_PATH=$drivers "$watched" <"$work/in" >"$work/out.txt" 2>"$work/err.txt" &
    process=$!
    exec 9>"$work/in"
    for ((i = 0; i < 300; i++)); do
        child=$(sed -n 's/^child //p' "$work/out.txt")
        [ -n "$child" ] && break
        sleep 0.1
    done
    grep -q '^ready' "$work/out.txt" || complain "with $1 the program did not work"
    [ -s "$work/err.txt" ] && complain "with $1 something was said"
}

end() {
    exec 9>&-
    wait "$process" || complain "the program did not end well"
    process=
}

# sees NUMBER: write the output to seen.txt
sees() {
    "$fallow" top "$1" --once --json >"$work/seen.txt" 2>&1
}

with top:1
sees "$process" || complain "it is not seen"
for part in '"name": "watched"' '"pool_total": 1' '"live_count": 10,' '"requested_bytes": 1000000,'; do
    grep -qF "$part" "$work/seen.txt" || complain "not seen: $part"
done
! sees "$child" || complain "its child is seen"
ended=$process
end
[ ! -e "/dev/shm/fallow.$(id -u).$ended" ] || complain "its file was left"
for settings in mode:cache top:0 mode:off,top:1; do
    with $settings
    ! sees "$process" || complain "with $settings it is seen"
    end
done
[ $failed -eq 0 ] && echo "seen with top:1, and only then"
exit $failed
