/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the slow half of free: blocks without room in a bin or run set, special blocks, and the
 * work due after a free: events and the demand.
 * Does not: hold blocks back for a front (state/extension.h). */
#ifndef FLW_POOL_CALLS_FREE_H
#define FLW_POOL_CALLS_FREE_H

#include "pool/state/pool.h"

fallow_status flw_pool_free(struct flw_pool *pool, void *ptr, fallow_stream stream);
/* Free raw blocks, without a front. */
fallow_status flw_pool_free_plain(struct flw_pool *pool, void *ptr, fallow_stream stream);
/* Free a block after the caller has waited for all uses: unowned at once, if no other order
 * applies. */
fallow_status flw_pool_free_complete(struct flw_pool *pool, void *ptr);

/* True if callers that need memory record the fences, rather than callers that free. */
static inline bool flw_pool_leaves_fences(const struct flw_pool *pool)
{
    return FLW_UNLIKELY(flw_budget_is_prompt(&pool->budget)) &&
           atomic_load_explicit(&pool->heap.stream_count, memory_order_relaxed) > 1;
}
/* True if enough was freed on the stream for an event: at most one per 16 MiB, and only if another
 * stream could use the memory. (On a thread's default stream no other thread can record one.) */
static inline bool flw_pool_is_stream_fence_due(const struct flw_pool *pool,
                                                const struct flw_domain *domain)
{
    uint64_t unfenced = atomic_load_explicit(&domain->unfenced_bytes, memory_order_relaxed);
    return (unfenced >= 16 * FLW_MIB &&
            (domain->own_thread_only || !flw_pool_leaves_fences(pool)) &&
            atomic_load_explicit(&pool->heap.stream_count, memory_order_relaxed) > 1) ||
           (pool->config.streams_may_die && unfenced > 0);
}
/* A poll at a bad moment finds all memory freed before still in use. Speed first never waits and
 * would grow instead, so it leaves at most an eighth of the memory to such polls. */
static inline bool flw_pool_leaves_uses(const struct flw_pool *pool, uint64_t bytes)
{
    return flw_pool_leaves_fences(pool) &&
           (pool->config.economy != FALLOW_SPEED_FIRST ||
            bytes < atomic_load_explicit(&pool->heap.reserved_bytes, memory_order_relaxed) / 8);
}
/* True if enough uses were announced for an event. */
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
/* Restart fence_left_bytes, which is used up; return true if a fence is worthwhile. Called by the
 * owner, inside or alone. */
bool flw_pool_earns_fence(const struct flw_pool *pool, struct flw_tcache *cache);
/* Do the work due after a free through the cache: events, decay, a loss. Makes driver calls. */
void flw_pool_keep_up(struct flw_pool *pool, struct flw_tcache *cache, bool earns_fence);

#endif
