/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the bytes and blocks that a pool has allocated: by thread, by cache, in total; the peak;
 * the recent need. */
#ifndef FLW_POOL_STATE_ACCOUNT_H
#define FLW_POOL_STATE_ACCOUNT_H

#include "pool/state/pool.h"

/* Count allocated bytes (negative: freed). For the owner. */
void flw_pool_account(struct flw_account *account, int64_t requested_bytes);
/* Add the thread's requested bytes to the pool's, raising the peaks. For the owner. */
void flw_pool_flush_account(struct flw_pool *pool, struct flw_account *account);
/* Count a block that no cache handles. */
void flw_pool_note_special(struct flw_pool *pool, struct flw_account *account,
                           int64_t requested_bytes, int64_t live_bytes);
/* Return the requested bytes of live blocks, flushed or not. */
int64_t flw_pool_requested(struct flw_pool *pool);
/* Raise the recent peak of live bytes; return it. */
uint64_t flw_pool_note_live(struct flw_pool *pool, uint64_t live);
/* Restart the recent peaks at the present amounts. */
void flw_pool_reset_peaks(struct flw_pool *pool);
/* Sum over all caches; exact while no call is under way. Returns live bytes. */
struct flw_pool_totals {
    uint64_t allocs, frees, misses, cached_bytes;
    int64_t live_bytes, requested_bytes, unflushed_peak_bytes;
};
uint64_t flw_pool_live(struct flw_pool *pool, struct flw_pool_totals *out);
/* Return the allocations so far, at most as many calls old as there are caches, since each call
 * reads one cache. */
uint64_t flw_pool_allocs(struct flw_pool *pool);
/* Keep the counts of a seized cache that leaves the pool. pool->lock held. */
void flw_pool_keep_totals(struct flw_pool *pool, struct flw_tcache *cache);
/* Return the captures' memory beyond live blocks. Heap lock held. */
uint64_t flw_pool_captured_bytes(const struct flw_pool *pool);
/* Record that `live` bytes are needed at `now` ns. The first call starts the clock of decay. */
void flw_pool_note_demand(struct flw_pool *pool, int64_t live, uint64_t now);
/* Return the largest need recorded in the last 2 to 2.25 seconds before the newest record. */
uint64_t flw_pool_demand(const struct flw_pool *pool);

#endif
