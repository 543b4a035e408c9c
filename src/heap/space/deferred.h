/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: freed memory that several streams order: blocks with announced uses, runs of slabs that
 * several streams used. A deferred free waits in the queue of one domain at a time, for one
 * sequence number of the domain, so incomplete frees cost nothing. Does not: choose the next owner
 * (domain.h). Heap lock held. */
#ifndef FLW_HEAP_SPACE_DEFERRED_H
#define FLW_HEAP_SPACE_DEFERRED_H

#include "heap/state/state.h"

/* Defer a LIVE run. */
void flw_heap_defer_run(struct flw_heap *heap, struct flw_deferred *deferred, struct flw_span *run);
void flw_heap_hold_deferred(struct flw_heap *heap, struct flw_deferred *deferred);
/* Queue a deferred free that is counted already. */
void flw_heap_queue_deferred(struct flw_heap *heap, struct flw_deferred *deferred);
/* Remove a deferred free from the queue, for a caller that takes the memory. Cost: the entries
 * before it. */
void flw_heap_withdraw_deferred(struct flw_heap *heap, struct flw_deferred *deferred);
/* True if only a synchronisation of the context completes one of the deferred frees. */
bool flw_heap_has_lost_deferred(const struct flw_heap *heap);
/* Mark the present deferred frees, which complete at the end of the synchronisation that begins. */
void flw_heap_begin_sync_of_deferred(struct flw_heap *heap);
void flw_heap_end_sync_of_deferred(struct flw_heap *heap);
/* Move a deferred free to the queue of the next point to wait for. False: nothing to wait for; in
 * no queue. */
bool flw_heap_await_deferred(struct flw_heap *heap, struct flw_deferred *deferred);

#endif
