/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: reading every recorded trace of a folder and comparing with the figures that an independent
 * reader wrote into the folder's manifest.json. Exits 77 where there is no such folder.
 * Usage: test_trace_manifest FOLDER
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compare.h"
#include "trace/formats/formats.h"
#include "trace/trace/trace.h"

struct figures {
    uint64_t events, allocs, distinct_sizes, streams, pre_blocks, pre_bytes, peak_live,
        peak_reserved, never_freed, deferred_frees, unknown;
};

static int failures;

static void expect(const char *trace, const char *what, uint64_t got, uint64_t wanted)
{
    if (got != wanted) {
        printf("%s: %s is %" PRIu64 ", the manifest says %" PRIu64 "\n", trace, what, got, wanted);
        failures++;
    }
}

static char *read_text(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        return NULL;
    }
    char *text = calloc(1, 1 << 20);
    if (text != NULL && fread(text, 1, (1 << 20) - 1, file) == 0) {
        free(text);
        text = NULL;
    }
    fclose(file);
    return text;
}

/* The number under `"key":` between two places of the manifest. */
static uint64_t number_under(const char *begin, const char *end, const char *key)
{
    char quoted[64];
    snprintf(quoted, sizeof(quoted), "\"%s\":", key);
    const char *at = strstr(begin, quoted);
    if (at == NULL || at >= end) {
        printf("the manifest lacks %s\n", quoted);
        failures++;
        return 0;
    }
    return strtoull(at + strlen(quoted), NULL, 10);
}

static uint64_t count_distinct(uint64_t *numbers, size_t count)
{
    uint64_t distinct = 0;
    if (count > 0) {
        qsort(numbers, count, sizeof(*numbers), flw_compare_u64);
    }
    for (size_t i = 0; i < count; i++) {
        distinct += i == 0 || numbers[i] != numbers[i - 1];
    }
    return distinct;
}

/* Of the blocks that events allocate: distinct sizes, streams, never freed. */
static void count_blocks(const struct flw_trace *trace, struct figures *got)
{
    size_t count = trace->block_count - trace->initial_count;
    uint64_t *sizes = calloc(count + 1, sizeof(*sizes));
    uint64_t *streams = calloc(count + 1, sizeof(*streams));
    for (size_t i = 0; sizes != NULL && streams != NULL && i < count; i++) {
        const struct flw_trace_block *block = &trace->blocks[trace->initial_count + i];
        sizes[i] = block->size_bytes;
        streams[i] = block->stream;
        got->never_freed += !block->freed;
    }
    got->distinct_sizes = count_distinct(sizes, count);
    got->streams = count_distinct(streams, count);
    free(sizes);
    free(streams);
}

/* Frees whose completion is not the very next event. */
static uint64_t count_deferred(const struct flw_trace *trace)
{
    uint64_t deferred = 0;
    for (size_t i = 0; i < trace->event_count; i++) {
        const struct flw_trace_event *event = &trace->events[i];
        deferred += event->op == FLW_TRACE_FREE &&
                    (i + 1 == trace->event_count || event[1].op != FLW_TRACE_FREE_DONE ||
                     event[1].block != event->block);
    }
    return deferred;
}

/* The manifest does not count annotations as events. */
static uint64_t count_phases(const struct flw_trace *trace)
{
    uint64_t phases = 0;
    for (size_t i = 0; i < trace->event_count; i++) {
        phases += trace->events[i].op == FLW_TRACE_PHASE_BEGIN ||
                  trace->events[i].op == FLW_TRACE_PHASE_END;
    }
    return phases;
}

static void count_trace(const struct flw_trace *trace, struct figures *got)
{
    *got = (struct figures){
        .events = trace->event_count - count_phases(trace),
        .allocs = trace->alloc_count,
        .pre_blocks = trace->initial_count,
        .peak_live = trace->peak_requested_bytes,
        .peak_reserved = trace->recorded_peak_reserved_bytes,
        .deferred_frees = count_deferred(trace),
        .unknown = trace->unknown_free_count + trace->lost_free_count,
    };
    for (size_t i = 0; i < trace->initial_count; i++) {
        got->pre_bytes += trace->blocks[i].size_bytes;
    }
    count_blocks(trace, got);
}

/* Every block that is alive at the start lies in one of the segments of the start. */
static bool initial_heap_is_covered(const struct flw_trace *trace)
{
    for (size_t i = 0; i < trace->initial_count; i++) {
        const struct flw_trace_block *block = &trace->blocks[i];
        bool is_inside = false;
        for (size_t j = 0; !is_inside && j < trace->segment_count; j++) {
            const struct flw_trace_segment *segment = &trace->segments[j];
            is_inside =
                block->address >= segment->address &&
                block->address - segment->address + block->size_bytes <= segment->size_bytes &&
                block->stream == segment->stream;
        }
        if (!is_inside) {
            return false;
        }
    }
    return true;
}

static void check_trace(const char *folder, const char *name, const char *begin, const char *end)
{
    char path[4096];
    char message[FLW_TRACE_MESSAGE_BYTES];
    struct flw_trace *trace;
    struct figures got;
    snprintf(path, sizeof(path), "%s/%s.pickle.xz", folder, name);
    if (!flw_trace_read(path, -1, &trace, message)) {
        printf("%s\n", message);
        failures++;
        return;
    }
    count_trace(trace, &got);
    expect(name, "events", got.events, number_under(begin, end, "events"));
    expect(name, "allocs", got.allocs, number_under(begin, end, "allocs"));
    expect(name, "distinct_sizes", got.distinct_sizes, number_under(begin, end, "distinct_sizes"));
    expect(name, "streams", got.streams, number_under(begin, end, "streams"));
    expect(name, "pre_blocks", got.pre_blocks, number_under(begin, end, "pre_blocks"));
    expect(name, "pre_bytes", got.pre_bytes, number_under(begin, end, "pre_bytes"));
    expect(name, "peak_live", got.peak_live, number_under(begin, end, "peak_live"));
    expect(name, "peak_reserved", got.peak_reserved, number_under(begin, end, "peak_reserved"));
    expect(name, "never_freed", got.never_freed, number_under(begin, end, "never_freed"));
    expect(name, "deferred", got.deferred_frees, number_under(begin, end, "deferred_frees"));
    expect(name, "unknown", got.unknown, number_under(begin, end, "unknown"));
    expect(name, "valid", flw_trace_is_valid(trace), true);
    expect(name, "initial blocks in initial segments", initial_heap_is_covered(trace), true);
    printf("%s: %zu events, %llu begins and ends of phases among them, %zu initial blocks in %zu "
           "segments\n",
           name, trace->event_count, (unsigned long long)count_phases(trace), trace->initial_count,
           trace->segment_count);
    flw_trace_destroy(trace);
}

static size_t check_folder(const char *folder, const char *manifest)
{
    static const char key[] = "\"name\": \"";
    size_t count = 0;
    const char *at = strstr(manifest, key);
    while (at != NULL) {
        char name[128] = "";
        const char *next = strstr(at + 1, key);
        const char *end = next != NULL ? next : manifest + strlen(manifest);
        sscanf(at + strlen(key), "%127[^\"]", name);
        check_trace(folder, name, at, end);
        count++;
        at = next;
    }
    return count;
}

int main(int argc, char **argv)
{
    char path[4096];
    if (argc != 2) {
        fprintf(stderr, "usage: test_trace_manifest FOLDER\n");
        return 2;
    }
    snprintf(path, sizeof(path), "%s/manifest.json", argv[1]);
    char *manifest = read_text(path);
    if (manifest == NULL) {
        printf("skipped: no %s\n", path);
        return 77;
    }
    size_t count = check_folder(argv[1], manifest);
    free(manifest);
    if (count == 0) {
        printf("the manifest names no trace\n");
        return 1;
    }
    printf("%zu traces, %d mismatches\n", count, failures);
    return failures == 0 ? 0 : 1;
}
