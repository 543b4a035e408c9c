/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: `fallow trace info --json`: its keys. One that is there stays, and means the same.
 * Does not: count.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "facts.h"
#include "trace/jsontext.h"

#define SCHEMA 1 /* raised when a key goes or means something else */

static void put_key(FILE *out, const char *key)
{
    fprintf(out, ",\n \"%s\": ", key);
}

static void put_count(FILE *out, const char *key, uint64_t number)
{
    put_key(out, key);
    fprintf(out, "%" PRIu64, number);
}

/* null where it is not known. */
static void put_known(FILE *out, const char *key, bool is_known, uint64_t number)
{
    put_key(out, key);
    if (is_known) {
        fprintf(out, "%" PRIu64, number);
    } else {
        fputs("null", out);
    }
}

static void put_bool(FILE *out, const char *key, bool value)
{
    put_key(out, key);
    fputs(value ? "true" : "false", out);
}

static void put_text(FILE *out, const char *key, const char *text)
{
    put_key(out, key);
    if (text != NULL) {
        flw_json_print_text(out, text);
    } else {
        fputs("null", out);
    }
}

/* "0 2 5" as numbers; the device read where nothing says which there are; null where not all are
 * listed. */
static void put_devices(FILE *out, const struct flw_trace_facts *facts)
{
    const char *at = facts->devices;
    const char *end = at + (at != NULL ? facts->devices_bytes : 0);
    const char *separator = "";
    put_key(out, "devices");
    if (at != NULL && end[-1] == '.') {
        fputs("null", out);
        return;
    }
    fputc('[', out);
    if (at == NULL) {
        fprintf(out, "%d", facts->trace->device);
    }
    while (at < end) {
        char *next;
        uint64_t device = strtoull(at, &next, 10);
        if (next == at) {
            break;
        }
        fprintf(out, "%s%" PRIu64, separator, device);
        separator = ", ";
        at = next;
    }
    fputc(']', out);
}

static void put_file(FILE *out, const struct flw_trace_facts *facts)
{
    const struct flw_trace *trace = facts->trace;
    fprintf(out, "{\"schema\": %d", SCHEMA);
    put_text(out, "source", facts->path);
    put_text(out, "format", trace->format);
    put_known(out, "file_bytes", facts->file_bytes > 0, facts->file_bytes);
    put_count(out, "device", (uint64_t)trace->device);
    put_devices(out, facts);
    put_text(out, "truncation", trace->truncation);
    put_count(out, "events", trace->event_count);
    put_known(out, "duration_ns", trace->has_times, facts->duration_ns);
    put_bool(out, "has_times", trace->has_times);
    put_bool(out, "has_addresses", trace->has_addresses);
    put_bool(out, "has_segments", trace->has_segments);
}

static void put_blocks(FILE *out, const struct flw_trace_facts *facts)
{
    const struct flw_trace *trace = facts->trace;
    put_count(out, "allocations", trace->alloc_count);
    put_known(out, "distinct_sizes", facts->has_sizes, facts->distinct_sizes);
    put_known(out, "smallest_bytes", facts->has_sizes, facts->smallest_bytes);
    put_known(out, "largest_bytes", facts->has_sizes, facts->largest_bytes);
    put_count(out, "start_blocks", trace->initial_count);
    put_count(out, "start_bytes", facts->start_bytes);
    put_known(out, "start_segments", trace->has_segments, trace->segment_count);
    put_known(out, "start_reserved_bytes", trace->has_segments,
              trace->recorded_initial_reserved_bytes);
    put_count(out, "end_blocks", facts->end_count);
    put_count(out, "end_bytes", facts->end_bytes);
    put_count(out, "peak_requested_bytes", trace->peak_requested_bytes);
    put_known(out, "peak_reserved_bytes", trace->recorded_peak_reserved_bytes > 0,
              trace->recorded_peak_reserved_bytes);
    put_known(out, "segment_events", trace->has_segments, trace->recorded_segment_calls);
}

static void put_rare(FILE *out, const struct flw_trace_facts *facts)
{
    const struct flw_trace *trace = facts->trace;
    put_count(out, "uses", facts->ops[FLW_TRACE_USE]);
    put_count(out, "out_of_memory", facts->ops[FLW_TRACE_OOM]);
    put_count(out, "marks", facts->ops[FLW_TRACE_MARK]);
    put_count(out, "phases", facts->ops[FLW_TRACE_PHASE_BEGIN]);
    put_count(out, "waits", facts->wait_count);
    put_count(out, "captures", facts->ops[FLW_TRACE_POOL_BEGIN]);
    put_count(out, "cache_emptied", facts->ops[FLW_TRACE_EMPTY_CACHE]);
    put_count(out, "context_changes", trace->context_count);
    put_count(out, "missing_events", facts->lost_count);
    put_count(out, "unknown_frees", trace->unknown_free_count);
    put_count(out, "lost_frees", trace->lost_free_count);
}

static void put_streams(FILE *out, const struct flw_trace *trace)
{
    put_key(out, "streams");
    fputc('[', out);
    for (size_t i = 0; i < trace->stream_count; i++) {
        fprintf(out, "%s%" PRIu64, i == 0 ? "" : ", ", trace->streams[i]);
    }
    fputc(']', out);
}

static void put_settings(FILE *out, const struct flw_trace *trace)
{
    const char *separator = "";
    put_key(out, "settings");
    fputc('[', out);
    for (size_t i = 0; i < trace->detail_count; i++) {
        if (trace->events[trace->details[i].event].op == FLW_TRACE_CONFIG) {
            fputs(separator, out);
            flw_json_print_text(out, flw_trace_name(trace, &trace->details[i]));
            separator = ", ";
        }
    }
    fputc(']', out);
}

static void put_header(FILE *out, const char *notes)
{
    const char *separator = "";
    put_key(out, "header");
    fputc('[', out);
    while (notes != NULL && *notes != '\0') {
        size_t bytes = strcspn(notes, "\n");
        fputs(separator, out);
        flw_json_print_bytes(out, notes, bytes);
        separator = ", ";
        notes += bytes + (notes[bytes] == '\n');
    }
    fputc(']', out);
}

void flw_trace_facts_print_json(const struct flw_trace_facts *facts, FILE *out)
{
    put_file(out, facts);
    put_blocks(out, facts);
    put_rare(out, facts);
    put_streams(out, facts->trace);
    put_settings(out, facts->trace);
    put_header(out, facts->trace->notes);
    fputs("}\n", out);
}
