/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: writing traces in every form that others read and reading them back: the same blocks, in the
 * same order, at the same times as far as the form has them.
 * Usage: test_trace_export FILE... (what cannot be read, or is not there, is left out; no trace at
 * all: exit 77), or test_trace_export --write SNAPSHOT FILE
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "trace/formats/formats.h"
#include "trace/trace/trace.h"
#include "unit/trace/each_trace.h"

static const char *path; /* to write to */
static int failures;

typedef bool (*writer)(const struct flw_trace *trace, const char *path, char *message);

static void complain(const struct flw_trace *trace, const char *form, const char *what, size_t at)
{
    printf("%s as %s: %s (%zu)\n", trace->source, form, what, at);
    failures++;
}

static bool is_block_event(const struct flw_trace_event *event)
{
    return event->op == FLW_TRACE_ALLOC || event->op == FLW_TRACE_FREE;
}

static bool has_op(const struct flw_trace *trace, uint8_t op)
{
    bool has = false;
    for (size_t i = 0; i < trace->event_count; i++) {
        has |= trace->events[i].op == op;
    }
    return has;
}

/* Some forms begin with the first block, others with a segment before it. */
static uint64_t first_us(const struct flw_trace *trace)
{
    size_t i = 0;
    while (i < trace->event_count && !is_block_event(&trace->events[i])) {
        i++;
    }
    return i < trace->event_count ? trace->events[i].time_ns / 1000 : 0;
}

/* Do allocations and frees concern the same blocks in the same order at the same microseconds? */
static void compare_blocks(const struct flw_trace *trace, const struct flw_trace *again,
                           const char *form, bool has_streams)
{
    uint64_t begin_us = first_us(trace);
    uint64_t again_us = first_us(again);
    size_t at = 0;
    for (size_t i = 0; i < trace->event_count; i++) {
        const struct flw_trace_event *event = &trace->events[i];
        if (!is_block_event(event) || (event->op == FLW_TRACE_ALLOC && event->size_bytes == 0)) {
            continue;
        }
        while (at < again->event_count && !is_block_event(&again->events[at])) {
            at++;
        }
        if (at == again->event_count) {
            complain(trace, form, "ends too early", i);
            return;
        }
        const struct flw_trace_event *other = &again->events[at++];
        if (other->op != event->op || other->size_bytes != event->size_bytes) {
            complain(trace, form, "another event", i);
            return;
        }
        if (trace->has_addresses && other->address != event->address) {
            complain(trace, form, "another address", i);
            return;
        }
        if (has_streams && trace->streams[event->stream] != again->streams[other->stream]) {
            complain(trace, form, "another stream", i);
            return;
        }
        if (trace->has_times && again->has_times &&
            other->time_ns / 1000 - again_us != event->time_ns / 1000 - begin_us) {
            complain(trace, form, "another time", i);
            return;
        }
    }
    while (at < again->event_count && !is_block_event(&again->events[at])) {
        at++;
    }
    if (at != again->event_count) {
        complain(trace, form, "more events than there were", at);
    }
    if (again->unknown_free_count + again->lost_free_count > 0) {
        complain(trace, form, "has gaps", again->lost_free_count);
    }
}

/* NULL: failed, and said so. */
static struct flw_trace *write_and_read(const struct flw_trace *trace, writer write,
                                        const char *form, int device)
{
    char message[FLW_TRACE_MESSAGE_BYTES];
    struct flw_trace *again = NULL;
    if (!write(trace, path, message) || !flw_trace_read(path, device, &again, message)) {
        printf("%s as %s: %s\n", trace->source, form, message);
        failures++;
        return NULL;
    }
    if (!flw_trace_is_valid(again)) {
        complain(trace, form, "is not valid", 0);
    }
    return again;
}

/* ---- a form each ---- */

static uint64_t sum_blocks(const struct flw_trace *trace)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < trace->initial_count; i++) {
        bytes += trace->blocks[i].size_bytes;
    }
    return bytes;
}

static void check_pytorch(const struct flw_trace *trace)
{
    struct flw_trace *again =
        write_and_read(trace, flw_trace_write_pytorch, "pytorch pickle", trace->device);
    if (again == NULL) {
        return;
    }
    compare_blocks(trace, again, "pytorch pickle", true);
    if (again->initial_count != trace->initial_count || sum_blocks(again) != sum_blocks(trace) ||
        again->peak_requested_bytes != trace->peak_requested_bytes) {
        complain(trace, "pytorch pickle", "another heap at the start", again->initial_count);
    }
    bool is_snapshot = strcmp(trace->format, "pytorch pickle") == 0;
    if (is_snapshot &&
        (again->event_count != trace->event_count || again->segment_count != trace->segment_count ||
         again->recorded_initial_reserved_bytes != trace->recorded_initial_reserved_bytes ||
         again->recorded_peak_reserved_bytes != trace->recorded_peak_reserved_bytes ||
         again->recorded_segment_calls != trace->recorded_segment_calls)) {
        complain(trace, "pytorch pickle", "other segments", again->segment_count);
    }
    if (!has_op(trace, FLW_TRACE_FREE_DONE) && has_op(trace, FLW_TRACE_FREE) &&
        !has_op(again, FLW_TRACE_FREE_DONE)) {
        complain(trace, "pytorch pickle", "frees are not completed", 0);
    }
    flw_trace_destroy(again);
}

/* A semicolon is a comma there. */
static bool is_same_name(const struct flw_trace *trace, uint32_t text,
                         const struct flw_trace *again, uint32_t other)
{
    const char *a = flw_stacks_text(&trace->stacks, text);
    const char *b = flw_stacks_text(&again->stacks, other);
    while (*a != '\0' && (*a == *b || (*a == ';' && *b == ','))) {
        a++;
        b++;
    }
    return *a == *b;
}

static bool is_same_stack(const struct flw_trace *trace, size_t record,
                          const struct flw_trace *again, size_t other)
{
    struct flw_stack_walk walk = flw_stacks_walk(&trace->stacks, flw_trace_stack(trace, record));
    struct flw_stack_walk next = flw_stacks_walk(&again->stacks, flw_trace_stack(again, other));
    uint32_t number;
    while (flw_stacks_next(&walk, &number)) {
        const struct flw_frame *frame = &trace->stacks.frames[number];
        if (!flw_stacks_next(&next, &number)) {
            return false;
        }
        const struct flw_frame *seen = &again->stacks.frames[number];
        if (frame->line != seen->line ||
            !is_same_name(trace, frame->function, again, seen->function) ||
            !is_same_name(trace, frame->file, again, seen->file)) {
            return false;
        }
    }
    return !flw_stacks_next(&next, &number);
}

static void compare_stacks(const struct flw_trace *trace, const struct flw_trace *again,
                           const char *form)
{
    size_t at = 0;
    for (size_t i = 0; i < trace->event_count; i++) {
        const struct flw_trace_event *event = &trace->events[i];
        if (!is_block_event(event) || (event->op == FLW_TRACE_ALLOC && event->size_bytes == 0)) {
            continue;
        }
        while (at < again->event_count && !is_block_event(&again->events[at])) {
            at++;
        }
        if (at < again->event_count &&
            !is_same_stack(trace, trace->initial_count + i, again, again->initial_count + at++)) {
            complain(trace, form, "another call stack", i);
            return;
        }
    }
}

static void check_chrome(const struct flw_trace *trace)
{
    if (!has_op(trace, FLW_TRACE_ALLOC) && !has_op(trace, FLW_TRACE_FREE)) {
        return; /* a profile of no memory event is refused */
    }
    struct flw_trace *again =
        write_and_read(trace, flw_trace_write_chrome, "chrome json", trace->device);
    if (again == NULL) {
        return;
    }
    compare_blocks(trace, again, "chrome json", false);
    compare_stacks(trace, again, "chrome json");
    if (sum_blocks(again) != sum_blocks(trace)) {
        complain(trace, "chrome json", "another heap at the start", again->initial_count);
    }
    if (strstr(again->notes, "kineto_total_mismatches 0\n") == NULL) {
        complain(trace, "chrome json", "totals that do not add up", 0);
    }
    if (!has_op(trace, FLW_TRACE_FREE_DONE) &&
        again->peak_requested_bytes != trace->peak_requested_bytes) {
        complain(trace, "chrome json", "another peak", 0);
    }
    flw_trace_destroy(again);
}

/* The blocks of the start are allocations there. */
static void check_rmm(const struct flw_trace *trace)
{
    struct flw_trace *again = write_and_read(trace, flw_trace_write_rmm, "rmm csv", -1);
    if (again == NULL) {
        return;
    }
    if (trace->initial_count == 0) {
        compare_blocks(trace, again, "rmm csv", true);
    }
    if (again->initial_count != 0 ||
        again->alloc_count != trace->alloc_count + trace->initial_count) {
        complain(trace, "rmm csv", "another number of blocks", again->alloc_count);
    }
    flw_trace_destroy(again);
}

/* A snapshot for another reader to judge. */
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

static int check(const struct flw_trace *trace, const char *file)
{
    int before = failures;
    path = file;
    check_pytorch(trace);
    check_chrome(trace);
    check_rmm(trace);
    return failures - before;
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "--write") == 0) {
        return write_snapshot(argv[2], argv[3]);
    }
    return flw_each_trace(argc, argv, check);
}
