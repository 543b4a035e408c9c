#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# check.help: the help of a subcommand has an example of it; those of layout, bench, doctor, top and help, which need
# no file, run. (unit.gen_command and unit.trace_command run those of the generators and verbs.) "`fallow SUBCOMMAND
# --help` has every option; verbs have their own help": each option in a subcommand's source is in one of these texts.
#
#   help.sh <fallow>
set -eu
fallow=$1
folders=$(dirname "$0")/../../tools/fallow
failures=0

# has_options FOLDER COMMAND...: check that each option in the folder's source is in the help of one of the commands
has_options() {
    folder=$folders/$1
    shift
    text=$(for command; do
        # shellcheck disable=SC2086
        "$fallow" $command --help
    done)
    for option in $(cat "$folder"/*.c | tr '\n' ' ' | grep -oE '\{\.name = "[a-z0-9-]+", *\.kind = FLW_OPTION' |
        sed 's/[^"]*"//; s/".*//'); do
        case $text in
        *"--$option"*) ;;
        *)
            echo "fallow $*: no help has --$option"
            failures=1
            ;;
        esac
    done
}
has_options bench bench 'bench kernels'
has_options trace 'trace info' 'trace dump' 'trace pack' 'trace import' 'trace export' 'trace verify'
has_options report report 'report diff' 'report merge'
has_options gen 'gen train'
has_options run run record
for subcommand in audit doctor help layout replay top view; do
    has_options "$subcommand" "$subcommand"
done
case $("$fallow" bench --help) in
*"fallow bench kernels --help"*) ;;
*)
    echo "fallow bench --help does not name fallow bench kernels --help, which has options of its own"
    failures=1
    ;;
esac
if "$fallow" 2>&1 | grep -v '^$' | head -n1 | grep -qv '^fallow: '; then
    echo 'fallow alone: the error does not begin with "fallow: "'
    failures=1
fi
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
