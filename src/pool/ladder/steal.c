/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: taking what other streams have freed: first what is complete, else what the taker then waits for on the
 * device. What that costs does not grow with the number of streams, but for up to 64 records: what was freed first is
 * asked for first, and whoever asks has some more fences recorded, which later ones ask for.
 */
#include "base/mutant.h"
#include "heap/order/domain.h"
#include "pool/ladder/climb.h"
#include "pool/streams/cache.h"

/* ---- what is complete */

/* The thread's cache of the stream that has, or had, the place; NULL: none, or the taker's. */
static struct flw_tcache *cache_of(const struct flw_climb *climb, const struct flw_domain *domain,
                                   CUstream stream)
{
    struct flw_tcache *cache = flw_thread_find(climb->pool->handle, stream);
    return cache == NULL || cache->domain != domain || cache == climb->need->cache ? NULL : cache;
}

/* What the thread's cache keeps for that stream goes to the heap. */
static void empty(struct flw_climb *climb, struct flw_tcache *cache)
{
    flw_lock_acquire(&cache->lock);
    flw_lock_acquire(&climb->heap->lock);
    if (climb->need->class_index < FLW_CLASS_COUNT) {
        (void)flw_tcache_flush(cache, climb->heap);
    } else { /* slots are a small part of all */
        (void)flw_tcache_flush_runs(cache, climb->heap);
    }
    if (FLW_MUTANT(CEDED_LOOKS_COVERED)) {
        flw_domain_complete(climb->heap, cache->domain, cache->domain->seq++);
    }
    flw_lock_release(&climb->heap->lock);
    flw_lock_release(&cache->lock);
}

/* The same, once a look: the thread is here meanwhile, and frees nothing. The place may be getting another stream by
 * now, so that its fields are the lock's. */
static void cede(struct flw_climb *climb, struct flw_domain *domain)
{
    flw_lock_acquire(&climb->heap->lock);
    CUstream stream = domain->stream;
    bool is_due = climb->look == 0 || domain->ceded != climb->look;
    domain->ceded = climb->look;
    flw_lock_release(&climb->heap->lock);
    struct flw_tcache *cache = is_due ? cache_of(climb, domain, stream) : NULL;
    if (cache != NULL) {
        empty(climb, cache);
    }
}

/* What it has freed so far is about to be covered, and runs in its cache are, too: slots are ceded before it, runs
 * after it where it is done at once. */
static enum flw_fenced fence(struct flw_climb *climb, struct flw_domain *domain, bool cedes)
{
    struct flw_heap *heap = climb->heap;
    enum flw_fenced fenced = FLW_FENCED;
    bool asks = flw_budget_is_prompt(&climb->pool->budget);
    flw_lock_acquire(&heap->lock);
    CUstream stream = domain->stream;
    struct flw_tcache *cache = cache_of(climb, domain, stream);
    cedes = cedes && cache != NULL;
    domain->ceded = cedes ? climb->look : domain->ceded;
    flw_lock_release(&heap->lock);
    bool is_ceded = cedes && (!asks || climb->need->class_index < FLW_CLASS_COUNT);
    if (is_ceded) {
        empty(climb, cache);
    }
    if (asks) {
        fenced = flw_domain_fence_done(heap, domain);
    } else {
        (void)flw_domain_fence(heap, domain);
    }
    if (cedes && !is_ceded) {
        empty(climb, cache);
    }
    if (cache != NULL) {
        flw_lock_acquire(&cache->lock);
        flw_tcache_limit_runs(cache, heap);
        flw_lock_release(&cache->lock);
    }
    return fenced;
}

/* On the stream, but for that one, that has owed a fence for longest. */
static enum flw_fenced fence_one(struct flw_climb *climb, const struct flw_domain *but, bool cedes)
{
    struct flw_domain *domain = flw_heap_take_owing(climb->heap, but);
    return domain != NULL ? fence(climb, domain, cedes) : FLW_FENCED_NOT;
}

/* On so many. True: one of them is done. */
static bool fence_owing(struct flw_climb *climb, const struct flw_domain *but, unsigned most,
                        bool cedes)
{
    enum flw_fenced fenced = FLW_FENCED;
    bool any = false;
    for (; most > 0 && fenced != FLW_FENCED_NOT; most--) {
        fenced = fence_one(climb, but, cedes);
        any = any || fenced >= FLW_FENCED_DONE;
    }
    return any;
}

#define CREDITS_A_CLIMB 8

/* A look at the device is a section, which costs as much as what is asked in it, and a climb more: where it finds
 * anything done, so is more, and that spares the next ones. */
#define RECORDS_AHEAD     3
#define STREAMS_A_RECORD  8
#define ASKS_AHEAD        8
#define ASKS_AHEAD_SINGLY 24 /* memory first, which asks for each fence by itself */

/* What waited for nothing any more by the time it was freed. */
static bool take_untold(struct flw_climb *climb)
{
    struct flw_heap *heap = climb->heap;
    flw_lock_acquire(&heap->lock);
    bool any = flw_heap_return_unnumbered(heap);
    flw_lock_release(&heap->lock);
    return any && flw_climb_take(heap, climb->need);
}

/* Memory first fits best where little changes hands at a time. */
static bool asks_singly(const struct flw_climb *climb)
{
    return climb->pool->config.economy == FALLOW_MEMORY_FIRST;
}

static struct flw_domain *ask_one(struct flw_climb *climb)
{
    return flw_heap_ask_one(climb->heap, !asks_singly(climb));
}

/* As many fences as are done, the oldest first, until what they cover serves, and a few more. */
static bool ask_and_take(struct flw_climb *climb, bool cedes)
{
    bool is_served = false;
    struct flw_domain *domain;
    unsigned most = asks_singly(climb) ? ASKS_AHEAD_SINGLY : ASKS_AHEAD;
    for (unsigned ahead = 0; ahead < most && (domain = ask_one(climb)) != NULL;
         ahead += is_served) {
        if (cedes) {
            cede(climb, domain);
        }
        is_served = is_served || flw_climb_take(climb->heap, climb->need);
    }
    return is_served;
}

/* One more where that was so; else from the beginning. */
static void count_looks(atomic_uint *looks, bool goes_on)
{
    unsigned before = atomic_load_explicit(looks, memory_order_relaxed);
    atomic_store_explicit(looks, goes_on ? flw_min(before + 1, FLW_PROMPT_LOOKS) : 0,
                          memory_order_relaxed);
}

/* Was everything done, a fence that the look recorded itself, or that was recorded since the last one, too? Where one
 * that was not done was met, it is told by what still stands; where memory that serves was met before, that may not
 * have been asked. Without a new fence a look finds no more than that something is under way, and of one that a capture
 * took no more than that it was recorded. */
static void note_pace(struct flw_climb *climb, bool is_served, enum flw_fenced fenced)
{
    struct flw_heap *heap = climb->heap;
    struct flw_budget *budget = &climb->pool->budget;
    bool is_done = fenced == FLW_FENCED_LAST;
    if (!is_done) {
        flw_lock_acquire(&heap->lock);
        is_done = heap->standing.oldest == NULL;
        flw_lock_release(&heap->lock);
    }
    uint64_t events = atomic_load_explicit(&heap->count.events, memory_order_relaxed);
    bool is_new = events != atomic_load_explicit(&budget->looked_events, memory_order_relaxed) &&
                  (fenced != FLW_FENCED_NOT || !flw_budget_is_prompt(budget));
    atomic_store_explicit(&budget->looked_events, events, memory_order_relaxed);
    if (is_new && (is_done || !is_served)) {
        count_looks(&budget->prompt_looks, is_done);
    }
    if (is_done || !is_served) {
        count_looks(&budget->late_looks, !is_done);
    }
}

/* Has the stream that would be recorded on a fence that stands, on a device that falls behind? That one is done first.
 * (Speed first never waits, and memory first waits as seldom as can be: both want all that they can know.) */
static bool has_older_fence(const struct flw_climb *climb)
{
    struct flw_heap *heap = climb->heap;
    const struct flw_budget *budget = &climb->pool->budget;
    if (climb->pool->config.economy != FALLOW_BALANCED || flw_budget_is_prompt(budget) ||
        !flw_budget_falls_behind(budget)) {
        return false;
    }
    flw_lock_acquire(&heap->lock);
    const struct flw_domain *first = heap->owing.first;
    first = first == climb->need->domain && first != NULL ? first->owing_behind : first;
    bool stands = first != NULL && first->newest != NULL;
    flw_lock_release(&heap->lock);
    return stands;
}

/* On another stream; where the device is done with everything, on the taker's own at last, whose memory then joins
 * what is unowned. */
static enum flw_fenced fence_next(struct flw_climb *climb, bool cedes)
{
    enum flw_fenced fenced = fence_one(climb, climb->need->domain, cedes);
    bool is_last = fenced == FLW_FENCED_NOT && flw_budget_is_prompt(&climb->pool->budget);
    return is_last ? fence_one(climb, NULL, cedes) : fenced;
}

#define PROMPT_RECORDS_MOST 64

/* The next looks are spared, or find more: what is recorded now is asked for now only where it is done at once. There,
 * the more streams there are, the more of them owe. */
static void look_ahead(struct flw_climb *climb, bool cedes)
{
    const struct flw_domain *taker = climb->need->domain;
    uint32_t streams = atomic_load_explicit(&climb->heap->stream_count, memory_order_relaxed);
    unsigned more = flw_min(streams / STREAMS_A_RECORD, PROMPT_RECORDS_MOST);
    bool is_done = fence_owing(climb, taker, RECORDS_AHEAD, cedes);
    for (unsigned n = RECORDS_AHEAD; is_done && n < more; n++) {
        is_done = fence_one(climb, taker, cedes) >= FLW_FENCED_DONE;
    }
}

/* Beyond the first budget caches give way, too: what they keep has the numbers of its frees. One fence is recorded, or an
 * older one of that stream asked for, and where that serves a few for later looks; on a device that is done with
 * everything, where frees record none, as many as it takes, each asked for at once. */
bool flw_climb_take_finished(struct flw_climb *climb)
{
    struct flw_budget *budget = &climb->pool->budget;
    uint64_t after = atomic_load(&climb->heap->reserved_bytes) + climb->need_bytes;
    bool cedes = after > climb->first_bytes, goes_on = true;
    climb->look = flw_heap_begin_look(climb->heap);
    if (take_untold(climb)) {
        return true;
    }
    atomic_store_explicit(&budget->look_credits, CREDITS_A_CLIMB, memory_order_relaxed);
    for (unsigned records = 0; goes_on && records < PROMPT_RECORDS_MOST; records++) {
        enum flw_fenced fenced = has_older_fence(climb) ? FLW_FENCED_NOT : fence_next(climb, cedes);
        bool is_served = fenced >= FLW_FENCED_DONE && flw_climb_take(climb->heap, climb->need);
        is_served = is_served || (fenced != FLW_FENCED_LAST && ask_and_take(climb, cedes));
        note_pace(climb, is_served, fenced);
        if (is_served) {
            look_ahead(climb, cedes);
            return true;
        }
        goes_on = fenced != FLW_FENCED_NOT && flw_budget_is_prompt(budget);
    }
    /* What streams that owe nothing keep is covered by then. */
    return cedes && flw_budget_is_prompt(budget) && flw_climb_own_runs(climb);
}

/* What streams have done with is known complete by the time it is needed, if enough of it is asked for in time; on a
 * device that keeps pace whoever needs it learns as much. */
#define KEEP_UP_BYTES (2 * FLW_MIB)

void flw_climb_keep_up(struct flw_climb *climb)
{
    struct flw_heap *heap = climb->heap;
    struct flw_driver_section section;
    _Atomic uint64_t *quiet_bytes = &climb->pool->budget.quiet_bytes;
    /* Two threads may count as one: no lock is worth more. */
    uint64_t bytes =
        atomic_load_explicit(quiet_bytes, memory_order_relaxed) + climb->need->size_bytes;
    bool is_due = bytes >= KEEP_UP_BYTES && !flw_budget_is_prompt(&climb->pool->budget);
    atomic_store_explicit(quiet_bytes, is_due ? 0 : bytes, memory_order_relaxed);
    if (!is_due) {
        return;
    }
    flw_lock_acquire(&heap->lock);
    bool has_open = flw_heap_has_open(heap, climb->need->domain);
    flw_lock_release(&heap->lock);
    if (has_open && flw_budget_take_credit(&climb->pool->budget) &&
        flw_heap_enter_mode(heap, &section)) {
        bool is_done = false;
        (void)fence_owing(climb, climb->need->domain, 1, false);
        for (unsigned i = 0; i < ASKS_AHEAD && ask_one(climb) != NULL; i++) {
            is_done = true;
        }
        (void)fence_owing(climb, climb->need->domain, is_done ? RECORDS_AHEAD : 0, false);
        flw_heap_leave_driver(heap, &section);
    }
}

/* So many streams that owe have a fence recorded before more is held: what they have done is to be had instead. */
#define RECORDS_A_GROWTH 16

bool flw_climb_take_complete(struct flw_climb *climb)
{
    struct flw_driver_section section;
    if (flw_climb_own_caches(climb, FLW_CACHES_A_LOOK)) {
        return true;
    }
    if (!flw_heap_enter_mode(climb->heap, &section)) {
        return false;
    }
    bool any = fence_owing(climb, climb->need->domain, RECORDS_A_GROWTH, true);
    any = flw_heap_poll_rest(climb->heap) || any;
    flw_heap_leave_driver(climb->heap, &section);
    return any && flw_climb_reclaim(climb);
}

bool flw_climb_is_donor(const struct flw_domain *donor, const struct flw_need *need)
{
    return donor->ops == &flw_order_stream && donor != need->domain && !donor->is_lost &&
           !donor->is_foreign;
}

uint32_t flw_climb_oldest_donors(const struct flw_heap *heap, const struct flw_need *need,
                                 struct flw_domain *donors[FLW_DONORS_MOST])
{
    uint32_t count = 0;
    const struct flw_fence *fence = heap->standing.oldest;
    for (unsigned looks = 0;
         fence != NULL && looks < 4 * FLW_DONORS_MOST && count < FLW_DONORS_MOST;
         looks++, fence = fence->behind) {
        bool is_new = flw_climb_is_donor(fence->domain, need);
        for (uint32_t i = 0; i < count; i++) {
            is_new &= donors[i] != fence->domain;
        }
        if (is_new) {
            donors[count++] = fence->domain;
        }
    }
    return count;
}

/* ---- what is not */

/* heap lock. The donor's run to take: the tightest; memory first, the tightest of those that the
 * taker is ordered after already, if the oldest have one: fewer waits for looser fits, which moves
 * of handles make good there. NULL: none. */
#define OLDEST_SCAN 256

static struct flw_span *donor_run(const struct flw_heap *heap, const struct flw_domain *donor,
                                  const struct flw_need *need)
{
    struct flw_span *best = NULL, *run = donor->runs.oldest;
    if (flw_need_is_dedicated(heap, need)) {
        return flw_heap_find_dedicated(heap, &donor->dedicated_runs, need->unit_count,
                                       need->align_units);
    }
    for (unsigned i = 0; need->spares_waits && run != NULL && i < OLDEST_SCAN;
         i++, run = run->u.run.age_next) {
        uint64_t gap = flw_run_align_gap(run, need->align_units, heap->base_unit);
        if (!flw_domain_is_after(need->domain, donor, run->u.run.seq)) {
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

/* heap lock. The donor's memory that fits: its sequence number, or 0. */
static uint64_t donor_seq(const struct flw_heap *heap, const struct flw_domain *donor,
                          const struct flw_need *need)
{
    struct flw_span *run = NULL;
    if (need->class_index < FLW_CLASS_COUNT) {
        const struct flw_batch *batch = donor->batches[need->class_index].tail;
        if (batch != NULL) {
            return batch->seq;
        }
    }
    run = donor_run(heap, donor, need);
    return run != NULL ? run->u.run.seq : 0;
}

/* heap lock. Make the donor's batch or run, if it is covered by `seq`, the taker's. */
static bool move_from(struct flw_heap *heap, struct flw_domain *donor, uint64_t seq,
                      struct flw_need *need)
{
    struct flw_domain *taker = need->domain;
    if (need->class_index < FLW_CLASS_COUNT) {
        struct flw_batch *batch = donor->batches[need->class_index].tail;
        if (batch != NULL && batch->seq <= seq) {
            flw_batch_remove(&donor->batches[need->class_index], batch);
            flw_heap_adopt_batch(heap, taker, batch);
            need->count =
                flw_heap_take_slots(heap, taker, need->class_index, need->want, need->slots);
            return need->count > 0;
        }
    }
    struct flw_span *run = donor_run(heap, donor, need);
    if (run == NULL || run->u.run.seq > seq) {
        return false;
    }
    /* The whole run: what is not needed now serves the taker's next requests without another steal.
     */
    flw_run_unindex(heap, run);
    run->u.run.state = FLW_RUN_BUSY;
    flw_heap_put_run_at_point(heap, taker->index, taker->seq, run);
    if (need->class_index < FLW_CLASS_COUNT) {
        return flw_climb_take_slots(heap, need);
    }
    return flw_climb_take_run(heap, need);
}

/* Driver calls. Order the taker after the donor's *out_seq, which becomes all that is covered then.
 * Memory first waits for everything the donor has freed: what comes next needs no other wait. A
 * donor that cannot be asked now has its newest fence. */
static fallow_status wait_for_donor(struct flw_climb *climb, struct flw_domain *donor,
                                    uint64_t *seq, bool may_record)
{
    struct flw_heap *heap = climb->heap;
    struct flw_domain *taker = climb->need->domain;
    bool spares_waits = climb->need->spares_waits;
    fallow_status status = FALLOW_WOULD_WAIT;
    flw_lock_acquire(&heap->lock);
    uint64_t all = spares_waits && donor->unfenced_bytes > 0 ? donor->seq : 0;
    flw_lock_release(&heap->lock);
    if (all > *seq) {
        status = flw_domain_order_after(heap, taker, donor, all - FLW_MUTANT(STEAL_WAITS_FOR_OLDER),
                                        true);
        if (status == FALLOW_OK || flw_heap_is_lost(heap)) {
            *seq = all;
            return status;
        }
    }
    flw_lock_acquire(&heap->lock);
    if (spares_waits && donor->newest != NULL && donor->newest->seq > *seq) {
        *seq = donor->newest->seq;
    }
    flw_lock_release(&heap->lock);
    return flw_domain_order_after(heap, taker, donor, *seq - FLW_MUTANT(STEAL_WAITS_FOR_OLDER),
                                  may_record);
}

/* Order the taker after the donor on the device, then take. The order holds for everything the
 * donor's fence covers, so whatever of it is still there after the wait may be taken. */
static bool steal(struct flw_climb *climb, struct flw_domain *donor, uint64_t seq, bool may_record)
{
    struct flw_heap *heap = climb->heap;
    struct flw_driver_section section;
    flw_lock_acquire(&heap->lock);
    /* One wait covers all that the donor had freed by then. */
    bool is_after = flw_domain_is_after(climb->need->domain, donor, seq);
    bool is_moved =
        (is_after || FLW_MUTANT(STEAL_VISIBLE_EARLY)) && move_from(heap, donor, seq, climb->need);
    flw_lock_release(&heap->lock);
    if ((is_after && is_moved) || !flw_heap_enter_mode(heap, &section)) {
        return is_moved;
    }
    fallow_status status = wait_for_donor(climb, donor, &seq, may_record);
    flw_heap_leave_driver(heap, &section);
    if (status == FALLOW_WOULD_WAIT && !is_moved) {
        return flw_climb_take(heap,
                              climb->need); /* another thread has seen it complete: it is unowned */
    }
    if (status != FALLOW_OK || is_moved) {
        return is_moved;
    }
    flw_lock_acquire(&heap->lock);
    is_moved = move_from(heap, donor, seq, climb->need);
    flw_lock_release(&heap->lock);
    if (is_moved) {
        atomic_fetch_add(&heap->count.steals, 1);
    }
    return is_moved;
}

#define DONORS_A_LOOK 128

/* heap lock. Return the donor with most free memory among a few places from `first` on, since one wait covers it all;
 * then the next one. *rank is the rank of the previous donor (begin with UINT64_MAX), *out_seq the number of the fence
 * that covers its memory that fits. Returns NULL if there are no more. */
static struct flw_domain *next_donor(const struct flw_heap *heap, const struct flw_need *need,
                                     uint32_t first, uint64_t *rank, uint64_t *out_seq)
{
    struct flw_domain *best = NULL;
    uint64_t best_rank = 0;
    for (uint32_t i = first; i < heap->domain_end && i < first + DONORS_A_LOOK; i++) {
        struct flw_domain *donor = heap->domains[i];
        uint64_t own_rank = (donor->runs.unit_count_total + 1) * FLW_DOMAIN_COUNT - i;
        if (own_rank > best_rank && own_rank < *rank && flw_climb_is_donor(donor, need)) {
            uint64_t seq = donor_seq(heap, donor, need);
            if (seq != 0) {
                best = donor;
                best_rank = own_rank;
                *out_seq = seq;
            }
        }
    }
    *rank = best_rank;
    return best;
}

bool flw_climb_may_steal(const struct flw_climb *climb)
{
    const struct flw_need *need = climb->need;
    return climb->pool->config.reuse_policy == FALLOW_REUSE_WAIT &&
           need->domain->ops->wait != NULL && !flw_need_is_grown(need) &&
           (need->flags & FALLOW_REQUEST_NO_WAIT) == 0;
}

static bool steal_from_some(struct flw_climb *climb, uint32_t first)
{
    struct flw_heap *heap = climb->heap;
    uint64_t rank = UINT64_MAX, seq = 0;
    for (;;) {
        flw_lock_acquire(&heap->lock);
        struct flw_domain *donor = next_donor(heap, climb->need, first, &rank, &seq);
        flw_lock_release(&heap->lock);
        if (donor == NULL) {
            return false;
        }
        if (steal(climb, donor, seq, true)) {
            return true;
        }
    }
}

/* Once around, from where the last one was found: so the next is near. */
static bool steal_from_any(struct flw_climb *climb)
{
    struct flw_heap *heap = climb->heap;
    bool is_moved = false;
    flw_lock_acquire(&heap->lock);
    uint32_t end = heap->domain_end, first = heap->places.donor;
    flw_lock_release(&heap->lock);
    for (uint32_t looks = 0; !is_moved && looks < end; looks += DONORS_A_LOOK) {
        first = first != 0 && first < end ? first : 1;
        is_moved = steal_from_some(climb, first);
        first += is_moved ? 0 : DONORS_A_LOOK;
    }
    flw_lock_acquire(&heap->lock);
    heap->places.donor = first;
    flw_lock_release(&heap->lock);
    return is_moved;
}

/* What was freed first is taken first. */
static bool steal_oldest(struct flw_climb *climb)
{
    struct flw_heap *heap = climb->heap;
    struct flw_domain *donors[FLW_DONORS_MOST];
    flw_lock_acquire(&heap->lock);
    uint32_t count = flw_climb_oldest_donors(heap, climb->need, donors);
    flw_lock_release(&heap->lock);
    for (uint32_t i = 0; i < count; i++) {
        cede(climb, donors[i]);
        flw_lock_acquire(&heap->lock);
        uint64_t seq = flw_climb_is_donor(donors[i], climb->need)
                           ? donor_seq(heap, donors[i], climb->need)
                           : 0;
        flw_lock_release(&heap->lock);
        if (seq != 0 && steal(climb, donors[i], seq, true)) {
            return true;
        }
    }
    return false;
}

bool flw_stage_steal(struct flw_climb *climb)
{
    return flw_climb_may_steal(climb) && steal_oldest(climb);
}

/* To empty all of the thread's caches is a look at each bin of each. On a device that keeps pace that is left to the
 * next stage, which does it before anything moves or waits. */
static bool spares_caches(const struct flw_climb *climb)
{
    return climb->shared_bytes != 0 && !flw_climb_lacks_host(climb) &&
           flw_budget_is_prompt(&climb->pool->budget);
}

/* Rare: whatever any stream has, one after the other. */
bool flw_climb_steal_any(struct flw_climb *climb)
{
    bool gives_way = flw_climb_has_others(climb) && !spares_caches(climb);
    return (gives_way && flw_climb_own_caches(climb, UINT32_MAX)) || steal_from_any(climb);
}
