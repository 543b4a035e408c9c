/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: what a trace leaves at its end: the segments and the blocks in them, each at an address.
 * Does not: write it down.
 *
 * Where the trace has no addresses, or its segments do not hold its last blocks, each block gets a
 * place or a segment of its own; has_recorded_segments tells.
 */
#ifndef FLW_TRACE_TRACE_REMAINS_H
#define FLW_TRACE_TRACE_REMAINS_H

#include "trace/trace/trace.h"

/* A block that is allocated at the end, or freed and not yet reusable. */
struct flw_remains_block {
    uint64_t address;
    uint32_t block;
};

struct flw_remains {
    uint64_t *addresses;              /* of every block of the trace */
    uint32_t *pools;                  /* the same; as a context's */
    uint32_t *stacks;                 /* the same; where it was allocated */
    struct flw_remains_block *blocks; /* in address order */
    size_t block_count;
    struct flw_trace_segment *segments; /* in address order */
    size_t segment_count;
    bool has_recorded_segments;
    bool has_done; /* the trace has FREE_DONE events */
};

/* False: no memory, or blocks without addresses add up to more than 64 bits hold; nothing is held. */
bool flw_remains_init(struct flw_remains *remains, const struct flw_trace *trace);
void flw_remains_finish(struct flw_remains *remains);

/* Number of the first of the blocks at or above an address. */
size_t flw_remains_find(const struct flw_remains *remains, uint64_t address);

/* Bytes as PyTorch rounds a request; at least one unit. */
uint64_t flw_remains_round(uint64_t bytes);

#endif
