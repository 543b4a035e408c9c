/* SPDX-License-Identifier: Apache-2.0 */
#include "heap/space/run.h"
#include "base/mutant.h"
#include "heap/state/run_index_inl.h"

void flw_run_open_stretch(struct flw_span *edge, struct flw_span *run)
{
    edge->u.run.state = FLW_RUN_BUSY;
    edge->u.run.left = edge->u.run.right = run;
    run->u.run.left = run->u.run.right = edge;
}

/* Link `run`, which has no neighbours, before `right`, at right's begin. */
static inline void link_before(struct flw_span *run, struct flw_span *right)
{
    struct flw_span *left = right->u.run.left;
    run->u.run.left = left;
    run->u.run.right = right;
    left->u.run.right = run;
    right->u.run.left = run;
}

void flw_run_arm_slot(struct flw_heap *heap, struct flw_span *run)
{
    struct flw_slot *slot = flw_span_slot(&heap->map, run, 0);
    run->base = (uint64_t)run->u.run.begin_unit << FLW_UNIT_LOG2;
    flw_slot_set_allocation(slot, 0);
    flw_slot_set_word(slot, heap->map.base + run->base);
}

/* Return the index of a FREE run, or of a DEDICATED one. */
static struct flw_run_index *index_of(const struct flw_heap *heap, const struct flw_span *run)
{
    return &heap->domains[run->u.run.owner]->runs;
}

static struct flw_run_index *dedicated_of(const struct flw_heap *heap, const struct flw_span *run)
{
    return &heap->domains[run->u.run.owner]->dedicated_runs;
}

void flw_run_unindex(struct flw_heap *heap, struct flw_span *run)
{
    if (run->u.run.state == FLW_RUN_FREE) {
        flw_run_index_remove(index_of(heap, run), run);
    } else if (run->u.run.state == FLW_RUN_DEDICATED) {
        flw_run_index_remove(dedicated_of(heap, run), run);
    } else if (run->u.run.state == FLW_RUN_UNMAPPED) {
        flw_run_index_remove(&heap->ranges.unmapped, run);
    } else {
        FLW_ASSERT(run->u.run.state == FLW_RUN_RESERVED); /* in no index */
    }
}

void flw_run_index_by_state(struct flw_heap *heap, struct flw_span *run)
{
    if (run->u.run.state == FLW_RUN_FREE) {
        flw_run_index_insert(index_of(heap, run), run);
    } else {
        FLW_ASSERT(run->u.run.state == FLW_RUN_UNMAPPED);
        flw_run_index_insert(&heap->ranges.unmapped, run);
    }
}

struct flw_span *flw_run_split(struct flw_heap *heap, struct flw_span *run, uint32_t unit_count)
{
    struct flw_span *rest = flw_page_map_copy_run(&heap->map, run);
    if (rest == NULL) {
        return NULL;
    }
    rest->u.run.begin_unit += unit_count;
    rest->u.run.unit_count -= unit_count;
    run->u.run.unit_count = unit_count;
    flw_slot_set_word(flw_span_slot(&heap->map, rest, 0), 0);
    link_before(rest, run->u.run.right);
    return rest;
}

static inline bool may_join(const struct flw_heap *heap, const struct flw_span *run,
                            const struct flw_span *neighbour)
{
    if (neighbour->u.run.state != run->u.run.state) {
        return false;
    }
    if (run->u.run.state == FLW_RUN_UNMAPPED || neighbour->u.run.owner == run->u.run.owner ||
        FLW_MUTANT(JOIN_ACROSS_OWNERS)) {
        return true;
    }
    /* A single stream may use unowned memory like its own; keeping them apart only
     * fragments both. */
    return heap->absorbs_unowned && neighbour->u.run.owner == FLW_UNOWNED &&
           flw_domain_is_stream(heap->domains[run->u.run.owner]);
}

/* Join the right neighbour. True if the neighbour had another owner, so that the run may now be
 * beside another run of its owner. */
static inline bool join_right(struct flw_heap *heap, struct flw_span *run)
{
    struct flw_span *right = run->u.run.right;
    bool is_absorbed = right->u.run.owner != run->u.run.owner;
    flw_run_unindex(heap, right);
    run->u.run.unit_count += right->u.run.unit_count;
    run->u.run.seq = flw_max(run->u.run.seq, right->u.run.seq);
    flw_run_merge(heap, right);
    return is_absorbed;
}

/* The same; *run is the left one then. */
static inline bool join_left(struct flw_heap *heap, struct flw_span **run)
{
    struct flw_span *right = *run, *left = right->u.run.left;
    bool is_absorbed = left->u.run.owner != right->u.run.owner;
    flw_run_unindex(heap, left);
    left->u.run.unit_count += right->u.run.unit_count;
    left->u.run.seq = FLW_MUTANT(JOIN_DROPS_POINT) ? flw_min(right->u.run.seq, left->u.run.seq)
                                                   : flw_max(right->u.run.seq, left->u.run.seq);
    left->u.run.owner = right->u.run.owner;
    flw_run_merge(heap, right);
    *run = left;
    return is_absorbed;
}

struct flw_span *flw_run_join(struct flw_heap *heap, struct flw_span *run)
{
    FLW_ASSERT(run->u.run.state == FLW_RUN_FREE || run->u.run.state == FLW_RUN_UNMAPPED);
    while (may_join(heap, run, run->u.run.right) && join_right(heap, run)) {
    }
    while (may_join(heap, run, run->u.run.left) && join_left(heap, &run)) {
    }
    return run;
}

static inline bool is_alike(const struct flw_run_part *run, const struct flw_run_part *other)
{
    return other->state == FLW_RUN_FREE && other->owner == run->owner && other->seq == run->seq;
}

/* Put a free run into its owner's index, joined with the neighbours. A neighbour with the same
 * number keeps the place by age and only changes the size; all other cases use the general join. */
static FLW_INLINE void index_joined(struct flw_heap *heap, struct flw_span *run)
{
    struct flw_run_part *part = &run->u.run;
    struct flw_span *left = part->left, *right = part->right;
    uint32_t count = part->unit_count;
    bool joins_left = is_alike(part, &left->u.run), joins_right = is_alike(part, &right->u.run);
    if ((!joins_left && may_join(heap, run, left)) ||
        (!joins_right && may_join(heap, run, right))) {
        flw_run_index_by_state(heap, flw_run_join(heap, run));
        return;
    }
    struct flw_run_index *index = index_of(heap, run);
    if (joins_left) {
        if (joins_right) {
            flw_run_index_remove(index, right);
            count += right->u.run.unit_count;
            flw_run_merge(heap, right);
        }
        flw_run_index_resize(index, left, left->u.run.begin_unit, left->u.run.unit_count + count);
        flw_run_merge(heap, run);
    } else if (joins_right) {
        flw_run_index_resize(index, right, part->begin_unit, right->u.run.unit_count + count);
        flw_run_merge(heap, run);
    } else {
        flw_run_index_insert(index, run);
    }
}

/* Index a run that is never cut; in context order it is alone in the range. */
static FLW_NOINLINE void index_dedicated(struct flw_heap *heap, struct flw_span *run)
{
    bool is_of_handle = heap->dedicated == NULL;
    run->u.run.state = is_of_handle ? FLW_RUN_DEDICATED : FLW_RUN_FREE;
    flw_run_index_insert(is_of_handle ? dedicated_of(heap, run) : index_of(heap, run), run);
}

static FLW_INLINE void put_run_at_point(struct flw_heap *heap, struct flw_domain *domain,
                                        uint64_t seq, struct flw_span *run)
{
    struct flw_run_part *part = &run->u.run;
    FLW_ASSERT(part->state != FLW_RUN_FREE && part->state != FLW_RUN_DEDICATED);
    uint32_t owner = domain->index;
    if (seq <= domain->completed && !flw_domain_keeps(heap, domain)) { /* unowned already */
        owner = flw_run_is_dedicated(run) && heap->dedicated != NULL ? heap->dedicated->index
                                                                     : FLW_UNOWNED;
        seq = 0;
    } else if (seq == domain->seq) { /* an open point: the next fence is needed */
        atomic_fetch_add_explicit(&domain->unfenced_bytes, flw_run_bytes(run),
                                  memory_order_relaxed);
        flw_domain_owe(heap, domain);
    }
    flw_slot_set_word(flw_span_slot(&heap->map, run, 0), 0);
    part->state = FLW_RUN_FREE;
    part->owner = owner;
    part->seq = seq;
    part->slab = NULL;
    if (FLW_UNLIKELY(part->is_dedicated)) {
        index_dedicated(heap, run);
    } else {
        index_joined(heap, run);
    }
}

void flw_heap_put_run_at_point(struct flw_heap *heap, uint32_t owner, uint64_t seq,
                               struct flw_span *run)
{
    put_run_at_point(heap, heap->domains[owner], seq, run);
}

void flw_heap_put_run(struct flw_heap *heap, struct flw_domain *domain, struct flw_span *run)
{
    heap->live_run_bytes -= flw_run_bytes(run);
    put_run_at_point(heap, domain, flw_domain_free_seq(domain) - FLW_MUTANT(RUN_MARKED_EARLY), run);
}

static FLW_INLINE void put_run_at(struct flw_heap *heap, struct flw_domain *domain,
                                  struct flw_span *run)
{
    heap->live_run_bytes -= flw_run_bytes(run);
    put_run_at_point(heap, domain, run->u.run.seq, run);
}

void flw_heap_put_run_at(struct flw_heap *heap, struct flw_domain *domain, struct flw_span *run)
{
    put_run_at(heap, domain, run);
}

void flw_heap_put_run_sets(struct flw_heap *heap, struct flw_domain *domain,
                           struct flw_run_set *sets, uint64_t occupied)
{
    for (; occupied != 0; occupied &= occupied - 1) {
        struct flw_run_set *set = &sets[flw_lowest_bit(occupied)];
        for (uint32_t count = flw_run_set_count(set); count > 0; count--) {
            put_run_at(heap, domain, set->runs[count - 1]);
        }
        set->key = 0;
    }
}

/* Return the tighter of the domain's own run, if there is one, and the unowned run. */
static FLW_NOINLINE struct flw_span *find_unowned(const struct flw_heap *heap, struct flw_span *own,
                                                  uint32_t unit_count, uint32_t align_units)
{
    const struct flw_run_index *unowned = &heap->domains[FLW_UNOWNED]->runs;
    if (!flw_run_index_reaches(unowned, flw_run_bin(unit_count))) {
        return own;
    }
    struct flw_span *other =
        align_units == 1 ? flw_run_index_fit(unowned, unit_count)
                         : flw_run_index_find(unowned, unit_count, align_units, heap->base_unit);
    bool is_own =
        own != NULL && (other == NULL || other->u.run.unit_count >= own->u.run.unit_count);
    return is_own ? own : other;
}

/* Return an exact fit of the domain's own, otherwise the tighter of own and unowned. */
static FLW_INLINE struct flw_span *find_run(const struct flw_heap *heap,
                                            const struct flw_domain *domain, uint32_t unit_count,
                                            uint32_t align_units)
{
    struct flw_span *own = NULL;
    if (domain->runs.first_bits != 0 && domain->ops->reuses_at_once) {
        own = FLW_LIKELY(align_units == 1)
                  ? flw_run_index_fit(&domain->runs, unit_count)
                  : flw_run_index_find(&domain->runs, unit_count, align_units, heap->base_unit);
        if (own != NULL && own->u.run.unit_count == unit_count) {
            return own;
        }
    }
    bool has_unowned = heap->domains[FLW_UNOWNED]->runs.first_bits != 0;
    return has_unowned ? find_unowned(heap, own, unit_count, align_units) : own;
}

/* Leave the first `skip` units of an indexed run; return the rest, indexed at the same age. NULL:
 * no host memory. */
static FLW_NOINLINE struct flw_span *skip_units(struct flw_heap *heap, struct flw_span *run,
                                                uint32_t skip)
{
    struct flw_run_index *index = index_of(heap, run);
    struct flw_span *rest = flw_page_map_copy_run(&heap->map, run);
    if (rest == NULL) {
        return NULL;
    }
    rest->u.run.begin_unit += skip;
    rest->u.run.unit_count -= skip;
    link_before(rest, run->u.run.right);
    flw_run_index_resize(index, run, run->u.run.begin_unit, skip);
    flw_run_index_insert(index, rest);
    return rest;
}

/* Cut the first units out of an indexed run, LIVE; the rest stays indexed, at the age. */
static FLW_INLINE struct flw_span *cut_run(struct flw_heap *heap, struct flw_span *run,
                                           uint32_t unit_count)
{
    struct flw_run_index *index = index_of(heap, run);
    struct flw_run_part *part = &run->u.run;
    if (part->unit_count == unit_count) {
        flw_run_index_remove(index, run);
        part->owner = FLW_UNOWNED;
        part->state = FLW_RUN_LIVE;
        return run;
    }
    struct flw_span *front = flw_page_map_unused_run(&heap->map);
    if (front == NULL) {
        return NULL;
    }
    uint32_t begin = part->begin_unit;
    front->u.run.begin_unit = begin;
    front->u.run.unit_count = unit_count;
    front->u.run.seq = part->seq;
    front->u.run.owner = FLW_UNOWNED;
    front->u.run.slab = NULL;
    front->u.run.state = FLW_RUN_LIVE;
    front->u.run.is_dedicated = false;
    link_before(front, run);
    flw_run_index_resize(index, run, begin + unit_count, part->unit_count - unit_count);
    return front;
}

static FLW_NOINLINE struct flw_span *cut_behind(struct flw_heap *heap, struct flw_span *run,
                                                uint32_t skip, uint32_t unit_count)
{
    struct flw_span *rest = skip > 0 ? skip_units(heap, run, skip) : run;
    struct flw_span *cut = rest != NULL ? cut_run(heap, rest, unit_count) : NULL;
    if (cut == NULL && rest != NULL && rest != run) { /* no host memory: one run again */
        flw_run_index_remove(index_of(heap, rest), rest);
        flw_run_index_resize(index_of(heap, run), run, run->u.run.begin_unit,
                             skip + rest->u.run.unit_count);
        flw_run_merge(heap, rest);
    }
    return cut;
}

static FLW_NOINLINE struct flw_span *cut_aligned(struct flw_heap *heap, struct flw_span *run,
                                                 uint32_t unit_count, uint32_t align_units)
{
    uint32_t skip =
        FLW_MUTANT(ALIGNMENT_IGNORED) ? 0 : flw_run_align_gap(run, align_units, heap->base_unit);
    return cut_behind(heap, run, skip, unit_count);
}

/* Allocate a run that was cut. */
static FLW_INLINE struct flw_span *arm(struct flw_heap *heap, struct flw_span *run)
{
    if (run == NULL) {
        return NULL;
    }
    heap->live_run_bytes += flw_run_bytes(run);
    flw_run_arm_slot(heap, run);
    flw_page_map_set_run(&heap->map, run);
    return run;
}

static FLW_INLINE struct flw_span *take_from(struct flw_heap *heap, struct flw_span *run,
                                             uint32_t unit_count, uint32_t align_units)
{
    return arm(heap, FLW_UNLIKELY(align_units > 1) ? cut_aligned(heap, run, unit_count, align_units)
                                                   : cut_run(heap, run, unit_count));
}

/* ---- runs that fill a handle */

/* A handle that serves such a run serves no other: a small block in the rest would keep the whole
 * handle in place, and moves could not use it. So the handle is as large as the run, with little
 * left over in later allocations. For anything else, the caller releases the handle and creates
 * smaller ones. A segment may be an eighth larger: replacing a segment waits for the device. */
static uint32_t most_dedicated_units(const struct flw_heap *heap, uint32_t unit_count)
{
    return heap->source.ops->remaps ? unit_count + unit_count / 64
                                    : flw_dedicated_most_units(unit_count);
}

struct flw_span *flw_heap_find_dedicated(const struct flw_heap *heap,
                                         const struct flw_run_index *dedicated_runs,
                                         uint32_t unit_count, uint32_t align_units)
{
    uint32_t units = heap->source.ops->remaps ? (uint32_t)flw_align_up(unit_count, heap->page_units)
                                              : unit_count;
    struct flw_span *run =
        dedicated_runs->run_count > 0
            ? flw_run_index_find(dedicated_runs, units, align_units, heap->base_unit)
            : NULL;
    bool fits = run != NULL && run->u.run.unit_count <= most_dedicated_units(heap, units) &&
                flw_run_align_gap(run, align_units, heap->base_unit) == 0;
    return fits ? run : NULL;
}

static FLW_NOINLINE struct flw_span *take_dedicated(struct flw_heap *heap,
                                                    struct flw_domain *domain, uint32_t unit_count,
                                                    uint32_t align_units)
{
    struct flw_span *own =
        domain->ops->reuses_at_once
            ? flw_heap_find_dedicated(heap, &domain->dedicated_runs, unit_count, align_units)
            : NULL;
    struct flw_span *run = flw_heap_find_dedicated(
        heap, &heap->domains[FLW_UNOWNED]->dedicated_runs, unit_count, align_units);
    if (own != NULL && (run == NULL || own->u.run.unit_count <= run->u.run.unit_count)) {
        run = own;
    }
    if (run == NULL) {
        return NULL;
    }
    flw_run_unindex(heap, run);
    run->u.run.owner = FLW_UNOWNED;
    run->u.run.state = FLW_RUN_LIVE;
    return arm(heap, run);
}

struct flw_span *flw_heap_take_divided(struct flw_heap *heap, struct flw_domain *domain,
                                       uint32_t unit_count, uint32_t align_units)
{
    struct flw_span *run = find_run(heap, domain, unit_count, align_units);
    return run != NULL ? take_from(heap, run, unit_count, align_units) : NULL;
}

struct flw_span *flw_heap_take_run(struct flw_heap *heap, struct flw_domain *domain,
                                   uint32_t unit_count, uint32_t align_units)
{
    if (FLW_UNLIKELY(unit_count >= heap->dedicated_units)) {
        return take_dedicated(heap, domain, unit_count, align_units);
    }
    struct flw_span *run = find_run(heap, domain, unit_count, align_units);
    if (FLW_UNLIKELY(run == NULL && unit_count >= heap->first_dedicated_units)) {
        return take_dedicated(heap, domain, unit_count,
                              align_units); /* created before dedicated_units rose */
    }
    return run != NULL ? take_from(heap, run, unit_count, align_units) : NULL;
}

struct flw_span *flw_heap_take_from(struct flw_heap *heap, struct flw_span *run,
                                    uint32_t unit_count, uint32_t align_units)
{
    return take_from(heap, run, unit_count, align_units);
}

struct flw_span *flw_heap_take_dedicated(struct flw_heap *heap, uint32_t unit_count,
                                         uint32_t most_units)
{
    struct flw_run_index *index = &heap->dedicated->runs;
    struct flw_span *run = flw_run_index_fit(index, unit_count);
    if (run == NULL || run->u.run.unit_count > most_units) {
        return NULL;
    }
    flw_run_index_remove(index, run);
    run->u.run.owner = FLW_UNOWNED;
    run->u.run.state = FLW_RUN_LIVE;
    heap->live_run_bytes += flw_run_bytes(run);
    flw_run_arm_slot(heap, run);
    return run;
}

/* As flw_heap_put_run, for a run without neighbours. */
void flw_heap_put_dedicated(struct flw_heap *heap, struct flw_domain *domain, struct flw_span *run)
{
    struct flw_run_part *part = &run->u.run;
    FLW_ASSERT(flw_run_is_dedicated(run) && part->state != FLW_RUN_FREE);
    heap->live_run_bytes -= flw_run_bytes(run);
    flw_slot_set_word(flw_span_slot(&heap->map, run, 0), 0);
    part->state = FLW_RUN_FREE;
    part->owner = domain->index;
    part->seq = flw_domain_free_seq(domain) - FLW_MUTANT(RUN_MARKED_EARLY);
    part->slab = NULL;
    flw_run_index_insert(&domain->runs, run);
    flw_domain_want_fence(heap, domain, flw_run_bytes(run));
}
