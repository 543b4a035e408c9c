/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: encoding and decoding one record of a trace file's chunk, in both codecs.
 * Does not: know files, or check the order of records.
 *
 * RECORD NUMBERS (op)
 *   0 ALLOC  1 FREE  2 FREE_DONE  3 SEGMENT_ALLOC  4 SEGMENT_FREE  5 SEGMENT_MAP  6 SEGMENT_UNMAP
 *   7 USE  8 BLOCK, 9 SEGMENT: existed before the first event  10 CONTEXT  11 to 14 not used yet
 *   16 and above are long records: 24 OOM  25 MARK  26 PHASE_BEGIN  27 PHASE_END  28 SYNC_DEVICE
 *   29 SYNC_STREAM  30 SYNC_EVENT  31 SYNC_WAIT  32 POOL_BEGIN  33 POOL_END  34 EMPTY_CACHE
 *   35 CONFIG  36 DROP.  A reader skips unknown long records.
 * All except 8, 9 and 10 are events. CONTEXT has the caller of all records until the next CONTEXT or the end of
 * the chunk, which begins with the thread of the header, tag 0 and pool 0.
 *
 * CODEC 1: one byte, the low half the op, the high half flags; then the fields without a set flag.
 *   Varints, tagged varints and zigzag are those of wire.h. STEP is the time since the record before
 *   (the chunk's base for the first) in the chunk's time scale.
 *
 *   op                  16       32          64            128      then, if the flag is not set
 *   ALLOC          same stream  same size   guessed addr.  step 0   STEP, stream, size, address
 *   FREE, FREE_DONE,
 *   USE            same stream  \ 0 to 3: which block /    step 0   STEP, stream, block if 0
 *   SEGMENT_*      same stream  same size   0              step 0   STEP, stream, size, address
 *   BLOCK          same stream  same size   next address   0        stream, size, address
 *   SEGMENT        same stream  same size   next address   0        stream, size, address, KIND, pool
 *   CONTEXT        thread       tag         pool           0        those with a flag that *is* set
 *   15             0            0           0              step 0   op, STEP, LENGTH, body
 *
 *   stream   varint; "same": as in the last record with a stream
 *   size     tagged varint: tag 0: number of 512-byte units, tag 1: bytes. "same": as in the last
 *            ALLOC or BLOCK, or in the last segment record
 *   address  only in files with addresses. Tagged varint of the zigzagged difference from the last
 *            address written (ALLOC, BLOCK, segments): tag 0: in 512-byte units, tag 1: bytes.
 *            "next": the last address plus the size of that record, rounded up to 512. "guessed": see
 *            below
 *   block    varint: blocks allocated between it and here, 0 = the latest. Which block: 1, 2, 3 =
 *            the one of the last FREE or FREE_DONE, minus 1, plus 1, or itself
 *   KIND     a byte: 1 large, 2 expandable; pool varint
 *   body     LENGTH bytes: OOM: stream, size, free, largest (varints, each of the last two plus 1, 0 =
 *            unknown); MARK, PHASE_*, CONFIG: name plus 1, 0 = none; SYNC_STREAM, SYNC_EVENT, POOL_*:
 *            stream; SYNC_WAIT: stream, other stream; DROP: count. All varints. Later minor versions
 *            may append fields, which a reader skips.
 *
 *   The guess: a table of 256 addresses, zeros at the start of a chunk. A FREE or FREE_DONE of a
 *   block that was allocated in this chunk stores the block's address at place
 *     ((size ^ stream << 48) * 0x9E3779B97F4A7C15 mod 2^64) >> 56
 *   and an ALLOC reads the place of its own size and stream: caching allocators reuse, for the same
 *   size, the block that was freed last. Only blocks of this chunk, so that a chunk decodes without
 *   the ones before it.
 *
 * CODEC 0: 32 bytes, little-endian: u64 time since the chunk's base, in the chunk's time scale; u64
 *   address; u64 size; u32 block, as a signed difference from the chunk's first_block; u16 stream; u16
 *   op. SEGMENT: block is KIND, time is the pool. CONTEXT: block is the thread, address the
 *   tag, size the pool. Long records: address 0, size is LENGTH, then the body, zeros up to a
 *   multiple of 32. For recorders that cannot spend the time on codec 1. */
#ifndef FLW_RECORD_RECORD_H
#define FLW_RECORD_RECORD_H

#include "record/event.h"
#include "record/wire.h"

enum flw_record_op { /* other ops have the numbers of enum flw_trace_op, long ones 16 more */
    FLW_RECORD_BLOCK = 8,
    FLW_RECORD_SEGMENT = 9,
    FLW_RECORD_CONTEXT = 10,
    FLW_RECORD_LONG = 15,
    FLW_RECORD_LONG_FIRST = 16
};

enum flw_record_codec {
    FLW_RECORD_RAW = 0,
    FLW_RECORD_PACKED = 1,
    FLW_RECORD_CODEC_COUNT
};

/* A record is at most this long. */
#define FLW_RECORD_BYTES_MAX 96
#define FLW_RECORD_GUESSES   256

/* Fields that the op does not have are 0, those of `detail` as in flw_build_no_detail. */
struct flw_record {
    unsigned op;
    uint64_t time; /* since the chunk's base, in the time scale */
    uint64_t address, size_bytes;
    uint64_t block; /* number within the file */
    uint32_t stream;
    uint32_t other_stream;        /* SYNC_WAIT */
    uint32_t name;                /* FLW_TRACE_NO_NAME: none */
    uint64_t free_bytes;          /* OOM; FLW_TRACE_UNKNOWN */
    uint64_t largest_bytes;       /* OOM; FLW_TRACE_UNKNOWN */
    uint64_t lost_count;          /* DROP */
    bool is_large, is_expandable; /* SEGMENT */
    uint32_t thread, tag, pool;   /* CONTEXT; pool: SEGMENT too. Outside a file: of each record */
};

/* A block allocated in the chunk. */
struct flw_record_recent {
    uint64_t address, size_bytes;
    uint32_t stream;
};

/* State of both sides after each record of a chunk. */
struct flw_record_state {
    bool has_addresses;
    enum flw_record_codec codec;
    uint64_t first_block; /* of the chunk */
    uint64_t next_block;
    uint64_t time, address, size_bytes, segment_bytes, next_address;
    uint64_t freed_block;
    uint32_t stream;
    struct flw_record_recent *recent; /* blocks first_block to next_block */
    size_t recent_room;
    uint64_t guesses[FLW_RECORD_GUESSES];
};

enum flw_record_result {
    FLW_RECORD_OK,
    FLW_RECORD_UNKNOWN, /* a record of a later minor version: only op and time are set */
    FLW_RECORD_BAD,
    FLW_RECORD_NO_MEMORY
};

/* Initializers of the fields that are not 0 where an op does not have them. */
#define FLW_RECORD_UNSET \
    .name = FLW_TRACE_NO_NAME, .free_bytes = FLW_TRACE_UNKNOWN, .largest_bytes = FLW_TRACE_UNKNOWN

/* Return the record of a block or a segment of the start, or of an event; `detail` may be NULL. The time is the event's in
 * ns; names and streams are the trace's numbers. */
struct flw_record flw_record_of_block(const struct flw_trace_block *block, uint64_t number);
struct flw_record flw_record_of_segment(const struct flw_trace_segment *segment);
struct flw_record flw_record_of_event(const struct flw_trace_event *event,
                                      const struct flw_trace_detail *detail);

/* Call before the first record of a chunk; zeros before the first chunk. */
void flw_record_begin(struct flw_record_state *state, enum flw_record_codec codec,
                      bool has_addresses, uint64_t first_block);
void flw_record_finish(struct flw_record_state *state);

/* Write at most FLW_RECORD_BYTES_MAX bytes. False: no memory, nothing was written. */
bool flw_record_put(struct flw_record_state *state, const struct flw_record *record,
                    struct flw_wire_out *out);

/* Read a record; in->at advances if the result is OK or UNKNOWN. */
enum flw_record_result flw_record_get(struct flw_record_state *state, struct flw_wire_in *in,
                                      struct flw_record *out);

/* Return the kind of an event; FLW_TRACE_OP_COUNT: no event, or unknown. */
static inline bool flw_record_is_event(unsigned op)
{
    return op < FLW_RECORD_BLOCK || op >= FLW_RECORD_LONG_FIRST;
}

static inline uint8_t flw_record_trace_op(unsigned op)
{
    if (op < FLW_RECORD_BLOCK) {
        return (uint8_t)op;
    }
    return op >= FLW_RECORD_LONG_FIRST + FLW_TRACE_OOM &&
                   op < FLW_RECORD_LONG_FIRST + FLW_TRACE_OP_COUNT
               ? (uint8_t)(op - FLW_RECORD_LONG_FIRST)
               : FLW_TRACE_OP_COUNT;
}

static inline unsigned flw_record_op_of(uint8_t trace_op)
{
    return trace_op < FLW_TRACE_OOM ? trace_op : FLW_RECORD_LONG_FIRST + trace_op;
}

_Static_assert(FLW_TRACE_ALLOC == 0 && FLW_TRACE_USE == 7 && FLW_TRACE_OOM == 8 &&
                   FLW_TRACE_DROP == 20,
               "files have these numbers");

#endif
