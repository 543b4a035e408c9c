/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the physical side of a sleep: every mapping goes, then every handle; runs, spans and pages
 * stay as they are, so that addresses do. Each step has its way back until the first handle is given
 * up. Does not: save contents, or know who is inside; the pool does (pool/sleep.c).
 *
 * The pages' handles are walked without the lock: whoever would change them is kept out meanwhile. A
 * handle's id is read by look-ups, so it changes under the lock.
 */
#include "heap/physical.h"

/* The next handle from *page on, in address order; NULL: none. */
static struct flw_handle *next_handle(const struct flw_heap *heap, uint64_t *page)
{
    while (*page < heap->mapped_page_end) {
        struct flw_handle *handle = heap->page_handle[*page];
        *page += handle != NULL ? handle->unit_count / heap->page_units : 1;
        if (handle != NULL) {
            return handle;
        }
    }
    return NULL;
}

/* The same of those that a sleep takes. */
static struct flw_handle *next_private(const struct flw_heap *heap, uint64_t *page)
{
    struct flw_handle *handle = next_handle(heap, page);
    while (handle != NULL && handle->is_exported) {
        handle = next_handle(heap, page);
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

/* What stops a step: the call and its answer. */
struct stop {
    CUresult result;
    const char *call;
};

static fallow_status status_of(struct flw_heap *heap, const struct stop *stop)
{
    flw_heap_note_error(heap, stop->result, stop->call);
    return flw_heap_is_lost(heap)                     ? FALLOW_DEVICE_LOST
           : stop->result == CUDA_ERROR_OUT_OF_MEMORY ? FALLOW_OUT_OF_MEMORY
                                                      : FALLOW_DRIVER;
}

/* The way back was refused: neither asleep nor awake. */
static void lose(struct flw_heap *heap, CUresult result, const char *call)
{
    if (result != CUDA_SUCCESS) {
        flw_heap_lose_device(heap, result, call);
    }
}

/* ---- mappings */

/* Map the handles before page `end`, in order, and make them accessible. *out_end: the page that was
 * reached, where it failed. */
static struct stop map_until(struct flw_heap *heap, uint64_t end, uint64_t *out_end)
{
    struct flw_source *source = &heap->source;
    uint64_t page = 0, begin = 0, at = 0; /* a stretch without a gap: [begin, at) */
    struct stop stop = {CUDA_SUCCESS, "cuMemMap"};
    *out_end = 0;
    for (struct flw_handle *handle; (handle = next_private(heap, &page)) != NULL && page <= end;) {
        uint64_t address = address_of(heap, handle);
        if (at != address) {
            if (at > begin) {
                stop.call = "cuMemSetAccess";
                stop.result = source->ops->set_access(source, begin, at - begin);
            }
            begin = at = address;
        }
        if (stop.result == CUDA_SUCCESS) {
            stop.call = "cuMemMap";
            stop.result = source->ops->map(source, address, flw_handle_bytes(handle), handle->id);
        }
        if (stop.result != CUDA_SUCCESS) {
            return stop;
        }
        at += flw_handle_bytes(handle);
        *out_end = page;
    }
    if (at > begin) {
        stop.call = "cuMemSetAccess";
        stop.result = source->ops->set_access(source, begin, at - begin);
    }
    return stop;
}

static struct stop unmap_until(struct flw_heap *heap, uint64_t end, uint64_t *out_end)
{
    struct flw_source *source = &heap->source;
    uint64_t page = 0;
    *out_end = 0;
    for (struct flw_handle *handle; (handle = next_private(heap, &page)) != NULL && page <= end;) {
        CUresult result =
            source->ops->unmap(source, address_of(heap, handle), flw_handle_bytes(handle));
        if (result != CUDA_SUCCESS) {
            return (struct stop){result, "cuMemUnmap"};
        }
        *out_end = page;
    }
    return (struct stop){CUDA_SUCCESS, ""};
}

static void map_back(struct flw_heap *heap, uint64_t end)
{
    uint64_t reached;
    struct stop stop = map_until(heap, end, &reached);
    lose(heap, stop.result, stop.call);
}

static void unmap_back(struct flw_heap *heap, uint64_t end)
{
    uint64_t reached;
    struct stop stop = unmap_until(heap, end, &reached);
    lose(heap, stop.result, stop.call);
}

/* ---- handles */

/* Give up the handles before page `end`. One that the driver keeps stays created, to be mapped again
 * by the next wake; but if it is the first, nothing has happened yet and the caller goes back. */
static struct stop release_until(struct flw_heap *heap, uint64_t end, bool goes_back)
{
    struct stop stop = {CUDA_SUCCESS, "cuMemRelease"};
    uint64_t page = 0, released = 0;
    for (struct flw_handle *handle; (handle = next_private(heap, &page)) != NULL && page <= end;) {
        if (handle->id == 0) {
            continue;
        }
        CUresult result = heap->source.ops->release(&heap->source, handle->id);
        if (result == CUDA_SUCCESS) {
            set_id(heap, handle, 0);
            released += flw_handle_bytes(handle);
        } else {
            stop.result = result;
            flw_heap_note_error(heap, result, "cuMemRelease");
            if (goes_back && released == 0) {
                return stop;
            }
        }
    }
    flw_lock_acquire(&heap->lock);
    flw_heap_lower_reserved(heap, released);
    flw_lock_release(&heap->lock);
    if (released > 0) {
        stop.result = CUDA_SUCCESS;
    }
    return stop;
}

/* They hold nothing: one that the driver keeps is idle as before. */
static void release_idle(struct flw_heap *heap)
{
    flw_lock_acquire(&heap->lock);
    struct flw_handle *handle = heap->idle_handles, *next;
    flw_lock_release(&heap->lock);
    for (; handle != NULL; handle = next) {
        next = handle->next;
        CUresult result = heap->source.ops->release(&heap->source, handle->id);
        if (result != CUDA_SUCCESS) {
            flw_heap_note_error(heap, result, "cuMemRelease");
            continue;
        }
        flw_lock_acquire(&heap->lock);
        flw_handle_unlink_idle(heap, handle);
        flw_heap_lower_reserved(heap, flw_handle_bytes(handle));
        flw_heap_drop_handle(heap, handle);
        flw_lock_release(&heap->lock);
    }
}

static struct stop create_all(struct flw_heap *heap, uint64_t *out_end)
{
    uint64_t page = 0, id;
    *out_end = 0;
    for (struct flw_handle *handle; (handle = next_private(heap, &page)) != NULL;) {
        if (handle->id == 0) {
            uint32_t types = handle->types;
            CUresult result =
                heap->source.ops->create(&heap->source, flw_handle_bytes(handle), &types, &id);
            if (result != CUDA_SUCCESS) {
                return (struct stop){result, "cuMemCreate"};
            }
            handle->types = types;
            set_id(heap, handle, id);
        }
        *out_end = page;
    }
    return (struct stop){CUDA_SUCCESS, ""};
}

/* ---- the two ways */

static void set_asleep(struct flw_heap *heap, bool is_asleep)
{
    uint64_t page = 0, bytes = 0;
    flw_lock_acquire(&heap->lock);
    for (struct flw_handle *handle; (handle = next_private(heap, &page)) != NULL;) {
        handle->is_asleep = is_asleep;
        handle->is_mapped = !is_asleep;
        bytes += is_asleep ? flw_handle_bytes(handle) : 0;
    }
    atomic_store(&heap->asleep_bytes, bytes);
    flw_lock_release(&heap->lock);
}

static fallow_status fall_asleep(struct flw_heap *heap)
{
    uint64_t reached;
    struct stop stop = unmap_until(heap, heap->mapped_page_end, &reached);
    if (stop.result == CUDA_SUCCESS) {
        stop = release_until(heap, heap->mapped_page_end, true);
    }
    if (stop.result != CUDA_SUCCESS) {
        map_back(heap, reached);
        (void)status_of(heap, &stop);
        return FALLOW_DRIVER; /* no memory was asked for */
    }
    release_idle(heap);
    set_asleep(heap, true);
    flw_heap_forget_idle(heap);
    return FALLOW_OK;
}

fallow_status flw_heap_sleep(struct flw_heap *heap)
{
    struct flw_driver_section section;
    fallow_status status = FALLOW_DEVICE_LOST;
    if (flw_heap_enter_driver(heap, &section)) {
        status = fall_asleep(heap);
        flw_heap_leave_driver(heap, &section);
    }
    return flw_heap_is_lost(heap) ? FALLOW_DEVICE_LOST : status;
}

/* What is to be created. */
static uint64_t missing_bytes(const struct flw_heap *heap)
{
    uint64_t page = 0, bytes = 0;
    for (struct flw_handle *handle; (handle = next_private(heap, &page)) != NULL;) {
        bytes += handle->id == 0 ? flw_handle_bytes(handle) : 0;
    }
    return bytes;
}

static fallow_status wake_up(struct flw_heap *heap)
{
    uint64_t created, mapped = 0, missing = missing_bytes(heap);
    flw_lock_acquire(&heap->lock);
    flw_heap_raise_reserved(heap, missing);
    flw_lock_release(&heap->lock);
    struct stop stop = create_all(heap, &created);
    if (stop.result == CUDA_SUCCESS) {
        stop = map_until(heap, heap->mapped_page_end, &mapped);
    }
    flw_lock_acquire(&heap->lock);
    flw_heap_lower_reserved(heap, missing_bytes(heap)); /* what was not given after all */
    flw_heap_note_peak(heap);
    flw_lock_release(&heap->lock);
    if (stop.result == CUDA_SUCCESS) {
        return FALLOW_OK;
    }
    unmap_back(heap, mapped);
    (void)release_until(heap, created, false);
    return status_of(heap, &stop);
}

fallow_status flw_heap_wake(struct flw_heap *heap)
{
    struct flw_driver_section section;
    fallow_status status = FALLOW_DEVICE_LOST;
    if (flw_heap_enter_driver(heap, &section)) {
        status = wake_up(heap);
        flw_heap_leave_driver(heap, &section);
    }
    return flw_heap_is_lost(heap) ? FALLOW_DEVICE_LOST : status;
}

fallow_status flw_heap_end_wake(struct flw_heap *heap, bool is_awake)
{
    struct flw_driver_section section;
    if (is_awake) {
        set_asleep(heap, false);
    } else if (flw_heap_enter_driver(heap, &section)) {
        unmap_back(heap, heap->mapped_page_end);
        (void)release_until(heap, heap->mapped_page_end, false);
        flw_heap_leave_driver(heap, &section);
    }
    return flw_heap_is_lost(heap) ? FALLOW_DEVICE_LOST : FALLOW_OK;
}

/* ---- all that is mapped */

CUresult flw_heap_each_stretch(struct flw_heap *heap, flw_heap_stretch_function set,
                               flw_heap_stretch_function undo, const void *context)
{
    CUresult result = CUDA_SUCCESS;
    uint64_t page = 0, end = 0; /* what was done lies before end */
    for (struct flw_handle *handle;
         result == CUDA_SUCCESS && (handle = next_handle(heap, &page)) != NULL;) {
        if (!handle->is_asleep) {
            result = set(heap, address_of(heap, handle), flw_handle_bytes(handle), context);
        }
        end = result == CUDA_SUCCESS ? page : end;
    }
    page = 0;
    for (struct flw_handle *handle; result != CUDA_SUCCESS && undo != NULL &&
                                    (handle = next_handle(heap, &page)) != NULL && page <= end;) {
        if (!handle->is_asleep) {
            lose(heap, undo(heap, address_of(heap, handle), flw_handle_bytes(handle), context),
                 "cuMemSetAccess");
        }
    }
    return result;
}
