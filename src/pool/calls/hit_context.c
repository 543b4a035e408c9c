/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the hits of a pool in context order for calls on its handle, and of a recorded one.
 */
#include "pool/calls/hit_context.h"

/* The thread's cache of the pool, current, or NULL. */
static struct flw_tcache *find_cache(struct flw_pool *pool)
{
    struct flw_tcache *cache = flw_thread_find(pool->handle, NULL);
    if (cache == NULL || __atomic_load_n(&cache->pool, __ATOMIC_ACQUIRE) != pool) {
        return NULL;
    }
    flw_thread_select(cache);
    return cache;
}

static bool is_key(const struct flw_tcache *cache, bool is_recorded)
{
    return flw_asym_key_is(&cache->hot.key, flw_context_key(&cache->hot, is_recorded));
}

bool flw_context_alloc_recorded(uint64_t context_id, uint64_t size_bytes, void **out_ptr)
{
    return flw_context_alloc(context_id, size_bytes, out_ptr, FLW_HIT_RECORDED);
}

bool flw_context_free_recorded(const void *ptr)
{
    return flw_context_free(ptr, FLW_HIT_RECORDED);
}

bool flw_context_alloc_of(struct flw_pool *pool, uint64_t size_bytes, void **out_ptr)
{
    struct flw_tcache *cache = find_cache(pool);
    bool is_done = false;
    if (cache == NULL) {
        return false;
    }
    flw_asym_enter(&cache->hot.asym);
    if (is_key(cache, false)) {
        is_done = flw_context_alloc_inside(cache, size_bytes, out_ptr, FLW_HIT_PLAIN);
    } else if (is_key(cache, true)) {
        is_done = flw_context_alloc_inside(cache, size_bytes, out_ptr, FLW_HIT_RECORDED);
    }
    flw_asym_leave(&cache->hot.asym);
    return is_done;
}

bool flw_context_free_to(struct flw_pool *pool, const void *ptr)
{
    struct flw_tcache *cache = find_cache(pool);
    bool is_done = false;
    if (cache == NULL) {
        return false;
    }
    flw_asym_enter(&cache->hot.asym);
    if (is_key(cache, false)) {
        is_done = flw_context_free_inside(cache, ptr, FLW_HIT_PLAIN);
    } else if (is_key(cache, true)) {
        is_done = flw_context_free_inside(cache, ptr, FLW_HIT_RECORDED);
    }
    flw_asym_leave(&cache->hot.asym);
    return is_done;
}
