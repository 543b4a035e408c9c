/* SPDX-License-Identifier: Apache-2.0 */
#include "heap/order/epoch.h"

#include <pthread.h>
#include <string.h>

#include "base/mutant.h"
#include "heap/order/domain.h"

static struct {
    pthread_rwlock_t lock;
    struct {
        const void *driver;
        CUcontext context;
        uint32_t users;
    } list[FLW_CONTEXTS_MAX];
    uint32_t count;
    bool has_too_many; /* a context found no place: nothing covers the work */
} contexts = {.lock = PTHREAD_RWLOCK_INITIALIZER};

static struct {
    pthread_rwlock_t lock;
    atomic_uint open;
} captures = {.lock = PTHREAD_RWLOCK_INITIALIZER};

void flw_epoch_renew_locks(void)
{
    (void)pthread_rwlock_init(&contexts.lock, NULL);
    (void)pthread_rwlock_init(&captures.lock, NULL);
    contexts.count = 0;
    contexts.has_too_many = false;
    atomic_store(&captures.open, 0);
}

/* ---- contexts */

static const void *name_of(const struct flw_driver *driver)
{
    const void *name;
    memcpy(&name, &driver->cuEventRecord, sizeof name);
    return name;
}

/* Return the place, or the count. Contexts locked. */
static uint32_t place_of(const struct flw_driver *driver, CUcontext context)
{
    uint32_t i = 0;
    while (i < contexts.count &&
           (contexts.list[i].driver != name_of(driver) || contexts.list[i].context != context)) {
        i++;
    }
    return i;
}

bool flw_contexts_add(const struct flw_driver *driver, CUcontext context)
{
    flw_contexts_lock();
    uint32_t place = place_of(driver, context);
    bool fits = place < FLW_CONTEXTS_MAX;
    if (fits && place == contexts.count) {
        contexts.count++;
        contexts.list[place].driver = name_of(driver);
        contexts.list[place].context = context;
        contexts.list[place].users = 0;
    }
    if (fits) {
        contexts.list[place].users++;
    } else {
        contexts.has_too_many = true;
    }
    flw_contexts_unlock();
    return fits;
}

void flw_contexts_remove(const struct flw_driver *driver, CUcontext context)
{
    flw_contexts_lock();
    uint32_t place = place_of(driver, context);
    if (place < contexts.count && --contexts.list[place].users == 0) {
        contexts.list[place] = contexts.list[--contexts.count];
    }
    flw_contexts_unlock();
}

void flw_contexts_drop(const struct flw_driver *driver, CUcontext context)
{
    uint32_t place = place_of(driver, context);
    if (place < contexts.count) {
        contexts.list[place] = contexts.list[--contexts.count];
    }
}

uint32_t flw_contexts_count(const struct flw_driver *driver)
{
    uint32_t count = 0;
    (void)pthread_rwlock_rdlock(&contexts.lock);
    for (uint32_t i = 0; i < contexts.count; i++) {
        count += contexts.list[i].driver == name_of(driver);
    }
    count += contexts.has_too_many ? 2 : 0;
    (void)pthread_rwlock_unlock(&contexts.lock);
    return count;
}

void flw_contexts_lock(void)
{
    (void)pthread_rwlock_wrlock(&contexts.lock);
}

void flw_contexts_unlock(void)
{
    (void)pthread_rwlock_unlock(&contexts.lock);
}

/* Including fences in no list: just recorded, or complete while a thread queries them. */
void flw_heap_forget_context(struct flw_heap *heap, CUcontext context)
{
    flw_lock_acquire(&heap->lock);
    for (struct flw_fence *fence = heap->objects.newest_fence; fence != NULL;
         fence = fence->older_made) {
        if (fence->context == context) { /* other fences are being read */
            fence->event = NULL;
        }
    }
    flw_lock_release(&heap->lock);
}

/* ---- captures */

void flw_captures_lock(void)
{
    (void)pthread_rwlock_wrlock(&captures.lock);
}

void flw_captures_unlock(bool has_begun)
{
    atomic_fetch_add(&captures.open, has_begun);
    (void)pthread_rwlock_unlock(&captures.lock);
}

void flw_captures_end(void)
{
    unsigned open = atomic_load(&captures.open);
    while (open > 0 && !atomic_compare_exchange_weak(&captures.open, &open, open - 1)) {
    }
}

bool flw_captures_are_open(void)
{
    return atomic_load(&captures.open) != 0;
}

/* ---- epochs */

/* The context is current. */
static CUresult record_one(struct flw_heap *heap, struct flw_fence *fence)
{
    CUresult result = flw_fence_make_event(heap, fence);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    flw_heap_count_call(heap);
    result = FLW_MUTANT(FENCE_NOT_RECORDED)
                 ? CUDA_SUCCESS
                 : heap->driver->cuCtxRecordEvent(fence->context, fence->event);
    if (result == CUDA_SUCCESS) {
        atomic_fetch_add_explicit(&heap->count.events, 1, memory_order_relaxed);
    }
    return result;
}

/* True if another context is reported dead, which ends the work. */
static bool is_over(CUresult result)
{
    return flw_result_is_gone(result) || flw_result_is_stale(result);
}

/* Record an event of another context, because work there may use the memory. A dead context has no
 * work, so there is nothing to cover. */
static CUresult record_other(struct flw_heap *heap, struct flw_fence *fence, CUcontext context)
{
    flw_lock_acquire(&heap->lock);
    struct flw_fence *other = flw_fence_new(heap, context, 0);
    flw_lock_release(&heap->lock);
    if (other == NULL) {
        return CUDA_ERROR_NOT_READY;
    }
    struct flw_driver_section section;
    CUresult result = flw_heap_enter_context(heap, &section, context);
    if (result == CUDA_SUCCESS) {
        result = record_one(heap, other);
        flw_heap_leave_driver(heap, &section);
    }
    flw_lock_acquire(&heap->lock);
    if (result == CUDA_SUCCESS) {
        other->next = fence->others;
        fence->others = other;
    } else {
        flw_fence_drop(heap, other);
    }
    flw_lock_release(&heap->lock);
    return is_over(result) ? CUDA_SUCCESS : result;
}

static CUresult record_epoch(struct flw_heap *heap, const struct flw_domain *domain,
                             struct flw_fence *fence)
{
    (void)domain;
    CUresult result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    (void)pthread_rwlock_rdlock(&captures.lock);
    (void)pthread_rwlock_rdlock(&contexts.lock);
    if (!flw_captures_are_open() && !contexts.has_too_many) {
        result = record_one(heap, fence);
    }
    for (uint32_t i = 0; result == CUDA_SUCCESS && i < contexts.count; i++) {
        if (contexts.list[i].driver == name_of(heap->driver) &&
            contexts.list[i].context != fence->context && !FLW_MUTANT(EPOCH_OF_ONE_CONTEXT)) {
            result = record_other(heap, fence, contexts.list[i].context);
        }
    }
    (void)pthread_rwlock_unlock(&contexts.lock);
    (void)pthread_rwlock_unlock(&captures.lock);
    return result;
}

const struct flw_order_ops flw_order_context = {.name = "context", .record = record_epoch};

CUresult flw_epoch_ask_others(struct flw_heap *heap, const struct flw_fence *fence, bool is_patient)
{
    CUresult result = CUDA_SUCCESS;
    (void)pthread_rwlock_rdlock(&contexts.lock);
    for (struct flw_fence *other = fence->others; other != NULL && result == CUDA_SUCCESS;
         other = other->next) {
        if (other->event == NULL) {
            continue; /* the context is gone */
        }
        flw_heap_count_call(heap);
        atomic_fetch_add_explicit(&heap->count.queries, !is_patient, memory_order_relaxed);
        result = is_patient ? heap->driver->cuEventSynchronize(other->event)
                            : heap->driver->cuEventQuery(other->event);
        if (flw_result_is_capture_refusal(result)) {
            result = CUDA_ERROR_NOT_READY; /* no result */
        } else if (is_over(result)) {
            result = CUDA_SUCCESS;
        }
    }
    (void)pthread_rwlock_unlock(&contexts.lock);
    return result;
}

uint64_t flw_epoch_begin_sync(struct flw_heap *heap)
{
    uint64_t seq = 0;
    if (flw_contexts_count(heap->driver) > 1 || flw_captures_are_open()) {
        return 0;
    }
    flw_lock_acquire(&heap->lock);
    struct flw_domain *domain = heap->context_order;
    if (domain->unfenced_bytes > 0 || domain->newest != NULL) {
        seq = domain->seq++;
    }
    flw_lock_release(&heap->lock);
    return seq;
}

void flw_epoch_end_sync(struct flw_heap *heap, uint64_t seq)
{
    if (seq != 0) {
        flw_lock_acquire(&heap->lock);
        flw_domain_complete(heap, heap->context_order, seq);
        heap->open_blocks =
            0; /* concurrent frees are not counted; the next epoch covers them too */
        heap->open_bytes = 0;
        flw_lock_release(&heap->lock);
    }
}

/* Makes driver calls. */
static CUresult sync_one(struct flw_heap *heap, CUcontext context)
{
    struct flw_driver_section section;
    CUresult result = flw_heap_enter_context(heap, &section, context);
    if (result == CUDA_SUCCESS) {
        flw_heap_count_call(heap);
        atomic_fetch_add_explicit(&heap->count.waits, 1, memory_order_relaxed);
        result = heap->driver->cuCtxSynchronize();
        flw_heap_leave_driver(heap, &section);
    }
    return result;
}

fallow_status flw_epoch_sync(struct flw_heap *heap)
{
    CUresult result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    flw_lock_acquire(&heap->lock);
    uint64_t seq = heap->context_order->seq++;
    flw_lock_release(&heap->lock);
    (void)pthread_rwlock_rdlock(&captures.lock);
    (void)pthread_rwlock_rdlock(&contexts.lock);
    if (!flw_captures_are_open() && !contexts.has_too_many) {
        result = sync_one(heap, heap->context);
    }
    for (uint32_t i = 0; result == CUDA_SUCCESS && i < contexts.count; i++) {
        if (contexts.list[i].driver == name_of(heap->driver) &&
            contexts.list[i].context != heap->context) {
            CUresult other = sync_one(heap, contexts.list[i].context);
            result = is_over(other) ? CUDA_SUCCESS : other;
        }
    }
    (void)pthread_rwlock_unlock(&contexts.lock);
    (void)pthread_rwlock_unlock(&captures.lock);
    if (result == CUDA_SUCCESS) {
        flw_epoch_end_sync(heap, seq);
        return FALLOW_OK;
    }
    return flw_result_is_capture_refusal(result)
               ? FALLOW_WOULD_WAIT
               : flw_heap_refuse(heap, result, "cuCtxSynchronize");
}
