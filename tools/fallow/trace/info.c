/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: `fallow trace info`: a trace on one screen, and its keys as JSON. One that is there stays, and means
 * the same.
 * What it says beyond the trace's own fields is counted once for both.
 */
#include <inttypes.h>
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

#define SCHEMA     1  /* raised when a key goes or means something else */
#define LISTED_MAX 12 /* streams, settings, header lines */

/* ---- what is counted ---- */

struct flw_trace_facts {
    const char *path;
    const struct flw_trace *trace;
    uint64_t file_bytes; /* 0: no regular file */
    const char *devices; /* recorded ones, in the trace's notes; NULL where there is one */
    int devices_bytes;
    bool has_sizes;          /* there are allocations, and there was memory to sort their sizes */
    uint64_t distinct_sizes; /* of allocations */
    uint64_t smallest_bytes, largest_bytes;
    uint64_t start_bytes; /* requested, of the blocks of the start */
    uint64_t end_count, end_bytes;
    uint64_t ops[FLW_TRACE_OP_COUNT]; /* events of each */
    uint64_t wait_count;
    uint64_t lost_count;               /* events that are missing */
    uint64_t stack_count, frame_count; /* that a record or a segment of the start has; each once */
    uint64_t stacked_count;            /* records that have a stack */
    uint64_t duration_ns;
};

static void count_sizes(struct flw_trace_facts *facts)
{
    const struct flw_trace *trace = facts->trace;
    size_t count = trace->block_count - trace->initial_count;
    if (count == 0) {
        return;
    }
    uint64_t *sizes = flw_host_alloc(count, sizeof *sizes);
    for (size_t i = 0; i < count; i++) {
        sizes[i] = trace->blocks[trace->initial_count + i].size_bytes;
    }
    qsort(sizes, count, sizeof *sizes, flw_compare_u64);
    facts->has_sizes = true;
    facts->distinct_sizes = 1;
    for (size_t i = 1; i < count; i++) {
        facts->distinct_sizes += sizes[i] != sizes[i - 1];
    }
    facts->smallest_bytes = sizes[0];
    facts->largest_bytes = sizes[count - 1];
    flw_host_free(sizes);
}

/* Both sums are at most the peak. */
static void count_blocks(struct flw_trace_facts *facts)
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

/* What stands for others, a DROP and a free that was put in, was no event itself. */
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

static void count_events(struct flw_trace_facts *facts)
{
    const struct flw_trace *trace = facts->trace;
    for (size_t i = 0; i < trace->event_count; i++) {
        facts->ops[trace->events[i].op]++;
    }
    facts->lost_count = flw_trace_gap_count(trace).missing_count;
    facts->wait_count = facts->ops[FLW_TRACE_SYNC_DEVICE] + facts->ops[FLW_TRACE_SYNC_STREAM] +
                        facts->ops[FLW_TRACE_SYNC_EVENT] + facts->ops[FLW_TRACE_SYNC_WAIT];
    facts->duration_ns = trace->event_count > 0 ? trace->events[trace->event_count - 1].time_ns : 0;
}

static bool pass_frame(void *context, const struct flw_frame *frame)
{
    (void)context;
    (void)frame;
    return true;
}

static bool pass_stack(void *context, const uint32_t *frames, size_t count)
{
    (void)context;
    (void)frames;
    (void)count;
    return true;
}

/* As many as its file has: a reader may know some that nothing has. */
static void count_stacks(struct flw_trace_facts *facts)
{
    const struct flw_trace *trace = facts->trace;
    struct flw_stack_order order = {
        .stacks = &trace->stacks, .put_frame = pass_frame, .put_stack = pass_stack};
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

/* They name the trace and the path, which outlive them. */
static struct flw_trace_facts count_facts(const char *path, const struct flw_trace *trace,
                                          uint64_t file_bytes)
{
    struct flw_trace_facts facts = {.path = path, .trace = trace, .file_bytes = file_bytes};
    facts.devices = flw_notes_find_devices(trace->notes, &facts.devices_bytes);
    count_sizes(&facts);
    count_blocks(&facts);
    count_events(&facts);
    count_stacks(&facts);
    return facts;
}

/* ---- one screen ---- */

static void print_label(FILE *out, const char *label)
{
    fprintf(out, "  %-16s ", label);
}

static void print_count(FILE *out, const char *label, uint64_t number, const char *unit)
{
    char text[FLW_FIGURE_BYTES];
    print_label(out, label);
    fprintf(out, "%s%s", flw_format_count(number, text), unit);
}

static void print_bytes(FILE *out, uint64_t bytes)
{
    char text[FLW_FIGURE_BYTES];
    fputs(flw_format_size(bytes, text), out);
}

static void print_peak(FILE *out, const char *label, uint64_t bytes)
{
    print_label(out, label);
    print_bytes(out, bytes);
    if (bytes >= 1024) {
        char text[FLW_FIGURE_BYTES];
        fprintf(out, " (%s bytes)", flw_format_count(bytes, text));
    }
    fprintf(out, "\n");
}

/* ---- allocations ---- */

/* ", N sizes from A to B" of the allocated blocks. */
static void print_sizes(FILE *out, const struct flw_trace_facts *facts)
{
    char text[FLW_FIGURE_BYTES];
    if (facts->has_sizes) {
        fprintf(out, ", %s size%s from ", flw_format_count(facts->distinct_sizes, text),
                flw_plural(facts->distinct_sizes));
        print_bytes(out, facts->smallest_bytes);
        fprintf(out, " to ");
        print_bytes(out, facts->largest_bytes);
    }
}

static void print_held(FILE *out, const char *label, uint64_t block_count, uint64_t bytes)
{
    print_count(out, label, block_count, block_count == 1 ? " block, " : " blocks, ");
    print_bytes(out, bytes);
}

static void print_blocks(FILE *out, const struct flw_trace_facts *facts)
{
    const struct flw_trace *trace = facts->trace;
    print_count(out, "allocations", trace->alloc_count, "");
    print_sizes(out, facts);
    fprintf(out, "\n");
    print_held(out, "at the start", trace->initial_count, facts->start_bytes);
    if (trace->segment_count > 0) {
        char text[FLW_FIGURE_BYTES];
        fprintf(out, "; %s segment%s, ", flw_format_count(trace->segment_count, text),
                flw_plural(trace->segment_count));
        print_bytes(out, trace->recorded_initial_reserved_bytes);
    }
    fprintf(out, "\n");
    print_held(out, "at the end", facts->end_count, facts->end_bytes);
    fprintf(out, "\n");
    print_peak(out, "peak live", trace->peak_requested_bytes);
    if (trace->recorded_peak_reserved_bytes > 0) {
        print_peak(out, "peak reserved", trace->recorded_peak_reserved_bytes);
        print_count(out, "segment events", trace->recorded_segment_calls, "\n");
    }
}

/* ---- the rest ---- */

static void print_streams(FILE *out, const struct flw_trace *trace)
{
    print_count(out, "streams", trace->stream_count, "");
    for (size_t i = 0; i < trace->stream_count && i < LISTED_MAX; i++) {
        fprintf(out, "%s%" PRIu64, i == 0 ? ": " : ", ", trace->streams[i]);
    }
    fprintf(out, "%s\n", trace->stream_count > LISTED_MAX ? ", ..." : "");
}

static void print_stacks(FILE *out, const struct flw_trace_facts *facts)
{
    char text[FLW_FIGURE_BYTES];
    if (facts->stack_count > 0) {
        print_count(out, "stacks", facts->stack_count, " of ");
        fprintf(out, "%s frames, on ", flw_format_count(facts->frame_count, text));
        fprintf(out, "%s records\n", flw_format_count(facts->stacked_count, text));
    }
}

/* Only what there is. */
static void print_tally(FILE *out, const char *label, uint64_t number, const char *unit)
{
    if (number > 0) {
        print_count(out, label, number, unit);
        fprintf(out, "\n");
    }
}

static void print_rare(FILE *out, const struct flw_trace_facts *facts)
{
    const struct flw_trace *trace = facts->trace;
    const uint64_t *ops = facts->ops;
    print_tally(out, "uses", ops[FLW_TRACE_USE], " of blocks by other streams");
    print_tally(out, "out of memory", ops[FLW_TRACE_OOM], "");
    print_tally(out, "marks", ops[FLW_TRACE_MARK], "");
    print_tally(out, "phases", ops[FLW_TRACE_PHASE_BEGIN], "");
    print_tally(out, "waits", facts->wait_count, "");
    print_tally(out, "captures", ops[FLW_TRACE_POOL_BEGIN], " into a pool");
    print_tally(out, "cache emptied", ops[FLW_TRACE_EMPTY_CACHE], " times");
    print_tally(out, "contexts", trace->context_count, " changes of thread, tag or pool");
    print_tally(out, "missing", facts->lost_count, " events were not recorded, or are lost");
    print_tally(out, "unknown frees", trace->unknown_free_count, " left out");
    print_tally(out, "lost frees", trace->lost_free_count, " put in");
}

static void print_settings(FILE *out, const struct flw_trace *trace)
{
    size_t listed = 0;
    for (size_t i = 0; i < trace->detail_count; i++) {
        const struct flw_trace_detail *detail = &trace->details[i];
        if (trace->events[detail->event].op == FLW_TRACE_CONFIG && listed++ < LISTED_MAX) {
            print_label(out, "setting");
            fprintf(out, "%s\n", flw_trace_name(trace, detail));
        }
    }
    if (listed > LISTED_MAX) {
        print_count(out, "settings", listed, ", of which the first are above\n");
    }
}

static void print_notes(FILE *out, const char *notes)
{
    for (int i = 0; notes != NULL && *notes != '\0'; i++) {
        size_t bytes = strcspn(notes, "\n");
        if (i == LISTED_MAX) {
            print_label(out, "header");
            fprintf(out, "...\n");
            return;
        }
        print_label(out, "header");
        fprintf(out, "%.*s\n", (int)bytes, notes);
        notes += bytes + (notes[bytes] == '\n');
    }
}

static void print_events(FILE *out, const struct flw_trace_facts *facts)
{
    const struct flw_trace *trace = facts->trace;
    print_count(out, "events", trace->event_count, "");
    if (trace->has_times && trace->event_count > 0) {
        fprintf(out, " in %.6g s", (double)facts->duration_ns / 1e9);
    }
    fprintf(out, "; %s times, %s addresses, %s segments\n", trace->has_times ? "with" : "no",
            trace->has_addresses ? "with" : "no", trace->has_segments ? "with" : "no");
}

static void print_devices(FILE *out, const struct flw_trace_facts *facts)
{
    if (facts->devices != NULL) {
        print_label(out, "devices");
        fprintf(out, "%.*s; --trace-device chooses\n", facts->devices_bytes, facts->devices);
    }
}

static void print_file(FILE *out, const struct flw_trace_facts *facts)
{
    if (facts->file_bytes == 0) {
        return;
    }
    print_count(out, "file", facts->file_bytes, " bytes");
    if (facts->trace->event_count > 0) {
        fprintf(out, ", %.2f an event",
                (double)facts->file_bytes / (double)facts->trace->event_count);
    }
    fprintf(out, "\n");
}

static void print_text(FILE *out, const struct flw_trace_facts *facts)
{
    const struct flw_trace *trace = facts->trace;
    fprintf(out, "%s: %s, device %d\n", facts->path, trace->format, trace->device);
    print_file(out, facts);
    print_devices(out, facts);
    print_events(out, facts);
    print_blocks(out, facts);
    print_streams(out, trace);
    print_stacks(out, facts);
    print_rare(out, facts);
    print_settings(out, trace);
    print_notes(out, trace->notes);
    if (trace->truncation != NULL) {
        print_label(out, "not whole");
        fprintf(out, "%s\n", trace->truncation);
    }
}

/* ---- JSON ---- */

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

static void print_json(const struct flw_trace_facts *facts, FILE *file)
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

void flw_trace_print_info(const char *path, const struct flw_trace *trace, uint64_t file_bytes,
                          bool wants_json)
{
    struct flw_trace_facts facts = count_facts(path, trace, file_bytes);
    if (wants_json) {
        print_json(&facts, stdout);
    } else {
        FILE *out = flw_terminal_open(false);
        print_text(out, &facts);
        flw_terminal_close(out);
    }
}
