/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: waiting for the device until memory is free: to be moved, or to be taken.
 */
#include "pool/ladder/climb.h"
#include "pool/streams/quiesce.h"
#include "pool/streams/release.h"
#include "pool/streams/uses.h"

/* heap lock. Any domain with a fence: its oldest fence's sequence number, or, where that has gone
 * on for long, its newest's. Else any with unfenced free memory. */
static struct flw_domain *next_to_wait(const struct flw_heap *heap, const struct flw_need *need,
                                       bool is_patient, uint64_t *out_seq)
{
    struct flw_domain *unfenced = NULL;
    for (uint32_t i = 1; i < heap->domain_end; i++) {
        struct flw_domain *domain = heap->domains[i];
        if (domain->ops == NULL || domain->ops->record == NULL) {
            continue;
        }
        if (domain->oldest != NULL) {
            *out_seq = is_patient ? domain->oldest->seq : domain->newest->seq;
            return domain;
        }
        bool has_memory = !domain->is_lost && domain->unfenced_bytes > 0 &&
                          (flw_domain_has_runs(domain) || heap->deferred_count > 0) &&
                          flw_domain_can_fence(heap, domain, domain == need->domain);
        if (has_memory && (unfenced == NULL || domain == need->domain)) {
            unfenced = domain;
        }
    }
    *out_seq = unfenced != NULL ? unfenced->seq : 0;
    return unfenced;
}

/* heap lock. With several streams: of all fences that stand the oldest, then one that is four times as far behind it
 * with every round, so that the host stops a few times at most, however many streams there are. */
#define LEAP_LOG2_MOST 10

static struct flw_domain *leap_to_wait(const struct flw_heap *heap, unsigned round,
                                       uint64_t *out_seq)
{
    const struct flw_fence *fence = heap->standing.oldest;
    uint64_t leap = (1ull << flw_min(2 * round, LEAP_LOG2_MOST)) - 1;
    for (uint64_t i = 0; i < leap && fence != NULL && fence->behind != NULL; i++) {
        fence = fence->behind;
    }
    if (fence == NULL) {
        return NULL;
    }
    *out_seq = fence->seq;
    return fence->domain;
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
        uint64_t seq = 0;
        flw_lock_acquire(&heap->lock);
        struct flw_domain *domain =
            flw_climb_has_others(climb) ? leap_to_wait(heap, rounds, &seq) : NULL;
        if (domain == NULL) {
            domain = next_to_wait(heap, climb->need, rounds < PATIENT_ROUNDS, &seq);
        }
        flw_lock_release(&heap->lock);
        if (domain == NULL) { /* other threads may have waited, and freed, meanwhile */
            return climb->pool->cache_count > 1 && then(climb);
        }
        if (!flw_heap_enter_mode(heap, &section)) {
            return false;
        }
        fallow_status status = flw_domain_wait(heap, domain, seq, deadline_ns);
        while (status == FALLOW_OK && flw_climb_has_others(climb) &&
               flw_heap_ask_one(heap, false) != NULL) {
        }
        flw_heap_leave_driver(heap, &section);
        if (status != FALLOW_OK) { /* others may have done more than the one that was waited for */
            return status == FALLOW_TIMEOUT && flw_climb_has_others(climb) &&
                   (flw_climb_take_complete(climb) || then(climb));
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
                                         : climb->shared_bytes != 0
                                             ? climb->shared_bytes
                                             : flw_climb_loose_budget(climb));
}

static bool wait_and_move(struct flw_climb *climb, uint64_t until_ns)
{
    return wait_and(climb, until_ns, take_or_move);
}

bool flw_stage_remap_wait(struct flw_climb *climb)
{
    /* What is complete, and idle now, may be what a stretch lacked. */
    if (climb->shared_bytes != 0 &&
        (flw_climb_take_complete(climb) || flw_climb_move_finished(climb) ||
         (flw_climb_may_steal(climb) && flw_climb_take_several(climb)))) {
        return true;
    }
    if (!flw_climb_wait(climb, true, wait_and_move)) {
        return false;
    }
    atomic_fetch_add(&climb->pool->climbs.remap_waits, 1);
    return true;
}

static bool take_or_grow(struct flw_climb *climb)
{
    return flw_climb_reclaim(climb) || flw_climb_grow_to_limit(climb);
}

static bool wait_and_grow(struct flw_climb *climb, uint64_t until_ns)
{
    return wait_and(climb, until_ns, take_or_grow) ||
           (flw_pool_sync_uncoverable(climb->pool, false) && take_or_grow(climb)) ||
           flw_climb_ask_others(climb, until_ns);
}

bool flw_stage_wait(struct flw_climb *climb)
{
    if (flw_climb_may_wait(climb)) {
        flw_pool_cover_lost(climb->pool, true, false);
        flw_pool_fence_all(climb->pool);
    }
    return flw_climb_wait(climb, false, wait_and_grow);
}
