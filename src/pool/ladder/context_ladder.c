/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the ladder of a pool in context order.
 */
#include "pool/ladder/climb.h"
#include "pool/state/account.h"
#include "pool/streams/cache.h"
#include "pool/streams/epoch.h"
#include "pool/streams/release.h"

static bool may_grow(const struct flw_climb *climb)
{
    return (climb->need->flags & FALLOW_REQUEST_NO_GROW) == 0 && !climb->is_headless;
}

/* The caller's own open frees come first: whatever the thread needs next is what it has just
 * freed. */
static bool stage_complete(struct flw_climb *climb)
{
    struct flw_tcache *cache = climb->need->cache;
    flw_lock_acquire(&cache->lock);
    flw_epoch_flush(climb->pool, cache);
    flw_lock_release(&cache->lock);
    return flw_epoch_poll(climb->heap) && flw_climb_take(climb->heap, climb->need);
}

static uint64_t bound_of(const struct flw_climb *climb)
{
    return flw_epoch_bound(flw_pool_live(climb->pool, NULL) + climb->need_bytes);
}

/* Enough is open: one event for all of it. */
static bool stage_close(struct flw_climb *climb)
{
    flw_lock_acquire(&climb->heap->lock);
    bool is_wanted = flw_epoch_is_due(climb->heap);
    flw_lock_release(&climb->heap->lock);
    return is_wanted && flw_epoch_close(climb->pool) && flw_climb_take(climb->heap, climb->need);
}

/* True if a growth would use up the reserve. Some calls of the program cannot be retried, so memory that is only idle
 * here must not cause them to fail. The driver is queried once per climb at most. */
static bool eats_the_reserve(struct flw_climb *climb)
{
    struct flw_heap *heap = climb->heap;
    uint64_t idle_bytes =
        atomic_load(&heap->reserved_bytes) -
        flw_min(atomic_load(&heap->reserved_bytes), flw_pool_live(climb->pool, NULL));
    if (climb->pool->reserve_bytes == 0 || idle_bytes < climb->need_bytes) {
        return false;
    }
    if (!climb->knows_reserve) {
        climb->knows_reserve = true;
        climb->eats_reserve =
            flw_climb_device_free(heap) < climb->need_bytes + climb->pool->reserve_bytes;
    }
    return climb->eats_reserve;
}

/* Grow, within the bound. A growth past the bound makes no driver call. */
static bool stage_grow(struct flw_climb *climb)
{
    uint64_t bound = bound_of(climb);
    return atomic_load(&climb->heap->reserved_bytes) + climb->need_bytes <= bound &&
           !eats_the_reserve(climb) && flw_climb_grow_within(climb, bound);
}

#define LOOK_MOST 4096

/* heap lock. The sequence number of the oldest open free that would serve the need; 0: none
 * would. */
static uint64_t fitting_seq(const struct flw_heap *heap, const struct flw_need *need)
{
    const struct flw_domain *domain = heap->context_order;
    bool is_run = need->class_index == FLW_CLASS_COUNT;
    uint32_t least = is_run ? need->unit_count : flw_class_slab_units(need->class_index);
    uint32_t most = is_run ? flw_dedicated_most_units(least) : UINT32_MAX;
    uint64_t seq = 0;
    if (!is_run && domain->batches[need->class_index].tail != NULL) {
        seq = domain->batches[need->class_index].tail->seq;
    }
    const struct flw_span *run = domain->runs.oldest;
    for (uint32_t i = 0; run != NULL && i < LOOK_MOST; i++, run = run->u.run.age_next) {
        if (run->u.run.unit_count >= least && run->u.run.unit_count <= most &&
            flw_run_is_dedicated(run) == is_run) {
            return seq == 0 ? run->u.run.seq : flw_min(seq, run->u.run.seq);
        }
    }
    return seq;
}

/* Growth would pass the bound: whatever any thread has freed, and every slab without a block out. No event is
 * recorded while one is outstanding that a fit waits for. */
static bool stage_caches(struct flw_climb *climb)
{
    (void)flw_pool_drain(climb->pool, climb->need->cache, NULL);
    if (flw_climb_own_cache(climb)) {
        return true;
    }
    flw_lock_acquire(&climb->heap->lock);
    uint64_t seq = fitting_seq(climb->heap, climb->need);
    bool is_closed = seq != 0 && seq < climb->heap->context_order->seq;
    flw_lock_release(&climb->heap->lock);
    return !is_closed && flw_epoch_close(climb->pool) && flw_climb_reclaim(climb);
}

/* heap lock. True if the device may make room for the need by completing work. A run that does not fit is exchanged. */
static bool has_incomplete(const struct flw_heap *heap, const struct flw_need *need)
{
    const struct flw_domain *domain = heap->context_order;
    return (need->flags & FALLOW_REQUEST_NO_GROW) != 0
               ? fitting_seq(heap, need) != 0
               : domain->newest != NULL || domain->unfenced_bytes > 0;
}

#define WAIT_ROUNDS 64

static bool wait_for_fit(struct flw_climb *climb, uint64_t until_ns)
{
    for (unsigned rounds = 0; rounds < WAIT_ROUNDS && !flw_climb_lacks_host(climb); rounds++) {
        flw_lock_acquire(&climb->heap->lock);
        uint64_t seq = fitting_seq(climb->heap, climb->need);
        flw_lock_release(&climb->heap->lock);
        if (seq == 0 || !flw_epoch_wait(climb->heap, seq, until_ns)) {
            return false;
        }
        if (flw_climb_reclaim(climb)) {
            return true;
        }
    }
    return false;
}

static bool stage_wait(struct flw_climb *climb)
{
    return flw_climb_wait(climb, true, wait_for_fit);
}

static bool wait_for_all(struct flw_climb *climb, uint64_t until_ns)
{
    return flw_epoch_wait_all(climb->heap, until_ns) && flw_climb_reclaim(climb);
}

/* No open free fits. What does not, complete or not, makes room for what does. */
static bool stage_exchange(struct flw_climb *climb)
{
    struct flw_heap *heap = climb->heap;
    if (flw_climb_wait(climb, true, wait_for_all)) {
        return true;
    }
    if (!may_grow(climb) || !flw_climb_may_exchange(climb)) {
        return false; /* what idles here stays */
    }
    uint64_t bound = flw_min(bound_of(climb), heap->limit_bytes);
    uint64_t keep_bytes = bound > climb->need_bytes ? bound - climb->need_bytes : 0;
    if (eats_the_reserve(climb)) {
        uint64_t reserved = atomic_load(&heap->reserved_bytes);
        keep_bytes = flw_min(keep_bytes, reserved - flw_min(reserved, climb->need_bytes));
    }
    (void)flw_climb_release(climb, keep_bytes);
    return flw_climb_grow_within(climb, bound);
}

static bool grow_to_limit(struct flw_climb *climb)
{
    uint32_t smallest = climb->need->class_index < FLW_CLASS_COUNT
                            ? flw_class_slab_units(climb->need->class_index)
                            : UINT32_MAX;
    if (flw_climb_grow_within(climb, climb->heap->limit_bytes)) {
        return true;
    }
    if (climb->need->unit_count > smallest) {
        flw_climb_want_units(climb, smallest);
        return flw_climb_grow_within(climb, climb->heap->limit_bytes);
    }
    return false;
}

static bool stage_limit(struct flw_climb *climb)
{
    flw_pool_keep_limit(climb->pool, climb->need_bytes);
    climb->skips_backoff = true;
    bool is_grown = grow_to_limit(climb);
    climb->skips_backoff = false;
    return is_grown;
}

static bool trim(struct flw_climb *climb, uint64_t until_ns)
{
    return flw_epoch_trim(climb->pool, until_ns) > 0 && grow_to_limit(climb);
}

/* The driver has nothing: everything that idles here goes to it first. */
static bool stage_trim(struct flw_climb *climb)
{
    climb->skips_backoff = true;
    bool is_grown =
        may_grow(climb) && flw_climb_may_exchange(climb) &&
        (flw_climb_may_wait(climb) ? flw_climb_wait(climb, false, trim) : trim(climb, 0));
    climb->awaits_device |= !is_grown && flw_heap_has_idle_segment(climb->heap);
    climb->skips_backoff = false;
    return is_grown;
}

/* The last stage: nothing of the pool's own is left to wait for. */
static bool stage_callback(struct flw_climb *climb)
{
    return flw_stage_callback(climb) || flw_climb_wait(climb, false, flw_climb_ask_others);
}

static bool (*const stages[FLW_CONTEXT_FAIL])(struct flw_climb *climb) = {
    [FLW_CONTEXT_COMPLETE] = stage_complete, [FLW_CONTEXT_CLOSE] = stage_close,
    [FLW_CONTEXT_GROW] = stage_grow,         [FLW_CONTEXT_CACHES] = stage_caches,
    [FLW_CONTEXT_WAIT] = stage_wait,         [FLW_CONTEXT_EXCHANGE] = stage_exchange,
    [FLW_CONTEXT_LIMIT] = stage_limit,       [FLW_CONTEXT_TRIM] = stage_trim,
    [FLW_CONTEXT_CALLBACK] = stage_callback,
};

static void plan(struct flw_climb *climb)
{
    struct flw_need *need = climb->need;
    int64_t requested = flw_pool_requested(climb->pool);
    uint64_t peak = (uint64_t)atomic_load(&climb->pool->usage.peak_requested_bytes);
    uint32_t unit_count = need->unit_count;
    climb->peak_bytes = flw_max(peak, flw_not_negative(requested) + need->size_bytes);
    if (need->class_index < FLW_CLASS_COUNT) {
        flw_lock_acquire(&climb->heap->lock);
        unit_count =
            flw_class_slab_units(need->class_index)
            << flw_heap_slab_step(climb->heap, need->domain, need->class_index, UINT64_MAX);
        flw_lock_release(&climb->heap->lock);
        need->align_units = 1;
    }
    flw_climb_want_units(climb, unit_count);
}

static bool is_futile(const struct flw_climb *climb, unsigned stage)
{
    return flw_climb_lacks_host(climb) && stage != FLW_CONTEXT_COMPLETE &&
           stage != FLW_CONTEXT_CLOSE && stage != FLW_CONTEXT_CACHES;
}

fallow_status flw_context_climb(struct flw_pool *pool, struct flw_need *need)
{
    struct flw_climb climb = {.pool = pool, .heap = &pool->heap, .need = need};
    if (need->class_index == FLW_CLASS_COUNT) {
        need->unit_count = (uint32_t)flw_align_up(need->unit_count, pool->heap.page_units);
        need->align_units = 1; /* a driver allocation is aligned to its pages */
    }
    if (flw_climb_take(&pool->heap, need)) {
        atomic_fetch_add_explicit(&pool->climbs.count[FLW_CONTEXT_READY], 1, memory_order_relaxed);
        return FALLOW_OK;
    }
    climb.status = FALLOW_OUT_OF_MEMORY;
    flw_pool_flush_account(pool, need->cache->hot.account);
    plan(&climb);
    bool is_hopeless =
        climb.need_bytes > pool->heap.limit_bytes && need->class_index == FLW_CLASS_COUNT;
    for (unsigned i = FLW_CONTEXT_COMPLETE; i < FLW_CONTEXT_FAIL && !is_hopeless; i++) {
        if (is_futile(&climb, i)) {
            continue;
        }
        if (flw_climb_try(&climb, i, stages[i])) {
            return FALLOW_OK;
        }
        if (flw_heap_is_lost(&pool->heap)) {
            return FALLOW_DEVICE_LOST;
        }
    }
    return flw_climb_fail(&climb, FLW_CONTEXT_FAIL, is_hopeless ? NULL : has_incomplete);
}
