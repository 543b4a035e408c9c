/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the demo trace that ships: its generator gives it again, byte for byte, and it is what a
 * demo needs. Usage: test_trace_demo FILE
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trace/formats/formats.h"
#include "trace/formats/text.h"
#include "trace/gen/serve.h"

static int failures;

static void expect(bool holds, const char *what)
{
    if (!holds) {
        printf("failed: %s\n", what);
        failures++;
    }
}

static char *print(const struct flw_trace *trace, size_t *out_bytes)
{
    char *text = NULL;
    FILE *file = open_memstream(&text, out_bytes);
    if (file == NULL) {
        return NULL;
    }
    flw_text_print(trace, file);
    return fclose(file) == 0 ? text : NULL;
}

static size_t count_uses_by_other_streams(const struct flw_trace *trace)
{
    size_t count = 0;
    for (size_t i = 0; i < trace->event_count; i++) {
        const struct flw_trace_event *event = &trace->events[i];
        count += event->op == FLW_TRACE_USE && event->stream != trace->blocks[event->block].stream;
    }
    return count;
}

static bool has_stacks(const struct flw_trace *trace)
{
    for (size_t i = 0; i < trace->event_count; i++) {
        if (trace->events[i].op == FLW_TRACE_ALLOC && flw_trace_stack(trace, i) == 0) {
            return false;
        }
    }
    return true;
}

static void check(const struct flw_trace *shipped, const struct flw_trace *made)
{
    size_t shipped_bytes = 0;
    size_t made_bytes = 0;
    char *shipped_text = print(shipped, &shipped_bytes);
    char *made_text = print(made, &made_bytes);
    expect(shipped_text != NULL && made_text != NULL, "there is memory for the texts");
    expect(shipped_text != NULL && made_text != NULL && shipped_bytes == made_bytes &&
               memcmp(shipped_text, made_text, made_bytes) == 0,
           "the generator gives the shipped trace, byte for byte");
    expect(flw_trace_is_valid(shipped) && flw_trace_is_valid(made), "both are valid");
    expect(shipped->alloc_count >= 5000, "it has several thousand allocations");
    expect(shipped->stream_count == 2, "it has two streams");
    expect(count_uses_by_other_streams(shipped) > 100, "blocks are used across streams");
    expect(has_stacks(shipped), "each allocation has a call stack");
    free(shipped_text);
    free(made_text);
}

int main(int argc, char **argv)
{
    char message[FLW_TRACE_MESSAGE_BYTES];
    struct flw_trace *shipped;
    struct flw_trace *made;
    struct flw_serve_params params = flw_serve_demo();
    if (argc != 2) {
        fprintf(stderr, "usage: test_trace_demo FILE\n");
        return 2;
    }
    if (!flw_trace_read(argv[1], -1, &shipped, message)) {
        printf("%s\n", message);
        return 1;
    }
    if (!flw_serve_generate(&params, &made)) {
        printf("no memory to generate it\n");
        flw_trace_destroy(shipped);
        return 1;
    }
    check(shipped, made);
    params.seed++;
    struct flw_trace *other = NULL;
    expect(flw_serve_generate(&params, &other) &&
               other->peak_requested_bytes != made->peak_requested_bytes,
           "another seed gives another trace");
    flw_trace_destroy(other);
    flw_trace_destroy(made);
    flw_trace_destroy(shipped);
    return failures == 0 ? 0 : 1;
}
