/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a file that is built in memory and then written whole or not at all, and the error if that fails.
 * Does not: write (trace/io/output.h).
 */
#ifndef FLW_TOOL_DRAFT_H
#define FLW_TOOL_DRAFT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct flw_draft {
    const char *prefix; /* of errors, as "audit: " */
    FILE *file;         /* print here */
    char *text;
    size_t length;
};

void flw_draft_begin(struct flw_draft *draft, const char *prefix);

/* Write the draft to the path and free it; with a NULL path the text stays for the caller to free. `is_good`: printing
 * succeeded. Returns false after an error, without a text. */
bool flw_draft_end(struct flw_draft *draft, bool is_good, const char *path);

/* Write the text so far. Returns false after an error. */
bool flw_draft_write(struct flw_draft *draft, const char *path);

/* Check, before any work, that the file of --json can be written and is none of the operands. Return FLW_EXIT_OK, also
 * for NULL and standard output, or the exit code after an error: "--json PATH is WHAT". */
int flw_draft_check(const char *path, char *const *operands, int count, const char *what);

/* Free a draft at any time; a zero-filled one too. */
void flw_draft_abandon(struct flw_draft *draft);

#endif
