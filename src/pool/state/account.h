/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: how many bytes and blocks a pool has given out: by thread, by cache, in all; the peak; what was needed lately.
 */
#ifndef FLW_POOL_STATE_ACCOUNT_H
#define FLW_POOL_STATE_ACCOUNT_H

#include "pool/state/pool.h"

/* Owner: allocated (or, negative, freed). */
void flw_pool_account(struct flw_account *account, int64_t requested_bytes);
/* Owner: fold the thread's requested bytes into the pool's, raising the peaks. */
void flw_pool_settle(struct flw_pool *pool, struct flw_account *account);
/* A block that passes no cache. */
void flw_pool_note_special(struct flw_pool *pool, struct flw_account *account,
                           int64_t requested_bytes, int64_t live_bytes);
/* Now-live requested bytes: settled and not. */
int64_t flw_pool_requested(struct flw_pool *pool);
/* Raise the recent peak of live bytes; return it. */
uint64_t flw_pool_note_live(struct flw_pool *pool, uint64_t live);
/* Restart the recent peaks at the present amounts. */
void flw_pool_reset_peaks(struct flw_pool *pool);
/* Sums over all caches; exact at quiescent points. Returns live bytes. */
struct flw_pool_totals {
    uint64_t allocs, frees, misses, cached_bytes;
    int64_t live_bytes, requested_bytes, unsettled_peak_bytes;
};
uint64_t flw_pool_live(struct flw_pool *pool, struct flw_pool_totals *out);
/* Allocations so far, as of at most so many questions ago as there are caches: each question costs as much as one
 * cache. */
uint64_t flw_pool_allocs(struct flw_pool *pool);
/* pool->lock. A cache that is seized leaves the pool: what it counted stays. */
void flw_pool_keep_totals(struct flw_pool *pool, struct flw_tcache *cache);
/* heap lock. Return the captures' memory beyond live blocks. */
uint64_t flw_pool_captured_bytes(const struct flw_pool *pool);
/* Note that `live` bytes are needed at `now` ns. The first call starts the clock of decay. */
void flw_pool_note_demand(struct flw_pool *pool, int64_t live, uint64_t now);
/* Return the most that was noted in the last two seconds before the newest note; a quarter of a second more at most. */
uint64_t flw_pool_demand(const struct flw_pool *pool);

#endif
