/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: reading lifetimes out of a CSV whose header names its columns, in any order, and turning
 * them into events: at one moment blocks end before others begin, rows in their order.
 * Does not: keep moments as times, which they are not; nor alignments, gaps, offsets and hints.
 *
 *   id (buffer, buffer_id)    any text
 *   lower (begin, start)      first moment
 *   upper                     one past the last moment; or "end": the last moment
 *   size                      bytes
 */
#include "trace/minimalloc.h"

#include <stdlib.h>
#include <string.h>

#include "record/array.h"
#include "trace/build.h"
#include "trace/line.h"
#include "trace/measure.h"

#define COLUMNS_MAX 16

enum meaning {
    MEANING_ID,
    MEANING_LOWER,
    MEANING_UPPER,
    MEANING_SIZE,
    MEANING_NEEDED_COUNT,
    MEANING_IGNORED = MEANING_NEEDED_COUNT
};

static const struct {
    const char *name;
    uint8_t meaning;
    bool is_inclusive;
} names[] = {
    {"id", MEANING_ID, false},        {"buffer", MEANING_ID, false},
    {"buffer_id", MEANING_ID, false}, {"lower", MEANING_LOWER, false},
    {"begin", MEANING_LOWER, false},  {"start", MEANING_LOWER, false},
    {"upper", MEANING_UPPER, false},  {"end", MEANING_UPPER, true},
    {"size", MEANING_SIZE, false},    {"alignment", MEANING_IGNORED, false},
    {"gaps", MEANING_IGNORED, false}, {"offset", MEANING_IGNORED, false},
    {"hint", MEANING_IGNORED, false},
};

/* One end of a lifetime. */
struct moment {
    uint64_t at;
    uint64_t size_bytes;
    uint32_t row;
    bool is_begin;
};

struct reader {
    struct flw_line line;
    struct flw_build build;
    uint8_t meanings[COLUMNS_MAX];
    size_t column_count;
    uint64_t addend; /* from the column's upper moment to one past the last */
    bool ignores;
    struct moment *moments;
    size_t moment_count, moment_room;
};

static bool fail_row(struct reader *r, const char *what)
{
    return flw_line_fail(&r->line, "%s; %zu rows before it were read", what, r->moment_count / 2);
}

static size_t find_name(const struct flw_column *column)
{
    size_t i = 0;
    while (i < sizeof(names) / sizeof(names[0]) && !flw_column_is(column, names[i].name)) {
        i++;
    }
    return i;
}

bool flw_minimalloc_is_next(struct flw_input *input)
{
    flw_input_fill(input, FLW_LINE_BYTES);
    size_t held = (size_t)(input->end - input->at);
    const unsigned char *newline = held > 0 ? memchr(input->at, '\n', held) : NULL;
    const char *begin = (const char *)input->at;
    const char *end = newline != NULL ? (const char *)newline : begin + held;
    struct flw_line line = {.input = input, .begin = begin, .at = begin, .end = end};
    struct flw_column first;
    struct flw_column second;
    size_t known = sizeof(names) / sizeof(names[0]);
    return flw_column_take(&line, ',', &first) && find_name(&first) < known &&
           flw_column_take(&line, ',', &second) && find_name(&second) < known;
}

/* ---- rows ---- */

static bool read_header(struct reader *r)
{
    unsigned seen = 0;
    struct flw_column column;
    if (!flw_line_next(&r->line)) {
        return false;
    }
    while (flw_column_take(&r->line, ',', &column)) {
        size_t name = find_name(&column);
        if (name == sizeof(names) / sizeof(names[0]) || r->column_count == COLUMNS_MAX) {
            return fail_row(r, "an unknown column in the header");
        }
        uint8_t meaning = names[name].meaning;
        if (meaning < MEANING_NEEDED_COUNT && (seen >> meaning & 1) != 0) {
            return fail_row(r, "a column is in the header twice");
        }
        seen |= 1u << meaning;
        r->ignores |= meaning == MEANING_IGNORED;
        r->addend += names[name].is_inclusive;
        r->meanings[r->column_count++] = meaning;
    }
    return (seen & 15u) == 15u || fail_row(r, "the header lacks one of id, lower, upper and size");
}

static bool add_moment(struct reader *r, const struct moment *moment)
{
    if (!FLW_ARRAY_FITS(r->moments, r->moment_count, r->moment_room)) {
        return fail_row(r, "no memory to hold the trace");
    }
    r->moments[r->moment_count++] = *moment;
    return true;
}

static bool take_values(struct reader *r, uint64_t *values)
{
    static const char *const problems[] = {
        "",
        "the first moment is not a whole number from 0 up",
        "the last moment is not a whole number from 0 up",
        "the size is not a number of bytes",
    };
    struct flw_column column;
    for (size_t i = 0; i < r->column_count; i++) {
        uint8_t meaning = r->meanings[i];
        if (!flw_column_take(&r->line, ',', &column)) {
            return fail_row(r, "fewer columns than the header");
        }
        bool is_number = meaning != MEANING_ID && meaning != MEANING_IGNORED;
        if (is_number && !flw_column_get_number(&column, 10, &values[meaning])) {
            return fail_row(r, problems[meaning]);
        }
    }
    return !flw_column_take(&r->line, ',', &column) || fail_row(r, "more columns than the header");
}

static bool read_row(struct reader *r)
{
    uint64_t values[MEANING_NEEDED_COUNT] = {0};
    if (r->line.begin == r->line.end || *r->line.begin == '\r') {
        return true;
    }
    if (!take_values(r, values)) {
        return false;
    }
    if (__builtin_add_overflow(values[MEANING_UPPER], r->addend, &values[MEANING_UPPER]) ||
        values[MEANING_UPPER] <= values[MEANING_LOWER]) {
        return fail_row(r, "the lifetime ends before it begins");
    }
    uint32_t row = (uint32_t)(r->moment_count / 2);
    if (row == UINT32_MAX) {
        return fail_row(r, "too many rows");
    }
    struct moment begin = {values[MEANING_LOWER], values[MEANING_SIZE], row, true};
    struct moment end = {values[MEANING_UPPER], values[MEANING_SIZE], row, false};
    return add_moment(r, &begin) && add_moment(r, &end);
}

/* ---- events ---- */

static int compare_moments(const void *a, const void *b)
{
    const struct moment *x = a;
    const struct moment *y = b;
    if (x->at != y->at) {
        return x->at < y->at ? -1 : 1;
    }
    if (x->is_begin != y->is_begin) {
        return x->is_begin ? 1 : -1;
    }
    return (x->row > y->row) - (x->row < y->row);
}

/* `blocks`: of each row, once it has begun. */
static bool add_event(struct reader *r, const struct moment *moment, uint32_t *blocks)
{
    struct flw_trace *trace = r->build.trace;
    struct flw_trace_event event = {
        .op = moment->is_begin ? FLW_TRACE_ALLOC : FLW_TRACE_FREE,
        .size_bytes = moment->size_bytes,
    };
    if (moment->is_begin) {
        struct flw_trace_block block = {.size_bytes = moment->size_bytes};
        blocks[moment->row] = (uint32_t)trace->block_count;
        if (!flw_build_add_block(&r->build, &block)) {
            return false;
        }
    }
    event.block = blocks[moment->row];
    return flw_build_add_event(&r->build, &event);
}

static bool add_events(struct reader *r)
{
    uint16_t stream;
    uint32_t *blocks = calloc(r->moment_count / 2 + 1, sizeof(*blocks));
    bool has_memory = blocks != NULL && flw_build_add_stream(&r->build, 0, &stream);
    if (r->moment_count > 0) {
        qsort(r->moments, r->moment_count, sizeof(*r->moments), compare_moments);
    }
    for (size_t i = 0; has_memory && i < r->moment_count; i++) {
        has_memory = add_event(r, &r->moments[i], blocks);
    }
    free(blocks);
    return has_memory;
}

static bool read_all(struct reader *r)
{
    if (!read_header(r)) {
        return false;
    }
    while (flw_line_next(&r->line)) {
        if (!read_row(r)) {
            return false;
        }
    }
    if (r->line.input->failed) {
        return false;
    }
    struct flw_trace *trace = r->build.trace;
    trace->notes = strdup(r->ignores ? "origin minimalloc problem\nminimalloc_ignored alignment, "
                                       "gaps, offset and hint columns\n"
                                     : "origin minimalloc problem\n");
    if (trace->notes == NULL || !add_events(r)) {
        return fail_row(r, "no memory to hold the trace");
    }
    const char *wrong = flw_measure_trace(trace);
    return wrong == NULL || flw_input_fail(r->line.input, 0, "%s", wrong);
}

bool flw_minimalloc_read(struct flw_input *input, struct flw_trace **out_trace)
{
    struct reader r = {.line = {.input = input}};
    bool is_read = flw_build_init(&r.build, input->name, "minimalloc csv")
                       ? read_all(&r)
                       : fail_row(&r, "no memory to hold the trace");
    flw_build_end(&r.build, is_read, out_trace);
    free(r.moments);
    return is_read;
}
