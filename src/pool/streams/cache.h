/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the pool's operations on thread caches: emptying, opening, closing, ending. */
#ifndef FLW_POOL_STREAMS_CACHE_H
#define FLW_POOL_STREAMS_CACHE_H

#include "pool/state/pool.h"

/* Add a cache that is bound to the domain to the pool's list. pool->lock held. */
void flw_pool_list_cache(struct flw_pool *pool, struct flw_tcache *cache);
/* Begin the list with this cache; earlier caches move to the end. NULL: no change. pool->lock
 * held. */
void flw_pool_begin_caches_at(struct flw_pool *pool, struct flw_tcache *cache);
/* Empty caches into the heap: all, all except one, or those of one domain. True if
 * anything moved. */
bool flw_pool_drain(struct flw_pool *pool, const struct flw_tcache *but,
                    const struct flw_domain *only);
/* Close a domain's caches for good (retire, loss): threads create new ones in their next call. */
void flw_pool_close_caches(struct flw_pool *pool, const struct flw_domain *domain);
/* True if the stream is being captured; the capture may end before the caller acts. */
static inline bool flw_capture_is_on(const struct flw_domain *stream_domain)
{
    return __atomic_load_n(&stream_domain->captured_by, __ATOMIC_ACQUIRE) != 0;
}
/* True if a stream's caches may serve hits. pool->lock held. */
static inline bool flw_pool_may_open(struct flw_pool *pool, const struct flw_domain *domain)
{
    return !pool->divert_all && !atomic_load(&pool->gate.closes_hits) && !flw_capture_is_on(domain);
}
/* Close or open a stream's caches, after a capture began or ended. */
void flw_pool_divert(struct flw_pool *pool, const struct flw_domain *domain);
/* Close all caches, future ones included; or open them. */
void flw_pool_close_hits(struct flw_pool *pool, bool is_closed);
/* Take a cache of the calling thread from the pool, unless another thread has closed it, and
 * recycle it, when the thread or the cache's stream ends. Waits for a thread that is seizing
 * caches of the pool. */
void flw_pool_cache_exit(struct flw_tcache *cache);
/* At exit or after a fork: end all hits, without waits and locks. */
void flw_pool_poison_all(struct flw_pool *pool);
void flw_lifecycle_renew_lock(void); /* after a fork */
/* After the device was lost: make every call take the slow path, which returns the error. */
void flw_pool_note_loss(struct flw_pool *pool);
/* Detach every cache at the pool's end. */
void flw_pool_detach_caches(struct flw_pool *pool);

#endif
