/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: whole traces as trace files.
 */
#include <inttypes.h>
#include <stdio.h>

#include "record/addressmap.h"
#include "trace/formats/formats.h"
#include "trace/formats/ftrace.h"

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
    for (size_t i = 0; is_added && i < trace->name_count; i++) {
        is_added = flw_ftrace_writer_add_name(w, trace->names[i]);
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

/* Set the stack of the next record. */
static bool set_stack(struct stack_writer *w, uint32_t stack)
{
    uint32_t number;
    bool is_known = flw_stack_order_take(&w->order, stack, &number);
    flw_ftrace_writer_set_stack(w->to, number);
    return is_known;
}

/* Set the remark of all events from the next one on. */
static bool set_remark(struct stack_writer *w, const struct flw_trace_remark *remark)
{
    uint32_t compile_context = 0, user_metadata = 0;
    if (remark->compile_context != 0 &&
        !put_text(w, remark->compile_context - 1, &compile_context)) {
        return false;
    }
    if (remark->user_metadata != 0 && !put_text(w, remark->user_metadata - 1, &user_metadata)) {
        return false;
    }
    flw_ftrace_writer_set_remark(w->to, remark->compile_context != 0 ? compile_context + 1 : 0,
                                 remark->user_metadata != 0 ? user_metadata + 1 : 0);
    return true;
}

/* ---- records ---- */

static bool add_records(struct stack_writer *w, const struct flw_trace *trace)
{
    struct flw_trace_walk walk = {0};
    bool is_added = true;
    for (size_t i = 0; is_added && i < trace->segment_count; i++) {
        is_added = set_stack(w, trace->segments[i].stack) &&
                   flw_ftrace_writer_add_segment(w->to, &trace->segments[i]);
    }
    for (size_t i = 0; is_added && i < trace->initial_count; i++) {
        is_added = set_stack(w, flw_trace_stack(trace, i)) &&
                   flw_ftrace_writer_add_block(w->to, &trace->blocks[i],
                                               flw_trace_walk_context(trace, &walk, i));
    }
    for (size_t i = 0; is_added && i < trace->event_count; i++) {
        size_t record = trace->initial_count + i;
        is_added = set_stack(w, flw_trace_stack(trace, record)) &&
                   set_remark(w, flw_trace_walk_remark(trace, &walk, record)) &&
                   flw_ftrace_writer_add_event(w->to, &trace->events[i],
                                               flw_trace_walk_detail(trace, &walk, i),
                                               flw_trace_walk_context(trace, &walk, record));
    }
    return is_added;
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
                    add_records(&w, trace) && flw_ftrace_writer_end(to);
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
