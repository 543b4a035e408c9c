#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# check.layers: includes point down only, and files stay small enough to read.
#
#   layers.sh <source root>
#
#   base < driver < memory < heap < pool < arena     a layer includes itself, lower ones and fallow/
#   plugin   pool and below                  beside arena
#   publish  pool and below                  beside arena
#   record   base; pool may include it       trace    base, record
#   preload  base to pool, record            simcuda  base and the driver's types
#   host     base and the driver's table; a user of the pool for the rest
#   include/fallow                           fallow/ only: users have nothing else
#   kernels  itself, fallow/, the driver's answers and section: kernel modules are a user of the pool like any other
#   tools/fallow   main.c alone in the root; common < policies < a folder for each subcommand, which includes no
#                  other's; no header shares its path with one of src or kernels, and trace/ in an include is src's
#   heap     state < space < order < physical < caches < what lies beside these folders
#   pool     state < streams < ladder < calls < extensions < what lies beside these folders
#   trace    io < trace < formats < gen
#   src includes nothing of tools/ or tests/; nobody but tests/support/test.h includes <cmocka.h>
#   an entry point is called by its exported name: cuda.h would rename a plain one, and where there is no
#   toolkit nothing does
#   a file of more than 800 lines says why in its opening comment ("Long because ...")
#
# Prints one line for each offence; exit 1 if there is any.
set -eu
cd "$1"

# What a folder of src may include, as an extended regular expression over the quoted path.
allowed_of() {
    case $1 in
    base) echo '^(base|fallow)/' ;;
    driver) echo '^(base|driver|fallow)/' ;;
    memory) echo '^(base|driver|memory|fallow)/' ;;
    heap) echo '^(base|driver|memory|heap|fallow)/' ;;
    record) echo '^(base|record|fallow)/' ;;
    pool) echo '^(base|driver|memory|heap|record|pool|fallow)/' ;;
    arena) echo '^(base|driver|memory|heap|record|pool|arena|fallow)/' ;;
    plugin) echo '^(base|driver|memory|heap|record|pool|plugin|fallow)/' ;;
    host) echo '^(base|driver|host|fallow)/' ;;
    publish) echo '^(base|driver|memory|heap|record|pool|publish|fallow)/' ;;
    trace) echo '^(base|record|trace)/|^fallow/model\.h$' ;;
    preload) echo '^(base|driver|memory|heap|record|pool|preload|fallow)/' ;;
    package) echo '^$' ;;
    simcuda) echo '^(base|simcuda|fallow)/|^driver/(driver_types|entry_points)\.h$' ;;
    *) return 1 ;;
    esac
}

# The folders of a layer of src, from the ground. What of it is in no folder lies on top.
floors_of() {
    case $1 in
    heap) echo 'state space order physical caches' ;;
    pool) echo 'state streams ladder calls extensions' ;;
    trace) echo 'io trace formats gen' ;;
    esac
}

# file:line:path of every quoted include below a folder
includes() {
    grep -rHnE '^[[:space:]]*#[[:space:]]*include[[:space:]]*"' --include='*.[ch]' "$@" 2>/dev/null |
        sed -E 's/^([^:]+:[0-9]+):.*"([^"]+)".*/\1:\2/'
}

# Of one layer: a folder that is no floor, an include that leads up.
floor_offences() {
    floors=$(floors_of "$1")
    [ -n "$floors" ] || return 0
    for folder in src/"$1"/*/; do
        case " $floors " in
        *" $(basename "$folder") "*) ;;
        *) echo "$folder: a folder that is no floor of $1; add it to tests/check/layers.sh" ;;
        esac
    done
    below=''
    for floor in $floors; do
        below="${below:+$below|}$floor"
        includes "src/$1/$floor" | grep -E ":$1/" | grep -vE ":$1/($below)/" | while IFS=: read -r file line path; do
            echo "$file:$line: the floor $floor of $1 must not include \"$path\", which lies above it"
        done || true
    done
}

# The folders of tools/fallow. Whether a path is one of theirs is asked of the files: src has a trace/ too.
command_offences() {
    find tools/fallow -maxdepth 1 -name '*.[ch]' ! -name main.c | sed 's/$/: the root is for main.c; give it a folder/'
    for header in tools/fallow/*/*.h; do
        path=${header#tools/fallow/}
        for other in src kernels; do
            [ ! -e "$other/$path" ] || echo "$header: $other has the same path; an include could mean either"
        done
    done
    includes tools/fallow/*/ | while IFS=: read -r file line path; do
        folder=${file#tools/fallow/}
        folder=${folder%%/*}
        case $path in
        */*) [ -e "tools/fallow/$path" ] || continue ;;
        *) continue ;; # beside the file
        esac
        case $folder:$path in
        trace:trace/*) echo "$file:$line: \"$path\" looks like src/trace; name the header alone" ;;
        *:common/* | "$folder:$folder"/*) ;;
        common:policies/*) echo "$file:$line: common must not include \"$path\"" ;;
        *:policies/*) ;;
        *) echo "$file:$line: $folder must not include \"$path\"; what two share lies in common or policies" ;;
        esac
    done
}

# The plain names of entry points that are exported with a version, one alternative each.
renamed() {
    [ -f src/driver/entry_points.h ] || return 0
    sed -nE 's/^ *X\([A-Z]+, (cu[A-Za-z0-9_]+),.*/\1/p' src/driver/entry_points.h | sort -u |
        awk '{ has[$1] = 1 } END { for (name in has) { plain = name; if (sub(/_v[0-9]+$/, "", plain) && !(plain in has)) print plain } }' |
        paste -sd'|' -
}

offences=$(
    for folder in src/*/; do
        layer=$(basename "$folder")
        if ! allowed=$(allowed_of "$layer"); then
            echo "src/$layer: a folder that no rule names; add it to tests/check/layers.sh"
            continue
        fi
        includes "$folder" | while IFS=: read -r file line path; do
            echo "$path" | grep -qE "$allowed" ||
                echo "$file:$line: src/$layer must not include \"$path\""
        done
        floor_offences "$layer"
    done
    includes kernels | while IFS=: read -r file line path; do
        case $path in
        fallow/* | common/* | debug/* | attention/* | mla/* | moe/* | driver/answer.h | driver/section.h) ;;
        *) echo "$file:$line: kernels must not include \"$path\"" ;;
        esac
    done
    includes include | while IFS=: read -r file line path; do
        case $path in fallow/*) ;; *) echo "$file:$line: a public header must not include \"$path\"" ;; esac
    done
    [ ! -d tools/fallow ] || command_offences
    # A bracketed include of ours would slip past the rules above.
    grep -rHnE '^[[:space:]]*#[[:space:]]*include[[:space:]]*<(base|driver|memory|heap|record|pool|plugin|trace|simcuda|support)/' \
        --include='*.[ch]' src include kernels tools tests 2>/dev/null |
        sed -E 's/^([^:]+:[0-9]+):.*/\1: include our own headers in quotes/' || true
    grep -rHnE '#[[:space:]]*include[[:space:]]*<cmocka\.h>' --include='*.[ch]' src include kernels tools tests |
        grep -v '^tests/support/test\.h:' |
        sed -E 's/^([^:]+:[0-9]+):.*/\1: include "support\/test.h", never <cmocka.h>/' || true
    names=$(renamed)
    if [ -n "$names" ]; then
        # simcuda exports the old forms too, and the preload hooks them.
        grep -rHnE "(\\.|->|\\(|, )($names)\\([^)]" --include='*.[ch]' src tools tests |
            grep -vE '^src/(simcuda|preload)/' |
            sed -E 's/^([^:]+:[0-9]+):.*/\1: call the entry point by its exported name, version included/' || true
    fi
    find src include kernels tools tests -name '*.[ch]' | while read -r file; do
        lines=$(wc -l <"$file")
        if [ "$lines" -gt 800 ] && ! sed '/\*\//q' "$file" | grep -q 'Long because'; then
            echo "$file: $lines lines; split it, or say in its opening comment why it is long (\"Long because ...\")"
        fi
        head -n 1 "$file" | grep -q 'SPDX-License-Identifier: Apache-2.0' ||
            echo "$file:1: open with the SPDX line"
    done
)
if [ -n "$offences" ]; then
    echo "$offences"
    echo "$(echo "$offences" | wc -l) offences against the layers"
    exit 1
fi
echo "$(find src include kernels tools tests -name '*.[ch]' | wc -l) files keep to their layers"
