/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: gathering one policy's part of a sheet while a run passes: series, peaks, holes, frames and rectangles. A cheap
 * run passes twice, first as a scout that only finds the peaks. Any other run passes once: the segments of every op
 * that may be a peak are kept, and the blocks of the peak are derived from their lives after the run.
 * Does not: run anything. The caller reports allocations, held bytes, and the end of each op.
 */
#ifndef FLW_TOOL_REPORT_PROBE_H
#define FLW_TOOL_REPORT_PROBE_H

#include "report/facts.h"
#include "report/heapview.h"

/* The heap at the highest peak so far, after the op that reached the peak. */
struct flw_probe_moment {
    uint64_t op;
    uint64_t requested_bytes, block_total_bytes, reserved_bytes;
    struct flw_sheet_segment *segments;
    size_t segment_count, segment_capacity;
    bool is_kept; /* false: the segments were not kept */
};

struct flw_probe {
    const struct flw_sheet *sheet;
    const struct flw_facts *facts;
    struct flw_sheet_policy *policy;
    bool is_scout;
    bool finds_peaks; /* the only pass: the peaks are not known in advance */
    bool knows_blocks, knows_reserved;
    bool has_lanes; /* blocks without a rectangle are kept in lanes */
    /* Updates view.segments. NULL: the heap has no addresses. */
    void (*list_segments)(struct flw_probe *probe, void *context);
    void *context;
    struct flw_heapview view;
    uint64_t *block_bytes;                             /* by block; if knows_blocks */
    uint64_t *places;                                  /* by block: the address; if finds_peaks */
    struct flw_probe_moment at_reserved, at_requested; /* of the peaks; if finds_peaks */
    uint64_t kept_count;                               /* segments of all kept moments */
    /* Present values. */
    uint64_t requested_bytes, block_total_bytes, reserved_bytes;
    uint64_t peak_requested_bytes, peak_reserved_bytes, requested_at_peak_bytes;
    size_t column, hole_column;
    uint64_t next_frame_op;   /* the next frame's op, failures excluded */
    uint64_t largest_request; /* of the present hole column */
    size_t next_selected;     /* index into facts->selected */
    uint64_t lane_bytes;
    /* Integrals over the clock since the first event; over ops while the clock does not advance. */
    double requested_sum, reserved_sum, requested_op_sum, reserved_op_sum;
};

/* Prepare a pass. Requires the members from sheet to is_scout, knows_* and list_segments, and the peaks in the policy
 * if a scout ran. */
void flw_probe_init(struct flw_probe *probe);
/* End the pass. Returns false if the segments of a peak were not kept, because that took too much work or memory was
 * released between two requests: another pass that knows the peaks must follow. */
bool flw_probe_finish(struct flw_probe *probe);

/* Record that the op allocated a block; taken_bytes 0: unknown. */
void flw_probe_alloc(struct flw_probe *probe, size_t op, uint64_t address, uint64_t taken_bytes);
void flw_probe_take_back(struct flw_probe *probe, uint32_t block);
/* Record that the op's request failed. */
void flw_probe_fail(struct flw_probe *probe, size_t op, uint64_t request_bytes);

/* Record the bytes held during the op. May be called several times for one op. */
void flw_probe_note(struct flw_probe *probe, size_t op, uint64_t requested_bytes,
                    uint64_t reserved_bytes);
/* End the op; the last note holds the bytes after the op. Ops ascend. */
void flw_probe_end_op(struct flw_probe *probe, size_t op);

#endif
