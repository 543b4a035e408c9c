/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the line of progress on a terminal's standard error: after the first second, at most five times a second, cleared
 * when the work ends or before a message.
 * Does not: use another thread; the working code calls it now and then.
 */
#ifndef FLW_TOOL_PROGRESS_H
#define FLW_TOOL_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>

#define FLW_PROGRESS_UNKNOWN (-1.0) /* a share */

/* Begin the command's time, and show the progress of reading, making and writing traces too. Without a terminal nothing
 * is shown, at no cost. */
void flw_progress_begin(void);

bool flw_progress_is_on(void);

/* From now on files are number `place` (from 1) of `count`. */
void flw_progress_place(size_t place, size_t count);

/* Show "VERB NAME (2 of 5): DETAIL, 34 %". A new verb, which is a constant, is shown at once. Name and detail may be
 * NULL. */
void flw_progress_show(const char *verb, const char *name, const char *detail, double share);

/* Clear the line, before other output to the terminal. */
void flw_progress_hide(void);

#endif
