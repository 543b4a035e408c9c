/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the pool's side of thread caches that are there: emptying, opening, closing, ending them.
 */
#ifndef FLW_POOL_STREAMS_CACHE_H
#define FLW_POOL_STREAMS_CACHE_H

#include "pool/state/pool.h"

/* pool->lock. Add a cache that is bound to its domain to the pool's list. */
void flw_pool_list_cache(struct flw_pool *pool, struct flw_tcache *cache);
/* pool->lock. Begin the list with this cache; earlier caches are at its end now. NULL: no change. */
void flw_pool_begin_caches_at(struct flw_pool *pool, struct flw_tcache *cache);
/* Empty caches into the heap: all, all but mine, or those of one domain. True if anything moved. */
bool flw_pool_drain(struct flw_pool *pool, const struct flw_tcache *but,
                    const struct flw_domain *only);
/* Close caches of a domain for good (retire, loss): threads make new ones on their next call. */
void flw_pool_close_caches(struct flw_pool *pool, const struct flw_domain *domain);
/* Is the stream being captured? That may end before the caller has done anything about it. */
static inline bool flw_capture_is_on(const struct flw_domain *stream_domain)
{
    return __atomic_load_n(&stream_domain->captured_by, __ATOMIC_ACQUIRE) != 0;
}
/* pool->lock. May the caches of a stream serve hits? */
static inline bool flw_pool_may_open(struct flw_pool *pool, const struct flw_domain *domain)
{
    return !pool->divert_all && !atomic_load(&pool->gate.closes_hits) && !flw_capture_is_on(domain);
}
/* Divert or restore the caches of a stream: a capture has begun or ended on it. */
void flw_pool_divert(struct flw_pool *pool, const struct flw_domain *domain);
/* No hits in any cache, those that are made from now on included; or again. */
void flw_pool_close_hits(struct flw_pool *pool, bool is_closed);
/* Take a cache of the calling thread from its pool, unless another thread has closed the cache, and recycle the cache,
 * when the thread or the cache's stream ends. Waits for a thread that is seizing caches of the pool. */
void flw_pool_cache_exit(struct flw_tcache *cache);
/* At exit or after a fork: no hit any more; no waiting, no lock. */
void flw_pool_poison_all(struct flw_pool *pool);
void flw_lifecycle_renew_lock(void); /* after a fork */
/* The device is lost: from now on every call takes the slow path, which answers for it. */
void flw_pool_note_loss(struct flw_pool *pool);
/* Detach every cache: the pool goes. */
void flw_pool_detach_caches(struct flw_pool *pool);

#endif
