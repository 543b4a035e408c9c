/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: gathering one policy's part of an analysis while a run passes: series, peaks, holes, frames and rectangles. One pass
 * usually is enough: the segments of every op that may be a peak are kept, and the blocks of frames and rectangles are
 * derived from their places and lives after the run.
 * Does not: run anything. The caller reports allocations, held bytes, and the end of each op.
 */
#ifndef FLW_TOOL_REPORT_OBSERVER_H
#define FLW_TOOL_REPORT_OBSERVER_H

#include "report/analysis.h"
#include "report/heapview.h"

/* Frames in order. */
enum flw_observer_frame {
    FLW_OBSERVER_RESERVED,
    FLW_OBSERVER_LIVE,
    FLW_OBSERVER_OOM,
    FLW_OBSERVER_FAILURE,
    FLW_OBSERVER_END,
    FLW_OBSERVER_FRAMES
};

struct flw_observer {
    const struct flw_analysis *analysis;
    struct flw_analysis_policy *policy;
    bool is_again; /* an earlier pass found the peaks */
    bool knows_blocks, knows_reserved;
    bool has_lanes; /* blocks without a rectangle are kept in lanes */
    /* Updates view.segments. NULL: the heap has no addresses. */
    void (*list_segments)(struct flw_observer *observer, void *context);
    void *context;
    /* The recorded heap: by block, the op that makes the memory reusable, after the free. NULL in replays: the free. */
    const uint64_t *until_ops;
    struct flw_heapview view;
    uint64_t *block_bytes;             /* by block; if knows_blocks */
    uint64_t *places;                  /* by block: the address; if list_segments */
    bool is_lost[FLW_OBSERVER_FRAMES]; /* the segments of the peak were not kept */
    size_t rooms[FLW_OBSERVER_FRAMES]; /* capacities of the frames' segments */
    uint64_t kept_count;               /* segments that were kept for peaks */
    /* Present values. */
    uint64_t requested_bytes, block_total_bytes, reserved_bytes;
    uint64_t peak_requested_bytes, peak_reserved_bytes, requested_at_peak_bytes;
    size_t column, hole_column;
    uint64_t largest_request; /* of the present hole column */
    uint64_t lane_bytes;
    /* Integrals over the clock since the first event; over ops while the clock does not advance. */
    double requested_sum, reserved_sum, requested_op_sum, reserved_op_sum;
};

/* Prepare a pass. Requires the members from analysis to until_ops, and if is_again the policy's peaks and first failure. */
void flw_observer_begin(struct flw_observer *observer);
/* End the pass. Returns false if the segments of a peak were not kept, because that took too much work or memory was
 * released between two requests: free the policy's part (flw_analysis_drop) and let another pass follow. */
bool flw_observer_finish(struct flw_observer *observer);

/* Record that the op allocated a block; taken_bytes 0: unknown. */
void flw_observer_alloc(struct flw_observer *observer, size_t op, uint64_t address,
                        uint64_t taken_bytes);
/* Record that the op's request failed. */
void flw_observer_fail(struct flw_observer *observer, size_t op, uint64_t request_bytes);

/* Record the bytes held during the op. May be called several times for one op. */
void flw_observer_note(struct flw_observer *observer, size_t op, uint64_t requested_bytes,
                       uint64_t reserved_bytes);
/* End the op; the last note holds the bytes after the op. Ops ascend. */
void flw_observer_end_op(struct flw_observer *observer, size_t op);

#endif
