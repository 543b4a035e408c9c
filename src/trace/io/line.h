/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: lines of a text input, the numbers and the quoted texts in them, the columns of foreign forms.
 * Does not: accept two spellings of one thing in our own form: a number has no sign and no leading zero, one space
 * parts two columns, every line ends in a newline; in a quoted text \\ \" \n \t \xHH (two of 0-9, a-f)
 * stand for bytes that cannot be there themselves, and for no other: controls, 7f, quotes, backslashes. Foreign forms
 * are not held to that: space around a column and a carriage return at the line's end are stepped over, quotes mean
 * nothing.
 */
#ifndef FLW_TRACE_IO_LINE_H
#define FLW_TRACE_IO_LINE_H

#include "trace/io/input.h"

#define FLW_LINE_BYTES FLW_INPUT_FILL_BYTES /* longest line, its newline included */

struct flw_line {
    struct flw_input *input;
    const char *begin;
    const char *at;  /* next character; the window's memory, valid until the next line */
    const char *end; /* the newline */
    uint64_t number; /* from 1 */
    uint64_t offset; /* of its first byte */
};

/* Step to the next line. False: there is none, or input->failed. */
bool flw_line_next(struct flw_line *line);

/* "NAME: byte B: line N: ..."; always false. */
bool flw_line_fail(struct flw_line *line, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Each consumes what it names and fails with a message where something else stands there. */
bool flw_line_take_space(struct flw_line *line);
bool flw_line_take_number(struct flw_line *line, uint64_t *out);
bool flw_line_take_column(struct flw_line *line, uint64_t *out); /* space and number */
bool flw_line_take_end(struct flw_line *line);
/* A text in quotes, of `most` bytes at most and none of them 0, as it is without its escapes. */
bool flw_line_take_text(struct flw_line *line, char *out, size_t most, size_t *out_bytes);
/* KEY and a number from 1 to 2^32 - 1; 0 where KEY, which may begin with a space, is not there. */
bool flw_line_take_keyed(struct flw_line *line, const char *key, uint32_t *out);

/* True and consumed, or false and untouched; no message. */
bool flw_line_accept(struct flw_line *line, const char *text);

/* ---- columns of foreign forms ---- */

struct flw_column {
    const char *text; /* the window's memory, valid until the next line */
    size_t count;
};

/* The next column, up to a comma, which is consumed. False: the line has no further one. */
bool flw_column_take(struct flw_line *line, struct flw_column *out);

bool flw_column_is(const struct flw_column *column, const char *text);

/* "0x1f" is hexadecimal, "(nil)" is 0, all else is in `base`, 10 or 16. False: no number of 64 bits. */
bool flw_column_get_number(const struct flw_column *column, unsigned base, uint64_t *out);

/* "SECONDS[.FRACTION]" or "HOURS:MINUTES:SECONDS[(.|:)FRACTION]" in ns, the first form of seconds
 * since any time, the second since midnight. False: neither. */
bool flw_column_get_time(const struct flw_column *column, bool *out_is_clock, uint64_t *out_ns);

#endif
