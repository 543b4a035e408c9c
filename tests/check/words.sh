#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# check.words: src, include, kernels and tools use the words of the glossary. A word that it replaced does not
# come back: alone, in a name of several parts, or as a constant. Each is planted first, and has to be found.
#
#   words.sh <source root> <scratch folder>
set -eu
source=$1 scratch=$2

# word, and what to say in its place
words="lend|lends|lent|lending|lender|lenders allocate
loan|loans allocation
ticket|tickets sequence number
stamp|stamps|stamped point, mark
limbo open frees
nobody|nobodys unowned, or who is meant
rung|rungs stage
pendings deferred frees"

# English, or other people's: the processor's clock.
allowed='time[ -]stamp'

# look FOLDER...: FILE:LINE:TEXT of every such word. A part of a name ends where an underline, a figure or
# anything else that is no letter begins.
look() {
    local any
    any=$(echo "$words" | cut -d' ' -f1 | paste -sd'|')
    grep -rInE --include='*.[ch]' --include='*.hpp' --include='*.cu' --include='*.md' --include='*.py' --include='*.txt' \
        --include='*.cmake' --include='*.css' --include='*.js' --exclude=CHANGELOG.md -i "(^|[^[:alpha:]])($any)([^[:alpha:]]|$)" "$@" |
        grep -viE "$allowed" || true
}

rm -rf "$scratch"
mkdir -p "$scratch"
count=0
for word in $(echo "$words" | cut -d' ' -f1 | tr '|' ' '); do
    count=$((count + 1))
    for text in "/* $word */" "int flw_${word}_of(void);" "#define FLW_$(echo "$word" | tr a-z A-Z) 1"; do
        echo "$text" >"$scratch/planted.h"
        [ -n "$(look "$scratch")" ] || { echo "not found: $text" >&2; exit 1; }
    done
done
printf '%s\n' '/* blend, calendar, silent, equivalent, wrung, timestamp, the time stamp counter */' >"$scratch/planted.h"
[ -z "$(look "$scratch")" ] || { echo "English is taken for one of the words: $(look "$scratch")" >&2; exit 1; }
rm -rf "$scratch"

cd "$source"
found=$(look src include kernels tools)
if [ -n "$found" ]; then
    echo "$found" | cut -c1-160 >&2
    echo "the words of src/README.md's glossary are, instead of these:" >&2
    echo "$words" | sed 's/ / -> /' >&2
    exit 1
fi
echo "$count words are in no file of src, include, kernels and tools"
