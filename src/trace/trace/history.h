/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: turning a recorded history and the heap at its end into a trace: the heap before the first
 * event, and a number for every block.
 * Does not: read files.
 *
 * The history is a ring, so its beginning may be lost, and recording may have paused. What is
 * certain is the heap at the end; walking back from it gives the heap at the start.
 */
#ifndef FLW_TRACE_TRACE_HISTORY_H
#define FLW_TRACE_TRACE_HISTORY_H

#include "trace/trace/build.h"

struct flw_history_block {
    struct flw_trace_block block;
    uint32_t pool;
    uint32_t stack; /* 0: not known */
    bool waits;     /* freed by the user, and not reusable yet */
};

struct flw_history {
    struct flw_trace_event
        *events; /* largearray.h's; times are final; `block`: of those that concern no block the
                                       number of their detail, or UINT32_MAX; else ignored */
    size_t event_count, event_room;
    struct flw_trace_detail *details; /* `event` is ignored; names are those of the build */
    size_t detail_count, detail_room;
    uint32_t *pools; /* of the first pool_count events; the others have the common one */
    size_t pool_count, pool_room;
    uint32_t *stacks; /* of the first stack_count events; the others have none. largearray.h's */
    size_t stack_count, stack_room;
    struct flw_trace_remark *remarks; /* `record`: the event from which on it is said */
    size_t remark_count, remark_room;
    struct flw_history_block *blocks; /* not yet reusable after the last event, any order */
    size_t block_count, block_room;
    uint64_t double_count;              /* of them, where another one lies; known when resolved */
    struct flw_trace_segment *segments; /* after the last event */
    size_t segment_count, segment_room;
};

/* Each returns false on no memory. */
bool flw_history_add_event(struct flw_history *history, const struct flw_trace_event *event);
/* Room for exactly so many, where their count is known before. */
bool flw_history_reserve_events(struct flw_history *history, size_t count);
bool flw_history_add_block(struct flw_history *history, const struct flw_history_block *block);
bool flw_history_add_segment(struct flw_history *history, const struct flw_trace_segment *segment);
/* The number of a detail for an event's `block`. */
bool flw_history_add_detail(struct flw_history *history, struct flw_trace_detail detail,
                            uint32_t *out_number);
/* Say which pool the event added last concerns, which stack it has, what is said beside it. */
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

/* Put segments, blocks and events into `build`, which has none yet and whose streams are those of the
 * history. The events move there in their own array; the history has none then, whatever is returned. */
bool flw_history_resolve(struct flw_history *history, struct flw_build *build);

#endif
