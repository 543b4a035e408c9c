/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: `fallow trace info`: a trace on one screen.
 * Does not: replay it.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/command.h"
#include "common/figures.h"
#include "facts.h"
#include "verbs.h"

#define LISTED_MAX 12 /* streams, settings, header lines */

static void print_label(const char *label)
{
    printf("  %-16s ", label);
}

static void print_count(const char *label, uint64_t number, const char *unit)
{
    char text[FLW_FIGURE_BYTES];
    print_label(label);
    printf("%s%s", flw_format_count(number, text), unit);
}

static void print_bytes(uint64_t bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    unsigned unit = 0;
    double value = (double)bytes;
    while (value >= 1024 && unit + 1 < sizeof units / sizeof *units) {
        value /= 1024;
        unit++;
    }
    printf(unit == 0 ? "%.0f %s" : "%.1f %s", value, units[unit]);
}

static void print_peak(const char *label, uint64_t bytes)
{
    print_label(label);
    print_bytes(bytes);
    if (bytes >= 1024) {
        char text[FLW_FIGURE_BYTES];
        printf(" (%s bytes)", flw_format_count(bytes, text));
    }
    printf("\n");
}

/* ---- allocations ---- */

/* ", N sizes from A to B" of the allocated blocks. */
static void print_sizes(const struct flw_trace_facts *facts)
{
    char text[FLW_FIGURE_BYTES];
    if (facts->has_sizes) {
        printf(", %s size%s from ", flw_format_count(facts->distinct_sizes, text),
               facts->distinct_sizes == 1 ? "" : "s");
        print_bytes(facts->smallest_bytes);
        printf(" to ");
        print_bytes(facts->largest_bytes);
    }
}

static void print_blocks(const struct flw_trace_facts *facts)
{
    const struct flw_trace *trace = facts->trace;
    print_count("allocations", trace->alloc_count, "");
    print_sizes(facts);
    printf("\n");
    print_count("at the start", trace->initial_count, " blocks, ");
    print_bytes(facts->start_bytes);
    if (trace->segment_count > 0) {
        char text[FLW_FIGURE_BYTES];
        printf("; %s segment%s, ", flw_format_count(trace->segment_count, text),
               trace->segment_count == 1 ? "" : "s");
        print_bytes(trace->recorded_initial_reserved_bytes);
    }
    printf("\n");
    print_count("at the end", facts->end_count, " blocks, ");
    print_bytes(facts->end_bytes);
    printf("\n");
    print_peak("peak requested", trace->peak_requested_bytes);
    if (trace->recorded_peak_reserved_bytes > 0) {
        print_peak("peak reserved", trace->recorded_peak_reserved_bytes);
        print_count("segment events", trace->recorded_segment_calls, "\n");
    }
}

/* ---- the rest ---- */

static void print_streams(const struct flw_trace *trace)
{
    print_count("streams", trace->stream_count, "");
    for (size_t i = 0; i < trace->stream_count && i < LISTED_MAX; i++) {
        printf("%s%" PRIu64, i == 0 ? ": " : ", ", trace->streams[i]);
    }
    printf("%s\n", trace->stream_count > LISTED_MAX ? ", ..." : "");
}

static void print_stacks(const struct flw_trace_facts *facts)
{
    char text[FLW_FIGURE_BYTES];
    if (facts->stack_count > 0) {
        print_count("stacks", facts->stack_count, " of ");
        printf("%s frames; ", flw_format_count(facts->frame_count, text));
        printf("%s records have one\n", flw_format_count(facts->stacked_count, text));
    }
}

/* Only what there is. */
static void print_tally(const char *label, uint64_t number, const char *unit)
{
    if (number > 0) {
        print_count(label, number, unit);
        printf("\n");
    }
}

static void print_rare(const struct flw_trace_facts *facts)
{
    const struct flw_trace *trace = facts->trace;
    const uint64_t *ops = facts->ops;
    print_tally("uses", ops[FLW_TRACE_USE], " of blocks by other streams");
    print_tally("out of memory", ops[FLW_TRACE_OOM], "");
    print_tally("marks", ops[FLW_TRACE_MARK], "");
    print_tally("phases", ops[FLW_TRACE_PHASE_BEGIN], "");
    print_tally("waits", facts->wait_count, "");
    print_tally("captures", ops[FLW_TRACE_POOL_BEGIN], " into a pool");
    print_tally("cache emptied", ops[FLW_TRACE_EMPTY_CACHE], " times");
    print_tally("contexts", trace->context_count, " changes of thread, tag or pool");
    print_tally("missing", facts->lost_count, " events were not recorded, or are lost");
    print_tally("unknown frees", trace->unknown_free_count, " left out");
    print_tally("lost frees", trace->lost_free_count, " put in");
}

static void print_settings(const struct flw_trace *trace)
{
    size_t listed = 0;
    for (size_t i = 0; i < trace->detail_count; i++) {
        const struct flw_trace_detail *detail = &trace->details[i];
        if (trace->events[detail->event].op == FLW_TRACE_CONFIG && listed++ < LISTED_MAX) {
            print_label("setting");
            printf("%s\n", flw_trace_name(trace, detail));
        }
    }
    if (listed > LISTED_MAX) {
        print_count("settings", listed, ", of which the first are above\n");
    }
}

static void print_notes(const char *notes)
{
    for (int i = 0; notes != NULL && *notes != '\0'; i++) {
        size_t bytes = strcspn(notes, "\n");
        if (i == LISTED_MAX) {
            print_label("header");
            printf("...\n");
            return;
        }
        print_label("header");
        printf("%.*s\n", (int)bytes, notes);
        notes += bytes + (notes[bytes] == '\n');
    }
}

static void print_events(const struct flw_trace_facts *facts)
{
    const struct flw_trace *trace = facts->trace;
    print_count("events", trace->event_count, "");
    if (trace->has_times && trace->event_count > 0) {
        printf(" in %.6g s", (double)facts->duration_ns / 1e9);
    }
    printf("; %s times, %s addresses, %s segments\n", trace->has_times ? "with" : "no",
           trace->has_addresses ? "with" : "no", trace->has_segments ? "with" : "no");
}

static void print_devices(const struct flw_trace_facts *facts)
{
    if (facts->devices != NULL) {
        print_label("devices");
        printf("%.*s; --trace-device chooses\n", facts->devices_bytes, facts->devices);
    }
}

static void print_file(const struct flw_trace_facts *facts)
{
    if (facts->file_bytes == 0) {
        return;
    }
    print_count("file", facts->file_bytes, " bytes");
    if (facts->trace->event_count > 0) {
        printf(", %.2f an event", (double)facts->file_bytes / (double)facts->trace->event_count);
    }
    printf("\n");
}

void flw_trace_facts_print(const struct flw_trace_facts *facts)
{
    const struct flw_trace *trace = facts->trace;
    printf("%s: %s, device %d\n", facts->path, trace->format, trace->device);
    print_file(facts);
    print_devices(facts);
    print_events(facts);
    print_blocks(facts);
    print_streams(trace);
    print_stacks(facts);
    print_rare(facts);
    print_settings(trace);
    print_notes(trace->notes);
    if (trace->truncation != NULL) {
        print_label("not whole");
        printf("%s\n", trace->truncation);
    }
}

int flw_verb_info(const struct flw_verb_options *options)
{
    struct flw_trace *trace;
    const char *path = options->paths[0];
    if (!flw_verb_read(options, path, &trace)) {
        return FLW_EXIT_FAILED;
    }
    struct flw_trace_facts facts = flw_trace_facts_count(path, trace);
    if (options->wants_json) {
        flw_trace_facts_print_json(&facts, stdout);
    } else {
        flw_trace_facts_print(&facts);
    }
    flw_trace_destroy(trace);
    return FLW_EXIT_OK;
}
