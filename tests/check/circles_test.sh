#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# check.circles_catches: circles.sh finds circles of two and of three files, and one over a variable, and passes
# files that lead downwards only.
#
#   circles_test.sh <source root> <C compiler> <nm> <scratch folder>
set -eu
script=$1/tests/check/circles.sh compiler=$2 nm=$3 tree=$4
failures=0

file() { # <name> <source>
    echo "$2" >"$tree/$1.c"
    "$compiler" -c -o "$tree/layer.dir/$1.c.o" "$tree/$1.c"
}
fresh() { # top over middle over ground, and beside over all of them
    rm -rf "$tree"
    mkdir -p "$tree/layer.dir"
    file ground 'int ground; int puts(const char *); void sink(void); void sink(void) { puts(""); }'
    file middle 'void sink(void); void half(void); void half(void) { sink(); }'
    file top 'void half(void); void fall(void); void fall(void) { half(); }'
    file beside 'extern int ground; void fall(void); void half(void); int all(void); int all(void) { fall(); half(); return ground; }'
}
expect() { # <0 clean, 1 a circle> <what is printed> <sentence>
    got=0
    sh "$script" layer "$nm" "$tree"/layer.dir/*.o >"$tree/out.txt" 2>&1 || got=1
    if [ "$got" != "$1" ] || ! grep -qxF "$2" "$tree/out.txt"; then
        echo "wrong ($got): $3"
        cat "$tree/out.txt"
        failures=1
    fi
}

fresh
expect 0 '4 files of layer, and no circle among them' "files that lead downwards pass"
file middle 'void sink(void); void half(void); void all(void); void half(void) { sink(); all(); }'
expect 1 'layer/middle.c -> beside.c: all' "a file calls one that calls it"
fresh
file ground 'int ground; void fall(void); void sink(void); void sink(void) { fall(); }'
expect 1 'layer/ground.c -> top.c: fall' "three files in a circle"
expect 1 '3 files of layer are in circles, or between two' "the file above the circle is not in it"
fresh
file ground 'int ground; extern int word; void sink(void); void sink(void) { ground = word; }'
file middle 'int word; void sink(void); void half(void); void half(void) { sink(); }'
expect 1 'layer/ground.c -> middle.c: word' "a variable closes a circle"
rm -rf "$tree"
[ "$failures" = 0 ] && echo "every planted circle was found"
exit "$failures"
