/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: man pages, made of the texts that --help prints: every word of these, in their order.
 * Does not: know a subcommand, or write a file.
 *
 * A help text is lines: "usage: ...", paragraphs at the margin, lists below them (two blanks, the name, two
 * blanks or more, what it is; further lines of that stand below it), "exit status ..." or "exit code ...",
 * "example: ...". A word alone at the margin is a list's heading.
 */
#ifndef FLW_TOOL_MANUAL_H
#define FLW_TOOL_MANUAL_H

#include <stdio.h>

/* The head of the page `name`, and its section NAME. */
void flw_manual_begin(FILE *out, const char *name, const char *summary);

/* A help text, as sections of the page; with a heading, as parts of a section of that name. */
void flw_manual_add(FILE *out, const char *heading, const char *help);

/* The last section, SEE ALSO: names of other pages, one after the other, then the end. */
void flw_manual_begin_references(FILE *out, const char *name);
void flw_manual_add_reference(FILE *out, const char *name);
void flw_manual_end(FILE *out);

#endif
