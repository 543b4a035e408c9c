#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# abi.headers: every public header compiles alone as C11 and as C++17 without a warning, and beside
# <cuda.h> and <cuda_runtime.h>, before or after them, where there is a toolkit. A CUstream and a
# cudaStream_t pass as a fallow_stream without a cast.
#
#   headers.sh <source root> <c compiler> <folder of cuda.h, or empty> <scratch folder>
set -eu
source=$1 cc=$2 cuda=$3 work=$4
cxx=
for candidate in "${CXX:-}" g++ clang++ c++; do
    [ -n "$candidate" ] && command -v "$candidate" >/dev/null && { cxx=$candidate; break; }
done
mkdir -p "$work"
count=0

# compiles LANGUAGE NAME: $work/unit as the language
compiles() {
    local flags=(-Wall -Wextra -Wpedantic -Werror -fsyntax-only "-I$source/include")
    [ -z "$cuda" ] || flags+=(-isystem "$cuda")
    if [ "$1" = c ]; then
        "$cc" -std=c11 "${flags[@]}" -x c "$work/unit" || { echo "$2 does not compile as C11" >&2; exit 1; }
    else
        [ -n "$cxx" ] || return 0
        "$cxx" -std=c++17 "${flags[@]}" -x c++ "$work/unit" ||
            { echo "$2 does not compile as C++17" >&2; exit 1; }
    fi
    count=$((count + 1))
}

# unit NAME: standard input, in both languages
unit() {
    cat >"$work/unit"
    compiles c "$1"
    compiles c++ "$1"
}

for header in "$source"/include/fallow/*.h; do
    name=fallow/$(basename "$header")
    unit "$name" < <(printf '#include <%s>\n#include <%s>\nint main(void) { return 0; }\n' "$name" "$name")
done

use='int allocate(fallow_pool *pool, STREAM stream, void **out);
int allocate(fallow_pool *pool, STREAM stream, void **out) { return (int)fallow_alloc(pool, 1, stream, out); }
int main(void) { return 0; }'
for other in cuda.h:CUstream cuda_runtime.h:cudaStream_t; do
    file=${other%%:*} stream=${other##*:}
    [ -n "$cuda" ] && [ -f "$cuda/$file" ] || { echo "no $file: not compiled beside it"; continue; }
    unit "fallow/fallow.h after $file" < <(
        printf '#include <%s>\n#include <fallow/fallow.h>\n%s\n' "$file" "${use//STREAM/$stream}")
    unit "fallow/extend.h before $file" < <(
        printf '#include <fallow/extend.h>\n#include <%s>\n%s\n' "$file" "${use//STREAM/$stream}")
done
[ -n "$cxx" ] || echo "no C++ compiler: C11 only"
echo "$count units compile"
