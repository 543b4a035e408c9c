/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the heap at a trace's end: segments and their blocks, each with an address.
 * Does not: write the heap.
 *
 * If the trace has no addresses, or the segments do not contain the last blocks, each block gets an address or a
 * segment of its own; see has_recorded_segments.
 */
#ifndef FLW_TRACE_TRACE_FINAL_HEAP_H
#define FLW_TRACE_TRACE_FINAL_HEAP_H

#include "trace/trace/trace.h"

/* A block that is live at the end, or freed and not yet reusable. */
struct flw_final_heap_block {
    uint64_t address;
    uint32_t block, pool, stack; /* of the allocation */
};

struct flw_final_heap {
    uint64_t *addresses;                 /* of every block of the trace */
    struct flw_final_heap_block *blocks; /* in address order */
    size_t block_count;
    struct flw_trace_segment *segments; /* in address order */
    size_t segment_count;
    bool has_recorded_segments;
    bool has_done; /* the trace has FREE_DONE events */
};

/* Find the heap at the end. Returns false if memory runs out, or if blocks without addresses add up to more than 64
 * bits; then nothing is held. */
bool flw_final_heap_init(struct flw_final_heap *heap, const struct flw_trace *trace);
void flw_final_heap_finish(struct flw_final_heap *heap);

/* Return the number of the first block at or above an address. */
size_t flw_final_heap_find(const struct flw_final_heap *heap, uint64_t address);

/* Round bytes up as PyTorch rounds a request; at least one unit. */
uint64_t flw_final_heap_round(uint64_t bytes);

#endif
