/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a trace decoded for replay: one compact op for each action of a policy, in order, with the advance of the clock
 * before the op; and the lane of each block. Blocks keep the trace's dense numbers, so a replay needs no lookup by
 * address.
 * Does not: read files, or know any policy.
 *
 * The first ops allocate the blocks that were live before the first event, in address order, without advance.
 *
 * A *lane* is a stream of the common pool, or a stream of a private pool, which holds the memory of captured graphs. No
 * memory passes from lane to lane. The first lanes are the streams. (Begin and end of a capture are unknown: PyTorch's
 * snapshots lack them.)
 */
#ifndef FLW_TOOL_PROGRAM_H
#define FLW_TOOL_PROGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct flw_trace;

struct flw_lane {
    uint32_t pool;
    uint16_t stream;
    uint64_t alloc_count; /* blocks above 0 bytes, with those of the start */
};

struct flw_lanes {
    size_t stream_count;
    struct flw_lane *list; /* of private pools */
    size_t count, capacity;
    size_t pool_count;     /* distinct private pools */
    uint16_t *block_lanes; /* by block; NULL: there are no private pools */
};

/* Return the lane of a block that was allocated on `stream`. */
static inline uint16_t flw_lanes_get(const struct flw_lanes *lanes, uint32_t block, uint16_t stream)
{
    return lanes->block_lanes == NULL ? stream : lanes->block_lanes[block];
}

/* Return the lane of a pool on a stream; UINT16_MAX: no block or segment of the trace is there. */
uint16_t flw_lanes_find(const struct flw_lanes *lanes, uint32_t pool, uint16_t stream);

static inline uint16_t flw_lanes_stream(const struct flw_lanes *lanes, uint16_t lane)
{
    return lane < lanes->stream_count ? lane : lanes->list[lane - lanes->stream_count].stream;
}

enum flw_op_kind {
    FLW_OP_ALLOC,
    FLW_OP_FREE,
    FLW_OP_FREE_ELSEWHERE, /* a free on another stream than the block was allocated on */
    FLW_OP_USE,            /* `stream` uses the block */
    FLW_OP_SEGMENT,        /* the recorded allocator allocated a segment */
    FLW_OP_SEGMENT_FREE,   /* the recorded allocator released memory, or was told to */
    FLW_OP_FREE_DONE,      /* a free is complete, if not at once */
    FLW_OP_SYNC,           /* the recorded host waited for `stream` or FLW_OP_EVERY_STREAM */
    FLW_OP_PASS            /* the end: only advance */
};

#define FLW_OP_EVERY_STREAM UINT16_MAX

/* 32 bytes. */
struct flw_op {
    uint64_t size_bytes;    /* of the block or the segment */
    uint64_t advance_units; /* of the clock before the op */
    uint64_t address;       /* as recorded; 0 = unknown */
    uint32_t block;
    uint16_t stream;
    uint8_t kind;
    uint8_t use_count; /* FREE: uses of the block before it, saturating at 255 */
};

/* Return the change of the live bytes by the op, modulo 2^64. */
static inline uint64_t flw_op_change(const struct flw_op *op)
{
    bool frees = op->kind == FLW_OP_FREE || op->kind == FLW_OP_FREE_ELSEWHERE;
    return op->kind == FLW_OP_ALLOC ? op->size_bytes : frees ? 0 - op->size_bytes : 0;
}

/* The ops that allocate and free a block. A block without ops begins at UINT64_MAX; a block that is never freed ends at
 * the program's op_count. */
struct flw_life {
    uint64_t begin_op, end_op;
};

struct flw_program {
    struct flw_op *ops;
    size_t op_count;
    uint64_t *op_bits;    /* a bit for each event: the event has an op */
    size_t initial_count; /* ops before the first event of the trace */
    size_t block_count;
    size_t stream_count;     /* at least 1 */
    size_t event_count;      /* of the trace */
    uint64_t alloc_count;    /* ALLOC ops after the initial ones */
    uint64_t zero_count;     /* allocations of 0 bytes, which have no op */
    uint64_t max_live_bytes; /* blocks are live until FREE; the result of the policy "bound" */
    struct flw_lanes lanes;  /* of the private pools */
    uint64_t *use_masks;     /* of each block: a bit for each stream of its USE ops; NULL: no USE */
    bool crosses_streams;    /* uses or frees on other streams than the allocating one */
};

/* True if the event has an op. The n-th such event is op initial_count + n. */
static inline bool flw_program_has_op(const struct flw_program *program, size_t event)
{
    return (program->op_bits[event / 64] >> event % 64 & 1) != 0;
}

/* Return the streams other than `stream` that use a block, as a mask: bit i % 64 is stream i. */
static inline uint64_t flw_program_users(const struct flw_program *program, uint32_t block,
                                         uint16_t stream)
{
    return program->use_masks == NULL ? 0 : program->use_masks[block] & ~(1ull << (stream % 64));
}

/* Decode a trace. The clock has the trace's time in ns if `by_time`, else one unit for each event. Returns NULL if there
 * are too many lanes. */
struct flw_program *flw_program_create(const struct flw_trace *trace, bool by_time);

void flw_program_destroy(struct flw_program *program);

/* Free the ops and the arrays beside them. Numbers stay. */
void flw_program_shrink(struct flw_program *program);

#endif
