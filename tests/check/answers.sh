#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# check.answers: src/driver/answer.h classifies as GONE exactly the errors that the toolkit's cuda.h describes as such;
# every row has cuda.h's number and name.
#
#   answers.sh <source root> <folder of cuda.h, or empty> [answer.h, for the check's own test]
#
# An error is GONE if its comment requires the end of the process or of the context, reports a destroyed context, or
# that the driver shuts down. Rows that an older toolkit lacks are left out. 77: no toolkit.
set -eu
root=$1 toolkit=$2 table=${3-$1/src/driver/answer.h}
case $toolkit in '' | *NOTFOUND*) echo "no cuda.h on this machine: nothing to compare with"; exit 77 ;; esac
[ -f "$toolkit/cuda.h" ] || { echo "no cuda.h in $toolkit"; exit 77; }

# number name gone|stays, one line each, of the driver's answers
driver=$(awk '
    /^typedef enum cudaError_enum/ { inside = 1 }
    /^} CUresult;/ { inside = 0 }
    !inside { next }
    /^[[:space:]]*\/\*\*/ { comment = "" }
    /^[[:space:]]*CUDA_/ {
        name = $1; number = $3; sub(/,.*/, "", number)
        gsub(/[[:space:]*]+/, " ", comment)
        is_gone = comment ~ /process must be terminated|must be destroyed|has been destroyed|had ::cuCtxDestroy|is in the process of shutting down/
        print number, name, is_gone ? "gone" : "stays"
        next
    }
    { comment = comment " " $0 }' "$toolkit/cuda.h")
count=$(echo "$driver" | wc -l)
gone=$(echo "$driver" | grep -c ' gone$')
[ "$count" -ge 90 ] && [ "$gone" -ge 10 ] ||
    { echo "only $count answers, $gone of them gone, were found in $toolkit/cuda.h: has its form changed?"; exit 1; }
rows=$(sed -nE 's/^ *X\(([0-9]+), ([A-Z_]+), ([A-Z_]+)\).*/\1 CUDA_\2 \3/p' "$table")
[ "$(echo "$rows" | wc -l)" -ge 20 ] || { echo "$table: fewer than 20 rows: has its form changed?"; exit 1; }

wrong=$( { echo "$driver" | sed 's/^/D /'; echo "$rows" | sed 's/^/R /'; } | awk '
    $1 == "D" { name[$2] = $3; word[$2] = $4; next }
    seen[$2]++ { print $2 " has two rows"; next }
    !($2 in name) { next }
    name[$2] != $3 { print $2 " is " name[$2] " in cuda.h and " $3 " in the table" }
    { said[$2] = $4 }
    END {
        for (number in name) {
            if ((said[number] == "GONE") != (word[number] == "gone"))
                print name[number] " (" number "): cuda.h says that it " (word[number] == "gone" ? "ends the context" : "ends nothing") ", the table " (said[number] == "" ? "nothing" : said[number])
        }
    }')
if [ -n "$wrong" ]; then
    echo "$wrong"
    exit 1
fi
echo "$count answers of $toolkit/cuda.h, $gone of them gone: as in the table"
