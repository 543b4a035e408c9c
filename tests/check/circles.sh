#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# check.circles_<layer>: no file of a layer needs itself over others, however many. What a file needs of another
# is in its object file; inline functions are headers', which layers.sh sees to.
#
#   circles.sh <layer> <nm> <object file>...
#
# Prints what the files in circles, and between circles, need of each other; exit 1 if there are any.
set -eu
layer=$1 nm=$2
shift 2
for object; do
    name=${object##*.dir/}
    "$nm" -P -g "$object" | sed "s|^|${name%.o*} |" # file, symbol, kind
done | LC_ALL=C awk -v layer="$layer" '
    { files[$1] }
    $3 == "U" { users[$2] = users[$2] " " $1; next }
    $3 ~ /^[ABCDGRSTVW]$/ { owner[$2] = $1 }
    END {
        for (symbol in users) {
            count = split(users[symbol], list, " ")
            for (i = 1; i <= count; i++)
                if (symbol in owner && owner[symbol] != list[i])
                    needs[list[i] " -> " owner[symbol]] = needs[list[i] " -> " owner[symbol]] " " symbol
        }
        do { # a file that needs no other, or that no other needs, is in no circle: it goes
            split("", needing); split("", needed); gone = 0
            for (edge in needs) { split(edge, ends, " -> "); needing[ends[1]]; needed[ends[2]] }
            for (edge in needs) {
                split(edge, ends, " -> ")
                if (!(ends[1] in needed) || !(ends[2] in needing)) { delete needs[edge]; gone = 1 }
            }
        } while (gone)
        for (edge in needs) print layer "/" edge ":" needs[edge] | "sort"
        close("sort")
        if (length(needing) > 0) {
            print length(needing) " files of " layer " are in circles, or between two"
            exit 1
        }
        print length(files) " files of " layer ", and no circle among them"
    }'
