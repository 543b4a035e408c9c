/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: reading and writing RMM's CSV log.
 * Does not: keep threads (rows are in the order of the events, whichever thread wrote them) or call stacks (the log has
 * no column for them).
 *
 *   Thread,Time,Action,Pointer,Size,Stream
 *   THREAD,(HH:MM:SS.FRACTION | SECONDS[.FRACTION]),ACTION,POINTER,BYTES,STREAM
 * ACTION is allocate, free (deallocate in RMM's documentation) or "allocate failure". POINTER is
 * hexadecimal or (nil); STREAM hexadecimal with 0x, else decimal. Bytes are requested bytes.
 */
#include "trace/formats/rmm.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trace/io/line.h"
#include "trace/trace/history.h"
#include "trace/trace/measure.h"

#define NS_PER_HOUR (UINT64_C(3600) * 1000000000)
#define NS_PER_DAY  (24 * NS_PER_HOUR)

/* ---- reading ---- */

struct reader {
    struct flw_line line;
    struct flw_build build;
    struct flw_history history;
    uint64_t begin_ns, last_ns; /* of the first row and of the latest row */
    uint64_t midnight_ns;       /* midnight of the present day, if times are times of day */
    uint64_t null_count;        /* rows without memory: a null pointer allocated or freed */
    bool has_begun;
};

static bool fail_row(struct reader *r, const char *what)
{
    return flw_line_fail(&r->line, "%s; %zu rows before it were read", what,
                         r->build.trace->event_count + (size_t)r->null_count);
}

/* Read a time. Times of several threads are slightly out of order; the order of the rows is right. A time that falls by
 * half a day has passed midnight. */
static bool take_time(struct reader *r, uint64_t *out_ns)
{
    struct flw_column column;
    bool is_clock;
    uint64_t time_ns;
    if (!flw_column_take(&r->line, &column) || !flw_column_get_time(&column, &is_clock, &time_ns)) {
        return fail_row(r, "the time is neither HH:MM:SS.FRACTION nor seconds");
    }
    if (is_clock) {
        if (r->has_begun && time_ns < r->last_ns - r->midnight_ns &&
            r->last_ns - r->midnight_ns - time_ns > NS_PER_DAY / 2) {
            r->midnight_ns += NS_PER_DAY;
        }
        if (__builtin_add_overflow(time_ns, r->midnight_ns, &time_ns)) {
            return fail_row(r, "the time is centuries after the first");
        }
    }
    if (!r->has_begun) {
        r->has_begun = true;
        r->begin_ns = time_ns;
        r->last_ns = time_ns;
    }
    r->last_ns = time_ns > r->last_ns ? time_ns : r->last_ns;
    *out_ns = r->last_ns - r->begin_ns;
    return true;
}

static bool take_action(struct reader *r, uint8_t *out_op)
{
    struct flw_column column;
    if (!flw_column_take(&r->line, &column)) {
        return fail_row(r, "there is no action");
    }
    if (flw_column_is(&column, "allocate")) {
        *out_op = FLW_TRACE_ALLOC;
    } else if (flw_column_is(&column, "free") || flw_column_is(&column, "deallocate")) {
        *out_op = FLW_TRACE_FREE;
    } else if (flw_column_is(&column, "allocate failure")) {
        *out_op = FLW_TRACE_OOM;
    } else {
        return fail_row(r, "the action is none of allocate, free, deallocate, allocate failure");
    }
    return true;
}

static bool take_number(struct reader *r, unsigned base, const char *problem, uint64_t *out)
{
    struct flw_column column;
    return (flw_column_take(&r->line, &column) && flw_column_get_number(&column, base, out)) ||
           fail_row(r, problem);
}

static bool take_row(struct reader *r, struct flw_trace_event *event)
{
    uint64_t thread = 0;
    uint64_t stream = 0;
    struct flw_column none;
    if (!take_number(r, 10, "the thread is not a number", &thread) ||
        !take_time(r, &event->time_ns) || !take_action(r, &event->op) ||
        !take_number(r, 16, "the pointer is not a hexadecimal number", &event->address) ||
        !take_number(r, 10, "the size is not a number of bytes", &event->size_bytes) ||
        !take_number(r, 10, "the stream is not a number", &stream)) {
        return false;
    }
    if (flw_column_take(&r->line, &none)) {
        return fail_row(r, "there are more than six columns");
    }
    if (event->size_bytes > UINT64_MAX - event->address) {
        return fail_row(r, "the pointer and the size go beyond 64 bits");
    }
    return flw_build_add_stream(&r->build, stream, &event->stream) ||
           fail_row(r, "more than 65535 streams, or the host is out of memory");
}

static bool is_blank(const struct flw_line *line)
{
    return line->begin == line->end || (*line->begin == '\r' && line->begin + 1 == line->end);
}

static bool read_row(struct reader *r)
{
    struct flw_trace_event event = {.block = UINT32_MAX};
    if (is_blank(&r->line)) {
        return true;
    }
    if (!take_row(r, &event)) {
        return false;
    }
    if (event.op == FLW_TRACE_OOM) {
        event.address = 0;
    } else if (event.address == 0) {
        r->null_count++;
        return true;
    }
    return flw_build_add_event(&r->build, &event) || fail_row(r, "no memory to hold the trace");
}

static bool read_all(struct reader *r)
{
    static const char notes[] = "origin rmm log\n";
    if (!flw_line_next(&r->line)) {
        return false;
    }
    if (!flw_line_accept(&r->line, FLW_RMM_MAGIC) ||
        (r->line.at != r->line.end && *r->line.at != '\r')) {
        return flw_line_fail(&r->line, "the header is not " FLW_RMM_MAGIC);
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
    char text[96];
    snprintf(text, sizeof(text), "%srmm_null_pointer_rows %" PRIu64 "\n", notes, r->null_count);
    trace->notes = strdup(r->null_count > 0 ? text : notes);
    if (trace->notes == NULL || !flw_history_resolve(&r->history, &r->build)) {
        return fail_row(r, "no memory to hold the trace");
    }
    trace->has_times = true;
    trace->has_addresses = true;
    const char *wrong = flw_measure_trace(trace);
    return wrong == NULL || flw_input_fail(r->line.input, 0, "%s", wrong);
}

bool flw_rmm_read(struct flw_input *input, int device, struct flw_trace **out_trace)
{
    (void)device; /* a file has one device */
    struct reader r = {.line = {.input = input}};
    bool is_read = flw_build_init(&r.build, input->name, "rmm csv")
                       ? read_all(&r)
                       : fail_row(&r, "no memory to hold the trace");
    flw_build_end(&r.build, is_read, out_trace);
    flw_history_finish(&r.history);
    return is_read;
}

/* ---- writing ---- */

/* Print a row with the event's time, size and stream. */
static void print_row(const struct flw_trace *trace, const struct flw_trace_event *event,
                      const char *action, uint64_t pointer, FILE *file)
{
    uint64_t seconds = event->time_ns / 1000000000;
    fprintf(file, "0,%02" PRIu64 ":%02" PRIu64 ":%02" PRIu64 ".%06" PRIu64 ",%s,", seconds / 3600,
            seconds / 60 % 60, seconds % 60, event->time_ns / 1000 % 1000000, action);
    fprintf(file, pointer == 0 ? "(nil)" : "0x%" PRIx64, pointer);
    uint64_t handle = trace->streams[event->stream];
    fprintf(file, ",%" PRIu64 ",%s%" PRIx64 "\n", event->size_bytes, handle == 0 ? "" : "0x",
            handle);
}

/* Return the block's address, or the block's number if addresses are unknown. */
static uint64_t pointer_of(const struct flw_trace *trace, uint32_t block)
{
    return trace->has_addresses && trace->blocks[block].address != 0 ? trace->blocks[block].address
                                                                     : (uint64_t)block + 1;
}

static void print_event(const struct flw_trace *trace, const struct flw_trace_event *event,
                        FILE *file)
{
    switch (event->op) {
    case FLW_TRACE_ALLOC:
    case FLW_TRACE_FREE:
        print_row(trace, event, event->op == FLW_TRACE_ALLOC ? "allocate" : "free",
                  pointer_of(trace, event->block), file);
        break;
    case FLW_TRACE_OOM:
        print_row(trace, event, "allocate failure", 0, file);
        break;
    default:
        break;
    }
}

const char *flw_rmm_print(const struct flw_trace *trace, FILE *file)
{
    fputs(FLW_RMM_MAGIC "\n", file);
    for (size_t i = 0; i < trace->initial_count; i++) {
        const struct flw_trace_block *block = &trace->blocks[i];
        const struct flw_trace_event event = {.size_bytes = block->size_bytes,
                                              .stream = block->stream};
        print_row(trace, &event, "allocate", pointer_of(trace, (uint32_t)i), file);
    }
    for (size_t i = 0; i < trace->event_count; i++) {
        print_event(trace, &trace->events[i], file);
    }
    return NULL;
}
