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

/* All zero is empty. */
struct flw_history {
    struct flw_history_block
        *blocks; /* blocks not yet reusable after the last event, in any order */
    size_t block_count, block_room;
    uint64_t double_count; /* of these, at the address of another one; set by flw_history_resolve */
};

/* Return false if memory runs out. */
bool flw_history_add_block(struct flw_history *history, const struct flw_history_block *block);
void flw_history_finish(struct flw_history *history);

/* Turn a recording into a trace. Before, the build has no blocks, the numbers of `block` in events are ignored, the
 * records of contexts, remarks and stacks are indexes of events, and the segments are those after the last event.
 * Returns false if memory runs out. */
bool flw_history_resolve(struct flw_history *history, struct flw_build *build);

#endif
