/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: codec 1, and the state of both codecs within a chunk. */
#include "record/recordform.h"

#include <stdlib.h>
#include <string.h>

#include "record/array.h"

#define UNIT_BYTES  512
#define FLAG_STREAM 16  /* same as in the last record with a stream */
#define FLAG_SIZE   32  /* same as in the last ALLOC or BLOCK, or the last segment */
#define FLAG_PLACE  64  /* ALLOC: the guessed address; BLOCK, SEGMENT: the next one */
#define FLAG_NOW    128 /* no time has passed */
#define WHICH_SHIFT 5   /* FREE, FREE_DONE, USE: which block, 0 to 3 */

enum which {
    WHICH_NAMED,
    WHICH_BEFORE,
    WHICH_AFTER,
    WHICH_SAME
};

/* ---- state of a chunk ---- */

void flw_record_begin(struct flw_record_state *state, enum flw_record_codec codec,
                      bool has_addresses, uint64_t first_block)
{
    struct flw_record_recent *recent = state->recent;
    size_t room = state->recent_room;
    *state = (struct flw_record_state){.codec = codec,
                                       .has_addresses = has_addresses,
                                       .first_block = first_block,
                                       .next_block = first_block,
                                       .freed_block = first_block,
                                       .recent = recent,
                                       .recent_room = room};
}

void flw_record_finish(struct flw_record_state *state)
{
    free(state->recent);
    *state = (struct flw_record_state){0};
}

static size_t place_of(uint64_t size_bytes, uint32_t stream)
{
    return (size_t)(((size_bytes ^ (uint64_t)stream << 48) * UINT64_C(0x9E3779B97F4A7C15)) >> 56);
}

static uint64_t round_up(uint64_t bytes)
{
    return (bytes + (UNIT_BYTES - 1)) / UNIT_BYTES *
           UNIT_BYTES; /* the sum may wrap on both sides */
}

static void remember_place(struct flw_record_state *state, const struct flw_record *record)
{
    if (state->has_addresses) {
        state->address = record->address;
        state->next_address = record->address + round_up(record->size_bytes);
    }
}

static bool remember_block(struct flw_record_state *state, const struct flw_record *record)
{
    size_t number = (size_t)(state->next_block - state->first_block);
    if (state->has_addresses) {
        if (!FLW_ARRAY_FITS(state->recent, number, state->recent_room)) {
            return false;
        }
        state->recent[number] =
            (struct flw_record_recent){record->address, record->size_bytes, record->stream};
    }
    state->next_block++;
    state->size_bytes = record->size_bytes;
    state->stream = record->stream;
    remember_place(state, record);
    return true;
}

static void remember_free(struct flw_record_state *state, const struct flw_record *record)
{
    state->stream = record->stream;
    if (record->op == FLW_TRACE_USE) {
        return;
    }
    state->freed_block = record->block;
    if (state->has_addresses && record->block >= state->first_block &&
        record->block < state->next_block) {
        const struct flw_record_recent *recent = &state->recent[record->block - state->first_block];
        state->guesses[place_of(recent->size_bytes, recent->stream)] = recent->address;
    }
}

/* Update the state after each record, on both sides. */
static bool remember(struct flw_record_state *state, const struct flw_record *record)
{
    switch (record->op) {
    case FLW_TRACE_ALLOC:
    case FLW_RECORD_BLOCK:
        if (!remember_block(state, record)) {
            return false;
        }
        break;
    case FLW_TRACE_FREE:
    case FLW_TRACE_FREE_DONE:
    case FLW_TRACE_USE:
        remember_free(state, record);
        break;
    case FLW_TRACE_SEGMENT_ALLOC:
    case FLW_TRACE_SEGMENT_FREE:
    case FLW_TRACE_SEGMENT_MAP:
    case FLW_TRACE_SEGMENT_UNMAP:
    case FLW_RECORD_SEGMENT:
        state->segment_bytes = record->size_bytes;
        state->stream = record->stream;
        remember_place(state, record);
        break;
    default:
        break;
    }
    if (flw_record_is_event(record->op)) {
        state->time = record->time;
    }
    return true;
}

static uint64_t last_size(const struct flw_record_state *state, unsigned op)
{
    return op == FLW_TRACE_ALLOC || op == FLW_RECORD_BLOCK ? state->size_bytes
                                                           : state->segment_bytes;
}

/* Return the address that FLAG_PLACE means. */
static uint64_t expected_address(const struct flw_record_state *state, unsigned op,
                                 uint64_t size_bytes, uint32_t stream)
{
    return op == FLW_TRACE_ALLOC ? state->guesses[place_of(size_bytes, stream)]
                                 : state->next_address;
}

static bool has_expected_address(unsigned op)
{
    return op == FLW_TRACE_ALLOC || op == FLW_RECORD_BLOCK || op == FLW_RECORD_SEGMENT;
}

static uint64_t block_of(const struct flw_record_state *state, enum which which)
{
    return which == WHICH_BEFORE  ? state->freed_block - 1
           : which == WHICH_AFTER ? state->freed_block + 1
                                  : state->freed_block;
}

/* ---- codec 1 ---- */

static void put_address(const struct flw_record_state *state, uint64_t address,
                        struct flw_wire_out *out)
{
    uint64_t step = address - state->address;
    uint64_t zigzag = flw_wire_zigzag(step);
    bool is_whole = step % UNIT_BYTES == 0; /* 2^64 is a whole number of units */
    uint64_t units = flw_wire_zigzag((uint64_t)((int64_t)step / UNIT_BYTES));
    flw_wire_put_tagged(out, !is_whole, is_whole ? units : zigzag);
}

static bool get_address(const struct flw_record_state *state, struct flw_wire_in *in, uint64_t *out)
{
    bool is_bytes;
    uint64_t zigzag;
    bool is_read = flw_wire_get_tagged(in, &is_bytes, &zigzag);
    uint64_t step = flw_wire_unzigzag(zigzag);
    *out = state->address + (is_bytes ? step : step * UNIT_BYTES);
    return is_read;
}

static void put_size(uint64_t bytes, struct flw_wire_out *out)
{
    bool is_whole = bytes % UNIT_BYTES == 0;
    flw_wire_put_tagged(out, !is_whole, is_whole ? bytes / UNIT_BYTES : bytes);
}

static bool get_size(struct flw_wire_in *in, uint64_t *out)
{
    bool is_bytes;
    if (!flw_wire_get_tagged(in, &is_bytes, out)) {
        return false;
    }
    return is_bytes || !__builtin_mul_overflow(*out, (uint64_t)UNIT_BYTES, out);
}

/* ALLOC, BLOCK, SEGMENT and segment events. */
static void put_place(struct flw_record_state *state, const struct flw_record *record,
                      unsigned char flags, struct flw_wire_out *out)
{
    unsigned char *first = out->at++;
    bool has_expected = state->has_addresses && has_expected_address(record->op);
    uint64_t expected =
        has_expected ? expected_address(state, record->op, record->size_bytes, record->stream) : 0;
    flags |= record->stream == state->stream ? FLAG_STREAM : 0;
    flags |= record->size_bytes == last_size(state, record->op) ? FLAG_SIZE : 0;
    flags |= has_expected && record->address == expected ? FLAG_PLACE : 0;
    *first = (unsigned char)(record->op | flags);
    if (record->op < FLW_RECORD_BLOCK && (flags & FLAG_NOW) == 0) {
        flw_wire_put_varint(out, record->time - state->time);
    }
    if ((flags & FLAG_STREAM) == 0) {
        flw_wire_put_varint(out, record->stream);
    }
    if ((flags & FLAG_SIZE) == 0) {
        put_size(record->size_bytes, out);
    }
    if (state->has_addresses && (flags & FLAG_PLACE) == 0) {
        put_address(state, record->address, out);
    }
    if (record->op == FLW_RECORD_SEGMENT) {
        *out->at++ = (unsigned char)((record->is_large ? FLW_RECORD_LARGE : 0) |
                                     (record->is_expandable ? FLW_RECORD_EXPANDABLE : 0));
        flw_wire_put_varint(out, record->pool);
    }
}

static void put_block_event(struct flw_record_state *state, const struct flw_record *record,
                            unsigned char flags, struct flw_wire_out *out)
{
    enum which which = WHICH_SAME;
    while (which != WHICH_NAMED && block_of(state, which) != record->block) {
        which--;
    }
    flags |= record->stream == state->stream ? FLAG_STREAM : 0;
    *out->at++ = (unsigned char)(record->op | flags | (unsigned)which << WHICH_SHIFT);
    if ((flags & FLAG_NOW) == 0) {
        flw_wire_put_varint(out, record->time - state->time);
    }
    if ((flags & FLAG_STREAM) == 0) {
        flw_wire_put_varint(out, record->stream);
    }
    if (which == WHICH_NAMED) {
        flw_wire_put_varint(out, state->next_block - 1 - record->block);
    }
}

static void put_context(const struct flw_record *record, struct flw_wire_out *out)
{
    *out->at++ = (unsigned char)(FLW_RECORD_CONTEXT | FLAG_STREAM | FLAG_SIZE | FLAG_PLACE);
    flw_wire_put_varint(out, record->thread);
    flw_wire_put_varint(out, record->tag);
    flw_wire_put_varint(out, record->pool);
}

static void put_long(struct flw_record_state *state, const struct flw_record *record,
                     unsigned char flags, struct flw_wire_out *out)
{
    unsigned char body[FLW_RECORD_BYTES_MAX];
    struct flw_wire_out body_out = {body};
    flw_record_put_body(record, &body_out);
    size_t bytes = (size_t)(body_out.at - body);
    *out->at++ = (unsigned char)(FLW_RECORD_LONG | flags);
    flw_wire_put_varint(out, record->op);
    if ((flags & FLAG_NOW) == 0) {
        flw_wire_put_varint(out, record->time - state->time);
    }
    flw_wire_put_varint(out, bytes);
    memcpy(out->at, body, bytes);
    out->at += bytes;
}

static void put_packed(struct flw_record_state *state, const struct flw_record *record,
                       struct flw_wire_out *out)
{
    unsigned char flags =
        flw_record_is_event(record->op) && record->time == state->time ? FLAG_NOW : 0;
    switch (record->op) {
    case FLW_TRACE_FREE:
    case FLW_TRACE_FREE_DONE:
    case FLW_TRACE_USE:
        put_block_event(state, record, flags, out);
        break;
    case FLW_RECORD_CONTEXT:
        put_context(record, out);
        break;
    default:
        if (record->op >= FLW_RECORD_LONG_FIRST) {
            put_long(state, record, flags, out);
        } else {
            put_place(state, record, flags, out);
        }
        break;
    }
}

static bool get_step(struct flw_record_state *state, struct flw_wire_in *in, unsigned char flags,
                     struct flw_record *record)
{
    uint64_t step = 0;
    return ((flags & FLAG_NOW) != 0 || flw_wire_get_varint(in, &step)) &&
           !__builtin_add_overflow(state->time, step, &record->time);
}

static bool get_stream(struct flw_record_state *state, struct flw_wire_in *in, unsigned char flags,
                       struct flw_record *record)
{
    record->stream = state->stream;
    return (flags & FLAG_STREAM) != 0 || flw_record_get_number32(in, &record->stream);
}

static bool get_place(struct flw_record_state *state, struct flw_wire_in *in, unsigned char flags,
                      struct flw_record *record)
{
    if ((record->op < FLW_RECORD_BLOCK && !get_step(state, in, flags, record)) ||
        !get_stream(state, in, flags, record)) {
        return false;
    }
    record->size_bytes = last_size(state, record->op);
    if ((flags & FLAG_SIZE) == 0 && !get_size(in, &record->size_bytes)) {
        return false;
    }
    if ((flags & FLAG_PLACE) != 0) {
        if (!state->has_addresses || !has_expected_address(record->op)) {
            return false;
        }
        record->address = expected_address(state, record->op, record->size_bytes, record->stream);
    } else if (state->has_addresses && !get_address(state, in, &record->address)) {
        return false;
    }
    if (record->op == FLW_RECORD_SEGMENT) {
        uint64_t kind;
        if (!flw_wire_get_fixed(in, 1, &kind) || !flw_record_get_number32(in, &record->pool)) {
            return false;
        }
        record->is_large = (kind & FLW_RECORD_LARGE) != 0;
        record->is_expandable = (kind & FLW_RECORD_EXPANDABLE) != 0;
    }
    record->block =
        record->op == FLW_TRACE_ALLOC || record->op == FLW_RECORD_BLOCK ? state->next_block : 0;
    return true;
}

static bool get_block_event(struct flw_record_state *state, struct flw_wire_in *in,
                            unsigned char flags, struct flw_record *record)
{
    enum which which = (enum which)(flags >> WHICH_SHIFT & 3);
    uint64_t distance;
    if (!get_step(state, in, flags, record) || !get_stream(state, in, flags, record)) {
        return false;
    }
    if (which != WHICH_NAMED) {
        record->block = block_of(state, which);
    } else if (!flw_wire_get_varint(in, &distance)) {
        return false;
    } else {
        record->block = state->next_block - 1 - distance;
    }
    return record->block < state->next_block;
}

static bool get_context(struct flw_wire_in *in, unsigned char flags, struct flw_record *record)
{
    return ((flags & FLAG_STREAM) == 0 || flw_record_get_number32(in, &record->thread)) &&
           ((flags & FLAG_SIZE) == 0 || flw_record_get_number32(in, &record->tag)) &&
           ((flags & FLAG_PLACE) == 0 || flw_record_get_number32(in, &record->pool));
}

static enum flw_record_result get_long(struct flw_record_state *state, struct flw_wire_in *in,
                                       unsigned char flags, struct flw_record *record)
{
    uint32_t op;
    uint64_t bytes;
    if (!flw_record_get_number32(in, &op) || op < FLW_RECORD_LONG_FIRST ||
        !get_step(state, in, flags, record) || !flw_wire_get_varint(in, &bytes) ||
        bytes > (uint64_t)(in->end - in->at)) {
        return FLW_RECORD_BAD;
    }
    record->op = op;
    struct flw_wire_in body = {in->at, in->at + bytes};
    in->at = body.end;
    return flw_record_get_body(body, record);
}

static enum flw_record_result get_packed(struct flw_record_state *state, struct flw_wire_in *in,
                                         struct flw_record *record)
{
    unsigned char first = *in->at++;
    unsigned char flags = first & 0xF0;
    bool is_read;
    record->op = first & 0x0F;
    switch (record->op) {
    case FLW_TRACE_FREE:
    case FLW_TRACE_FREE_DONE:
    case FLW_TRACE_USE:
        is_read = get_block_event(state, in, flags, record);
        break;
    case FLW_RECORD_CONTEXT:
        is_read = get_context(in, flags, record);
        break;
    case FLW_RECORD_LONG:
        return get_long(state, in, flags, record);
    default:
        is_read = record->op <= FLW_RECORD_SEGMENT && get_place(state, in, flags, record);
        break;
    }
    return is_read ? FLW_RECORD_OK : FLW_RECORD_BAD;
}

/* ---- either ---- */

bool flw_record_put(struct flw_record_state *state, const struct flw_record *record,
                    struct flw_wire_out *out)
{
    struct flw_wire_out begin = *out;
    if (state->codec == FLW_RECORD_RAW) {
        flw_record_put_raw(state, record, out);
    } else {
        put_packed(state, record, out);
    }
    if (!remember(state, record)) {
        *out = begin;
        return false;
    }
    return true;
}

enum flw_record_result flw_record_get(struct flw_record_state *state, struct flw_wire_in *in,
                                      struct flw_record *out)
{
    *out = (struct flw_record){FLW_RECORD_UNSET};
    if (in->at == in->end) {
        return FLW_RECORD_BAD;
    }
    enum flw_record_result result = state->codec == FLW_RECORD_RAW
                                        ? flw_record_get_raw(state, in, out)
                                        : get_packed(state, in, out);
    if (result == FLW_RECORD_OK || result == FLW_RECORD_UNKNOWN) {
        return remember(state, out) ? result : FLW_RECORD_NO_MEMORY;
    }
    return result;
}
