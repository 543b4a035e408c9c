/* SPDX-License-Identifier: Apache-2.0 */
#include "heap/physical/handle.h"

#include <string.h>

#include "heap/physical/physical.h"
#include "heap/space/run.h"

struct flw_handle *flw_heap_handle_at(const struct flw_heap *heap, uint64_t offset)
{
    return heap->page_handle == NULL ? NULL
                                     : heap->page_handle[offset / heap->source.granularity_bytes];
}

struct flw_handle *flw_handle_next(const struct flw_heap *heap, struct flw_handle_walk *walk)
{
    const struct flw_range *range = walk->range != NULL ? walk->range : heap->ranges.lowest;
    for (; range != NULL; range = range->next) {
        walk->page = range == walk->range ? walk->page : range->begin_unit / heap->page_units;
        walk->range = range;
        while (walk->page < range->mapped_page_end) {
            struct flw_handle *handle = heap->page_handle[walk->page];
            walk->page += handle != NULL ? handle->unit_count / heap->page_units : 1;
            if (handle != NULL) {
                return handle;
            }
        }
    }
    return NULL;
}

struct flw_handle *flw_handle_inside(const struct flw_heap *heap, const struct flw_span *run)
{
    uint64_t page = flw_div_up(flw_run_begin(run), heap->page_units);
    while ((page + 1) * heap->page_units <= flw_run_end(run)) {
        struct flw_handle *handle = heap->page_handle[page];
        uint64_t handle_end =
            handle == NULL ? 0 : (uint64_t)handle->begin_unit + handle->unit_count;
        if (handle != NULL && handle->begin_unit >= flw_run_begin(run) &&
            handle_end <= flw_run_end(run)) {
            return handle;
        }
        page = handle != NULL ? handle_end / heap->page_units : page + 1;
    }
    return NULL;
}

void flw_handle_detach(struct flw_heap *heap, struct flw_handle *handle)
{
    uint64_t page = handle->begin_unit / heap->page_units;
    uint64_t end = page + handle->unit_count / heap->page_units;
    for (; page < end; page++) {
        heap->page_handle[page] = NULL;
    }
    handle->is_mapped = false;
}

/* ---- bytes */

void flw_heap_raise_reserved(struct flw_heap *heap, uint64_t bytes)
{
    uint64_t now = atomic_load(&heap->reserved_bytes) + bytes;
    atomic_store(&heap->reserved_bytes, now);
    FLW_ASSERT(now <= flw_heap_most_bytes(heap));
}

void flw_heap_set_limit(struct flw_heap *heap, uint64_t limit_bytes)
{
    flw_lock_acquire(&heap->lock);
    uint64_t held = atomic_load(&heap->reserved_bytes) + atomic_load(&heap->asleep_bytes);
    atomic_store(&heap->limit_bytes, limit_bytes);
    heap->lowered_from_bytes = held > limit_bytes ? held : 0;
    flw_lock_release(&heap->lock);
}

void flw_heap_note_peak(struct flw_heap *heap)
{
    uint64_t now = atomic_load(&heap->reserved_bytes);
    if (now > atomic_load(&heap->peak_reserved_bytes)) {
        atomic_store(&heap->peak_reserved_bytes, now);
    }
}

void flw_heap_lower_reserved(struct flw_heap *heap, uint64_t bytes)
{
    atomic_store(&heap->reserved_bytes, atomic_load(&heap->reserved_bytes) - bytes);
}

/* ---- lists */

void flw_handle_unlink_idle(struct flw_heap *heap, struct flw_handle *handle)
{
    *(handle->prev != NULL ? &handle->prev->next : &heap->idle_handles) = handle->next;
    *(handle->next != NULL ? &handle->next->prev : &heap->oldest_idle) = handle->prev;
    heap->idle_bytes -= flw_handle_bytes(handle);
}

void flw_handle_link_idle(struct flw_heap *heap, struct flw_handle *handle)
{
    handle->is_mapped = false;
    handle->prev = NULL;
    handle->next = heap->idle_handles;
    *(handle->next != NULL ? &handle->next->prev : &heap->oldest_idle) = handle;
    heap->idle_handles = handle;
    heap->idle_bytes += flw_handle_bytes(handle);
}

void flw_segment_link(struct flw_heap *heap, struct flw_segment *segment, struct flw_span *run)
{
    /* In context order the map identifies the pool's addresses: no unit of a segment is 0. */
    if (heap->context_order != NULL) {
        flw_page_map_set_units(&heap->map, segment->begin_unit, segment->unit_count, run);
    }
    segment->next = heap->segments.newest;
    segment->link = &heap->segments.newest;
    if (segment->next != NULL) {
        segment->next->link = &segment->next;
    }
    heap->segments.newest = segment;
}

void flw_segment_unlink(struct flw_heap *heap, struct flw_segment *segment)
{
    if (heap->context_order != NULL) {
        flw_page_map_set_units(&heap->map, segment->begin_unit, segment->unit_count, NULL);
    }
    if (heap->segments.next_to_release == segment) {
        heap->segments.next_to_release = segment->next;
    }
    *segment->link = segment->next;
    if (segment->next != NULL) {
        segment->next->link = segment->link;
    }
}

/* ---- memory that can only be unmapped */

struct flw_domain *flw_heap_unmap_only(struct flw_heap *heap)
{
    if (heap->unmap_only ==
        NULL) { /* always complete, and never completed itself, so no domain gets the memory */
        heap->unmap_only = flw_domain_create(heap, &flw_order_no_stream, NULL, NULL, 0);
        if (heap->unmap_only != NULL) {
            heap->unmap_only->is_known = true;
            heap->unmap_only->is_retired = true;
            heap->unmap_only->seq++;
        }
    }
    return heap->unmap_only;
}

bool flw_heap_mark_exported(struct flw_heap *heap, struct flw_handle *handle)
{
    if (flw_heap_unmap_only(heap) == NULL) {
        return false;
    }
    if (!handle->is_exported) {
        handle->is_exported = true;
        atomic_fetch_add(&heap->exported_bytes, flw_handle_bytes(handle));
    }
    return true;
}

void flw_heap_unmark_exported(struct flw_heap *heap, struct flw_handle *handle)
{
    handle->is_exported = false;
    atomic_fetch_sub(&heap->exported_bytes, flw_handle_bytes(handle));
}

/* ---- adjacent mappings */

CUresult flw_heap_unmap_row(struct flw_heap *heap, struct flw_row *row, bool goes_on)
{
    CUresult last = CUDA_SUCCESS;
    uint64_t address = row->address;
    memset(row->is_unmapped, 0, sizeof row->is_unmapped);
    for (uint32_t at = 0, done; at < row->count;) {
        CUresult result =
            flw_source_unmap_all(&heap->source, address, row->bytes + at, row->count - at, &done);
        last = result != CUDA_SUCCESS ? result : last;
        for (uint32_t i = 0; i < done; i++) {
            row->is_unmapped[at] = true;
            address += row->bytes[at++];
        }
        if (result != CUDA_SUCCESS) {
            if (!goes_on || !flw_source_is_refused(result)) {
                break;
            }
            address += row->bytes[at++]; /* the one that was refused */
        }
    }
    return last;
}

/* ---- refused requests */

bool flw_heap_refuses(struct flw_heap *heap, uint64_t bytes)
{
    flw_lock_acquire(&heap->lock);
    bool is_refused = flw_refusal_covers(&heap->refused, bytes);
    flw_lock_release(&heap->lock);
    return is_refused;
}

bool flw_heap_spares(struct flw_heap *heap, uint64_t bytes)
{
    flw_lock_acquire(&heap->lock);
    bool is_spared = flw_refusal_spares(&heap->refused, bytes);
    flw_lock_release(&heap->lock);
    return is_spared;
}

void flw_heap_forget_refusal(struct flw_heap *heap)
{
    flw_lock_acquire(&heap->lock);
    heap->refused = (struct flw_refused_growth){.is_refused = false};
    flw_lock_release(&heap->lock);
}
