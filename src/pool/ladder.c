/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the ladder that an allocation climbs when its cache has nothing: what is tried, in what
 * order, and how much may be held. Each rung is one function that either satisfies the need or
 * leaves everything as it was; each is counted and timed for the out-of-memory report.
 *
 * Two budgets from memory.md's simulation, both over P, the peak requested so far (this request in
 * it): tight  P + min(3 % + 14 MiB, 112 MiB)   new handles below it; beyond it idle handles move
 * instead loose  1.15 P + 16 MiB                  balanced: grow rather than move what the device
 * still uses
 */
#include "base/mutant.h"
#include "pool/pool.h"

/* What the rungs share. */
struct climb {
    struct flw_pool *pool;
    struct flw_heap *heap;
    struct flw_need *need;
    uint64_t peak_bytes;  /* P */
    uint64_t need_bytes;  /* what a growth has to map */
    fallow_status status; /* of the last failure worth telling */
    bool is_quarantine_out;
};

/* ---- taking what is there */

static bool take_slots(struct flw_heap *heap, struct flw_need *need)
{
    struct flw_domain *domain = need->domain;
    need->count = flw_heap_take_slots(heap, domain, need->class_index, need->want, need->slots);
    if (need->count > 0) {
        return true;
    }
    struct flw_span *run = flw_heap_take_slab_run(heap, domain, need->class_index);
    if (run == NULL) {
        return false;
    }
    return flw_heap_adopt_slab(heap, need->domain, need->class_index, run) &&
           (need->count =
                flw_heap_take_slots(heap, domain, need->class_index, need->want, need->slots)) > 0;
}

static bool take(struct flw_heap *heap, struct flw_need *need)
{
    bool is_special = (need->flags & (FALLOW_REQUEST_EXPORT_FD | FALLOW_REQUEST_EXPORT_FABRIC |
                                      FALLOW_REQUEST_DEDICATED)) != 0;
    if (is_special) {
        return false; /* a handle of its own: only growth makes one */
    }
    flw_lock_acquire(&heap->lock);
    bool is_taken = false;
    if (need->class_index < FLW_CLASS_COUNT) {
        is_taken = take_slots(heap, need);
    } else {
        need->run = flw_heap_take_run(heap, need->domain, need->unit_count, need->align_units);
        is_taken = need->run != NULL;
    }
    flw_lock_release(&heap->lock);
    return is_taken;
}

static bool rung_own(struct climb *climb)
{
    return take(climb->heap, climb->need);
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

static bool rung_complete(struct climb *climb)
{
    struct flw_driver_section section;
    struct flw_heap *heap = climb->heap;
    if (!has_fences(heap) || !flw_heap_enter_driver(heap, &section)) {
        return false;
    }
    flw_uses_fence(climb->pool);
    bool any = flw_heap_poll(heap);
    flw_heap_leave_driver(heap, &section);
    return any && take(heap, climb->need);
}

static bool reclaim_and_take(struct climb *climb)
{
    flw_lock_acquire(&climb->heap->lock);
    (void)flw_heap_reclaim_slabs(climb->heap);
    flw_lock_release(&climb->heap->lock);
    return take(climb->heap, climb->need);
}

/* Growth comes next: what this thread holds back must not be the reason for it. */
static bool rung_own_cache(struct climb *climb)
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
    return reclaim_and_take(climb); /* also where nothing was cached: slabs may be empty by now */
}

static bool rung_caches(struct climb *climb)
{
    struct flw_pool *pool = climb->pool;
    return pool->cache_count > 1 && flw_pool_drain(pool, climb->need->cache, NULL) &&
           reclaim_and_take(climb);
}

/* ---- growing */

static uint64_t tight_budget(const struct climb *climb)
{
    uint64_t slack = climb->peak_bytes * 3 / 100 + 14 * FLW_MIB;
    return climb->peak_bytes + flw_min(slack, 112 * FLW_MIB);
}

static uint64_t loose_budget(const struct climb *climb)
{
    return climb->peak_bytes + climb->peak_bytes * 15 / 100 + 16 * FLW_MIB;
}

/* A limit that somebody set is to be used up: then no handle is larger than this. */
#define LIMITED_HANDLE_BYTES (8 * FLW_MIB)

static bool is_limited(const struct climb *climb)
{
    return climb->heap->limit_bytes < climb->pool->device_bytes;
}

/* Handles grow with the pool, so that calls do not; small again in the last tenth of a limit. A handle
 * moves only as a whole: with larger ones more is held. So a pool that could not keep to its budget
 * takes smaller ones from then on. */
#define HANDLE_HALVINGS 2

static uint64_t handle_size(const struct climb *climb)
{
    uint64_t reserved = atomic_load(&climb->heap->reserved_bytes);
    bool is_tight = climb->pool->config.economy == FALLOW_MEMORY_FIRST;
    uint64_t granularity = climb->heap->source.granularity_bytes;
    uint64_t least = flw_min(reserved / 32, is_tight ? 8 * FLW_MIB : 16 * FLW_MIB);
    uint64_t most = is_tight ? 32 * FLW_MIB : 64 * FLW_MIB;
    uint64_t wanted = flw_clamp(is_tight ? reserved / 1024 : reserved / 256, least, most);
    if (reserved + climb->need_bytes > climb->heap->limit_bytes / 10 * 9) {
        return granularity;
    }
    wanted >>= atomic_load_explicit(&climb->pool->handle_halvings, memory_order_relaxed);
    wanted = wanted < 2 * FLW_MIB ? 2 * FLW_MIB : 1ull << flw_log2_floor(wanted);
    wanted = is_limited(climb) ? flw_min(wanted, LIMITED_HANDLE_BYTES) : wanted;
    return flw_max(wanted, granularity);
}

/* The budget was not enough. */
static void halve_handles(struct flw_pool *pool)
{
    unsigned halvings = atomic_load_explicit(&pool->handle_halvings, memory_order_relaxed);
    if (halvings < HANDLE_HALVINGS) {
        (void)atomic_compare_exchange_strong(&pool->handle_halvings, &halvings, halvings + 1);
    }
}

static bool adopt_run(struct climb *climb, struct flw_span *run)
{
    struct flw_need *need = climb->need;
    if (need->class_index == FLW_CLASS_COUNT) {
        need->run = run;
        return true;
    }
    flw_lock_acquire(&climb->heap->lock);
    if (flw_heap_adopt_slab(climb->heap, need->domain, need->class_index, run)) {
        need->count = flw_heap_take_slots(climb->heap, need->domain, need->class_index, need->want,
                                          need->slots);
    }
    flw_lock_release(&climb->heap->lock);
    return need->count > 0;
}

static void want_units(struct climb *climb, uint32_t unit_count)
{
    climb->need->unit_count = unit_count;
    climb->need_bytes =
        flw_align_up((uint64_t)unit_count << FLW_UNIT_LOG2, climb->heap->source.granularity_bytes);
}

/* Without handles to move: those at hand, then new ones while reserved stays within budget. */
static bool grow_within(struct climb *climb, uint64_t budget_bytes)
{
    struct flw_need *need = climb->need;
    struct flw_span *run = NULL;
    struct flw_grow_request request = {
        .domain = need->domain,
        .unit_count = need->unit_count,
        .align_units = need->align_units,
        .budget_bytes = flw_min(budget_bytes, climb->heap->limit_bytes),
        .ahead_bytes = handle_size(climb),
        .handle_types = need->handle_types,
        .is_single_handle =
            need->handle_types != 0 || (need->flags & FALLOW_REQUEST_DEDICATED) != 0};
    if ((need->flags & FALLOW_REQUEST_NO_GROW) != 0) {
        return false;
    }
    fallow_status status = flw_heap_grow(climb->heap, &request, &run);
    if (status == FALLOW_OK) {
        return adopt_run(climb, run);
    }
    climb->status = status;
    return false;
}

/* Within the budget by moving what is idle, if it has to be; by giving back what does not fit. */
static bool grow_or_move(struct climb *climb, uint64_t budget_bytes)
{
    if (grow_within(climb, budget_bytes)) {
        return true;
    }
    if (flw_heap_unmap_idle(climb->heap, climb->need_bytes) > 0 &&
        grow_within(climb, budget_bytes)) {
        return true;
    }
    uint64_t idle_bytes = climb->heap->idle_bytes;
    if (idle_bytes > 0 && !flw_heap_is_lost(climb->heap)) {
        /* Idle handles of the wrong size: let the driver have them, ask it for the right one. */
        uint64_t reserved = atomic_load(&climb->heap->reserved_bytes);
        uint64_t keep = reserved - flw_min(reserved, flw_min(idle_bytes, climb->need_bytes));
        if (flw_heap_release_idle(climb->heap, keep) > 0) {
            return grow_within(climb, budget_bytes);
        }
    }
    return false;
}

/* A growth is rare and calls the driver anyway: the place to let memory that was freed long ago be
 * known complete by the next one. */
static void fence_own(struct climb *climb)
{
    struct flw_driver_section section;
    if (climb->need->domain->ops->record != NULL && flw_heap_enter_driver(climb->heap, &section)) {
        (void)flw_domain_fence_own(climb->heap, climb->need->domain);
        flw_heap_leave_driver(climb->heap, &section);
    }
}

static bool rung_grow(struct climb *climb)
{
    if (grow_or_move(climb, tight_budget(climb))) {
        fence_own(climb);
        return true;
    }
    if (climb->pool->config.economy == FALLOW_BALANCED && grow_within(climb, loose_budget(climb))) {
        fence_own(climb);
        return true;
    }
    return false;
}

/* ---- taking from other streams */

/* heap lock. The donor's run to take: the tightest; memory first, the tightest of those that the
 * taker is ordered after already, if the oldest have one: fewer waits for looser fits, which moves
 * of handles make good there. NULL: none. */
#define OLDEST_SCAN 256

static struct flw_span *donor_run(const struct flw_heap *heap, const struct flw_domain *donor,
                                  const struct flw_need *need)
{
    struct flw_span *best = NULL, *run = donor->runs.oldest;
    for (unsigned i = 0; need->spares_waits && run != NULL && i < OLDEST_SCAN;
         i++, run = run->u.run.age_next) {
        uint64_t gap = flw_run_align_gap(run, need->align_units, heap->base_unit);
        if (!flw_domain_is_after(need->domain, donor, run->u.run.ticket)) {
            break; /* and none of the younger ones */
        }
        if (run->u.run.unit_count >= need->unit_count + gap &&
            (best == NULL || run->u.run.unit_count < best->u.run.unit_count)) {
            best = run;
        }
    }
    return best != NULL ? best
                        : flw_run_index_find(&donor->runs, need->unit_count, need->align_units,
                                             heap->base_unit);
}

/* heap lock. The donor's memory that fits: its ticket, or 0. */
static uint64_t donor_ticket(const struct flw_heap *heap, const struct flw_domain *donor,
                             const struct flw_need *need)
{
    struct flw_span *run = NULL;
    if (need->class_index < FLW_CLASS_COUNT) {
        const struct flw_batch *batch = donor->batches[need->class_index].tail;
        if (batch != NULL) {
            return batch->ticket;
        }
    }
    run = donor_run(heap, donor, need);
    return run != NULL ? run->u.run.ticket : 0;
}

/* heap lock. Make the donor's batch or run, if it is covered by `ticket`, the taker's. */
static bool move_from(struct flw_heap *heap, struct flw_domain *donor, uint64_t ticket,
                      struct flw_need *need)
{
    struct flw_domain *taker = need->domain;
    if (need->class_index < FLW_CLASS_COUNT) {
        struct flw_batch *batch = donor->batches[need->class_index].tail;
        if (batch != NULL && batch->ticket <= ticket) {
            flw_batch_remove(&donor->batches[need->class_index], batch);
            flw_heap_adopt_batch(heap, taker, batch);
            need->count =
                flw_heap_take_slots(heap, taker, need->class_index, need->want, need->slots);
            return need->count > 0;
        }
    }
    struct flw_span *run = donor_run(heap, donor, need);
    if (run == NULL || run->u.run.ticket > ticket) {
        return false;
    }
    /* The whole run: what is not needed now serves the taker's next requests without another steal.
     */
    flw_run_unindex(heap, run);
    run->u.run.state = FLW_RUN_BUSY;
    flw_heap_put_run_stamped(heap, taker->index, taker->ticket, run);
    if (need->class_index < FLW_CLASS_COUNT) {
        return take_slots(heap, need);
    }
    need->run = flw_heap_take_run(heap, taker, need->unit_count, need->align_units);
    return need->run != NULL;
}

/* Driver calls. Order the taker after the donor's *ticket, which becomes all that is covered then.
 * Memory first waits for everything the donor has freed: what comes next needs no other wait. A
 * donor that cannot be asked now has its newest fence. */
static fallow_status wait_for_donor(struct climb *climb, struct flw_domain *donor, uint64_t *ticket,
                                    bool may_record)
{
    struct flw_heap *heap = climb->heap;
    struct flw_domain *taker = climb->need->domain;
    bool spares_waits = climb->need->spares_waits;
    fallow_status status = FALLOW_WOULD_WAIT;
    flw_lock_acquire(&heap->lock);
    uint64_t all = spares_waits && donor->unfenced_bytes > 0 ? donor->ticket : 0;
    flw_lock_release(&heap->lock);
    if (all > *ticket) {
        status = flw_domain_order_after(heap, taker, donor, all - FLW_MUTANT(STEAL_WAITS_FOR_OLDER),
                                        true);
        if (status == FALLOW_OK || flw_heap_is_lost(heap)) {
            *ticket = all;
            return status;
        }
    }
    flw_lock_acquire(&heap->lock);
    if (spares_waits && donor->newest != NULL && donor->newest->ticket > *ticket) {
        *ticket = donor->newest->ticket;
    }
    flw_lock_release(&heap->lock);
    return flw_domain_order_after(heap, taker, donor, *ticket - FLW_MUTANT(STEAL_WAITS_FOR_OLDER),
                                  may_record);
}

/* Order the taker after the donor on the device, then take. The order holds for everything the
 * donor's fence covers, so whatever of it is still there after the wait may be taken. */
static bool steal(struct climb *climb, struct flw_domain *donor, uint64_t ticket, bool may_record)
{
    struct flw_heap *heap = climb->heap;
    struct flw_driver_section section;
    flw_lock_acquire(&heap->lock);
    /* One wait covers all that the donor had freed by then. */
    bool is_after = flw_domain_is_after(climb->need->domain, donor, ticket);
    bool is_moved = (is_after || FLW_MUTANT(STEAL_VISIBLE_EARLY)) &&
                    move_from(heap, donor, ticket, climb->need);
    flw_lock_release(&heap->lock);
    if ((is_after && is_moved) || !flw_heap_enter_driver(heap, &section)) {
        return is_moved;
    }
    fallow_status status = wait_for_donor(climb, donor, &ticket, may_record);
    flw_heap_leave_driver(heap, &section);
    if (status == FALLOW_WOULD_WAIT && !is_moved) {
        return take(heap, climb->need); /* another thread has seen it complete: it is nobody's */
    }
    if (status != FALLOW_OK || is_moved) {
        return is_moved;
    }
    flw_lock_acquire(&heap->lock);
    is_moved = move_from(heap, donor, ticket, climb->need);
    flw_lock_release(&heap->lock);
    if (is_moved) {
        atomic_fetch_add(&heap->count.steals, 1);
    }
    return is_moved;
}

static bool steal_from_any(struct climb *climb, bool may_record)
{
    struct flw_heap *heap = climb->heap;
    struct flw_need *need = climb->need;
    bool is_forbidden = climb->pool->config.reuse_policy != FALLOW_REUSE_WAIT ||
                        need->domain->ops->wait == NULL ||
                        (need->flags & FALLOW_REQUEST_NO_WAIT) != 0;
    uint32_t cursor = 0;
    for (struct flw_domain *donor;
         !is_forbidden && (donor = flw_domain_next(heap, &cursor)) != NULL;) {
        flw_lock_acquire(&heap->lock);
        bool is_donor = donor->ops == &flw_order_stream && donor != need->domain &&
                        !donor->is_lost && !donor->is_foreign;
        uint64_t ticket = is_donor ? donor_ticket(heap, donor, need) : 0;
        flw_lock_release(&heap->lock);
        if (ticket != 0 && steal(climb, donor, ticket, may_record)) {
            return true;
        }
    }
    return false;
}

static bool rung_steal(struct climb *climb)
{
    return steal_from_any(climb, false);
}

static bool rung_fence(struct climb *climb)
{
    return steal_from_any(climb, true);
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
        bool has_memory =
            domain->unfenced_bytes > 0 && (domain->runs.run_count > 0 || heap->pending_count > 0);
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

static bool wait_and(struct climb *climb, uint64_t deadline_ns, bool (*then)(struct climb *climb))
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
        if (!flw_heap_enter_driver(heap, &section)) {
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
    }
    return false;
}

static bool take_or_move(struct climb *climb)
{
    bool is_tight = climb->pool->config.economy == FALLOW_MEMORY_FIRST;
    return reclaim_and_take(climb) ||
           grow_or_move(climb, is_tight ? tight_budget(climb) : loose_budget(climb));
}

static uint64_t wait_deadline(const struct climb *climb)
{
    return flw_clock_fine_ns() + climb->pool->config.wait_ms * 1000000ull;
}

static bool may_wait(const struct climb *climb)
{
    return (climb->need->flags & FALLOW_REQUEST_NO_WAIT) == 0 &&
           climb->pool->config.wait_ms != UINT32_MAX &&
           climb->need->domain->ops != &flw_order_capture;
}

static bool rung_remap_wait(struct climb *climb)
{
    if (!may_wait(climb) || !wait_and(climb, UINT64_MAX, take_or_move)) {
        return false;
    }
    atomic_fetch_add(&climb->pool->remap_waits, 1);
    return true;
}

/* A slab that does not fit the limit any more is made as small as it can be. */
static bool rung_limit(struct climb *climb)
{
    struct flw_need *need = climb->need;
    halve_handles(climb->pool);
    if (grow_or_move(climb, climb->heap->limit_bytes)) {
        return true;
    }
    uint32_t smallest =
        need->class_index < FLW_CLASS_COUNT ? flw_class_slab_units(need->class_index) : UINT32_MAX;
    if (need->unit_count <= smallest) {
        return false;
    }
    want_units(climb, smallest);
    return grow_or_move(climb, climb->heap->limit_bytes);
}

static bool take_or_grow(struct climb *climb)
{
    return reclaim_and_take(climb) || rung_limit(climb);
}

static void trim_other(struct flw_pool *other, void *context)
{
    struct climb *climb = context;
    if (other != climb->pool && other->config.device == climb->pool->config.device &&
        other->driver.object == climb->pool->driver.object) {
        (void)flw_heap_release_idle(&other->heap, 0);
    }
}

static bool rung_callback(struct climb *climb)
{
    struct flw_pool *pool = climb->pool;
    bool any = false;
    if (pool->config.on_oom != NULL && !atomic_flag_test_and_set(&pool->in_callback)) {
        any = pool->config.on_oom(pool->config.oom_context, climb->need->size_bytes,
                                  (fallow_stream)climb->need->domain->stream) != 0;
        atomic_flag_clear(&pool->in_callback);
    }
    if (any && (rung_own_cache(climb) || rung_caches(climb) || take_or_grow(climb))) {
        return true;
    }
    flw_pool_table_each(trim_other, climb);
    return rung_limit(climb);
}

/* heap lock. Is there memory that no fence can ever cover, since its stream was lost? Nothing less
 * is worth it: a capture that another thread has begun and not announced would not survive. */
static bool has_uncoverable(const struct flw_heap *heap)
{
    bool has_memory = flw_heap_has_lost_pending(heap);
    for (uint32_t i = 1; i < heap->domain_end; i++) {
        const struct flw_domain *domain = heap->domains[i];
        has_memory |= domain->ops != NULL && domain->is_lost && domain->unfenced_bytes > 0;
    }
    return has_memory;
}

/* Driver calls. A synchronisation of the context would kill a capture that is not announced yet. */
static bool is_any_capturing(struct flw_heap *heap)
{
    uint32_t cursor = 0;
    for (struct flw_domain *domain; (domain = flw_domain_next(heap, &cursor)) != NULL;) {
        CUstreamCaptureStatus capturing = CU_STREAM_CAPTURE_STATUS_NONE;
        flw_lock_acquire(&heap->lock);
        CUstream stream = domain->stream;
        bool is_nameable = domain->ops == &flw_order_stream && domain->is_known;
        is_nameable &= !domain->own_thread_only;
        flw_lock_release(&heap->lock);
        if (is_nameable) {
            flw_heap_count_call(heap);
            if (heap->driver->cuStreamIsCapturing(stream, &capturing) == CUDA_SUCCESS &&
                capturing != CU_STREAM_CAPTURE_STATUS_NONE) {
                return true;
            }
        }
    }
    return false;
}

bool flw_pool_sync_uncoverable(struct flw_pool *pool)
{
    struct flw_heap *heap = &pool->heap;
    struct flw_driver_section section;
    flw_lock_acquire(&heap->lock);
    bool is_worth_it = has_uncoverable(heap);
    flw_lock_release(&heap->lock);
    if (!is_worth_it || atomic_load(&pool->open_captures) != 0 ||
        !flw_heap_enter_driver(heap, &section)) {
        return false;
    }
    fallow_status status = is_any_capturing(heap) ? FALLOW_CAPTURING : flw_heap_sync_context(heap);
    flw_heap_leave_driver(heap, &section);
    return status == FALLOW_OK;
}

static bool rung_wait(struct climb *climb)
{
    if (!may_wait(climb)) {
        return false;
    }
    flw_pool_fence_all(climb->pool);
    if (wait_and(climb, wait_deadline(climb), take_or_grow)) {
        return true;
    }
    return flw_pool_sync_uncoverable(climb->pool) && take_or_grow(climb);
}

static bool (*const rungs[FLW_RUNG_COUNT])(struct climb *climb) = {
    [FLW_RUNG_OWN] = rung_own,
    [FLW_RUNG_COMPLETE] = rung_complete,
    [FLW_RUNG_OWN_CACHE] = rung_own_cache,
    [FLW_RUNG_CACHES] = rung_caches,
    [FLW_RUNG_GROW] = rung_grow,
    [FLW_RUNG_STEAL] = rung_steal,
    [FLW_RUNG_FENCE] = rung_fence,
    [FLW_RUNG_REMAP_WAIT] = rung_remap_wait,
    [FLW_RUNG_LIMIT] = rung_limit,
    [FLW_RUNG_CALLBACK] = rung_callback,
    [FLW_RUNG_WAIT] = rung_wait,
};

/* What a debug pool holds back gives way before anybody is asked for memory and before the request
 * counts as failed. True: there was some, and the rungs are worth another climb. */
static bool empty_quarantine(struct climb *climb)
{
    bool is_first = !climb->is_quarantine_out;
    climb->is_quarantine_out = true;
    return is_first && climb->pool->debug != NULL && flw_debug_release(climb->pool, NULL, true);
}

static void plan(struct climb *climb)
{
    struct flw_need *need = climb->need;
    int64_t live = flw_pool_requested(climb->pool);
    uint64_t requested = live > 0 ? (uint64_t)live : 0;
    uint64_t peak = (uint64_t)atomic_load(&climb->pool->peak_requested_bytes);
    need->spares_waits = climb->pool->config.economy == FALLOW_MEMORY_FIRST;
    climb->peak_bytes = flw_max(peak, requested + need->size_bytes);
    uint32_t unit_count = need->unit_count;
    if (need->class_index < FLW_CLASS_COUNT) {
        uint64_t reserved = atomic_load(&climb->heap->reserved_bytes);
        uint64_t budget = flw_min(tight_budget(climb), climb->heap->limit_bytes);
        uint64_t most_units = budget > reserved ? (budget - reserved) >> FLW_UNIT_LOG2 : 0;
        uint32_t smallest = flw_class_slab_units(need->class_index);
        flw_lock_acquire(&climb->heap->lock);
        unit_count = smallest << flw_heap_slab_step(need->domain, need->class_index, most_units);
        flw_lock_release(&climb->heap->lock);
        need->align_units = 1;
    }
    want_units(climb, unit_count);
}

fallow_status flw_ladder_climb(struct flw_pool *pool, struct flw_need *need)
{
    struct climb climb = {.pool = pool, .heap = &pool->heap, .need = need};
    if (rung_own(&climb)) {
        atomic_fetch_add_explicit(&pool->rung_count[FLW_RUNG_OWN], 1, memory_order_relaxed);
        return FALLOW_OK;
    }
    /* With nothing to complete the thread's own caches come before the first driver call. */
    if (!has_fences(&pool->heap) && rung_own_cache(&climb)) {
        atomic_fetch_add_explicit(&pool->rung_count[FLW_RUNG_OWN_CACHE], 1, memory_order_relaxed);
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
    for (unsigned i = FLW_RUNG_COMPLETE; i < FLW_RUNG_FAIL; i++) {
        if (i == FLW_RUNG_CALLBACK && empty_quarantine(&climb)) {
            i = FLW_RUNG_COMPLETE;
        }
        uint64_t begin = flw_clock_fine_ns();
        bool is_done = rungs[i](&climb);
        atomic_fetch_add_explicit(&pool->rung_count[i], 1, memory_order_relaxed);
        atomic_fetch_add_explicit(&pool->rung_ns[i], flw_clock_fine_ns() - begin,
                                  memory_order_relaxed);
        if (is_done) {
            return FALLOW_OK;
        }
        if (flw_heap_is_lost(&pool->heap)) {
            return FALLOW_DEVICE_LOST;
        }
    }
    if (climb.status == FALLOW_OUT_OF_MEMORY && (need->flags & FALLOW_REQUEST_NO_WAIT) != 0) {
        flw_lock_acquire(&pool->heap.lock);
        bool has_pending = pool->heap.pending_count > 0;
        for (uint32_t i = 1; i < pool->heap.domain_end; i++) {
            has_pending |= pool->heap.domains[i]->runs.run_count > 0;
        }
        flw_lock_release(&pool->heap.lock);
        climb.status = has_pending ? FALLOW_WOULD_WAIT : FALLOW_OUT_OF_MEMORY;
    }
    if (climb.status == FALLOW_OUT_OF_MEMORY) {
        flw_oom_report_fill(pool, need);
    }
    return climb.status;
}
