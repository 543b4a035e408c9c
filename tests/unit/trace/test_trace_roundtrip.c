/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: recorded traces through every form and back. Through the trace file: the same text, and what a file costs.
 * Through the forms of others: the same blocks in the same order, with addresses, streams, times and stacks as far as
 * the form has them.
 * Usage: test_trace_roundtrip FILE... (what cannot be read, or is not there, is left out and named; no trace at all:
 * exit 77), or test_trace_roundtrip --write SNAPSHOT FILE, for another reader to judge
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "trace/formats/formats.h"
#include "trace/formats/ftrace.h"
#include "trace/formats/text.h"
#include "trace/trace/trace.h"

#define EVENT_BYTES_MAX 6 /* of files of some size, without their texts, frames and stacks */
#define EVENTS_MIN      300

typedef bool (*writer)(const struct flw_trace *trace, const char *path, char *message);

static char path[] = "/tmp/fallow_trace_XXXXXX"; /* to write to */
static int failures;

static void expect(bool holds, const struct flw_trace *trace, const char *form, const char *what)
{
    if (!holds) {
        printf("%s as %s: %s\n", trace->source, form, what);
        failures++;
    }
}

/* ---- the trace file ---- */

struct bytes {
    char *at;
    size_t count;
};

/* codec -1: as text */
static struct bytes print(const struct flw_trace *trace, int codec)
{
    struct bytes bytes = {NULL, 0};
    FILE *file = open_memstream(&bytes.at, &bytes.count);
    bool is_printed = codec < 0 ? flw_text_print(trace, file)
                                : flw_ftrace_print(trace, (enum flw_record_codec)codec, file);
    expect(is_printed, trace, "a file", "cannot be written");
    fclose(file);
    return bytes;
}

/* What a file has once for all its events: texts, and at most so much for each frame and stack. */
static size_t dictionary_bytes(const struct flw_trace *trace)
{
    const struct flw_stacks *stacks = &trace->stacks;
    return stacks->texts.text_bytes + 16 * stacks->frame_count + 8 * stacks->stack_count +
           stacks->byte_count;
}

/* Through a file: the trace that it holds; NULL: none, and said so. */
static struct flw_trace *check_file(const struct flw_trace *trace, enum flw_record_codec codec)
{
    char message[FLW_TRACE_MESSAGE_BYTES];
    struct flw_trace *again;
    struct bytes text = print(trace, -1), file = print(trace, (int)codec);
    bool is_read = flw_trace_read_bytes(file.at, file.count, "file", -1, &again, message);
    expect(is_read, trace, "a file", message);
    if (is_read) {
        struct bytes other = print(again, -1);
        expect(again->truncation == NULL && flw_trace_is_valid(again), trace, "a file",
               "is not whole");
        expect(other.count == text.count && memcmp(other.at, text.at, text.count) == 0, trace,
               "a file", "another text");
        free(other.at);
    }
    if (codec == FLW_RECORD_PACKED && trace->event_count >= EVENTS_MIN) {
        printf("%s: %zu events, %.2f bytes each\n", trace->source, trace->event_count,
               (double)file.count / (double)trace->event_count);
        expect(file.count <= EVENT_BYTES_MAX * trace->event_count + dictionary_bytes(trace), trace,
               "a file", "costs more than 6 bytes an event");
    }
    free(text.at);
    free(file.at);
    return again;
}

/* ---- the forms of others ---- */

/* What of a record is compared. */
enum {
    ADDRESSES = 1,
    STREAMS = 2,
    TIMES = 4,
    STACKS = 8,
    COMMAS = 16 /* a semicolon of a name is one */
};

static uint64_t mix(uint64_t digest, uint64_t value)
{
    return ((digest ^ value) * UINT64_C(0x9E3779B97F4A7C15)) ^ digest >> 29;
}

static uint64_t mix_name(uint64_t digest, const char *name, int keeps)
{
    for (; *name != '\0'; name++) {
        digest = mix(digest, *name == ';' && (keeps & COMMAS) ? ',' : (unsigned char)*name);
    }
    return mix(digest, 0);
}

static uint64_t mix_stack(uint64_t digest, const struct flw_trace *trace, size_t record, int keeps)
{
    struct flw_stack_walk walk = flw_stacks_walk(&trace->stacks, flw_trace_stack(trace, record));
    for (uint32_t number; (keeps & STACKS) && flw_stacks_next(&walk, &number);) {
        const struct flw_frame *frame = &trace->stacks.frames[number];
        digest = mix_name(digest, flw_stacks_text(&trace->stacks, frame->function), keeps);
        digest = mix_name(digest, flw_stacks_text(&trace->stacks, frame->file), keeps);
        digest = mix(digest, frame->line);
    }
    return digest;
}

static bool is_block_event(const struct flw_trace_event *event)
{
    return (event->op == FLW_TRACE_ALLOC && event->size_bytes > 0) || event->op == FLW_TRACE_FREE;
}

/* A number for each event of a block; times from the first one on. The caller frees them. */
static uint64_t *digest_events(const struct flw_trace *trace, int keeps, size_t *out_count)
{
    uint64_t *digests = calloc(trace->event_count + 1, sizeof(*digests)), begin_us = 0;
    *out_count = 0;
    for (size_t i = 0; i < trace->event_count; i++) {
        const struct flw_trace_event *event = &trace->events[i];
        if (is_block_event(event)) {
            begin_us = *out_count == 0 ? event->time_ns / 1000 : begin_us;
            uint64_t digest = mix(event->op, event->size_bytes);
            digest = mix(digest, keeps & ADDRESSES ? event->address : 0);
            digest = mix(digest, keeps & STREAMS ? trace->streams[event->stream] : 0);
            digest = mix(digest, keeps & TIMES ? event->time_ns / 1000 - begin_us : 0);
            digests[(*out_count)++] = mix_stack(digest, trace, trace->initial_count + i, keeps);
        }
    }
    return digests;
}

static bool has_op(const struct flw_trace *trace, uint8_t op)
{
    bool has = false;
    for (size_t i = 0; i < trace->event_count; i++) {
        has |= trace->events[i].op == op;
    }
    return has;
}

/* Their bytes, mixed with the stacks that they have there. */
static uint64_t sum_start(const struct flw_trace *trace, int keeps)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < trace->initial_count; i++) {
        sum += mix_stack(trace->blocks[i].size_bytes, trace, i, keeps);
    }
    return sum;
}

/* What is written of `from`, which is `trace`, and read again; NULL: failed, and said so. */
static struct flw_trace *check_form(const struct flw_trace *trace, const struct flw_trace *from,
                                    const char *form, writer write, int device, int keeps)
{
    char message[FLW_TRACE_MESSAGE_BYTES];
    struct flw_trace *again = NULL;
    if (!write(from, path, message) || !flw_trace_read(path, device, &again, message)) {
        expect(false, trace, form, message);
        return NULL;
    }
    size_t count, other_count, at = 0;
    keeps &= trace->has_addresses ? ~0 : ~ADDRESSES;
    keeps &= trace->has_times && again->has_times ? ~0 : ~TIMES;
    uint64_t *digests = digest_events(trace, keeps, &count);
    uint64_t *others = digest_events(again, keeps, &other_count);
    while (at < count && at < other_count && digests[at] == others[at]) {
        at++;
    }
    if (trace->initial_count == 0 ||
        (keeps & STACKS)) { /* else the blocks of the start are events there */
        snprintf(message, sizeof message, "another event (block event %zu of %zu)", at, count);
        expect(at == count && at == other_count, trace, form, message);
        expect(again->unknown_free_count + again->lost_free_count == 0, trace, form, "has gaps");
    }
    expect(flw_trace_is_valid(again), trace, form, "is not valid");
    free(digests);
    free(others);
    return again;
}

/* Through a trace file, too. */
static void check_pytorch(const struct flw_trace *trace, const struct flw_trace *packed)
{
    static const char form[] = "pytorch pickle";
    const int keeps = ADDRESSES | STREAMS | TIMES | STACKS;
    struct flw_trace *again =
        check_form(trace, packed, form, flw_trace_write_pytorch, trace->device, keeps);
    if (again != NULL) {
        bool is_snapshot = strcmp(trace->format, form) == 0;
        expect(again->initial_count == trace->initial_count &&
                   sum_start(again, keeps) == sum_start(trace, keeps) &&
                   again->peak_requested_bytes == trace->peak_requested_bytes,
               trace, form, "another heap at the start");
        expect(!is_snapshot ||
                   (again->event_count == trace->event_count &&
                    again->segment_count == trace->segment_count &&
                    again->recorded_peak_reserved_bytes == trace->recorded_peak_reserved_bytes),
               trace, form, "other events or segments");
        expect(has_op(trace, FLW_TRACE_FREE_DONE) || !has_op(trace, FLW_TRACE_FREE) ||
                   has_op(again, FLW_TRACE_FREE_DONE),
               trace, form, "frees are not completed");
    }
    flw_trace_destroy(again);
}

static void check_chrome(const struct flw_trace *trace)
{
    static const char form[] = "chrome json";
    if (!has_op(trace, FLW_TRACE_ALLOC) && !has_op(trace, FLW_TRACE_FREE)) {
        return; /* a profile of no memory event is refused */
    }
    struct flw_trace *again = check_form(trace, trace, form, flw_trace_write_chrome, trace->device,
                                         ADDRESSES | TIMES | STACKS | COMMAS);
    if (again != NULL) {
        expect(sum_start(again, 0) == sum_start(trace, 0), trace, form,
               "another heap at the start");
        expect(strstr(again->notes, "kineto_total_mismatches 0\n") != NULL, trace, form,
               "totals that do not add up");
        expect(has_op(trace, FLW_TRACE_FREE_DONE) ||
                   again->peak_requested_bytes == trace->peak_requested_bytes,
               trace, form, "another peak");
    }
    flw_trace_destroy(again);
}

static void check_rmm(const struct flw_trace *trace)
{
    struct flw_trace *again =
        check_form(trace, trace, "rmm csv", flw_trace_write_rmm, -1, ADDRESSES | STREAMS | TIMES);
    expect(again == NULL || (again->initial_count == 0 &&
                             again->alloc_count == trace->alloc_count + trace->initial_count),
           trace, "rmm csv", "another number of blocks");
    flw_trace_destroy(again);
}

static int write_snapshot(const char *out, const char *in)
{
    char message[FLW_TRACE_MESSAGE_BYTES];
    struct flw_trace *trace;
    if (!flw_trace_read(in, -1, &trace, message)) {
        printf("skipped: %s\n", message);
        return 77;
    }
    bool is_written = flw_trace_write_pytorch(trace, out, message);
    flw_trace_destroy(trace);
    printf("%s%s\n", is_written ? "wrote " : message, is_written ? out : "");
    return is_written ? 0 : 1;
}

int main(int argc, char **argv)
{
    char message[FLW_TRACE_MESSAGE_BYTES];
    int count = 0, fd;
    if (argc == 4 && strcmp(argv[1], "--write") == 0) {
        return write_snapshot(argv[2], argv[3]);
    }
    fd = mkstemp(path);
    if (fd < 0) {
        perror(path);
        return 1;
    }
    close(fd);
    for (int i = 1; i < argc; i++) {
        struct flw_trace *trace;
        if (!flw_trace_read(argv[i], -1, &trace, message)) {
            printf("left out: %s\n", message);
            continue;
        }
        count++;
        flw_trace_destroy(check_file(trace, FLW_RECORD_RAW));
        struct flw_trace *packed = check_file(trace, FLW_RECORD_PACKED);
        if (packed != NULL) {
            check_pytorch(trace, packed);
        }
        flw_trace_destroy(packed);
        check_chrome(trace);
        check_rmm(trace);
        flw_trace_destroy(trace);
    }
    unlink(path);
    printf("%d traces, %d differences\n", count, failures);
    return failures > 0 ? 1 : count == 0 ? 77 : 0;
}
