/* SPDX-License-Identifier: Apache-2.0 */
#include "options.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>

void flw_complain_option(const char *command, char *const *argv, int answer)
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
