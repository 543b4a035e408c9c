#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The resources of the compiled kernels: registers, stack and static shared memory by cuobjdump's resource usage;
# spills (loads and stores of local memory), 16-byte loads, 16-byte stores and fused multiply-adds of floats
# counted in the disassembly. Needs no GPU. Counts are of instructions in the code, not of those that a launch executes.
#
#   tests/gpu/kernel_resources.sh [--markdown] [--check FILE] [FOLDER]
#
# FOLDER has the images (build/release/kernels/image); CUOBJDUMP names the tool if it is not on the path.
# --check FILE holds each kernel to a line of FILE: NAME, most bytes of stack, least 16-byte loads and stores,
# most fused multiply-adds ('*' is every kernel without a line, '-' any number; '#' begins a comment). A kernel
# without stack may not spill either.
#
# Exit: 0 shown, and all as FILE has it; 1 a kernel is not; 2 usage; 77 no cuobjdump or no images.
set -u

markdown=0
limits=
folder=$(dirname "$0")/../../build/release/kernels/image
while [ $# -gt 0 ]; do
    case $1 in
    --markdown) markdown=1 ;;
    --check)
        limits=${2-}
        if [ ! -r "$limits" ]; then echo "kernel_resources.sh: --check '$limits': no such file" >&2; exit 2; fi
        shift
        ;;
    -*) echo "kernel_resources.sh: cannot use '$1' (see the head of the file)" >&2; exit 2 ;;
    *) folder=$1 ;;
    esac
    shift
done

tool=${CUOBJDUMP-}
pypi=$(dirname "$0")/../../build/pypi/cuda/nvidia/cu13/bin # tools/quickstart installs it there
for candidate in cuobjdump "${CUDA_HOME-/usr/local/cuda}/bin/cuobjdump" "$pypi/cuobjdump"; do
    if [ -z "$tool" ] && command -v "$candidate" >/dev/null 2>&1; then tool=$candidate; fi
done
if [ -z "$tool" ]; then
    echo "kernel_resources.sh: no cuobjdump (it comes with the CUDA toolkit, or from PyPI): nothing shown" >&2
    exit 77
fi
PATH=$PATH:$pypi # it calls nvdisasm
set -- "$folder"/*.fatbin
if [ ! -e "$1" ]; then
    echo "kernel_resources.sh: no images in $folder: build with -DFALLOW_KERNEL_IMAGES=ON and nvcc" >&2
    exit 77
fi

rows=$(mktemp) || exit 2
trap 'rm -f "$rows"' EXIT
for image in "$@"; do
    # One line a kernel and architecture: name arch registers stack shared spills loads stores fused
    if ! "$tool" --dump-resource-usage -sass "$image" >"$rows.dump" 2>"$rows.error"; then
        echo "kernel_resources.sh: $tool cannot read $image: $(head -n 1 "$rows.error")" >&2
        rm -f "$rows.dump" "$rows.error"
        exit 1
    fi
    awk '
        /^arch = / { arch = $3 }
        $1 == "Function" && $2 != ":" { name = $2; sub(/:$/, "", name); sub(/^flw_/, "", name) }
        $1 == "Function" && $2 == ":" { name = $3; sub(/^flw_/, "", name); key = name " " arch; code[key] = 1 }
        / REG:[0-9]/ {
            key = name " " arch
            if (!(key in usage)) order[++count] = key
            match($0, /REG:[0-9]+/); registers = substr($0, RSTART + 4, RLENGTH - 4)
            match($0, /STACK:[0-9]+/); stack = substr($0, RSTART + 6, RLENGTH - 6)
            match($0, /SHARED:[0-9]+/); shared = substr($0, RSTART + 7, RLENGTH - 7)
            usage[key] = registers " " stack " " shared
        }
        /\/\*[0-9a-f]+\*\// {
            at = ($2 ~ /^@/) ? 3 : 2
            if ($at ~ /^(LDL|STL)/) spills[key]++
            else if ($at ~ /^LDG.*\.128/) loads[key]++
            else if ($at ~ /^STG.*\.128/) stores[key]++
            else if ($at ~ /^[FD]FMA/) fused[key]++
        }
        END {
            for (i = 1; i <= count; i++) {
                key = order[i]
                if (!(key in code)) { print "no disassembly of " key > "/dev/stderr"; exit 1 }
                print key, usage[key], spills[key] + 0, loads[key] + 0, stores[key] + 0, fused[key] + 0
            }
            if (count == 0) exit 1
        }' "$rows.dump" >>"$rows" || {
        echo "kernel_resources.sh: $image: not understood; is $tool of another version?" >&2
        rm -f "$rows.dump" "$rows.error"
        exit 1
    }
done
rm -f "$rows.dump" "$rows.error"

if [ "$markdown" = 1 ]; then
    awk '
        !($1 in seen) { seen[$1] = 1; order[++count] = $1 }
        {
            for (i = 3; i <= 8; i++) cell[$1, i] = cell[$1, i] (cell[$1, i] == "" ? "" : " / ") $i
            list = (index(archs, $2) ? archs : archs (archs == "" ? "" : " / ") $2); archs = list
        }
        END {
            print "| kernel (" archs ") | registers | stack B | shared B | spills | 16-byte loads | 16-byte stores |"
            print "|---|---|---|---|---|---|---|"
            for (i = 1; i <= count; i++) {
                line = "| " order[i]
                for (c = 3; c <= 8; c++) line = line " | " cell[order[i], c]
                print line " |"
            }
        }' "$rows"
else
    awk '
        BEGIN { printf "%-20s %-7s %9s %7s %8s %6s %9s %10s %6s\n", "kernel", "for", "registers", "stack B",
                "shared B", "spills", "16 B loads", "16 B stores", "fused" }
        { printf "%-20s %-7s %9s %7s %8s %6s %10s %11s %6s\n", $1, $2, $3, $4, $5, $6, $7, $8, $9 }' "$rows"
fi
if [ -z "$limits" ]; then exit 0; fi
awk -v limits="$limits" '
    BEGIN {
        while ((getline line < limits) > 0) {
            sub(/#.*/, "", line)
            if (split(line, word, /[ \t]+/) >= 5) {
                known[word[1]] = 1; stack[word[1]] = word[2]; loads[word[1]] = word[3]; stores[word[1]] = word[4]
                fused[word[1]] = word[5]
            } else if (line ~ /[^ \t]/) {
                print limits ": \047" line "\047: not a name and four numbers" > "/dev/stderr"; failed = 1
            }
        }
    }
    function complain(text) { print $1 " for " $2 ": " text > "/dev/stderr"; failed = 1 }
    {
        name = ($1 in known) ? $1 : "*"
        seen[$1] = 1
        if ($4 + 0 > stack[name] + 0) complain($4 " bytes of stack, more than " stack[name] + 0)
        if (stack[name] + 0 == 0 && $6 + 0 > 0) complain($6 " loads and stores of local memory: it spills")
        if ($7 + 0 < loads[name] + 0) complain($7 " loads of 16 bytes, fewer than " loads[name])
        if ($8 + 0 < stores[name] + 0) complain($8 " stores of 16 bytes, fewer than " stores[name])
        if (fused[name] != "-" && $9 + 0 > fused[name] + 0) {
            complain($9 " fused multiply-adds, more than " fused[name] + 0 ": a product is not rounded")
        }
    }
    END {
        for (name in known) {
            if (name != "*" && !(name in seen)) { print name ": it has limits and no image" > "/dev/stderr"; failed = 1 }
        }
        exit failed
    }' "$rows"
