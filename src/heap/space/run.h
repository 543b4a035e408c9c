/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the life of runs: search, cut, join. See state.h for the invariants. Does not: get or
 * release memory. All of it under the heap lock.
 */
#ifndef FLW_HEAP_SPACE_RUN_H
#define FLW_HEAP_SPACE_RUN_H

#include "heap/state/state.h"

/* A free mapped run, the domain's or unowned, cut to unit_count, LIVE; from dedicated_units on all
 * of one handle, of little more. NULL: none, or host memory. */
struct flw_span *flw_heap_take_run(struct flw_heap *heap, struct flw_domain *domain,
                                   uint32_t unit_count, uint32_t align_units);
/* The same, however many: out of as many handles as it comes. */
struct flw_span *flw_heap_take_divided(struct flw_heap *heap, struct flw_domain *domain,
                                       uint32_t unit_count, uint32_t align_units);
/* A run of domain.dedicated_runs for so many units; NULL: none. */
struct flw_span *flw_heap_find_dedicated(const struct flw_heap *heap,
                                         const struct flw_run_index *dedicated_runs,
                                         uint32_t unit_count, uint32_t align_units);
/* The same out of this free run, which is large enough. */
struct flw_span *flw_heap_take_from(struct flw_heap *heap, struct flw_span *run,
                                    uint32_t unit_count, uint32_t align_units);
/* A LIVE run becomes free memory of the domain, marked now, and joins its neighbours. */
void flw_heap_put_run(struct flw_heap *heap, struct flw_domain *domain, struct flw_span *run);
/* The same for a run that a cache kept: marked with the sequence number of its own free. */
void flw_heap_put_run_at(struct flw_heap *heap, struct flw_domain *domain, struct flw_span *run);
/* The same for all that it kept: the sets whose bit is set are empty then. */
void flw_heap_put_run_sets(struct flw_heap *heap, struct flw_domain *domain,
                           struct flw_run_set *sets, uint64_t occupied);
/* The same with a given point. */
void flw_heap_put_run_at_point(struct flw_heap *heap, uint32_t owner, uint64_t seq,
                               struct flw_span *run);
/* Cut a run in two at `unit_count` from its begin; the run keeps the front, the rest is returned
 * with the same state, in no index. NULL: host memory, run unchanged. */
struct flw_span *flw_run_split(struct flw_heap *heap, struct flw_span *run, uint32_t unit_count);
/* Join an unindexed run with free neighbours of the same owner and state; returns the run to index.
 */
struct flw_span *flw_run_join(struct flw_heap *heap, struct flw_span *run);
/* Begin a stretch of addresses with one run. Its edge, a header of no units, is left of the first run and right of the
 * last, so that every run has neighbours. */
void flw_run_open_stretch(struct flw_span *edge, struct flw_span *run);
/* True if the run begins the stretch: the left neighbour is the edge. */
static inline bool flw_run_is_leftmost(const struct flw_span *run)
{
    return run->u.run.left->u.run.unit_count == 0;
}
/* It is part of a neighbour now: its own neighbours become each other's. */
static inline void flw_run_merge(struct flw_heap *heap, struct flw_span *run)
{
    run->u.run.left->u.run.right = run->u.run.right;
    run->u.run.right->u.run.left = run->u.run.left;
    flw_page_map_drop_run(&heap->map, run);
}
/* Take a free or unmapped run out of whatever index holds it. */
void flw_run_unindex(struct flw_heap *heap, struct flw_span *run);
void flw_run_index_by_state(struct flw_heap *heap, struct flw_span *run);
static inline uint64_t flw_run_bytes(const struct flw_span *run)
{
    return (uint64_t)run->u.run.unit_count * FLW_UNIT_BYTES;
}
/* What a block of the run or slab holds, which may be more than was asked for. */
static inline uint64_t flw_span_usable_bytes(const struct flw_span *span)
{
    return span->kind == FLW_SPAN_SLAB ? flw_class_bytes(span->u.slab.class_index)
                                       : flw_run_bytes(span);
}
static inline uint64_t flw_run_address(const struct flw_heap *heap, const struct flw_span *run)
{
    return heap->map.base + (uint64_t)run->u.run.begin_unit * FLW_UNIT_BYTES;
}
/* Set a LIVE run's slot to its address, free. (A dedicated run is known to the map for good.) */
void flw_run_arm_slot(struct flw_heap *heap, struct flw_span *run);
/* Context order: a complete dedicated run of unit_count to most_units, LIVE. NULL: none. */
struct flw_span *flw_heap_take_dedicated(struct flw_heap *heap, uint32_t unit_count,
                                         uint32_t most_units);
/* A LIVE dedicated run becomes free memory of the domain in context order, marked now. */
void flw_heap_put_dedicated(struct flw_heap *heap, struct flw_domain *domain, struct flw_span *run);
/* What is allocated for a request of so many: an eighth more at most. */
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
