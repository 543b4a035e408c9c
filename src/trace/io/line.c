/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: finding line ends in the moving window, decimal numbers, quoted texts; numbers in two bases and times of
 * day.
 */
#include "trace/io/line.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DIGITS_THAT_FIT 19 /* in 64 bits, whichever digits */
#define NS_PER_SECOND   UINT64_C(1000000000)

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

/* ---- columns of foreign formats ---- */

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

static void skip_space(struct flw_line *line)
{
    while (line->at < line->end && is_space(*line->at)) {
        line->at++;
    }
}

/* An empty column after the last comma counts: `at` passes the end once. */
bool flw_column_take(struct flw_line *line, struct flw_column *out)
{
    skip_space(line);
    *out = (struct flw_column){line->at, 0};
    if (line->at > line->end) {
        return false;
    }
    while (line->at < line->end && *line->at != ',') {
        line->at++;
    }
    out->count = (size_t)(line->at - out->text);
    while (out->count > 0 && is_space(out->text[out->count - 1])) {
        out->count--;
    }
    line->at++;
    return true;
}

bool flw_column_is(const struct flw_column *column, const char *text)
{
    return column->count == strlen(text) && memcmp(column->text, text, column->count) == 0;
}

static unsigned digit_of(char c)
{
    return c >= '0' && c <= '9'   ? (unsigned)(c - '0')
           : c >= 'a' && c <= 'f' ? (unsigned)(c - 'a') + 10
           : c >= 'A' && c <= 'F' ? (unsigned)(c - 'A') + 10
                                  : UINT32_MAX;
}

static bool parse_number(const char *at, const char *end, unsigned base, uint64_t *out)
{
    uint64_t value = 0;
    if (at == end) {
        return false;
    }
    for (; at < end; at++) {
        unsigned digit = digit_of(*at);
        if (digit >= base || __builtin_mul_overflow(value, (uint64_t)base, &value) ||
            __builtin_add_overflow(value, (uint64_t)digit, &value)) {
            return false;
        }
    }
    *out = value;
    return true;
}

bool flw_column_get_number(const struct flw_column *column, unsigned base, uint64_t *out)
{
    const char *at = column->text;
    const char *end = at + column->count;
    if (flw_column_is(column, "(nil)")) {
        *out = 0;
        return true;
    }
    if (column->count > 2 && at[0] == '0' && (at[1] == 'x' || at[1] == 'X')) {
        return parse_number(at + 2, end, 16, out);
    }
    return parse_number(at, end, base, out);
}

/* Parse the digits after the point up to ns; further digits are dropped. */
static bool parse_fraction(const char *at, const char *end, uint64_t *out_ns)
{
    uint64_t weight = NS_PER_SECOND;
    *out_ns = 0;
    for (; at < end; at++) {
        if (*at < '0' || *at > '9') {
            return false;
        }
        weight /= 10;
        *out_ns += weight * (uint64_t)(*at - '0');
    }
    return true;
}

static bool combine(uint64_t seconds, uint64_t fraction_ns, uint64_t *out_ns)
{
    return !__builtin_mul_overflow(seconds, NS_PER_SECOND, out_ns) &&
           !__builtin_add_overflow(*out_ns, fraction_ns, out_ns);
}

static bool parse_clock(const char *at, const char *end, uint64_t *out_ns)
{
    uint64_t parts[3] = {0};
    uint64_t fraction_ns = 0;
    for (size_t i = 0; i < 3; i++) {
        const char *stop = at;
        while (stop < end && *stop >= '0' && *stop <= '9') {
            stop++;
        }
        bool is_last = i == 2;
        if (!parse_number(at, stop, 10, &parts[i]) || (i > 0 && parts[i] > 60) ||
            (!is_last && (stop == end || *stop != ':'))) {
            return false;
        }
        at = stop + (stop < end);
        if (is_last && stop < end &&
            ((*stop != '.' && *stop != ':') || !parse_fraction(at, end, &fraction_ns))) {
            return false;
        }
    }
    uint64_t seconds;
    return !__builtin_mul_overflow(parts[0], UINT64_C(3600), &seconds) &&
           !__builtin_add_overflow(seconds, parts[1] * 60 + parts[2], &seconds) &&
           combine(seconds, fraction_ns, out_ns);
}

bool flw_column_get_time(const struct flw_column *column, bool *out_is_clock, uint64_t *out_ns)
{
    const char *at = column->text;
    const char *end = at + column->count;
    uint64_t seconds;
    uint64_t fraction_ns = 0;
    *out_is_clock = column->count > 0 && memchr(at, ':', column->count) != NULL;
    if (*out_is_clock) {
        return parse_clock(at, end, out_ns);
    }
    const char *point = column->count > 0 ? memchr(at, '.', column->count) : NULL;
    const char *stop = point != NULL ? point : end;
    return parse_number(at, stop, 10, &seconds) &&
           (point == NULL || parse_fraction(point + 1, end, &fraction_ns)) &&
           combine(seconds, fraction_ns, out_ns);
}
