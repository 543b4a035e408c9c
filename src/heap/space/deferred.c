/* SPDX-License-Identifier: Apache-2.0 */
#include "heap/space/deferred.h"
#include "base/mutant.h"

/* Read the current point of the next few domains. A newer point than the one without room is
 * conservative: waiting for it covers the old one too. */
static void sweep(struct flw_heap *heap, struct flw_deferred *deferred)
{
    uint32_t room = sizeof deferred->points / sizeof *deferred->points;
    while (deferred->point_count < room && deferred->sweep_next < heap->domain_end) {
        struct flw_domain *domain = heap->domains[deferred->sweep_next++];
        if (domain->ops == NULL || domain->ops->record == NULL) {
            continue;
        }
        if (domain->is_lost) {
            deferred->needs_context_sync = true;
        } else {
            deferred->points[deferred->point_count++] =
                (struct flw_point){.domain = domain->index, .seq = flw_domain_free_seq(domain)};
            flw_domain_want_fence(heap, domain, 1);
            flw_domain_set_add(&heap->open_users, domain);
        }
    }
    if (deferred->sweep_next >= heap->domain_end) {
        deferred->sweep_next = 0;
    }
}

static void drop_complete_points(const struct flw_heap *heap, struct flw_deferred *deferred)
{
    while (deferred->point_count > 0 &&
           flw_point_is_complete(heap, &deferred->points[deferred->point_count - 1])) {
        deferred->point_count--;
    }
}

/* Find what it waits for next; false: nothing. The queue of FLW_UNOWNED is for frees without a
 * sequence number and is searched every time. */
static bool find_await(struct flw_heap *heap, struct flw_deferred *deferred)
{
    drop_complete_points(heap, deferred);
    while (deferred->point_count == 0 && deferred->sweep_next != 0) {
        sweep(heap, deferred);
        drop_complete_points(heap, deferred);
    }
    deferred->awaits = (struct flw_point){.domain = FLW_UNOWNED};
    if (deferred->point_count > 0) {
        deferred->awaits = deferred->points[deferred->point_count - 1];
        return true;
    }
    if (deferred->needs_context_sync) {
        return true;
    }
    /* Its own stream orders the rest. If that is gone, the work up to the free must be complete
     * too. */
    const struct flw_domain *own = heap->domains[deferred->domain];
    bool is_ordered = deferred->domain == FLW_UNOWNED || own->is_known ||
                      deferred->own_seq <= own->completed || FLW_MUTANT(HELD_BLOCK_FORGETS_STREAM);
    if (!is_ordered) {
        deferred->awaits = (struct flw_point){.domain = deferred->domain, .seq = deferred->own_seq};
    }
    return !is_ordered;
}

/* Sequence numbers ascend in a queue; usually the newest is last. */
static void enqueue(struct flw_heap *heap, struct flw_deferred *deferred)
{
    struct flw_domain *domain = heap->domains[deferred->awaits.domain];
    struct flw_deferred **link = &domain->waiting;
    if (domain->waiting != NULL && domain->waiting_last->awaits.seq <= deferred->awaits.seq) {
        link = &domain->waiting_last->next;
    }
    while (*link != NULL && (*link)->awaits.seq <= deferred->awaits.seq) {
        link = &(*link)->next;
    }
    deferred->next = *link;
    *link = deferred;
    if (deferred->next == NULL) {
        domain->waiting_last = deferred;
    }
}

bool flw_heap_await_deferred(struct flw_heap *heap, struct flw_deferred *deferred)
{
    bool waits = find_await(heap, deferred);
    if (waits) {
        enqueue(heap, deferred);
    }
    return waits;
}

void flw_heap_queue_deferred(struct flw_heap *heap, struct flw_deferred *deferred)
{
    (void)find_await(heap, deferred);
    enqueue(heap, deferred); /* frees that wait for nothing wait to be checked */
}

void flw_heap_defer_run(struct flw_heap *heap, struct flw_deferred *deferred, struct flw_span *run)
{
    heap->live_run_bytes -= (uint64_t)run->u.run.unit_count << FLW_UNIT_LOG2;
    run->u.run.state = FLW_RUN_DEFERRED;
    run->u.run.deferred = deferred;
    deferred->run = run;
    deferred->slot = NULL;
}

void flw_heap_hold_deferred(struct flw_heap *heap, struct flw_deferred *deferred)
{
    if (deferred->sweep_next != 0) {
        sweep(heap, deferred);
    }
    heap->deferred_bytes += deferred->bytes;
    heap->deferred_count++;
    flw_heap_queue_deferred(heap, deferred);
}

void flw_heap_withdraw_deferred(struct flw_heap *heap, struct flw_deferred *deferred)
{
    struct flw_domain *domain = heap->domains[deferred->awaits.domain];
    struct flw_deferred *before = NULL;
    for (struct flw_deferred *at = domain->waiting; at != deferred; at = at->next) {
        before = at;
    }
    *(before != NULL ? &before->next : &domain->waiting) = deferred->next;
    domain->waiting_last = domain->waiting_last == deferred ? before : domain->waiting_last;
}

bool flw_heap_has_lost_deferred(const struct flw_heap *heap)
{
    for (uint32_t i = 0; i < heap->domain_end; i++) {
        const struct flw_deferred *deferred = heap->domains[i]->waiting;
        for (; deferred != NULL; deferred = deferred->next) {
            if (deferred->needs_context_sync) {
                return true;
            }
        }
    }
    return false;
}

void flw_heap_begin_sync_of_deferred(struct flw_heap *heap)
{
    for (uint32_t i = 0; i < heap->domain_end; i++) {
        struct flw_deferred *deferred = heap->domains[i]->waiting;
        for (; deferred != NULL; deferred = deferred->next) {
            deferred->is_in_sync = deferred->needs_context_sync;
        }
    }
}

void flw_heap_end_sync_of_deferred(struct flw_heap *heap)
{
    for (uint32_t i = 0; i < heap->domain_end; i++) {
        struct flw_deferred *deferred = heap->domains[i]->waiting;
        for (; deferred != NULL; deferred = deferred->next) {
            deferred->needs_context_sync &= !deferred->is_in_sync;
        }
    }
}
