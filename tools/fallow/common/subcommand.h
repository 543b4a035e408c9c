/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the table of the subcommands of `fallow`, and the output of `fallow --help` (help.c).
 * Does not: run them.
 */
#ifndef FLW_TOOL_SUBCOMMAND_H
#define FLW_TOOL_SUBCOMMAND_H

#include <stddef.h>
#include <stdio.h>

struct flw_subcommand {
    const char *name;
    const char *summary;
    int (*run)(int argc, char **argv); /* argv[0] is the name; an enum flw_exit */
    /* What may stand behind the name and has a --help of its own; NULL behind the last. The member is NULL
     * where there is none. */
    const char *(*get_word)(size_t index);
};

/* The list, set by main(); the last has no name. */
extern const struct flw_subcommand *flw_subcommands;

/* Return the subcommand of that name, or NULL after a complaint. */
const struct flw_subcommand *flw_subcommand_find(const char *name);

void flw_subcommand_print_help(FILE *out);

#endif
