/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the physical side of a sleep: every mapping is removed, then every handle; runs, spans,
 * pages and hence addresses stay. Each step can be undone until the first handle is released; if
 * the driver refuses that too, the heap is asleep and keeps the memory and contents. Each handle
 * records whether it is mapped. Does not: save contents, or wait for calls; the pool does
 * (pool/extensions/sleep).
 *
 * The pages' handles are walked without the lock: threads that would change them are kept out
 * meanwhile. Lookups read a handle's id, so it changes under the lock. */
#include "heap/physical/physical.h"

#include "heap/order/sync.h"
#include "heap/physical/handle.h"

/* Return the next handle that a sleep releases. */
static struct flw_handle *next_private(const struct flw_heap *heap, struct flw_handle_walk *walk)
{
    struct flw_handle *handle = flw_handle_next(heap, walk);
    while (handle != NULL && handle->is_exported) {
        handle = flw_handle_next(heap, walk);
    }
    return handle;
}

static uint64_t address_of(const struct flw_heap *heap, const struct flw_handle *handle)
{
    return heap->map.base + ((uint64_t)handle->begin_unit << FLW_UNIT_LOG2);
}

static void set_id(struct flw_heap *heap, struct flw_handle *handle, uint64_t id)
{
    flw_lock_acquire(&heap->lock);
    handle->id = id;
    flw_lock_release(&heap->lock);
}

/* The call that stopped a step, and the result. */
struct stop {
    CUresult result;
    const char *call;
};

static const struct stop no_stop = {CUDA_SUCCESS, ""};

static fallow_status status_of(struct flw_heap *heap, const struct stop *stop)
{
    fallow_status status = flw_heap_refuse(heap, stop->result, stop->call);
    return stop->result == CUDA_ERROR_OUT_OF_MEMORY ? FALLOW_OUT_OF_MEMORY : status;
}

/* ---- mappings */

/* Set access on every private handle, in ranges without a gap. */
static struct stop open_all(struct flw_heap *heap)
{
    struct flw_handle_walk walk = {NULL, 0};
    uint64_t begin = 0, end = 0;
    CUresult result = CUDA_SUCCESS;
    struct flw_handle *handle;
    do {
        handle = next_private(heap, &walk);
        uint64_t address = handle != NULL ? address_of(heap, handle) : 0;
        if (handle == NULL || address != end || flw_handle_begins_range(&walk, handle)) {
            if (end > begin) {
                result = heap->source.ops->set_access(&heap->source, begin, end - begin);
            }
            begin = end = address;
        }
        end += handle != NULL ? flw_handle_bytes(handle) : 0;
    } while (handle != NULL && result == CUDA_SUCCESS);
    return (struct stop){result, "cuMemSetAccess"};
}

/* Map unmapped handles, in order, and set access on all. */
static struct stop map_all(struct flw_heap *heap)
{
    struct flw_handle_walk walk = {NULL, 0};
    for (struct flw_handle *handle; (handle = next_private(heap, &walk)) != NULL;) {
        if (!handle->is_mapped) {
            CUresult result = heap->source.ops->map(&heap->source, address_of(heap, handle),
                                                    flw_handle_bytes(handle), handle->id);
            if (result != CUDA_SUCCESS) {
                return (struct stop){result, "cuMemMap"};
            }
            handle->is_mapped = true;
        }
    }
    return open_all(heap);
}

/* Return the next mapped handle, with exported ones or without. */
static struct flw_handle *next_mapped(const struct flw_heap *heap, bool with_exported,
                                      struct flw_handle_walk *walk)
{
    struct flw_handle *handle;
    do {
        handle = with_exported ? flw_handle_next(heap, walk) : next_private(heap, walk);
    } while (handle != NULL && !handle->is_mapped);
    return handle;
}

CUresult flw_heap_unmap_all(struct flw_heap *heap, bool with_exported, bool goes_on)
{
    struct flw_handle *handles[FLW_ROW_MOST], *handle;
    struct flw_row row = {.count = 0};
    CUresult last = CUDA_SUCCESS;
    struct flw_handle_walk walk = {NULL, 0};
    do {
        handle = next_mapped(heap, with_exported, &walk);
        if (handle == NULL || flw_handle_begins_range(&walk, handle) ||
            !flw_row_takes(&row, address_of(heap, handle))) {
            CUresult result = flw_heap_unmap_row(heap, &row, goes_on);
            for (uint32_t i = 0; i < row.count; i++) {
                handles[i]->is_mapped = !row.is_unmapped[i];
            }
            last = result != CUDA_SUCCESS ? result : last;
            row.count = 0;
        }
        if (handle != NULL) {
            handles[row.count] = handle;
            flw_row_add(&row, address_of(heap, handle), flw_handle_bytes(handle));
        }
    } while (handle != NULL && (last == CUDA_SUCCESS || goes_on));
    return last;
}

/* `goes_on`: skip handles that the driver refuses, which stay mapped. */
static struct stop unmap_all(struct flw_heap *heap, bool goes_on)
{
    struct stop stop = {flw_heap_unmap_all(heap, false, goes_on), "cuMemUnmap"};
    (void)status_of(heap, &stop);
    return stop;
}

/* ---- handles */

/* Release unmapped handles. One that the driver keeps stays created, to be mapped by the next
 * wake; if it is the first, nothing has happened yet, and a caller with `goes_back` undoes the
 * sleep. */
static struct stop release_all(struct flw_heap *heap, bool fresh_only, bool goes_back)
{
    struct stop stop = no_stop;
    struct flw_handle_walk walk = {NULL, 0};
    uint64_t released = 0;
    for (struct flw_handle *handle; (handle = next_private(heap, &walk)) != NULL;) {
        if (handle->id == 0 || handle->is_mapped || (fresh_only && !handle->is_fresh)) {
            continue;
        }
        CUresult result = heap->source.ops->release(&heap->source, handle->id);
        if (result == CUDA_SUCCESS) {
            set_id(heap, handle, 0);
            handle->is_fresh = false;
            released += flw_handle_bytes(handle);
            continue;
        }
        stop = (struct stop){result, "cuMemRelease"};
        (void)status_of(heap, &stop);
        if (goes_back && released == 0) {
            return stop;
        }
    }
    flw_lock_acquire(&heap->lock);
    flw_heap_lower_reserved(heap, released);
    flw_lock_release(&heap->lock);
    return no_stop;
}

/* Release idle handles, which hold nothing: one that the driver keeps stays idle. */
static void release_idle(struct flw_heap *heap)
{
    flw_lock_acquire(&heap->lock);
    struct flw_handle *handle = heap->idle_handles, *next;
    flw_lock_release(&heap->lock);
    for (; handle != NULL; handle = next) {
        next = handle->next;
        CUresult result = heap->source.ops->release(&heap->source, handle->id);
        if (flw_heap_refuse(heap, result, "cuMemRelease") != FALLOW_OK) {
            continue;
        }
        flw_lock_acquire(&heap->lock);
        flw_handle_unlink_idle(heap, handle);
        if (handle->is_exported) {
            flw_heap_unmark_exported(heap, handle);
        }
        flw_heap_lower_reserved(heap, flw_handle_bytes(handle));
        flw_heap_drop_handle(heap, handle);
        flw_lock_release(&heap->lock);
    }
}

static struct stop create_all(struct flw_heap *heap)
{
    struct flw_handle_walk walk = {NULL, 0};
    uint64_t id;
    for (struct flw_handle *handle; (handle = next_private(heap, &walk)) != NULL;) {
        if (handle->id == 0) {
            uint32_t types = handle->types;
            CUresult result =
                heap->source.ops->create(&heap->source, flw_handle_bytes(handle), &types, &id);
            if (result != CUDA_SUCCESS) {
                return (struct stop){result, "cuMemCreate"};
            }
            handle->types = types;
            set_id(heap, handle, id);
            handle->is_fresh = true;
        }
    }
    return no_stop;
}

/* ---- sleep and wake */

/* Return the bytes of handles that are not created. */
static uint64_t uncreated_bytes(const struct flw_heap *heap)
{
    struct flw_handle_walk walk = {NULL, 0};
    uint64_t bytes = 0;
    for (struct flw_handle *handle; (handle = next_private(heap, &walk)) != NULL;) {
        bytes += handle->id == 0 ? flw_handle_bytes(handle) : 0;
    }
    return bytes;
}

static void note_asleep(struct flw_heap *heap)
{
    flw_lock_acquire(&heap->lock);
    atomic_store(&heap->asleep_bytes, uncreated_bytes(heap));
    flw_lock_release(&heap->lock);
}

static void set_asleep(struct flw_heap *heap, bool is_asleep)
{
    struct flw_handle_walk walk = {NULL, 0};
    flw_lock_acquire(&heap->lock);
    for (struct flw_handle *handle; (handle = next_private(heap, &walk)) != NULL;) {
        handle->is_asleep = is_asleep;
        handle->is_fresh = false;
    }
    flw_lock_release(&heap->lock);
    note_asleep(heap);
}

/* Return to the awake state; if the driver refuses, stay asleep with everything. */
static fallow_status go_back(struct flw_heap *heap)
{
    struct stop stop = map_all(heap);
    if (status_of(heap, &stop) == FALLOW_OK) {
        return FALLOW_DRIVER; /* no memory was requested */
    }
    (void)unmap_all(heap, true);
    set_asleep(heap, true);
    return FALLOW_ASLEEP;
}

static fallow_status fall_asleep(struct flw_heap *heap)
{
    if (!flw_heap_end_copies(heap)) {
        return FALLOW_DRIVER;
    }
    struct stop stop = unmap_all(heap, false);
    if (stop.result == CUDA_SUCCESS) {
        stop = release_all(heap, false, true);
    }
    if (stop.result != CUDA_SUCCESS) {
        return go_back(heap);
    }
    release_idle(heap);
    set_asleep(heap, true);
    flw_heap_forget_idle(heap);
    return FALLOW_OK;
}

fallow_status flw_heap_sleep(struct flw_heap *heap)
{
    struct flw_driver_section section;
    if (!flw_heap_enter_driver(heap, &section)) {
        return flw_heap_not_entered(heap);
    }
    fallow_status status = fall_asleep(heap);
    flw_heap_leave_driver(heap, &section);
    return flw_heap_is_lost(heap) ? FALLOW_DEVICE_LOST : status;
}

/* Stay asleep as before the wake, with mappings that cannot be unmapped. */
static void sleep_on(struct flw_heap *heap)
{
    (void)unmap_all(heap, true);
    (void)release_all(heap, true, false);
    note_asleep(heap);
}

/* Return how much the handles that could not be created exceed the device's free memory. */
static uint64_t missing_bytes(struct flw_heap *heap)
{
    size_t free_bytes = 0, total_bytes = 0;
    uint64_t needed = uncreated_bytes(heap);
    flw_heap_count_call(heap);
    return heap->driver->cuMemGetInfo_v2(&free_bytes, &total_bytes) == CUDA_SUCCESS &&
                   free_bytes < needed
               ? needed - free_bytes
               : needed;
}

static fallow_status wake_up(struct flw_heap *heap, uint64_t *out_missing_bytes)
{
    uint64_t needed = uncreated_bytes(heap);
    flw_lock_acquire(&heap->lock);
    flw_heap_raise_reserved(heap, needed);
    flw_lock_release(&heap->lock);
    struct stop stop = create_all(heap);
    if (stop.result == CUDA_SUCCESS) {
        stop = map_all(heap);
    }
    flw_lock_acquire(&heap->lock);
    flw_heap_lower_reserved(heap, uncreated_bytes(heap)); /* requested but not created */
    flw_heap_note_peak(heap);
    flw_lock_release(&heap->lock);
    *out_missing_bytes = stop.result == CUDA_ERROR_OUT_OF_MEMORY ? missing_bytes(heap) : 0;
    if (stop.result != CUDA_SUCCESS) {
        sleep_on(heap);
    } else {
        flw_heap_forget_refusal(heap);
    }
    return status_of(heap, &stop);
}

fallow_status flw_heap_wake(struct flw_heap *heap, uint64_t *out_missing_bytes)
{
    struct flw_driver_section section;
    if (!flw_heap_enter_driver(heap, &section)) {
        return flw_heap_not_entered(heap);
    }
    fallow_status status = wake_up(heap, out_missing_bytes);
    flw_heap_leave_driver(heap, &section);
    return flw_heap_is_lost(heap) ? FALLOW_DEVICE_LOST : status;
}

fallow_status flw_heap_end_wake(struct flw_heap *heap, bool is_awake)
{
    struct flw_driver_section section;
    if (is_awake) {
        set_asleep(heap, false);
        return flw_heap_is_lost(heap) ? FALLOW_DEVICE_LOST : FALLOW_OK;
    }
    note_asleep(heap);
    if (flw_heap_enter_driver(heap, &section)) {
        if (flw_heap_end_copies(heap)) {
            sleep_on(heap);
        }
        flw_heap_leave_driver(heap, &section);
    }
    return flw_heap_is_lost(heap) ? FALLOW_DEVICE_LOST : FALLOW_OK;
}

/* ---- all mapped memory */

CUresult flw_heap_each_stretch(struct flw_heap *heap, flw_heap_stretch_function set,
                               flw_heap_stretch_function undo, const void *context)
{
    CUresult result = CUDA_SUCCESS;
    struct flw_handle_walk walk = {NULL, 0}, again = {NULL, 0};
    uint64_t done = 0; /* number of handles */
    for (struct flw_handle *handle;
         result == CUDA_SUCCESS && (handle = flw_handle_next(heap, &walk)) != NULL;) {
        if (handle->is_mapped) {
            result = set(heap, address_of(heap, handle), flw_handle_bytes(handle), context);
        }
        done += result == CUDA_SUCCESS;
    }
    for (struct flw_handle *handle; result != CUDA_SUCCESS && undo != NULL && done > 0 &&
                                    (handle = flw_handle_next(heap, &again)) != NULL;
         done--) {
        if (handle->is_mapped) {
            (void)undo(heap, address_of(heap, handle), flw_handle_bytes(handle), context);
        }
    }
    return result;
}
