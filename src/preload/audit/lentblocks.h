/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the blocks that the program holds now, by address, and what has happened to each since it
 * was allocated: nothing, fills of stretches, or a touch.
 * Does not: know who filled or touched; lock.
 *
 * A search tree balanced by a hash of the address, its nodes in one range of host memory.
 *
 * INVARIANTS (flw_lentblocks_is_valid)
 *   1. blocks do not overlap; the tree is ordered by address and a parent's weight is its largest
 *   2. a block's filled stretches lie inside it and do not overlap
 *   3. count = nodes in the tree
 *
 * Synchronization: the owner's.
 */
#ifndef FLW_PRELOAD_AUDIT_LENTBLOCKS_H
#define FLW_PRELOAD_AUDIT_LENTBLOCKS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/meta.h"

#define FLW_LENTBLOCK_FILLS 4

struct flw_stretch {
    uint64_t begin, end;
};

struct flw_lentblock {
    uint64_t begin, end;
    uint64_t epoch; /* of the owner when it was allocated; see flw_lentblocks.epoch */
    uint32_t left, right, weight;
    uint16_t fill_count;
    bool is_touched;
    struct flw_stretch fills[FLW_LENTBLOCK_FILLS];
};

struct flw_lentblocks {
    struct flw_meta memory;
    struct flw_lentblock *nodes; /* [0] is unused */
    uint32_t root, unused, made_count;
    uint64_t count;
    uint64_t epoch; /* raised by flw_lentblocks_touch_all: blocks allocated before count as
                       touched */
};

/* False: the system refused address space. */
bool flw_lentblocks_init(struct flw_lentblocks *blocks);
void flw_lentblocks_finish(struct flw_lentblocks *blocks);

/* Blocks that it overlaps are forgotten: their end was not seen. False: no host memory, or the
 * range is empty or wraps; the block is not followed. */
bool flw_lentblocks_add(struct flw_lentblocks *blocks, uint64_t address, uint64_t bytes);
/* The block that begins there, if any. */
void flw_lentblocks_remove(struct flw_lentblocks *blocks, uint64_t address);
/* The block with that address inside; NULL: none. */
struct flw_lentblock *flw_lentblocks_find(struct flw_lentblocks *blocks, uint64_t address);

void flw_lentblocks_touch_all(struct flw_lentblocks *blocks);
bool flw_lentblock_is_touched(const struct flw_lentblocks *blocks,
                              const struct flw_lentblock *block);
/* Has nothing but fills of other stretches happened to the block? */
bool flw_lentblock_is_fresh(const struct flw_lentblocks *blocks, const struct flw_lentblock *block,
                            uint64_t begin, uint64_t end);
/* The stretch is filled from now on; too many stretches make the block touched. */
void flw_lentblock_fill(struct flw_lentblock *block, uint64_t begin, uint64_t end);

bool flw_lentblocks_is_valid(const struct flw_lentblocks *blocks);

#endif
