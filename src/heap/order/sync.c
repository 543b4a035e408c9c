/* SPDX-License-Identifier: Apache-2.0 */
#include "heap/order/sync.h"

#include <pthread.h>
#include <string.h>

#include "base/backoff.h"
#include "heap/order/domain.h"
#include "heap/order/epoch.h"
#include "heap/order/fence.h"
#include "heap/space/deferred.h"

/* ---- calls that must not overlap */

#define CONTEXTS 64

struct place {
    const void *driver; /* one of the functions; NULL: unused */
    CUcontext context;
    uint32_t captures;
    bool is_syncing;
};

static struct {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    struct place places[CONTEXTS];
} table = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

/* Return the place of a context; NULL: every place is taken. Mutex held. */
static struct place *find(const struct flw_driver *driver, CUcontext context)
{
    struct place *unused = NULL;
    const void *name;
    memcpy(&name, &driver->cuEventRecord, sizeof name);
    for (struct place *place = table.places; place < table.places + CONTEXTS; place++) {
        if (place->driver == name && place->context == context) {
            return place;
        }
        if (unused == NULL && place->captures == 0 && !place->is_syncing) {
            unused = place;
        }
    }
    if (unused != NULL) {
        *unused = (struct place){.driver = name, .context = context};
    }
    return unused;
}

/* Return the place once no thread synchronises there. Cancellation takes effect after the call,
 * since here it would leave the mutex locked. Mutex held. */
static struct place *await(const struct flw_driver *driver, CUcontext context)
{
    struct place *place = find(driver, context);
    int before = PTHREAD_CANCEL_ENABLE;
    (void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    while (place != NULL && place->is_syncing) {
        (void)pthread_cond_wait(&table.changed, &table.mutex);
        place = find(driver, context); /* it may belong to another context meanwhile */
    }
    (void)pthread_setcancelstate(before, NULL);
    return place;
}

void flw_ctxsync_announce(const struct flw_driver *driver, CUcontext context)
{
    (void)pthread_mutex_lock(&table.mutex);
    struct place *place = await(driver, context);
    if (place != NULL) {
        place->captures++;
    }
    (void)pthread_mutex_unlock(&table.mutex);
}

void flw_ctxsync_retract(const struct flw_driver *driver, CUcontext context)
{
    (void)pthread_mutex_lock(&table.mutex);
    struct place *place = find(driver, context);
    if (place != NULL && place->captures > 0) {
        place->captures--;
    }
    (void)pthread_mutex_unlock(&table.mutex);
}

/* False: nothing is kept apart there. Mutex held. */
static bool take(struct place *place)
{
    bool may = place == NULL || (place->captures == 0 && !place->is_syncing);
    if (place != NULL && may) {
        place->is_syncing = true;
    }
    return may;
}

bool flw_ctxsync_begin(const struct flw_driver *driver, CUcontext context)
{
    (void)pthread_mutex_lock(&table.mutex);
    bool may = take(await(driver, context));
    (void)pthread_mutex_unlock(&table.mutex);
    return may;
}

bool flw_ctxsync_try(const struct flw_driver *driver, CUcontext context)
{
    (void)pthread_mutex_lock(&table.mutex);
    bool may = take(find(driver, context));
    (void)pthread_mutex_unlock(&table.mutex);
    return may;
}

void flw_ctxsync_end(const struct flw_driver *driver, CUcontext context)
{
    (void)pthread_mutex_lock(&table.mutex);
    struct place *place = find(driver, context);
    if (place != NULL) {
        place->is_syncing = false;
    }
    (void)pthread_cond_broadcast(&table.changed);
    (void)pthread_mutex_unlock(&table.mutex);
}

void flw_ctxsync_renew(void)
{
    (void)pthread_mutex_init(&table.mutex, NULL);
    (void)pthread_cond_init(&table.changed, NULL);
    memset(table.places, 0, sizeof table.places);
}

/* ---- everything of the context */

static CUresult sync_present(struct flw_heap *heap)
{
    flw_heap_count_call(heap);
    atomic_fetch_add_explicit(&heap->count.waits, 1, memory_order_relaxed);
    return heap->driver->cuCtxSynchronize();
}

/* A context that is gone has nothing left to wait for. Makes driver calls. */
static CUresult sync_other(struct flw_heap *heap, CUcontext context)
{
    struct flw_driver_section section;
    CUresult result = flw_heap_enter_context(heap, &section, context);
    if (result != CUDA_SUCCESS) {
        return flw_result_is_gone(result) ? CUDA_SUCCESS : result;
    }
    result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (flw_ctxsync_try(heap->driver, context)) {
        result = sync_present(heap);
        flw_ctxsync_end(heap->driver, context);
    }
    flw_heap_leave_driver(heap, &section);
    return flw_result_is_gone(result) ? CUDA_SUCCESS : result;
}

/* Synchronise lost announced users' own contexts, which alone cover them. Makes driver calls. */
static CUresult sync_lost_foreign(struct flw_heap *heap)
{
    CUresult result = CUDA_SUCCESS;
    uint32_t cursor = 0;
    for (struct flw_domain *domain;
         result == CUDA_SUCCESS && (domain = flw_domain_next(heap, &cursor)) != NULL;) {
        flw_lock_acquire(&heap->lock);
        CUcontext context = domain->context;
        bool is_wanted = domain->sync_seq != 0 && domain->is_foreign && domain->is_lost;
        flw_lock_release(&heap->lock);
        if (is_wanted) {
            result = sync_other(heap, context);
        }
    }
    return result;
}

/* Alone in the context: the sequence numbers are those of one synchronisation. */
static fallow_status sync_all(struct flw_heap *heap)
{
    flw_lock_acquire(&heap->lock);
    for (uint32_t i = 1; i < heap->domain_end; i++) {
        struct flw_domain *domain = heap->domains[i];
        bool is_covered = domain->ops != NULL && domain->ops != &flw_order_capture &&
                          domain != heap->unmap_only && (!domain->is_foreign || domain->is_lost);
        /* Work that reaches a retired stream is marked with the last fence's number,
         * which stays. */
        domain->sync_seq = !is_covered ? 0 : domain->is_retired ? domain->seq - 1 : domain->seq++;
        domain->unfenced_bytes = is_covered ? 0 : domain->unfenced_bytes;
    }
    flw_heap_begin_sync_of_deferred(heap);
    flw_lock_release(&heap->lock);
    CUresult result = sync_present(heap);
    if (result == CUDA_SUCCESS) {
        result = sync_lost_foreign(heap);
    }
    if (result != CUDA_SUCCESS) {
        flw_lock_acquire(&heap->lock);
        for (uint32_t i = 1; i < heap->domain_end; i++) {
            if (heap->domains[i]->sync_seq != 0) {
                flw_domain_want_fence(heap, heap->domains[i], 1); /* still, and for all of it */
            }
        }
        flw_lock_release(&heap->lock);
        return flw_heap_refuse(heap, result, "cuCtxSynchronize");
    }
    flw_lock_acquire(&heap->lock);
    bool has_deferred = heap->deferred_count > 0; /* including those that nothing else completes */
    for (uint32_t i = 1; i < heap->domain_end; i++) {
        struct flw_domain *domain = heap->domains[i];
        if (domain->ops != NULL && domain->sync_seq > domain->completed) {
            has_deferred |= flw_domain_complete_only(heap, domain, domain->sync_seq);
        }
    }
    flw_heap_end_sync_of_deferred(heap);
    if (has_deferred) {
        (void)flw_heap_return_deferred(heap);
    }
    atomic_store(&heap->has_open_copies, false);
    flw_lock_release(&heap->lock);
    return FALLOW_OK;
}

fallow_status flw_heap_sync_context(struct flw_heap *heap)
{
    if (flw_captures_are_open() || !flw_ctxsync_begin(heap->driver, heap->context)) {
        return FALLOW_CAPTURING;
    }
    fallow_status status = sync_all(heap);
    flw_ctxsync_end(heap->driver, heap->context);
    return status;
}

/* ---- nothing under way */

/* Record an event behind the work of every tracked stream, or of the contexts. Makes driver calls.
 * False if any failed. */
static bool fence_everything(struct flw_heap *heap)
{
    uint32_t cursor = 0;
    bool is_all = true;
    for (struct flw_domain *domain; (domain = flw_domain_next(heap, &cursor)) != NULL;) {
        flw_lock_acquire(&heap->lock);
        bool is_stream = domain->ops == &flw_order_stream;
        bool is_wanted = domain == heap->context_order || (is_stream && domain->is_known);
        bool is_possible = is_wanted && flw_domain_can_fence(heap, domain, false);
        if (is_possible) {
            flw_domain_want_fence(heap, domain, 1);
        }
        /* Captured work does not run and cannot be recorded: only earlier fences count. */
        bool is_covered = domain->unfenced_bytes == 0;
        is_all &= !is_wanted || is_possible || (domain->captured_by != 0 && is_covered);
        is_all &= !is_stream || !domain->is_lost || is_covered;
        flw_lock_release(&heap->lock);
        is_all = is_all && (!is_possible || flw_domain_fence(heap, domain) == FALLOW_OK);
    }
    return is_all;
}

static bool has_open(struct flw_heap *heap)
{
    flw_lock_acquire(&heap->lock);
    bool has_any = flw_heap_has_open(heap, NULL);
    flw_lock_release(&heap->lock);
    return has_any;
}

/* Wait for all outstanding fences. Makes driver calls. */
static fallow_status await_standing(struct flw_heap *heap, uint64_t until_ns)
{
    fallow_status status = FALLOW_OK;
    while (status == FALLOW_OK) {
        flw_lock_acquire(&heap->lock);
        const struct flw_fence *fence = heap->standing.oldest;
        struct flw_domain *domain = fence != NULL ? fence->domain : NULL;
        uint64_t seq = fence != NULL ? fence->seq : 0;
        flw_lock_release(&heap->lock);
        if (domain == NULL) {
            break;
        }
        status = flw_domain_wait(heap, domain, seq, until_ns);
    }
    return status;
}

/* Even an idle device needs some microseconds for an event. */
#define EVENT_TRIES 2
#define EVENT_NS    10000

/* True if the fences just recorded are complete. Makes driver calls. */
static bool is_idle_now(struct flw_heap *heap)
{
    (void)flw_heap_poll(heap);
    for (unsigned i = 0; i < EVENT_TRIES && has_open(heap); i++) {
        flw_sleep_ns(EVENT_NS);
        (void)flw_heap_poll(heap);
    }
    return !has_open(heap);
}

bool flw_heap_await_idle(struct flw_heap *heap, uint64_t until_ns)
{
    bool is_endless = until_ns >= UINT64_MAX - 1;
    for (bool is_late = false; !is_late && !flw_heap_is_lost(heap);) {
        (void)flw_heap_poll(heap);
        bool was_open = has_open(heap);
        bool can_tell = was_open || fence_everything(heap);
        if (!was_open && can_tell && is_idle_now(heap)) {
            return true;
        }
        if (until_ns == 0 || (!is_endless && flw_clock_fine_ns() >= until_ns)) {
            return false;
        }
        fallow_status status =
            can_tell && !is_endless ? await_standing(heap, until_ns) : FALLOW_WOULD_WAIT;
        if (status == FALLOW_WOULD_WAIT) {
            atomic_fetch_add_explicit(&heap->count.waits, 1, memory_order_relaxed);
            return true;
        }
        is_late = status != FALLOW_OK;
    }
    return false;
}

/* ---- the pool's own copies */

#define COPY_TRIES 3

bool flw_heap_end_copies(struct flw_heap *heap)
{
    struct flw_driver_section section;
    if (!atomic_load(&heap->has_open_copies)) {
        return true;
    }
    if (!flw_heap_enter_driver(heap, &section)) { /* a default stream belongs to the current
                                                      context */
        return false;
    }
    for (unsigned n = 0; atomic_load(&heap->has_open_copies) && n < COPY_TRIES; n++) {
        flw_heap_count_call(heap);
        bool is_probe = heap->source.is_left_busy; /* the stream is gone */
        CUresult result =
            is_probe ? heap->driver->cuCtxSynchronize() : heap->driver->cuStreamSynchronize(NULL);
        if (flw_heap_refuse(heap, result, is_probe ? "cuCtxSynchronize" : "cuStreamSynchronize") ==
            FALLOW_OK) {
            heap->source.is_left_busy = false;
            atomic_store(&heap->has_open_copies, false);
        }
    }
    flw_heap_leave_driver(heap, &section);
    return !atomic_load(&heap->has_open_copies);
}
