/* SPDX-License-Identifier: Apache-2.0 */
#include "heap/physical/place.h"

#include "heap/order/epoch.h"
#include "heap/space/run.h"

static struct flw_span *usable(const struct flw_domain *domain, struct flw_span *run)
{
    bool is_usable = run->u.run.state == FLW_RUN_FREE &&
                     (run->u.run.owner == FLW_UNOWNED ||
                      (run->u.run.owner == domain->index && domain->ops->reuses_at_once));
    return is_usable ? run : NULL;
}

static uint64_t align_unit(const struct flw_heap *heap, uint64_t unit, uint32_t align_units)
{
    return flw_align_up(heap->base_unit + unit, align_units) - heap->base_unit;
}

/* Place the request at `begin` over left, hole and right; false if it does not fit there. */
static bool fit_at(const struct flw_heap *heap, struct flw_placement *place, uint64_t begin,
                   const struct flw_grow_request *request)
{
    uint64_t hole_begin = flw_run_begin(place->hole), hole_end = flw_run_end(place->hole);
    uint64_t end = begin + request->unit_count;
    uint64_t last = place->right != NULL ? flw_run_end(place->right) : hole_end;
    if (end > last || end <= hole_begin || begin >= hole_end) {
        return false;
    }
    place->begin = begin;
    place->end = end;
    place->map_begin = flw_max(flw_align_down(begin, heap->page_units), hole_begin);
    place->map_end = flw_min(flw_align_up(end, heap->page_units), hole_end);
    if (begin >= hole_begin) {
        place->left = NULL;
    }
    if (end <= hole_end) {
        place->right = NULL;
    }
    return true;
}

static bool place_around(const struct flw_heap *heap, const struct flw_grow_request *request,
                         struct flw_span *hole, struct flw_placement *out)
{
    struct flw_span *left = usable(request->domain, hole->u.run.left);
    struct flw_span *right = usable(request->domain, hole->u.run.right);
    struct flw_placement best = {0};
    uint64_t starts[3];
    uint32_t count = 0;
    if (request->is_single_handle) {
        left = right = NULL;
    }
    if (left != NULL) {
        starts[count++] = align_unit(heap, flw_run_begin(left), request->align_units);
    }
    starts[count++] = align_unit(heap, flw_run_begin(hole), request->align_units);
    if (right != NULL && flw_run_end(right) >= flw_run_begin(hole) + request->unit_count) {
        starts[count++] = (heap->base_unit + flw_run_end(right) - request->unit_count) /
                              request->align_units * request->align_units -
                          heap->base_unit;
    }
    uint64_t first = flw_run_begin(left != NULL ? left : hole); /* the last start may be below */
    for (uint32_t i = 0; i < count; i++) {
        struct flw_placement place = {.left = left, .hole = hole, .right = right};
        if (starts[i] >= first && fit_at(heap, &place, starts[i], request) &&
            (best.hole == NULL ||
             place.map_end - place.map_begin < best.map_end - best.map_begin)) {
            best = place;
        }
    }
    *out = best;
    return best.hole != NULL;
}

/* True if the request can fit there with less to map than the best so far. Most holes are too
 * small, so this is checked before their places are tried. */
static bool is_worth_trying(const struct flw_grow_request *request, const struct flw_span *hole,
                            const struct flw_placement *best)
{
    uint64_t around = 0; /* in the neighbours */
    if (!request->is_single_handle) {
        const struct flw_span *left = usable(request->domain, hole->u.run.left);
        const struct flw_span *right = usable(request->domain, hole->u.run.right);
        around += left != NULL ? left->u.run.unit_count : 0;
        around += right != NULL ? right->u.run.unit_count : 0;
    }
    uint64_t missing = request->unit_count > around ? request->unit_count - around : 0;
    return hole->u.run.unit_count >= missing &&
           (best->hole == NULL || missing < best->map_end - best->map_begin);
}

/* Try places around the hole, if that leaves less to map. */
static void try_hole(const struct flw_heap *heap, const struct flw_grow_request *request,
                     struct flw_span *hole, struct flw_placement *best)
{
    struct flw_placement place;
    if (is_worth_trying(request, hole, best) && place_around(heap, request, hole, &place) &&
        (best->hole == NULL || place.map_end - place.map_begin < best->map_end - best->map_begin)) {
        *best = place;
    }
}

/* Place a growth at the end of the growable block; false: too few addresses are left there. */
static bool place_behind(const struct flw_heap *heap, const struct flw_grow_request *request,
                         struct flw_placement *out)
{
    struct flw_span *tail = request->growable->tail;
    uint64_t begin = tail != NULL ? flw_run_begin(tail) : 0;
    uint64_t end = flw_align_up(begin + request->unit_count, heap->page_units);
    *out = (struct flw_placement){.hole = tail,
                                  .growable = request->growable,
                                  .begin = begin,
                                  .end = end,
                                  .map_begin = begin,
                                  .map_end = end};
    return tail != NULL && end <= flw_run_end(tail);
}

#define HOLE_SCAN 256

bool flw_place_find(const struct flw_heap *heap, const struct flw_grow_request *request,
                    struct flw_placement *out)
{
    const struct flw_run_index *unmapped = &heap->ranges.unmapped;
    struct flw_span *hole = unmapped->newest;
    if (request->growable != NULL) {
        return place_behind(heap, request, out);
    }
    out->hole = NULL;
    for (uint32_t i = 0; hole != NULL && i < HOLE_SCAN; i++, hole = hole->u.run.age_prev) {
        try_hole(heap, request, hole, out);
    }
    for (const struct flw_range *range = heap->ranges.lowest; range != NULL; range = range->next) {
        hole = range->edge->u.run.left; /* the untouched end of the range, however old */
        if (hole->u.run.state == FLW_RUN_UNMAPPED) {
            try_hole(heap, request, hole, out);
        }
    }
    hole = out->hole == NULL ? flw_run_index_find(unmapped, request->unit_count,
                                                  request->align_units, heap->base_unit)
                             : NULL;
    if (hole != NULL) { /* old, and large enough by itself */
        try_hole(heap, request, hole, out);
    }
    return out->hole != NULL;
}

bool flw_place_would_serve(const struct flw_heap *heap, const struct flw_grow_request *request)
{
    uint64_t bytes = (uint64_t)request->unit_count << FLW_UNIT_LOG2;
    uint64_t room = flw_min(request->budget_bytes, heap->limit_bytes);
    uint64_t reserved = atomic_load(&heap->reserved_bytes);
    return bytes <= room - flw_min(room, reserved) + atomic_load(&heap->idle_bytes);
}

/* ---- set aside, restore, commit */

void flw_run_set_busy(struct flw_heap *heap, struct flw_span *run)
{
    flw_run_unindex(heap, run);
    run->u.run.state = FLW_RUN_BUSY;
}

void flw_run_put_back_unmapped(struct flw_heap *heap, struct flw_span *run)
{
    run->u.run.state = FLW_RUN_UNMAPPED;
    run->u.run.seq = 0;
    run->u.run.owner = FLW_UNOWNED;
    run->u.run.is_dedicated = false;
    flw_run_index_by_state(heap, flw_run_join(heap, run));
}

void flw_growable_put_back(struct flw_heap *heap, struct flw_growable *growable,
                           struct flw_span *run)
{
    run->u.run.state = FLW_RUN_RESERVED;
    growable->tail = flw_run_absorb(heap, run, growable->tail);
}

void flw_growable_end(struct flw_heap *heap, struct flw_growable *growable)
{
    flw_lock_acquire(&heap->lock);
    if (growable->tail != NULL) {
        flw_run_put_back_unmapped(heap, growable->tail);
    }
    flw_lock_release(&heap->lock);
    *growable = (struct flw_growable){NULL, NULL};
}

/* Put back the part of a hole that a growth does not need. */
static void put_back_hole(struct flw_heap *heap, const struct flw_placement *place,
                          struct flw_span *run)
{
    if (place->growable != NULL) {
        flw_growable_put_back(heap, place->growable, run);
    } else {
        flw_run_put_back_unmapped(heap, run);
    }
}

bool flw_place_set_aside(struct flw_heap *heap, struct flw_placement *place)
{
    struct flw_span *hole = place->hole, *rest;
    flw_run_set_busy(heap, hole);
    if (place->growable != NULL) {
        place->growable->tail = NULL;
    }
    if (place->map_end < flw_run_end(hole)) {
        rest = flw_run_split(heap, hole, (uint32_t)(place->map_end - flw_run_begin(hole)));
        if (rest == NULL) {
            put_back_hole(heap, place, hole);
            return false;
        }
        put_back_hole(heap, place, rest);
    }
    if (place->map_begin > flw_run_begin(hole)) {
        rest = flw_run_split(heap, hole, (uint32_t)(place->map_begin - flw_run_begin(hole)));
        if (rest == NULL) {
            flw_run_put_back_unmapped(heap, hole);
            return false;
        }
        flw_run_put_back_unmapped(heap, hole);
        place->hole = rest;
    }
    if (place->left != NULL) {
        flw_run_set_busy(heap, place->left);
    }
    if (place->right != NULL) {
        flw_run_set_busy(heap, place->right);
    }
    return true;
}

void flw_run_put_back(struct flw_heap *heap, struct flw_span *run)
{
    if (run != NULL) {
        flw_heap_put_run_at_point(heap, run->u.run.owner, run->u.run.seq, run);
    }
}

struct flw_span *flw_run_cut(struct flw_heap *heap, struct flw_span *run, uint64_t begin,
                             uint64_t end)
{
    struct flw_span *middle = run, *rest = NULL;
    flw_run_set_busy(heap, run);
    if (end < flw_run_end(run)) {
        rest = flw_run_split(heap, run, (uint32_t)(end - flw_run_begin(run)));
        if (rest == NULL) {
            flw_run_put_back(heap, run);
            return NULL;
        }
    }
    if (begin > flw_run_begin(run)) {
        middle = flw_run_split(heap, run, (uint32_t)(begin - flw_run_begin(run)));
        if (middle == NULL) {
            run = rest != NULL ? flw_run_absorb(heap, run, rest) : run;
            flw_run_put_back(heap, run);
            return NULL;
        }
        flw_run_put_back(heap, run);
    }
    if (rest != NULL) {
        flw_run_put_back(heap, rest);
    }
    return middle;
}

struct flw_span *flw_run_absorb(struct flw_heap *heap, struct flw_span *run, struct flw_span *right)
{
    if (run == NULL || right == NULL) {
        return run == NULL ? right : run;
    }
    run->u.run.unit_count += right->u.run.unit_count;
    flw_run_merge(heap, right);
    return run;
}

/* Make a run LIVE after the memory was mapped. */
static struct flw_span *set_live(struct flw_heap *heap, struct flw_span *run, uint64_t seq)
{
    run->u.run.state = FLW_RUN_LIVE;
    run->u.run.owner = FLW_UNOWNED;
    run->u.run.seq = seq;
    heap->live_run_bytes += flw_run_bytes(run);
    flw_run_arm_slot(heap, run);
    flw_page_map_set_run(&heap->map, run);
    return run;
}

static struct flw_span *commit_growable(struct flw_heap *heap, struct flw_growable *growable,
                                        struct flw_span *run)
{
    if (growable->block != NULL) {
        heap->live_run_bytes += flw_run_bytes(run);
        return flw_run_absorb(heap, growable->block, run);
    }
    growable->block = set_live(heap, run, 0);
    return run;
}

struct flw_span *flw_place_commit(struct flw_heap *heap, const struct flw_placement *place)
{
    if (place->growable != NULL) {
        return commit_growable(heap, place->growable, place->hole);
    }
    uint32_t front_owner = place->left != NULL ? place->left->u.run.owner : FLW_UNOWNED;
    uint64_t front_seq = place->left != NULL ? place->left->u.run.seq : 0;
    uint32_t back_owner = place->right != NULL ? place->right->u.run.owner : FLW_UNOWNED;
    uint64_t back_seq = place->right != NULL ? place->right->u.run.seq : 0;
    struct flw_span *run =
        flw_run_absorb(heap, flw_run_absorb(heap, place->left, place->hole), place->right);
    struct flw_span *rest;
    if (flw_run_end(run) > place->end) {
        rest = flw_run_split(heap, run, (uint32_t)(place->end - flw_run_begin(run)));
        if (rest != NULL) {
            flw_heap_put_run_at_point(heap, back_owner, back_seq, rest);
        } /* otherwise the run is larger than requested, which is harmless */
    }
    if (flw_run_begin(run) < place->begin) {
        rest = flw_run_split(heap, run, (uint32_t)(place->begin - flw_run_begin(run)));
        if (rest == NULL) { /* the run would begin too early: all is the taker's, or unowned */
            uint32_t owner = front_owner != FLW_UNOWNED ? front_owner : back_owner;
            flw_heap_put_run_at_point(heap, owner, flw_max(front_seq, back_seq), run);
            return NULL;
        }
        flw_heap_put_run_at_point(heap, front_owner, front_seq, run);
        run = rest;
    }
    return set_live(heap, run, flw_max(front_seq, back_seq)); /* of the taker, if not complete */
}

/* ---- idle memory of one owner or several */

static bool is_complete_dedicated(const struct flw_heap *heap, const struct flw_span *run)
{
    return heap->dedicated != NULL && run->u.run.owner == heap->dedicated->index;
}

static bool is_idle(const struct flw_heap *heap, const struct flw_span *run)
{
    const struct flw_domain *owner = heap->domains[run->u.run.owner];
    return (run->u.run.state == FLW_RUN_FREE || run->u.run.state == FLW_RUN_DEDICATED) &&
           owner != heap->unmap_only &&
           (run->u.run.owner == FLW_UNOWNED || is_complete_dedicated(heap, run) ||
            (flw_domain_keeps(heap, owner) && run->u.run.seq <= owner->completed));
}

bool flw_run_is_idle_until(const struct flw_heap *heap, const struct flw_span *run, uint64_t end)
{
    while (is_idle(heap, run) && flw_run_end(run) < end) {
        run = run->u.run.right;
    }
    return is_idle(heap, run);
}

struct flw_span *flw_run_cut_shared(struct flw_heap *heap, struct flw_span *part, uint64_t begin,
                                    uint64_t end)
{
    struct flw_span *whole = NULL;
    for (uint64_t unit = begin; unit < end; part = whole->u.run.right) {
        uint64_t from = flw_max(begin, flw_run_begin(part));
        unit = flw_run_end(part);
        part = flw_run_cut(heap, part, from, flw_min(end, unit));
        if (part == NULL) {
            flw_run_put_back(heap, whole);
            return NULL;
        }
        if (whole != NULL) {
            whole->u.run.owner = heap->multi_stream->index;
            whole->u.run.seq = heap->multi_stream->completed;
        }
        whole = flw_run_absorb(heap, whole, part);
    }
    return whole;
}
