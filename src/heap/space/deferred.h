/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: memory that more than its own stream orders: blocks with announced uses, runs of slabs that several
 * streams used. A deferred free waits in the queue of one domain at a time, for one sequence number
 * of it, so that what is not complete costs nothing to leave alone. Does not: say who gets it
 * (domain.h). All of it under the heap lock.
 */
#ifndef FLW_HEAP_SPACE_DEFERRED_H
#define FLW_HEAP_SPACE_DEFERRED_H

#include "heap/state/state.h"

/* A LIVE run is what is deferred. */
void flw_heap_defer_run(struct flw_heap *heap, struct flw_deferred *deferred, struct flw_span *run);
void flw_heap_hold_deferred(struct flw_heap *heap, struct flw_deferred *deferred);
/* The same for one that is counted already. */
void flw_heap_queue_deferred(struct flw_heap *heap, struct flw_deferred *deferred);
/* Out of its queue, for who takes it as it is. Cost: those before it there. */
void flw_heap_withdraw_deferred(struct flw_heap *heap, struct flw_deferred *deferred);
/* Is there one that only a synchronisation of the context completes? */
bool flw_heap_has_lost_deferred(const struct flw_heap *heap);
/* Those that are there when a synchronisation begins are done when it ends. */
void flw_heap_begin_sync_of_deferred(struct flw_heap *heap);
void flw_heap_end_sync_of_deferred(struct flw_heap *heap);
/* What it waits for next, in whose queue it is now. False: nothing, and it is in none. */
bool flw_heap_await_deferred(struct flw_heap *heap, struct flw_deferred *deferred);

#endif
