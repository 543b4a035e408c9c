/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: turning a recorded history and the heap at its end into a trace: the heap before the first
 * event, and a number for every block.
 * Does not: read files.
 *
 * The history is a ring, so its beginning may be lost, and recording may have paused. What is
 * certain is the heap at the end; walking back from it gives the heap at the start.
 */
#ifndef FLW_TRACE_HISTORY_H
#define FLW_TRACE_HISTORY_H

#include "trace/build.h"

struct flw_history {
    struct flw_trace_event *events; /* `block` is ignored; times are final */
    size_t event_count, event_room;
    struct flw_trace_block *blocks; /* not yet reusable after the last event, any order */
    size_t block_count, block_room;
    struct flw_trace_segment *segments; /* after the last event */
    size_t segment_count, segment_room;
};

/* Each returns false on no memory. */
bool flw_history_add_event(struct flw_history *history, const struct flw_trace_event *event);
bool flw_history_add_block(struct flw_history *history, const struct flw_trace_block *block);
bool flw_history_add_segment(struct flw_history *history, const struct flw_trace_segment *segment);
void flw_history_finish(struct flw_history *history);

/* Put segments, blocks and events into `build`, whose streams are those of the history. */
bool flw_history_resolve(const struct flw_history *history, struct flw_build *build);

#endif
