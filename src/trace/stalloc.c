/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: reading lines "(1 | 0) POINTER BYTES STREAM": 1 allocates, 0 frees. Pointer and stream are
 * decimal, or hexadecimal behind 0x; there are no times.
 */
#include "trace/stalloc.h"

#include <string.h>

#include "trace/history.h"
#include "trace/line.h"
#include "trace/measure.h"

#define COLUMN_COUNT 4

struct reader {
    struct flw_line line;
    struct flw_build build;
    struct flw_history history;
};

bool flw_stalloc_is_next(struct flw_input *input)
{
    flw_input_fill(input, FLW_LINE_BYTES);
    size_t held = (size_t)(input->end - input->at);
    const unsigned char *newline = held > 0 ? memchr(input->at, '\n', held) : NULL;
    const char *begin = (const char *)input->at;
    const char *end = newline != NULL ? (const char *)newline : begin + held;
    struct flw_line line = {.input = input, .begin = begin, .at = begin, .end = end};
    struct flw_column columns[COLUMN_COUNT + 1];
    size_t count = 0;
    while (count <= COLUMN_COUNT && flw_column_take(&line, ' ', &columns[count])) {
        count++;
    }
    return count == COLUMN_COUNT &&
           (flw_column_is(&columns[0], "0") || flw_column_is(&columns[0], "1"));
}

static bool fail_line(struct reader *r, const char *what)
{
    return flw_line_fail(&r->line, "%s; %zu lines before it were read", what,
                         r->history.event_count);
}

static bool read_line(struct reader *r)
{
    struct flw_column columns[COLUMN_COUNT];
    struct flw_column none;
    uint64_t numbers[COLUMN_COUNT];
    for (size_t i = 0; i < COLUMN_COUNT; i++) {
        if (!flw_column_take(&r->line, ' ', &columns[i])) {
            return i == 0 || fail_line(r, "fewer than four columns");
        }
        if (!flw_column_get_number(&columns[i], 10, &numbers[i])) {
            return fail_line(r, "a column is not a number of at most 64 bits");
        }
    }
    if (numbers[0] > 1 || flw_column_take(&r->line, ' ', &none)) {
        return fail_line(r, numbers[0] > 1 ? "neither 1 (allocate) nor 0 (free)"
                                           : "more than four columns");
    }
    if (numbers[2] > UINT64_MAX - numbers[1]) {
        return fail_line(r, "the pointer and the size go beyond 64 bits");
    }
    struct flw_trace_event event = {
        .op = numbers[0] == 1 ? FLW_TRACE_ALLOC : FLW_TRACE_FREE,
        .address = numbers[1],
        .size_bytes = numbers[2],
    };
    if (!flw_build_add_stream(&r->build, numbers[3], &event.stream)) {
        return fail_line(r, "more than 65535 streams, or the host is out of memory");
    }
    return flw_history_add_event(&r->history, &event) ||
           fail_line(r, "no memory to hold the trace");
}

static bool read_all(struct reader *r)
{
    while (flw_line_next(&r->line)) {
        if (!read_line(r)) {
            return false;
        }
    }
    if (r->line.input->failed) {
        return false;
    }
    struct flw_trace *trace = r->build.trace;
    trace->notes = strdup("origin stalloc log\n");
    if (trace->notes == NULL || !flw_history_resolve(&r->history, &r->build)) {
        return fail_line(r, "no memory to hold the trace");
    }
    trace->has_addresses = true;
    const char *wrong = flw_measure_trace(trace);
    return wrong == NULL || flw_input_fail(r->line.input, 0, "%s", wrong);
}

bool flw_stalloc_read(struct flw_input *input, struct flw_trace **out_trace)
{
    struct reader r = {.line = {.input = input}};
    bool is_read = flw_build_init(&r.build, input->name, "stalloc lines")
                       ? read_all(&r)
                       : fail_line(&r, "no memory to hold the trace");
    flw_build_end(&r.build, is_read, out_trace);
    flw_history_finish(&r.history);
    return is_read;
}
