#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# check.command: the answers to wrong command lines: exit code 2, nothing on standard output, one line
# on standard error that begins with 'fallow: '; the suggestions, and the cases without one; `--`,
# `--option=value`, -V. And that no other line of the sources writes to standard error by itself.
#
#   command.sh <fallow> <source folder>
set -u
fallow=$1 source=$2
failed=0
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1

complain() {
    echo "$1"
    failed=1
}

# wrong WORDS PART [NOT]: the line has the part, and has not the other
wrong() {
    local status part=$2 not=${3-}
    # shellcheck disable=SC2086
    "$fallow" $1 >out 2>err </dev/null
    status=$?
    [ $status -eq 2 ] || complain "fallow $1: exit code $status"
    [ ! -s out ] || complain "fallow $1: on standard output: $(head -n 1 out)"
    [ "$(wc -l <err)" -eq 1 ] || complain "fallow $1: $(wc -l <err) lines of errors"
    grep -q '^fallow: ' err || complain "fallow $1: no 'fallow: ' before: $(cat err)"
    grep -qF -- "$part" err || complain "fallow $1: no '$part' in: $(cat err)"
    [ -z "$not" ] || ! grep -qF -- "$not" err || complain "fallow $1: '$not' in: $(cat err)"
}

guess='did you mean'
wrong repaly "no subcommand 'repaly'; did you mean 'replay'? see fallow --help"
wrong reprot "did you mean 'report'?"
wrong docto "did you mean 'doctor'?"
wrong rec "did you mean 'record'?"
wrong xyzzy "no subcommand 'xyzzy'; see fallow --help" "$guess"
wrong to "no subcommand 'to'" "$guess"
wrong --verison "did you mean '--version'?"
wrong -x "no option '-x'" "$guess"
wrong -- "no option '--'" "$guess"
wrong 'help repaly' "did you mean 'replay'?"
wrong 'help trace infoo' "did you mean 'info'?"
wrong 'help replay info' "'info' has no help of its own; see" "$guess"
wrong 'help --man a b' 'too many arguments'
wrong 'help --man-pages' '--man-pages needs a value'
wrong 'replay --polcy x' "no option '--polcy'; did you mean '--policy'?"
wrong 'replay --frobnicate x' "no option '--frobnicate'; see" "$guess"
wrong 'replay --no x' "several options that begin with '--no'" "$guess"
wrong 'replay --no-times=3 x' '--no-times takes no value'
wrong 'replay --limit' '--limit needs a value'
wrong 'replay --limit= x' "--limit ''"
wrong 'replay -x y' "no option '-x'"
wrong 'replay --policy=pytroch x' "no policy 'pytroch'; did you mean 'pytorch'?"
wrong 'replay --policy pytorch:max_split_size_mb=32,fallwo x' "did you mean 'fallow'?"
wrong 'replay --policy arena x' "no policy 'arena'; fallow replay --help" "$guess"
wrong 'replay a b' 'one trace at a time'
wrong 'replay --device=0 --device-bytes=3G x' 'on a GPU use --limit'
wrong 'report' 'needs a trace'
wrong 'report --csv a.csv x y' 'report them in turn'
wrong 'report --html - --json - x' 'only one of'
wrong 'report --htlm a x' "did you mean '--html'?"
wrong 'report diff a' 'two files'
wrong 'report diff --x a b' "no option '--x'"
wrong 'trace' 'needs a verb'
wrong 'trace infoo x' "did you mean 'info'?"
wrong 'trace info --jsn x' "did you mean '--json'?"
wrong 'trace export a --to=x' "not 'x'"
wrong 'gen' 'needs a generator'
wrong 'gen serv' "did you mean 'serve'?"
wrong 'gen streams imagse' "did you mean 'images'?"
wrong 'gen random nope' "--pattern has no 'nope'; fallow gen random --help" "$guess"
wrong 'gen random --count=0' "--count '0'"
wrong 'run' 'no command'
wrong 'run --mode=cahce -- true' "no mode 'cahce'"
wrong 'record -o - -- true' 'a trace is written to a file'
wrong 'audit --x' "no option '--x'"
wrong 'layout nope' "no path 'nope'"
wrong 'layout' 'takes one path'
wrong 'top nope' "'nope' is no process number"
wrong 'top --interval=0' '0.1 to 3600'
wrong 'top --json --prometheus' 'not both'
wrong 'top --sort=lvie' "did you mean 'live'?"
wrong 'doctor --jsn' "did you mean '--json'?"
wrong 'doctor foo' "unknown argument 'foo'"
if "$fallow" bench --help >help 2>&1; then
    wrong 'bench nope' "no shape 'nope'; there are "
    wrong 'bench piar' "did you mean 'pair'?"
    wrong 'bench -- piar' "did you mean 'pair'?"
    wrong 'bench pair --count=x' "--count 'x'"
    wrong 'bench' 'needs a shape'
    for shape in $(sed -n '/^shapes$/,/^options$/s/^  \([a-z]*\)  .*/\1/p' help); do
        wrong 'bench nope' " $shape" # all of them, as in the help
    done
fi

# Behind -- there are no options: a file of that name is looked for.
"$fallow" replay -- --help >out 2>err
[ $? -eq 1 ] && grep -q '^fallow: --help: cannot open' err || complain "replay -- --help: $(cat out err)"
"$fallow" report diff -- --help b >out 2>err
[ $? -eq 1 ] && grep -q '^fallow: .*--help' err || complain "report diff -- --help b: $(cat out err)"
# Before a verb it changes nothing.
wrong 'trace -- infoo x' "did you mean 'info'?"
wrong 'trace -- --help' "no verb '--'"
wrong 'gen -- serv' "did you mean 'serve'?"
for words in 'trace -- info --help' 'gen -- random --help' 'gen -- serve'; do
    # shellcheck disable=SC2086
    "$fallow" $words >one 2>err && "$fallow" ${words/ -- / } >other && cmp -s one other ||
        complain "fallow $words: $(cat err)"
done

# The version, and the help, have two names each; `help` prints the same as --help.
for words in '--version -V' '--help -h' 'replay --help|help replay' 'trace info --help|help trace info'; do
    case $words in
        *'|'*) one=${words%|*} other=${words#*|} ;;
        *) one=${words% *} other=${words#* } ;;
    esac
    # shellcheck disable=SC2086
    "$fallow" $one >one && "$fallow" $other >other && cmp -s one other || complain "fallow $one is not fallow $other"
done
grep -q '^fallow [0-9]*\.[0-9]*\.[0-9]* ' <("$fallow" -V) || complain "-V does not say a version"

# Every error is printed by flw_complain, except those with a reason here.
others=$(cd "$source/tools/fallow" && grep -rlE '(printf|puts|putc|write|help)\(.*stderr|perror\(' --include='*.c' . | sort | tr '\n' ' ')
known='./common/command.c ./common/progress.c ./common/tool_host.c ./gen/gen.c ./main.c '
[ "$others" = "$known" ] || complain "standard error is written to by $others, not $known"

[ $failed -eq 0 ] && echo "the command line's mistakes"
exit $failed
