/* SPDX-License-Identifier: Apache-2.0 */
#include "heap/physical/physical.h"

#include "base/mutant.h"
#include "heap/order/epoch.h"
#include "heap/order/sync.h"
#include "heap/physical/handle.h"
#include "heap/physical/place.h"
#include "heap/physical/segment.h"
#include "heap/space/run.h"

#define UNMAP_BATCH 64

/* Runs of whole handles, each BUSY. */
struct cuts {
    struct flw_span *runs[UNMAP_BATCH];
    uint32_t first_handles[UNMAP_BATCH]; /* of each cut: number of handles of the cuts before
                                             it */
    bool is_leftmost[UNMAP_BATCH];       /* read under the lock: other threads change a run's
                                      neighbours */
    uint32_t count, handle_count, whole_count;
    uint64_t bytes, given_bytes; /* given: released to the driver at once */
    bool in_turn;                /* each run gives one handle in turn */
    bool is_refused;             /* the driver did not unmap all: stop */
};

static void add_cut(struct cuts *cuts, struct flw_span *run, uint32_t handle_count)
{
    cuts->bytes += flw_run_bytes(run);
    cuts->whole_count += flw_run_is_dedicated(run);
    cuts->first_handles[cuts->count] = cuts->handle_count;
    cuts->is_leftmost[cuts->count] = flw_run_is_leftmost(run);
    cuts->runs[cuts->count++] = run;
    cuts->handle_count += handle_count;
}

/* Return the end of a cut that begins with the handle. With several streams it includes the
 * following handles, as far as wanted: one hole is more useful than many, and costs one cut. Heap
 * lock held. */
static uint64_t cut_end(const struct flw_heap *heap, const struct flw_span *run,
                        const struct flw_handle *first, uint64_t want_bytes,
                        const struct cuts *cuts, uint32_t *out_count)
{
    uint64_t begin = first->begin_unit, end = begin + first->unit_count, last = flw_run_end(run);
    bool goes_on =
        !cuts->in_turn && atomic_load_explicit(&heap->stream_count, memory_order_relaxed) > 1;
    uint32_t most = UNMAP_BATCH - cuts->handle_count;
    uint32_t count = 1;
    while (goes_on && count < most && end < last && end - begin < want_bytes >> FLW_UNIT_LOG2) {
        const struct flw_handle *next = flw_handle_at_unit(heap, end);
        goes_on = next != NULL && end + next->unit_count <= last;
        end += goes_on ? next->unit_count : 0;
        count += goes_on;
    }
    *out_count = count;
    return end;
}

static const struct flw_placement nowhere;

/* True if the growth will map memory beside this run. */
static bool is_kept(const struct flw_placement *place, const struct flw_span *run)
{
    return run == place->left || run == place->right;
}

/* Cut handles out of the domain's memory, oldest first, until want_bytes are cut; handles that
 * serve one run each come last. Heap lock held. */
static void cut_idle(struct flw_heap *heap, const struct flw_domain *domain, uint64_t want_bytes,
                     const struct flw_placement *place, struct cuts *cuts)
{
    struct flw_span *run = domain->runs.oldest;
    while (run != NULL && cuts->handle_count < UNMAP_BATCH && cuts->bytes < want_bytes) {
        struct flw_span *next = run->u.run.age_next;
        bool may_have_any = run->u.run.unit_count >= heap->page_units && !is_kept(place, run);
        struct flw_handle *handle = may_have_any ? flw_handle_inside(heap, run) : NULL;
        if (handle != NULL) {
            uint32_t count;
            uint64_t end = cut_end(heap, run, handle, want_bytes - cuts->bytes, cuts, &count);
            struct flw_span *middle = flw_run_cut(heap, run, handle->begin_unit, end);
            if (middle == NULL) { /* the run is at the young end again: the loop would not end */
                return;
            }
            add_cut(cuts, middle, count);
            /* The cut-off rest is in the index at the young end: the loop meets it again. */
            next = next != NULL ? next : domain->runs.oldest;
        }
        run = next;
    }
    while ((run = domain->dedicated_runs.oldest) != NULL && cuts->handle_count < UNMAP_BATCH &&
           cuts->bytes < want_bytes) {
        flw_run_set_busy(heap, run);
        add_cut(cuts, run, 1);
    }
}

/* The same for handles over idle memory of several owners. Heap lock held. */
static void cut_idle_shared(struct flw_heap *heap, uint64_t want_bytes, struct cuts *cuts)
{
    struct flw_span *run = NULL; /* has the handle's first unit */
    const struct flw_handle *handle;
    const struct flw_range *range = NULL;
    struct flw_handle_walk walk = {NULL, 0};
    while (cuts->handle_count < UNMAP_BATCH && cuts->bytes < want_bytes &&
           (handle = flw_handle_next(heap, &walk)) != NULL) {
        run = walk.range == range ? run : walk.range->edge->u.run.right;
        range = walk.range;
        uint64_t begin = handle->begin_unit, end = begin + handle->unit_count;
        while (flw_run_end(run) <= begin) {
            run = run->u.run.right;
        }
        if (flw_run_is_idle_until(heap, run, end)) {
            run = flw_run_cut_shared(heap, run, begin, end);
            if (run == NULL) {
                return;
            }
            add_cut(cuts, run, 1);
        }
    }
}

/* Plan cuts of unmap-only memory, then unowned memory, then, if complete memory keeps its owner, the
 * owners'. Heap lock held. */
static void plan_cuts(struct flw_heap *heap, uint64_t want_bytes, const struct flw_placement *place,
                      struct cuts *cuts)
{
    uint32_t unowned = FLW_MUTANT(UNMAPS_BUSY_HANDLE) ? heap->domain_end - 1 : FLW_UNOWNED;
    cuts->count = cuts->handle_count = cuts->whole_count = 0;
    cuts->bytes = cuts->given_bytes = 0;
    if (heap->unmap_only != NULL) {
        cut_idle(heap, heap->unmap_only, want_bytes, place, cuts);
    }
    cut_idle(heap, heap->domains[unowned], want_bytes, place, cuts);
    if (heap->multi_stream != NULL) {
        cut_idle_shared(heap, want_bytes, cuts);
    }
}

/* Release a handle that is in no list; if the driver refuses, it is idle, exported or not. Returns
 * the bytes released. In a driver section. */
static uint64_t release_handle(struct flw_heap *heap, struct flw_handle *handle)
{
    uint64_t bytes = flw_handle_bytes(handle);
    CUresult result = heap->source.ops->release(&heap->source, handle->id);
    bool is_released = flw_heap_refuse(heap, result, "cuMemRelease") == FALLOW_OK;
    flw_lock_acquire(&heap->lock);
    if (!is_released) {
        flw_handle_link_idle(heap, handle);
        flw_lock_release(&heap->lock);
        return 0;
    }
    if (handle->is_exported) {
        flw_heap_unmark_exported(heap, handle);
    }
    if (!FLW_MUTANT(RELEASE_NOT_COUNTED)) {
        flw_heap_lower_reserved(heap, bytes);
    }
    atomic_fetch_add(&heap->count.trims, 1);
    flw_heap_drop_handle(heap, handle);
    flw_lock_release(&heap->lock);
    return bytes;
}

/* ---- unmapping */

/* Sort the places of the cuts in `runs` by address. They are made by age, the order of everything
 * else. */
static void sort_cuts(const struct cuts *cuts, uint32_t order[UNMAP_BATCH])
{
    for (uint32_t i = 0; i < cuts->count; i++) {
        uint32_t at = i;
        while (at > 0 && flw_run_begin(cuts->runs[order[at - 1]]) > flw_run_begin(cuts->runs[i])) {
            order[at] = order[at - 1];
            at--;
        }
        order[at] = i;
    }
}

/* Handles to unmap by one call, and their places in is_unmapped. */
struct row_of_cuts {
    struct flw_row row;
    uint32_t places[UNMAP_BATCH];
};

/* In a driver section. */
static void unmap_row(struct flw_heap *heap, struct row_of_cuts *at, bool is_unmapped[UNMAP_BATCH])
{
    if (at->row.count > 0) {
        CUresult result = flw_heap_unmap_row(heap, &at->row, true);
        (void)flw_heap_refuse(heap, result, "cuMemUnmap");
    }
    for (uint32_t i = 0; i < at->row.count; i++) {
        is_unmapped[at->places[i]] = at->row.is_unmapped[i];
    }
    at->row.count = 0;
}

/* Set is_unmapped[i] for handle i of the cuts. In a driver section. */
static void unmap_rows(struct flw_heap *heap, const struct cuts *cuts,
                       bool is_unmapped[UNMAP_BATCH])
{
    uint32_t order[UNMAP_BATCH];
    struct row_of_cuts at;
    sort_cuts(cuts, order);
    at.row.count = 0;
    for (uint32_t i = 0; i < cuts->count; i++) {
        const struct flw_span *run = cuts->runs[order[i]];
        uint32_t place = cuts->first_handles[order[i]];
        uint64_t address = flw_run_address(heap, run), unit = flw_run_begin(run);
        if (cuts->is_leftmost[order[i]] || !flw_row_takes(&at.row, address)) {
            unmap_row(heap, &at, is_unmapped);
        }
        while (unit < flw_run_end(run)) { /* set aside: no other thread changes it */
            const struct flw_handle *handle = flw_handle_at_unit(heap, unit);
            at.places[at.row.count] = place++;
            flw_row_add(&at.row, heap->map.base + (unit << FLW_UNIT_LOG2),
                        flw_handle_bytes(handle));
            unit += handle->unit_count;
        }
    }
    unmap_row(heap, &at, is_unmapped);
}

/* Remove unmapped handles from a cut. Exported ones are released, and so is the handle of a
 * dedicated run, since no other run wants this size, unless the driver may create no other: these
 * are added to *given. All others are idle. Heap lock held. */
static uint64_t detach_unmapped(struct flw_heap *heap, const struct flw_span *run,
                                const bool *is_unmapped, struct flw_handle **given)
{
    bool is_unwanted = flw_run_is_dedicated(run) && !heap->refused.is_refused;
    uint64_t done_bytes = 0;
    for (uint64_t unit = flw_run_begin(run); unit < flw_run_end(run); is_unmapped++) {
        struct flw_handle *handle = flw_handle_at_unit(heap, unit);
        unit += handle->unit_count;
        if (!*is_unmapped) {
            continue;
        }
        flw_handle_detach(heap, handle);
        done_bytes += flw_handle_bytes(handle);
        atomic_fetch_add(&heap->count.remaps, 1);
        if (handle->is_exported || is_unwanted) {
            handle->next = *given;
            *given = handle;
        } else {
            flw_handle_link_idle(heap, handle);
        }
    }
    return done_bytes;
}

/* Make the part of a cut that the driver refused to unmap free as before, and the rest address
 * space. If host memory for a header between them runs out, everything behind stays set aside
 * until the pool ends. Heap lock held. */
static void put_back_refused(struct flw_heap *heap, struct flw_span *run)
{
    while (run != NULL) {
        uint64_t unit = flw_run_begin(run);
        bool is_mapped = flw_handle_at_unit(heap, unit) != NULL;
        while (unit < flw_run_end(run) && (flw_handle_at_unit(heap, unit) != NULL) == is_mapped) {
            unit += heap->page_units;
        }
        uint32_t units = (uint32_t)(unit - flw_run_begin(run));
        bool is_last = units == run->u.run.unit_count;
        struct flw_span *rest = is_last ? NULL : flw_run_split(heap, run, units);
        if (is_mapped && (is_last || rest != NULL)) {
            flw_run_put_back(heap, run);
        } else if (is_last || rest != NULL) {
            flw_run_put_back_unmapped(heap, run);
        }
        run = rest;
    }
}

/* Return the bytes unmapped. In a driver section. */
static uint64_t unmap_cuts(struct flw_heap *heap, struct cuts *cuts)
{
    bool is_unmapped[UNMAP_BATCH] = {false};
    uint64_t done_bytes = 0;
    if (flw_heap_end_copies(heap)) {
        unmap_rows(heap, cuts, is_unmapped);
    }
    for (uint32_t i = 0; i < cuts->count; i++) {
        struct flw_span *run = cuts->runs[i];
        struct flw_handle *given = NULL;
        flw_lock_acquire(&heap->lock);
        uint64_t cut_bytes = flw_run_bytes(run);
        uint64_t bytes = detach_unmapped(heap, run, is_unmapped + cuts->first_handles[i], &given);
        if (bytes == cut_bytes) {
            flw_run_put_back_unmapped(heap, run);
        } else {
            put_back_refused(heap, run);
        }
        flw_lock_release(&heap->lock);
        cuts->is_refused |= bytes != cut_bytes;
        done_bytes += bytes;
        while (given != NULL) {
            struct flw_handle *next = given->next;
            cuts->given_bytes += release_handle(heap, given);
            given = next;
        }
    }
    return done_bytes;
}

/* A number of bytes or, with a request, what a growth by it still lacks. */
struct wish {
    uint64_t bytes;
    const struct flw_grow_request *request;
    bool in_turn;
};

/* Return the bytes still to be unmapped for the goal, counting released ones as idle; *place:
 * where memory will be mapped, if known. Heap lock held. */
static uint64_t missing_bytes(const struct flw_heap *heap, const struct wish *wish,
                              uint64_t done_bytes, uint64_t given_bytes,
                              struct flw_placement *place)
{
    *place = nowhere;
    if (wish->request == NULL) {
        return wish->bytes - flw_min(wish->bytes, done_bytes);
    }
    uint64_t has = atomic_load(&heap->idle_bytes) + given_bytes;
    uint64_t lacks = flw_place_find(heap, wish->request, place)
                         ? (place->map_end - place->map_begin) << FLW_UNIT_LOG2
                         : 0;
    return lacks - flw_min(lacks, has);
}

/* *whole_count: dedicated runs; *given_bytes: the part of the unmapped bytes that was released at
 * once. */
static uint64_t unmap_idle(struct flw_heap *heap, const struct wish *wish, uint32_t *whole_count,
                           uint64_t *given_bytes)
{
    struct cuts cuts = {.handle_count = UNMAP_BATCH, .in_turn = wish->in_turn};
    uint64_t done_bytes = 0;
    *whole_count = 0;
    *given_bytes = 0;
    struct flw_driver_section section;
    if (!heap->source.ops->remaps || !flw_heap_enter_mode(heap, &section)) {
        return 0;
    }
    /* A batch with room left means that there was no more. */
    while (cuts.handle_count == UNMAP_BATCH && !cuts.is_refused) {
        struct flw_placement place;
        flw_lock_acquire(&heap->lock);
        uint64_t want_bytes = missing_bytes(heap, wish, done_bytes, *given_bytes, &place);
        plan_cuts(heap, want_bytes, &place, &cuts);
        flw_lock_release(&heap->lock);
        if (cuts.count > 0) {
            done_bytes += unmap_cuts(heap, &cuts);
            *whole_count += cuts.whole_count;
            *given_bytes += cuts.given_bytes;
        }
    }
    flw_heap_leave_driver(heap, &section);
    return done_bytes;
}

static uint64_t unmap_wish(struct flw_heap *heap, const struct wish *wish)
{
    uint32_t whole_count;
    uint64_t given_bytes, done_bytes = unmap_idle(heap, wish, &whole_count, &given_bytes);
    atomic_fetch_add(&heap->released_dedicated, whole_count);
    return done_bytes;
}

uint64_t flw_heap_unmap_idle(struct flw_heap *heap, uint64_t want_bytes, bool in_turn)
{
    return unmap_wish(heap, &(struct wish){.bytes = want_bytes, .in_turn = in_turn});
}

uint64_t flw_heap_unmap_for(struct flw_heap *heap, const struct flw_grow_request *request)
{
    return unmap_wish(heap, &(struct wish){.request = request});
}

/* After a sleep: nothing is mapped there. Heap lock held. */
static void forget_handles(struct flw_heap *heap, const struct flw_span *run)
{
    for (uint64_t unit = flw_run_begin(run); unit < flw_run_end(run);) {
        struct flw_handle *handle = flw_handle_at_unit(heap, unit);
        unit += handle->unit_count;
        flw_handle_detach(heap, handle);
        handle->is_asleep = false;
        if (handle->id != 0) {
            flw_handle_link_idle(heap, handle);
        } else {
            atomic_fetch_sub(&heap->asleep_bytes, flw_handle_bytes(handle));
            flw_heap_drop_handle(heap, handle);
        }
    }
}

void flw_heap_forget_idle(struct flw_heap *heap)
{
    struct cuts cuts = {.count = 1};
    flw_lock_acquire(&heap->lock);
    while (cuts.count > 0) {
        cuts = (struct cuts){0};
        cut_idle(heap, heap->domains[FLW_UNOWNED], UINT64_MAX, &nowhere, &cuts);
        if (heap->multi_stream != NULL) {
            cut_idle_shared(heap, UINT64_MAX, &cuts);
        }
        for (uint32_t i = 0; i < cuts.count; i++) {
            forget_handles(heap, cuts.runs[i]);
            flw_run_put_back_unmapped(heap, cuts.runs[i]);
        }
    }
    flw_lock_release(&heap->lock);
}

/* ---- the end of a growable block */

/* Split off the units of the block's last handle as a BUSY run. NULL: part of that handle is in
 * the first keep_units, the handle is exported, or host memory ran out. Heap lock held. */
static struct flw_span *cut_last(struct flw_heap *heap, struct flw_span *block, uint64_t keep_units)
{
    struct flw_handle *last = flw_handle_at_unit(heap, flw_run_end(block) - 1);
    uint64_t units = last->begin_unit - flw_run_begin(block);
    struct flw_span *run =
        last->begin_unit >= flw_run_begin(block) + keep_units && !last->is_exported
            ? flw_run_split(heap, block, (uint32_t)units)
            : NULL;
    if (run != NULL) {
        run->u.run.state = FLW_RUN_BUSY;
        heap->live_run_bytes -= flw_run_bytes(run);
    }
    return run;
}

/* Return the run to the tail if the handle was unmapped, otherwise to the block. Heap lock held. */
static void put_back_last(struct flw_heap *heap, struct flw_growable *growable,
                          struct flw_span *run, bool is_unmapped)
{
    struct flw_handle *handle = flw_handle_at_unit(heap, flw_run_begin(run));
    if (is_unmapped) {
        flw_handle_detach(heap, handle);
        flw_handle_link_idle(heap, handle);
        atomic_fetch_add(&heap->count.remaps, 1);
        flw_growable_put_back(heap, growable, run);
    } else {
        heap->live_run_bytes += flw_run_bytes(run);
        (void)flw_run_absorb(heap, growable->block, run);
    }
}

uint64_t flw_growable_cut(struct flw_heap *heap, struct flw_growable *growable, uint64_t keep_bytes)
{
    uint64_t done_bytes = 0, keep_units = flw_div_up(keep_bytes, FLW_UNIT_BYTES);
    struct flw_driver_section section;
    if (!flw_heap_enter_mode(heap, &section)) {
        return 0;
    }
    for (bool goes_on = flw_heap_end_copies(heap); goes_on;) {
        flw_lock_acquire(&heap->lock);
        struct flw_span *run = cut_last(heap, growable->block, keep_units);
        flw_lock_release(&heap->lock);
        if (run == NULL) {
            break;
        }
        uint64_t bytes = flw_run_bytes(run);
        CUresult result = heap->source.ops->unmap(&heap->source, flw_run_address(heap, run), bytes);
        goes_on = flw_heap_refuse(heap, result, "cuMemUnmap") == FALLOW_OK;
        flw_lock_acquire(&heap->lock);
        put_back_last(heap, growable, run, goes_on);
        flw_lock_release(&heap->lock);
        done_bytes += goes_on ? bytes : 0;
    }
    flw_heap_leave_driver(heap, &section);
    return done_bytes;
}

/* ---- exported handles */

/* Take an exported handle that the driver refused when it was unmapped out of the list. NULL:
 * none. Heap lock held. */
static struct flw_handle *take_idle_exported(struct flw_heap *heap)
{
    struct flw_handle *handle = heap->idle_handles;
    while (handle != NULL && !handle->is_exported) {
        handle = handle->next;
    }
    if (handle != NULL) {
        flw_handle_unlink_idle(heap, handle);
    }
    return handle;
}

void flw_heap_release_exported(struct flw_heap *heap)
{
    struct cuts cuts = {.count = 1};
    struct flw_driver_section section;
    flw_lock_acquire(&heap->lock);
    bool has_runs = heap->unmap_only != NULL && flw_domain_has_runs(heap->unmap_only);
    struct flw_handle *kept = take_idle_exported(heap);
    if (kept != NULL) {
        flw_handle_link_idle(heap, kept);
    }
    flw_lock_release(&heap->lock);
    if ((!has_runs && kept == NULL) || !flw_heap_enter_driver(heap, &section)) {
        return;
    }
    for (bool goes_on = kept != NULL; goes_on;) {
        flw_lock_acquire(&heap->lock);
        kept = take_idle_exported(heap);
        flw_lock_release(&heap->lock);
        goes_on = kept != NULL && release_handle(heap, kept) > 0;
    }
    while (has_runs && cuts.count > 0 && !cuts.is_refused && !flw_heap_is_lost(heap)) {
        cuts = (struct cuts){0};
        flw_lock_acquire(&heap->lock);
        cut_idle(heap, heap->unmap_only, UINT64_MAX, &nowhere, &cuts);
        flw_lock_release(&heap->lock);
        (void)unmap_cuts(heap, &cuts);
    }
    flw_heap_leave_driver(heap, &section);
}

/* Return the bytes released; 0: nothing idle. */
static uint64_t release_one_handle(struct flw_heap *heap)
{
    flw_lock_acquire(&heap->lock);
    struct flw_handle *handle = heap->oldest_idle;
    if (handle != NULL) {
        flw_handle_unlink_idle(heap, handle);
    }
    flw_lock_release(&heap->lock);
    if (handle == NULL) {
        return 0;
    }
    return release_handle(heap, handle);
}

uint64_t flw_heap_release_idle(struct flw_heap *heap, uint64_t keep_bytes, uint64_t until_ns)
{
    uint64_t before = atomic_load(&heap->reserved_bytes), released = 0;
    uint64_t idle = atomic_load(&heap->idle_bytes);
    uint32_t whole_count;
    struct flw_driver_section section;
    if (before <= keep_bytes || !flw_heap_has_context(heap)) {
        return 0;
    }
    if (heap->source.ops->remaps && idle < before - keep_bytes) {
        struct wish wish = {.bytes = before - keep_bytes - idle};
        (void)unmap_idle(heap, &wish, &whole_count, &released);
    }
    bool may_give = heap->context_order == NULL || !flw_captures_are_open();
    bool is_inside = may_give && (heap->source.ops->remaps ? flw_heap_enter_mode(heap, &section)
                                                           : flw_heap_enter_driver(heap, &section));
    if (!is_inside) {
        return released;
    }
    flw_lock_acquire(&heap->lock);
    heap->segments.next_to_release = heap->segments.newest;
    flw_lock_release(&heap->lock);
    bool is_idle = false;
    while (atomic_load(&heap->reserved_bytes) > keep_bytes && !flw_heap_is_lost(heap)) {
        uint64_t bytes = heap->source.ops->remaps
                             ? release_one_handle(heap)
                             : flw_segment_release_one(heap, until_ns, &is_idle);
        if (bytes == 0) {
            break;
        }
        released += bytes;
    }
    flw_heap_leave_driver(heap, &section);
    return released;
}
