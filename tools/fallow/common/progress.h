/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the line on standard error that says how far the command is, for whoever waits at a terminal: from
 * the first second on, five times a second at most, gone when the work is done or a message comes.
 * Does not: know the work, or use another thread; what works calls it now and then.
 */
#ifndef FLW_TOOL_PROGRESS_H
#define FLW_TOOL_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>

#define FLW_PROGRESS_UNKNOWN (-1.0) /* a share */

/* The command's time begins. Where standard error is no terminal nothing is shown from here on, and that
 * costs nothing. Reading, making and writing traces are shown too. */
void flw_progress_begin(void);

bool flw_progress_is_on(void);

/* The files that are read from here on are `place` (from 1) of `count`. */
void flw_progress_place(size_t place, size_t count);

/* "VERB NAME (2 of 5): DETAIL, 34 %". The verb is a constant; another one is shown at once. Name and detail may
 * be NULL. */
void flw_progress_show(const char *verb, const char *name, const char *detail, double share);

/* The line goes, until the next one; before anything else is written to the terminal. */
void flw_progress_hide(void);

#endif
