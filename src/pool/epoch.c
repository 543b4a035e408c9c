/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a pool in context order: where what is freed goes, when an epoch is closed, and the ladder of
 * an allocation. Does not: record or ask for events (heap/fence.c, heap/epoch.c).
 *
 *   ready    nobody's memory and complete whole runs: lent at once. Thread caches lend of it only.
 *   limbo    freed; first in the freeing thread's cache, then in the heap with the context's ticket.
 *            Ready when the epoch that closed over it is complete.
 *
 * An epoch is closed when 256 blocks or 64 MiB have been freed, or when an allocation would otherwise
 * exceed the bound (flw_epoch_bound) or wait. Until then a miss grows: within the bound memory costs
 * less than an event for every few blocks, and a device that is busy is never waited for.
 */
#include "pool/epoch.h"

#include "heap/epoch.h"
#include "pool/ladder.h"

/* ---- return */

static void flush_limbo(struct flw_pool *pool, struct flw_tcache *cache)
{
    flw_lock_acquire(&pool->heap.lock);
    (void)flw_tcache_flush_limbo(cache, &pool->heap);
    flw_lock_release(&pool->heap.lock);
}

void flw_epoch_return(struct flw_pool *pool, struct flw_tcache *cache, struct flw_span *span,
                      struct flw_slot *slot)
{
    int64_t bytes = (int64_t)flw_loan_bytes(slot->loan);
    flw_lock_acquire(&cache->lock);
    if (cache->limbo_count == FLW_LIMBO_SLOTS) {
        flush_limbo(pool, cache);
    }
    flw_pool_account(cache->hot.account, -bytes);
    if (span->kind == FLW_SPAN_SLAB) {
        flw_tcache_bin(cache, span->u.slab.class_index)->moved_out++;
    } else {
        cache->run_pushes++;
        cache->run_out_bytes -= flw_run_bytes(span);
    }
    cache->limbo_bins[cache->limbo_count] = (uint16_t)span->bin;
    cache->limbo[cache->limbo_count++] = slot;
    cache->limbo_left_bytes -= bytes;
    if (cache->limbo_count == FLW_LIMBO_SLOTS || cache->limbo_left_bytes <= 0) {
        flush_limbo(pool, cache);
    }
    flw_lock_release(&cache->lock);
    flw_pool_settle(pool, cache->hot.account);
}

/* ---- epochs */

/* heap lock */
static bool is_due(const struct flw_heap *heap)
{
    return heap->open_blocks >= FLW_LIMBO_SLOTS || heap->open_bytes >= (uint64_t)FLW_LIMBO_BYTES;
}

static bool close_epoch(struct flw_pool *pool, bool and_poll)
{
    struct flw_heap *heap = &pool->heap;
    struct flw_driver_section section;
    bool any = false;
    if (flw_captures_are_open() || !flw_heap_enter_driver(heap, &section)) {
        return false;
    }
    (void)flw_domain_fence(heap, heap->context_order);
    if (and_poll) {
        any = flw_heap_poll(heap);
    }
    flw_heap_leave_driver(heap, &section);
    return any;
}

bool flw_epoch_close(struct flw_pool *pool)
{
    return close_epoch(pool, true);
}

void flw_epoch_close_if_due(struct flw_pool *pool)
{
    flw_lock_acquire(&pool->heap.lock);
    bool is_wanted = is_due(&pool->heap);
    flw_lock_release(&pool->heap.lock);
    if (is_wanted) {
        (void)close_epoch(pool, false);
    }
}

static bool poll(struct flw_heap *heap)
{
    struct flw_driver_section section;
    flw_lock_acquire(&heap->lock);
    bool has_epoch = heap->context_order->newest != NULL;
    flw_lock_release(&heap->lock);
    if (!has_epoch || flw_captures_are_open() || !flw_heap_enter_driver(heap, &section)) {
        return false;
    }
    bool any = flw_heap_poll(heap);
    flw_heap_leave_driver(heap, &section);
    return any;
}

/* Wait until the ticket is complete. Without a record of contexts, or where the driver refuses one, all of
 * them are synchronised. */
static bool wait_for(struct flw_heap *heap, uint64_t ticket)
{
    struct flw_driver_section section;
    if (flw_captures_are_open() || !flw_heap_enter_driver(heap, &section)) {
        return false;
    }
    bool can_record = heap->context_order->ops->record != NULL;
    fallow_status status =
        can_record ? flw_domain_wait(heap, heap->context_order, ticket, UINT64_MAX) : FALLOW_DRIVER;
    flw_lock_acquire(&heap->lock);
    bool is_refused = !can_record || heap->context_order->refuses_fences;
    flw_lock_release(&heap->lock);
    if (status != FALLOW_OK && is_refused) {
        status = flw_epoch_sync(heap);
    }
    flw_heap_leave_driver(heap, &section);
    return status == FALLOW_OK;
}

/* ---- the ladder */

static bool may_wait(const struct flw_climb *climb)
{
    return (climb->need->flags & FALLOW_REQUEST_NO_WAIT) == 0 &&
           climb->pool->config.wait_ms != UINT32_MAX && !flw_climb_lacks_host(climb);
}

static bool may_grow(const struct flw_climb *climb)
{
    return (climb->need->flags & FALLOW_REQUEST_NO_GROW) == 0 && !climb->is_headless;
}

/* The caller's own limbo comes first: whatever the thread needs next is what it has just freed. */
static bool rung_complete(struct flw_climb *climb)
{
    struct flw_tcache *cache = climb->need->cache;
    flw_lock_acquire(&cache->lock);
    flush_limbo(climb->pool, cache);
    flw_lock_release(&cache->lock);
    return poll(climb->heap) && flw_climb_take(climb->heap, climb->need);
}

static uint64_t bound_of(const struct flw_climb *climb)
{
    return flw_epoch_bound(flw_pool_live(climb->pool, NULL) + climb->need_bytes);
}

/* Enough is open: one event for all of it. */
static bool rung_close(struct flw_climb *climb)
{
    flw_lock_acquire(&climb->heap->lock);
    bool is_wanted = is_due(climb->heap);
    flw_lock_release(&climb->heap->lock);
    return is_wanted && close_epoch(climb->pool, true) && flw_climb_take(climb->heap, climb->need);
}

/* Some calls of the program's cannot be tried again: memory that only idles here must not be what they
 * lack. */
static bool eats_the_reserve(const struct flw_climb *climb)
{
    struct flw_heap *heap = climb->heap;
    struct flw_driver_section section;
    size_t free_bytes = SIZE_MAX, total_bytes;
    uint64_t idle_bytes =
        atomic_load(&heap->reserved_bytes) -
        flw_min(atomic_load(&heap->reserved_bytes), flw_pool_live(climb->pool, NULL));
    if (climb->pool->reserve_bytes == 0 || idle_bytes < climb->need_bytes ||
        !flw_heap_enter_driver(heap, &section)) {
        return false;
    }
    flw_heap_count_call(heap);
    CUresult result = heap->driver->cuMemGetInfo_v2(&free_bytes, &total_bytes);
    flw_heap_leave_driver(heap, &section);
    return result == CUDA_SUCCESS && free_bytes < climb->need_bytes + climb->pool->reserve_bytes;
}

static bool rung_grow(struct flw_climb *climb)
{
    return !eats_the_reserve(climb) && flw_climb_grow_within(climb, bound_of(climb));
}

/* Growth would pass the bound: whatever any thread has freed, and every slab without a block out. */
static bool rung_caches(struct flw_climb *climb)
{
    (void)flw_pool_drain(climb->pool, climb->need->cache, NULL);
    if (flw_climb_own_cache(climb)) {
        return true;
    }
    return close_epoch(climb->pool, true) && flw_climb_reclaim(climb);
}

#define LOOK_MOST 4096

/* heap lock. The ticket of the oldest memory in limbo that would serve the need; 0: none would. */
static uint64_t fitting_ticket(const struct flw_heap *heap, const struct flw_need *need)
{
    const struct flw_domain *domain = heap->context_order;
    bool is_run = need->class_index == FLW_CLASS_COUNT;
    uint32_t least = is_run ? need->unit_count : flw_class_slab_units(need->class_index);
    uint32_t most = is_run ? flw_whole_most_units(least) : UINT32_MAX;
    uint64_t ticket = 0;
    if (!is_run && domain->batches[need->class_index].tail != NULL) {
        ticket = domain->batches[need->class_index].tail->ticket;
    }
    const struct flw_span *run = domain->runs.oldest;
    for (uint32_t i = 0; run != NULL && i < LOOK_MOST; i++, run = run->u.run.age_next) {
        if (run->u.run.unit_count >= least && run->u.run.unit_count <= most &&
            flw_run_is_whole(run) == is_run) {
            return ticket == 0 ? run->u.run.ticket : flw_min(ticket, run->u.run.ticket);
        }
    }
    return ticket;
}

#define WAIT_ROUNDS 64

static bool rung_wait(struct flw_climb *climb)
{
    for (unsigned rounds = 0; rounds < WAIT_ROUNDS && may_wait(climb); rounds++) {
        flw_lock_acquire(&climb->heap->lock);
        uint64_t ticket = fitting_ticket(climb->heap, climb->need);
        flw_lock_release(&climb->heap->lock);
        if (ticket == 0 || !wait_for(climb->heap, ticket)) {
            return false;
        }
        if (flw_climb_reclaim(climb)) {
            return true;
        }
    }
    return false;
}

/* Everything that was ever freed. */
static bool wait_for_all(struct flw_heap *heap)
{
    flw_lock_acquire(&heap->lock);
    const struct flw_domain *domain = heap->context_order;
    uint64_t ticket = domain->ticket - (domain->unfenced_bytes == 0);
    bool is_done = ticket <= domain->completed;
    flw_lock_release(&heap->lock);
    return is_done || wait_for(heap, ticket);
}

/* Nothing in limbo fits. What does not, complete or not, makes room for what does. */
static bool rung_exchange(struct flw_climb *climb)
{
    struct flw_heap *heap = climb->heap;
    if (may_wait(climb) && wait_for_all(heap) && flw_climb_reclaim(climb)) {
        return true;
    }
    if (!may_grow(climb) || flw_heap_refuses(heap, UINT64_MAX)) {
        return false; /* what idles here stays */
    }
    uint64_t bound = flw_min(bound_of(climb), heap->limit_bytes);
    uint64_t keep_bytes = bound > climb->need_bytes ? bound - climb->need_bytes : 0;
    if (eats_the_reserve(climb)) {
        uint64_t reserved = atomic_load(&heap->reserved_bytes);
        keep_bytes = flw_min(keep_bytes, reserved - flw_min(reserved, climb->need_bytes));
    }
    (void)flw_heap_release_idle(heap, keep_bytes);
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

static bool rung_limit(struct flw_climb *climb)
{
    climb->insists = true;
    bool is_grown = grow_to_limit(climb);
    climb->insists = false;
    return is_grown;
}

/* The driver has nothing: everything that idles here goes to it first. */
static bool rung_trim(struct flw_climb *climb)
{
    return may_grow(climb) && !flw_heap_refuses(climb->heap, UINT64_MAX) &&
           flw_epoch_trim(climb->pool) > 0 && grow_to_limit(climb);
}

static bool (*const rungs[FLW_RUNG_COUNT])(struct flw_climb *climb) = {
    [FLW_RUNG_COMPLETE] = rung_complete,
    [FLW_RUNG_OWN_CACHE] = rung_close,
    [FLW_RUNG_GROW] = rung_grow,
    [FLW_RUNG_CACHES] = rung_caches,
    [FLW_RUNG_REMAP_WAIT] = rung_wait,
    [FLW_RUNG_FENCE] = rung_exchange,
    [FLW_RUNG_LIMIT] = rung_limit,
    [FLW_RUNG_WAIT] = rung_trim,
    [FLW_RUNG_CALLBACK] = flw_climb_callback,
};

static const uint8_t order[] = {FLW_RUNG_COMPLETE, FLW_RUNG_OWN_CACHE,  FLW_RUNG_GROW,
                                FLW_RUNG_CACHES,   FLW_RUNG_REMAP_WAIT, FLW_RUNG_FENCE,
                                FLW_RUNG_LIMIT,    FLW_RUNG_WAIT,       FLW_RUNG_CALLBACK};

static void plan(struct flw_climb *climb)
{
    struct flw_need *need = climb->need;
    int64_t requested = flw_pool_requested(climb->pool);
    uint64_t peak = (uint64_t)atomic_load(&climb->pool->peak_requested_bytes);
    uint32_t unit_count = need->unit_count;
    climb->peak_bytes = flw_max(peak, flw_not_negative(requested) + need->size_bytes);
    if (need->class_index < FLW_CLASS_COUNT) {
        flw_lock_acquire(&climb->heap->lock);
        unit_count = flw_class_slab_units(need->class_index)
                     << flw_heap_slab_step(need->domain, need->class_index, UINT64_MAX);
        flw_lock_release(&climb->heap->lock);
        need->align_units = 1;
    }
    flw_climb_want_units(climb, unit_count);
}

/* Here FLW_RUNG_FENCE waits, too. */
static bool is_futile(const struct flw_climb *climb, unsigned rung)
{
    return flw_climb_lacks_host(climb) && rung != FLW_RUNG_COMPLETE && rung != FLW_RUNG_OWN_CACHE &&
           rung != FLW_RUNG_CACHES;
}

fallow_status flw_epoch_climb(struct flw_pool *pool, struct flw_need *need)
{
    struct flw_climb climb = {.pool = pool, .heap = &pool->heap, .need = need};
    if (need->class_index == FLW_CLASS_COUNT) {
        need->unit_count = (uint32_t)flw_align_up(need->unit_count, pool->heap.page_units);
        need->align_units = 1; /* a driver allocation is aligned to its pages */
    }
    if (flw_climb_take(&pool->heap, need)) {
        atomic_fetch_add_explicit(&pool->rung_count[FLW_RUNG_OWN], 1, memory_order_relaxed);
        return FALLOW_OK;
    }
    climb.status = FALLOW_OUT_OF_MEMORY;
    flw_pool_settle(pool, need->cache->hot.account);
    plan(&climb);
    bool is_hopeless =
        climb.need_bytes > pool->heap.limit_bytes && need->class_index == FLW_CLASS_COUNT;
    for (unsigned i = 0; i < sizeof order && !is_hopeless; i++) {
        if (is_futile(&climb, order[i])) {
            continue;
        }
        uint64_t begin = flw_clock_fine_ns();
        bool is_done = rungs[order[i]](&climb);
        atomic_fetch_add_explicit(&pool->rung_count[order[i]], 1, memory_order_relaxed);
        atomic_fetch_add_explicit(&pool->rung_ns[order[i]], flw_clock_fine_ns() - begin,
                                  memory_order_relaxed);
        if (is_done) {
            flw_climb_note_last(pool, need, (enum flw_rung)order[i]);
            return FALLOW_OK;
        }
        if (flw_heap_is_lost(&pool->heap)) {
            return FALLOW_DEVICE_LOST;
        }
    }
    if (flw_climb_lacks_host(&climb)) {
        return flw_climb_refuse_host(&climb);
    }
    if (climb.status == FALLOW_OUT_OF_MEMORY && (need->flags & FALLOW_REQUEST_NO_WAIT) != 0) {
        flw_lock_acquire(&pool->heap.lock);
        climb.status = fitting_ticket(&pool->heap, need) != 0 ? FALLOW_WOULD_WAIT : climb.status;
        flw_lock_release(&pool->heap.lock);
    }
    if (climb.status == FALLOW_OUT_OF_MEMORY) {
        flw_oom_report_fill(pool, need);
    }
    flw_climb_tell_refusal(&climb);
    flw_climb_note_last(pool, need, FLW_RUNG_FAIL);
    return climb.status;
}

/* ---- lend: runs of one size */

/* Both sets of a size; of what is large one thread keeps little that others may want. */
#define FILL_MOST  (2 * FLW_RUN_SET_SLOTS)
#define FILL_BYTES (32 * FLW_MIB)

void flw_epoch_fill_runs(struct flw_pool *pool, struct flw_tcache *cache, uint32_t unit_count)
{
    struct flw_heap *heap = &pool->heap;
    flw_lock_acquire(&heap->lock);
    uint64_t most = flw_min(FILL_MOST, FILL_BYTES / ((uint64_t)unit_count << FLW_UNIT_LOG2));
    for (uint64_t n = 0; n < most && cache->is_open; n++) {
        struct flw_span *run = flw_heap_take_whole(heap, unit_count, unit_count);
        if (run == NULL) {
            break;
        }
        bool is_cached = flw_tcache_push_run(cache, run);
        run->u.run.ticket = 0; /* complete, unlike what a cache of a stream keeps */
        if (!is_cached) {
            flw_heap_put_run_at(heap, cache->domain, run);
            break;
        }
        cache->run_out_bytes += flw_run_bytes(run);
    }
    flw_lock_release(&heap->lock);
}

/* ---- giving back, captures */

uint64_t flw_epoch_expect_sync(struct flw_pool *pool)
{
    struct flw_tcache *cache = flw_thread_find(pool->handle, NULL);
    if (cache != NULL && __atomic_load_n(&cache->pool, __ATOMIC_ACQUIRE) == pool) {
        flw_lock_acquire(&cache->lock);
        flush_limbo(pool, cache);
        flw_lock_release(&cache->lock);
    }
    return flw_epoch_begin_sync(&pool->heap);
}

void fallow_context_capture_begin(void)
{
    flw_captures_lock();
    flw_captures_unlock(true);
}

void fallow_context_capture_end(void)
{
    flw_captures_end();
}

uint64_t flw_epoch_trim(struct flw_pool *pool)
{
    struct flw_heap *heap = &pool->heap;
    (void)flw_pool_drain(pool, NULL, NULL);
    (void)close_epoch(pool, true);
    (void)wait_for_all(heap);
    flw_lock_acquire(&heap->lock);
    (void)flw_heap_reclaim_slabs(heap);
    flw_lock_release(&heap->lock);
    return flw_heap_release_idle(heap, 0);
}
