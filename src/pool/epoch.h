/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: what the rest of the pool asks of one in context order. Does not: fence a context
 * (heap/epoch.h).
 */
#ifndef FLW_POOL_EPOCH_H
#define FLW_POOL_EPOCH_H

#include "heap/tcache.h"

struct flw_need;
struct flw_pool;

/* What a smaller request takes: the second class, whose blocks are 512 B aligned. */
#define FLW_EPOCH_LEAST_BYTES 512ull

/* The ladder of a pool in context order. */
fallow_status flw_epoch_climb(struct flw_pool *pool, struct flw_need *need);
/* Takes the cache lock. A block that was claimed goes to limbo, whose older content goes to the heap if need be. */
void flw_epoch_return(struct flw_pool *pool, struct flw_tcache *cache, struct flw_span *span,
                      struct flw_slot *slot);
/* cache lock. A few complete whole runs of a size that has just been lent. */
void flw_epoch_fill_runs(struct flw_pool *pool, struct flw_tcache *cache, uint32_t unit_count);
/* Driver calls: where enough was freed since the last one. */
void flw_epoch_close_if_due(struct flw_pool *pool);
/* Driver calls. Close an epoch over everything that was freed so far; true: something is complete. */
bool flw_epoch_close(struct flw_pool *pool);
/* The caller is about to synchronise the pool's context: flw_epoch_begin_sync (heap/epoch.h) that covers
 * what the calling thread has freed, too. */
uint64_t flw_epoch_expect_sync(struct flw_pool *pool);
/* Driver calls. Give back to the driver what is idle: caches emptied, the device waited for (not while
 * something is captured). What came back. */
uint64_t flw_epoch_trim(struct flw_pool *pool);

/* Does the pool's memory hold the address, lent or not? No lock. */
bool flw_epoch_owns(const struct flw_pool *pool, uint64_t address);
/* The block that is lent and holds the address, as it was asked for. False: none. No lock. */
struct flw_epoch_block {
    uint64_t base, size_bytes;
    bool is_whole;
    bool is_exported;
};
bool flw_epoch_find(const struct flw_pool *pool, uint64_t address, struct flw_epoch_block *out);
/* Somebody outside the process may map the whole block at `base`: when it is freed it goes to the driver
 * at once. False: it is not whole, or was freed meanwhile. */
bool flw_epoch_export(struct flw_pool *pool, uint64_t base);
/* Such a block, claimed, comes back. */
fallow_status flw_epoch_evict(struct flw_pool *pool, struct flw_tcache *cache,
                              struct flw_span *span, struct flw_slot *slot);

/* The most that may be held with so many bytes lent, before an allocation waits for the device. */
static inline uint64_t flw_epoch_bound(uint64_t live_bytes)
{
    return live_bytes + flw_max(256 * FLW_MIB, live_bytes / 4);
}

#endif
