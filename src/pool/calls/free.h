/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the slow half of free: what no bin or run set could take, blocks with something special
 * about them, and what is due after a free: events, the demand.
 * Does not: hold what a front keeps back (state/extension.h).
 */
#ifndef FLW_POOL_CALLS_FREE_H
#define FLW_POOL_CALLS_FREE_H

#include "pool/state/pool.h"

fallow_status flw_pool_free(struct flw_pool *pool, void *ptr, fallow_stream stream);
/* The same without a front: raw blocks. */
fallow_status flw_pool_free_plain(struct flw_pool *pool, void *ptr, fallow_stream stream);
/* Free a block after the caller has waited for all uses: unowned at once, if no other order applies. */
fallow_status flw_pool_free_complete(struct flw_pool *pool, void *ptr);

/* Does who looks for memory have the fences recorded, rather than who frees? */
static inline bool flw_pool_leaves_fences(const struct flw_pool *pool)
{
    return FLW_UNLIKELY(flw_budget_is_prompt(&pool->budget)) &&
           atomic_load_explicit(&pool->heap.stream_count, memory_order_relaxed) > 1;
}
/* Has enough been freed on the stream for an event? At most one per 16 MiB, and only where another
 * stream could want the memory. (On a thread's default stream no other can have one recorded.) */
static inline bool flw_pool_is_stream_fence_due(const struct flw_pool *pool,
                                                const struct flw_domain *domain)
{
    uint64_t unfenced = atomic_load_explicit(&domain->unfenced_bytes, memory_order_relaxed);
    return (unfenced >= 16 * FLW_MIB &&
            (domain->own_thread_only || !flw_pool_leaves_fences(pool)) &&
            atomic_load_explicit(&pool->heap.stream_count, memory_order_relaxed) > 1) ||
           (pool->config.streams_may_die && unfenced > 0);
}
/* A look may come at a bad time, and all that was freed before it seems under way then. Speed first would grow for that,
 * since it never waits: an eighth of what it holds is the most that it leaves. */
static inline bool flw_pool_leaves_uses(const struct flw_pool *pool, uint64_t bytes)
{
    return flw_pool_leaves_fences(pool) &&
           (pool->config.economy != FALLOW_SPEED_FIRST ||
            bytes < atomic_load_explicit(&pool->heap.reserved_bytes, memory_order_relaxed) / 8);
}
/* Have enough uses been announced? */
static inline bool flw_pool_is_use_fence_due(const struct flw_pool *pool)
{
    const struct flw_heap *heap = &pool->heap;
    uint64_t bytes = atomic_load_explicit(&heap->unfenced_use_bytes, memory_order_relaxed);
    return (bytes >= 16 * FLW_MIB && !flw_pool_leaves_uses(pool, bytes)) ||
           atomic_load_explicit(&heap->unfenced_use_count, memory_order_relaxed) >= 256;
}
static inline bool flw_pool_is_fence_due(const struct flw_pool *pool,
                                         const struct flw_domain *domain)
{
    return flw_pool_is_stream_fence_due(pool, domain) || flw_pool_is_use_fence_due(pool) ||
           atomic_load_explicit(&pool->budget.late_domain, memory_order_relaxed) != 0;
}
/* Owner, inside or alone: fence_left_bytes is used up; start anew. True: a fence is worth it. */
bool flw_pool_earns_fence(const struct flw_pool *pool, struct flw_tcache *cache);
/* After a free through the cache: the events that are due, decay, a loss. Driver calls. */
void flw_pool_keep_up(struct flw_pool *pool, struct flw_tcache *cache, bool earns_fence);

#endif
