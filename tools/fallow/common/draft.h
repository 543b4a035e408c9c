/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a file that is built in memory and then written whole or not at all, and what is said where that fails.
 * Does not: write (trace/io/output.h).
 */
#ifndef FLW_TOOL_DRAFT_H
#define FLW_TOOL_DRAFT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct flw_draft {
    const char *prefix; /* of what is said, as "audit: " */
    FILE *file;         /* print here */
    char *text;
    size_t length;
};

void flw_draft_begin(struct flw_draft *draft, const char *prefix);

/* False: said, and no text. `is_good`: all of it was printed. `path` NULL: the text alone is wanted, and
 * is the caller's to free. */
bool flw_draft_end(struct flw_draft *draft, bool is_good, const char *path);

/* What was printed so far, without an end. False: said. */
bool flw_draft_write(struct flw_draft *draft, const char *path);

/* In place of the end, or of free after it: no text. Nothing where none was begun. */
void flw_draft_abandon(struct flw_draft *draft);

#endif
