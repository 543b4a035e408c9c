/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: whole traces as trace files.
 */
#include <inttypes.h>
#include <stdio.h>

#include "trace/ftrace.h"
#include "trace/output.h"

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

/* What all times are multiples of. */
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

static bool add_records(struct flw_ftrace_writer *w, const struct flw_trace *trace)
{
    struct flw_trace_walk walk = {0};
    bool is_added = true;
    for (size_t i = 0; is_added && i < trace->segment_count; i++) {
        is_added = flw_ftrace_writer_add_segment(w, &trace->segments[i]);
    }
    for (size_t i = 0; is_added && i < trace->initial_count; i++) {
        is_added = flw_ftrace_writer_add_block(w, &trace->blocks[i],
                                               flw_trace_walk_context(trace, &walk, i));
    }
    for (size_t i = 0; is_added && i < trace->event_count; i++) {
        is_added = flw_ftrace_writer_add_event(
            w, &trace->events[i], flw_trace_walk_detail(trace, &walk, i),
            flw_trace_walk_context(trace, &walk, trace->initial_count + i));
    }
    return is_added;
}

bool flw_ftrace_print(const struct flw_trace *trace, enum flw_record_codec codec, FILE *file)
{
    struct flw_ftrace_settings settings = {.has_times = trace->has_times,
                                           .has_addresses = trace->has_addresses,
                                           .has_segments = trace->has_segments,
                                           .codec = codec,
                                           .device = (uint32_t)trace->device,
                                           .step_ns = find_step(trace)};
    struct flw_ftrace_sink sink = flw_ftrace_file_sink(file);
    struct flw_ftrace_writer *w = flw_ftrace_writer_create(&sink, &settings);
    bool is_written =
        w != NULL && add_heads(w, trace) && add_records(w, trace) && flw_ftrace_writer_end(w);
    flw_ftrace_writer_destroy(w);
    return is_written;
}

bool flw_trace_write_ftrace(const struct flw_trace *trace, const char *path, char *message)
{
    struct flw_output output;
    if (!flw_output_begin(&output, path, message)) {
        return false;
    }
    if (!flw_ftrace_print(trace, FLW_RECORD_PACKED, output.file) && !ferror(output.file)) {
        flw_output_abandon(&output);
        flw_input_message(message, path, "no memory to write it");
        return false;
    }
    return flw_output_commit(&output, message);
}
