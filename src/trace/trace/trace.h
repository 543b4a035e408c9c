/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a decoded allocation trace of one device, which readers produce and replays consume. Its parts are those of
 * record/event.h.
 * Does not: read files.
 *
 * Blocks are numbered densely: first the blocks that were live before the first event (0 .. initial_count-1, in address
 * order if addresses are known), then one per ALLOC event.
 *
 * INVARIANTS (flw_trace_is_valid recomputes them)
 *   1. blocks[e.block] exists for every ALLOC, FREE, FREE_DONE and USE event e.
 *   2. A block is allocated once, before the FREE, which precedes the FREE_DONE; each at most once.
 *   3. FREE, FREE_DONE and USE carry their block's address and size; a USE precedes the FREE.
 *   4. Times never fall; times are 0 without has_times, addresses without has_addresses.
 *   5. peak_requested_bytes is the maximum over events of the live requested bytes, initial ones
 *      included; a block is live until the FREE_DONE, or the FREE if there is no FREE_DONE.
 *   6. Details ascend by event; each has a value, and only members that its event's op has. PHASE_BEGIN, PHASE_END,
 *      CONFIG, SYNC_WAIT and DROP have one.
 *   7. Contexts ascend by record, and each differs from the previous one (the first: from zeros).
 *   8. Names are printable, 1 to FLW_TRACE_NAME_BYTES bytes.
 *   9. The stacks of records and of segments of the start exist.
 *  10. Remarks ascend by record, which is an event's, and each differs from the previous one (the first: from none);
 *      their texts are among those of the stacks.
 */
#ifndef FLW_TRACE_TRACE_TRACE_H
#define FLW_TRACE_TRACE_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "record/event.h"
#include "trace/trace/stacks.h"

/* PyTorch's remark beside the frames, from an event up to the next remark: a text of the stacks plus 1; 0: none. */
struct flw_trace_remark {
    size_t record;
    uint32_t compile_context, user_metadata;
};

struct flw_trace {
    char *source;                   /* file name as given */
    char *format;                   /* "pytorch pickle", "text", "kineto json", "rmm csv", ... */
    int device;                     /* ordinal in the recording */
    struct flw_trace_event *events; /* largearray.h's, like the blocks */
    size_t event_count, event_room;
    struct flw_trace_block *blocks;
    size_t block_count, block_room;
    size_t initial_count; /* blocks live before the first event */
    struct flw_trace_segment *segments;
    size_t segment_count; /* before the first event */
    uint64_t *streams;    /* recorded handles */
    size_t stream_count;
    struct flw_intern names; /* in the order of first use by events */
    struct flw_trace_detail *details;
    size_t detail_count;
    struct flw_trace_context *contexts;
    size_t context_count;
    struct flw_stacks stacks;
    uint32_t
        *record_stacks; /* of the first records (struct flw_trace_context); the others have none */
    size_t record_stack_count, record_stack_room;
    struct flw_trace_remark *remarks;
    size_t remark_count;
    uint64_t begin_ns; /* time 0 in ns since 1970 by the recording's clock; 0: unknown */
    bool has_times;
    bool has_addresses;
    bool has_segments; /* segments are recorded: recorded_peak_reserved_bytes is valid */
    uint64_t alloc_count;
    uint64_t peak_requested_bytes;
    uint64_t recorded_peak_reserved_bytes; /* 0: unknown */
    uint64_t recorded_initial_reserved_bytes;
    uint64_t recorded_segment_calls; /* segment alloc, free, map, unmap events */
    uint64_t unknown_free_count;     /* skipped frees of unknown blocks; reported */
    uint64_t lost_free_count; /* added FREEs, of blocks allocated again without a recorded free */
    char *notes;              /* header lines of the text form that no field holds; NULL: none */
    char *
        truncation; /* place and reason of a fault that ended reading; NULL: the whole file was read */
};

void flw_trace_destroy(struct flw_trace *trace);

/* Free the arrays of blocks, segments and records. Numbers, counts and texts stay. */
void flw_trace_shrink(struct flw_trace *trace);

bool flw_trace_is_valid(const struct flw_trace *trace);

/* Walks details, contexts or remarks beside the events, in O(1) a step. All zero begins a walk. */
struct flw_trace_walk {
    size_t next_detail, next_context;
    struct flw_trace_context context; /* of the last record */
    size_t next_remark;
    struct flw_trace_remark remark; /* of the last record */
};

/* Return the detail of an event, or NULL. Call with ascending events. */
const struct flw_trace_detail *flw_trace_walk_detail(const struct flw_trace *trace,
                                                     struct flw_trace_walk *walk, size_t event);

/* Return the context of a record. Call with ascending records. */
const struct flw_trace_context *flw_trace_walk_context(const struct flw_trace *trace,
                                                       struct flw_trace_walk *walk, size_t record);

const struct flw_trace_remark *flw_trace_walk_remark(const struct flw_trace *trace,
                                                     struct flw_trace_walk *walk, size_t record);

/* Return the pool of a record, in O(log contexts). */
uint32_t flw_trace_pool(const struct flw_trace *trace, size_t record);

/* True if both contexts are equal except for their records. */
static inline bool flw_trace_context_is(const struct flw_trace_context *a,
                                        const struct flw_trace_context *b)
{
    return a->thread == b->thread && a->tag == b->tag && a->pool == b->pool;
}

/* True if both remarks are equal except for their records. */
static inline bool flw_trace_remark_is(const struct flw_trace_remark *a,
                                       const struct flw_trace_remark *b)
{
    return a->compile_context == b->compile_context && a->user_metadata == b->user_metadata;
}

/* Return the stack of a record; 0: unknown. */
static inline uint32_t flw_trace_stack(const struct flw_trace *trace, size_t record)
{
    return record < trace->record_stack_count ? trace->record_stacks[record] : 0;
}

/* True if any record or segment of the start has a stack. */
bool flw_trace_has_stacks(const struct flw_trace *trace);

/* Return the name of an event's detail, or NULL. */
const char *flw_trace_name(const struct flw_trace *trace, const struct flw_trace_detail *detail);

#endif
