/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: slabs and batches: slots on their way between thread caches and runs. All of it under the heap lock.
 */
#ifndef FLW_HEAP_SPACE_SLAB_H
#define FLW_HEAP_SPACE_SLAB_H

#include "heap/state/state.h"

/* Up to want free slots of a class for the domain: its own batches, unowned ones, uncarved ones.
 * Their words are FREE. 0: none without a new slab. */
uint32_t flw_heap_take_slots(struct flw_heap *heap, struct flw_domain *domain, unsigned class_index,
                             uint32_t want, struct flw_slot **out);
/* Put back slots, marked now. */
void flw_heap_put_slots(struct flw_heap *heap, struct flw_domain *domain, unsigned class_index,
                        struct flw_slot *const *slots, uint32_t count);
/* Make a slab of the class from a LIVE run; one that is no slab's size, or when the class has a
 * slab to carve already, goes to the domain as free memory. False: host memory; the run is free
 * again. */
bool flw_heap_adopt_slab(struct flw_heap *heap, struct flw_domain *domain, unsigned class_index,
                         struct flw_span *run);
/* A released capture's slab is an ordinary one, whose slots caches may hold. The store is atomic:
 * frees of its other slots read it. */
void flw_heap_open_slab(const struct flw_heap *heap, struct flw_span *slab);
/* A batch that another domain owned, now ordered before the domain's next work. */
void flw_heap_adopt_batch(struct flw_heap *heap, struct flw_domain *domain,
                          struct flw_batch *batch);
/* The next slab of a class is its smallest times 2^step: step 0 at first, to FLW_SLAB_MAX_UNITS with
 * demand. Where that would be few slots and the class holds 256 times as much, to
 * FLW_SLAB_MANY_SLOTS, so that the headers are little beside the slots; at most `most_units` then.
 */
unsigned flw_heap_slab_step(const struct flw_domain *domain, unsigned class_index,
                            uint64_t most_units);
/* A free mapped run for the next slab of a class, LIVE: of the largest step that there is one for.
 * NULL: none. */
struct flw_span *flw_heap_take_slab_run(struct flw_heap *heap, struct flw_domain *domain,
                                        unsigned class_index);
/* The same for a small pool, of exactly so many units and where slabs are already. A slab stays for as long
 * as one block of it is allocated, and with it every page that it touches; there a page is much. */
struct flw_span *flw_heap_take_crowded(struct flw_heap *heap, struct flw_domain *domain,
                                       uint32_t unit_count);
/* Make the uncarved slots of its current slab a batch, so that they can change hands. */
void flw_heap_carve_rest(struct flw_heap *heap, struct flw_domain *domain, unsigned class_index);
/* Turn slabs with no slot out into free runs. True if any was. */
bool flw_heap_reclaim_slabs(struct flw_heap *heap);
/* Make all batches of `from` the property of `to` with to's present sequence number. */
void flw_heap_move_slots(struct flw_heap *heap, struct flw_domain *from, struct flw_domain *to);
/* A block that no cache takes is free memory of the domain, marked now. */
void flw_heap_put_block(struct flw_heap *heap, struct flw_domain *domain, struct flw_slot *slot);

#endif
