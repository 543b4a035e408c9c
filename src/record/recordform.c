/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: bodies of long records, and codec 0.
 */
#include "record/recordform.h"

#include <stddef.h>
#include <string.h>

#define RAW_BYTES 32

/* ---- bodies of long records ---- */

/* A varint of a body: a field of 4 or 8 bytes, plus an offset. 0 bytes: the body's end. */
struct part {
    size_t offset;
    unsigned bytes;
    uint64_t added;
};

#define FIELD(field, added)                                                                   \
    {                                                                                         \
        offsetof(struct flw_record, field), sizeof(((struct flw_record *)NULL)->field), added \
    }

/* Offset 1: 0 means unknown, or no name. */
static const struct part bodies[FLW_TRACE_OP_COUNT + 1][5] = {
    [FLW_TRACE_OOM] = {FIELD(stream, 0), FIELD(size_bytes, 0), FIELD(free_bytes, 1),
                       FIELD(largest_bytes, 1)},
    [FLW_TRACE_MARK] = {FIELD(name, 1)},
    [FLW_TRACE_PHASE_BEGIN] = {FIELD(name, 1)},
    [FLW_TRACE_PHASE_END] = {FIELD(name, 1)},
    [FLW_TRACE_CONFIG] = {FIELD(name, 1)},
    [FLW_TRACE_SYNC_WAIT] = {FIELD(stream, 0), FIELD(other_stream, 0)},
    [FLW_TRACE_SYNC_STREAM] = {FIELD(stream, 0)},
    [FLW_TRACE_SYNC_EVENT] = {FIELD(stream, 0)},
    [FLW_TRACE_POOL_BEGIN] = {FIELD(stream, 0)},
    [FLW_TRACE_POOL_END] = {FIELD(stream, 0)},
    [FLW_TRACE_DROP] = {FIELD(lost_count, 0)},
};

void flw_record_put_body(const struct flw_record *record, struct flw_wire_out *out)
{
    const struct part *part = bodies[flw_record_trace_op(record->op)];
    for (; part->bytes != 0; part++) {
        const void *field = (const char *)record + part->offset;
        flw_wire_put_varint(out, part->bytes == 4
                                     ? (uint32_t)(*(const uint32_t *)field + part->added)
                                     : *(const uint64_t *)field + part->added);
    }
}

bool flw_record_get_number32(struct flw_wire_in *in, uint32_t *out)
{
    uint64_t number;
    bool is_read = flw_wire_get_varint(in, &number) && number <= UINT32_MAX;
    *out = is_read ? (uint32_t)number : 0;
    return is_read;
}

enum flw_record_result flw_record_get_body(struct flw_wire_in in, struct flw_record *record)
{
    uint8_t op = flw_record_trace_op(record->op);
    for (const struct part *part = bodies[op]; part->bytes != 0; part++) {
        uint64_t number;
        if (!flw_wire_get_varint(&in, &number) || (part->bytes == 4 && number > UINT32_MAX)) {
            return FLW_RECORD_BAD;
        }
        void *field = (char *)record + part->offset;
        if (part->bytes == 4) {
            *(uint32_t *)field = (uint32_t)(number - part->added);
        } else {
            *(uint64_t *)field = number - part->added;
        }
    }
    return op == FLW_TRACE_OP_COUNT ? FLW_RECORD_UNKNOWN : FLW_RECORD_OK;
}

/* ---- codec 0 ---- */

void flw_record_put_raw(struct flw_record_state *state, const struct flw_record *record,
                        struct flw_wire_out *out)
{
    unsigned char body[FLW_RECORD_BYTES_MAX] = {0};
    struct flw_wire_out body_out = {body};
    bool is_long = record->op >= FLW_RECORD_LONG_FIRST;
    uint64_t words[4] = {record->time, record->address, record->size_bytes,
                         record->block - state->first_block};
    if (record->op == FLW_RECORD_CONTEXT) {
        words[1] = record->tag;
        words[2] = record->pool;
        words[3] = record->thread;
    } else if (record->op == FLW_RECORD_SEGMENT) {
        words[0] = record->pool;
        words[3] = (record->is_large ? FLW_RECORD_LARGE : 0) |
                   (record->is_expandable ? FLW_RECORD_EXPANDABLE : 0);
    } else if (is_long) {
        flw_record_put_body(record, &body_out);
        words[1] = 0;
        words[2] = (uint64_t)(body_out.at - body);
        words[3] = 0;
    }
    flw_wire_put_fixed(out, words[0], 8);
    flw_wire_put_fixed(out, words[1], 8);
    flw_wire_put_fixed(out, words[2], 8);
    flw_wire_put_fixed(out, words[3], 4);
    flw_wire_put_fixed(out, is_long ? 0 : record->stream, 2);
    flw_wire_put_fixed(out, record->op, 2);
    size_t padded = is_long ? (size_t)(words[2] + RAW_BYTES - 1) / RAW_BYTES * RAW_BYTES : 0;
    memcpy(out->at, body, padded);
    out->at += padded;
}

static enum flw_record_result get_raw_body(struct flw_wire_in *in, struct flw_record *record)
{
    uint64_t bytes = record->size_bytes;
    uint64_t left = (uint64_t)(in->end - in->at);
    record->size_bytes = 0;
    record->block = 0;
    if (bytes > left || (bytes + RAW_BYTES - 1) / RAW_BYTES * RAW_BYTES > left) {
        return FLW_RECORD_BAD;
    }
    struct flw_wire_in body = {in->at, in->at + bytes};
    in->at += (bytes + RAW_BYTES - 1) / RAW_BYTES * RAW_BYTES;
    return flw_record_get_body(body, record);
}

enum flw_record_result flw_record_get_raw(struct flw_record_state *state, struct flw_wire_in *in,
                                          struct flw_record *record)
{
    uint64_t block, stream, op;
    if (!flw_wire_get_fixed(in, 8, &record->time) || !flw_wire_get_fixed(in, 8, &record->address) ||
        !flw_wire_get_fixed(in, 8, &record->size_bytes) || !flw_wire_get_fixed(in, 4, &block) ||
        !flw_wire_get_fixed(in, 2, &stream) || !flw_wire_get_fixed(in, 2, &op)) {
        return FLW_RECORD_BAD;
    }
    record->op = (unsigned)op;
    record->stream = (uint32_t)stream;
    record->block = state->first_block + (uint64_t)(int64_t)(int32_t)(uint32_t)block;
    if (record->op == FLW_RECORD_CONTEXT) {
        record->thread = (uint32_t)block;
        record->tag = (uint32_t)record->address;
        record->pool = (uint32_t)record->size_bytes;
        bool fits = record->address <= UINT32_MAX && record->size_bytes <= UINT32_MAX;
        record->address = 0;
        record->size_bytes = 0;
        return fits ? FLW_RECORD_OK : FLW_RECORD_BAD;
    }
    if (record->op >= FLW_RECORD_LONG_FIRST) {
        return record->time < state->time ? FLW_RECORD_BAD : get_raw_body(in, record);
    }
    if (record->op == FLW_RECORD_SEGMENT) {
        record->is_large = (block & FLW_RECORD_LARGE) != 0;
        record->is_expandable = (block & FLW_RECORD_EXPANDABLE) != 0;
        record->pool = (uint32_t)record->time;
        return record->time <= UINT32_MAX ? FLW_RECORD_OK : FLW_RECORD_BAD;
    }
    if (flw_record_is_event(record->op) && record->time < state->time) {
        return FLW_RECORD_BAD;
    }
    if (record->op == FLW_TRACE_ALLOC || record->op == FLW_RECORD_BLOCK) {
        return record->block == state->next_block ? FLW_RECORD_OK : FLW_RECORD_BAD;
    }
    if (flw_trace_op_has_block((uint8_t)record->op)) {
        return record->block < state->next_block ? FLW_RECORD_OK : FLW_RECORD_BAD;
    }
    return record->op < FLW_RECORD_BLOCK ? FLW_RECORD_OK : FLW_RECORD_BAD;
}

/* ---- the records of a trace ---- */

struct flw_record flw_record_of_block(const struct flw_trace_block *block, uint64_t number)
{
    return (struct flw_record){.op = FLW_RECORD_BLOCK,
                               .address = block->address,
                               .size_bytes = block->size_bytes,
                               .block = number,
                               .stream = block->stream,
                               FLW_RECORD_UNSET};
}

struct flw_record flw_record_of_segment(const struct flw_trace_segment *segment)
{
    return (struct flw_record){.op = FLW_RECORD_SEGMENT,
                               .address = segment->address,
                               .size_bytes = segment->size_bytes,
                               .stream = segment->stream,
                               .is_large = segment->is_large,
                               .is_expandable = segment->is_expandable,
                               .pool = segment->pool,
                               FLW_RECORD_UNSET};
}

struct flw_record flw_record_of_event(const struct flw_trace_event *event,
                                      const struct flw_trace_detail *detail)
{
    struct flw_record record = {.op = flw_record_op_of(event->op),
                                .time = event->time_ns,
                                .address = event->address,
                                .size_bytes = event->size_bytes,
                                .block = flw_trace_op_has_block(event->op) ? event->block : 0,
                                .stream = event->stream,
                                FLW_RECORD_UNSET};
    if (detail != NULL) {
        record.other_stream = detail->other_stream;
        record.name = detail->name;
        record.free_bytes = detail->free_bytes;
        record.largest_bytes = detail->largest_bytes;
        record.lost_count = detail->lost_count;
    }
    return record;
}
