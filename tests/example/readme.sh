#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# example.readme: the C blocks of README.md are tests/example/quickstart.c, record.c and sleep.c below their
# opening comments, and every file that README.md and src/README.md point at exists.
#
#   readme.sh <source root>
set -eu
cd "$1"
number=0
for program in quickstart record sleep; do
    number=$((number + 1))
    from_readme=$(awk -v wanted=$number '/^```c$/ { n++; inside = 1; next } /^```$/ { inside = 0 } inside && n == wanted' README.md)
    from_file=$(sed '1,/\*\//d' tests/example/$program.c)
    [ -n "$from_readme" ] || { echo "README.md has no C block for $program.c" >&2; exit 1; }
    diff <(printf '%s\n' "$from_readme") <(printf '%s\n' "$from_file") ||
        { echo "README.md and tests/example/$program.c differ" >&2; exit 1; }
done
missing=0
while IFS= read -r path; do
    [ -e "$path" ] || { echo "README.md points at '$path', which does not exist" >&2; missing=1; }
done < <(grep -oE '\]\([^)#:]+\)' README.md | sed -e 's/^](//' -e 's/)$//')
while IFS= read -r path; do
    [ -e "src/$path" ] ||
        { echo "src/README.md points at '$path', which does not exist" >&2; missing=1; }
done < <(grep -oE '\]\([^)#:]+\)' src/README.md | sed -e 's/^](//' -e 's/)$//')
exit $missing
