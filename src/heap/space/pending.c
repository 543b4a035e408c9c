/* SPDX-License-Identifier: Apache-2.0 */
#include "heap/space/pending.h"
#include "base/mutant.h"

/* Stamps of the next few domains. Those of now are later than those that had no room: safe, and
 * enough, since they are all met in the end. */
static void sweep(struct flw_heap *heap, struct flw_pending *pending)
{
    uint32_t room = sizeof pending->stamps / sizeof *pending->stamps;
    while (pending->stamp_count < room && pending->sweep_next < heap->domain_end) {
        struct flw_domain *domain = heap->domains[pending->sweep_next++];
        if (domain->ops == NULL || domain->ops->record == NULL) {
            continue;
        }
        if (domain->is_lost) {
            pending->needs_context_sync = true;
        } else {
            pending->stamps[pending->stamp_count++] =
                (struct flw_stamp){.domain = domain->index, .ticket = flw_domain_stamp(domain)};
            flw_domain_want_fence(domain, 1);
            domain->has_open_use = true;
        }
    }
    if (pending->sweep_next >= heap->domain_end) {
        pending->sweep_next = 0;
    }
}

static void drop_complete_stamps(const struct flw_heap *heap, struct flw_pending *pending)
{
    while (pending->stamp_count > 0 &&
           flw_stamp_is_complete(heap, &pending->stamps[pending->stamp_count - 1])) {
        pending->stamp_count--;
    }
}

/* What it waits for next; false: nothing. Nobody's queue is for what no ticket tells: it is looked
 * through every time. */
static bool find_await(struct flw_heap *heap, struct flw_pending *pending)
{
    drop_complete_stamps(heap, pending);
    while (pending->stamp_count == 0 && pending->sweep_next != 0) {
        sweep(heap, pending);
        drop_complete_stamps(heap, pending);
    }
    pending->awaits = (struct flw_stamp){.domain = FLW_NOBODY};
    if (pending->stamp_count > 0) {
        pending->awaits = pending->stamps[pending->stamp_count - 1];
        return true;
    }
    if (pending->needs_context_sync) {
        return true;
    }
    /* Its own stream orders the rest, unless that is gone: then what the stream had been given by
     * the time of the free must be complete too. */
    const struct flw_domain *own = heap->domains[pending->domain];
    bool is_ordered = pending->domain == FLW_NOBODY || own->is_known ||
                      pending->own_ticket <= own->completed ||
                      FLW_MUTANT(HELD_BLOCK_FORGETS_STREAM);
    if (!is_ordered) {
        pending->awaits =
            (struct flw_stamp){.domain = pending->domain, .ticket = pending->own_ticket};
    }
    return !is_ordered;
}

/* Tickets ascend in a queue; nearly always the newest comes last. */
static void enqueue(struct flw_heap *heap, struct flw_pending *pending)
{
    struct flw_domain *domain = heap->domains[pending->awaits.domain];
    struct flw_pending **link = &domain->waiting;
    if (domain->waiting != NULL && domain->waiting_last->awaits.ticket <= pending->awaits.ticket) {
        link = &domain->waiting_last->next;
    }
    while (*link != NULL && (*link)->awaits.ticket <= pending->awaits.ticket) {
        link = &(*link)->next;
    }
    pending->next = *link;
    *link = pending;
    if (pending->next == NULL) {
        domain->waiting_last = pending;
    }
}

bool flw_heap_await_pending(struct flw_heap *heap, struct flw_pending *pending)
{
    bool waits = find_await(heap, pending);
    if (waits) {
        enqueue(heap, pending);
    }
    return waits;
}

void flw_heap_queue_pending(struct flw_heap *heap, struct flw_pending *pending)
{
    (void)find_await(heap, pending);
    enqueue(heap, pending); /* what waits for nothing waits to be looked at */
}

void flw_heap_hold_pending(struct flw_heap *heap, struct flw_pending *pending)
{
    if (pending->sweep_next != 0) {
        sweep(heap, pending);
    }
    heap->pending_bytes += pending->bytes;
    heap->pending_count++;
    flw_heap_queue_pending(heap, pending);
}

bool flw_heap_has_lost_pending(const struct flw_heap *heap)
{
    for (uint32_t i = 0; i < heap->domain_end; i++) {
        const struct flw_pending *pending = heap->domains[i]->waiting;
        for (; pending != NULL; pending = pending->next) {
            if (pending->needs_context_sync) {
                return true;
            }
        }
    }
    return false;
}

void flw_heap_begin_sync_of_pendings(struct flw_heap *heap)
{
    for (uint32_t i = 0; i < heap->domain_end; i++) {
        struct flw_pending *pending = heap->domains[i]->waiting;
        for (; pending != NULL; pending = pending->next) {
            pending->is_in_sync = pending->needs_context_sync;
        }
    }
}

void flw_heap_end_sync_of_pendings(struct flw_heap *heap)
{
    for (uint32_t i = 0; i < heap->domain_end; i++) {
        struct flw_pending *pending = heap->domains[i]->waiting;
        for (; pending != NULL; pending = pending->next) {
            pending->needs_context_sync &= !pending->is_in_sync;
        }
    }
}
