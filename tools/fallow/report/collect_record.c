/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a policy's part of an analysis without a replay: from the trace's own record, or from the program alone.
 */
#include "report/collect.h"

#include <string.h>

#include "base/bits.h"
#include "trace/trace/final_heap.h"
#include "trace/trace/notes.h"
#include "trace/trace/trace.h"

#include "common/tool_host.h"
#include "report/observer.h"

/* The recorded heap while the trace's events are walked. */
struct record {
    const struct flw_trace *trace;
    const struct flw_program *program;
    struct flw_observer observer; /* the segments are those of its view */
    uint64_t *addresses;          /* by block; 0 = not allocated */
    uint64_t *until_ops;   /* by block: the op that makes the memory reusable; op_count if none */
    uint64_t *block_bytes; /* by block: rounded up like PyTorch's; NULL: the requested sizes */
    uint64_t live_bytes, reserved_bytes;
    uint64_t pending_bytes, pending_count; /* freed, not yet reusable */
    uint64_t segment_bytes;                /* sum of segments */
    bool is_inconsistent; /* segments are missing: more bytes live or in segments than reserved */
};

/* ---- segments ---- */

/* Append the part of a segment from `begin` to `end`, if there is any. */
static void push_part(struct record *record, struct flw_analysis_segment segment, uint64_t begin,
                      uint64_t end)
{
    struct flw_heapview *view = &record->observer.view;
    if (begin < end) {
        segment.address = begin;
        segment.bytes = end - begin;
        record->segment_bytes += segment.bytes;
        flw_heapview_make_segments(view, view->segment_count + 1);
        view->segments[view->segment_count - 1] = segment;
    }
}

/* Remove a range from all segments, and add it as a segment if `is_taken`. */
static void put_range(struct record *record, struct flw_analysis_segment range, bool is_taken)
{
    struct flw_heapview *view = &record->observer.view;
    struct flw_analysis_segment *old = view->segments;
    size_t count = view->segment_count;
    uint64_t begin = range.address, end = begin + range.bytes;
    view->segments = NULL;
    view->segment_count = view->segment_capacity = 0;
    record->segment_bytes = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t old_end = old[i].address + old[i].bytes;
        push_part(record, old[i], old[i].address, flw_min(old_end, begin));
        if (is_taken && old_end > begin) {
            push_part(record, range, begin, end);
            is_taken = false;
        }
        push_part(record, old[i], flw_max(old[i].address, end), old_end);
    }
    if (is_taken) {
        push_part(record, range, begin, end);
    }
    flw_host_free(old);
}

uint64_t flw_collect_reserved(const struct flw_trace_event *event, uint64_t reserved_bytes)
{
    switch (event->op) {
    case FLW_TRACE_SEGMENT_ALLOC:
    case FLW_TRACE_SEGMENT_MAP:
        return reserved_bytes + event->size_bytes;
    case FLW_TRACE_SEGMENT_FREE:
    case FLW_TRACE_SEGMENT_UNMAP:
        return reserved_bytes - flw_min(event->size_bytes, reserved_bytes);
    default:
        return reserved_bytes;
    }
}

static void note_segment(struct record *record, const struct flw_trace_event *event)
{
    bool is_mapped = event->op == FLW_TRACE_SEGMENT_MAP;
    record->reserved_bytes = flw_collect_reserved(event, record->reserved_bytes);
    if (event->address != 0 && event->size_bytes != 0 &&
        event->size_bytes <= UINT64_MAX - event->address) {
        put_range(record,
                  (struct flw_analysis_segment){.address = event->address,
                                                .bytes = event->size_bytes,
                                                .stream = event->stream,
                                                .is_mapped = is_mapped},
                  is_mapped || event->op == FLW_TRACE_SEGMENT_ALLOC);
    }
}

static void note_first_segments(struct record *record)
{
    const struct flw_trace *trace = record->trace;
    for (size_t i = 0; i < trace->segment_count; i++) {
        const struct flw_trace_segment *segment = &trace->segments[i];
        struct flw_trace_event event = {.op = segment->is_expandable ? FLW_TRACE_SEGMENT_MAP
                                                                     : FLW_TRACE_SEGMENT_ALLOC,
                                        .address = segment->address,
                                        .size_bytes = segment->size_bytes,
                                        .stream = segment->stream};
        note_segment(record, &event);
    }
}

/* The observer's view has the segments already. */
static void list_segments(struct flw_observer *observer, void *context)
{
    (void)observer;
    (void)context;
}

/* ---- the walk ---- */

static void note_free(struct record *record, uint32_t block, uint64_t op)
{
    uint64_t bytes = record->trace->blocks[block].size_bytes;
    if (record->until_ops[block] <= op) {
        record->live_bytes -= bytes;
        record->addresses[block] = 0;
        return;
    }
    record->pending_bytes += bytes;
    record->pending_count++;
    if (record->until_ops[block] ==
        record->program->op_count) { /* pending until the end, no longer requested */
        record->live_bytes -= bytes;
    }
}

static void note_done(struct record *record, uint32_t block)
{
    uint64_t bytes = record->trace->blocks[block].size_bytes;
    record->addresses[block] = 0;
    record->live_bytes -= bytes;
    record->pending_bytes -= bytes;
    record->pending_count--;
}

/* Allocate a block in the op, and show the allocation to the observer. */
static void allocate(struct record *record, uint32_t block, uint64_t op)
{
    const struct flw_trace_block *of = &record->trace->blocks[block];
    record->live_bytes += of->size_bytes;
    record->addresses[block] = of->address;
    flw_observer_alloc(&record->observer, op, of->address, 0);
}

static void note_event(struct record *record, const struct flw_trace_event *event, uint64_t op)
{
    if (event->op <= FLW_TRACE_FREE_DONE && event->size_bytes == 0) {
        return;
    }
    switch (event->op) {
    case FLW_TRACE_ALLOC:
        allocate(record, event->block, op);
        break;
    case FLW_TRACE_FREE:
        note_free(record, event->block, op);
        break;
    case FLW_TRACE_FREE_DONE:
        note_done(record, event->block);
        break;
    case FLW_TRACE_OOM: /* records the heap after the previous op */
        flw_observer_fail(&record->observer, op - (op != 0), event->size_bytes);
        break;
    default:
        if (event->op <= FLW_TRACE_SEGMENT_UNMAP) {
            note_segment(record, event);
        }
        break;
    }
}

/* Note what is held during the op, and end the op if `is_end`. */
static void note_op(struct record *record, uint64_t op, bool is_end)
{
    record->is_inconsistent |= record->live_bytes > record->reserved_bytes ||
                               record->segment_bytes > record->reserved_bytes;
    flw_observer_note(&record->observer, op, record->live_bytes, record->reserved_bytes);
    if (is_end) {
        flw_observer_end_op(&record->observer, op);
    }
}

/* Walk the blocks and segments of the start and the first events. The last op ends if these are all events. */
static void walk(struct record *record, size_t event_count)
{
    const struct flw_trace *trace = record->trace;
    uint64_t op = 0;
    flw_observer_begin(&record->observer);
    record->observer.view.addresses = record->addresses;
    record->observer.view.block_bytes = record->block_bytes;
    note_first_segments(record);
    for (size_t i = 0; i < trace->initial_count; i++) {
        if (trace->blocks[i].size_bytes != 0) {
            allocate(record, (uint32_t)i, op);
            note_op(record, op++, true);
        }
    }
    for (size_t i = 0; i < event_count; i++) {
        bool has_op = flw_program_has_op(record->program, i);
        note_event(record, &trace->events[i], op);
        note_op(record, op, has_op);
        op += has_op;
    }
    if (event_count == trace->event_count) {
        note_op(record, op, true); /* the end is an op too */
    }
}

/* Find by block the op that makes the memory reusable. */
static void find_untils(struct record *record)
{
    const struct flw_trace *trace = record->trace;
    uint64_t op = record->program->initial_count;
    record->until_ops = flw_host_alloc(trace->block_count, sizeof *record->until_ops);
    for (size_t i = 0; i < trace->block_count; i++) {
        record->until_ops[i] = record->program->op_count;
    }
    for (size_t i = 0; i < trace->event_count; i++) {
        const struct flw_trace_event *event = &trace->events[i];
        if ((event->op == FLW_TRACE_FREE && !trace->blocks[event->block].waits) ||
            event->op == FLW_TRACE_FREE_DONE) {
            record->until_ops[event->block] = op;
        }
        op += flw_program_has_op(record->program, i);
    }
}

static struct record begin_record(const struct flw_analysis *analysis)
{
    const struct flw_trace *trace = analysis->trace;
    struct record record = {.trace = trace, .program = analysis->program};
    int bytes = 0;
    const char *origin = flw_notes_find(trace->notes, "origin", &bytes);
    record.addresses = flw_host_alloc(trace->block_count, sizeof *record.addresses);
    find_untils(&record);
    if (origin != NULL && strncmp(origin, "pytorch snapshot", 16) == 0) {
        record.block_bytes = flw_host_alloc(trace->block_count, sizeof *record.block_bytes);
        for (size_t i = 0; i < trace->block_count; i++) {
            record.block_bytes[i] = flw_final_heap_round(trace->blocks[i].size_bytes);
        }
    }
    return record;
}

static void finish_record(struct record *record)
{
    flw_host_free(record->addresses);
    flw_host_free(record->until_ops);
    flw_host_free(record->block_bytes);
}

/* Collect in one pass. Returns false if another pass must follow, which knows the peaks or that segments are
 * missing. */
static bool collect_once(struct flw_analysis *analysis, struct flw_analysis_policy *policy,
                         struct record *record, bool is_again)
{
    const struct flw_trace *trace = analysis->trace;
    bool knows_reserved = policy->result->statistics.peak_reserved_bytes != FLW_NOT_APPLICABLE &&
                          trace->has_segments && !record->is_inconsistent;
    *record = (struct record){.trace = trace,
                              .program = record->program,
                              .addresses = record->addresses,
                              .until_ops = record->until_ops,
                              .block_bytes = record->block_bytes};
    record->observer = (struct flw_observer){
        .analysis = analysis,
        .policy = policy,
        .is_again = is_again && knows_reserved,
        .knows_reserved = knows_reserved,
        .has_lanes = true,
        .list_segments = knows_reserved && trace->has_addresses ? list_segments : NULL,
        .until_ops = record->until_ops};
    memset(record->addresses, 0, trace->block_count * sizeof *record->addresses);
    walk(record, trace->event_count);
    bool is_whole = flw_observer_finish(&record->observer);
    return is_whole && (!knows_reserved || !record->is_inconsistent);
}

void flw_collect_record(struct flw_analysis *analysis, struct flw_analysis_policy *policy)
{
    struct record record = begin_record(analysis);
    if (!collect_once(analysis, policy, &record, false)) {
        flw_analysis_drop(policy);
        collect_once(analysis, policy, &record, true);
    }
    finish_record(&record);
}

/* ---- at the failed request ---- */

/* Join mapped pieces of one range. */
static void join_ranges(struct flw_heapview *view)
{
    size_t count = 0;
    for (size_t i = 0; i < view->segment_count; i++) {
        const struct flw_analysis_segment *segment = &view->segments[i];
        struct flw_analysis_segment *last = &view->segments[count - (count != 0)];
        if (count != 0 && segment->is_mapped && last->is_mapped &&
            last->stream == segment->stream && last->address + last->bytes == segment->address) {
            last->bytes += segment->bytes;
        } else {
            view->segments[count++] = *segment;
        }
    }
    view->segment_count = count;
}

uint64_t flw_collect_oom_heap(struct flw_analysis *analysis, struct flw_analysis_holes *out_holes)
{
    struct record record = begin_record(analysis);
    struct flw_heapview *view = &record.observer.view;
    struct flw_analysis_policy unused = {.result = NULL};
    record.observer.analysis = analysis;
    record.observer.policy = &unused;
    walk(&record, (size_t)analysis->oom.event - 1);
    for (size_t i = 0; i < analysis->trace->block_count; i++) {
        if (record.addresses[i] != 0) {
            flw_heapview_add(view, (uint32_t)i);
        }
    }
    join_ranges(view);
    flw_heapview_look(view);
    flw_heapview_measure(view, out_holes);
    analysis->oom.pending_bytes = record.pending_bytes;
    analysis->oom.pending_count = record.pending_count;
    flw_observer_finish(&record.observer);
    finish_record(&record);
    return record.reserved_bytes;
}

/* ---- memory reserved before the recording ---- */

#define UNUSED_LEAST (UINT64_C(1) << 20)

static void keep_unused(void *unused, uint64_t address, uint64_t bytes)
{
    if (bytes > UNUSED_LEAST) {
        push_part(unused, (struct flw_analysis_segment){0}, address, address + bytes);
    }
}

/* Fill the segments of `unused` with the stretches of the first segments that no block of the trace uses. */
static void find_unused(const struct flw_trace *trace, struct record *unused)
{
    struct record record = {.trace = trace};
    struct flw_heapview *view = &record.observer.view;
    FLW_LOCAL uint64_t *addresses = flw_host_alloc(trace->block_count, sizeof *addresses);
    view->trace = trace;
    view->addresses = addresses;
    note_first_segments(&record);
    for (size_t i = 0; i < trace->block_count; i++) {
        addresses[i] = trace->blocks[i].address;
        flw_heapview_add(view, (uint32_t)i);
    }
    flw_heapview_look(view);
    flw_heapview_each_hole(view, keep_unused, unused);
    flw_heapview_finish(view);
}

uint64_t flw_collect_unused(const struct flw_trace *trace)
{
    struct record unused = {.trace = trace};
    uint64_t reserved_bytes = trace->recorded_initial_reserved_bytes;
    uint64_t peak_bytes = reserved_bytes;
    if (!trace->has_segments || !trace->has_addresses || trace->segment_count == 0) {
        return 0;
    }
    find_unused(trace, &unused);
    uint64_t used_bytes = reserved_bytes - flw_min(unused.segment_bytes, reserved_bytes);
    for (size_t i = 0; i < trace->event_count; i++) {
        const struct flw_trace_event *event = &trace->events[i];
        bool is_given = event->op == FLW_TRACE_SEGMENT_FREE || event->op == FLW_TRACE_SEGMENT_UNMAP;
        if (is_given && event->size_bytes <= UINT64_MAX - event->address) {
            put_range(&unused,
                      (struct flw_analysis_segment){.address = event->address,
                                                    .bytes = event->size_bytes},
                      false);
        }
        reserved_bytes = flw_collect_reserved(event, reserved_bytes);
        peak_bytes = flw_max(peak_bytes, reserved_bytes);
        used_bytes =
            flw_max(used_bytes, reserved_bytes - flw_min(unused.segment_bytes, reserved_bytes));
    }
    flw_heapview_finish(&unused.observer.view);
    return peak_bytes - used_bytes;
}

/* ---- the bound ---- */

void flw_collect_bound(struct flw_analysis *analysis, struct flw_analysis_policy *policy)
{
    const struct flw_program *program = analysis->program;
    struct flw_observer observer = {.analysis = analysis, .policy = policy, .knows_reserved = true};
    uint64_t live_bytes = 0;
    flw_observer_begin(&observer);
    for (size_t i = 0; i < program->op_count; i++) {
        live_bytes += flw_op_change(&program->ops[i]);
        flw_observer_note(&observer, i, live_bytes, live_bytes);
        flw_observer_end_op(&observer, i);
    }
    flw_observer_finish(&observer);
}
