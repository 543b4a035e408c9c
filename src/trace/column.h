/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the columns of a line of a foreign text form, and the numbers in them.
 * Does not: hold them to one spelling as our own text form is: space around a column and a carriage
 * return at the line's end are stepped over. Quotes mean nothing.
 */
#ifndef FLW_TRACE_COLUMN_H
#define FLW_TRACE_COLUMN_H

#include "trace/line.h"

struct flw_column {
    const char *text; /* the window's memory, valid until the next line */
    size_t count;
};

/* The next column up to `separator`, which is consumed; where that is ' ', any number of spaces and
 * tabs. False: the line has no further one. */
bool flw_column_take(struct flw_line *line, char separator, struct flw_column *out);

bool flw_column_is(const struct flw_column *column, const char *text);

/* "0x1f" is hexadecimal, "(nil)" is 0, all else is in `base`, 10 or 16. False: no number of 64 bits. */
bool flw_column_get_number(const struct flw_column *column, unsigned base, uint64_t *out);

/* "SECONDS[.FRACTION]" or "HOURS:MINUTES:SECONDS[(.|:)FRACTION]" in ns, the first form of seconds
 * since any time, the second since midnight. False: neither. */
bool flw_column_get_time(const struct flw_column *column, bool *out_is_clock, uint64_t *out_ns);

#endif
