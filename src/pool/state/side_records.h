/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: what the pool knows of single blocks beyond their slot: announced uses and a tag. Most blocks have none.
 * Synchronization: the lock of the side records.
 */
#ifndef FLW_POOL_STATE_SIDE_RECORDS_H
#define FLW_POOL_STATE_SIDE_RECORDS_H

#include "heap/heap.h"

struct flw_pool;

/* In the place of a domain: any work of the context may use the block. */
#define FLW_ANY_USER FLW_UNOWNED

/* A block's side record: announced uses and a tag. Most blocks have none. */
struct flw_side_record {
    struct flw_side_record *next; /* in its bucket, or unused */
    uint64_t address;
    uint32_t tag;
    uint32_t flags; /* FALLOW_REQUEST_ bits */
    uint32_t point_count;
    bool overflowed; /* more streams than fit: all are asked */
    uint32_t domains[FLW_POINTS_MAX];
};

static inline bool flw_side_record_has_uses(const struct flw_side_record *side)
{
    return side->point_count > 0 || side->overflowed;
}

/* lock. The side record of a block; NULL: it has none. */
struct flw_side_record *flw_side_record_find(struct flw_pool *pool, uint64_t address);
/* lock. The same, made where there is none; NULL: host memory. */
struct flw_side_record *flw_side_record_make(struct flw_pool *pool, uint64_t address);
/* Takes the lock. The record, if there is one, is no more; *out_side is what it said. */
bool flw_side_record_take(struct flw_pool *pool, uint64_t address,
                          struct flw_side_record *out_side);

#endif
