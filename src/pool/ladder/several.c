/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: taking memory that several streams have used last: blocks with announced uses, and neighbours of several
 * owners. The taker waits for all of them on the device, where the host would have to wait otherwise.
 */
#include "base/mutant.h"
#include "heap/order/fence.h"
#include "heap/space/deferred.h"
#include "pool/ladder/climb.h"

#define ROUNDS_MOST 3
#define PARTS_MOST  16

/* Of each domain the last one. */
struct points {
    uint32_t count;
    struct flw_point list[PARTS_MOST];
};

static void add_point(struct points *points, const struct flw_point *point)
{
    uint32_t at = 0;
    while (at < points->count && points->list[at].domain != point->domain) {
        at++;
    }
    if (at < points->count) {
        points->list[at].seq = flw_max(points->list[at].seq, point->seq);
    } else if (at < PARTS_MOST) {
        points->list[points->count++] = *point;
    }
}

/* heap lock. Does the taker's next work come after that point, by what it has been made to wait for in this climb
 * or before? */
static bool is_ordered(const struct flw_heap *heap, const struct flw_domain *taker,
                       const struct points *ordered, const struct flw_point *point)
{
    bool is_after = point->domain == taker->index || flw_point_is_complete(heap, point) ||
                    flw_domain_is_after(taker, heap->domains[point->domain], point->seq);
    for (uint32_t i = 0; i < ordered->count && !is_after; i++) {
        is_after = ordered->list[i].domain == point->domain && ordered->list[i].seq >= point->seq;
    }
    return is_after;
}

/* Driver calls. What was done is added to `ordered`. */
static bool order_after(struct flw_climb *climb, const struct points *points,
                        struct points *ordered)
{
    struct flw_heap *heap = climb->heap;
    struct flw_driver_section section;
    if (!flw_heap_enter_mode(heap, &section)) {
        return false;
    }
    bool is_done = true;
    for (uint32_t i = 0; i < points->count && is_done; i++) {
        const struct flw_point *point = &points->list[i];
        fallow_status status = flw_domain_order_after(
            heap, climb->need->domain, heap->domains[point->domain], point->seq, true);
        flw_lock_acquire(&heap->lock);
        is_done = status == FALLOW_OK || flw_point_is_complete(heap, point);
        flw_lock_release(&heap->lock);
        if (is_done) {
            add_point(ordered, point);
        }
    }
    flw_heap_leave_driver(heap, &section);
    return is_done;
}

/* ---- blocks that other streams still use */

#define SCAN_MOST 64

/* heap lock. No stream can be made to wait for others than these. */
static bool is_nameable(const struct flw_domain *domain)
{
    return domain->ops == &flw_order_stream && !domain->is_lost && !domain->is_foreign;
}

/* heap lock. Does a fence cover the point, or can one be recorded? */
static bool can_wait_for(const struct flw_heap *heap, const struct flw_point *point)
{
    const struct flw_domain *domain = heap->domains[point->domain];
    bool is_covered = domain->newest != NULL && domain->newest->seq >= point->seq;
    return is_nameable(domain) && (is_covered || flw_domain_can_fence(heap, domain, false));
}

/* heap lock. Can waits on the device make it the taker's? *out: which. */
static bool may_withdraw(const struct flw_heap *heap, const struct flw_need *need,
                         const struct flw_deferred *deferred, const struct points *ordered,
                         struct points *out)
{
    struct flw_point own = {.domain = deferred->domain, .seq = deferred->own_seq};
    bool has_own = deferred->domain != FLW_UNOWNED && heap->domains[own.domain] != need->domain;
    out->count = 0;
    if (deferred->needs_context_sync || deferred->sweep_next != 0 ||
        (has_own && !is_nameable(heap->domains[own.domain])) ||
        heap->domains[own.domain] == heap->unmap_only) {
        return false;
    }
    has_own = has_own && !is_ordered(heap, need->domain, ordered, &own);
    if (has_own && !can_wait_for(heap, &own)) {
        return false;
    }
    for (uint32_t i = 0; i < deferred->point_count; i++) {
        const struct flw_point *point = &deferred->points[i];
        if (!is_ordered(heap, need->domain, ordered, point) && !FLW_MUTANT(DEFERRED_FORGETS_USE)) {
            if (!can_wait_for(heap, point)) {
                return false;
            }
            add_point(out, point);
        }
    }
    if (has_own && !FLW_MUTANT(DEFERRED_FORGETS_OWNER)) {
        add_point(out, &own);
    }
    return true;
}

/* heap lock. What it can serve the need with: units of a run, or slots of the class that is needed. All of a handle
 * serves its like only, which the host waits for. */
static uint64_t units_of(const struct flw_heap *heap, const struct flw_need *need,
                         const struct flw_deferred *deferred)
{
    const struct flw_span *span =
        deferred->run != NULL ? deferred->run : flw_slot_span(&heap->map, deferred->slot);
    if (span->kind == FLW_SPAN_RUN) {
        return flw_run_is_dedicated(span) ? 0 : span->u.run.unit_count;
    }
    return span->u.slab.class_index == need->class_index ? need->unit_count : 0;
}

/* One that is large enough by itself, with as few waits as can be, then the tightest. */
struct pick {
    struct flw_deferred *deferred;
    struct points points;
    uint64_t units;
};

/* heap lock. Among the first of a queue. */
static void look_through(const struct flw_heap *heap, const struct flw_need *need,
                         const struct flw_domain *domain, const struct points *ordered,
                         struct pick *best)
{
    struct flw_deferred *deferred = domain->waiting;
    uint64_t wanted = need->unit_count + need->align_units - 1;
    for (unsigned i = 0; deferred != NULL && i < SCAN_MOST; i++, deferred = deferred->next) {
        struct points points;
        uint64_t units = units_of(heap, need, deferred);
        bool is_tighter = best->deferred == NULL || units < best->units;
        if (units >= wanted && (is_tighter || best->points.count > 0) &&
            may_withdraw(heap, need, deferred, ordered, &points) &&
            (best->deferred == NULL || points.count < best->points.count ||
             (points.count == best->points.count && is_tighter))) {
            *best = (struct pick){.deferred = deferred, .points = points, .units = units};
        }
    }
}

/* heap lock. What it held back is the caller's. */
static void forget_deferred(struct flw_heap *heap, struct flw_deferred *deferred)
{
    flw_heap_withdraw_deferred(heap, deferred);
    heap->deferred_bytes -= deferred->bytes;
    heap->deferred_count--;
    flw_heap_drop_deferred(heap, deferred);
}

/* heap lock. It is the taker's from now on. */
static void withdraw(struct flw_heap *heap, const struct flw_need *need,
                     struct flw_deferred *deferred)
{
    struct flw_span *run = deferred->run;
    struct flw_slot *slot = deferred->slot;
    forget_deferred(heap, deferred);
    if (run != NULL) {
        flw_heap_put_run_at_point(heap, need->domain->index, need->domain->seq, run);
    } else {
        flw_heap_put_block(heap, need->domain, slot);
    }
}

/* heap lock. Among what waits for the streams that freed first, or have owed a fence for longest: one can be recorded
 * on these. */
static struct pick find_deferred(const struct flw_heap *heap, const struct flw_need *need,
                                 const struct points *ordered)
{
    struct flw_domain *donors[FLW_DONORS_MOST];
    struct pick best = {.deferred = NULL};
    uint32_t count = flw_climb_oldest_donors(heap, need, donors);
    for (uint32_t i = 0; i < count; i++) {
        look_through(heap, need, donors[i], ordered, &best);
    }
    const struct flw_domain *owing = heap->owing.first;
    for (uint32_t i = 0; i < FLW_DONORS_MOST && owing != NULL; i++, owing = owing->owing_behind) {
        look_through(heap, need, owing, ordered, &best);
    }
    look_through(heap, need, need->domain, ordered, &best);
    return best;
}

static bool take_deferred(struct flw_climb *climb)
{
    struct flw_heap *heap = climb->heap;
    struct flw_need *need = climb->need;
    struct points ordered = {.count = 0};
    bool can_serve = !flw_need_is_dedicated(heap, need);
    for (unsigned round = 0; can_serve && round < ROUNDS_MOST; round++) {
        bool is_taken = false;
        flw_lock_acquire(&heap->lock);
        struct pick pick = find_deferred(heap, need, &ordered);
        if (pick.deferred != NULL && pick.points.count == 0) {
            withdraw(heap, need, pick.deferred);
            is_taken = need->class_index < FLW_CLASS_COUNT ? flw_climb_take_slots(heap, need)
                                                           : flw_climb_take_run(heap, need);
        }
        flw_lock_release(&heap->lock);
        if (is_taken) {
            atomic_fetch_add(&heap->count.steals, 1);
            return true;
        }
        if (pick.deferred == NULL || pick.points.count == 0 ||
            !order_after(climb, &pick.points, &ordered)) {
            return false;
        }
    }
    return false;
}

/* ---- neighbours of several owners */

#define LOOKS_MOST 4096

/* Runs side by side that are together large enough, free or deferred. */
struct stretch {
    struct flw_span *first;
    uint32_t part_count, wait_count;
    uint64_t unit_count;
};

/* heap lock. May the run be part of one? *out: what the taker has to wait for. */
static bool may_take_part(const struct flw_heap *heap, const struct flw_need *need,
                          const struct points *ordered, const struct flw_span *run,
                          struct points *out)
{
    const struct flw_domain *owner = heap->domains[run->u.run.owner];
    out->count = 0;
    if (run->u.run.state == FLW_RUN_DEFERRED) {
        return !flw_run_is_dedicated(run) &&
               may_withdraw(heap, need, run->u.run.deferred, ordered, out);
    }
    if (run->u.run.state != FLW_RUN_FREE) {
        return false;
    }
    struct flw_point last = {.domain = run->u.run.owner, .seq = run->u.run.seq};
    if (run->u.run.owner == FLW_UNOWNED || owner == need->domain) {
        return true;
    }
    if (!flw_climb_is_donor(owner, need)) {
        return false;
    }
    bool is_waited_for = !is_ordered(heap, need->domain, ordered, &last);
    if (is_waited_for && !FLW_MUTANT(NEIGHBOUR_WITHOUT_WAIT)) {
        add_point(out, &last);
    }
    return !is_waited_for || can_wait_for(heap, &last);
}

/* heap lock. The first run from this one on behind which enough free or deferred units follow each other, whosever
 * they are; the edge: none. Few stretches are large enough, and only those are looked at closely. *looks: how many
 * runs were passed. */
static struct flw_span *skip_short(struct flw_span *edge, struct flw_span *run, uint64_t wanted,
                                   unsigned *looks)
{
    struct flw_span *end = run;
    uint64_t units = 0;
    unsigned passed = 0;
    while (units < wanted && end != edge && *looks + passed < LOOKS_MOST) {
        bool is_part = end->u.run.state == FLW_RUN_FREE || end->u.run.state == FLW_RUN_DEFERRED;
        units = is_part ? units + end->u.run.unit_count : 0;
        passed++;
        end = end->u.run.right;
        if (!is_part) {
            *looks += passed;
            passed = 0;
            run = end;
        }
    }
    return units < wanted ? edge : run;
}

/* heap lock. Look for one in the stretch of addresses with this edge; *best: the best so far. */
static void search_range(const struct flw_heap *heap, const struct flw_need *need,
                         const struct points *ordered, struct flw_span *edge, unsigned *looks,
                         struct stretch *best)
{
    uint64_t wanted = need->unit_count + need->align_units - 1;
    uint32_t waits[PARTS_MOST + 1], number = 0; /* of the last parts, by their numbers */
    struct stretch at = {.first = NULL};
    struct flw_span *run = edge->u.run.right;
    for (; run != edge && *looks < LOOKS_MOST; ++*looks, run = run->u.run.right) {
        struct points points;
        if (at.first == NULL && (run = skip_short(edge, run, wanted, looks)) == edge) {
            break;
        }
        if (!may_take_part(heap, need, ordered, run, &points)) {
            at.first = NULL;
            continue;
        }
        at = at.first != NULL ? at : (struct stretch){.first = run};
        waits[number++ % (PARTS_MOST + 1)] = points.count;
        at.part_count++;
        at.unit_count += run->u.run.unit_count;
        at.wait_count += points.count;
        while (at.part_count > PARTS_MOST || at.unit_count - at.first->u.run.unit_count >= wanted) {
            at.wait_count -= waits[(number - at.part_count) % (PARTS_MOST + 1)];
            at.part_count--;
            at.unit_count -= at.first->u.run.unit_count;
            at.first = at.first->u.run.right;
        }
        bool is_better = best->first == NULL || at.wait_count < best->wait_count ||
                         (at.wait_count == best->wait_count && at.unit_count < best->unit_count);
        if (at.unit_count >= wanted && is_better) {
            *best = at;
        }
    }
}

/* heap lock. The stretch that is large enough with as few waits as can be, then with as little over. */
static struct stretch find_stretch(const struct flw_heap *heap, const struct flw_need *need,
                                   const struct points *ordered)
{
    struct stretch best = {.first = NULL};
    unsigned looks = 0;
    for (const struct flw_range *range = heap->ranges.lowest; range != NULL; range = range->next) {
        search_range(heap, need, ordered, range->edge, &looks, &best);
    }
    return best;
}

/* heap lock. All of a stretch becomes the taker's, as one run. */
static void take_stretch(struct flw_heap *heap, const struct stretch *stretch,
                         const struct flw_need *need)
{
    struct flw_span *parts[PARTS_MOST], *run = stretch->first;
    for (uint32_t i = 0; i < stretch->part_count; i++, run = run->u.run.right) {
        parts[i] = run;
        if (run->u.run.state == FLW_RUN_DEFERRED) {
            forget_deferred(heap, run->u.run.deferred);
        } else {
            flw_run_unindex(heap, run);
        }
        run->u.run.state = FLW_RUN_BUSY;
    }
    for (uint32_t i = 0; i < stretch->part_count; i++) {
        flw_heap_put_run_at_point(heap, need->domain->index, need->domain->seq, parts[i]);
    }
}

/* heap lock. What the taker is to be ordered after. */
static struct points points_of(const struct flw_heap *heap, const struct flw_need *need,
                               const struct stretch *stretch, const struct points *ordered)
{
    struct points all = {.count = 0}, points;
    const struct flw_span *run = stretch->first;
    for (uint32_t i = 0; i < stretch->part_count; i++, run = run->u.run.right) {
        (void)may_take_part(heap, need, ordered, run, &points);
        for (uint32_t n = 0; n < points.count; n++) {
            add_point(&all, &points.list[n]);
        }
    }
    return all;
}

/* Where no stream has enough in one piece: pieces of several that lie side by side. */
static bool steal_stretch(struct flw_climb *climb)
{
    struct flw_heap *heap = climb->heap;
    struct flw_need *need = climb->need;
    struct points ordered = {.count = 0};
    bool can_join = heap->source.ops->remaps && !flw_need_is_dedicated(heap, need);
    for (unsigned round = 0; can_join && round < ROUNDS_MOST; round++) {
        struct points points = {.count = 0};
        bool is_taken = false;
        flw_lock_acquire(&heap->lock);
        struct stretch stretch = find_stretch(heap, need, &ordered);
        if (stretch.first != NULL && stretch.wait_count == 0) {
            take_stretch(heap, &stretch, need);
            is_taken = need->class_index < FLW_CLASS_COUNT ? flw_climb_take_slots(heap, need)
                                                           : flw_climb_take_run(heap, need);
        } else if (stretch.first != NULL) {
            points = points_of(heap, need, &stretch, &ordered);
        }
        flw_lock_release(&heap->lock);
        if (is_taken) {
            atomic_fetch_add(&heap->count.steals, 1);
            return true;
        }
        if (points.count == 0 || !order_after(climb, &points, &ordered)) {
            return false;
        }
    }
    return false;
}

/* ---- neighbours of a hole */

#define HOLES_MOST 256

/* heap lock. What lies on that side of the hole, from there on, until it is enough. */
static struct stretch beside_hole(const struct flw_heap *heap, const struct flw_need *need,
                                  const struct points *ordered, const struct flw_span *hole,
                                  bool is_left)
{
    uint64_t wanted = need->unit_count + need->align_units - 1;
    struct stretch at = {.first = NULL};
    struct flw_span *run = is_left ? hole->u.run.left : hole->u.run.right;
    struct points points;
    while (at.part_count < PARTS_MOST && at.unit_count < wanted && /* an edge takes no part */
           may_take_part(heap, need, ordered, run, &points)) {
        at.first = is_left || at.first == NULL ? run : at.first;
        at.part_count++;
        at.unit_count += run->u.run.unit_count;
        at.wait_count += points.count;
        run = is_left ? run->u.run.left : run->u.run.right;
    }
    return at;
}

/* heap lock. The stretch beside which the least is missing, no more than `room_units`, and there is place for it. */
static struct stretch find_beside_hole(const struct flw_heap *heap, const struct flw_need *need,
                                       const struct points *ordered, uint64_t room_units)
{
    uint64_t wanted = need->unit_count + need->align_units - 1, least = room_units + 1;
    struct stretch best = {.first = NULL};
    const struct flw_span *hole = heap->ranges.unmapped.newest;
    for (unsigned i = 0; hole != NULL && i < HOLES_MOST; i++, hole = hole->u.run.age_prev) {
        for (unsigned side = 0; side < 2; side++) {
            struct stretch at = beside_hole(heap, need, ordered, hole, side == 0);
            uint64_t missing = wanted - flw_min(wanted, at.unit_count);
            missing = flw_align_up(missing, heap->page_units);
            if (at.first != NULL && missing < least && missing <= hole->u.run.unit_count) {
                best = at;
                least = missing;
            }
        }
    }
    return best;
}

/* More memory may be had, but not all that is needed: the rest is taken beside it. */
static bool grow_stretch(struct flw_climb *climb)
{
    struct flw_heap *heap = climb->heap;
    struct flw_need *need = climb->need;
    struct points ordered = {.count = 0};
    uint64_t budget_bytes = flw_climb_most_budget(climb);
    bool can_grow = flw_climb_has_others(climb) && !flw_climb_lacks_host(climb) &&
                    heap->source.ops->remaps && !flw_need_is_dedicated(heap, need) &&
                    (need->flags & FALLOW_REQUEST_NO_GROW) == 0;
    for (unsigned round = 0; can_grow && round < ROUNDS_MOST; round++) {
        struct points points = {.count = 0};
        flw_lock_acquire(&heap->lock);
        uint64_t reserved = atomic_load(&heap->reserved_bytes);
        uint64_t room = budget_bytes - flw_min(budget_bytes, reserved) + heap->idle_bytes;
        uint64_t room_units = room >> FLW_UNIT_LOG2;
        struct stretch stretch = {.first = NULL};
        if (room_units >= heap->page_units) { /* else all of it would lie there already */
            stretch = find_beside_hole(heap, need, &ordered, room_units);
        }
        if (stretch.first != NULL && stretch.wait_count == 0) {
            take_stretch(heap, &stretch, need);
        } else if (stretch.first != NULL) {
            points = points_of(heap, need, &stretch, &ordered);
        }
        flw_lock_release(&heap->lock);
        if (stretch.first != NULL && stretch.wait_count == 0) {
            atomic_fetch_add(&heap->count.steals, 1);
            return flw_climb_grow_within(climb, budget_bytes);
        }
        if (points.count == 0 || !order_after(climb, &points, &ordered)) {
            return false;
        }
    }
    return false;
}

bool flw_climb_take_several(struct flw_climb *climb)
{
    return take_deferred(climb) || steal_stretch(climb) || grow_stretch(climb);
}
