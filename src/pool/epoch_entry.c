/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the hits of a pool in context order for calls on its handle, and recorded.
 */
#include "pool/epoch_entry.h"

#include "pool/recording.h"

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

static bool is_key(const struct flw_tcache *cache, bool *out_is_recorded)
{
    const void *key = FLW_LOAD(cache->hot.key);
    *out_is_recorded = key == flw_context_key(&cache->hot, true);
    return *out_is_recorded || key == flw_context_key(&cache->hot, false);
}

bool flw_epoch_lend_of(struct flw_pool *pool, uint64_t size_bytes, void **out_ptr)
{
    struct flw_tcache *cache = find_cache(pool);
    bool is_done = false, is_recorded;
    if (cache == NULL) {
        return false;
    }
    flw_asym_enter(&cache->hot.asym);
    if (is_key(cache, &is_recorded)) {
        is_done = flw_epoch_lend_inside(cache, size_bytes, out_ptr);
        if (is_done && is_recorded) {
            flw_recording_hit(&cache->hot, FLW_TRACE_ALLOC, (uint64_t)(uintptr_t)*out_ptr,
                              size_bytes, false);
        }
    }
    flw_asym_leave(&cache->hot.asym);
    return is_done;
}

bool flw_epoch_give_back_to(struct flw_pool *pool, const void *ptr)
{
    struct flw_tcache *cache = find_cache(pool);
    uint64_t bytes;
    bool is_done = false, is_recorded;
    if (cache == NULL) {
        return false;
    }
    flw_asym_enter(&cache->hot.asym);
    if (is_key(cache, &is_recorded)) {
        is_done = flw_epoch_return_inside(cache, ptr, &bytes);
        if (is_done && is_recorded) {
            flw_recording_hit(&cache->hot, FLW_TRACE_FREE, (uint64_t)(uintptr_t)ptr, bytes, true);
        }
    }
    flw_asym_leave(&cache->hot.asym);
    return is_done;
}
