/* SPDX-License-Identifier: Apache-2.0 */
#include "heap/state/state.h"

/* ---- objects: recycled within their kind */

#define DEFINE_OBJECT(name, unused)                                             \
    struct flw_##name *flw_heap_new_##name(struct flw_heap *heap)               \
    {                                                                           \
        struct flw_##name *object = heap->objects.unused;                       \
        if (object != NULL) {                                                   \
            heap->objects.unused = object->next;                                \
        } else {                                                                \
            object = flw_meta_extend(&heap->objects.meta, sizeof *object, 16);  \
        }                                                                       \
        return object;                                                          \
    }                                                                           \
    void flw_heap_drop_##name(struct flw_heap *heap, struct flw_##name *object) \
    {                                                                           \
        object->next = heap->objects.unused;                                    \
        heap->objects.unused = object;                                          \
    }

DEFINE_OBJECT(batch, unused_batches)
DEFINE_OBJECT(deferred, unused_deferred)
DEFINE_OBJECT(handle, unused_handles)
DEFINE_OBJECT(segment, unused_segments)
#undef DEFINE_OBJECT

/* ---- fences and their events */

struct flw_fence *flw_fence_new(struct flw_heap *heap, CUcontext context, uint64_t context_id)
{
    struct flw_fence **link = &heap->objects.unused_fences;
    for (; *link != NULL; link = &(*link)->next) {
        if ((*link)->context == context && (*link)->context_id == context_id) {
            struct flw_fence *fence = *link;
            *link = fence->next;
            return fence;
        }
    }
    struct flw_fence *fence = flw_meta_extend(&heap->objects.meta, sizeof *fence, 16);
    if (fence != NULL) {
        *fence = (struct flw_fence){
            .context = context, .context_id = context_id, .older_made = heap->objects.newest_fence};
        heap->objects.newest_fence = fence;
    }
    return fence;
}

void flw_fence_drop(struct flw_heap *heap, struct flw_fence *fence)
{
    for (struct flw_fence *other; FLW_UNLIKELY((other = fence->others) != NULL);) {
        fence->others = other->next;
        other->next = heap->objects.unused_fences;
        heap->objects.unused_fences = other;
    }
    fence->is_unlinked = false;
    fence->next = heap->objects.unused_fences;
    heap->objects.unused_fences = fence;
}

CUresult flw_fence_make_event(struct flw_heap *heap, struct flw_fence *fence)
{
    if (fence->event != NULL) {
        return CUDA_SUCCESS;
    }
    flw_heap_count_call(heap);
    CUresult result = heap->driver->cuEventCreate(&fence->event, CU_EVENT_DISABLE_TIMING);
    if (result != CUDA_SUCCESS) {
        fence->event = NULL;
    }
    return result == CUDA_ERROR_OUT_OF_MEMORY ? CUDA_ERROR_NOT_READY : result;
}

#define SPARE_EVENTS 15

void flw_fence_make_spares(struct flw_heap *heap)
{
    struct flw_fence *spares[SPARE_EVENTS];
    unsigned count = 0;
    bool is_made = true;
    flw_lock_acquire(&heap->lock);
    unsigned want =
        heap->objects.own_events < SPARE_EVENTS ? heap->objects.own_events : SPARE_EVENTS;
    while (count < want && (spares[count] = flw_fence_new(heap, heap->context, 0)) != NULL) {
        count++;
    }
    flw_lock_release(&heap->lock);
    for (unsigned i = 0; i < count && is_made; i++) {
        is_made = flw_fence_make_event(heap, spares[i]) == CUDA_SUCCESS;
    }
    flw_lock_acquire(&heap->lock);
    heap->objects.own_events += 1 + count;
    while (count > 0) {
        flw_fence_drop(heap, spares[--count]);
    }
    flw_lock_release(&heap->lock);
}

/* ---- driver calls */

CUresult flw_heap_enter_parts(struct flw_heap *heap, struct flw_driver_section *section,
                              CUcontext context, unsigned parts)
{
    FLW_ASSERT(flw_lock_none_held());
    return flw_section_open(section, heap->driver, context, (enum flw_section_parts)parts,
                            &heap->count.driver_calls);
}

CUresult flw_heap_enter_context(struct flw_heap *heap, struct flw_driver_section *section,
                                CUcontext context)
{
    return flw_heap_enter_parts(heap, section, context, FLW_SECTION_BOTH);
}

bool flw_heap_enter_instead(struct flw_heap *heap, struct flw_driver_section *section,
                            CUcontext context, CUresult result)
{
    return flw_result_is_gone(result) &&
           flw_section_open_elsewhere(section, heap->driver, context, &heap->count.driver_calls);
}

static bool enter_own(struct flw_heap *heap, struct flw_driver_section *section, unsigned parts)
{
    if (flw_heap_is_lost(heap)) {
        return false;
    }
    CUresult result = flw_heap_enter_parts(heap, section, heap->context, parts);
    if (result != CUDA_SUCCESS) {
        (void)flw_heap_refuse(heap, result, section->refused);
    }
    return result == CUDA_SUCCESS;
}

bool flw_heap_enter_driver(struct flw_heap *heap, struct flw_driver_section *section)
{
    return enter_own(heap, section, FLW_SECTION_BOTH);
}

bool flw_heap_enter_mode(struct flw_heap *heap, struct flw_driver_section *section)
{
    return enter_own(heap, section, FLW_SECTION_MODE);
}

void flw_heap_hold_driver(struct flw_heap *heap, struct flw_driver_section *section)
{
    flw_section_hold(section, heap->driver, heap->context, &heap->count.driver_calls);
}

void flw_heap_leave_driver(struct flw_heap *heap, struct flw_driver_section *section)
{
    FLW_ASSERT(flw_lock_none_held());
    bool is_own = section->context == heap->context;
    CUresult result = flw_section_close(section);
    if (result != CUDA_SUCCESS && is_own) {
        (void)flw_heap_refuse(heap, result, section->refused);
    }
}

bool flw_heap_has_context(struct flw_heap *heap)
{
    unsigned long long id = 0;
    if (heap->context_id == 0 || flw_heap_is_lost(heap)) {
        return !flw_heap_is_lost(heap);
    }
    flw_heap_count_call(heap);
    CUresult result = heap->driver->cuCtxGetId(heap->context, &id);
    if (result == CUDA_SUCCESS && id != heap->context_id) {
        result = CUDA_ERROR_CONTEXT_IS_DESTROYED;
    }
    return flw_heap_refuse(heap, result, "cuCtxGetId") != FALLOW_DEVICE_LOST;
}

fallow_status flw_heap_refuse(struct flw_heap *heap, CUresult result, const char *call)
{
    fallow_status status = flw_answer_status((int)result);
    if (status == FALLOW_DEVICE_LOST) {
        flw_heap_lose_device(heap, result, call);
    } else if (status != FALLOW_OK) {
        flw_heap_note_error(heap, result, call);
    }
    bool is_refusal = status == FALLOW_OUT_OF_MEMORY || status == FALLOW_NOT_SUPPORTED;
    return is_refusal ? FALLOW_DRIVER : status;
}

fallow_status flw_heap_answer(struct flw_heap *heap, CUresult result, const char *call)
{
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        return FALLOW_OUT_OF_MEMORY;
    }
    fallow_status status = flw_heap_refuse(heap, result, call);
    return result == CUDA_ERROR_NOT_SUPPORTED ? FALLOW_NOT_SUPPORTED : status;
}

void flw_heap_lose_device(struct flw_heap *heap, CUresult error, const char *call)
{
    int none = 0;
    if (atomic_compare_exchange_strong(&heap->lost_error, &none, (int)error)) {
        atomic_store(&heap->lost_call, call);
    }
}
