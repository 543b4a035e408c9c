/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: turning a recorded history and the heap at the end into a trace: the heap before the first event, and a number
 * for every block.
 * Does not: read files.
 *
 * The history is a ring, so the beginning may be lost, and recording may have paused. Only the heap at the end is
 * certain; undoing the events from there gives the heap at the start.
 */
#ifndef FLW_TRACE_TRACE_HISTORY_H
#define FLW_TRACE_TRACE_HISTORY_H

#include "trace/trace/build.h"

struct flw_history_block {
    struct flw_trace_block block;
    uint32_t pool;
    uint32_t stack; /* 0: unknown */
    bool waits;     /* freed by the user, but not yet reusable */
};

struct flw_history {
    /* largearray.h's; times are final. `block` of an event without a block is the number of the event's detail, or
     * UINT32_MAX; of other events `block` is ignored. */
    struct flw_trace_event *events;
    size_t event_count, event_room;
    struct flw_trace_detail *details; /* `event` is ignored; names are numbers in the build */
    size_t detail_count, detail_room;
    uint32_t *pools; /* of the first pool_count events; the others have pool 0 */
    size_t pool_count, pool_room;
    uint32_t *stacks; /* of the first stack_count events; the others have none. largearray.h's */
    size_t stack_count, stack_room;
    struct flw_trace_remark *remarks; /* `record`: the first event of the remark */
    size_t remark_count, remark_room;
    struct flw_history_block
        *blocks; /* blocks not yet reusable after the last event, in any order */
    size_t block_count, block_room;
    uint64_t double_count; /* of these, at the address of another one; set by flw_history_resolve */
    struct flw_trace_segment *segments; /* after the last event */
    size_t segment_count, segment_room;
};

/* Each function returns false if memory runs out. */
bool flw_history_add_event(struct flw_history *history, const struct flw_trace_event *event);
/* Reserve room for exactly this many events, if their count is known. */
bool flw_history_reserve_events(struct flw_history *history, size_t count);
bool flw_history_add_block(struct flw_history *history, const struct flw_history_block *block);
bool flw_history_add_segment(struct flw_history *history, const struct flw_trace_segment *segment);
/* Add a detail and return the number for an event's `block`. */
bool flw_history_add_detail(struct flw_history *history, struct flw_trace_detail detail,
                            uint32_t *out_number);
/* Set the pool, the remark or the stack of the last event. */
bool flw_history_set_pool(struct flw_history *history, uint32_t pool);
bool flw_history_set_remark(struct flw_history *history, struct flw_trace_remark remark);
bool flw_history_set_stack(struct flw_history *history, uint32_t stack);
static inline uint32_t flw_history_pool(const struct flw_history *history, size_t event)
{
    return event < history->pool_count ? history->pools[event] : 0;
}
static inline uint32_t flw_history_stack(const struct flw_history *history, size_t event)
{
    return event < history->stack_count ? history->stacks[event] : 0;
}
void flw_history_finish(struct flw_history *history);

/* Put segments, blocks and events into `build`, which must have none and must have the history's streams. The array of
 * events moves to the build even on failure. Returns false if memory runs out. */
bool flw_history_resolve(struct flw_history *history, struct flw_build *build);

#endif
