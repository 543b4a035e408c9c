# SPDX-License-Identifier: Apache-2.0
#
# What the tests of figures have in common: what they read of `fallow replay --json`, which lies in $work/json, and
# what they do about a bound. To be sourced.
# shellcheck shell=bash disable=SC2154,SC2034 # names of who sources it

# figures POLICY KEY...: the policy's own counts on one line, null as -1
figures() {
    local policy=$1
    shift
    awk -v name="\"name\": \"$policy\"" -v keys="$*" 'index($0, name) {
        count = split(keys, key, " ")
        for (i = 1; i <= count; i++) {
            value = "-1"
            if (match($0, "\"" key[i] "\": [0-9a-z]+")) {
                value = substr($0, RSTART + length(key[i]) + 4, RLENGTH - length(key[i]) - 4)
            }
            printf "%s ", value == "null" ? "-1" : value
        }
        print "" }' "$work/json"
}

# trace_figure KEY: what is known of the trace itself; nothing where it is null
trace_figure() {
    sed -n "s/.*\"$1\": \([0-9][0-9]*\).*/\1/p" "$work/json" | head -1
}

# expect TRACE LAG WHAT COUNT [MOST]: none, or at most MOST, or what KNOWN says: lines of TRACE|LAG|WHAT|MOST, LAG may
# be *. Else `failed` is 1.
expect() {
    local most
    most=$(awk -F'|' -v n="$1" -v l="$2" -v w="$3" \
        '$1 == n && ($2 == l || $2 == "*") && $3 == w { print $4 }' <<<"$KNOWN")
    most=${most:-${5:-0}}
    if [ "$4" -lt 0 ] || [ "$4" -gt "$most" ]; then
        echo "over its bound: $1, lag $2: $4 $3, at most $most" >&2
        failed=1
    elif [ "$4" -gt 0 ]; then
        echo "known: $1, lag $2: $4 $3, at most $most"
    fi
}
