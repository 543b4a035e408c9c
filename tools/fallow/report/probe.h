/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: what one policy's part of a sheet is gathered with while a run passes: series, peaks, holes,
 * frames and rectangles. Where a run is cheap it passes twice, first for a scout, which only finds where the peaks
 * lie. Else it passes once: of every op that may be a peak the segments are kept, and its blocks are told from their
 * lives when the run is done.
 * Does not: run anything. The caller says what is allocated, how much is held, and when an op is
 * done.
 */
#ifndef FLW_TOOL_REPORT_PROBE_H
#define FLW_TOOL_REPORT_PROBE_H

#include "report/facts.h"
#include "report/heapview.h"

/* The heap when an op was done that nothing has been a higher peak than. */
struct flw_probe_moment {
    uint64_t op;
    uint64_t requested_bytes, block_total_bytes, reserved_bytes;
    struct flw_sheet_segment *segments;
    size_t segment_count, segment_capacity;
    bool is_kept; /* else it passed before its segments were */
};

struct flw_probe {
    const struct flw_sheet *sheet;
    const struct flw_facts *facts;
    struct flw_sheet_policy *policy;
    bool is_scout;
    bool finds_peaks; /* passes once: the peaks are not known before */
    bool knows_blocks, knows_reserved;
    bool has_lanes; /* what has no rectangle is kept in lanes */
    /* Brings view.segments up to date; NULL: the heap has no addresses. */
    void (*list_segments)(struct flw_probe *probe, void *context);
    void *context;
    struct flw_heapview view;
    uint64_t *block_bytes; /* by block; where knows_blocks */
    uint64_t *places;      /* by block: where it was put; where finds_peaks */
    struct flw_probe_moment at_reserved, at_requested; /* of the peaks; where finds_peaks */
    uint64_t kept_count;                               /* segments, in all of them */
    /* As of now. */
    uint64_t requested_bytes, block_total_bytes, reserved_bytes;
    uint64_t peak_requested_bytes, peak_reserved_bytes, requested_at_peak_bytes;
    size_t column, hole_column;
    uint64_t next_frame_op;   /* no frame before it, but of a failure */
    uint64_t largest_request; /* in the hole column */
    size_t next_selected;     /* index into facts->selected */
    uint64_t lane_bytes;
    /* Over the clock since the first event; over ops, where the clock stands still. */
    double requested_sum, reserved_sum, requested_op_sum, reserved_op_sum;
};

/* sheet to is_scout, knows_ and list_segments are set, and a scout has filled the policy's peaks. */
void flw_probe_init(struct flw_probe *probe);
/* False: of a peak that was to be found the segments were not kept, since that had become too much work or memory was
 * given back between two requests: a run that knows the peaks has to pass. */
bool flw_probe_finish(struct flw_probe *probe);

/* The op allocated a block; `taken_bytes` 0: unknown. */
void flw_probe_alloc(struct flw_probe *probe, size_t op, uint64_t address, uint64_t taken_bytes);
void flw_probe_take_back(struct flw_probe *probe, uint32_t block);
/* The op's request failed. */
void flw_probe_fail(struct flw_probe *probe, size_t op, uint64_t request_bytes);

/* This much is held during the op; may be called several times for one op. */
void flw_probe_note(struct flw_probe *probe, size_t op, uint64_t requested_bytes,
                    uint64_t reserved_bytes);
/* The op is done, and the last note was what it leaves. Ops are named in order. */
void flw_probe_end_op(struct flw_probe *probe, size_t op);

#endif
