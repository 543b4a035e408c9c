/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: slabs and batches: slots between thread caches and runs. Heap lock held. */
#ifndef FLW_HEAP_SPACE_SLAB_H
#define FLW_HEAP_SPACE_SLAB_H

#include "heap/state/state.h"

/* Take up to `want` free slots of a class for the domain: its own batches, unowned ones, uncarved
 * ones. Their words are FREE. 0: none without a new slab. */
uint32_t flw_heap_take_slots(struct flw_heap *heap, struct flw_domain *domain, unsigned class_index,
                             uint32_t want, struct flw_slot **out);
/* Put back slots, marked now. */
void flw_heap_put_slots(struct flw_heap *heap, struct flw_domain *domain, unsigned class_index,
                        struct flw_slot *const *slots, uint32_t count);
/* Make a LIVE run a slab of the class. If the run has no slab's size, or the class already has a
 * slab to carve, the run becomes free memory of the domain. False: no host memory; the run is free
 * again. */
bool flw_heap_adopt_slab(struct flw_heap *heap, struct flw_domain *domain, unsigned class_index,
                         struct flw_span *run);
/* Make a released capture's slab an ordinary one with slots that caches may hold. The store is
 * atomic: frees of the other slots read it. */
void flw_heap_open_slab(const struct flw_heap *heap, struct flw_span *slab);
/* Take over another domain's batch, now ordered before the domain's next work. */
void flw_heap_adopt_batch(struct flw_heap *heap, struct flw_domain *domain,
                          struct flw_batch *batch);
/* Return the step of the next slab of a class, with a size of the smallest times 2^step: 0 at
 * first, up to FLW_SLAB_MAX_UNITS with demand. If that would be few slots and the class has 256
 * times as much memory, up to FLW_SLAB_MANY_SLOTS, so that headers are small compared with slots;
 * then at most `most_units`. */
unsigned flw_heap_slab_step(const struct flw_heap *heap, const struct flw_domain *domain,
                            unsigned class_index, uint64_t most_units);
/* Take a free mapped run for the next slab of a class, LIVE, of the largest step available. NULL:
 * none. */
struct flw_span *flw_heap_take_slab_run(struct flw_heap *heap, struct flw_domain *domain,
                                        unsigned class_index);
/* The same for a small pool: exactly so many units, beside other slabs. A slab stays while one
 * block inside is allocated, and so does every page of the slab: a large part of a small pool. */
struct flw_span *flw_heap_take_crowded(struct flw_heap *heap, struct flw_domain *domain,
                                       uint32_t unit_count);
/* Turn the uncarved slots of the current slab into a batch, which can change owners. */
void flw_heap_carve_rest(struct flw_heap *heap, struct flw_domain *domain, unsigned class_index);
/* Turn slabs without allocated slots into free runs. True if there were any. */
bool flw_heap_reclaim_slabs(struct flw_heap *heap);
/* Move all batches of `from` to `to`, with the present sequence number of `to`. */
void flw_heap_move_slots(struct flw_heap *heap, struct flw_domain *from, struct flw_domain *to);
/* Free a block that no cache takes: memory of the domain, marked now. */
void flw_heap_put_block(struct flw_heap *heap, struct flw_domain *domain, struct flw_slot *slot);

#endif
