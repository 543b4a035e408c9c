/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: `fallow trace info`: a trace on one screen.
 * Does not: replay it.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "trace_verbs.h"

#define LISTED_MAX 12 /* streams, settings, header lines */

/* 1234567 as 1,234,567; `text` has room for 32. */
static const char *put_commas(uint64_t number, char *text)
{
    char digits[24];
    int count = snprintf(digits, sizeof digits, "%" PRIu64, number);
    char *out = text;
    for (int i = 0; i < count; i++) {
        if (i > 0 && (count - i) % 3 == 0) {
            *out++ = ',';
        }
        *out++ = digits[i];
    }
    *out = '\0';
    return text;
}

static void print_label(const char *label)
{
    printf("  %-16s ", label);
}

static void print_count(const char *label, uint64_t number, const char *unit)
{
    char text[32];
    print_label(label);
    printf("%s%s", put_commas(number, text), unit);
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
        char text[32];
        printf(" (%s bytes)", put_commas(bytes, text));
    }
    printf("\n");
}

/* ---- allocations ---- */

static int compare_sizes(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a;
    uint64_t y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* ", N sizes from A to B" of the allocated blocks. */
static void print_sizes(const struct flw_trace *trace)
{
    size_t count = trace->block_count - trace->initial_count;
    uint64_t *sizes = count > 0 ? malloc(count * sizeof *sizes) : NULL;
    if (sizes == NULL) {
        return;
    }
    for (size_t i = 0; i < count; i++) {
        sizes[i] = trace->blocks[trace->initial_count + i].size_bytes;
    }
    qsort(sizes, count, sizeof *sizes, compare_sizes);
    size_t distinct = 1;
    for (size_t i = 1; i < count; i++) {
        distinct += sizes[i] != sizes[i - 1];
    }
    char text[32];
    printf(", %s size%s from ", put_commas(distinct, text), distinct == 1 ? "" : "s");
    print_bytes(sizes[0]);
    printf(" to ");
    print_bytes(sizes[count - 1]);
    free(sizes);
}

static void print_blocks(const struct flw_trace *trace)
{
    uint64_t start_bytes = 0, end_bytes = 0, end_count = 0;
    for (size_t i = 0; i < trace->block_count; i++) {
        const struct flw_trace_block *block = &trace->blocks[i];
        start_bytes += i < trace->initial_count ? block->size_bytes : 0;
        end_bytes +=
            block->freed ? 0 : block->size_bytes; /* may wrap where nothing is ever freed */
        end_count += !block->freed;
    }
    print_count("allocations", trace->alloc_count, "");
    print_sizes(trace);
    printf("\n");
    print_count("at the start", trace->initial_count, " blocks, ");
    print_bytes(start_bytes);
    if (trace->segment_count > 0) {
        char text[32];
        printf("; %s segment%s, ", put_commas(trace->segment_count, text),
               trace->segment_count == 1 ? "" : "s");
        print_bytes(trace->recorded_initial_reserved_bytes);
    }
    printf("\n");
    print_count("at the end", end_count, " blocks, ");
    print_bytes(end_bytes);
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

struct tally {
    uint64_t ops[FLW_TRACE_OP_COUNT];
    uint64_t lost_count;
};

static struct tally count_ops(const struct flw_trace *trace)
{
    struct tally tally = {.lost_count = 0};
    for (size_t i = 0; i < trace->event_count; i++) {
        tally.ops[trace->events[i].op]++;
    }
    for (size_t i = 0; i < trace->detail_count; i++) {
        tally.lost_count += trace->details[i].lost_count;
    }
    return tally;
}

/* Only what there is. */
static void print_tally(const char *label, uint64_t number, const char *unit)
{
    if (number > 0) {
        print_count(label, number, unit);
        printf("\n");
    }
}

static void print_rare(const struct flw_trace *trace)
{
    struct tally tally = count_ops(trace);
    const uint64_t *ops = tally.ops;
    print_tally("uses", ops[FLW_TRACE_USE], " of blocks by other streams");
    print_tally("out of memory", ops[FLW_TRACE_OOM], "");
    print_tally("marks", ops[FLW_TRACE_MARK], "");
    print_tally("phases", ops[FLW_TRACE_PHASE_BEGIN], "");
    print_tally("waits",
                ops[FLW_TRACE_SYNC_DEVICE] + ops[FLW_TRACE_SYNC_STREAM] +
                    ops[FLW_TRACE_SYNC_EVENT] + ops[FLW_TRACE_SYNC_WAIT],
                "");
    print_tally("captures", ops[FLW_TRACE_POOL_BEGIN], " into a pool");
    print_tally("cache emptied", ops[FLW_TRACE_EMPTY_CACHE], " times");
    print_tally("contexts", trace->context_count, " changes of thread, tag or pool");
    print_tally("missing", tally.lost_count, " events were not recorded, or are lost");
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

static void print_events(const struct flw_trace *trace)
{
    print_count("events", trace->event_count, "");
    if (trace->has_times && trace->event_count > 0) {
        printf(" in %.6g s", (double)trace->events[trace->event_count - 1].time_ns / 1e9);
    }
    printf("; %s times, %s addresses, %s segments\n", trace->has_times ? "with" : "no",
           trace->has_addresses ? "with" : "no", trace->has_segments ? "with" : "no");
}

/* Readers note it where there are several. */
static void print_devices(const struct flw_trace *trace)
{
    static const char key[] = "recorded_devices ";
    const char *line = trace->notes != NULL ? strstr(trace->notes, key) : NULL;
    if (line != NULL) {
        line += sizeof key - 1;
        print_label("devices");
        printf("%.*s; --trace-device chooses\n", (int)strcspn(line, "\n"), line);
    }
}

static void print_file(const char *path, const struct flw_trace *trace)
{
    unsigned long long bytes = flw_verb_file_bytes(path);
    if (bytes == 0) {
        return;
    }
    print_count("file", bytes, " bytes");
    if (trace->event_count > 0) {
        printf(", %.2f an event", (double)bytes / (double)trace->event_count);
    }
    printf("\n");
}

int flw_verb_info(const struct flw_verb_options *options)
{
    struct flw_trace *trace;
    const char *path = options->paths[0];
    if (!flw_verb_read(options, path, &trace)) {
        return FLW_EXIT_FAILED;
    }
    printf("%s: %s, device %d\n", path, trace->format, trace->device);
    print_file(path, trace);
    print_devices(trace);
    print_events(trace);
    print_blocks(trace);
    print_streams(trace);
    print_rare(trace);
    print_settings(trace);
    print_notes(trace->notes);
    if (trace->truncation != NULL) {
        print_label("not whole");
        printf("%s\n", trace->truncation);
    }
    flw_trace_destroy(trace);
    return FLW_EXIT_OK;
}
