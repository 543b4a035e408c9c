#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# check.environment: no library reads the environment but through secure_getenv. A program with a privilege
# (setuid, setgid, capabilities) may load any of them, and its environment is its caller's.
#
#   environment.sh <source root> [<built library>...]
set -eu
root=$1
shift
status=0
# The words, in comments too: a name that is mentioned may be called through a pointer.
if (cd "$root" && grep -rnwE 'getenv|environ|__environ|_environ' --include='*.[chS]' --include='*.cu' src kernels); then
    echo "the lines above read a caller's environment: secure_getenv reads that of a program without a privilege only" >&2
    status=1
fi
for library in "$@"; do # what a library was linked with statically counts as its own
    if nm -D --undefined-only "$library" | grep -wE 'getenv|environ|__environ|_environ'; then
        echo "$library takes the names above from the C library: secure_getenv is the one to call" >&2
        status=1
    fi
done
exit $status
