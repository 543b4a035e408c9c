/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the checker of state.h's invariants. It recomputes every total from the runs and lists. */
#include "heap/life.h"
#include "heap/physical/handle.h"
#include "heap/space/run.h"

static const char *check_indexes(const struct flw_heap *heap)
{
    for (uint32_t i = 0; i < heap->domain_end; i++) {
        const struct flw_domain *domain = heap->domains[i];
        if (!flw_run_index_is_valid(&domain->runs) ||
            !flw_run_index_is_valid(&domain->dedicated_runs)) {
            return "an index of free runs disagrees with its runs";
        }
        if (domain->ops == NULL && domain->capture_count != 0) {
            return "a capture names a domain that was freed";
        }
        if (i != FLW_UNOWNED && domain->ops != NULL && domain->completed >= domain->seq) {
            return "a domain's completed sequence number is not below its next";
        }
        uint64_t last = domain->completed;
        for (const struct flw_fence *fence = domain->oldest; fence != NULL; fence = fence->next) {
            if (fence->seq <= last || fence->seq >= domain->seq) {
                return "a fence's sequence number is out of order";
            }
            last = fence->seq;
        }
        if (domain->ops == &flw_order_stream && !domain->is_known &&
            flw_domain_has_uncleared(domain)) {
            return "the list of all fences has one that cannot be cleared";
        }
    }
    return flw_run_index_is_valid(&heap->ranges.unmapped) ? NULL
                                                          : "the index of unmapped runs is broken";
}

/* True if the domain's fences are linked correctly, in the list and in the list of all fences. */
static bool stand_well(const struct flw_heap *heap, const struct flw_domain *domain,
                       uint64_t *count)
{
    const struct flw_standing *standing = &heap->standing;
    const struct flw_fence *previous = NULL, *fence = domain->oldest;
    for (; fence != NULL; previous = fence, fence = fence->next) {
        const struct flw_fence *before = fence->before, *behind = fence->behind;
        bool is_in_both = fence->previous == previous && fence->domain == domain &&
                          (before != NULL ? before->behind : standing->oldest) == fence &&
                          (behind != NULL ? behind->before : standing->newest) == fence;
        if (!is_in_both || fence->is_unlinked) {
            return false;
        }
        (*count)++;
    }
    return domain->newest == previous;
}

static const char *check_standing(const struct flw_heap *heap)
{
    uint64_t count = 0;
    const struct flw_standing *standing = &heap->standing;
    bool has_next = standing->next == NULL;
    for (uint32_t i = 0; i < heap->domain_end; i++) {
        heap->domains[i]->checked_seq = 0; /* the last fence before the current one */
        if (!stand_well(heap, heap->domains[i], &count)) {
            return "a domain's fences are not those in the list of all";
        }
    }
    const struct flw_fence *before = NULL, *fence = standing->oldest;
    for (; fence != NULL && count > 0; before = fence, fence = fence->behind, count--) {
        uint64_t *seq = &fence->domain->checked_seq;
        if (fence->before != before || fence->seq <= *seq) {
            return "the list of all fences orders the fences of a domain differently";
        }
        *seq = fence->seq;
        has_next |= standing->next == fence;
    }
    if (fence != NULL || count != 0 || standing->newest != before) {
        return "a fence is in one list only";
    }
    return has_next ? NULL : "the fence to query next is in no list";
}

/* Check that the list of free places and the chains of tracked streams are consistent. */
static const char *check_places(const struct flw_heap *heap)
{
    uint32_t free_count = 0, known_count = 0, count = 0;
    for (uint32_t i = 0; i < heap->domain_end; i++) {
        const struct flw_domain *domain = heap->domains[i];
        free_count += domain->ops == NULL;
        known_count += domain->ops == &flw_order_stream && domain->is_known;
    }
    const struct flw_domain *domain = heap->places.free;
    for (; domain != NULL && domain->ops == NULL && count < free_count; count++) {
        domain = domain->next_place;
    }
    if (domain != NULL || count != free_count) {
        return "the list of free places is broken";
    }
    count = 0;
    for (uint32_t i = 0; i < FLW_CHAIN_COUNT; i++) {
        for (domain = heap->places.chains[i]; domain != NULL && count <= known_count; count++) {
            if (flw_places_chain(&heap->places, domain->stream, domain->thread) !=
                    &heap->places.chains[i] ||
                !domain->is_known) {
                return "a stream is not in the chain of its handle";
            }
            domain = domain->next_place;
        }
    }
    return count == known_count ? NULL : "the number of streams is not that in the chains";
}

static const char *check_owing(const struct flw_heap *heap)
{
    uint32_t count = 0, recording_count = 0;
    for (uint32_t i = 0; i < heap->domain_end; i++) {
        count += heap->domains[i]->is_owing;
        recording_count += heap->domains[i]->is_recording;
    }
    if (recording_count != heap->recording_count) {
        return "the fences that are being recorded are not as many as are counted";
    }
    const struct flw_domain *before = NULL, *domain = heap->owing.first;
    for (; domain != NULL && count > 0; before = domain, domain = domain->owing_behind, count--) {
        if (!domain->is_owing || domain->owing_before != before) {
            return "the list of streams with a fence due is broken";
        }
        if (!flw_domain_is_stream(domain) || !domain->is_known || domain->is_lost) {
            return "a fence is due on a stream that permits none";
        }
    }
    return domain == NULL && count == 0 && heap->owing.last == before
               ? NULL
               : "the streams with a fence due are not those in the list";
}

static const char *check_open_users(const struct flw_heap *heap)
{
    const struct flw_domain_set *users = &heap->open_users;
    for (uint32_t word = 0; word < FLW_DOMAIN_WORDS + FLW_DOMAIN_WORDS / 64; word++) {
        if (((users->words[FLW_DOMAIN_WORDS + word / 64] >> (word % 64)) & 1) !=
            (users->words[word] != 0)) {
            return "the set of domains with open uses contradicts its summary";
        }
    }
    uint32_t last = 0;
    for (uint32_t i = 0; (i = flw_domain_set_next(users, i)) < FLW_DOMAIN_COUNT; i++) {
        last = i;
    }
    return last < heap->domain_end ? NULL : "an open use names a domain that does not exist";
}

/* *runs: number of runs that deferred frees hold. */
static const char *check_waiting(const struct flw_heap *heap, uint64_t *runs)
{
    for (uint32_t i = 0; i < heap->domain_end; i++) {
        const struct flw_domain *domain = heap->domains[i];
        const struct flw_deferred *last = NULL, *deferred = domain->waiting;
        for (; deferred != NULL; last = deferred, deferred = deferred->next) {
            const struct flw_span *run = deferred->run;
            bool is_in_order =
                i == FLW_UNOWNED || last == NULL || last->awaits.seq <= deferred->awaits.seq;
            if (deferred->awaits.domain != i || !is_in_order) {
                return "a deferred free waits in the queue of another domain, or out of order";
            }
            if (run != NULL &&
                (run->u.run.state != FLW_RUN_DEFERRED || run->u.run.deferred != deferred)) {
                return "a deferred free holds back a run that does not lead to it";
            }
            *runs += run != NULL;
        }
        if (last != NULL && domain->waiting_last != last) {
            return "the tail of a queue of deferred frees is not its last element";
        }
    }
    return NULL;
}

static uint64_t counted_slots(const struct flw_heap *heap)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < heap->domain_end; i++) {
        for (unsigned c = 0; c < FLW_CLASS_COUNT; c++) {
            const struct flw_batch *batch = heap->domains[i]->batches[c].head;
            for (; batch != NULL; batch = batch->next) {
                count += batch->is_counted ? batch->count : 0;
            }
        }
    }
    return count;
}

struct totals {
    uint64_t live_bytes;
    uint64_t indexed; /* runs in an index, by state */
    uint64_t deferred;
    uint64_t slots; /* of slabs, in counted batches */
};

/* True if the map leads from the first byte of each block of a live run to its owner. */
static bool is_found(const struct flw_heap *heap, const struct flw_span *run)
{
    const struct flw_span *slab = run->u.run.slab;
    uint64_t begin = (uint64_t)run->u.run.begin_unit << FLW_UNIT_LOG2;
    if (slab == NULL) {
        bool is_small = heap->map.has_cells && run->u.run.unit_count < FLW_CELL_UNITS;
        return is_small || flw_page_map_span_at(&heap->map, begin) == run;
    }
    uint64_t size = flw_class_bytes(slab->u.slab.class_index);
    for (uint32_t i = 0; i < slab->u.slab.slot_count; i++) {
        if (flw_page_map_span_at(&heap->map, begin + i * size) != slab) {
            return false;
        }
    }
    return true;
}

/* True if the map leads from the run to a slab that does not exist. range: of the run; NULL: in a segment. */
static bool is_stale(const struct flw_heap *heap, const struct flw_range *range,
                     const struct flw_span *run)
{
    uint64_t begin = run->u.run.begin_unit, end = begin + run->u.run.unit_count;
    if (range != NULL) { /* otherwise nothing was ever mapped or set */
        end = flw_min(end, range->mapped_page_end * heap->page_units);
    }
    for (uint64_t unit = begin; unit < end; unit++) {
        const struct flw_span *span = flw_page_map_span_at(&heap->map, unit << FLW_UNIT_LOG2);
        if (span->kind == FLW_SPAN_SLAB) {
            const struct flw_span *home = span->u.slab.run;
            uint64_t from = flw_align_down(home->u.run.begin_unit, FLW_CELL_UNITS);
            uint64_t to = (uint64_t)home->u.run.begin_unit + home->u.run.unit_count;
            if (home->u.run.slab != span || unit < from || unit >= to) {
                return true;
            }
        }
    }
    return false;
}

static const char *check_run(const struct flw_heap *heap, const struct flw_range *range,
                             const struct flw_span *run, struct totals *totals)
{
    const struct flw_run_part *part = &run->u.run, *left = &part->left->u.run;
    bool is_indexed = part->state == FLW_RUN_FREE || part->state == FLW_RUN_DEDICATED ||
                      part->state == FLW_RUN_UNMAPPED;
    totals->indexed += is_indexed;
    totals->deferred += part->state == FLW_RUN_DEFERRED;
    if (part->state == FLW_RUN_LIVE) {
        totals->live_bytes += flw_run_bytes(run);
        if (!is_found(heap, run)) {
            return "a live run's units map to another span";
        }
        if (part->slab != NULL) {
            const struct flw_slab_part *slab = &part->slab->u.slab;
            totals->slots += slab->free_count - (slab->slot_count - slab->carved_count);
        }
    }
    if (is_stale(heap, range, run)) {
        return "a unit leads to a slab that was dissolved";
    }
    if (is_indexed && left->state == part->state && part->state != FLW_RUN_DEDICATED &&
        (part->state == FLW_RUN_UNMAPPED || left->owner == part->owner)) {
        return "two neighbours of one owner were not joined";
    }
    return NULL;
}

/* Check the pages of a run of a range. */
static const char *check_pages(const struct flw_heap *heap, const struct flw_range *range,
                               const struct flw_span *run)
{
    const struct flw_run_part *part = &run->u.run;
    bool is_mapped = part->state != FLW_RUN_UNMAPPED && part->state != FLW_RUN_RESERVED &&
                     part->state != FLW_RUN_BUSY;
    uint64_t end = (uint64_t)part->begin_unit + part->unit_count;
    for (uint64_t page = part->begin_unit / heap->page_units;
         page < flw_div_up(end, heap->page_units) && part->state != FLW_RUN_BUSY; page++) {
        bool has_handle = heap->page_handle[page] != NULL;
        if (has_handle != is_mapped) {
            return is_mapped ? "mapped memory without a handle" : "a handle where none is mapped";
        }
        if (!is_mapped && page >= range->mapped_page_end) {
            break;
        }
    }
    if (part->is_dedicated && part->state != FLW_RUN_BUSY) {
        const struct flw_handle *handle = heap->page_handle[part->begin_unit / heap->page_units];
        if (!is_mapped || handle->begin_unit != part->begin_unit ||
            handle->unit_count != part->unit_count) {
            return "a dedicated run is not all of one handle";
        }
    }
    return NULL;
}

/* Check the range [unit, end) run by run. range: NULL for a segment. */
static const char *check_stretch(const struct flw_heap *heap, const struct flw_range *range,
                                 const struct flw_span *edge, uint64_t unit, uint64_t end,
                                 struct totals *totals)
{
    const struct flw_span *left = edge, *run = edge->u.run.right;
    const char *broken = NULL;
    for (; run != edge && broken == NULL; left = run, run = run->u.run.right) {
        if (run->kind != FLW_SPAN_RUN || run->u.run.begin_unit != unit ||
            run->u.run.unit_count == 0 || run->u.run.left != left) {
            return "the runs do not partition the address space";
        }
        unit += run->u.run.unit_count;
        broken = check_run(heap, range, run, totals);
        if (broken == NULL && range != NULL) {
            broken = check_pages(heap, range, run);
        }
    }
    bool is_covered = unit == end && edge->u.run.left == left;
    return broken != NULL || is_covered ? broken : "the runs do not partition the address space";
}

/* True if the range is in the window, below the next range, on page and cell boundaries. */
static bool is_placed(const struct flw_heap *heap, const struct flw_range *range)
{
    uint64_t grain = flw_max(heap->page_units, FLW_CELL_UNITS);
    uint64_t end = range->begin_unit + range->unit_count;
    return range->begin_unit % grain == 0 && end % grain == 0 &&
           end <= heap->ranges.window_bytes >> FLW_UNIT_LOG2 &&
           range->mapped_page_end * heap->page_units <= end &&
           (range->next == NULL || end <= range->next->begin_unit);
}

static const char *check_runs(const struct flw_heap *heap)
{
    struct totals totals = {0};
    uint64_t indexed = heap->ranges.unmapped.run_count, deferred = 0;
    const char *broken = check_waiting(heap, &deferred);
    for (uint32_t i = 0; i < heap->domain_end; i++) {
        indexed += heap->domains[i]->runs.run_count + heap->domains[i]->dedicated_runs.run_count;
    }
    const struct flw_range *range = heap->source.ops->remaps ? heap->ranges.lowest : NULL;
    for (; range != NULL && broken == NULL; range = range->next) {
        uint64_t end = range->begin_unit + range->unit_count;
        broken = is_placed(heap, range)
                     ? check_stretch(heap, range, range->edge, range->begin_unit, end, &totals)
                     : "a range is not a whole number of pages and cells, or is at the wrong "
                       "address";
    }
    const struct flw_segment *segment = heap->segments.newest;
    for (; segment != NULL && broken == NULL; segment = segment->next) {
        uint64_t begin = segment->begin_unit;
        broken =
            check_stretch(heap, NULL, segment->edge, begin, begin + segment->unit_count, &totals);
    }
    if (broken != NULL) {
        return broken;
    }
    if (totals.indexed != indexed) {
        return "a free run is in no index, or an index holds one that is not free";
    }
    if (totals.deferred != deferred) {
        return "a deferred run is held back by nothing";
    }
    if (totals.slots != counted_slots(heap)) {
        return "the slabs' free slots are not those of the counted batches";
    }
    return totals.live_bytes == heap->live_run_bytes
               ? NULL
               : "live_run_bytes is not the sum of the live runs";
}

static const char *check_handles(const struct flw_heap *heap)
{
    uint64_t bytes = 0, asleep = 0, exported = 0;
    struct flw_handle_walk walk = {NULL, 0};
    for (const struct flw_handle *handle; (handle = flw_handle_next(heap, &walk)) != NULL;) {
        if ((uint64_t)handle->begin_unit + handle->unit_count != walk.page * heap->page_units) {
            return "a page names a handle that begins elsewhere";
        }
        uint64_t own = (uint64_t)handle->unit_count << FLW_UNIT_LOG2;
        bytes += handle->id != 0 ? own : 0;
        asleep += handle->id == 0 ? own : 0;
        exported += handle->is_exported ? own : 0;
        if (handle->id == 0 && !handle->is_asleep) {
            return "a mapped handle was never created";
        }
    }
    if (asleep != atomic_load(&heap->asleep_bytes)) {
        return "asleep_bytes is not the sum of the handles that a wake creates";
    }
    uint64_t idle = 0;
    const struct flw_handle *oldest = NULL;
    for (const struct flw_handle *handle = heap->idle_handles; handle; handle = handle->next) {
        idle += (uint64_t)handle->unit_count << FLW_UNIT_LOG2;
        exported += handle->is_exported ? (uint64_t)handle->unit_count << FLW_UNIT_LOG2 : 0;
        if (handle->prev != oldest) {
            return "the list of idle handles is broken";
        }
        oldest = handle;
    }
    if (idle != heap->idle_bytes || oldest != heap->oldest_idle) {
        return "idle_bytes is not the sum of the idle handles, or the oldest is another";
    }
    if (exported != atomic_load(&heap->exported_bytes)) {
        return "exported_bytes is not the sum of the exported handles";
    }
    return bytes + idle == atomic_load(&heap->reserved_bytes)
               ? NULL
               : "reserved_bytes is not the sum over handles";
}

/* True if searches for empty slabs find all of them. */
static bool finds_empty(const struct flw_slabs *slabs)
{
    for (unsigned c = 0; c < FLW_CLASS_COUNT; c++) {
        const struct flw_span *slab = slabs->empty[c];
        if (flw_class_set_has(&slabs->with_empty, c) != (slab != NULL)) {
            return false;
        }
        for (; slab != NULL; slab = slab->u.slab.empty_next) {
            if (slab->u.slab.class_index != c ||
                slab->u.slab.free_count != slab->u.slab.slot_count) {
                return false;
            }
        }
    }
    return true;
}

static const char *check_batches(const struct flw_heap *heap)
{
    if (!finds_empty(&heap->slabs)) {
        return "a list of empty slabs holds a slab in use, or is filed in the wrong "
               "place";
    }
    for (uint32_t i = 0; i < heap->domain_end; i++) {
        for (unsigned c = 0; c < FLW_CLASS_COUNT; c++) {
            const struct flw_domain *domain = heap->domains[i];
            const struct flw_batch *batch = domain->batches[c].head;
            bool may_have = flw_class_set_has(&domain->with_batches, c) &&
                            flw_domain_set_next(&heap->slabs.holders, i) == i;
            for (; batch != NULL; batch = batch->next) {
                if (!may_have) {
                    return "a listed batch is unknown to its domain";
                }
                for (uint32_t s = 0; s < batch->count; s++) {
                    const struct flw_slot *slot = batch->slots[s];
                    const struct flw_span *slab = flw_slot_span(&heap->map, slot);
                    if ((slot->word & FLW_SLOT_STATE_MASK) != FLW_SLOT_FREE) {
                        return "a batch holds a slot that is not free";
                    }
                    if (slab->kind != FLW_SPAN_SLAB || slab->u.slab.class_index != c) {
                        return "a batch holds a slot of another class";
                    }
                }
                if (batch->count == 0) {
                    return "an empty batch is listed";
                }
            }
        }
    }
    return NULL;
}

const char *flw_heap_broken_invariant(const struct flw_heap *heap)
{
    const char *broken = check_indexes(heap);
    if (broken == NULL) {
        broken = check_standing(heap);
    }
    if (broken == NULL) {
        broken = check_owing(heap);
    }
    if (broken == NULL) {
        broken = check_places(heap);
    }
    if (broken == NULL) {
        broken = check_open_users(heap);
    }
    if (broken == NULL) {
        broken = check_runs(heap);
    }
    if (broken == NULL && heap->source.ops->remaps) {
        broken = check_handles(heap);
    }
    if (broken == NULL && atomic_load(&heap->reserved_bytes) > flw_heap_most_bytes(heap)) {
        broken = "more is reserved than the limit";
    }
    return broken != NULL ? broken : check_batches(heap);
}
