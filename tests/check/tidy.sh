#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# clang-tidy over every C file that a build tree compiles, by the rules of /.clang-tidy. A minute or
# two, so it is `cmake --build build/<preset> --target tidy` and not a test of the default run.
#
#   tidy.sh <source root> <build tree> [file ...]     77: no clang-tidy, or no compile commands
#   FALLOW_TIDY_JOBS  how many at once (2)
#
# Prints each finding once; exit 1 if there is any.
set -eu
root=$1 build=$2
shift 2
cd "$root"
command -v clang-tidy >/dev/null || { echo "no clang-tidy: nothing checked"; exit 77; }
if [ ! -f "$build/compile_commands.json" ]; then
    echo "no $build/compile_commands.json: configure with a preset first"
    exit 77
fi
if [ $# -eq 0 ]; then
    # Files that this tree does not compile (optional parts) have no flags to check them with.
    set -- $(sed -n 's/^ *"file": "\(.*\)",*$/\1/p' "$build/compile_commands.json" | grep "^$root/" | sort -u)
fi
[ $# -gt 0 ] || { echo "$build/compile_commands.json names no file below $root"; exit 2; }
log=$(mktemp)
trap 'rm -f "$log"' EXIT
failed=0
printf '%s\n' "$@" | xargs -P "${FALLOW_TIDY_JOBS:-2}" -n 4 clang-tidy -p "$build" --quiet >"$log" 2>&1 || failed=1
findings=$(grep -E '(warning|error): ' "$log" | sort -u || true)
if [ -n "$findings" ]; then
    echo "$findings"
    echo "$(echo "$findings" | wc -l) findings in $# files"
    exit 1
fi
if [ "$failed" != 0 ]; then # it stopped for another reason: fail
    cat "$log"
    exit 1
fi
echo "$# files are clean"
