/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: finding line ends in the moving window, decimal numbers, quoted texts.
 */
#include "trace/io/line.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DIGITS_THAT_FIT 19 /* in 64 bits, whichever digits */

bool flw_line_fail(struct flw_line *line, const char *format, ...)
{
    char text[FLW_TRACE_MESSAGE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    return flw_input_fail(line->input, line->offset, "line %llu: %s",
                          (unsigned long long)line->number, text);
}

bool flw_line_next(struct flw_line *line)
{
    struct flw_input *input = line->input;
    line->offset = flw_input_offset(input);
    line->number++;
    line->begin = (const char *)input->at;
    line->at = line->begin;
    line->end = line->begin;
    size_t held = (size_t)(input->end - input->at);
    const unsigned char *newline = held > 0 ? memchr(input->at, '\n', held) : NULL;
    if (newline == NULL || newline - input->at >= FLW_LINE_BYTES) {
        bool is_long = flw_input_fill(input, FLW_LINE_BYTES);
        held = (size_t)(input->end - input->at);
        if (input->failed || held == 0) {
            return false;
        }
        size_t searched = held < FLW_LINE_BYTES ? held : FLW_LINE_BYTES;
        newline = memchr(input->at, '\n', searched);
        if (newline == NULL) {
            return is_long ? flw_line_fail(line, "longer than %d bytes", FLW_LINE_BYTES)
                           : flw_line_fail(line, "does not end in a newline: truncated");
        }
    }
    line->begin = (const char *)input->at;
    line->at = line->begin;
    line->end = (const char *)newline;
    input->at = newline + 1;
    return true;
}

static bool fail_expected(struct flw_line *line, const char *what)
{
    return flw_line_fail(line, "%s expected at column %llu", what,
                         (unsigned long long)(line->at - line->begin) + 1);
}

bool flw_line_take_space(struct flw_line *line)
{
    return flw_line_accept(line, " ") || fail_expected(line, "a space");
}

uint64_t flw_line_take_number(struct flw_line *line)
{
    const char *first = line->at, *at = first, *end = line->end;
    uint64_t value = 0;
    for (; at < end && *at >= '0' && *at <= '9'; at++) {
        value = value * 10 + (uint64_t)(*at - '0');
    }
    line->at = at;
    if (at == first) {
        return fail_expected(line, "a decimal number");
    }
    if (at - first > DIGITS_THAT_FIT) {
        errno = 0;
        value = strtoull(first, NULL, 10);
        FLW_LINE_CHECK(line, errno == 0, "a number has more than 64 bits");
    }
    FLW_LINE_CHECK(line, *first != '0' || at - first == 1, "a number begins with 0");
    return value;
}

uint64_t flw_line_take_column(struct flw_line *line)
{
    return flw_line_take_space(line) ? flw_line_take_number(line) : 0;
}

bool flw_line_take_end(struct flw_line *line)
{
    return line->at == line->end || fail_expected(line, "the end of the line");
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Read the byte of an escape, after the backslash. Returns false if the escape is invalid or not allowed for that
 * byte. */
static bool take_escape(struct flw_line *line, char *out)
{
    char kind = line->at < line->end ? *line->at++ : ' ';
    if (kind != 'x') {
        *out = kind == 'n' ? '\n' : kind == 't' ? '\t' : kind;
        return kind == 'n' || kind == 't' || kind == '"' || kind == '\\';
    }
    int high = line->end - line->at >= 2 ? hex_digit(line->at[0]) : -1;
    int low = high >= 0 ? hex_digit(line->at[1]) : -1;
    int byte = high * 16 + low;
    line->at += low >= 0 ? 2 : 0;
    *out = (char)byte;
    return low >= 0 && ((byte > 0 && byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7F);
}

size_t flw_line_take_text(struct flw_line *line, char *out, size_t most)
{
    size_t bytes = 0;
    if (!flw_line_accept(line, "\"")) {
        fail_expected(line, "a text in quotes");
    }
    while (!line->input->failed && line->at < line->end && *line->at != '"') {
        char c = *line->at++;
        bool is_good = ((unsigned char)c >= 0x20 && c != 0x7F) &&
                       (c != '\\' || take_escape(line, &c)) && bytes < most;
        if (!is_good) {
            flw_line_fail(line, "a text has over %zu bytes, or one that is not written so", most);
            break;
        }
        out[bytes++] = c;
    }
    if (!flw_line_accept(line, "\"")) {
        fail_expected(line, "the end of the text in quotes");
    }
    return bytes;
}

bool flw_line_accept(struct flw_line *line, const char *text)
{
    const char *at = line->at;
    for (; *text != '\0'; text++, at++) {
        if (at == line->end || *at != *text) {
            return false;
        }
    }
    line->at = at;
    return true;
}
