/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: taking free memory from other streams, which the taker then waits for on the device.
 */
#include "base/mutant.h"
#include "pool/ladder/climb.h"

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

/* heap lock. May its memory change hands? */
static bool is_donor(const struct flw_domain *donor, const struct flw_need *need)
{
    return donor->ops == &flw_order_stream && donor != need->domain && !donor->is_lost &&
           !donor->is_foreign;
}

/* heap lock. The donor with most free memory, since one wait covers it all; then the next: *rank is of
 * the last one, begin with UINT64_MAX. Its memory that fits has *out_seq. NULL: no more. */
static struct flw_domain *next_donor(const struct flw_heap *heap, const struct flw_need *need,
                                     uint64_t *rank, uint64_t *out_seq)
{
    struct flw_domain *best = NULL;
    uint64_t best_rank = 0;
    for (uint32_t i = 1; i < heap->domain_end; i++) {
        struct flw_domain *donor = heap->domains[i];
        uint64_t own_rank = (donor->runs.unit_count_total + 1) * FLW_DOMAIN_COUNT - i;
        if (own_rank > best_rank && own_rank < *rank && is_donor(donor, need)) {
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

static bool steal_from_any(struct flw_climb *climb, bool may_record)
{
    struct flw_heap *heap = climb->heap;
    struct flw_need *need = climb->need;
    bool is_forbidden = climb->pool->config.reuse_policy != FALLOW_REUSE_WAIT ||
                        need->domain->ops->wait == NULL || flw_need_is_single(need) ||
                        (need->flags & FALLOW_REQUEST_NO_WAIT) != 0;
    uint64_t rank = UINT64_MAX, seq = 0;
    while (!is_forbidden) {
        flw_lock_acquire(&heap->lock);
        struct flw_domain *donor = next_donor(heap, need, &rank, &seq);
        flw_lock_release(&heap->lock);
        if (donor == NULL) {
            break;
        }
        if (steal(climb, donor, seq, may_record)) {
            return true;
        }
    }
    return false;
}

bool flw_stage_steal(struct flw_climb *climb)
{
    return steal_from_any(climb, false);
}

bool flw_stage_fence(struct flw_climb *climb)
{
    return steal_from_any(climb, true);
}
