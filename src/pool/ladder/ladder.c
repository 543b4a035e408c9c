/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the ladder of a pool in the order of streams.
 */
#include "pool/ladder/ladder.h"

#include "heap/order/epoch.h"
#include "pool/ladder/climb.h"
#include "pool/state/account.h"
#include "pool/state/extension.h"
#include "pool/streams/capture.h"
#include "pool/streams/quiesce.h"
#include "pool/streams/release.h"
#include "pool/streams/uses.h"

/* Is there anything that a look at the device may show complete, or complete later? */
static bool has_fences(struct flw_heap *heap, const struct flw_domain *taker)
{
    flw_lock_acquire(&heap->lock);
    bool has_any = heap->deferred_count > 0 || flw_heap_has_open(heap, taker);
    flw_lock_release(&heap->lock);
    return has_any;
}

/* With one stream only announced uses, and what streams that are gone have left, wait for anything. */
static bool poll_all(struct flw_climb *climb)
{
    flw_uses_fence(climb->pool);
    return flw_heap_poll(climb->heap) && flw_climb_take(climb->heap, climb->need);
}

static bool stage_complete(struct flw_climb *climb)
{
    struct flw_driver_section section;
    struct flw_heap *heap = climb->heap;
    bool has_others = flw_climb_has_others(climb);
    flw_pool_cover_lost(climb->pool, false, flw_climb_may_wait(climb));
    if (!has_fences(heap, has_others ? climb->need->domain : NULL) ||
        !flw_heap_enter_mode(heap, &section)) {
        return false;
    }
    bool is_done = has_others ? flw_climb_take_finished(climb) : poll_all(climb);
    flw_heap_leave_driver(heap, &section);
    return is_done;
}

/* Where everything is known complete no stream has what unowned memory lacks. */
static bool has_nothing_to_steal(struct flw_climb *climb)
{
    return climb->shared_bytes != 0 && flw_budget_is_prompt(&climb->pool->budget) &&
           !has_fences(climb->heap, climb->need->domain);
}

static bool stage_fence(struct flw_climb *climb)
{
    return flw_climb_may_steal(climb) && !has_nothing_to_steal(climb) &&
           (flw_climb_steal_any(climb) || flw_climb_take_several(climb));
}

static bool stage_limit(struct flw_climb *climb)
{
    if (climb->leaves_caches && flw_climb_own_caches(climb, UINT32_MAX)) {
        return true;
    }
    flw_pool_keep_limit(climb->pool, climb->need_bytes);
    return flw_stage_limit(climb);
}

static bool (*const stages[FLW_STAGE_FAIL])(struct flw_climb *climb) = {
    [FLW_STAGE_OWN] = flw_stage_own,
    [FLW_STAGE_COMPLETE] = stage_complete,
    [FLW_STAGE_OWN_CACHE] = flw_climb_own_cache,
    [FLW_STAGE_CACHES] = flw_stage_caches,
    [FLW_STAGE_GROW] = flw_stage_grow,
    [FLW_STAGE_STEAL] = flw_stage_steal,
    [FLW_STAGE_FENCE] = stage_fence,
    [FLW_STAGE_REMAP_WAIT] = flw_stage_remap_wait,
    [FLW_STAGE_LIMIT] = stage_limit,
    [FLW_STAGE_CALLBACK] = flw_stage_callback,
    [FLW_STAGE_WAIT] = flw_stage_wait,
};

/* Nothing that these do helps a host without memory (flw_climb_lacks_host). */
static bool is_futile(const struct flw_climb *climb, unsigned stage)
{
    return flw_climb_lacks_host(climb) &&
           (stage == FLW_STAGE_GROW || stage == FLW_STAGE_REMAP_WAIT || stage == FLW_STAGE_LIMIT ||
            stage == FLW_STAGE_CALLBACK || stage == FLW_STAGE_WAIT);
}

/* What extensions keep back gives way before anybody is asked for memory and before the request counts as
 * failed. True: there was some, and the stages are worth another climb. */
static bool release_kept(struct flw_climb *climb)
{
    bool any = false;
    if (!climb->has_released_kept) {
        FLW_EACH_EXTENSION (climb->pool, row, release) {
            any |= row->release(climb->pool);
        }
    }
    climb->has_released_kept = true;
    return any;
}

static void plan(struct flw_climb *climb)
{
    struct flw_need *need = climb->need;
    int64_t live = flw_pool_requested(climb->pool);
    uint64_t requested = live > 0 ? (uint64_t)live : 0;
    uint64_t peak = (uint64_t)atomic_load(&climb->pool->usage.peak_requested_bytes);
    climb->peak_bytes =
        flw_max(peak, requested + need->size_bytes) +
        atomic_load_explicit(&climb->pool->captured_idle_bytes, memory_order_relaxed);
    climb->held_bytes = atomic_load(&climb->heap->reserved_bytes);
    uint32_t unit_count = need->unit_count;
    if (need->class_index < FLW_CLASS_COUNT) {
        uint64_t reserved = atomic_load(&climb->heap->reserved_bytes);
        uint64_t budget = flw_min(flw_climb_tight_budget(climb), climb->heap->limit_bytes);
        uint64_t most_units = budget > reserved ? (budget - reserved) >> FLW_UNIT_LOG2 : 0;
        uint32_t smallest = flw_class_slab_units(need->class_index);
        flw_lock_acquire(&climb->heap->lock);
        unit_count = smallest << flw_heap_slab_step(climb->heap, need->domain, need->class_index,
                                                    most_units);
        flw_lock_release(&climb->heap->lock);
        need->align_units = 1;
    }
    flw_climb_want_units(climb, unit_count);
    climb->first_bytes = flw_climb_first_budget(climb);
}

/* heap lock. Is there memory that serves the need, perhaps, once the device has done more? */
static bool has_incomplete(const struct flw_heap *heap, const struct flw_need *need)
{
    bool has_any = heap->deferred_count > 0;
    for (uint32_t i = 1; i < heap->domain_end; i++) {
        const struct flw_domain *domain = heap->domains[i];
        has_any |= flw_domain_has_runs(domain);
        has_any |=
            need->class_index < FLW_CLASS_COUNT && domain->batches[need->class_index].head != NULL;
    }
    return has_any;
}

/* The handles that the driver gave before it refused the rest of a growth: a later stage finds
 * them, but the pool has no claim to them where none served. */
static void release_made(const struct flw_climb *climb)
{
    struct flw_heap *heap = climb->heap;
    uint64_t idle_bytes = heap->idle_bytes, reserved = atomic_load(&heap->reserved_bytes);
    if (heap->source.ops->remaps && idle_bytes > 0 && reserved > climb->held_bytes) {
        uint64_t made = flw_min(idle_bytes, reserved - climb->held_bytes);
        (void)flw_heap_release_idle(heap, reserved - made, 0);
    }
}

fallow_status flw_ladder_climb(struct flw_pool *pool, struct flw_need *need)
{
    struct flw_climb climb = {.pool = pool, .heap = &pool->heap, .need = need};
    need->spares_waits = pool->config.economy == FALLOW_MEMORY_FIRST;
    /* A segment need not begin at a multiple of the alignment: such a block is cut out of a larger one. */
    need->is_divided = !pool->heap.source.ops->remaps && need->align_units > 1;
    if (flw_stage_own(&climb)) {
        atomic_fetch_add_explicit(&pool->climbs.count[FLW_STAGE_OWN], 1, memory_order_relaxed);
        if (flw_climb_has_others(&climb)) {
            flw_climb_keep_up(&climb);
        }
        return FALLOW_OK;
    }
    /* With nothing to complete the thread's own caches come before the first driver call. */
    if ((flw_climb_has_others(&climb) || !has_fences(&pool->heap, NULL)) &&
        flw_climb_own_cache(&climb)) {
        atomic_fetch_add_explicit(&pool->climbs.count[FLW_STAGE_OWN_CACHE], 1,
                                  memory_order_relaxed);
        flw_climb_note_last(pool, need, FLW_STAGE_OWN_CACHE);
        return FALLOW_OK;
    }
    fallow_status status =
        flw_domain_is_legacy(need->domain) ? flw_capture_check(pool, need->domain) : need->asked;
    if (status != FALLOW_OK) {
        return status;
    }
    climb.status = FALLOW_OUT_OF_MEMORY;
    if (need->cache != NULL) {
        flw_pool_flush_account(pool, need->cache->hot.account); /* the plan is made from the peak */
    }
    plan(&climb);
    /* What can never fit moves nothing and waits for no thread. */
    bool is_hopeless = climb.need_bytes + need->has_bytes > pool->heap.limit_bytes &&
                       need->class_index == FLW_CLASS_COUNT;
    unsigned first = is_hopeless ? FLW_STAGE_FAIL : FLW_STAGE_COMPLETE;
    for (unsigned i = first; i < FLW_STAGE_FAIL; i++) {
        if (i == FLW_STAGE_CALLBACK) { /* what is released then may come into caches */
            climb.has_emptied_caches = false;
            i = release_kept(&climb) ? FLW_STAGE_COMPLETE : i;
        }
        if (is_futile(&climb, i)) {
            continue;
        }
        if (flw_climb_try(&climb, i, stages[i])) {
            return FALLOW_OK;
        }
        if (flw_heap_is_lost(&pool->heap)) {
            return FALLOW_DEVICE_LOST;
        }
        if (climb.gate_status != FALLOW_OK) {
            return climb.gate_status; /* put to sleep during the callback */
        }
    }
    flw_climb_forget_rise(&climb);
    release_made(&climb);
    return flw_climb_fail(&climb, FLW_STAGE_FAIL, is_hopeless ? NULL : has_incomplete);
}
