/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: splitting lines, numbers in two bases and times of day.
 */
#include "trace/column.h"

#include <string.h>

#define NS_PER_SECOND UINT64_C(1000000000)

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

/* A column after the last separator is there, though empty: `at` passes the end once. */
bool flw_column_take(struct flw_line *line, char separator, struct flw_column *out)
{
    skip_space(line);
    *out = (struct flw_column){line->at, 0};
    if (line->at > line->end || (separator == ' ' && line->at == line->end)) {
        return false;
    }
    while (line->at < line->end && *line->at != separator &&
           !(separator == ' ' && is_space(*line->at))) {
        line->at++;
    }
    out->count = (size_t)(line->at - out->text);
    while (out->count > 0 && is_space(out->text[out->count - 1])) {
        out->count--;
    }
    if (separator != ' ') {
        line->at++;
    }
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

/* Digits after the point, as many as ns have; further ones are dropped. */
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
