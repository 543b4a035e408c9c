#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# check.completion: the words that bash completes for the fallow command, compared with its help.
#
#   completion.sh <fallow> <fallow.bash>
set -u
fallow=$1
# shellcheck source=/dev/null
source "$2" || exit 1
failed=0

# expect "WORDS" "ANSWERS": all of the answers are offered; with '!' before it, the answer is not
expect() {
    local want
    read -r -a COMP_WORDS <<<"$1"
    [ "${1% }" = "$1" ] || COMP_WORDS+=("")
    COMP_WORDS[0]=$fallow
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    COMPREPLY=()
    _fallow 2>/dev/null
    for want in $2; do
        case $want in
            !*) ! printf '%s\n' "${COMPREPLY[@]-}" | grep -qxF -- "${want#!}" && continue ;;
            *) printf '%s\n' "${COMPREPLY[@]-}" | grep -qxF -- "$want" && continue ;;
        esac
        echo "after '$1': $want, but these were offered: ${COMPREPLY[*]-}" >&2
        failed=1
    done
}

expect "fallow " "replay trace gen bench doctor --version !usage !fallow"
expect "fallow re" "replay !trace"
expect "fallow replay --" "--policy --lag --find-limit --json --help"
expect "fallow replay --pol" "--policy !--lag"
expect "fallow replay x --policy " "fallow driver pytorch bound !serve"
expect "fallow replay x --policy fallow,py" "fallow,pytorch !fallow,driver"
expect "fallow trace " "info dump pack import export verify !fallow"
expect "fallow trace export x --" "--to !--json"
expect "fallow trace info x --" "--json --trace-device !--to"
expect "fallow gen " "serve train streams random adversarial"
expect "fallow gen train --" "--layers --hidden !--policy"
expect "fallow bench " "pair deferred handoff kernels"
expect "fallow bench pair --" "--count --live !--only"
expect "fallow top --" "--once --json --prometheus --sort --interval !--device"
expect "fallow bench kernels --" "--only --device --json !--count"
expect "fallow run --" "--mode --trace --exec !--output"
expect "fallow record -o x --" "--output --mode !--poison"
expect "fallow run --mode " "cache strict trace off !fallow"
expect "fallow audit --" "--trial --bandwidth --json !--trace"
expect "fallow audit --mode " "audit cache !off"
expect "fallow audit --json -- ech" "echo !--trial"
expect "fallow help " "replay trace !info"
expect "fallow help tr" "trace !replay"
expect "fallow help trace " "info verify !replay"
expect "fallow help --man " "replay trace"
expect "fallow help --" "--man --man-pages"
expect "fallow run --mode off -- ech" "echo !--mode"
# Every subcommand and every option of its help is offered.
for sub in $("$fallow" --help | sed -n 's/^  \([a-z][a-z-]*\)  *[^ ].*/\1/p'); do
    [ "$sub" = fallow ] && continue
    expect "fallow $sub --" "$("$fallow" "$sub" --help | grep -oE -- ' --[a-z][a-z-]*' | sort -u | tr '\n' ' ')"
done
exit $failed
