#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# check.environment_catches: environment.sh finds each way to the environment, planted one at a time in a
# small tree and in a small library, and passes the clean ones.
#
#   environment_test.sh <source root> <C compiler> <scratch folder>
set -eu
script=$1/tests/check/environment.sh
compiler=$2
tree=$3
failures=0

fresh() {
    rm -rf "$tree"
    mkdir -p "$tree/src/pool" "$tree/kernels/common" "$tree/tools"
    printf '%s\n' '#include <stdlib.h>' 'const char *f(void);' \
        'const char *f(void) { return secure_getenv("FALLOW"); }' >"$tree/src/pool/a.c"
    printf 'const char *g(void) { return getenv("TMPDIR"); }\n' >"$tree/tools/command.c"
}
expect() { # <0 clean, 1 offence> <sentence> [<library>]
    got=0
    sh "$script" "$tree" ${3:+"$3"} >"$tree/out.txt" 2>&1 || got=1
    if [ "$got" != "$1" ]; then
        echo "wrong ($got): $2"
        cat "$tree/out.txt"
        failures=1
    fi
}
plant() { # <file> <line> <sentence>
    fresh
    printf '%s\n' "$2" >"$tree/$1"
    expect 1 "$3"
}
build() { # <line>
    printf '#define _GNU_SOURCE\n#include <stdlib.h>\n#include <unistd.h>\n%s\n' "$1" >"$tree/library.c"
    "$compiler" -shared -fPIC -o "$tree/library.so" "$tree/library.c"
}

fresh
expect 0 "secure_getenv passes, and a command may read its environment"
plant src/pool/x.c 'const char *t = getenv("FALLOW");' "getenv in src"
plant src/pool/x.h 'static inline char *t(void) { return getenv ("FALLOW"); }' "getenv in a header, with a blank"
plant kernels/common/x.c 'const char *t = getenv("FALLOW");' "getenv in kernels"
plant src/pool/x.c 'char *(*read)(const char *) = getenv;' "its address"
plant src/pool/x.c 'extern char **environ;' "the environment itself"
fresh
build 'const char *f(void) { return secure_getenv("FALLOW"); }'
expect 0 "a library with secure_getenv passes" "$tree/library.so"
build 'const char *f(void) { return getenv("FALLOW"); }'
expect 1 "a library with getenv" "$tree/library.so"
build 'char **f(void) { return environ; }'
expect 1 "a library with environ" "$tree/library.so"
exit $failures
