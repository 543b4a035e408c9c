/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: allocate and free of runs, blocks larger than any class: the hit in the run cache and, if
 * the cache has no run or no room, the direct path to the stream's own free runs under the heap
 * lock.
 * Does not: climb the ladder, or serve any but plain calls on an open cache.
 *
 * All of this runs inside the cache: a drainer waits for the owner before it takes the heap lock,
 * so the owner may take that lock inside. Nothing slower runs there, since threads that seize
 * caches wait for it. */
#include <errno.h>

#include "pool/calls/free.h"
#include "pool/calls/hit.h"
#include "pool/ladder/ladder.h"
#include "pool/state/account.h"
#include "pool/state/extension.h"
#include "pool/state/side_records.h"
#include "pool/streams/bounds.h"
#include "pool/streams/uses.h"

/* An account may be this far from the last flush before a call that takes a lock anyway
 * flushes it. (A request that raises the pool's peak flushes at once.) */
#define UNFLUSHED_MOST ((int64_t)(64 * FLW_MIB))

static inline bool has_moved_far(const struct flw_account *account)
{
    return account->requested_bytes > UNFLUSHED_MOST || account->requested_bytes < -UNFLUSHED_MOST;
}

static inline bool raises_peak(const struct flw_pool *pool, const struct flw_account *account)
{
    return atomic_load_explicit(&pool->usage.requested_bytes, memory_order_relaxed) +
               FLW_LOAD(account->peak_requested_bytes) >
           atomic_load_explicit(&pool->usage.recent_peak_bytes, memory_order_relaxed);
}

/* Take a run after a miss of the cache. */
static FLW_INLINE fallow_status take_and(size_t size_bytes, void **out_ptr,
                                         struct flw_tcache *cache, enum flw_hit_kind kind)
{
    struct flw_pool *pool = cache->pool;
    struct flw_heap *heap = &pool->heap;
    struct flw_span *run = NULL;
    uint32_t unit_count = (uint32_t)((size_bytes + FLW_UNIT_BYTES - 1) >> FLW_UNIT_LOG2);
    flw_lock_acquire(&heap->lock);
    if (FLW_UNLIKELY(heap->depot.domain == cache->domain)) {
        run = flw_tcache_withdraw_run(cache, heap, unit_count);
    }
    if (FLW_LIKELY(run == NULL)) {
        run = flw_heap_take_run(heap, cache->domain, unit_count, 1);
    }
    flw_lock_release(&heap->lock);
    if (FLW_UNLIKELY(run == NULL)) {
        flw_asym_leave(&cache->hot.asym);
        return flw_entry_alloc((fallow_pool *)(uintptr_t)cache->handle, size_bytes, 0,
                               cache->hot.stream, out_ptr);
    }
    cache->misses++;
    cache->run_out_bytes += flw_run_bytes(run);
    cache->run_pops++;
    flw_hit_give(&cache->hot, (struct flw_slot *)(void *)(cache->hot.slots + run->slots),
                 size_bytes, out_ptr, kind, true);
    struct flw_account *account = cache->hot.account;
    flw_asym_leave(&cache->hot.asym);
    atomic_fetch_add_explicit(&pool->climbs.count[FLW_STAGE_OWN], 1, memory_order_relaxed);
    if (FLW_UNLIKELY(has_moved_far(account) || raises_peak(pool, account))) {
        flw_pool_flush_account(pool, account);
    }
    return FALLOW_OK;
}

/* (The arguments are in the caller's order, so no register moves.) */
static FLW_NOINLINE fallow_status take(fallow_pool *handle, size_t size_bytes, fallow_stream stream,
                                       void **out_ptr, struct flw_tcache *cache)
{
    (void)handle;
    (void)stream;
    return take_and(size_bytes, out_ptr, cache, FLW_HIT_PLAIN);
}

static FLW_NOINLINE fallow_status take_recorded(fallow_pool *handle, size_t size_bytes,
                                                fallow_stream stream, void **out_ptr,
                                                struct flw_tcache *cache)
{
    (void)handle;
    (void)stream;
    return take_and(size_bytes, out_ptr, cache, FLW_HIT_RECORDED);
}

static FLW_INLINE fallow_status alloc_run(fallow_pool *handle, size_t size_bytes,
                                          fallow_stream stream, void **out_ptr,
                                          struct flw_tcache_hot *hot, enum flw_hit_kind kind)
{
    struct flw_tcache *cache = (struct flw_tcache *)(void *)hot;
    if (FLW_UNLIKELY(size_bytes - 1 >= FLW_REQUEST_MAX || out_ptr == NULL)) {
        flw_asym_leave(&hot->asym);
        return flw_entry_alloc(handle, size_bytes, 0, stream, out_ptr);
    }
    struct flw_slot *slot;
    uint64_t unit_count = (size_bytes + FLW_UNIT_BYTES - 1) >> FLW_UNIT_LOG2;
    if (FLW_UNLIKELY(!flw_hit_pop_run(cache, unit_count, &slot))) {
        return kind == FLW_HIT_RECORDED ? take_recorded(handle, size_bytes, stream, out_ptr, cache)
                                        : take(handle, size_bytes, stream, out_ptr, cache);
    }
    flw_hit_give(hot, slot, size_bytes, out_ptr, kind, false);
    flw_asym_leave(&hot->asym);
    return FALLOW_OK;
}

fallow_status flw_entry_alloc_run(fallow_pool *handle, size_t size_bytes, fallow_stream stream,
                                  void **out_ptr, struct flw_tcache_hot *hot)
{
    return alloc_run(handle, size_bytes, stream, out_ptr, hot, FLW_HIT_PLAIN);
}

fallow_status flw_entry_alloc_run_recorded(fallow_pool *handle, size_t size_bytes,
                                           fallow_stream stream, void **out_ptr,
                                           struct flw_tcache_hot *hot)
{
    return alloc_run(handle, size_bytes, stream, out_ptr, hot, FLW_HIT_RECORDED);
}

/* Called outside a cache. */
static FLW_NOINLINE fallow_status keep_up(struct flw_tcache *cache, bool earns_fence)
{
    int saved = errno;
    struct flw_pool *pool = cache->pool;
    if (pool != NULL) {
        struct flw_driver_section section;
        flw_pool_flush_account(pool, cache->hot.account);
        flw_heap_hold_driver(&pool->heap, &section);
        flw_pool_keep_up(pool, cache, earns_fence);
        flw_heap_leave_driver(&pool->heap, &section);
    }
    errno = saved;
    return FALLOW_OK;
}

/* Finish a free that took the heap's lock. Inside at the call, outside at the return. */
static FLW_INLINE fallow_status end_free(struct flw_pool *pool, struct flw_tcache *cache)
{
    struct flw_account *account = cache->hot.account;
    bool earns_fence = cache->fence_left_bytes < 0 && flw_pool_earns_fence(pool, cache);
    bool is_due = earns_fence || flw_pool_is_fence_due(pool, cache->domain);
    flw_asym_leave(&cache->hot.asym);
    bool is_far = has_moved_far(account);
    if (FLW_UNLIKELY(is_due) || (is_far && pool->config.decay_ms != UINT32_MAX)) {
        return keep_up(cache, earns_fence);
    }
    if (is_far) {
        flw_pool_flush_account(pool, account);
    }
    return FALLOW_OK;
}

/* Check whether the pool has grown, after enough frees. Inside. */
static FLW_NOINLINE fallow_status look_for_growth(struct flw_tcache *cache)
{
    uint64_t grows = atomic_load_explicit(&cache->pool->heap.count.grows, memory_order_relaxed);
    if (FLW_LIKELY(cache->fence_credits == 0 && grows == cache->fence_grow_count)) {
        cache->fence_left_bytes = cache->fence_step_bytes;
        flw_asym_leave(&cache->hot.asym);
        return FALLOW_OK;
    }
    bool earns_fence = flw_pool_earns_fence(cache->pool, cache);
    flw_asym_leave(&cache->hot.asym);
    return FLW_UNLIKELY(earns_fence) ? keep_up(cache, true) : FALLOW_OK;
}

/* Free a run that has no room in the cache. */
static FLW_NOINLINE fallow_status put(struct flw_tcache *cache, struct flw_span *run)
{
    struct flw_pool *pool = cache->pool;
    struct flw_heap *heap = &pool->heap;
    cache->run_limit_bytes = flw_pool_run_limit(pool);
    flw_lock_acquire(&heap->lock);
    flw_tcache_clear_runs(cache, heap);
    if (!flw_tcache_push_run(cache, run)) {
        cache->run_out_bytes -= flw_run_bytes(run);
        flw_heap_put_run(heap, cache->domain, run);
    }
    flw_lock_release(&heap->lock);
    return end_free(pool, cache);
}

/* True for a live block with announced uses. (An address inside it may differ from a word by as
 * much as another state.) */
static inline bool is_used(const struct flw_slot *slot, const void *ptr)
{
    uint64_t word = FLW_LOAD(slot->word), state = word & FLW_SLOT_STATE_MASK;
    return state == FLW_SLOT_LIVE_USED && word - state == (uint64_t)(uintptr_t)ptr;
}

/* Free a block that is no hit, inside. A run that other streams use is held back until their work
 * is complete. (The stream of an open cache is not captured. The arguments are in the caller's
 * order, so no register moves.) */
static FLW_NOINLINE fallow_status free_declined(fallow_pool *handle, void *ptr,
                                                fallow_stream stream, struct flw_tcache_hot *hot,
                                                struct flw_span *run, struct flw_slot *slot)
{
    struct flw_tcache *cache = (struct flw_tcache *)(void *)hot;
    struct flw_pool *pool = cache->pool;
    struct flw_side_record side;
    uint64_t address = (uint64_t)(uintptr_t)ptr;
    if (!is_used(slot, ptr) || !flw_pool_is_plain(pool) ||
        atomic_load_explicit(&pool->heap.exported_bytes, memory_order_relaxed) != 0 ||
        !flw_slot_claim(slot, address + FLW_SLOT_LIVE_USED, address + FLW_SLOT_HELD)) {
        flw_asym_leave(&hot->asym);
        return flw_entry_free(handle, ptr, stream);
    }
    int saved = errno;
    (void)flw_side_record_take(pool, address, &side); /* the word shows that it has one */
    cache->run_pushes++;
    cache->run_out_bytes -= flw_run_bytes(run);
    flw_account_subtract(hot->account, flw_allocation_bytes(slot->allocation));
    (void)flw_uses_free(pool, cache->domain, slot, &side);
    errno = saved; /* of refused host memory */
    return end_free(pool, cache);
}

static FLW_INLINE fallow_status free_run(fallow_pool *handle, void *ptr, fallow_stream stream,
                                         struct flw_tcache_hot *hot, struct flw_span *run,
                                         struct flw_slot *slot, enum flw_hit_kind kind)
{
    struct flw_tcache *cache = (struct flw_tcache *)(void *)hot;
    if (FLW_UNLIKELY(!flw_hit_take_back(hot, slot, ptr, kind))) {
        if (kind == FLW_HIT_PLAIN) {
            return free_declined(handle, ptr, stream, hot, run, slot);
        }
        flw_asym_leave(&hot->asym);
        return flw_entry_free(handle, ptr, stream);
    }
    cache->run_pushes++;
    cache->fence_left_bytes -= (int64_t)flw_run_bytes(run);
    if (FLW_UNLIKELY(!flw_tcache_push_run(cache, run))) {
        return put(cache, run);
    }
    if (FLW_UNLIKELY(cache->fence_left_bytes < 0)) {
        return look_for_growth(cache);
    }
    flw_asym_leave(&hot->asym);
    return FALLOW_OK;
}

fallow_status flw_entry_free_run(fallow_pool *handle, void *ptr, fallow_stream stream,
                                 struct flw_tcache_hot *hot, struct flw_span *run,
                                 struct flw_slot *slot)
{
    return free_run(handle, ptr, stream, hot, run, slot, FLW_HIT_PLAIN);
}

fallow_status flw_entry_free_run_recorded(fallow_pool *handle, void *ptr, fallow_stream stream,
                                          struct flw_tcache_hot *hot, struct flw_span *run,
                                          struct flw_slot *slot)
{
    return free_run(handle, ptr, stream, hot, run, slot, FLW_HIT_RECORDED);
}
