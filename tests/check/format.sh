#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# check.format: clang-format changes no C or C++ file. 77: no clang-format here.
#
#   format.sh <source root>       to repair: clang-format -i FILE
set -eu
cd "$1"
command -v clang-format >/dev/null || { echo "no clang-format: nothing checked"; exit 77; }
# Another major version lays out some constructs differently, so one is named.
version=$(clang-format --version | sed -E 's/.*version ([0-9]+).*/\1/')
expected=14
if [ "$version" != "$expected" ]; then
    echo "clang-format $version, not $expected: nothing checked"
    exit 77
fi
mapfile -t files < <(find src include kernels tools tests -name '*.[ch]' -o -name '*.[ch]pp' | sort)
clang-format --dry-run -Werror --ferror-limit=1 "${files[@]}"
echo "${#files[@]} files are formatted"
