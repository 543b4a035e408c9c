/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the ladder that an allocation climbs when its cache has nothing: what is tried, and in what
 * order. Each rung is one function that either satisfies the need or leaves everything as it was;
 * each is counted and timed for the out-of-memory report. Growing is budget.c's, taking from other
 * streams steal.c's.
 */
#include "pool/ladder.h"

#include "heap/epoch.h"
#include "heap/tables.h"
#include "pool/extension.h"

/* ---- taking what is there */

static bool take_slots(struct flw_heap *heap, struct flw_need *need)
{
    need->count =
        flw_heap_take_slots(heap, need->domain, need->class_index, need->want, need->slots);
    return need->count > 0;
}

static struct flw_span *take_slab_run(struct flw_heap *heap, const struct flw_need *need)
{
    struct flw_span *run = NULL;
    if (heap->source.ops->remaps && atomic_load(&heap->reserved_bytes) <= FLW_SMALL_POOL_BYTES) {
        /* Memory first: the smallest, which is empty again the soonest. */
        unsigned step =
            need->spares_waits ? 0 : flw_heap_slab_step(need->domain, need->class_index, 0);
        run = flw_heap_take_crowded(heap, need->domain,
                                    flw_class_slab_units(need->class_index) << step);
    }
    return run != NULL ? run : flw_heap_take_slab_run(heap, need->domain, need->class_index);
}

static bool take_slab(struct flw_heap *heap, struct flw_need *need)
{
    struct flw_span *run = take_slab_run(heap, need);
    return run != NULL && flw_heap_adopt_slab(heap, need->domain, need->class_index, run) &&
           take_slots(heap, need);
}

bool flw_climb_take_slots(struct flw_heap *heap, struct flw_need *need)
{
    return take_slots(heap, need) || take_slab(heap, need);
}

bool flw_climb_take_run(struct flw_heap *heap, struct flw_need *need)
{
    need->run = need->is_divided
                    ? flw_heap_take_divided(heap, need->domain, need->unit_count, need->align_units)
                    : flw_heap_take_run(heap, need->domain, need->unit_count, need->align_units);
    return need->run != NULL;
}

bool flw_climb_take(struct flw_heap *heap, struct flw_need *need)
{
    if (flw_need_is_single(need)) {
        return false;
    }
    flw_lock_acquire(&heap->lock);
    uint64_t refusals = flw_tables_refusals(heap);
    bool is_taken = false;
    if (need->class_index < FLW_CLASS_COUNT) {
        is_taken = flw_climb_take_slots(heap, need);
    } else if (heap->whole != NULL) {
        need->run =
            flw_heap_take_whole(heap, need->unit_count, flw_whole_most_units(need->unit_count));
        is_taken = need->run != NULL;
    } else {
        is_taken = flw_climb_take_run(heap, need);
    }
    need->lacks_host = !is_taken && flw_tables_refusals(heap) != refusals;
    flw_lock_release(&heap->lock);
    return is_taken;
}

/* Is there anything that a look at the device may show complete? */
static bool has_fences(struct flw_heap *heap)
{
    flw_lock_acquire(&heap->lock);
    bool has_any = heap->pending_count > 0;
    for (uint32_t i = 1; i < heap->domain_end && !has_any; i++) {
        has_any = heap->domains[i]->newest != NULL;
    }
    flw_lock_release(&heap->lock);
    return has_any;
}

static bool rung_complete(struct flw_climb *climb)
{
    struct flw_driver_section section;
    struct flw_heap *heap = climb->heap;
    if (!has_fences(heap) || !flw_heap_enter_mode(heap, &section)) {
        return false;
    }
    flw_uses_fence(climb->pool);
    bool any = flw_heap_poll(heap);
    flw_heap_leave_driver(heap, &section);
    return any && flw_climb_take(heap, climb->need);
}

bool flw_climb_reclaim(struct flw_climb *climb)
{
    flw_lock_acquire(&climb->heap->lock);
    (void)flw_heap_reclaim_slabs(climb->heap);
    flw_lock_release(&climb->heap->lock);
    return flw_climb_take(climb->heap, climb->need);
}

/* Growth comes next: what this thread holds back must not be the reason for it. */
bool flw_climb_own_cache(struct flw_climb *climb)
{
    struct flw_pool *pool = climb->pool;
    uintptr_t self = flw_thread_token();
    flw_lock_acquire(&pool->lock);
    for (struct flw_tcache *cache = pool->caches; cache != NULL; cache = cache->next) {
        if (cache->thread == self) {
            flw_lock_acquire(&cache->lock);
            flw_lock_acquire(&climb->heap->lock);
            (void)flw_tcache_flush(cache, climb->heap);
            flw_lock_release(&climb->heap->lock);
            flw_lock_release(&cache->lock);
        }
    }
    flw_lock_release(&pool->lock);
    return flw_climb_reclaim(climb); /* also where nothing was cached: slabs may be empty by now */
}

/* To take memory out of caches pays where much is held: with less than this a pool grows first, else
 * two threads that hand little memory to and fro would stop each other at every refill. */
#define DRAIN_FROM_BYTES (16 * FLW_MIB)

/* A slab stays where it is for as long as one block of it is lent, and keeps the runs around it apart.
 * So while a small pool still grows, what caches and slabs hold free makes room before a new slab is
 * made. Only so often after each growth: a step that repeats does not grow, and pays nothing. */
#define TIDIES_AFTER_GROWTH 1024

/* heap lock */
static bool may_tidy(struct flw_pool *pool)
{
    uint64_t grows = atomic_load_explicit(&pool->heap.count.grows, memory_order_relaxed);
    uint64_t reserved = atomic_load_explicit(&pool->heap.reserved_bytes, memory_order_relaxed);
    if (reserved < DRAIN_FROM_BYTES || reserved > FLW_SMALL_POOL_BYTES) {
        return false;
    }
    if (pool->tidied_growth != grows) {
        pool->tidied_growth = grows;
        pool->tidies_left = TIDIES_AFTER_GROWTH;
    }
    if (pool->tidies_left == 0) {
        return false;
    }
    pool->tidies_left--;
    return true;
}

static bool rung_own(struct flw_climb *climb)
{
    struct flw_heap *heap = climb->heap;
    struct flw_need *need = climb->need;
    if (need->class_index == FLW_CLASS_COUNT) {
        return flw_climb_take(heap, need);
    }
    flw_lock_acquire(&heap->lock);
    bool is_taken = take_slots(heap, need);
    bool is_tidy = is_taken || !may_tidy(climb->pool);
    is_taken = is_taken || (is_tidy && take_slab(heap, need));
    flw_lock_release(&heap->lock);
    return is_tidy ? is_taken : flw_climb_own_cache(climb);
}

static bool rung_caches(struct flw_climb *climb)
{
    struct flw_pool *pool = climb->pool;
    uint64_t after = atomic_load(&climb->heap->reserved_bytes) + climb->need_bytes;
    if (after <= flw_min(DRAIN_FROM_BYTES, climb->heap->limit_bytes) &&
        (climb->need->flags & FALLOW_REQUEST_NO_GROW) == 0 && !flw_climb_lacks_host(climb)) {
        return false;
    }
    return pool->cache_count > 1 && flw_pool_drain(pool, climb->need->cache, NULL) &&
           flw_climb_reclaim(climb);
}

/* ---- waiting for the device */

/* heap lock. Any domain with a fence: its oldest fence's ticket, or, where that has gone on for
 * long, its newest's. Else any with unfenced free memory. */
static struct flw_domain *next_to_wait(const struct flw_heap *heap, const struct flw_need *need,
                                       bool is_patient, uint64_t *out_ticket)
{
    struct flw_domain *unfenced = NULL;
    for (uint32_t i = 1; i < heap->domain_end; i++) {
        struct flw_domain *domain = heap->domains[i];
        if (domain->ops == NULL || domain->ops->record == NULL || domain->is_lost) {
            continue;
        }
        if (domain->oldest != NULL) {
            *out_ticket = is_patient ? domain->oldest->ticket : domain->newest->ticket;
            return domain;
        }
        bool has_memory = domain->unfenced_bytes > 0 &&
                          (flw_domain_has_runs(domain) || heap->pending_count > 0) &&
                          flw_domain_can_fence(heap, domain, domain == need->domain);
        if (has_memory && (unfenced == NULL || domain == need->domain)) {
            unfenced = domain;
        }
    }
    *out_ticket = unfenced != NULL ? unfenced->ticket : 0;
    return unfenced;
}

/* Wait for the oldest fence until what it frees is enough to take or to move. A request that these
 * do not serve soon is large: then it waits for all that there is, a domain at a time. */
#define PATIENT_ROUNDS 64
#define MOST_ROUNDS    (PATIENT_ROUNDS + 2 * FLW_DOMAIN_COUNT)

static bool wait_and(struct flw_climb *climb, uint64_t deadline_ns,
                     bool (*then)(struct flw_climb *climb))
{
    struct flw_heap *heap = climb->heap;
    for (unsigned rounds = 0; rounds < MOST_ROUNDS && !flw_heap_is_lost(heap); rounds++) {
        struct flw_driver_section section;
        uint64_t ticket = 0;
        flw_lock_acquire(&heap->lock);
        struct flw_domain *domain =
            next_to_wait(heap, climb->need, rounds < PATIENT_ROUNDS, &ticket);
        flw_lock_release(&heap->lock);
        if (domain == NULL) { /* other threads may have waited, and freed, meanwhile */
            return climb->pool->cache_count > 1 && then(climb);
        }
        if (!flw_heap_enter_mode(heap, &section)) {
            return false;
        }
        fallow_status status = flw_domain_wait(heap, domain, ticket, deadline_ns);
        flw_heap_leave_driver(heap, &section);
        if (status != FALLOW_OK) {
            return false;
        }
        if (then(climb)) {
            return true;
        }
        if (flw_climb_lacks_host(climb)) {
            return false;
        }
    }
    return false;
}

static bool take_or_move(struct flw_climb *climb)
{
    bool is_tight = climb->pool->config.economy == FALLOW_MEMORY_FIRST;
    return flw_climb_reclaim(climb) ||
           flw_climb_grow_or_move(climb, is_tight ? flw_climb_tight_budget(climb)
                                                  : flw_climb_loose_budget(climb));
}

static uint64_t wait_deadline(const struct flw_climb *climb)
{
    return flw_clock_fine_ns() + climb->pool->config.wait_ms * 1000000ull;
}

static bool may_wait(const struct flw_climb *climb)
{
    return (climb->need->flags & FALLOW_REQUEST_NO_WAIT) == 0 &&
           climb->pool->config.wait_ms != UINT32_MAX &&
           climb->need->domain->ops != &flw_order_capture;
}

static bool rung_remap_wait(struct flw_climb *climb)
{
    if (!may_wait(climb) || !wait_and(climb, UINT64_MAX, take_or_move)) {
        return false;
    }
    atomic_fetch_add(&climb->pool->remap_waits, 1);
    return true;
}

/* The driver may have small handles where it has no large one; who named a size insists on it. */
static bool may_divide(const struct flw_climb *climb)
{
    return climb->pool->config.one_handle_bytes == 0 && flw_need_is_whole(climb->heap, climb->need);
}

/* A slab that does not fit the limit any more is made as small as it can be. */
static bool grow_to_limit(struct flw_climb *climb)
{
    struct flw_need *need = climb->need;
    if (climb->pool->config.economy == FALLOW_MEMORY_FIRST) {
        flw_climb_halve_handles(climb->pool);
    }
    if (flw_climb_grow_or_move(climb, climb->heap->limit_bytes)) {
        return true;
    }
    if (may_divide(climb)) {
        need->is_divided = true;
        return flw_climb_take(climb->heap, need) ||
               flw_climb_grow_or_move(climb, climb->heap->limit_bytes);
    }
    uint32_t smallest =
        need->class_index < FLW_CLASS_COUNT ? flw_class_slab_units(need->class_index) : UINT32_MAX;
    if (need->unit_count <= smallest) {
        return false;
    }
    flw_climb_want_units(climb, smallest);
    return flw_climb_grow_or_move(climb, climb->heap->limit_bytes);
}

/* Without more memory the request fails from here on, or waits. */
static bool rung_limit(struct flw_climb *climb)
{
    climb->insists = true;
    bool is_grown = grow_to_limit(climb);
    climb->insists = false;
    return is_grown;
}

static bool take_or_grow(struct flw_climb *climb)
{
    return flw_climb_reclaim(climb) || grow_to_limit(climb);
}

static void trim_other(struct flw_pool *other, void *context)
{
    struct flw_climb *climb = context;
    if (other != climb->pool && other->config.device == climb->pool->config.device &&
        other->driver.object == climb->pool->driver.object &&
        flw_gate_enter(&other->gate, false) == FALLOW_OK) {
        (void)flw_heap_release_idle(&other->heap, 0);
        flw_gate_leave(&other->gate);
    }
}

bool flw_climb_callback(struct flw_climb *climb)
{
    struct flw_pool *pool = climb->pool;
    bool any = false;
    if (pool->config.on_oom != NULL && !atomic_flag_test_and_set(&pool->in_callback)) {
        flw_gate_leave(&pool->gate); /* nobody waits for a callback, which may wait for a turn */
        struct flw_driver_section *paused = flw_section_pause();
        any = pool->config.on_oom(pool->config.oom_context, climb->need->size_bytes,
                                  (fallow_stream)climb->need->domain->stream) != 0;
        flw_section_resume(paused);
        atomic_flag_clear(&pool->in_callback);
        climb->gate_status = flw_gate_enter_again(&pool->gate);
        if (climb->gate_status != FALLOW_OK) {
            return false;
        }
    }
    if (any && (flw_climb_own_cache(climb) || rung_caches(climb) || flw_climb_reclaim(climb) ||
                rung_limit(climb))) {
        return true;
    }
    if ((climb->need->flags & FALLOW_REQUEST_NO_GROW) != 0 ||
        flw_heap_refuses(climb->heap, UINT64_MAX)) {
        return false; /* what idles elsewhere is not for it, or would not be given to it */
    }
    flw_pool_table_each(trim_other, climb);
    return grow_to_limit(climb);
}

/* heap lock. Is there memory that no fence can cover, since its stream was lost, or since the driver
 * refuses fences? Nothing less is worth it: a capture that another thread has begun and not announced would
 * not survive. */
static bool has_uncoverable(const struct flw_heap *heap, bool wants_place)
{
    bool has_memory = flw_heap_has_lost_pending(heap);
    for (uint32_t i = 1; i < heap->domain_end; i++) {
        const struct flw_domain *domain = heap->domains[i];
        bool is_owed = domain->unfenced_bytes > 0;
        has_memory |= domain->ops != NULL && domain->is_lost && (wants_place || is_owed);
        has_memory |= domain->ops != NULL && domain->refuses_fences && !domain->is_foreign &&
                      (domain->newest != NULL || is_owed);
    }
    return has_memory;
}

/* Driver calls. A synchronisation of the context would kill a capture that is not announced yet: a stream
 * that the driver does not tell about may be in one. */
static fallow_status ask_capture(struct flw_pool *pool, struct flw_domain *domain)
{
    struct flw_heap *heap = &pool->heap;
    CUstreamCaptureStatus capturing = CU_STREAM_CAPTURE_STATUS_NONE;
    if (!flw_domain_begin_naming(heap, domain, false)) {
        return FALLOW_OK;
    }
    flw_heap_count_call(heap);
    CUresult result = heap->driver->cuStreamIsCapturing(domain->stream, &capturing);
    flw_domain_end_naming(heap, domain);
    if (result == CUDA_SUCCESS && capturing != CU_STREAM_CAPTURE_STATUS_NONE) {
        return FALLOW_CAPTURING;
    }
    return flw_result_is_stale(result) || flw_result_is_gone(result)
               ? FALLOW_OK
               : flw_heap_refuse(heap, result, "cuStreamIsCapturing");
}

bool flw_pool_is_capturing(struct flw_pool *pool, struct flw_domain *domain)
{
    return ask_capture(pool, domain) == FALLOW_CAPTURING;
}

bool flw_pool_is_blocking_capturing(struct flw_pool *pool)
{
    CUstreamCaptureStatus capturing = CU_STREAM_CAPTURE_STATUS_NONE;
    flw_heap_count_call(&pool->heap);
    return pool->driver.cuStreamIsCapturing(CU_STREAM_LEGACY, &capturing) ==
           CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
}

fallow_status flw_pool_ask_captures(struct flw_pool *pool)
{
    uint32_t cursor = 0;
    bool is_known = flw_captures_are_open() || flw_pool_is_blocking_capturing(pool);
    fallow_status status = is_known ? FALLOW_CAPTURING : FALLOW_OK;
    for (struct flw_domain *domain;
         status == FALLOW_OK && (domain = flw_domain_next(&pool->heap, &cursor)) != NULL;) {
        status = ask_capture(pool, domain);
    }
    return status;
}

bool flw_pool_sync_uncoverable(struct flw_pool *pool, bool wants_place)
{
    struct flw_heap *heap = &pool->heap;
    struct flw_driver_section section;
    flw_lock_acquire(&heap->lock);
    bool is_worth_it = has_uncoverable(heap, wants_place);
    flw_lock_release(&heap->lock);
    if (!is_worth_it || atomic_load(&pool->open_captures) != 0 ||
        !flw_heap_enter_driver(heap, &section)) {
        return false;
    }
    fallow_status status = flw_pool_ask_captures(pool);
    status = status == FALLOW_OK ? flw_heap_sync_context(heap) : status;
    flw_heap_leave_driver(heap, &section);
    return status == FALLOW_OK;
}

static bool rung_wait(struct flw_climb *climb)
{
    if (!may_wait(climb)) {
        return false;
    }
    flw_pool_fence_all(climb->pool);
    if (wait_and(climb, wait_deadline(climb), take_or_grow)) {
        return true;
    }
    return flw_pool_sync_uncoverable(climb->pool, false) && take_or_grow(climb);
}

static bool (*const rungs[FLW_RUNG_COUNT])(struct flw_climb *climb) = {
    [FLW_RUNG_OWN] = rung_own,
    [FLW_RUNG_COMPLETE] = rung_complete,
    [FLW_RUNG_OWN_CACHE] = flw_climb_own_cache,
    [FLW_RUNG_CACHES] = rung_caches,
    [FLW_RUNG_GROW] = flw_rung_grow,
    [FLW_RUNG_STEAL] = flw_rung_steal,
    [FLW_RUNG_FENCE] = flw_rung_fence,
    [FLW_RUNG_REMAP_WAIT] = rung_remap_wait,
    [FLW_RUNG_LIMIT] = rung_limit,
    [FLW_RUNG_CALLBACK] = flw_climb_callback,
    [FLW_RUNG_WAIT] = rung_wait,
};

/* Nothing that these do helps a host without memory (flw_climb_lacks_host). */
static bool is_futile(const struct flw_climb *climb, unsigned rung)
{
    return flw_climb_lacks_host(climb) &&
           (rung == FLW_RUNG_GROW || rung == FLW_RUNG_REMAP_WAIT || rung == FLW_RUNG_LIMIT ||
            rung == FLW_RUNG_CALLBACK || rung == FLW_RUNG_WAIT);
}

/* What extensions keep back gives way before anybody is asked for memory and before the request counts as
 * failed. True: there was some, and the rungs are worth another climb. */
static bool release_kept(struct flw_climb *climb)
{
    bool any = false;
    if (!climb->has_released_kept) {
        FLW_EACH_EXTENSION(climb->pool, row, release) {
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
    uint64_t peak = (uint64_t)atomic_load(&climb->pool->peak_requested_bytes);
    climb->peak_bytes = flw_max(peak, requested + need->size_bytes);
    climb->held_bytes = atomic_load(&climb->heap->reserved_bytes);
    uint32_t unit_count = need->unit_count;
    if (need->class_index < FLW_CLASS_COUNT) {
        uint64_t reserved = atomic_load(&climb->heap->reserved_bytes);
        uint64_t budget = flw_min(flw_climb_tight_budget(climb), climb->heap->limit_bytes);
        uint64_t most_units = budget > reserved ? (budget - reserved) >> FLW_UNIT_LOG2 : 0;
        uint32_t smallest = flw_class_slab_units(need->class_index);
        flw_lock_acquire(&climb->heap->lock);
        unit_count = smallest << flw_heap_slab_step(need->domain, need->class_index, most_units);
        flw_lock_release(&climb->heap->lock);
        need->align_units = 1;
    }
    flw_climb_want_units(climb, unit_count);
}

/* heap lock. Is there memory that serves the need, perhaps, once the device has done more? */
static bool has_incomplete(const struct flw_heap *heap, const struct flw_need *need)
{
    bool has_any = heap->pending_count > 0;
    for (uint32_t i = 1; i < heap->domain_end; i++) {
        const struct flw_domain *domain = heap->domains[i];
        has_any |= flw_domain_has_runs(domain);
        has_any |=
            need->class_index < FLW_CLASS_COUNT && domain->batches[need->class_index].head != NULL;
    }
    return has_any;
}

/* The handles that the driver gave before it refused the rest of a growth: a later rung finds them, but
 * the pool has no claim to them where none served. */
static void give_back_made(const struct flw_climb *climb)
{
    struct flw_heap *heap = climb->heap;
    uint64_t idle_bytes = heap->idle_bytes, reserved = atomic_load(&heap->reserved_bytes);
    if (heap->source.ops->remaps && idle_bytes > 0 && reserved > climb->held_bytes) {
        uint64_t made = flw_min(idle_bytes, reserved - climb->held_bytes);
        (void)flw_heap_release_idle(heap, reserved - made);
    }
}

/* One word: never half of another climb. */
void flw_climb_note_last(struct flw_pool *pool, const struct flw_need *need, enum flw_rung rung)
{
    atomic_store_explicit(&pool->last_climb, need->size_bytes << 8 | ((uint64_t)rung + 1),
                          memory_order_relaxed);
}

fallow_status flw_ladder_climb(struct flw_pool *pool, struct flw_need *need)
{
    struct flw_climb climb = {.pool = pool, .heap = &pool->heap, .need = need};
    if (flw_pool_has_epochs(pool)) {
        return flw_epoch_climb(pool, need);
    }
    need->spares_waits = pool->config.economy == FALLOW_MEMORY_FIRST;
    if (rung_own(&climb)) {
        atomic_fetch_add_explicit(&pool->rung_count[FLW_RUNG_OWN], 1, memory_order_relaxed);
        return FALLOW_OK;
    }
    /* With nothing to complete the thread's own caches come before the first driver call. */
    if (!has_fences(&pool->heap) && flw_climb_own_cache(&climb)) {
        atomic_fetch_add_explicit(&pool->rung_count[FLW_RUNG_OWN_CACHE], 1, memory_order_relaxed);
        flw_climb_note_last(pool, need, FLW_RUNG_OWN_CACHE);
        return FALLOW_OK;
    }
    fallow_status status = flw_capture_check(pool, need->domain);
    if (status != FALLOW_OK) {
        return status;
    }
    climb.status = FALLOW_OUT_OF_MEMORY;
    if (need->cache != NULL) {
        flw_pool_settle(pool, need->cache->hot.account); /* the plan is made from the peak */
    }
    plan(&climb);
    /* What can never fit moves nothing and waits for nobody. */
    bool is_hopeless =
        climb.need_bytes > pool->heap.limit_bytes && need->class_index == FLW_CLASS_COUNT;
    unsigned first = is_hopeless ? FLW_RUNG_FAIL : FLW_RUNG_COMPLETE;
    for (unsigned i = first; i < FLW_RUNG_FAIL; i++) {
        if (i == FLW_RUNG_CALLBACK && release_kept(&climb)) {
            i = FLW_RUNG_COMPLETE;
        }
        if (is_futile(&climb, i)) {
            continue;
        }
        uint64_t begin = flw_clock_fine_ns();
        bool is_done = rungs[i](&climb);
        atomic_fetch_add_explicit(&pool->rung_count[i], 1, memory_order_relaxed);
        atomic_fetch_add_explicit(&pool->rung_ns[i], flw_clock_fine_ns() - begin,
                                  memory_order_relaxed);
        if (is_done) {
            flw_climb_note_last(pool, need, (enum flw_rung)i);
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
    give_back_made(&climb);
    if (flw_climb_lacks_host(&climb)) {
        return flw_climb_refuse_host(&climb);
    }
    if (climb.status == FALLOW_OUT_OF_MEMORY && !is_hopeless &&
        (need->flags & FALLOW_REQUEST_NO_WAIT) != 0) {
        flw_lock_acquire(&pool->heap.lock);
        bool may_come = has_incomplete(&pool->heap, need);
        flw_lock_release(&pool->heap.lock);
        climb.status = may_come ? FALLOW_WOULD_WAIT : FALLOW_OUT_OF_MEMORY;
    }
    if (climb.status == FALLOW_OUT_OF_MEMORY) {
        flw_oom_report_fill(pool, need);
    }
    flw_climb_tell_refusal(&climb);
    flw_climb_note_last(pool, need, FLW_RUNG_FAIL);
    return climb.status;
}
