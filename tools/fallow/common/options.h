/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: what is said of an option that getopt_long refused, the same words for every subcommand.
 * Does not: parse; replay, report, trace and gen look at their arguments themselves.
 */
#ifndef FLW_TOOL_OPTIONS_H
#define FLW_TOOL_OPTIONS_H

#include <getopt.h>
#include <stdio.h>
#include <string.h>

/* One line to standard error. `answer` is getopt_long's, '?' or ':', whose list of letters begins
 * with ':' (behind a '+'), so that it says nothing itself; `command` as on the command line, as in
 * "bench kernels". Called before the next getopt_long. */
static inline void flw_complain_option(const char *command, char *const *argv, int answer)
{
    char letter[3] = {'-', (char)optopt, '\0'};
    const char *refused = argv[optind - 1];
    /* A letter that is none is known by itself only: others may follow it in the same word. */
    if (strncmp(refused, "--", 2) != 0 && optopt > ' ' && optopt <= '~') {
        refused = letter;
    }
    if (answer == ':') {
        fprintf(stderr, "fallow: %s needs a value; see fallow %s --help\n", refused, command);
    } else {
        fprintf(stderr, "fallow: %s has no option '%s'; see fallow %s --help\n", command, refused,
                command);
    }
}

#endif
