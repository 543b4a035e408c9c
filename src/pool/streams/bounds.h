/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the bounds of a thread cache. */
#ifndef FLW_POOL_STREAMS_BOUNDS_H
#define FLW_POOL_STREAMS_BOUNDS_H

#include "pool/state/pool.h"

static inline uint64_t flw_pool_cache_budget(const struct flw_pool *pool)
{
    uint64_t reserved = atomic_load_explicit(&pool->heap.reserved_bytes, memory_order_relaxed);
    uint64_t own = flw_clamp(reserved / 64, 4 * FLW_MIB, 256 * FLW_MIB);
    uint64_t all = flw_max(reserved / 32, 8 * FLW_MIB);
    return flw_min(own, all / (pool->cache_count == 0 ? 1 : pool->cache_count));
}

/* Return the most bytes of runs that a cache may hold. */
static inline uint64_t flw_pool_run_limit(const struct flw_pool *pool)
{
    return flw_tcache_run_limit(&pool->heap);
}

/* Let the bin hold more, up to the room and the cache's budget. Cache lock held. */
static inline void flw_pool_widen_bin(const struct flw_pool *pool, struct flw_tcache *cache,
                                      struct flw_bin *bin, unsigned class_index)
{
    uint64_t size = flw_class_bytes(class_index);
    uint64_t most = flw_bin_most(class_index);
    uint64_t wanted = flw_min(
        bin->capacity == 0 ? flw_clamp(64 * FLW_KIB / size, 2, 16) : bin->capacity * 2, most);
    uint64_t bytes = (wanted - bin->capacity) * size;
    if (cache->bin_bytes + bytes <= flw_pool_cache_budget(pool) || bin->capacity == 0) {
        (void)flw_tcache_use_bin(cache, class_index);
        cache->bin_bytes += bytes;
        bin->capacity = wanted;
    }
}

#endif
