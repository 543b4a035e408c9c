/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: `fallow trace info --json`: its keys. One that is there stays, and means the same.
 * Does not: count.
 */
#include <stdlib.h>
#include <string.h>

#include "facts.h"
#include "trace/jsonwriter.h"

#define SCHEMA 1 /* raised when a key goes or means something else */

/* "0 2 5" as numbers; the device read where nothing says which there are; null where not all are
 * listed. */
static void put_devices(struct flw_json_writer *out, const struct flw_trace_facts *facts)
{
    const char *at = facts->devices;
    const char *end = at + (at != NULL ? facts->devices_bytes : 0);
    if (at != NULL && end[-1] == '.') {
        flw_json_null(out, "devices");
        return;
    }
    flw_json_begin(out, "devices", '[');
    if (at == NULL) {
        flw_json_number(out, NULL, (uint64_t)facts->trace->device);
    }
    while (at < end) {
        char *next;
        uint64_t device = strtoull(at, &next, 10);
        if (next == at) {
            break;
        }
        flw_json_number(out, NULL, device);
        at = next;
    }
    flw_json_end(out, ']');
}

static void put_file(struct flw_json_writer *out, const struct flw_trace_facts *facts)
{
    const struct flw_trace *trace = facts->trace;
    flw_json_begin(out, NULL, '{');
    flw_json_number(out, "schema", SCHEMA);
    flw_json_text(out, "source", facts->path);
    flw_json_text(out, "format", trace->format);
    flw_json_known(out, "file_bytes", facts->file_bytes > 0, facts->file_bytes);
    flw_json_number(out, "device", (uint64_t)trace->device);
    put_devices(out, facts);
    flw_json_text(out, "truncation", trace->truncation);
    flw_json_number(out, "events", trace->event_count);
    flw_json_known(out, "duration_ns", trace->has_times, facts->duration_ns);
    flw_json_bool(out, "has_times", trace->has_times);
    flw_json_bool(out, "has_addresses", trace->has_addresses);
    flw_json_bool(out, "has_segments", trace->has_segments);
}

static void put_blocks(struct flw_json_writer *out, const struct flw_trace_facts *facts)
{
    const struct flw_trace *trace = facts->trace;
    flw_json_number(out, "allocations", trace->alloc_count);
    flw_json_known(out, "distinct_sizes", facts->has_sizes, facts->distinct_sizes);
    flw_json_known(out, "smallest_bytes", facts->has_sizes, facts->smallest_bytes);
    flw_json_known(out, "largest_bytes", facts->has_sizes, facts->largest_bytes);
    FLW_JSON_NUMBERS(out, {"start_blocks", trace->initial_count},
                     {"start_bytes", facts->start_bytes});
    flw_json_known(out, "start_segments", trace->has_segments, trace->segment_count);
    flw_json_known(out, "start_reserved_bytes", trace->has_segments,
                   trace->recorded_initial_reserved_bytes);
    FLW_JSON_NUMBERS(out, {"end_blocks", facts->end_count}, {"end_bytes", facts->end_bytes},
                     {"peak_requested_bytes", trace->peak_requested_bytes});
    flw_json_known(out, "peak_reserved_bytes", trace->recorded_peak_reserved_bytes > 0,
                   trace->recorded_peak_reserved_bytes);
    flw_json_known(out, "segment_events", trace->has_segments, trace->recorded_segment_calls);
}

static void put_rare(struct flw_json_writer *out, const struct flw_trace_facts *facts)
{
    const struct flw_trace *trace = facts->trace;
    FLW_JSON_NUMBERS(
        out, {"uses", facts->ops[FLW_TRACE_USE]}, {"out_of_memory", facts->ops[FLW_TRACE_OOM]},
        {"marks", facts->ops[FLW_TRACE_MARK]}, {"phases", facts->ops[FLW_TRACE_PHASE_BEGIN]},
        {"waits", facts->wait_count}, {"captures", facts->ops[FLW_TRACE_POOL_BEGIN]},
        {"cache_emptied", facts->ops[FLW_TRACE_EMPTY_CACHE]},
        {"context_changes", trace->context_count}, {"missing_events", facts->lost_count},
        {"unknown_frees", trace->unknown_free_count}, {"lost_frees", trace->lost_free_count},
        {"stacks", facts->stack_count}, {"frames", facts->frame_count},
        {"records_with_stacks", facts->stacked_count});
}

static void put_streams(struct flw_json_writer *out, const struct flw_trace *trace)
{
    flw_json_begin(out, "streams", '[');
    for (size_t i = 0; i < trace->stream_count; i++) {
        flw_json_number(out, NULL, trace->streams[i]);
    }
    flw_json_end(out, ']');
}

static void put_settings(struct flw_json_writer *out, const struct flw_trace *trace)
{
    flw_json_begin(out, "settings", '[');
    for (size_t i = 0; i < trace->detail_count; i++) {
        if (trace->events[trace->details[i].event].op == FLW_TRACE_CONFIG) {
            flw_json_text(out, NULL, flw_trace_name(trace, &trace->details[i]));
        }
    }
    flw_json_end(out, ']');
}

static void put_header(struct flw_json_writer *out, const char *notes)
{
    flw_json_begin(out, "header", '[');
    while (notes != NULL && *notes != '\0') {
        size_t bytes = strcspn(notes, "\n");
        flw_json_bytes(out, NULL, notes, bytes);
        notes += bytes + (notes[bytes] == '\n');
    }
    flw_json_end(out, ']');
}

void flw_trace_facts_print_json(const struct flw_trace_facts *facts, FILE *file)
{
    struct flw_json_writer writer = {.file = file, .is_spaced = true, .lines = " "};
    put_file(&writer, facts);
    put_blocks(&writer, facts);
    put_rare(&writer, facts);
    put_streams(&writer, facts->trace);
    put_settings(&writer, facts->trace);
    put_header(&writer, facts->trace->notes);
    fputs("}\n", file);
}
