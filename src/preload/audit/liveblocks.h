/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the program's live blocks, by address, and the history of each since the allocation:
 * untouched, filled ranges, or touched.
 * Does not: record callers; lock.
 *
 * A search tree balanced by a hash of the address, with nodes in one range of host memory.
 *
 * INVARIANTS (flw_liveblocks_is_valid)
 *   1. blocks do not overlap; the tree is ordered by address and a parent's weight is the largest
 *   2. a block's filled ranges are inside it and do not overlap
 *   3. count = nodes in the tree
 *
 * Synchronization: the owner's. */
#ifndef FLW_PRELOAD_AUDIT_LIVEBLOCKS_H
#define FLW_PRELOAD_AUDIT_LIVEBLOCKS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/meta.h"

#define FLW_LIVEBLOCK_FILLS 4

struct flw_stretch {
    uint64_t begin, end;
};

struct flw_liveblock {
    uint64_t begin, end;
    uint64_t epoch; /* of the owner at the allocation; see flw_liveblocks.epoch */
    uint32_t left, right, weight;
    uint16_t fill_count;
    bool is_touched;
    struct flw_stretch fills[FLW_LIVEBLOCK_FILLS];
};

struct flw_liveblocks {
    struct flw_meta memory;
    struct flw_liveblock *nodes; /* [0] is unused */
    uint32_t root, unused, made_count;
    uint64_t count;
    uint64_t epoch; /* raised by flw_liveblocks_touch_all: blocks allocated before count as
                        touched */
};

/* False: the system refused address space. */
bool flw_liveblocks_init(struct flw_liveblocks *blocks);
void flw_liveblocks_finish(struct flw_liveblocks *blocks);

/* Add a block. Blocks that it overlaps are forgotten, since their free was not seen. False: no
 * host memory, or the range is empty or wraps; the block is not tracked. */
bool flw_liveblocks_add(struct flw_liveblocks *blocks, uint64_t address, uint64_t bytes);
/* Remove the block that begins there, if any. */
void flw_liveblocks_remove(struct flw_liveblocks *blocks, uint64_t address);
/* Return the block that contains the address; NULL: none. */
struct flw_liveblock *flw_liveblocks_find(struct flw_liveblocks *blocks, uint64_t address);

void flw_liveblocks_touch_all(struct flw_liveblocks *blocks);
bool flw_liveblock_is_touched(const struct flw_liveblocks *blocks,
                              const struct flw_liveblock *block);
/* True if the block had only fills of other ranges. */
bool flw_liveblock_is_fresh(const struct flw_liveblocks *blocks, const struct flw_liveblock *block,
                            uint64_t begin, uint64_t end);
/* Mark the range as filled; too many ranges make the block touched. */
void flw_liveblock_fill(struct flw_liveblock *block, uint64_t begin, uint64_t end);

bool flw_liveblocks_is_valid(const struct flw_liveblocks *blocks);

#endif
