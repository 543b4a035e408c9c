/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the abilities of standard output (columns, letters, colours), and wrapping text for people.
 * Does not: lay out tables (tabular.h).
 */
#ifndef FLW_TOOL_TERMINAL_H
#define FLW_TOOL_TERMINAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* Return the columns of the terminal; without one, COLUMNS of the environment, or 100. */
size_t flw_terminal_columns(void);

/* True if the locale (LC_ALL, LC_CTYPE, LANG) is UTF-8. */
bool flw_terminal_is_utf8(void);

/* True on a terminal if NO_COLOR is not set. */
bool flw_terminal_has_colour(void);

/* Return the columns of a text: one for each letter, none for a change of colour. */
size_t flw_terminal_width(const char *text);

/* Open a file for lines on standard output. A line that is too long is wrapped between words,
 * indented by four more columns; letters that cannot be shown or would move the cursor become
 * question marks. One file at a time. flw_terminal_close writes the last line; check standard
 * output for errors. */
FILE *flw_terminal_open(bool is_ascii);
void flw_terminal_close(FILE *file);

#endif
