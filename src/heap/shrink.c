/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: taking physical memory out again: unmapping what lies idle, giving handles and segments back
 * to the driver. As in grow.c, the driver is called without the lock.
 */
#include "base/mutant.h"
#include "heap/physical.h"

/* lock. The first handle that lies wholly inside a run at or after `unit`; NULL. */
static struct flw_handle *handle_inside(const struct flw_heap *heap, const struct flw_span *run)
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

/* lock. Cut the handle's stretch out of nobody's run, BUSY. NULL: host memory. */
static struct flw_span *cut_handle(struct flw_heap *heap, struct flw_span *run,
                                   const struct flw_handle *handle)
{
    uint64_t handle_end = (uint64_t)handle->begin_unit + handle->unit_count;
    struct flw_span *middle = run, *rest = NULL;
    flw_run_set_busy(heap, run);
    if (handle_end < flw_run_end(run)) {
        rest = flw_run_split(heap, run, (uint32_t)(handle_end - flw_run_begin(run)));
        if (rest == NULL) {
            flw_run_put_back(heap, run);
            return NULL;
        }
    }
    if (handle->begin_unit > flw_run_begin(run)) {
        middle = flw_run_split(heap, run, (uint32_t)(handle->begin_unit - flw_run_begin(run)));
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

#define UNMAP_BATCH 64

uint64_t flw_heap_unmap_idle(struct flw_heap *heap, uint64_t want_bytes)
{
    struct flw_span *cut[UNMAP_BATCH];
    uint64_t done_bytes = 0;
    struct flw_driver_section section;
    if (!heap->source.ops->remaps || !flw_heap_enter_driver(heap, &section)) {
        return 0;
    }
    for (uint32_t count = 1; done_bytes < want_bytes && count > 0;) {
        uint64_t planned_bytes = 0;
        count = 0;
        flw_lock_acquire(&heap->lock);
        struct flw_span *run =
            heap->domains[FLW_MUTANT(UNMAPS_BUSY_HANDLE) ? heap->domain_end - 1 : FLW_NOBODY]
                ->runs.oldest;
        while (run != NULL && count < UNMAP_BATCH && done_bytes + planned_bytes < want_bytes) {
            struct flw_span *next = run->u.run.age_next;
            struct flw_handle *handle =
                run->u.run.unit_count >= heap->page_units ? handle_inside(heap, run) : NULL;
            struct flw_span *middle = handle != NULL ? cut_handle(heap, run, handle) : NULL;
            if (middle != NULL) {
                planned_bytes += flw_run_bytes(middle);
                cut[count++] = middle;
                /* What was cut off went back to the index at the young end: it is met again. */
                next = next != NULL ? next : heap->domains[FLW_NOBODY]->runs.oldest;
            }
            run = next;
        }
        flw_lock_release(&heap->lock);
        for (uint32_t i = 0; i < count; i++) {
            CUresult result = heap->source.ops->unmap(&heap->source, flw_run_address(heap, cut[i]),
                                                      flw_run_bytes(cut[i]));
            struct flw_handle *handle =
                flw_heap_handle_at(heap, (uint64_t)cut[i]->u.run.begin_unit << FLW_UNIT_LOG2);
            if (result != CUDA_SUCCESS) {
                flw_heap_lose_device(heap, result, "cuMemUnmap");
            }
            flw_lock_acquire(&heap->lock);
            for (uint64_t page = handle->begin_unit / heap->page_units, n = 0;
                 n < handle->unit_count / heap->page_units; n++) {
                heap->page_handle[page + n] = NULL;
            }
            flw_handle_link_idle(heap, handle);
            atomic_fetch_add(&heap->count.remaps, 1);
            done_bytes += flw_run_bytes(cut[i]);
            flw_run_return_unmapped(heap, cut[i]);
            flw_lock_release(&heap->lock);
        }
    }
    flw_heap_leave_driver(heap, &section);
    return done_bytes;
}

/* What was given back; 0: nothing idle. */
static uint64_t release_one_handle(struct flw_heap *heap)
{
    flw_lock_acquire(&heap->lock);
    struct flw_handle *handle = heap->idle_handles;
    for (; handle != NULL && handle->next != NULL; handle = handle->next) {
    }
    if (handle != NULL) {
        flw_handle_unlink_idle(heap, handle);
    }
    flw_lock_release(&heap->lock);
    if (handle == NULL) {
        return 0;
    }
    uint64_t bytes = flw_handle_bytes(handle);
    CUresult result = heap->source.ops->release(&heap->source, handle->id);
    if (result != CUDA_SUCCESS) {
        flw_heap_lose_device(heap, result, "cuMemRelease");
    }
    flw_lock_acquire(&heap->lock);
    if (!FLW_MUTANT(RELEASE_NOT_COUNTED)) {
        flw_heap_lower_reserved(heap, bytes);
    }
    atomic_fetch_add(&heap->count.trims, 1);
    flw_heap_drop_handle(heap, handle);
    flw_lock_release(&heap->lock);
    return bytes;
}

static uint64_t release_one_segment(struct flw_heap *heap)
{
    flw_lock_acquire(&heap->lock);
    struct flw_segment *segment = heap->segments;
    for (; segment != NULL; segment = segment->next) {
        struct flw_span *run =
            flw_page_map_span_at(&heap->map, (uint64_t)segment->begin_unit << FLW_UNIT_LOG2);
        if (run->kind == FLW_SPAN_RUN && run->u.run.state == FLW_RUN_FREE &&
            run->u.run.owner == FLW_NOBODY && run->u.run.unit_count == segment->unit_count) {
            flw_run_unindex(heap, run);
            /* Cleared before the driver may give the addresses to somebody else. */
            heap->map.units[segment->begin_unit] = 0;
            heap->map.units[segment->begin_unit + segment->unit_count - 1] = 0;
            flw_page_map_drop_run(&heap->map, run);
            *segment->link = segment->next;
            if (segment->next != NULL) {
                segment->next->link = segment->link;
            }
            break;
        }
    }
    flw_lock_release(&heap->lock);
    if (segment == NULL) {
        return 0;
    }
    uint64_t bytes = flw_align_up((uint64_t)segment->unit_count << FLW_UNIT_LOG2,
                                  heap->source.granularity_bytes);
    CUresult result = heap->source.ops->give_back(&heap->source, segment->address);
    if (result != CUDA_SUCCESS) {
        flw_heap_lose_device(heap, result, "cuMemFree");
    }
    flw_lock_acquire(&heap->lock);
    flw_heap_lower_reserved(heap, bytes);
    atomic_fetch_add(&heap->count.trims, 1);
    flw_heap_drop_segment(heap, segment);
    flw_lock_release(&heap->lock);
    return bytes;
}

uint64_t flw_heap_release_idle(struct flw_heap *heap, uint64_t keep_bytes)
{
    uint64_t before = atomic_load(&heap->reserved_bytes), released = 0;
    struct flw_driver_section section;
    if (heap->source.ops->remaps && before > keep_bytes && heap->idle_bytes < before - keep_bytes) {
        flw_heap_unmap_idle(heap, before - keep_bytes - heap->idle_bytes);
    }
    if (!flw_heap_enter_driver(heap, &section)) {
        return 0;
    }
    while (atomic_load(&heap->reserved_bytes) > keep_bytes && !flw_heap_is_lost(heap)) {
        uint64_t bytes =
            heap->source.ops->remaps ? release_one_handle(heap) : release_one_segment(heap);
        if (bytes == 0) {
            break;
        }
        released += bytes;
    }
    flw_heap_leave_driver(heap, &section);
    return released;
}
