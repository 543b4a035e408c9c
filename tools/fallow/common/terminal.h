/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: what standard output can show: how many columns, which letters, colours; and text for people on its
 * way there, which is made to fit. Does not: lay out tables (tabular.h); they are made for the columns.
 */
#ifndef FLW_TOOL_TERMINAL_H
#define FLW_TOOL_TERMINAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* Of the terminal; where there is none COLUMNS of the environment, else 100. */
size_t flw_terminal_columns(void);

/* The locale (LC_ALL, LC_CTYPE, LANG) has letters beyond ASCII. */
bool flw_terminal_is_utf8(void);

/* It is a terminal, and NO_COLOR is not set. */
bool flw_terminal_has_colour(void);

/* How many columns a text takes: one a letter, whatever its bytes, none a change of colour. */
size_t flw_terminal_width(const char *text);

/* A file whose lines go to standard output: one that is too long goes on in the next, between words where it
 * can, four columns further in; a letter that cannot be shown, or that would move a terminal, is a question
 * mark. One at a time. Close it with flw_terminal_close, which writes what is left; whether all was written
 * standard output knows. */
FILE *flw_terminal_open(bool is_ascii);
void flw_terminal_close(FILE *file);

#endif
