/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the life of runs: search, cut, join. state.h has the invariants. Does not: acquire or
 * release memory. Heap lock held. */
#ifndef FLW_HEAP_SPACE_RUN_H
#define FLW_HEAP_SPACE_RUN_H

#include "heap/state/state.h"

/* Take a free mapped run, the domain's or unowned, cut to unit_count, LIVE; from dedicated_units
 * on one that fills a handle of little more. NULL: none, or no host memory. */
struct flw_span *flw_heap_take_run(struct flw_heap *heap, struct flw_domain *domain,
                                   uint32_t unit_count, uint32_t align_units);
/* The same, over any number of handles. */
struct flw_span *flw_heap_take_divided(struct flw_heap *heap, struct flw_domain *domain,
                                       uint32_t unit_count, uint32_t align_units);
/* Return a run of domain.dedicated_runs for so many units; NULL: none. */
struct flw_span *flw_heap_find_dedicated(const struct flw_heap *heap,
                                         const struct flw_run_index *dedicated_runs,
                                         uint32_t unit_count, uint32_t align_units);
/* Take the same out of this free run, which is large enough. */
struct flw_span *flw_heap_take_from(struct flw_heap *heap, struct flw_span *run,
                                    uint32_t unit_count, uint32_t align_units);
/* Make a LIVE run free memory of the domain, marked now, and join the neighbours. */
void flw_heap_put_run(struct flw_heap *heap, struct flw_domain *domain, struct flw_span *run);
/* The same for a run from a cache: marked with the sequence number of its own free. */
void flw_heap_put_run_at(struct flw_heap *heap, struct flw_domain *domain, struct flw_span *run);
/* The same for all runs of a cache; afterwards the sets of the given bits are empty. */
void flw_heap_put_run_sets(struct flw_heap *heap, struct flw_domain *domain,
                           struct flw_run_set *sets, uint64_t occupied);
/* The same with a given point. */
void flw_heap_put_run_at_point(struct flw_heap *heap, uint32_t owner, uint64_t seq,
                               struct flw_span *run);
/* Cut a run in two at `unit_count` from the begin; the run keeps the front, the rest is returned
 * with the same state, in no index. NULL: no host memory, run unchanged. */
struct flw_span *flw_run_split(struct flw_heap *heap, struct flw_span *run, uint32_t unit_count);
/* Join an unindexed run with free neighbours of the same owner and state; return the
 * run to index. */
struct flw_span *flw_run_join(struct flw_heap *heap, struct flw_span *run);
/* Begin a range of addresses with one run. The edge, a header of no units, is left of the first
 * run and right of the last, so that every run has neighbours. */
void flw_run_open_stretch(struct flw_span *edge, struct flw_span *run);
/* True if the run begins the range: the left neighbour is the edge. */
static inline bool flw_run_is_leftmost(const struct flw_span *run)
{
    return run->u.run.left->u.run.unit_count == 0;
}
/* Unlink a run that became part of a neighbour. */
static inline void flw_run_merge(struct flw_heap *heap, struct flw_span *run)
{
    run->u.run.left->u.run.right = run->u.run.right;
    run->u.run.right->u.run.left = run->u.run.left;
    flw_page_map_drop_run(&heap->map, run);
}
/* Remove a free or unmapped run from the index. */
void flw_run_unindex(struct flw_heap *heap, struct flw_span *run);
void flw_run_index_by_state(struct flw_heap *heap, struct flw_span *run);
static inline uint64_t flw_run_bytes(const struct flw_span *run)
{
    return (uint64_t)run->u.run.unit_count * FLW_UNIT_BYTES;
}
/* Return the bytes of a block of the run or slab, which may be more than requested. */
static inline uint64_t flw_span_usable_bytes(const struct flw_span *span)
{
    return span->kind == FLW_SPAN_SLAB ? flw_class_bytes(span->u.slab.class_index)
                                       : flw_run_bytes(span);
}
static inline uint64_t flw_run_address(const struct flw_heap *heap, const struct flw_span *run)
{
    return heap->map.base + (uint64_t)run->u.run.begin_unit * FLW_UNIT_BYTES;
}
/* Set a LIVE run's slot to the address, free. (The map keeps a dedicated run permanently.) */
void flw_run_arm_slot(struct flw_heap *heap, struct flw_span *run);
/* Context order: take a complete dedicated run of unit_count to most_units, LIVE. NULL: none. */
struct flw_span *flw_heap_take_dedicated(struct flw_heap *heap, uint32_t unit_count,
                                         uint32_t most_units);
/* Make a LIVE dedicated run free memory of the domain in context order, marked now. */
void flw_heap_put_dedicated(struct flw_heap *heap, struct flw_domain *domain, struct flw_span *run);
/* Return the largest run for a request of so many units: an eighth more. */
static inline uint32_t flw_dedicated_most_units(uint32_t unit_count)
{
    return unit_count + unit_count / 8;
}
static inline bool flw_run_is_dedicated(const struct flw_span *run)
{
    return run->u.run.is_dedicated;
}
static inline uint64_t flw_run_begin(const struct flw_span *run)
{
    return run->u.run.begin_unit;
}
static inline uint64_t flw_run_end(const struct flw_span *run)
{
    return (uint64_t)run->u.run.begin_unit + run->u.run.unit_count;
}

#endif
