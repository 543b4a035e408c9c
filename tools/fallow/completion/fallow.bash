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

_fallow() {
    local program=${COMP_WORDS[0]} word=${COMP_WORDS[COMP_CWORD]-} before=${COMP_WORDS[COMP_CWORD - 1]}
    local sub=${COMP_WORDS[1]-} verb=${COMP_WORDS[2]-} help
    COMPREPLY=()
    if [ "$COMP_CWORD" -eq 1 ]; then
        mapfile -t COMPREPLY < <(compgen -W "$(_fallow_words "$program") --help --version" -- "$word")
        return
    fi
    case $sub in
        run | record | audit) # behind -- stands a command, then its own arguments
            local at
            for ((at = 2; at < COMP_CWORD; at++)); do
                [ "${COMP_WORDS[at]}" = -- ] || continue
                [ "$((at + 1))" -eq "$COMP_CWORD" ] &&
                    mapfile -t COMPREPLY < <(compgen -c -- "$word" | sort -u)
                [ ${#COMPREPLY[@]} -gt 0 ] || compopt -o default 2>/dev/null
                return
            done
            if [ "$before" = --mode ]; then
                local modes="cache strict trace off"
                [ "$sub" = audit ] && modes="audit cache strict"
                mapfile -t COMPREPLY < <(compgen -W "$modes" -- "$word")
                return
            fi ;;
    esac
    if [ "$sub" = help ] && [ "$before" != --man-pages ] && [[ $word != -* ]]; then
        help=("$program")
        [ "$COMP_CWORD" -gt 2 ] && [[ $before != -* ]] && help+=("$before")
        mapfile -t COMPREPLY < <(compgen -W "$(_fallow_words "${help[@]}")" -- "$word")
        return
    fi
    help=("$program" "$sub")
    case $sub in
        trace | gen | bench) [ "$COMP_CWORD" -gt 2 ] && help+=("$verb") ;;
    esac
    if [ "$before" = --policy ] && [ "$sub" != bench ]; then
        local done=${word%"${word##*,}"} # what stands before the last comma
        mapfile -t COMPREPLY < <(compgen -P "$done" -W "$(_fallow_words "$program" replay)" -- "${word##*,}")
        compopt -o nospace 2>/dev/null
        return
    fi
    case $word in
        -*) mapfile -t COMPREPLY < <(compgen -W "$(_fallow_options "${help[@]}") --help" -- "$word"); return ;;
    esac
    if [ "$COMP_CWORD" -eq 2 ]; then
        case $sub in
            trace | gen | bench | report)
                mapfile -t COMPREPLY < <(compgen -W "$(_fallow_words "${help[@]}")" -- "$word") ;;
        esac
    fi
    [ ${#COMPREPLY[@]} -gt 0 ] || compopt -o default 2>/dev/null # file names
}
complete -F _fallow fallow
