#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# check.help: the help of a subcommand has an example of it; those of layout, bench, doctor, top and help, which need
# no file, run. (unit.gen_command and unit.trace_command run those of the generators and verbs.)
#
#   help.sh <fallow>
set -eu
fallow=$1
failures=0
for subcommand in run record audit replay report 'report diff' 'report merge' view layout bench 'bench kernels' doctor top help; do
    # shellcheck disable=SC2086
    if ! "$fallow" $subcommand --help | grep -q "^example: fallow $subcommand "; then
        echo "fallow $subcommand --help: no example of it"
        failures=1
    fi
done
for subcommand in layout bench 'bench kernels' doctor top help; do
    # shellcheck disable=SC2086
    example=$("$fallow" $subcommand --help | sed -n 's/^example: fallow //p')
    # shellcheck disable=SC2086
    if ! "$fallow" $example >/dev/null; then
        echo "fallow $example: failed"
        failures=1
    fi
done
exit $failures
