/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a policy's heap at moments that the caller chooses: the live blocks and segments by address, and the holes
 * between the blocks. Between two moments only allocations are recorded, so the cost of a moment depends on the live
 * blocks and not on the number of earlier ops.
 * Does not: run policies or read devices; the caller reports allocations and fills in the segments.
 */
#ifndef FLW_TOOL_REPORT_HEAPVIEW_H
#define FLW_TOOL_REPORT_HEAPVIEW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "report/analysis.h"

struct flw_heapview_block {
    uint64_t address;
    uint32_t block;
};

/* Zero all members except the borrowed ones for an empty heap. */
struct flw_heapview {
    const struct flw_trace *trace; /* borrowed */
    const uint64_t *addresses;     /* borrowed: by block; 0 = not allocated */
    const uint64_t *block_bytes;   /* borrowed: by block; NULL: the requested sizes */
    const uint8_t *pending;        /* borrowed: by block, 1 = freed; NULL: no block is pending */
    struct flw_heapview_block *blocks; /* live blocks at the last look, by address */
    size_t block_count, block_capacity;
    uint32_t *fresh; /* allocated since the last look */
    size_t fresh_count, fresh_capacity;
    struct flw_analysis_segment *segments; /* by address; filled by the caller */
    size_t segment_count, segment_capacity;
};

void flw_heapview_add(struct flw_heapview *view, uint32_t block);
/* Set the number of segments to `count`; the caller fills in the segments. */
void flw_heapview_make_segments(struct flw_heapview *view, size_t count);
/* Update the list of live blocks. */
void flw_heapview_look(struct flw_heapview *view);

/* Visit the holes by address; sum up the holes; copy the blocks of the last look and the present segments. */
void flw_heapview_each_hole(const struct flw_heapview *view,
                            void (*take)(void *context, uint64_t address, uint64_t bytes),
                            void *context);
void flw_heapview_measure(const struct flw_heapview *view, struct flw_analysis_holes *out);
void flw_heapview_copy(const struct flw_heapview *view, struct flw_analysis_frame *frame);

void flw_heapview_finish(struct flw_heapview *view);

/* Return the bin of a size: i for (2^(i-1), 2^i]. */
size_t flw_analysis_size_bin(uint64_t bytes);

/* The threshold that keeps the largest of some values: the least kept value, and the number of values equal to the least
 * that may still be kept. */
struct flw_analysis_cut {
    uint64_t least;
    size_t tie_count;
};

/* Find the cut that keeps the `most` largest values; of equals, the first. Sorts the values. */
struct flw_analysis_cut flw_analysis_cut(uint64_t *values, size_t count, size_t most);

/* True if the next value, in the original order, is kept. */
static inline bool flw_analysis_cut_keeps(struct flw_analysis_cut *cut, uint64_t value)
{
    bool is_tie = value == cut->least, keeps = value > cut->least || (is_tie && cut->tie_count > 0);
    cut->tie_count -= keeps && is_tie;
    return keeps;
}

#endif
