#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# check.docs: the API reference is made without a warning, has every function that a header declares, and its
# first page names every header. A name without a docstring is refused.
#
#   docs.sh <source root> <Doxyfile of the build> <scratch folder>
set -eu
source=$1 doxyfile=$2 work=$3
command -v doxygen >/dev/null || { echo "no doxygen: the API reference was not made"; exit 77; }
rm -rf "$work"
mkdir -p "$work"

# reference FOLDER LINE...: made in the folder, with these settings on top of the build's
reference() {
    local folder=$1
    shift
    mkdir -p "$folder"
    { cat "$doxyfile"; printf '%s\n' "OUTPUT_DIRECTORY = \"$folder\"" "GENERATE_TAGFILE = \"$folder/tags\"" "$@"; } |
        doxygen - >"$folder/said" 2>&1
}

reference "$work/all" || { cat "$work/all/said" >&2; exit 1; }
[ ! -s "$work/all/said" ] || { cat "$work/all/said" >&2; exit 1; }

declared=$(cat "$source"/include/fallow/*.h | sed -E 's|/\*.*\*/||' |
    awk '/^[[:space:]]*\/\*/ { comment = 1 } !comment { print } /\*\// { comment = 0 }' | tr '\n' ' ' |
    grep -oE '(FALLOW_API|static inline) [^;({]*\bfallow_[a-z0-9_]+ ?\(' | grep -oE 'fallow_[a-z0-9_]+ ?\($' | tr -d ' (' | sort -u)
described=$(awk '/kind="function"/ { inside = 1 } inside && /<name>/ { gsub(/ *<\/?name>/, ""); print; inside = 0 }' \
    "$work/all/tags" | sort -u)
[ "$(echo "$declared" | wc -l)" -ge 150 ] || { echo "only these declarations were found: $declared" >&2; exit 1; }
diff <(echo "$declared") <(echo "$described") ||
    { echo "above: < declared in include/fallow, > in the reference" >&2; exit 1; }
for header in "$source"/include/fallow/*.h; do
    name=$(basename "$header" .h)
    grep -q "href=\"${name//_/__}_8h.html\"" "$work/all/html/index.html" ||
        { echo "the reference's first page does not name $name.h" >&2; exit 1; }
done

mkdir "$work/one"
printf '%s\n' '/** @file' ' * One name has no docstring. */' 'int fallow_undescribed(void);' >"$work/one/one.h"
if reference "$work/bare" "INPUT = \"$work/one\"" 'USE_MDFILE_AS_MAINPAGE ='; then
    echo "a function without a docstring was let through" >&2
    exit 1
fi
grep -q fallow_undescribed "$work/bare/said" || { cat "$work/bare/said" >&2; exit 1; }
echo "$(echo "$declared" | wc -l) functions described"
rm -rf "$work"
