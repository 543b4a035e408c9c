/* SPDX-License-Identifier: Apache-2.0 */
#include "trace/formats/reader.h"

#include <stdlib.h>

#include "record/array.h"

enum stage {
    STAGE_LIVE,
    STAGE_FREED,
    STAGE_DONE
};

const char *flw_reader_step(struct flw_reader *reader, uint8_t op, uint64_t block)
{
    static const char *const names[] = {[STAGE_LIVE] = "not freed yet",
                                        [STAGE_FREED] = "already freed",
                                        [STAGE_DONE] = "already freed and reused"};
    uint8_t *stage = &reader->stages[block];
    if (*stage != (op == FLW_TRACE_FREE_DONE ? STAGE_FREED : STAGE_LIVE)) {
        return names[*stage];
    }
    *stage += op != FLW_TRACE_USE;
    return NULL;
}

static bool add_block(struct flw_reader *reader, const struct flw_record *record)
{
    struct flw_trace_block block = {.address = record->address,
                                    .size_bytes = record->size_bytes,
                                    .stream = (uint16_t)record->stream};
    size_t number = reader->build->trace->block_count;
    if (!FLW_ARRAY_FITS(reader->stages, number, reader->stage_room)) {
        return false;
    }
    reader->stages[number] = STAGE_LIVE;
    return flw_build_add_block(reader->build, &block);
}

static bool add_segment(struct flw_reader *reader, const struct flw_record *record)
{
    struct flw_trace_segment segment = {.address = record->address,
                                        .size_bytes = record->size_bytes,
                                        .stream = (uint16_t)record->stream,
                                        .is_large = record->is_large,
                                        .is_expandable = record->is_expandable,
                                        .pool = record->pool,
                                        .stack = reader->stack};
    return flw_build_add_segment(reader->build, &segment);
}

static bool add_detail(struct flw_reader *reader, const struct flw_record *record, uint8_t op)
{
    struct flw_trace_detail detail = {.free_bytes = record->free_bytes,
                                      .largest_bytes = record->largest_bytes,
                                      .lost_count = record->lost_count,
                                      .name = record->name,
                                      .other_stream = (uint16_t)record->other_stream};
    bool has_one = detail.name != FLW_TRACE_NO_NAME || detail.free_bytes != FLW_TRACE_UNKNOWN ||
                   detail.largest_bytes != FLW_TRACE_UNKNOWN || detail.lost_count != 0 ||
                   op == FLW_TRACE_SYNC_WAIT;
    return !has_one || flw_build_add_detail(reader->build, detail);
}

static bool add_event(struct flw_reader *reader, const struct flw_record *record, uint8_t op)
{
    const struct flw_trace *trace = reader->build->trace;
    struct flw_trace_event event = {.time_ns = reader->time_ns,
                                    .address = op <= FLW_TRACE_SEGMENT_UNMAP ? record->address : 0,
                                    .size_bytes = record->size_bytes,
                                    .block = UINT32_MAX,
                                    .stream =
                                        flw_trace_op_has_stream(op) ? (uint16_t)record->stream : 0,
                                    .op = op};
    if (op == FLW_TRACE_ALLOC) {
        event.block = (uint32_t)trace->block_count - 1;
    } else if (flw_trace_op_has_block(op)) {
        event.block = (uint32_t)record->block;
        event.address = trace->blocks[event.block].address;
        event.size_bytes = trace->blocks[event.block].size_bytes;
    }
    return flw_build_add_event(reader->build, &event) &&
           flw_build_add_remark(reader->build, &reader->remark) && add_detail(reader, record, op);
}

bool flw_reader_add(struct flw_reader *reader, const struct flw_record *record)
{
    struct flw_trace *trace = reader->build->trace;
    if (record->op == FLW_RECORD_SEGMENT) {
        return add_segment(reader, record);
    }
    size_t number = trace->initial_count + trace->event_count;
    struct flw_trace_context context = {number, record->thread, record->tag, record->pool};
    reader->remark.record = number;
    if (!flw_build_add_context(reader->build, &context) ||
        !flw_build_set_stack(reader->build, number, reader->stack)) {
        return false;
    }
    if (record->op == FLW_RECORD_BLOCK) {
        trace->initial_count++;
        return add_block(reader, record);
    }
    return (record->op != FLW_TRACE_ALLOC || add_block(reader, record)) &&
           add_event(reader, record, flw_record_trace_op(record->op));
}

void flw_reader_end(struct flw_reader *reader)
{
    flw_stacks_seal(&reader->build->trace->stacks);
    free(reader->stages);
}

/* ---- printing ---- */

bool flw_trace_put_records(const struct flw_trace *trace,
                           bool (*put)(void *context, const struct flw_record *record,
                                       uint32_t stack, const struct flw_trace_remark *remark),
                           void *context)
{
    struct flw_trace_walk walk = {0};
    bool goes_on = true;
    for (size_t i = 0; goes_on && i < trace->segment_count; i++) {
        struct flw_record record = flw_record_of_segment(&trace->segments[i]);
        goes_on = put(context, &record, trace->segments[i].stack, NULL);
    }
    for (size_t i = 0; goes_on && i < trace->initial_count + trace->event_count; i++) {
        size_t event = i - trace->initial_count;
        struct flw_record record =
            i < trace->initial_count
                ? flw_record_of_block(&trace->blocks[i], i)
                : flw_record_of_event(&trace->events[event],
                                      flw_trace_walk_detail(trace, &walk, event));
        const struct flw_trace_context *caller = flw_trace_walk_context(trace, &walk, i);
        record.thread = caller->thread;
        record.tag = caller->tag;
        record.pool = caller->pool;
        size_t remarks = walk.next_remark;
        const struct flw_trace_remark *remark = flw_trace_walk_remark(trace, &walk, i);
        goes_on = put(context, &record, flw_trace_stack(trace, i),
                      walk.next_remark > remarks ? remark : NULL);
    }
    return goes_on;
}
