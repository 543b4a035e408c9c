/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: recording fences, and querying them right after the record. Does not: query older fences
 * or wait for them (wait.c). The protocol:
 *
 *   mark      under the lock, after the batch's last free, with the sequence number read there: a
 *             fence with this sequence number or a later one is recorded after the free
 *   fence     t = seq++ under the lock; record without it; publish (t, event) under it
 *   complete  the largest t found complete covers every point up to it
 *
 * A fence that is queried or waited for without the lock is held by use_count: the event is not
 * recorded again before the last user is done.
 *
 * A record on a stream that is being captured is legal, and the event then belongs to the capture.
 * Querying or awaiting such an event would end the capture and add another stream to it. So the
 * stream is queried for a capture between the record and the first use: a stream leaves a capture
 * only when the capture ends, so a stream in no capture now has no event in one, and this result
 * *clears* all earlier fences. Events of an ended capture return an error when queried. A stream
 * in a capture voids the fences that may belong to it. */
#include "heap/order/fence.h"

#include "base/mutant.h"
#include "heap/order/domain.h"
#include "heap/state/thread.h"

/* Return an error of its own if a fence now would become part of a graph. Makes driver calls. */
static CUresult check_capture(struct flw_heap *heap, const struct flw_domain *domain)
{
    CUstreamCaptureStatus capturing = CU_STREAM_CAPTURE_STATUS_NONE;
    if (domain->ops != &flw_order_stream) {
        return CUDA_SUCCESS;
    }
    flw_heap_count_question(heap);
    CUresult asked = heap->driver->cuStreamIsCapturing(domain->stream, &capturing);
    return asked == CUDA_SUCCESS && capturing != CU_STREAM_CAPTURE_STATUS_NONE
               ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
               : asked;
}

/* True if the thread that needs the fence can query the stream for a capture; otherwise the
 * recording thread does. Heap lock held. */
static bool is_asked_later(const struct flw_heap *heap, const struct flw_domain *domain)
{
    return domain->ops == &flw_order_stream && domain->is_known && !heap->streams_may_die &&
           !domain->own_thread_only && !domain->is_foreign && !flw_domain_is_legacy(domain);
}

/* Debt that a fence takes from the domain, and returns if the record fails. */
struct taken {
    struct flw_fence *fence;
    uint64_t seq, unfenced_bytes;
    bool has_open_use;
    bool is_asked_later;
};

/* Record an event that covers everything submitted to the domain. The legacy stream, which is
 * never captured itself, is queried before the record. Makes driver calls in a section. */
static CUresult record_event(struct flw_heap *heap, const struct flw_domain *domain,
                             const struct taken *taken)
{
    CUresult result = flw_fence_make_event(heap, taken->fence);
    if (result == CUDA_SUCCESS && flw_domain_is_legacy(domain)) {
        result = check_capture(heap, domain);
    }
    if (result == CUDA_SUCCESS && !FLW_MUTANT(FENCE_NOT_RECORDED)) {
        result = domain->ops->record(heap, domain, taken->fence);
    }
    if (result == CUDA_SUCCESS) {
        atomic_fetch_add_explicit(&heap->count.events, 1, memory_order_relaxed);
        bool is_asked = taken->is_asked_later || flw_domain_is_legacy(domain);
        result = is_asked ? result : check_capture(heap, domain);
    }
    return result;
}

/* The same in a section of the given parts, if any. */
static CUresult enter_and_record(struct flw_heap *heap, const struct flw_domain *domain,
                                 const struct taken *taken, CUcontext context, unsigned parts)
{
    struct flw_driver_section section;
    bool is_new = taken->fence->event == NULL;
    if (parts == 0) {
        return record_event(heap, domain, taken);
    }
    CUresult result = flw_heap_enter_parts(heap, &section, context, parts);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = record_event(heap, domain, taken);
    if (is_new && result == CUDA_SUCCESS && !domain->is_foreign) {
        flw_fence_make_spares(heap);
    }
    flw_heap_leave_driver(heap, &section);
    return result;
}

/* Neither the record nor the query disturbs a capture, and both use the stream's own context,
 * except for default streams. Creating an event needs a whole section. Makes driver calls. */
static CUresult record_fence(struct flw_heap *heap, const struct flw_domain *domain,
                             const struct taken *taken)
{
    if (!domain->ops->is_stream) { /* an epoch has events and sections of its own */
        return domain->ops->record(heap, domain, taken->fence);
    }
    struct flw_driver_section section;
    bool is_default = (uintptr_t)domain->stream <= (uintptr_t)CU_STREAM_PER_THREAD;
    unsigned parts = taken->fence->event == NULL ? FLW_SECTION_BOTH
                     : is_default                ? FLW_SECTION_CONTEXT
                                                 : 0;
    CUcontext context = domain->is_foreign ? domain->context : heap->context;
    CUresult result = enter_and_record(heap, domain, taken, context, parts);
    if (flw_heap_enter_instead(heap, &section, context, result)) {
        result = enter_and_record(heap, domain, taken, context, parts);
        flw_heap_leave_driver(heap, &section);
    }
    return result;
}

/* Record on a stream of another context, with an event of that context. If the driver has no
 * context ids, a fence's kept event may be older than the context. Makes driver calls. */
static CUresult record_foreign(struct flw_heap *heap, const struct flw_domain *domain,
                               const struct taken *taken)
{
    struct flw_driver_section section;
    struct flw_fence *fence = taken->fence;
    bool is_kept = fence->event != NULL;
    CUresult result = flw_heap_enter_context(heap, &section, domain->context);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = record_fence(heap, domain, taken);
    if (is_kept && flw_result_is_stale(result)) {
        fence->event = NULL;
        result = record_fence(heap, domain, taken);
    }
    flw_heap_leave_driver(heap, &section);
    return result;
}

bool flw_domain_can_fence(const struct flw_heap *heap, const struct flw_domain *domain, bool is_own)
{
    /* A retired stream's handle may belong to another stream now. */
    bool is_nameable =
        domain->is_known || domain->ops != &flw_order_stream || FLW_MUTANT(RETIRED_IS_RECORDED_ON);
    return domain->ops->record != NULL && !domain->is_lost && domain->captured_by == 0 &&
           is_nameable && (is_own || !heap->streams_may_die) &&
           (!domain->own_thread_only || domain->thread == flw_thread_token());
}

/* Take the next sequence number: later marks need a later fence. False: no host memory. Heap lock
 * held. */
static bool begin_fence(struct flw_heap *heap, struct flw_domain *domain, struct taken *taken)
{
    taken->fence = flw_fence_new(heap, domain->context, domain->context_id);
    if (taken->fence == NULL) {
        return false;
    }
    taken->seq = FLW_MUTANT(SEQUENCE_STANDS_STILL) ? domain->seq : domain->seq++;
    taken->unfenced_bytes = domain->unfenced_bytes;
    taken->has_open_use = flw_domain_set_remove(&heap->open_users, domain);
    taken->is_asked_later = is_asked_later(heap, domain);
    domain->unfenced_bytes = 0;
    flw_domain_owe_nothing(heap, domain);
    domain->is_recording = true;
    heap->recording_count++;
    heap->open_blocks = 0; /* the only domain in context order */
    heap->open_bytes = 0;
    return true;
}

fallow_status flw_fence_refuse(struct flw_heap *heap, CUresult result, const char *call)
{
    if (flw_result_is_stale(result)) {
        flw_heap_lose_device(heap, result, call);
        return FALLOW_DEVICE_LOST;
    }
    return flw_heap_refuse(heap, result, call);
}

/* Work that arrived meanwhile is owed again, if another thread took that debt during the record.
 * Heap lock held. */
static void end_recording(struct flw_heap *heap, struct flw_domain *domain)
{
    domain->is_recording = false;
    heap->recording_count--;
    if (domain->unfenced_bytes > 0 && domain->is_known) {
        flw_domain_owe(heap, domain);
    }
}

/* Publish the result of the record. Heap lock held. */
static fallow_status publish_fence(struct flw_heap *heap, struct flw_domain *domain,
                                   const struct taken *taken, CUresult result)
{
    struct flw_fence *fence = taken->fence;
    end_recording(heap, domain);
    if (result == CUDA_SUCCESS && taken->seq <= domain->completed) {
        flw_fence_drop(heap, fence); /* a synchronisation of the context was faster */
        flw_domain_free_place(heap, domain);
        return FALLOW_OK;
    }
    if (result == CUDA_SUCCESS) {
        fence->seq = taken->seq;
        flw_fence_link(heap, domain, fence);
        domain->refuses_fences = false;
        if (!taken->is_asked_later) {
            domain->cleared = flw_max(domain->cleared, taken->seq);
        }
        return FALLOW_OK;
    }
    domain->unfenced_bytes += taken->unfenced_bytes;
    if (taken->has_open_use) {
        flw_domain_set_add(&heap->open_users, domain);
    }
    flw_domain_owe(heap, domain);
    flw_fence_drop(heap, fence);
    bool is_over =
        flw_result_is_stale(result) || (domain->is_foreign && flw_result_is_gone(result));
    if (is_over && domain != heap->context_order) {
        flw_domain_lose(heap, domain);
        return FALLOW_INVALID_STREAM;
    }
    if (flw_result_is_capture_refusal(result) || result == CUDA_ERROR_NOT_READY) {
        return FALLOW_WOULD_WAIT;
    }
    domain->refuses_fences = true;
    return flw_fence_refuse(heap, result, "cuEventRecord");
}

/* False: nothing to record; *status has the reason. */
static bool begin(struct flw_heap *heap, struct flw_domain *domain, bool is_own,
                  struct taken *taken, fallow_status *status)
{
    flw_lock_acquire(&heap->lock);
    /* A place that another thread has just freed: all of it is complete. */
    bool is_covered = domain->ops == NULL || domain->unfenced_bytes == 0 || domain->is_recording;
    bool is_possible = !is_covered && flw_domain_can_fence(heap, domain, is_own);
    bool has_begun = is_possible && begin_fence(heap, domain, taken);
    if (is_possible && !has_begun) {
        flw_domain_owe(heap, domain);
    }
    flw_lock_release(&heap->lock);
    *status = is_covered ? FALLOW_OK : is_possible ? FALLOW_OUT_OF_HOST_MEMORY : FALLOW_WOULD_WAIT;
    return has_begun;
}

/* Makes driver calls. */
static CUresult record_in_context(struct flw_heap *heap, const struct taken *taken)
{
    struct flw_driver_section section;
    CUresult result = flw_heap_enter_parts(heap, &section, heap->context, FLW_SECTION_BOTH);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = flw_fence_make_event(heap, taken->fence);
    if (result == CUDA_SUCCESS) {
        flw_heap_count_call(heap);
        result = heap->driver->cuCtxRecordEvent(heap->context, taken->fence->event);
        atomic_fetch_add_explicit(&heap->count.events, result == CUDA_SUCCESS,
                                  memory_order_relaxed);
    }
    flw_heap_leave_driver(heap, &section);
    return result;
}

/* Take a fence for the first lost domain; one event covers all lost domains, which complete with
 * it. Heap lock held. */
static struct flw_domain *begin_lost(struct flw_heap *heap, struct taken *taken)
{
    struct flw_domain *first = NULL;
    uint64_t cover = ++heap->last_cover;
    for (uint32_t i = 1; i < heap->domain_end; i++) {
        struct flw_domain *domain = heap->domains[i];
        bool is_wanted = domain->ops == &flw_order_stream && domain->is_lost &&
                         !domain->is_foreign && domain->unfenced_bytes > 0 && !domain->is_recording;
        if (!is_wanted) {
            continue;
        }
        if (first != NULL) {
            domain->unfenced_bytes = 0;
            (void)flw_domain_set_remove(&heap->open_users, domain);
            domain->cover_seq = domain->seq++;
        } else if (begin_fence(heap, domain, taken)) {
            first = domain;
            domain->cover_seq = taken->seq;
        } else {
            break; /* no host memory */
        }
        domain->cover = cover;
    }
    return first;
}

/* Undo: nothing was recorded. Heap lock held. */
static void uncover_lost(struct flw_heap *heap, uint64_t cover)
{
    for (uint32_t i = 1; i < heap->domain_end; i++) {
        struct flw_domain *domain = heap->domains[i];
        if (domain->cover == cover) {
            domain->cover = 0;
            domain->unfenced_bytes++;
            flw_domain_set_add(&heap->open_users, domain);
        }
    }
}

fallow_status flw_heap_fence_lost(struct flw_heap *heap)
{
    struct taken taken;
    flw_lock_acquire(&heap->lock);
    struct flw_domain *first = begin_lost(heap, &taken);
    uint64_t cover = heap->last_cover;
    flw_lock_release(&heap->lock);
    if (first == NULL) {
        return FALLOW_OK;
    }
    CUresult result = record_in_context(heap, &taken);
    flw_lock_acquire(&heap->lock);
    fallow_status status = publish_fence(heap, first, &taken, result);
    if (status != FALLOW_OK) {
        uncover_lost(heap, cover);
    }
    flw_lock_release(&heap->lock);
    return status;
}

static fallow_status take_fence(struct flw_heap *heap, struct flw_domain *domain, bool is_own)
{
    struct taken taken;
    fallow_status status;
    if (!begin(heap, domain, is_own, &taken, &status)) {
        return status;
    }
    CUresult result = domain->is_foreign ? record_foreign(heap, domain, &taken)
                                         : record_fence(heap, domain, &taken);
    flw_lock_acquire(&heap->lock);
    status = publish_fence(heap, domain, &taken, result);
    flw_lock_release(&heap->lock);
    return status;
}

CUresult flw_fence_ask_event(struct flw_heap *heap, CUevent event, CUresult (*ask)(CUevent event))
{
    struct flw_driver_section section;
    flw_heap_count_call(heap);
    CUresult result = ask(event);
    if (flw_heap_enter_instead(heap, &section, heap->context, result)) {
        flw_heap_count_call(heap);
        result = ask(event);
        flw_heap_leave_driver(heap, &section);
    }
    return result;
}

/* True if the fence is complete. The next query of the fence handles any other result. Makes
 * driver calls. */
static bool is_done(struct flw_heap *heap, const struct taken *taken)
{
    atomic_fetch_add_explicit(&heap->count.queries, 1, memory_order_relaxed);
    CUresult result = flw_fence_ask_event(heap, taken->fence->event, heap->driver->cuEventQuery);
    return result == CUDA_SUCCESS ||
           (FLW_MUTANT(NOT_READY_IS_DONE) && result == CUDA_ERROR_NOT_READY);
}

/* Complete a fence that was never published. Heap lock held. */
static void complete_fence(struct flw_heap *heap, struct flw_domain *domain,
                           const struct taken *taken)
{
    uint64_t seq = taken->seq + FLW_MUTANT(COMPLETES_TOO_MUCH);
    end_recording(heap, domain);
    domain->cleared = flw_max(domain->cleared, taken->seq);
    flw_fence_drop(heap, taken->fence);
    if (seq <= domain->completed) { /* a synchronisation of the context was faster */
        flw_domain_free_place(heap, domain);
    } else if (flw_domain_complete_only(heap, domain, seq)) {
        (void)flw_domain_return_deferred(heap, domain);
    }
}

enum flw_fenced flw_domain_fence_done(struct flw_heap *heap, struct flw_domain *domain)
{
    struct taken taken;
    fallow_status status;
    enum flw_fenced fenced = FLW_FENCED_NOT;
    if (!begin(heap, domain, false, &taken, &status)) {
        return FLW_FENCED_NOT;
    }
    bool is_foreign = domain->is_foreign; /* does not change during a record */
    taken.is_asked_later =
        is_foreign && taken.is_asked_later; /* otherwise for a capture right after the record */
    CUresult result =
        is_foreign ? record_foreign(heap, domain, &taken) : record_fence(heap, domain, &taken);
    bool is_complete = result == CUDA_SUCCESS && !is_foreign && is_done(heap, &taken);
    flw_lock_acquire(&heap->lock);
    if (is_complete) {
        complete_fence(heap, domain, &taken);
        fenced = heap->standing.oldest == NULL ? FLW_FENCED_LAST : FLW_FENCED_DONE;
    } else if (publish_fence(heap, domain, &taken, result) == FALLOW_OK) {
        fenced = FLW_FENCED;
    }
    flw_lock_release(&heap->lock);
    return fenced;
}

/* Heap lock held. */
static struct flw_domain *next_owing(struct flw_heap *heap, const struct flw_domain *taker)
{
    struct flw_domain *domain = heap->owing.first;
    return domain == taker && domain != NULL ? domain->owing_behind : domain;
}

struct flw_domain *flw_heap_take_owing(struct flw_heap *heap, const struct flw_domain *taker)
{
    flw_lock_acquire(&heap->lock);
    struct flw_domain *domain = next_owing(heap, taker);
    for (; domain != NULL && !flw_domain_can_fence(heap, domain, false);
         domain = next_owing(heap, taker)) {
        flw_domain_owe_nothing(heap, domain); /* until it gets more work */
    }
    if (domain != NULL) {
        flw_domain_owe_nothing(heap, domain);
        domain->unfenced_bytes +=
            domain->unfenced_bytes == 0; /* bytes in caches are not counted yet */
    }
    flw_lock_release(&heap->lock);
    return domain;
}

fallow_status flw_domain_fence(struct flw_heap *heap, struct flw_domain *domain)
{
    return take_fence(heap, domain, false);
}

fallow_status flw_domain_fence_own(struct flw_heap *heap, struct flw_domain *domain)
{
    return take_fence(heap, domain, true);
}
