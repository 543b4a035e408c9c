/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a trace's lifetime and the walks over it.
 */
#include "trace/trace/trace.h"

#include <stdlib.h>

#include "base/compare.h"
#include "trace/trace/largearray.h"

_Static_assert(sizeof(struct flw_trace_event) == 32, "two events a line");

void flw_trace_shrink(struct flw_trace *trace)
{
    flw_largearray_free(trace->events, trace->event_room, sizeof(*trace->events));
    flw_largearray_free(trace->blocks, trace->block_room, sizeof(*trace->blocks));
    flw_largearray_free(trace->record_stacks, trace->record_stack_room,
                        sizeof(*trace->record_stacks));
    trace->event_room = trace->block_room = trace->record_stack_room = 0;
    trace->events = NULL;
    trace->blocks = NULL;
    trace->record_stacks = NULL;
    free(trace->segments);
    free(trace->details);
    free(trace->contexts);
    free(trace->remarks);
    trace->segments = NULL;
    trace->details = NULL;
    trace->contexts = NULL;
    trace->remarks = NULL;
    flw_stacks_finish(&trace->stacks);
}

void flw_trace_destroy(struct flw_trace *trace)
{
    if (trace != NULL) {
        flw_trace_shrink(trace);
        free(trace->source);
        free(trace->format);
        free(trace->streams);
        free(trace->notes);
        free(trace->truncation);
        flw_intern_finish(&trace->names);
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

uint32_t flw_trace_pool(const struct flw_trace *trace, size_t record)
{
    size_t count = flw_count_below(trace->contexts, trace->context_count, sizeof *trace->contexts,
                                   (uint64_t)record + 1);
    return count > 0 ? trace->contexts[count - 1].pool : 0;
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
    return detail == NULL || detail->name == FLW_TRACE_NO_NAME
               ? NULL
               : flw_intern_text(&trace->names, detail->name);
}
