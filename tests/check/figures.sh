#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# check.figures: a sample of the instruction counts in tests/README.md agrees with this build, within two instructions.
# A table with another number is refused.
#
#   figures.sh <source root> <build tree> <scratch file>
set -u
command -v python3 >/dev/null || { echo "no python3: nothing counted"; exit 77; }
source=$1 build=$2 altered=$3
sample='^(pair of (4096|1048576) B|replace one of 64, 512 B\.\.64 MiB|pair, 16 streams, random|lease of 12 regions, begin and end)$'
"$source/tools/measure" "$build" --only "$sample" --against "$source/tests/README.md" || exit $?

sed 's/^\(| pair of 4096 B | instructions | [0-9]* |\) [0-9.]* |/\1 87.1 |/' "$source/tests/README.md" >"$altered"
said=$("$source/tools/measure" "$build" --only '^pair of 4096 B$' --against "$altered") &&
    { echo "a table with 87.1 for 'pair of 4096 B' was accepted" >&2; exit 1; }
[[ $said == *"'pair of 4096 B' is shown as 87.1, counted "*"1 rows compared, 1 differ"* ]] ||
    { echo "the wrong number was refused with: $said" >&2; exit 1; }
rm -f "$altered"
