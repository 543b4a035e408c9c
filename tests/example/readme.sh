#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# example.readme: the first C block of README.md is tests/example/quickstart.c below its opening
# comment, and every file that README.md and src/README.md point at exists.
#
#   readme.sh <source root>
set -eu
cd "$1"
from_readme=$(sed -n '/^```c$/,/^```$/p' README.md | sed -e 1d -e '/^```$/,$d')
from_file=$(sed '1,/\*\//d' tests/example/quickstart.c)
[ -n "$from_readme" ] || { echo "README.md has no C block" >&2; exit 1; }
diff <(printf '%s\n' "$from_readme") <(printf '%s\n' "$from_file") ||
    { echo "README.md and tests/example/quickstart.c differ" >&2; exit 1; }
missing=0
while IFS= read -r path; do
    [ -e "$path" ] || { echo "README.md points at '$path', which does not exist" >&2; missing=1; }
done < <(grep -oE '\]\([^)#:]+\)' README.md | sed -e 's/^](//' -e 's/)$//')
while IFS= read -r path; do
    [ -e "src/$path" ] ||
        { echo "src/README.md points at '$path', which does not exist" >&2; missing=1; }
done < <(grep -oE '\]\([^)#:]+\)' src/README.md | sed -e 's/^](//' -e 's/)$//')
exit $missing
