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
    *out_is_recorded = flw_asym_key_is(&cache->hot.key, flw_context_key(&cache->hot, true));
    return *out_is_recorded ||
           flw_asym_key_is(&cache->hot.key, flw_context_key(&cache->hot, false));
}

/* Inside. */
static bool lend_and_record(struct flw_tcache *cache, bool is_recorded, uint64_t size_bytes,
                            void **out_ptr)
{
    bool is_done = flw_epoch_lend_inside(cache, size_bytes, out_ptr);
    if (is_done && is_recorded) {
        flw_recording_hit(&cache->hot, FLW_TRACE_ALLOC, (uint64_t)(uintptr_t)*out_ptr, size_bytes,
                          false);
    }
    return is_done;
}

static bool give_back_and_record(struct flw_tcache *cache, bool is_recorded, const void *ptr)
{
    uint64_t bytes;
    bool is_done = flw_epoch_return_inside(cache, ptr, &bytes);
    if (is_done && is_recorded) {
        flw_recording_hit(&cache->hot, FLW_TRACE_FREE, (uint64_t)(uintptr_t)ptr, bytes, true);
    }
    return is_done;
}

bool flw_epoch_lend_recorded(uint64_t context_id, uint64_t size_bytes, void **out_ptr)
{
    struct flw_tcache_hot *hot = flw_tls_cache;
    struct flw_tcache *cache = (struct flw_tcache *)(void *)hot;
    bool is_done = false;
    flw_asym_enter(&hot->asym);
    if (flw_asym_key_is(&hot->key, flw_context_key(hot, true)) && cache->context_id == context_id) {
        is_done = lend_and_record(cache, true, size_bytes, out_ptr);
    }
    flw_asym_leave(&hot->asym);
    return is_done;
}

bool flw_epoch_give_back_recorded(const void *ptr)
{
    struct flw_tcache_hot *hot = flw_tls_cache;
    struct flw_tcache *cache = (struct flw_tcache *)(void *)hot;
    bool is_done = false;
    flw_asym_enter(&hot->asym);
    if (flw_asym_key_is(&hot->key, flw_context_key(hot, true))) {
        is_done = give_back_and_record(cache, true, ptr);
    }
    flw_asym_leave(&hot->asym);
    return is_done;
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
        is_done = lend_and_record(cache, is_recorded, size_bytes, out_ptr);
    }
    flw_asym_leave(&cache->hot.asym);
    return is_done;
}

bool flw_epoch_give_back_to(struct flw_pool *pool, const void *ptr)
{
    struct flw_tcache *cache = find_cache(pool);
    bool is_done = false, is_recorded;
    if (cache == NULL) {
        return false;
    }
    flw_asym_enter(&cache->hot.asym);
    if (is_key(cache, &is_recorded)) {
        is_done = give_back_and_record(cache, is_recorded, ptr);
    }
    flw_asym_leave(&cache->hot.asym);
    return is_done;
}
