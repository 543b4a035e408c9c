/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: `fallow trace info`: the facts of a trace on one screen or as JSON with stable keys. Facts beyond
 * the trace's own fields are counted once for both.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/compare.h"
#include "common/command.h"
#include "common/figures.h"
#include "common/terminal.h"
#include "common/tool_host.h"
#include "info.h"
#include "trace/io/jsonwriter.h"
#include "trace/trace/notes.h"

#define SCHEMA     1  /* raise if a key is removed or changes meaning */
#define LISTED_MAX 12 /* streams, settings, header lines */

/* ---- facts ---- */

enum {
    TALLIES = 11
};

struct facts {
    const char *path;
    const struct flw_trace *trace;
    uint64_t file_bytes; /* 0: not a regular file */
    const char *devices; /* the recorded devices in the trace's notes; NULL: one */
    int devices_bytes;
    uint64_t distinct_sizes; /* of allocations; 0: there is none */
    uint64_t smallest_bytes, largest_bytes;
    uint64_t start_bytes; /* requested, of the blocks of the start */
    uint64_t end_count, end_bytes;
    uint64_t stack_count, frame_count; /* distinct ones of records and of segments of the start */
    uint64_t stacked_count;            /* records with a stack */
    uint64_t duration_ns;
    struct tally {
        const char *key, *label, *unit;
        uint64_t count; /* 0: not printed as text */
    } tallies[TALLIES];
};

static void count_sizes(struct facts *facts)
{
    const struct flw_trace *trace = facts->trace;
    size_t count = trace->block_count - trace->initial_count;
    if (count == 0) {
        return;
    }
    FLW_LOCAL uint64_t *sizes = flw_host_alloc(count, sizeof *sizes);
    for (size_t i = 0; i < count; i++) {
        sizes[i] = trace->blocks[trace->initial_count + i].size_bytes;
    }
    qsort(sizes, count, sizeof *sizes, flw_compare_u64);
    for (size_t i = 0; i < count; i++) {
        facts->distinct_sizes += i == 0 || sizes[i] != sizes[i - 1];
    }
    facts->smallest_bytes = sizes[0];
    facts->largest_bytes = sizes[count - 1];
}

/* Both sums are at most the peak. */
static void count_blocks(struct facts *facts)
{
    const struct flw_trace *trace = facts->trace;
    for (size_t i = 0; i < trace->block_count; i++) {
        const struct flw_trace_block *block = &trace->blocks[i];
        facts->start_bytes += i < trace->initial_count ? block->size_bytes : 0;
        facts->end_bytes += block->freed ? 0 : block->size_bytes;
        facts->end_count += !block->freed;
    }
}

static uint64_t add(uint64_t a, uint64_t b)
{
    uint64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

/* Leave out DROPs and inserted frees, which stand for lost events. */
struct flw_trace_gap flw_trace_gap_count(const struct flw_trace *trace)
{
    struct flw_trace_gap gap = {.event_count = trace->event_count};
    for (size_t i = 0; i < trace->detail_count; i++) {
        gap.missing_count = add(gap.missing_count, trace->details[i].lost_count);
        gap.event_count -= trace->details[i].lost_count > 0;
    }
    gap.event_count -= flw_min(gap.event_count, trace->lost_free_count);
    gap.event_count = add(gap.event_count, trace->unknown_free_count);
    gap.event_count = add(gap.event_count, gap.missing_count);
    return gap;
}

static void count_events(struct facts *facts)
{
    const struct flw_trace *trace = facts->trace;
    uint64_t ops[FLW_TRACE_OP_COUNT] = {0};
    for (size_t i = 0; i < trace->event_count; i++) {
        ops[trace->events[i].op]++;
    }
    facts->duration_ns = trace->event_count > 0 ? trace->events[trace->event_count - 1].time_ns : 0;
    uint64_t wait_count = ops[FLW_TRACE_SYNC_DEVICE] + ops[FLW_TRACE_SYNC_STREAM] +
                          ops[FLW_TRACE_SYNC_EVENT] + ops[FLW_TRACE_SYNC_WAIT];
    const struct tally tallies[TALLIES] = {
        {"uses", "uses", " of blocks by other streams", ops[FLW_TRACE_USE]},
        {"out_of_memory", "out of memory", "", ops[FLW_TRACE_OOM]},
        {"marks", "marks", "", ops[FLW_TRACE_MARK]},
        {"phases", "phases", "", ops[FLW_TRACE_PHASE_BEGIN]},
        {"waits", "waits", "", wait_count},
        {"captures", "captures", " into a pool", ops[FLW_TRACE_POOL_BEGIN]},
        {"cache_emptied", "cache emptied", " times", ops[FLW_TRACE_EMPTY_CACHE]},
        {"context_changes", "contexts", " changes of thread, tag or pool", trace->context_count},
        {"missing_events", "missing", " events were not recorded, or are lost",
         flw_trace_gap_count(trace).missing_count},
        {"unknown_frees", "unknown frees", " left out", trace->unknown_free_count},
        {"lost_frees", "lost frees", " put in", trace->lost_free_count}};
    memcpy(facts->tallies, tallies, sizeof tallies);
}

/* Count the stacks in use; a reader may hold others. */
static void count_stacks(struct facts *facts)
{
    const struct flw_trace *trace = facts->trace;
    struct flw_stack_order order = {.stacks = &trace->stacks};
    uint32_t number;
    if (!flw_stack_order_begin(&order)) {
        return;
    }
    for (size_t i = 0; i < trace->segment_count; i++) {
        flw_stack_order_take(&order, trace->segments[i].stack, &number);
    }
    for (size_t i = 0; i < trace->record_stack_count; i++) {
        flw_stack_order_take(&order, trace->record_stacks[i], &number);
        facts->stacked_count += number != 0;
    }
    facts->stack_count = order.stack_count;
    facts->frame_count = order.frame_count;
    flw_stack_order_finish(&order);
}

/* ---- one screen ---- */

static void __attribute__((format(printf, 3, 4)))
put(FILE *out, const char *label, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fprintf(out, "  %-16s ", label);
    vfprintf(out, format, arguments);
    va_end(arguments);
}

static void put_held(FILE *out, const char *label, uint64_t block_count, uint64_t bytes)
{
    put(out, label, "%s block%s, %s", FLW_COUNT(block_count), flw_plural(block_count),
        FLW_SIZE(bytes));
}

static void put_peak(FILE *out, const char *label, uint64_t bytes)
{
    put(out, label, "%s", FLW_SIZE(bytes));
    if (bytes >= 1024) {
        fprintf(out, " (%s bytes)", FLW_COUNT(bytes));
    }
    fputs("\n", out);
}

static void put_events(FILE *out, const struct facts *facts)
{
    const struct flw_trace *trace = facts->trace;
    bool has_events = trace->event_count > 0;
    if (facts->file_bytes > 0) {
        put(out, "file", "%s bytes", FLW_COUNT(facts->file_bytes));
        if (has_events) {
            fprintf(out, ", %.2f an event", (double)facts->file_bytes / (double)trace->event_count);
        }
        fputs("\n", out);
    }
    if (facts->devices != NULL) {
        put(out, "devices", "%.*s; --trace-device chooses\n", facts->devices_bytes, facts->devices);
    }
    put(out, "events", "%s", FLW_COUNT(trace->event_count));
    if (trace->has_times && has_events) {
        fprintf(out, " in %.6g s", (double)facts->duration_ns / 1e9);
    }
    fprintf(out, "; %s times, %s addresses, %s segments\n", trace->has_times ? "with" : "no",
            trace->has_addresses ? "with" : "no", trace->has_segments ? "with" : "no");
}

static void put_blocks(FILE *out, const struct facts *facts)
{
    const struct flw_trace *trace = facts->trace;
    put(out, "allocations", "%s", FLW_COUNT(trace->alloc_count));
    if (facts->distinct_sizes > 0) {
        fprintf(out, ", %s size%s from %s to %s", FLW_COUNT(facts->distinct_sizes),
                flw_plural(facts->distinct_sizes), FLW_SIZE(facts->smallest_bytes),
                FLW_SIZE(facts->largest_bytes));
    }
    fputs("\n", out);
    put_held(out, "at the start", trace->initial_count, facts->start_bytes);
    if (trace->segment_count > 0) {
        fprintf(out, "; %s segment%s, %s", FLW_COUNT(trace->segment_count),
                flw_plural(trace->segment_count), FLW_SIZE(trace->recorded_initial_reserved_bytes));
    }
    fputs("\n", out);
    put_held(out, "at the end", facts->end_count, facts->end_bytes);
    fputs("\n", out);
    put_peak(out, "peak live", trace->peak_requested_bytes);
    if (trace->recorded_peak_reserved_bytes > 0) {
        put_peak(out, "peak reserved", trace->recorded_peak_reserved_bytes);
        put(out, "segment events", "%s\n", FLW_COUNT(trace->recorded_segment_calls));
    }
}

static void put_streams(FILE *out, const struct flw_trace *trace)
{
    put(out, "streams", "%s", FLW_COUNT(trace->stream_count));
    for (size_t i = 0; i < trace->stream_count && i < LISTED_MAX; i++) {
        fprintf(out, "%s%" PRIu64, i == 0 ? ": " : ", ", trace->streams[i]);
    }
    fprintf(out, "%s\n", trace->stream_count > LISTED_MAX ? ", ..." : "");
}

/* Return the text of the next setting from *at on, or NULL. */
static const char *next_setting(const struct flw_trace *trace, size_t *at)
{
    while (*at < trace->detail_count) {
        const struct flw_trace_detail *detail = &trace->details[(*at)++];
        if (trace->events[detail->event].op == FLW_TRACE_CONFIG) {
            return flw_trace_name(trace, detail);
        }
    }
    return NULL;
}

static void put_texts(FILE *out, const struct flw_trace *trace)
{
    const char *text, *notes = trace->notes;
    size_t listed = 0, at = 0;
    int length;
    while ((text = next_setting(trace, &at)) != NULL) {
        if (listed++ < LISTED_MAX) {
            put(out, "setting", "%s\n", text);
        }
    }
    if (listed > LISTED_MAX) {
        put(out, "settings", "%s, of which the first are above\n", FLW_COUNT(listed));
    }
    listed = 0;
    while (listed <= LISTED_MAX && (text = flw_next_line(&notes, &length)) != NULL) {
        bool is_cut = listed++ == LISTED_MAX;
        put(out, "header", "%.*s\n", is_cut ? 3 : length, is_cut ? "..." : text);
    }
}

static void print_text(FILE *out, const struct facts *facts)
{
    const struct flw_trace *trace = facts->trace;
    fprintf(out, "%s: %s, device %d\n", facts->path, trace->format, trace->device);
    put_events(out, facts);
    put_blocks(out, facts);
    put_streams(out, trace);
    if (facts->stack_count > 0) {
        put(out, "stacks", "%s of %s frames, on %s records\n", FLW_COUNT(facts->stack_count),
            FLW_COUNT(facts->frame_count), FLW_COUNT(facts->stacked_count));
    }
    for (const struct tally *tally = facts->tallies; tally < facts->tallies + TALLIES; tally++) {
        if (tally->count > 0) {
            put(out, tally->label, "%s%s\n", FLW_COUNT(tally->count), tally->unit);
        }
    }
    put_texts(out, trace);
    if (trace->truncation != NULL) {
        put(out, "not whole", "%s\n", trace->truncation);
    }
}

/* ---- JSON ---- */

/* Write the devices "0 2 5" as numbers; the trace's own device if there is no list; null if the list is cut. */
static void write_devices(struct flw_json_writer *out, const struct facts *facts)
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
    for (char *next; at < end; at = next) {
        uint64_t device = strtoull(at, &next, 10);
        if (next == at) {
            break;
        }
        flw_json_number(out, NULL, device);
    }
    flw_json_end(out, ']');
}

static uint64_t known(bool is_known, uint64_t value)
{
    return is_known ? value : FLW_NOT_APPLICABLE;
}

static void write_numbers(struct flw_json_writer *out, const struct facts *facts)
{
    const struct flw_trace *trace = facts->trace;
    bool has_sizes = facts->distinct_sizes > 0, has_segments = trace->has_segments;
    flw_json_number(out, "events", trace->event_count);
    flw_json_known(out, "duration_ns", trace->has_times, facts->duration_ns);
    flw_json_bool(out, "has_times", trace->has_times);
    flw_json_bool(out, "has_addresses", trace->has_addresses);
    flw_json_bool(out, "has_segments", has_segments);
    FLW_JSON_COUNTS(
        out, {"allocations", trace->alloc_count},
        {"distinct_sizes", known(has_sizes, facts->distinct_sizes)},
        {"smallest_bytes", known(has_sizes, facts->smallest_bytes)},
        {"largest_bytes", known(has_sizes, facts->largest_bytes)},
        {"start_blocks", trace->initial_count}, {"start_bytes", facts->start_bytes},
        {"start_segments", known(has_segments, trace->segment_count)},
        {"start_reserved_bytes", known(has_segments, trace->recorded_initial_reserved_bytes)},
        {"end_blocks", facts->end_count}, {"end_bytes", facts->end_bytes},
        {"peak_requested_bytes", trace->peak_requested_bytes},
        {"peak_reserved_bytes",
         known(trace->recorded_peak_reserved_bytes > 0, trace->recorded_peak_reserved_bytes)},
        {"segment_events", known(has_segments, trace->recorded_segment_calls)});
    for (size_t i = 0; i < TALLIES; i++) {
        flw_json_number(out, facts->tallies[i].key, facts->tallies[i].count);
    }
    FLW_JSON_NUMBERS(out, {"stacks", facts->stack_count}, {"frames", facts->frame_count},
                     {"records_with_stacks", facts->stacked_count});
}

static void write_lists(struct flw_json_writer *out, const struct flw_trace *trace)
{
    const char *text, *notes = trace->notes;
    size_t at = 0;
    int length;
    flw_json_begin(out, "streams", '[');
    for (size_t i = 0; i < trace->stream_count; i++) {
        flw_json_number(out, NULL, trace->streams[i]);
    }
    flw_json_end(out, ']');
    flw_json_begin(out, "settings", '[');
    while ((text = next_setting(trace, &at)) != NULL) {
        flw_json_text(out, NULL, text);
    }
    flw_json_end(out, ']');
    flw_json_begin(out, "header", '[');
    while ((text = flw_next_line(&notes, &length)) != NULL) {
        flw_json_bytes(out, NULL, text, (size_t)length);
    }
    flw_json_end(out, ']');
}

static void print_json(const struct facts *facts, FILE *file)
{
    struct flw_json_writer writer = {.file = file, .is_spaced = true, .lines = " "}, *out = &writer;
    flw_json_begin(out, NULL, '{');
    flw_json_number(out, "schema", SCHEMA);
    flw_json_text(out, "source", facts->path);
    flw_json_text(out, "format", facts->trace->format);
    flw_json_known(out, "file_bytes", facts->file_bytes > 0, facts->file_bytes);
    flw_json_number(out, "device", (uint64_t)facts->trace->device);
    write_devices(out, facts);
    flw_json_text(out, "truncation", facts->trace->truncation);
    write_numbers(out, facts);
    write_lists(out, facts->trace);
    fputs("}\n", file);
}

void flw_trace_print_info(const char *path, const struct flw_trace *trace, uint64_t file_bytes,
                          bool wants_json)
{
    struct facts facts = {.path = path, .trace = trace, .file_bytes = file_bytes};
    facts.devices = flw_notes_find_devices(trace->notes, &facts.devices_bytes);
    count_sizes(&facts);
    count_blocks(&facts);
    count_events(&facts);
    count_stacks(&facts);
    if (wants_json) {
        print_json(&facts, stdout);
        return;
    }
    FILE *out = flw_terminal_open(false);
    print_text(out, &facts);
    flw_terminal_close(out);
}
