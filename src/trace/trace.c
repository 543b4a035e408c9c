/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a trace's lifetime, and which reader a file's first bytes call for.
 * Does not: go by file names.
 */
#include "trace/trace.h"

#include <stdlib.h>
#include <string.h>

#include "trace/ftrace.h"
#include "trace/gtrace.h"
#include "trace/input.h"
#include "trace/kineto.h"
#include "trace/largearray.h"
#include "trace/minimalloc.h"
#include "trace/mistaken.h"
#include "trace/pytorch.h"
#include "trace/rmm.h"
#include "trace/stalloc.h"
#include "trace/text.h"

_Static_assert(sizeof(struct flw_trace_event) == 32, "two events a line");

void flw_trace_destroy(struct flw_trace *trace)
{
    if (trace != NULL) {
        free(trace->source);
        free(trace->format);
        flw_largearray_free(trace->events, trace->event_room, sizeof(*trace->events));
        flw_largearray_free(trace->blocks, trace->block_room, sizeof(*trace->blocks));
        free(trace->segments);
        free(trace->streams);
        free(trace->notes);
        free(trace->truncation);
        for (size_t i = 0; i < trace->name_count; i++) {
            free(trace->names[i]);
        }
        free(trace->names);
        free(trace->details);
        free(trace->contexts);
        free(trace->remarks);
        flw_stacks_finish(&trace->stacks);
        flw_largearray_free(trace->record_stacks, trace->record_stack_room,
                            sizeof(*trace->record_stacks));
        free(trace);
    }
}

const struct flw_trace_detail *flw_trace_walk_detail(const struct flw_trace *trace,
                                                     struct flw_trace_walk *walk, size_t event)
{
    while (walk->next_detail < trace->detail_count &&
           trace->details[walk->next_detail].event < event) {
        walk->next_detail++;
    }
    return walk->next_detail < trace->detail_count &&
                   trace->details[walk->next_detail].event == event
               ? &trace->details[walk->next_detail]
               : NULL;
}

const struct flw_trace_context *flw_trace_walk_context(const struct flw_trace *trace,
                                                       struct flw_trace_walk *walk, size_t record)
{
    while (walk->next_context < trace->context_count &&
           trace->contexts[walk->next_context].record <= record) {
        walk->context = trace->contexts[walk->next_context++];
    }
    return &walk->context;
}

const struct flw_trace_remark *flw_trace_walk_remark(const struct flw_trace *trace,
                                                     struct flw_trace_walk *walk, size_t record)
{
    while (walk->next_remark < trace->remark_count &&
           trace->remarks[walk->next_remark].record <= record) {
        walk->remark = trace->remarks[walk->next_remark++];
    }
    return &walk->remark;
}

bool flw_trace_has_stacks(const struct flw_trace *trace)
{
    bool has_stacks = false;
    for (size_t i = 0; !has_stacks && i < trace->segment_count; i++) {
        has_stacks = trace->segments[i].stack != 0;
    }
    for (size_t i = 0; !has_stacks && i < trace->record_stack_count; i++) {
        has_stacks = trace->record_stacks[i] != 0;
    }
    return has_stacks;
}

const char *flw_trace_name(const struct flw_trace *trace, const struct flw_trace_detail *detail)
{
    return detail == NULL || detail->name == FLW_TRACE_NO_NAME ? NULL : trace->names[detail->name];
}

static bool begins_with(struct flw_input *input, const char *prefix)
{
    size_t count = strlen(prefix);
    return flw_input_fill(input, count) && memcmp(input->at, prefix, count) == 0;
}

/* JSON, perhaps after some space. */
static bool begins_with_bracket(struct flw_input *input)
{
    flw_input_fill(input, FLW_INPUT_FILL_BYTES);
    const unsigned char *at = input->at;
    while (at < input->end && (*at == ' ' || *at == '\n' || *at == '\t' || *at == '\r')) {
        at++;
    }
    return at < input->end && (*at == '{' || *at == '[');
}

/* The line forms hold one device; a trace of another one than asked for is given up. */
static bool is_of_device(struct flw_input *input, int device, struct flw_trace **trace)
{
    int recorded = (*trace)->device;
    if (device < 0 || device == recorded) {
        return true;
    }
    flw_trace_destroy(*trace);
    *trace = NULL;
    return flw_input_fail(input, 0, "has no device %d, only %d", device, recorded);
}

static bool read_any(struct flw_input *input, int device, bool goes_on,
                     struct flw_trace **out_trace)
{
    if (!flw_input_fill(input, 1)) {
        return flw_input_fail(input, 0, "the file is empty");
    }
    if (begins_with(input, "\x80") && !begins_with(input, "\x80\x02\x8a\nl")) {
        return flw_pytorch_read(input, device, out_trace);
    }
    if (begins_with(input, FLW_FTRACE_MAGIC)) {
        return flw_ftrace_read(input, goes_on, out_trace) && is_of_device(input, device, out_trace);
    }
    if (begins_with(input, FLW_TEXT_MAGIC)) {
        return flw_text_read(input, out_trace) && is_of_device(input, device, out_trace);
    }
    if (begins_with(input, FLW_GTRACE_MAGIC)) {
        return flw_gtrace_read(input, out_trace) && is_of_device(input, device, out_trace);
    }
    if (begins_with(input, "{\"fallow_rank\":")) {
        return flw_input_fail(input, 0,
                              "no trace but records of traces, which fallow report --json-lines "
                              "wrote; fallow report merge reads them");
    }
    const char *mistaken = flw_mistaken_tell(input);
    if (mistaken != NULL) {
        return flw_input_fail(input, 0, "%s", mistaken);
    }
    if (begins_with_bracket(input)) {
        return flw_kineto_read(input, device, out_trace);
    }
    if (begins_with(input, FLW_RMM_MAGIC)) {
        return flw_rmm_read(input, out_trace) && is_of_device(input, device, out_trace);
    }
    if (flw_minimalloc_is_next(input)) {
        return flw_minimalloc_read(input, out_trace) && is_of_device(input, device, out_trace);
    }
    if (flw_stalloc_is_next(input)) {
        return flw_stalloc_read(input, out_trace) && is_of_device(input, device, out_trace);
    }
    return flw_input_fail(
        input, 0,
        "neither a pickled PyTorch snapshot nor a fallow trace or its text, a profiler's "
        "JSON, an RMM log, STAlloc lines or a MiniMalloc problem");
}

static bool read_file(const char *path, int device, bool goes_on, struct flw_trace **out_trace,
                      char *message)
{
    struct flw_input input;
    *out_trace = NULL;
    if (!flw_input_open(&input, path, message)) {
        return false;
    }
    bool is_read = read_any(&input, device, goes_on, out_trace);
    if (!is_read) {
        flw_input_blame(&input);
    }
    flw_input_close(&input);
    return is_read;
}

bool flw_trace_read(const char *path, int device, struct flw_trace **out_trace, char *message)
{
    return read_file(path, device, false, out_trace, message);
}

bool flw_trace_read_damaged(const char *path, int device, struct flw_trace **out_trace,
                            char *message)
{
    return read_file(path, device, true, out_trace, message);
}

bool flw_trace_read_bytes(const void *bytes, size_t count, const char *name, int device,
                          struct flw_trace **out_trace, char *message)
{
    struct flw_input input;
    *out_trace = NULL;
    if (!flw_input_open_bytes(&input, bytes, count, name, message)) {
        return false;
    }
    bool is_read = read_any(&input, device, false, out_trace);
    if (!is_read) {
        flw_input_blame(&input);
    }
    flw_input_close(&input);
    return is_read;
}
