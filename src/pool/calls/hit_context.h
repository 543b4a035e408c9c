/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the hits of a pool in context order, from the calling thread's cache. A freed block must
 * not be the next one allocated: allocations take from bins and run sets that only the heap fills,
 * and freed blocks join the open frees.
 *
 * Inlined into the hooks, which have the context but no pool and no stream. */
#ifndef FLW_POOL_HIT_CONTEXT_H
#define FLW_POOL_HIT_CONTEXT_H

#include "pool/calls/hit.h"

/* ---- inside a cache in context order: false, without a change, if impossible */

static FLW_INLINE bool flw_context_alloc_inside(struct flw_tcache *cache, uint64_t size_bytes,
                                                void **out_ptr, enum flw_hit_kind kind)
{
    struct flw_slot *slot;
    if (FLW_LIKELY(size_bytes - 1 < cache->dedicated_bytes - 1)) {
        uint64_t step = flw_hit_step(size_bytes);
        if (!flw_hit_pop(&cache->hot, step + (step == 0), &slot)) {
            return false;
        }
    } else {
        uint64_t page_bytes = cache->pool->heap.source.granularity_bytes;
        if (size_bytes - 1 >= FLW_REQUEST_MAX || /* including 0 */
            !flw_hit_pop_run(cache, flw_align_up(size_bytes, page_bytes) >> FLW_UNIT_LOG2, &slot)) {
            return false;
        }
    }
    flw_hit_give(&cache->hot, slot, size_bytes, out_ptr, kind, false);
    return true;
}

static FLW_INLINE bool flw_context_free_inside(struct flw_tcache *cache, const void *ptr,
                                               enum flw_hit_kind kind)
{
    struct flw_tcache_hot *hot = &cache->hot;
    struct flw_span *span;
    struct flw_slot *slot = flw_slot_of(hot, ptr, &span);
    if (FLW_UNLIKELY(!flw_slot_is_live(slot, (uint64_t)(uintptr_t)ptr))) {
        return false;
    }
    int64_t left_bytes =
        cache->open_free_left_bytes - (int64_t)flw_allocation_bytes(FLW_LOAD(slot->allocation));
    if (FLW_UNLIKELY(left_bytes <= 0) ||
        FLW_UNLIKELY(cache->open_free_count == FLW_OPEN_FREE_SLOTS) ||
        FLW_UNLIKELY(!flw_hit_take_back(hot, slot, ptr, kind))) {
        return false;
    }
    struct flw_bin *bin = (struct flw_bin *)(void *)((unsigned char *)hot + span->bin);
    if (FLW_MUTANT(FREED_IS_READY) && bin->count < bin->capacity) {
        bin->slots[bin->count++] = slot;
        return true;
    }
    bin->moved_out++; /* for a run, counts in the unused bin */
    if (FLW_UNLIKELY(span->kind == FLW_SPAN_RUN)) {
        cache->run_pushes++;
        cache->run_out_bytes -= flw_run_bytes(span);
    }
    cache->open_free_bins[cache->open_free_count] = (uint16_t)span->bin;
    cache->open_frees[cache->open_free_count++] = slot;
    cache->open_free_left_bytes = left_bytes;
    return true;
}

/* ---- the calling thread's current cache: false, without a change, if impossible */

/* Allocate from the pool with this name (flw_pool_place). */
static FLW_INLINE bool flw_context_alloc(uint64_t context_id, uint64_t size_bytes, void **out_ptr,
                                         enum flw_hit_kind kind)
{
    struct flw_tcache_hot *hot = flw_tls_cache;
    struct flw_tcache *cache = (struct flw_tcache *)(void *)hot;
    bool is_done = false;
    flw_asym_enter(&hot->asym);
    if (FLW_LIKELY(flw_asym_key_is(&hot->key, flw_context_key(hot, kind == FLW_HIT_RECORDED))) &&
        FLW_LIKELY(cache->context_id == context_id)) {
        is_done = flw_context_alloc_inside(cache, size_bytes, out_ptr, kind);
    }
    flw_asym_leave(&hot->asym);
    return is_done;
}

static FLW_INLINE bool flw_context_free(const void *ptr, enum flw_hit_kind kind)
{
    struct flw_tcache_hot *hot = flw_tls_cache;
    bool is_done = false;
    flw_asym_enter(&hot->asym);
    if (FLW_LIKELY(flw_asym_key_is(&hot->key, flw_context_key(hot, kind == FLW_HIT_RECORDED)))) {
        is_done = flw_context_free_inside((struct flw_tcache *)(void *)hot, ptr, kind);
    }
    flw_asym_leave(&hot->asym);
    return is_done;
}

/* The same for a recorded cache; separate, so that a hook need not contain both. */
bool flw_context_alloc_recorded(uint64_t context_id, uint64_t size_bytes, void **out_ptr);
bool flw_context_free_recorded(const void *ptr);

/* Enter the calling thread's cache for a call with the handle of a pool in context order. The
 * cache is current then, until flw_asym_leave; *out_kind is the kind. NULL, and not inside: there
 * is none, or it is closed. */
static inline struct flw_tcache *flw_context_enter(struct flw_pool *pool,
                                                   enum flw_hit_kind *out_kind)
{
    struct flw_tcache *cache = flw_thread_find(pool->handle, NULL);
    if (cache == NULL || __atomic_load_n(&cache->pool, __ATOMIC_ACQUIRE) != pool) {
        return NULL;
    }
    flw_thread_select(cache);
    flw_asym_enter(&cache->hot.asym);
    bool is_recorded = flw_asym_key_is(&cache->hot.key, flw_context_key(&cache->hot, true));
    *out_kind = is_recorded ? FLW_HIT_RECORDED : FLW_HIT_PLAIN;
    if (is_recorded || flw_asym_key_is(&cache->hot.key, flw_context_key(&cache->hot, false))) {
        return cache;
    }
    flw_asym_leave(&cache->hot.asym);
    return NULL;
}

#endif
