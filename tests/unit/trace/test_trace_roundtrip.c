/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: traces through the trace file and back: text to file to text byte for byte, PyTorch to file to
 * PyTorch with the same events and stacks; and what a file costs.
 * Usage: test_trace_roundtrip FILE... (what cannot be read, or is not there, is left out; no trace at
 * all: exit 77)
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "trace/formats/formats.h"
#include "trace/formats/ftrace.h"
#include "trace/formats/text.h"
#include "unit/trace/each_trace.h"

#define EVENT_BYTES_MAX 6 /* of files of some size, without their texts, frames and stacks */
#define EVENTS_MIN      300

static int failures;

static void complain(const char *name, const char *what)
{
    printf("%s: %s\n", name, what);
    failures++;
}

struct bytes {
    char *at;
    size_t count;
};

static struct bytes print(const struct flw_trace *trace, int codec)
{
    struct bytes bytes = {NULL, 0};
    FILE *file = open_memstream(&bytes.at, &bytes.count);
    if (codec < 0) {
        flw_text_print(trace, file);
    } else if (!flw_ftrace_print(trace, (enum flw_record_codec)codec, file)) {
        complain(trace->source, "cannot be written");
    }
    fclose(file);
    return bytes;
}

/* NULL: failed, and said so. */
static struct flw_trace *read_back(const char *name, const struct bytes *bytes)
{
    char message[FLW_TRACE_MESSAGE_BYTES];
    struct flw_trace *trace;
    if (!flw_trace_read_bytes(bytes->at, bytes->count, name, -1, &trace, message)) {
        complain(name, message);
        return NULL;
    }
    if (trace->truncation != NULL) {
        complain(name, trace->truncation);
    }
    if (!flw_trace_is_valid(trace)) {
        complain(name, "is not valid");
    }
    return trace;
}

/* What a file has once for all its events: texts, and at most so much for each frame and stack. */
static size_t dictionary_bytes(const struct flw_trace *trace)
{
    const struct flw_stacks *stacks = &trace->stacks;
    return stacks->texts.text_bytes + 16 * stacks->frame_count + 8 * stacks->stack_count +
           stacks->byte_count;
}

static void check_text(const struct flw_trace *trace)
{
    struct bytes text = print(trace, -1);
    for (int codec = 0; codec < FLW_RECORD_CODEC_COUNT; codec++) {
        struct bytes file = print(trace, codec);
        struct flw_trace *again = read_back(trace->source, &file);
        if (again != NULL) {
            struct bytes other = print(again, -1);
            if (other.count != text.count || memcmp(other.at, text.at, text.count) != 0) {
                complain(trace->source, "another text after the file");
            }
            free(other.at);
            flw_trace_destroy(again);
        }
        if (codec == FLW_RECORD_PACKED && trace->event_count >= EVENTS_MIN) {
            printf("%s: %zu events, %.2f bytes each\n", trace->source, trace->event_count,
                   (double)file.count / (double)trace->event_count);
            if (file.count > EVENT_BYTES_MAX * trace->event_count + dictionary_bytes(trace)) {
                complain(trace->source, "costs more than 6 bytes an event");
            }
        }
        free(file.at);
    }
    free(text.at);
}

static bool is_same_stack(const struct flw_trace *a, const struct flw_trace *b, size_t record)
{
    struct flw_stack_walk x = flw_stacks_walk(&a->stacks, flw_trace_stack(a, record));
    struct flw_stack_walk y = flw_stacks_walk(&b->stacks, flw_trace_stack(b, record));
    uint32_t in_a, in_b;
    while (flw_stacks_next(&x, &in_a)) {
        if (!flw_stacks_next(&y, &in_b)) {
            return false;
        }
        const struct flw_frame *f = &a->stacks.frames[in_a], *g = &b->stacks.frames[in_b];
        if (f->line != g->line ||
            strcmp(flw_stacks_text(&a->stacks, f->function),
                   flw_stacks_text(&b->stacks, g->function)) != 0 ||
            strcmp(flw_stacks_text(&a->stacks, f->file), flw_stacks_text(&b->stacks, g->file)) !=
                0) {
            return false;
        }
    }
    return !flw_stacks_next(&y, &in_b);
}

static bool are_same_stacks(const struct flw_trace *a, const struct flw_trace *b)
{
    bool are_same = true;
    for (size_t i = 0; are_same && i < a->initial_count + a->event_count; i++) {
        are_same = is_same_stack(a, b, i);
    }
    return are_same;
}

/* As a snapshot, and that one read, each after a trip through a file. */
static void check_pytorch(const struct flw_trace *trace, const char *path)
{
    char message[FLW_TRACE_MESSAGE_BYTES];
    struct flw_trace *again = NULL;
    struct bytes file = print(trace, FLW_RECORD_PACKED);
    struct flw_trace *packed = read_back(trace->source, &file);
    free(file.at);
    if (packed == NULL) {
        return;
    }
    if (!flw_trace_write_pytorch(packed, path, message) ||
        !flw_trace_read(path, trace->device, &again, message)) {
        complain(trace->source, message);
    } else if (again->event_count != trace->event_count ||
               again->initial_count != trace->initial_count ||
               (trace->event_count > 0 &&
                memcmp(again->events, trace->events, trace->event_count * sizeof(*trace->events)) !=
                    0)) {
        complain(trace->source, "other events after file and snapshot");
    } else if (!are_same_stacks(again, trace)) {
        complain(trace->source, "other stacks after file and snapshot");
    }
    flw_trace_destroy(again);
    flw_trace_destroy(packed);
}

static int check(const struct flw_trace *trace, const char *path)
{
    int before = failures;
    check_text(trace);
    if (strcmp(trace->format, "pytorch pickle") == 0) {
        check_pytorch(trace, path);
    }
    return failures - before;
}

int main(int argc, char **argv)
{
    return flw_each_trace(argc, argv, check);
}
