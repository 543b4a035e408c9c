/* SPDX-License-Identifier: Apache-2.0 */
#include "heap/physical/segment.h"

#include "heap/order/sync.h"
#include "heap/physical/handle.h"
#include "heap/physical/physical.h"
#include "heap/physical/place.h"
#include "heap/space/run.h"

/* True if a segment is idle as a whole, or unmap-only. Heap lock held. */
static bool is_idle_segment(const struct flw_heap *heap, const struct flw_segment *segment)
{
    const struct flw_span *run = segment->edge->u.run.right;
    bool is_unmap_only = heap->unmap_only != NULL && run->u.run.state == FLW_RUN_FREE &&
                         run->u.run.owner == heap->unmap_only->index;
    return is_unmap_only ||
           flw_run_is_idle_until(heap, run, segment->begin_unit + (uint64_t)segment->unit_count);
}

/* Return the next idle segment after the last search; NULL: none. Heap lock held. */
static struct flw_segment *next_idle_segment(struct flw_heap *heap)
{
    struct flw_segment *segment = heap->segments.next_to_release;
    while (segment != NULL && !is_idle_segment(heap, segment)) {
        segment = segment->next;
    }
    heap->segments.next_to_release = segment;
    return segment;
}

/* Take the run of an idle segment out of the index. Returns NULL if host memory runs out. Heap
 * lock held. */
static struct flw_span *take_idle_segment(struct flw_heap *heap, const struct flw_segment *segment)
{
    struct flw_span *run = segment->edge->u.run.right;
    uint64_t begin = segment->begin_unit, end = begin + segment->unit_count;
    if (run->u.run.unit_count == segment->unit_count) {
        flw_run_set_busy(heap, run);
        return run;
    }
    return heap->multi_stream == NULL ? NULL : flw_run_cut_shared(heap, run, begin, end);
}

/* Release an unlinked segment (the one run is BUSY); return the bytes counted for it. If the
 * driver refuses, link the segment again with the run as free as before, and return 0. Makes
 * driver calls. */
static uint64_t give_segment_back(struct flw_heap *heap, struct flw_segment *segment,
                                  struct flw_span *run)
{
    uint64_t bytes = segment->bytes;
    CUresult result = heap->source.ops->release_segment(&heap->source, segment->address);
    bool is_taken = flw_heap_refuse(heap, result, "cuMemFree") == FALLOW_OK;
    flw_lock_acquire(&heap->lock);
    if (is_taken) {
        flw_heap_lower_reserved(heap, bytes);
        atomic_fetch_add(&heap->count.trims, 1);
        flw_page_map_drop_run(&heap->map, run);
        flw_page_map_drop_run(&heap->map, segment->edge);
        flw_heap_drop_segment(heap, segment);
    } else {
        flw_segment_link(heap, segment, run);
        flw_run_put_back(heap, run);
    }
    flw_lock_release(&heap->lock);
    return is_taken ? bytes : 0;
}

uint64_t flw_segment_release_one(struct flw_heap *heap, uint64_t until_ns, bool *is_idle)
{
    struct flw_segment *segment;
    struct flw_span *run = NULL;
    flw_lock_acquire(&heap->lock);
    bool has_any = next_idle_segment(heap) != NULL;
    flw_lock_release(&heap->lock);
    if (!has_any || (!*is_idle && !flw_heap_await_idle(heap, until_ns))) {
        return 0;
    }
    *is_idle = until_ns != 0; /* other threads may submit work before the next release */
    flw_lock_acquire(&heap->lock);
    while (run == NULL && (segment = next_idle_segment(heap)) != NULL) {
        heap->segments.next_to_release = segment->next;
        run = take_idle_segment(heap, segment);
    }
    if (run != NULL) {
        flw_segment_unlink(heap, segment);
    }
    flw_lock_release(&heap->lock);
    return run == NULL ? 0 : give_segment_back(heap, segment, run);
}

bool flw_heap_has_idle_segment(struct flw_heap *heap)
{
    flw_lock_acquire(&heap->lock);
    heap->segments.next_to_release = heap->segments.newest;
    bool has_any = next_idle_segment(heap) != NULL;
    flw_lock_release(&heap->lock);
    return has_any;
}

/* Turn a LIVE dedicated run into free, unowned memory that is set aside; return the segment. Heap
 * lock held. */
static struct flw_segment *make_unmap_only(struct flw_heap *heap, struct flw_span *run)
{
    struct flw_segment *segment = heap->segments.newest;
    while (segment->begin_unit != run->u.run.begin_unit) {
        segment = segment->next;
    }
    heap->live_run_bytes -= flw_run_bytes(run);
    flw_slot_set_word(flw_span_slot(&heap->map, run, 0), 0);
    run->u.run.state = FLW_RUN_BUSY;
    run->u.run.owner = heap->unmap_only->index;
    run->u.run.seq = flw_domain_free_seq(heap->unmap_only);
    return segment;
}

bool flw_heap_evict(struct flw_heap *heap, struct flw_span *run)
{
    struct flw_driver_section section;
    bool is_inside = flw_heap_enter_driver(heap, &section);
    flw_lock_acquire(&heap->lock);
    struct flw_segment *segment = make_unmap_only(heap, run);
    if (is_inside) {
        flw_segment_unlink(heap, segment);
    } else {
        flw_run_put_back(heap, run);
    }
    flw_lock_release(&heap->lock);
    if (is_inside) {
        (void)flw_heap_await_idle(heap, UINT64_MAX);
        (void)give_segment_back(heap, segment, run);
        flw_heap_leave_driver(heap, &section);
    }
    return !flw_heap_is_lost(heap);
}
