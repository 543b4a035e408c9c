#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# check.features: a pool links without any one of its features, and without all: the core names none. A pool that lists
# a feature must not link without the feature, or this check proves nothing.
#
#   features.sh <source root> <scratch folder> <compiler> <object file>...
set -eu
root=$1 scratch=$2 compiler=$3
shift 3
rm -rf "$scratch"
mkdir -p "$scratch"
failures=0

# The objects but the list of features and the files of some: an extended regular expression over their paths.
without() {
    for object; do echo "$object"; done | grep -vE '/features\.c\.o' | grep -vE "/extensions/($files)"
}
links() { # <flag>...
    $compiler -std=c11 -D_GNU_SOURCE -fPIC -I"$root/include" -I"$root/src" -c "$root/src/pool/features.c" -o "$scratch/features.o" "$@"
    # shellcheck disable=SC2046  # one word an object
    $compiler -shared -Wl,--no-undefined -o "$scratch/core.so" "$scratch/features.o" $(cat "$scratch/objects") \
        -lpthread -ldl >"$scratch/out.txt" 2>&1
}
expect() { # <0 links, 1 does not> <sentence> <files> <flag>...
    wanted=$1 sentence=$2 files=$3 # files: to leave out
    shift 3
    without $objects >"$scratch/objects"
    got=0
    links "$@" || got=1
    if [ "$got" != "$wanted" ]; then
        echo "wrong ($got): $sentence"
        head -n 5 "$scratch/out.txt"
        failures=1
    fi
}

objects=$*
expect 0 "with all features" 'none'
expect 0 "without debug checks" 'debug/' -DFLW_WITHOUT_DEBUG
expect 0 "without recording" 'recording' -DFLW_WITHOUT_RECORDING
expect 0 "without sharing" 'share' -DFLW_WITHOUT_SHARE
expect 0 "without sleep" 'sleep/' -DFLW_WITHOUT_SLEEP
expect 0 "without any" 'debug/|recording|share|sleep/' -DFLW_WITHOUT_DEBUG -DFLW_WITHOUT_RECORDING \
    -DFLW_WITHOUT_SHARE -DFLW_WITHOUT_SLEEP
expect 1 "listed, and not there" 'recording'
rm -rf "$scratch"
[ "$failures" = 0 ] && echo "the pool links without any of its features"
exit "$failures"
