#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# check.man: the man pages have the words of --help, for each subcommand and each word that has
# a help of its own; `fallow help` prints the same; no page has an error of its form.
#
#   man.sh <fallow> <scratch folder>
set -eu
fallow=$1 work=$2
if command -v groff >/dev/null; then
    render() { groff -Tascii -P-cbou -man -rLL=160n -rLT=160n "$1"; }
elif command -v mandoc >/dev/null; then
    render() { mandoc -Tascii -O width=160 "$1" | sed 's/.\x08//g'; }
else
    echo "neither groff nor mandoc: no page was read"
    exit 77
fi
rm -rf "$work"
mkdir -p "$work"
failed=0

say() {
    echo "$1" >&2
    failed=1
}

words() {
    tr -s '[:space:]' '\n' | sed '/^$/d'
}

# help_words NAME [WORD]: the output of --help, less the words that became headings
help_words() {
    [ "$1" != fallow ] || shift
    "$fallow" "$@" --help | sed -E -e 's/^(usage|example): //' -e 's/^exit (status|code):? //' |
        awk '/^ / && is_heading { line = "" } NR > 1 { print line } { line = $0; is_heading = /^[a-z]+$/ }
            END { print line }' | words
}

# page_words FILE [HEADING]: the text of the page's own sections, or of that section; no headings
page_words() {
    render "$1" | sed -e '1d;$d' | awk -v wanted="${2-}" '
        /^[A-Z]/ { section = $0; next }
        /^   [A-Z]/ { next }
        { own = section !~ /^(NAME|SEE ALSO)$/ && section !~ /^FALLOW / }
        wanted == "" ? own : section == wanted' | words
}

# compare FILE NAME [WORD]
compare() {
    local file=$1 heading=''
    shift
    [ $# = 1 ] || heading=$(tr '[:lower:]' '[:upper:]' <<<"FALLOW $*")
    [ "$(help_words "$@" | wc -l)" -ge 20 ] || say "fallow $* --help: fewer than 20 words"
    diff <(help_words "$@") <(page_words "$file" "$heading") >"$work/diff" ||
        { say "$* --help and its page differ (< help, > page):"; head -20 "$work/diff" >&2; }
}

"$fallow" help --man-pages "$work"
compare "$work/fallow.1" fallow
pages=1
for name in $("$fallow" --help | sed -n 's/^  \([a-z][a-z-]*\)  *[^ ].*/\1/p' | grep -vx fallow); do
    compare "$work/fallow-$name.1" "$name"
    cmp -s <("$fallow" help "$name") <("$fallow" "$name" --help) || say "fallow help $name is not its --help"
    cmp -s <("$fallow" help --man "$name") "$work/fallow-$name.1" || say "fallow help --man $name is another page"
    pages=$((pages + 1))
done
cmp -s <("$fallow" help --man) "$work/fallow.1" || say "fallow help --man is another page"
[ "$(find "$work" -name '*.1' | wc -l)" = "$pages" ] || say "there are other pages than of subcommands"
inner=0
for pair in 'trace info' 'trace dump' 'trace pack' 'trace import' 'trace export' 'trace verify' 'report diff' 'report merge' \
    'gen serve' 'gen train' 'gen streams' 'gen random' 'gen adversarial' 'bench kernels'; do
    read -r name word <<<"$pair"
    compare "$work/fallow-$name.1" "$name" "$word"
    # shellcheck disable=SC2086
    cmp -s <("$fallow" help $pair) <("$fallow" $pair --help) || say "fallow help $pair is not its --help"
    inner=$((inner + 1))
done
[ "$(cat "$work"/*.1 | grep -c '^.SH "FALLOW ')" = "$inner" ] || say "a page has a word that is not compared here"

for page in "$work"/*.1; do
    if command -v groff >/dev/null; then
        said=$(groff -ww -man -z "$page" 2>&1)
        [ -z "$said" ] || say "groff: $said"
    fi
    if command -v mandoc >/dev/null; then # pages have no date: they change when a text does
        said=$(mandoc -Tlint -W warning "$page" | grep -v 'missing date' || true)
        [ -z "$said" ] || say "mandoc: $said"
    fi
done
[ $failed = 0 ] && echo "$pages pages, and $inner of words within them, say what --help says"
exit $failed
