/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a policy's heap as a picture can show it: its live blocks and segments by address, and the
 * holes between them, at moments that the caller chooses. Between two moments it only notes what
 * was allocated, so that a moment costs what is alive then and not what has passed.
 * Does not: know policies or devices; the caller names what is allocated and brings the segments.
 */
#ifndef FLW_TOOL_REPORT_HEAPVIEW_H
#define FLW_TOOL_REPORT_HEAPVIEW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "report/sheet.h"

struct flw_heapview_block {
    uint64_t address;
    uint32_t block;
};

/* All zero but for the borrowed ones is an empty heap. */
struct flw_heapview {
    const struct flw_trace *trace;     /* borrowed */
    const uint64_t *addresses;         /* borrowed: by block; 0 = not allocated */
    const uint64_t *block_bytes;       /* borrowed: by block; NULL: as requested */
    const uint8_t *pending;            /* borrowed: by block, 1 = freed; NULL: none is */
    struct flw_heapview_block *blocks; /* those alive at the last look, by address */
    size_t block_count, block_capacity;
    uint32_t *fresh; /* allocated since */
    size_t fresh_count, fresh_capacity;
    struct flw_sheet_segment *segments; /* by address; the caller fills them */
    size_t segment_count, segment_capacity;
};

void flw_heapview_add(struct flw_heapview *view, uint32_t block);
/* Room for so many segments, which there are now. */
void flw_heapview_make_segments(struct flw_heapview *view, size_t count);
/* What is alive now, in order. */
void flw_heapview_look(struct flw_heapview *view);

/* Of the last look and the present segments. */
void flw_heapview_measure(const struct flw_heapview *view, struct flw_sheet_holes *out);
void flw_heapview_copy(const struct flw_heapview *view, struct flw_sheet_frame *frame);

void flw_heapview_finish(struct flw_heapview *view);

/* The bin of a size: i for (2^(i-1), 2^i]. */
size_t flw_sheet_size_bin(uint64_t bytes);

#endif
