/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: lines of a text input, and the numbers and quoted texts in lines of our own format.
 * Does not: accept two spellings of one value: a number has no sign and no leading zero, one space separates two
 * columns, every line ends in a newline; a quoted text has the escapes \\ \" \n \t \xHH (two of 0-9, a-f) for controls,
 * 7f, quotes and backslashes only.
 */
#ifndef FLW_TRACE_IO_LINE_H
#define FLW_TRACE_IO_LINE_H

#include "trace/io/input.h"

#define FLW_LINE_BYTES FLW_INPUT_FILL_BYTES /* longest line, newline included */

struct flw_line {
    struct flw_input *input;
    const char *begin;
    const char *at;  /* next character; the window's memory, valid until the next line */
    const char *end; /* the newline */
    uint64_t number; /* from 1 */
    uint64_t offset; /* of the first byte */
};

/* Read the next line. Returns false if there is none or input->failed. */
bool flw_line_next(struct flw_line *line);

/* Fail with "NAME: byte B: line N: ...". Always returns false. Only the first failure of an input has an effect, so a
 * reader can go on and ask at the end of the line. */
bool flw_line_fail(struct flw_line *line, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Fail with the message if a condition does not hold. */
#define FLW_LINE_CHECK(line, holds, ...)        \
    do {                                        \
        if (!(holds)) {                         \
            flw_line_fail((line), __VA_ARGS__); \
        }                                       \
    } while (0)

/* Each consumes the named element, or fails with a message if the element is absent; numbers are 0 then. */
bool flw_line_take_space(struct flw_line *line);
uint64_t flw_line_take_number(struct flw_line *line);
uint64_t flw_line_take_column(struct flw_line *line); /* space and number */
bool flw_line_take_end(struct flw_line *line);
/* Read a quoted text of at most `most` bytes, none 0, and replace the escapes. Returns the bytes. */
size_t flw_line_take_text(struct flw_line *line, char *out, size_t most);

/* Consume `text` and return true if present, else return false. No message. */
bool flw_line_accept(struct flw_line *line, const char *text);

#endif
