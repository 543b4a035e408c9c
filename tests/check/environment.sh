#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# check.environment: a library reads the environment through secure_getenv alone. A privileged program (setuid, setgid,
# capabilities) may load it, and its environment is its caller's. Two planted libraries must be refused.
#
#   environment.sh <C compiler> <scratch folder> <built library>...
set -eu
compiler=$1 planted=$2/planted.so
shift 2
reads() { # code that was linked statically counts as the library's own
    nm -D --undefined-only "$1" | grep -wE 'getenv|environ|__environ|_environ'
}
mkdir -p "${planted%/*}"
for body in 'getenv("FALLOW")' '(environ, getenv)("FALLOW")' '*environ'; do
    echo "#include <stdlib.h>
        extern char **environ; char *f(void); char *f(void) { return $body; }" |
        "$compiler" -w -shared -fPIC -x c -o "$planted" -
    reads "$planted" >/dev/null || { echo "planted: $body was not found" >&2; exit 1; }
done
for library; do
    ! reads "$library" || { echo "$library: call secure_getenv instead" >&2; exit 1; }
done
