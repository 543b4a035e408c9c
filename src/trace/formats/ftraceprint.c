/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: whole traces as trace files.
 */
#include <inttypes.h>
#include <stdio.h>

#include "record/addressmap.h"
#include "trace/formats/formats.h"
#include "trace/formats/ftrace.h"
#include "trace/formats/reader.h"

static bool write_file(void *context, const void *bytes, size_t count)
{
    return fwrite(bytes, 1, count, context) == count;
}

static bool flush_file(void *context)
{
    return fflush(context) == 0;
}

struct flw_ftrace_sink flw_ftrace_file_sink(FILE *file)
{
    return (struct flw_ftrace_sink){.write = write_file, .flush = flush_file, .context = file};
}

static uint64_t greatest_common_divisor(uint64_t a, uint64_t b)
{
    while (b != 0) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* Find the common divisor of all times. */
static uint32_t find_step(const struct flw_trace *trace)
{
    uint64_t step_ns = 0;
    for (size_t i = 0; step_ns != 1 && i < trace->event_count; i++) {
        step_ns = greatest_common_divisor(trace->events[i].time_ns, step_ns);
    }
    return step_ns == 0 || step_ns > UINT32_MAX ? 1 : (uint32_t)step_ns;
}

static bool add_heads(struct flw_ftrace_writer *w, const struct flw_trace *trace)
{
    char gaps[64];
    bool is_added = true;
    if (trace->unknown_free_count > 0 || trace->lost_free_count > 0) {
        snprintf(gaps, sizeof(gaps), "gaps %" PRIu64 " %" PRIu64 "\n", trace->unknown_free_count,
                 trace->lost_free_count);
        is_added = flw_ftrace_writer_add_notes(w, gaps);
    }
    is_added = is_added && (trace->notes == NULL || flw_ftrace_writer_add_notes(w, trace->notes));
    for (size_t i = 0; is_added && i < trace->stream_count; i++) {
        is_added = flw_ftrace_writer_add_stream(w, trace->streams[i]);
    }
    for (uint32_t i = 0; is_added && i < trace->names.count; i++) {
        is_added = flw_ftrace_writer_add_name(w, flw_intern_text(&trace->names, i));
    }
    return is_added;
}

/* ---- stacks ---- */

_Static_assert(FLW_STACK_DEPTH_MOST == FLW_FTRACE_STACK_DEPTH &&
                   FLW_STACK_TEXT_BYTES == FLW_FTRACE_TEXT_BYTES,
               "what a trace holds its file does");

struct stack_writer {
    struct flw_ftrace_writer *to;
    const struct flw_trace *trace;
    struct flw_stack_order order;
    struct flw_addressmap texts; /* number in the trace -> number in the file */
};

static bool put_text(struct stack_writer *w, uint32_t text, uint32_t *out)
{
    *out = flw_addressmap_find(&w->texts, text);
    if (*out != FLW_ADDRESSMAP_ABSENT) {
        return true;
    }
    *out = (uint32_t)w->texts.used_count;
    return flw_addressmap_put(&w->texts, text, *out) &&
           flw_ftrace_writer_add_text(w->to, flw_stacks_text(&w->trace->stacks, text));
}

static bool put_frame(void *context, const struct flw_frame *frame)
{
    struct stack_writer *w = context;
    uint32_t function, file;
    return put_text(w, frame->function, &function) && put_text(w, frame->file, &file) &&
           flw_ftrace_writer_add_frame(w->to, function, file, frame->line);
}

static bool put_stack(void *context, const uint32_t *frames, size_t count)
{
    struct stack_writer *w = context;
    return flw_ftrace_writer_add_stack(w->to, frames, count);
}

/* Number a text of a remark, given like the result: plus 1; 0: none. */
static bool put_remark_text(struct stack_writer *w, uint32_t text, uint32_t *out)
{
    uint32_t number = 0;
    bool is_put = text == 0 || put_text(w, text - 1, &number);
    *out = text == 0 ? 0 : number + 1;
    return is_put;
}

static bool put_record(void *context, const struct flw_record *record, uint32_t stack,
                       const struct flw_trace_remark *remark)
{
    struct stack_writer *w = context;
    uint32_t number, compile_context, user_metadata;
    if (!flw_stack_order_take(&w->order, stack, &number)) {
        return false;
    }
    flw_ftrace_writer_set_stack(w->to, number);
    if (remark != NULL) {
        if (!put_remark_text(w, remark->compile_context, &compile_context) ||
            !put_remark_text(w, remark->user_metadata, &user_metadata)) {
            return false;
        }
        flw_ftrace_writer_set_remark(w->to, compile_context, user_metadata);
    }
    return flw_ftrace_writer_add(w->to, *record);
}

static bool add_all(struct flw_ftrace_writer *to, const struct flw_trace *trace)
{
    struct stack_writer w = {.to = to,
                             .trace = trace,
                             .order = {.stacks = &trace->stacks,
                                       .put_frame = put_frame,
                                       .put_stack = put_stack,
                                       .context = &w}};
    bool is_added = flw_stack_order_begin(&w.order) && add_heads(to, trace) &&
                    flw_trace_put_records(trace, put_record, &w) && flw_ftrace_writer_end(to);
    flw_stack_order_finish(&w.order);
    flw_addressmap_finish(&w.texts);
    return is_added;
}

bool flw_ftrace_print(const struct flw_trace *trace, enum flw_record_codec codec, FILE *file)
{
    struct flw_ftrace_settings settings = {.has_times = trace->has_times,
                                           .has_addresses = trace->has_addresses,
                                           .has_segments = trace->has_segments,
                                           .has_stacks = flw_trace_has_stacks(trace),
                                           .has_remarks = trace->remark_count > 0,
                                           .codec = codec,
                                           .device = (uint32_t)trace->device,
                                           .wall_ns = trace->has_times ? trace->begin_ns : 0,
                                           .step_ns = find_step(trace)};
    struct flw_ftrace_sink sink = flw_ftrace_file_sink(file);
    struct flw_ftrace_writer *w = flw_ftrace_writer_create(&sink, &settings);
    bool is_written = w != NULL && add_all(w, trace);
    flw_ftrace_writer_destroy(w);
    return is_written;
}

const char *flw_ftrace_print_packed(const struct flw_trace *trace, FILE *file)
{
    return flw_ftrace_print(trace, FLW_RECORD_PACKED, file) ? NULL : FLW_TRACE_NO_MEMORY;
}
