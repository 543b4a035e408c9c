/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the additional data of single blocks: announced uses and a tag. Most blocks have none.
 * Synchronization: the lock of the side records. */
#ifndef FLW_POOL_STATE_SIDE_RECORDS_H
#define FLW_POOL_STATE_SIDE_RECORDS_H

#include "heap/heap.h"

struct flw_pool;

/* Instead of a domain: any work of the context may use the block. */
#define FLW_ANY_USER FLW_UNOWNED

/* A block's side record: announced uses and a tag. Most blocks have none. */
struct flw_side_record {
    struct flw_side_record *next; /* in the bucket, or unused */
    uint64_t address;
    uint32_t tag;
    uint32_t flags; /* FALLOW_REQUEST_ bits */
    uint32_t point_count;
    bool overflowed; /* more streams than fit: all are queried */
    uint32_t domains[FLW_POINTS_MAX];
};

static inline bool flw_side_record_has_uses(const struct flw_side_record *side)
{
    return side->point_count > 0 || side->overflowed;
}

/* Return the side record of a block; NULL: none. Lock held. */
struct flw_side_record *flw_side_record_find(struct flw_pool *pool, uint64_t address);
/* The same, created if there is none; NULL: no host memory. Lock held. */
struct flw_side_record *flw_side_record_make(struct flw_pool *pool, uint64_t address);
/* Remove the record, if there is one, and copy it to *out_side. Takes the lock. */
bool flw_side_record_take(struct flw_pool *pool, uint64_t address,
                          struct flw_side_record *out_side);

#endif
