/* SPDX-License-Identifier: Apache-2.0 */
#include "report/collect.h"

#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "trace/trace/notes.h"
#include "trace/trace/remains.h"
#include "trace/trace/trace.h"

#include "common/tool_host.h"

/* The recorded heap while the trace's events are walked. */
struct record {
    const struct flw_trace *trace;
    struct flw_probe probe;
    uint64_t *addresses;   /* by block; 0 = not allocated */
    uint8_t *pending;      /* by block: freed, not yet reusable */
    uint64_t *block_bytes; /* by block: rounded up like PyTorch's; NULL: the requested sizes */
    bool *has_done;        /* by block: a FREE_DONE follows the FREE */
    uint64_t *until_ops;   /* by block: the op that makes the memory reusable; op_count if none */
    uint64_t live_bytes, reserved_bytes;
    struct flw_sheet_segment *segments; /* by address */
    size_t segment_count, segment_capacity;
    uint64_t segment_bytes; /* sum of segments */
    bool is_inconsistent;   /* segments are missing: more bytes live or in segments than reserved */
};

/* ---- segments ---- */

static void insert_segment(struct record *record, struct flw_sheet_segment segment)
{
    size_t at = record->segment_count;
    record->segments = flw_host_grow(record->segments, &record->segment_capacity, at + 1,
                                     sizeof *record->segments);
    while (at > 0 && record->segments[at - 1].address > segment.address) {
        record->segments[at] = record->segments[at - 1];
        at--;
    }
    record->segments[at] = segment;
    record->segment_count++;
    record->segment_bytes += segment.bytes;
}

/* Remove [begin, end) from all segments. */
static void remove_range(struct record *record, uint64_t begin, uint64_t end)
{
    size_t kept = 0;
    struct flw_sheet_segment tail = {0};
    for (size_t i = 0; i < record->segment_count; i++) {
        struct flw_sheet_segment segment = record->segments[i];
        uint64_t segment_end = segment.address + segment.bytes;
        if (segment_end <= begin || segment.address >= end) {
            record->segments[kept++] = segment;
            continue;
        }
        record->segment_bytes -= segment.bytes;
        if (segment_end > end) {
            tail = segment;
            tail.address = end;
            tail.bytes = segment_end - end;
        }
        if (segment.address < begin) {
            segment.bytes = begin - segment.address;
            record->segment_bytes += segment.bytes;
            record->segments[kept++] = segment;
        }
    }
    record->segment_count = kept;
    if (tail.bytes != 0) {
        insert_segment(record, tail);
    }
}

static void note_segment(struct record *record, const struct flw_trace_event *event)
{
    uint64_t end = event->address + event->size_bytes;
    bool is_taken = event->op == FLW_TRACE_SEGMENT_ALLOC || event->op == FLW_TRACE_SEGMENT_MAP;
    if (is_taken) {
        record->reserved_bytes += event->size_bytes;
    } else {
        record->reserved_bytes -= flw_min(event->size_bytes, record->reserved_bytes);
    }
    if (event->address == 0 || event->size_bytes == 0 || end < event->address) {
        return;
    }
    remove_range(record, event->address, end);
    if (is_taken) {
        insert_segment(record,
                       (struct flw_sheet_segment){.address = event->address,
                                                  .bytes = event->size_bytes,
                                                  .stream = event->stream,
                                                  .is_mapped = event->op == FLW_TRACE_SEGMENT_MAP});
    }
}

static void list_segments(struct flw_probe *probe, void *context)
{
    const struct record *record = context;
    flw_heapview_make_segments(&probe->view, record->segment_count);
    for (size_t i = 0; i < record->segment_count; i++) {
        probe->view.segments[i] = record->segments[i];
    }
}

/* ---- the walk ---- */

static void note(struct record *record, size_t op)
{
    record->is_inconsistent |= record->live_bytes > record->reserved_bytes ||
                               record->segment_bytes > record->reserved_bytes;
    flw_probe_note(&record->probe, op, record->live_bytes, record->reserved_bytes);
}

static void allocate(struct record *record, uint32_t block)
{
    record->live_bytes += record->trace->blocks[block].size_bytes;
    record->addresses[block] = record->trace->blocks[block].address;
}

static void drop(struct record *record, uint32_t block)
{
    record->live_bytes -= record->trace->blocks[block].size_bytes;
    record->addresses[block] = 0;
    record->pending[block] = 0;
}

static void pass_event(struct record *record, const struct flw_trace_event *event)
{
    switch (event->op) {
    case FLW_TRACE_ALLOC:
        if (event->size_bytes != 0) {
            allocate(record, event->block);
        }
        break;
    case FLW_TRACE_FREE:
        if (record->has_done[event->block]) {
            record->pending[event->block] = 1;
        } else if (record->trace->blocks[event->block]
                       .waits) { /* pending until the end, no longer requested */
            record->pending[event->block] = 1;
            record->live_bytes -= record->trace->blocks[event->block].size_bytes;
        } else {
            drop(record, event->block);
        }
        break;
    case FLW_TRACE_FREE_DONE:
        drop(record, event->block);
        break;
    case FLW_TRACE_SEGMENT_ALLOC:
    case FLW_TRACE_SEGMENT_FREE:
    case FLW_TRACE_SEGMENT_MAP:
    case FLW_TRACE_SEGMENT_UNMAP:
        note_segment(record, event);
        break;
    default:
        break;
    }
}

static void show_event(struct flw_probe *probe, const struct flw_trace_event *event, size_t op)
{
    if (event->op == FLW_TRACE_ALLOC && event->size_bytes != 0) {
        flw_probe_alloc(probe, op, probe->sheet->trace->blocks[event->block].address, 0);
    } else if (event->op == FLW_TRACE_OOM) {
        flw_probe_fail(probe, op - (op != 0),
                       event->size_bytes); /* records the heap after the previous op */
    }
}

static void begin_with_segments(struct record *record)
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

static void walk(struct record *record)
{
    const struct flw_trace *trace = record->trace;
    struct flw_probe *probe = &record->probe;
    size_t op = 0;
    begin_with_segments(record);
    for (size_t i = 0; i < trace->initial_count; i++) {
        if (trace->blocks[i].size_bytes != 0) {
            allocate(record, (uint32_t)i);
            flw_probe_alloc(probe, op, trace->blocks[i].address, 0);
            note(record, op);
            flw_probe_end_op(probe, op++);
        }
    }
    for (size_t i = 0; i < trace->event_count; i++) {
        const struct flw_trace_event *event = &trace->events[i];
        pass_event(record, event);
        show_event(probe, event, op);
        note(record, op);
        if (flw_program_has_op(probe->sheet->program, i)) {
            flw_probe_end_op(probe, op++);
        }
    }
    note(record, op); /* the end is an op too */
    flw_probe_end_op(probe, op);
}

static void find_dones(const struct flw_trace *trace, bool *has_done)
{
    for (size_t i = 0; i < trace->event_count; i++) {
        if (trace->events[i].op == FLW_TRACE_FREE_DONE) {
            has_done[trace->events[i].block] = true;
        }
    }
}

/* Find by block the op that makes the memory reusable; op_count if there is none. */
static uint64_t *find_untils(const struct record *record, const struct flw_program *program)
{
    const struct flw_trace *trace = record->trace;
    uint64_t *until_ops = flw_host_alloc(trace->block_count, sizeof *until_ops);
    uint64_t op = program->initial_count;
    for (size_t i = 0; i < trace->block_count; i++) {
        until_ops[i] = program->op_count;
    }
    for (size_t i = 0; i < trace->event_count; i++) {
        const struct flw_trace_event *event = &trace->events[i];
        bool is_done = event->op == FLW_TRACE_FREE && !record->has_done[event->block] &&
                       !trace->blocks[event->block].waits;
        if (is_done || event->op == FLW_TRACE_FREE_DONE) {
            until_ops[event->block] = op;
        }
        op += flw_program_has_op(program, i);
    }
    return until_ops;
}

/* Walk once. Returns false if another pass must follow, which knows the peaks or that segments are missing. */
static bool walk_once(struct record *record, struct flw_sheet *sheet, const struct flw_facts *facts,
                      struct flw_sheet_policy *policy, bool is_again)
{
    const struct flw_trace *trace = sheet->trace;
    bool knows_reserved = policy->result->statistics.peak_reserved_bytes != FLW_NOT_APPLICABLE &&
                          trace->has_segments && !record->is_inconsistent;
    record->live_bytes = record->reserved_bytes = 0;
    record->segment_count = 0;
    record->segment_bytes = 0;
    memset(record->addresses, 0, trace->block_count * sizeof *record->addresses);
    record->probe = (struct flw_probe){
        .sheet = sheet,
        .facts = facts,
        .policy = policy,
        .is_again = is_again && knows_reserved,
        .knows_reserved = knows_reserved,
        .has_lanes = true,
        .list_segments = knows_reserved && trace->has_addresses ? list_segments : NULL,
        .until_ops = record->until_ops,
        .context = record};
    record->probe.view.addresses = record->addresses;
    flw_probe_begin(&record->probe);
    record->probe.view.block_bytes = record->block_bytes;
    walk(record);
    bool is_whole = flw_probe_finish(&record->probe);
    return is_whole && (!knows_reserved || !record->is_inconsistent);
}

/* True if the recorded allocator rounds blocks up as PyTorch's does. */
static bool is_pytorch(const struct flw_trace *trace)
{
    int bytes = 0;
    const char *origin = flw_notes_find(trace->notes, "origin", &bytes);
    return origin != NULL && strncmp(origin, "pytorch snapshot", 16) == 0;
}

static struct record begin_record(const struct flw_trace *trace)
{
    struct record record = {.trace = trace};
    record.addresses = flw_host_alloc(trace->block_count, sizeof *record.addresses);
    record.pending = flw_host_alloc(trace->block_count, 1);
    record.has_done = flw_host_alloc(trace->block_count, 1);
    find_dones(trace, record.has_done);
    if (is_pytorch(trace)) {
        record.block_bytes = flw_host_alloc(trace->block_count, sizeof *record.block_bytes);
        for (size_t i = 0; i < trace->block_count; i++) {
            record.block_bytes[i] = flw_remains_round(trace->blocks[i].size_bytes);
        }
    }
    return record;
}

static void finish_record(struct record *record)
{
    flw_host_free(record->addresses);
    flw_host_free(record->pending);
    flw_host_free(record->has_done);
    flw_host_free(record->until_ops);
    flw_host_free(record->block_bytes);
    flw_host_free(record->segments);
}

void flw_collect_record(struct flw_sheet *sheet, const struct flw_facts *facts,
                        struct flw_sheet_policy *policy)
{
    struct record record = begin_record(sheet->trace);
    record.until_ops = find_untils(&record, sheet->program);
    if (!walk_once(&record, sheet, facts, policy, false)) {
        flw_sheet_drop(policy);
        walk_once(&record, sheet, facts, policy, true);
    }
    finish_record(&record);
}

/* ---- at one moment ---- */

/* Copy the segments and join mapped pieces of one range. */
static void list_ranges(const struct record *record, struct flw_heapview *view)
{
    size_t count = 0;
    flw_heapview_make_segments(view, record->segment_count);
    for (size_t i = 0; i < record->segment_count; i++) {
        const struct flw_sheet_segment *segment = &record->segments[i];
        struct flw_sheet_segment *last = count == 0 ? NULL : &view->segments[count - 1];
        if (last != NULL && segment->is_mapped && last->is_mapped &&
            last->stream == segment->stream && last->address + last->bytes == segment->address) {
            last->bytes += segment->bytes;
        } else {
            view->segments[count++] = *segment;
        }
    }
    view->segment_count = count;
}

void flw_collect_recorded_heap(const struct flw_trace *trace, size_t event,
                               struct flw_collect_heap *out)
{
    struct record record = begin_record(trace);
    struct flw_heapview view = {
        .trace = trace, .addresses = record.addresses, .block_bytes = record.block_bytes};
    *out = (struct flw_collect_heap){0};
    begin_with_segments(&record);
    for (size_t i = 0; i < trace->initial_count; i++) {
        allocate(&record, (uint32_t)i);
    }
    for (size_t i = 0; i < event; i++) {
        pass_event(&record, &trace->events[i]);
    }
    for (size_t i = 0; i < trace->block_count; i++) {
        if (record.addresses[i] != 0 && trace->blocks[i].size_bytes != 0) {
            flw_heapview_add(&view, (uint32_t)i);
        }
        if (record.pending[i] != 0) {
            out->pending_bytes += trace->blocks[i].size_bytes;
            out->pending_count++;
        }
    }
    list_ranges(&record, &view);
    flw_heapview_look(&view);
    flw_heapview_measure(&view, &out->holes);
    out->reserved_bytes = record.reserved_bytes;
    flw_heapview_finish(&view);
    finish_record(&record);
}

/* ---- memory reserved before the recording ---- */

#define UNUSED_LEAST (UINT64_C(1) << 20)

static int compare_ranges(const void *a, const void *b)
{
    uint64_t x = ((const struct flw_sheet_segment *)a)->address;
    uint64_t y = ((const struct flw_sheet_segment *)b)->address;
    return (x > y) - (x < y);
}

/* Reduce the segments of `record`, those of the start, to the stretches that no block of the trace uses. */
static void keep_unused(struct record *record)
{
    const struct flw_trace *trace = record->trace;
    struct flw_sheet_segment *blocks = flw_host_alloc(trace->block_count, sizeof *blocks);
    size_t count = record->segment_count, next = 0;
    struct flw_sheet_segment *segments = record->segments;
    record->segments = NULL;
    record->segment_count = record->segment_capacity = 0;
    record->segment_bytes = 0;
    for (size_t i = 0; i < trace->block_count; i++) {
        blocks[i] = (struct flw_sheet_segment){.address = trace->blocks[i].address,
                                               .bytes = trace->blocks[i].size_bytes};
    }
    qsort(blocks, trace->block_count, sizeof *blocks, compare_ranges);
    uint64_t used_end = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t end = segments[i].address + segments[i].bytes;
        uint64_t at = flw_max(segments[i].address, used_end);
        while (at < end) {
            bool has_block = next < trace->block_count && blocks[next].address < end;
            uint64_t gap_end = has_block ? flw_max(blocks[next].address, at) : end;
            if (gap_end - at > UNUSED_LEAST) {
                insert_segment(record,
                               (struct flw_sheet_segment){.address = at, .bytes = gap_end - at});
            }
            at = gap_end;
            if (has_block) {
                used_end = flw_max(used_end, blocks[next].address + blocks[next].bytes);
                at = flw_max(at, used_end);
                next++;
            }
        }
    }
    flw_host_free(blocks);
    flw_host_free(segments);
}

uint64_t flw_collect_unused(const struct flw_trace *trace)
{
    struct record record = {.trace = trace};
    if (!trace->has_segments || !trace->has_addresses || trace->segment_count == 0) {
        return 0;
    }
    begin_with_segments(&record);
    keep_unused(&record);
    uint64_t reserved_bytes = trace->recorded_initial_reserved_bytes;
    uint64_t peak_bytes = reserved_bytes;
    uint64_t used_bytes = reserved_bytes - flw_min(record.segment_bytes, reserved_bytes);
    for (size_t i = 0; i < trace->event_count; i++) {
        const struct flw_trace_event *event = &trace->events[i];
        bool is_taken = event->op == FLW_TRACE_SEGMENT_ALLOC || event->op == FLW_TRACE_SEGMENT_MAP;
        bool is_given = event->op == FLW_TRACE_SEGMENT_FREE || event->op == FLW_TRACE_SEGMENT_UNMAP;
        if (is_given && event->size_bytes <= UINT64_MAX - event->address) {
            remove_range(&record, event->address, event->address + event->size_bytes);
        }
        reserved_bytes += is_taken ? event->size_bytes : 0;
        reserved_bytes -= is_given ? flw_min(event->size_bytes, reserved_bytes) : 0;
        peak_bytes = flw_max(peak_bytes, reserved_bytes);
        used_bytes =
            flw_max(used_bytes, reserved_bytes - flw_min(record.segment_bytes, reserved_bytes));
    }
    flw_host_free(record.segments);
    return peak_bytes - used_bytes;
}

/* ---- the bound ---- */

void flw_collect_bound(struct flw_sheet *sheet, const struct flw_facts *facts,
                       struct flw_sheet_policy *policy)
{
    const struct flw_program *program = sheet->program;
    struct flw_probe probe = {
        .sheet = sheet, .facts = facts, .policy = policy, .knows_reserved = true};
    uint64_t live_bytes = 0;
    flw_probe_begin(&probe);
    for (size_t i = 0; i < program->op_count; i++) {
        live_bytes += flw_op_change(&program->ops[i]);
        flw_probe_note(&probe, i, live_bytes, live_bytes);
        flw_probe_end_op(&probe, i);
    }
    flw_probe_finish(&probe);
}
