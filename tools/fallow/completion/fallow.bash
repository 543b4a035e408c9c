# SPDX-License-Identifier: Apache-2.0
# Completion of the fallow command for bash. It reads the command's own help, so it never lags behind it.
#   source fallow.bash        or installed in share/bash-completion/completions/fallow

# Words that a help lists, one a line with two blanks before and a text behind.
_fallow_words() {
    "$@" --help 2>/dev/null | sed -n -e '/ --help/d; / --version/d' -e 's/^  \([a-z][a-z-]*\)  *[^ ].*/\1/p'
}

_fallow_options() {
    "$@" --help 2>/dev/null | grep -oE -- '(^|[^a-z-])--[a-z][a-z-]*' | grep -oE -- '--[a-z-]+' | sort -u
}

_fallow_reply() { # arguments of compgen
    mapfile -t COMPREPLY < <(compgen "$@" -- "$word" | sort -u)
}

_fallow() {
    local program=${COMP_WORDS[0]} word=${COMP_WORDS[COMP_CWORD]-} before=${COMP_WORDS[COMP_CWORD - 1]}
    local sub=${COMP_WORDS[1]-} help=("${COMP_WORDS[@]:0:2}") at modes="cache strict trace off"
    COMPREPLY=()
    if [ "$COMP_CWORD" -eq 1 ]; then
        _fallow_reply -W "$(_fallow_words "$program") --help --version"
        return
    fi
    case $sub in
        run | record | audit) # a command and its own arguments follow --
            for ((at = 2; at < COMP_CWORD; at++)); do
                [ "${COMP_WORDS[at]}" = -- ] || continue
                [ "$((at + 1))" -ne "$COMP_CWORD" ] || _fallow_reply -c
                [ ${#COMPREPLY[@]} -gt 0 ] || compopt -o default 2>/dev/null
                return
            done
            [ "$sub" != audit ] || modes="audit cache strict"
            if [ "$before" = --mode ]; then
                _fallow_reply -W "$modes"
                return
            fi ;;
        help)
            if [ "$before" != --man-pages ] && [[ $word != -* ]]; then
                help=("$program")
                [ "$COMP_CWORD" -gt 2 ] && [[ $before != -* ]] && help+=("$before")
                _fallow_reply -W "$(_fallow_words "${help[@]}")"
                return
            fi ;;
        trace | gen | bench) [ "$COMP_CWORD" -gt 2 ] && help+=("${COMP_WORDS[2]-}") ;;
    esac
    if [ "$before" = --policy ] && [ "$sub" != bench ]; then
        local done=${word%"${word##*,}"} # up to the last comma
        word=${word##*,} _fallow_reply -P "$done" -W "$(_fallow_words "$program" replay)"
        compopt -o nospace 2>/dev/null
        return
    fi
    if [[ $word == -* ]]; then
        _fallow_reply -W "$(_fallow_options "${help[@]}") --help"
        return
    fi
    if [ "$COMP_CWORD" -eq 2 ] && [[ $sub == @(trace|gen|bench|report) ]]; then
        _fallow_reply -W "$(_fallow_words "${help[@]}")"
    fi
    [ ${#COMPREPLY[@]} -gt 0 ] || compopt -o default 2>/dev/null # file names
}
complete -F _fallow fallow
