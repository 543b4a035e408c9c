/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: fences: how they are recorded, asked for, waited for, and made to order one domain after
 * another. The protocol, each step with its reason:
 *
 *   stamp     under the lock, after the batch's last free, with the ticket read there: a fence that
 *             carries this ticket or a later one is recorded after the free was
 *   fence     t = ticket++ under the lock; record without it; publish (t, event) under it
 *   complete  the largest t seen complete covers every stamp up to it
 *
 * A fence that is being queried or waited on without the lock is held by use_count: its event is
 * not recorded again before the last user is done.
 * Does not: know what a domain owns, or who gets it (domain.c).
 */
#include <sched.h>

#include "base/backoff.h"
#include "base/mutant.h"
#include "heap/epoch.h"
#include "heap/thread.h"

struct flw_fence *flw_fence_new(struct flw_heap *heap, CUcontext context, uint64_t context_id)
{
    struct flw_fence **link = &heap->unused_fences;
    for (; *link != NULL; link = &(*link)->next) {
        if ((*link)->context == context && (*link)->context_id == context_id) {
            struct flw_fence *fence = *link;
            *link = fence->next;
            return fence;
        }
    }
    struct flw_fence *fence = flw_meta_extend(&heap->object_meta, sizeof *fence, 16);
    if (fence != NULL) {
        *fence = (struct flw_fence){
            .context = context, .context_id = context_id, .older_made = heap->newest_made};
        heap->newest_made = fence;
    }
    return fence;
}

void flw_fence_drop(struct flw_heap *heap, struct flw_fence *fence)
{
    for (struct flw_fence *other; FLW_UNLIKELY((other = fence->others) != NULL);) {
        fence->others = other->next;
        other->next = heap->unused_fences;
        heap->unused_fences = other;
    }
    fence->is_unlinked = false;
    fence->next = heap->unused_fences;
    heap->unused_fences = fence;
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

static void release_fence(struct flw_heap *heap, struct flw_fence *fence)
{
    if (--fence->use_count == 0 && fence->is_unlinked) {
        flw_fence_drop(heap, fence);
    }
}

/* Driver calls. An error of its own where a fence now would go into a graph. */
static CUresult check_capture(struct flw_heap *heap, const struct flw_domain *domain)
{
    CUstreamCaptureStatus capturing = CU_STREAM_CAPTURE_STATUS_NONE;
    if (domain->ops != &flw_order_stream) {
        return CUDA_SUCCESS;
    }
    flw_heap_count_call(heap);
    CUresult asked = heap->driver->cuStreamIsCapturing(domain->stream, &capturing);
    return asked == CUDA_SUCCESS && capturing != CU_STREAM_CAPTURE_STATUS_NONE
               ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
               : asked;
}

/* A record on the legacy stream would end the captures of streams that wait for it. */
static bool is_legacy(const struct flw_domain *domain)
{
    return domain->ops == &flw_order_stream &&
           (uintptr_t)domain->stream <= (uintptr_t)CU_STREAM_LEGACY;
}

/* The event covers everything the domain was given. Asked for a capture once: of the legacy
 * stream before the record, which is never captured itself; of another after it, since a record does
 * nothing to a capture, but takes the event into it, where a stream that waits for it would follow.
 * Driver calls, in a section. */
static CUresult record_event(struct flw_heap *heap, const struct flw_domain *domain,
                             struct flw_fence *fence)
{
    CUresult result = flw_fence_make_event(heap, fence);
    if (result == CUDA_SUCCESS && is_legacy(domain)) {
        result = check_capture(heap, domain);
    }
    if (result == CUDA_SUCCESS && !FLW_MUTANT(FENCE_NOT_RECORDED)) {
        result = domain->ops->record(heap, domain, fence->event);
    }
    if (result == CUDA_SUCCESS) {
        atomic_fetch_add_explicit(&heap->count.events, 1, memory_order_relaxed);
        result = is_legacy(domain) ? result : check_capture(heap, domain);
    }
    return result;
}

/* Neither a record nor the question is unsafe beside a capture, and both go by the stream's own context,
 * whichever is current, unless the stream is a default one. To make an event takes a whole section. A driver
 * that wants a context to be current all the same says so, and gets it. Driver calls. */
static CUresult record_fence(struct flw_heap *heap, const struct flw_domain *domain,
                             struct flw_fence *fence)
{
    if (domain == heap->context_order) {
        return flw_epoch_record(heap, fence);
    }
    struct flw_driver_section section;
    bool is_default = (uintptr_t)domain->stream <= (uintptr_t)CU_STREAM_PER_THREAD;
    unsigned parts = fence->event == NULL ? FLW_SECTION_BOTH : is_default ? FLW_SECTION_CONTEXT : 0;
    CUcontext context = domain->is_foreign ? domain->context : heap->context;
    CUresult result = CUDA_ERROR_INVALID_CONTEXT;
    for (bool is_over = false; !is_over; parts |= FLW_SECTION_CONTEXT) {
        is_over = (parts & FLW_SECTION_CONTEXT) != 0;
        result = flw_heap_enter_parts(heap, &section, context, parts);
        if (result == CUDA_SUCCESS) {
            result = record_event(heap, domain, fence);
            flw_heap_leave_driver(heap, &section);
        }
        is_over |= result != CUDA_ERROR_INVALID_CONTEXT;
    }
    return result;
}

/* A stream of another context: its event must be of that. One that a fence kept may be older than the
 * context, where a driver gives contexts no identities. Driver calls. */
static CUresult record_foreign(struct flw_heap *heap, const struct flw_domain *domain,
                               struct flw_fence *fence)
{
    struct flw_driver_section section;
    bool is_kept = fence->event != NULL;
    CUresult result = flw_heap_enter_context(heap, &section, domain->context);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = record_fence(heap, domain, fence);
    if (is_kept && flw_result_is_stale(result)) {
        fence->event = NULL;
        result = record_fence(heap, domain, fence);
    }
    flw_heap_leave_driver(heap, &section);
    return result;
}

bool flw_domain_can_fence(const struct flw_heap *heap, const struct flw_domain *domain, bool is_own)
{
    /* A retired stream's handle may be another stream's by now. */
    bool is_nameable =
        domain->is_known || domain->ops != &flw_order_stream || FLW_MUTANT(RETIRED_IS_RECORDED_ON);
    return domain->ops->record != NULL && !domain->is_lost && domain->captured_by == 0 &&
           is_nameable && (is_own || !heap->streams_may_die) &&
           (!domain->own_thread_only || domain->thread == flw_thread_token());
}

/* What a fence takes along from its domain, which gets it back if the record fails. */
struct taken {
    struct flw_fence *fence;
    uint64_t ticket, unfenced_bytes;
    bool has_open_use;
};

/* lock. From now on stamps are covered by a later fence. False: host memory. */
static bool begin_fence(struct flw_heap *heap, struct flw_domain *domain, struct taken *taken)
{
    taken->fence = flw_fence_new(heap, domain->context, domain->context_id);
    if (taken->fence == NULL) {
        return false;
    }
    taken->ticket = FLW_MUTANT(TICKET_STANDS_STILL) ? domain->ticket : domain->ticket++;
    taken->unfenced_bytes = domain->unfenced_bytes;
    taken->has_open_use = domain->has_open_use;
    domain->unfenced_bytes = 0;
    domain->has_open_use = false;
    domain->is_recording = true;
    heap->open_blocks = 0; /* of the domain in context order, the only one there is then */
    heap->open_bytes = 0;
    return true;
}

/* An answer about an event in the pool's own context: only with that can it have gone. */
static fallow_status refuse_own(struct flw_heap *heap, CUresult result, const char *call)
{
    if (flw_result_is_stale(result)) {
        flw_heap_lose_device(heap, result, call);
        return FALLOW_DEVICE_LOST;
    }
    return flw_heap_refuse(heap, result, call);
}

/* lock. What the record came to. */
static fallow_status publish_fence(struct flw_heap *heap, struct flw_domain *domain,
                                   const struct taken *taken, CUresult result)
{
    struct flw_fence *fence = taken->fence;
    domain->is_recording = false;
    if (result == CUDA_SUCCESS && taken->ticket <= domain->completed) {
        flw_fence_drop(heap, fence); /* a synchronisation of the context was faster */
        flw_domain_free_place(heap, domain);
        return FALLOW_OK;
    }
    if (result == CUDA_SUCCESS) {
        fence->ticket = taken->ticket;
        fence->next = NULL;
        *(domain->newest != NULL ? &domain->newest->next : &domain->oldest) = fence;
        domain->newest = fence;
        domain->refuses_fences = false;
        return FALLOW_OK;
    }
    domain->unfenced_bytes += taken->unfenced_bytes;
    domain->has_open_use |= taken->has_open_use;
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
    return refuse_own(heap, result, "cuEventRecord");
}

static fallow_status take_fence(struct flw_heap *heap, struct flw_domain *domain, bool is_own)
{
    struct taken taken = {.fence = NULL};
    flw_lock_acquire(&heap->lock);
    /* A place that another thread has just freed: all of it is complete. */
    bool is_covered = domain->ops == NULL || domain->unfenced_bytes == 0 || domain->is_recording;
    bool is_possible = !is_covered && flw_domain_can_fence(heap, domain, is_own);
    bool has_begun = is_possible && begin_fence(heap, domain, &taken);
    flw_lock_release(&heap->lock);
    if (is_covered) {
        return FALLOW_OK;
    }
    if (!has_begun) {
        return is_possible ? FALLOW_OUT_OF_HOST_MEMORY : FALLOW_WOULD_WAIT;
    }
    CUresult result = domain->is_foreign ? record_foreign(heap, domain, taken.fence)
                                         : record_fence(heap, domain, taken.fence);
    flw_lock_acquire(&heap->lock);
    fallow_status status = publish_fence(heap, domain, &taken, result);
    flw_lock_release(&heap->lock);
    return status;
}

fallow_status flw_domain_fence(struct flw_heap *heap, struct flw_domain *domain)
{
    return take_fence(heap, domain, false);
}

fallow_status flw_domain_fence_own(struct flw_heap *heap, struct flw_domain *domain)
{
    return take_fence(heap, domain, true);
}

/* ---- completion */

/* Driver calls. The device's answer for a fence whose first event is complete. */
static inline CUresult ask_others(struct flw_heap *heap, const struct flw_fence *fence,
                                  bool is_patient)
{
    return FLW_LIKELY(fence->others == NULL) ? CUDA_SUCCESS
                                             : flw_epoch_ask_others(heap, fence, is_patient);
}

/* lock. A capture took the event: it covers nothing. A later fence covers what it should have. */
static void void_fence(struct flw_domain *domain, struct flw_fence *fence)
{
    struct flw_fence *before = NULL;
    for (struct flw_fence *at = domain->oldest; at != NULL && at != fence; at = at->next) {
        before = at;
    }
    if (!fence->is_unlinked) {
        *(before != NULL ? &before->next : &domain->oldest) = fence->next;
        domain->newest = domain->newest == fence ? before : domain->newest;
        fence->is_unlinked = true;
        domain->unfenced_bytes++;
        domain->has_open_use = true;
    }
}

/* The driver's word on a fence. Another context may end before its stream's last fence is asked for,
 * and takes its events along: what they were recorded after is over. */
static CUresult heed_end(const struct flw_heap *heap, const struct flw_fence *fence,
                         CUresult result, bool *out_has_ended)
{
    /* Not asked of the domain: its place may be another's by now. */
    *out_has_ended = fence->context != heap->context &&
                     (flw_result_is_stale(result) || flw_result_is_gone(result));
    return *out_has_ended ? CUDA_SUCCESS : result;
}

/* Neither yes nor not yet nor beside a capture: what the fence covers is not known complete. */
static bool is_refusal(CUresult result)
{
    return result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY &&
           !flw_result_is_capture_refusal(result);
}

/* lock. The fence's context has ended: its event is nobody's, like those that were kept for later. */
static void forget_events(struct flw_heap *heap, struct flw_fence *fence)
{
    fence->event = NULL;
    for (struct flw_fence *unused = heap->unused_fences; unused != NULL; unused = unused->next) {
        if (unused->context == fence->context && unused->context_id == fence->context_id) {
            unused->event = NULL;
        }
    }
}

/* Driver calls, in a section of at least the mode: an event is of its own context, whichever is current. A
 * driver that wants one to be current all the same says so, and gets it. */
static CUresult query_event(struct flw_heap *heap, CUevent event)
{
    struct flw_driver_section section;
    flw_heap_count_call(heap);
    CUresult result = heap->driver->cuEventQuery(event);
    if (result == CUDA_ERROR_INVALID_CONTEXT &&
        flw_heap_enter_context(heap, &section, heap->context) == CUDA_SUCCESS) {
        flw_heap_count_call(heap);
        result = heap->driver->cuEventQuery(event);
        flw_heap_leave_driver(heap, &section);
    }
    return result;
}

/* Query one fence. True: complete. */
static bool query_fence(struct flw_heap *heap, struct flw_domain *domain, struct flw_fence *fence)
{
    /* lock held on entry and exit, not in between */
    uint64_t ticket = fence->ticket;
    CUevent event = fence->event;
    fence->use_count++;
    flw_lock_release(&heap->lock);
    atomic_fetch_add_explicit(&heap->count.queries, 1, memory_order_relaxed);
    bool has_ended;
    CUresult result = heed_end(heap, fence, query_event(heap, event), &has_ended);
    if (result == CUDA_SUCCESS) {
        result = ask_others(heap, fence, false);
    }
    bool is_refused = is_refusal(result);
    if (is_refused) {
        (void)refuse_own(heap, result, "cuEventQuery");
    }
    if (FLW_MUTANT(NOT_READY_IS_DONE) && result == CUDA_ERROR_NOT_READY) {
        result = CUDA_SUCCESS;
    }
    flw_lock_acquire(&heap->lock);
    if (has_ended) {
        forget_events(heap, fence);
    }
    if (result == CUDA_SUCCESS) {
        flw_domain_complete(heap, domain, ticket + FLW_MUTANT(COMPLETES_TOO_MUCH));
    } else if (result == CUDA_ERROR_CAPTURED_EVENT) {
        void_fence(domain, fence);
    }
    domain->refuses_fences |= is_refused;
    release_fence(heap, fence);
    return result == CUDA_SUCCESS;
}

bool flw_heap_poll(struct flw_heap *heap)
{
    bool any = false;
    bool may_ask = heap->context_order == NULL || !flw_captures_are_open();
    flw_lock_acquire(&heap->lock);
    for (uint32_t i = 1; i < heap->domain_end && !flw_heap_is_lost(heap); i++) {
        struct flw_domain *domain = heap->domains[i];
        if (domain->ops == NULL || domain->newest == NULL || !may_ask) {
            continue;
        }
        /* The newest covers them all; where it is not done, as many of the oldest as are. */
        if (query_fence(heap, domain, domain->newest)) {
            any = true;
            continue;
        }
        for (unsigned n = 0; n < 16 && domain->oldest != domain->newest; n++) {
            if (!query_fence(heap, domain, domain->oldest)) {
                break;
            }
            any = true;
        }
    }
    any |= heap->pending_count > 0 && flw_heap_settle_pendings(heap);
    flw_lock_release(&heap->lock);
    return any;
}

/* lock. The oldest published fence that covers ticket, held; NULL. */
static struct flw_fence *hold_fence(struct flw_domain *domain, uint64_t ticket)
{
    struct flw_fence *fence = domain->oldest;
    while (fence != NULL && fence->ticket < ticket) {
        fence = fence->next;
    }
    if (fence != NULL) {
        fence->use_count++;
    }
    return fence;
}

/* The same, recorded by this thread if need be; where another is at it, its fence is awaited: to
 * record takes a driver call, to go on without the memory may take a growth. */
static struct flw_fence *find_fence(struct flw_heap *heap, struct flw_domain *domain,
                                    uint64_t ticket, bool may_record, fallow_status *status)
{
    struct flw_fence *fence = NULL;
    *status = FALLOW_OK;
    struct flw_backoff backoff = {0};
    for (unsigned tries = 0; fence == NULL && *status == FALLOW_OK;) {
        flw_lock_acquire(&heap->lock);
        fence = hold_fence(domain, ticket);
        bool is_recording = domain->is_recording, is_done = ticket <= domain->completed;
        flw_lock_release(&heap->lock);
        if (fence != NULL || is_done || !may_record) {
            break;
        }
        if (is_recording) {
            flw_backoff_wait(&backoff);
        } else if (tries++ < 2) {
            *status = flw_domain_fence(heap, domain);
        } else {
            break;
        }
    }
    if (fence == NULL && *status == FALLOW_OK) {
        *status = FALLOW_WOULD_WAIT;
    }
    return fence;
}

/* Driver calls. NOT_READY: the deadline is over. */
static CUresult wait_for_event(struct flw_heap *heap, CUevent event, uint64_t deadline_ns)
{
    if (deadline_ns == UINT64_MAX) {
        flw_heap_count_call(heap);
        return heap->driver->cuEventSynchronize(event);
    }
    for (unsigned tries = 0;; tries++) {
        flw_heap_count_call(heap);
        atomic_fetch_add_explicit(&heap->count.queries, 1, memory_order_relaxed);
        CUresult result = heap->driver->cuEventQuery(event);
        if (result != CUDA_ERROR_NOT_READY || flw_clock_fine_ns() >= deadline_ns) {
            return result;
        }
        if (tries < 64) {
            sched_yield();
        } else {
            flw_sleep_ns(20000);
        }
    }
}

fallow_status flw_domain_wait(struct flw_heap *heap, struct flw_domain *domain, uint64_t ticket,
                              uint64_t deadline_ns)
{
    fallow_status status;
    CUresult result = CUDA_ERROR_CAPTURED_EVENT;
    if (domain == heap->context_order && flw_captures_are_open()) {
        return FALLOW_WOULD_WAIT;
    }
    while (result == CUDA_ERROR_CAPTURED_EVENT) { /* each time one fence less, or a new one */
        struct flw_fence *fence = find_fence(heap, domain, ticket, true, &status);
        if (fence == NULL) {
            flw_lock_acquire(&heap->lock);
            bool is_done = ticket <= domain->completed;
            flw_lock_release(&heap->lock);
            return is_done ? FALLOW_OK : status;
        }
        flw_lock_acquire(&heap->lock);
        CUevent event = fence->event;
        flw_lock_release(&heap->lock);
        atomic_fetch_add_explicit(&heap->count.waits, 1, memory_order_relaxed);
        bool has_ended;
        result = heed_end(heap, fence, wait_for_event(heap, event, deadline_ns), &has_ended);
        if (result == CUDA_SUCCESS) {
            result = ask_others(heap, fence, deadline_ns == UINT64_MAX);
        }
        flw_lock_acquire(&heap->lock);
        if (has_ended) {
            forget_events(heap, fence);
        }
        if (result == CUDA_SUCCESS) {
            flw_domain_complete(heap, domain, fence->ticket);
            flw_heap_settle_pendings(heap);
        } else if (result == CUDA_ERROR_CAPTURED_EVENT) {
            void_fence(domain, fence);
        }
        domain->refuses_fences |= is_refusal(result);
        release_fence(heap, fence);
        flw_lock_release(&heap->lock);
    }
    return result == CUDA_ERROR_NOT_READY ? FALLOW_TIMEOUT
           : flw_result_is_capture_refusal(result)
               ? FALLOW_WOULD_WAIT
               : refuse_own(heap, result,
                            deadline_ns == UINT64_MAX ? "cuEventSynchronize" : "cuEventQuery");
}

/* ---- order among domains */

bool flw_domain_is_after(const struct flw_domain *taker, const struct flw_domain *donor,
                         uint64_t ticket)
{
    for (uint32_t i = 0; i < FLW_STAMPS_MAX; i++) {
        if (taker->after[i].domain == donor->index && taker->after[i].ticket >= ticket) {
            return true;
        }
    }
    return false;
}

/* lock. A place of the donor's, else the oldest. */
static void note_after(struct flw_domain *taker, const struct flw_domain *donor, uint64_t ticket)
{
    uint32_t i = 0;
    while (i < FLW_STAMPS_MAX && taker->after[i].domain != donor->index) {
        i++;
    }
    if (i == FLW_STAMPS_MAX) {
        i = taker->after_next++ % FLW_STAMPS_MAX;
    } else if (taker->after[i].ticket >= ticket) {
        return;
    }
    taker->after[i] = (struct flw_stamp){.domain = donor->index, .ticket = ticket};
}

fallow_status flw_domain_order_after(struct flw_heap *heap, struct flw_domain *taker,
                                     struct flw_domain *donor, uint64_t ticket, bool may_record)
{
    fallow_status status;
    struct flw_fence *fence = find_fence(heap, donor, ticket, may_record, &status);
    if (fence == NULL) {
        return status;
    }
    CUresult result =
        FLW_MUTANT(STEAL_WITHOUT_WAIT) ? CUDA_SUCCESS : taker->ops->wait(heap, taker, fence->event);
    flw_lock_acquire(&heap->lock);
    if (result == CUDA_SUCCESS) {
        note_after(taker, donor, fence->ticket);
    }
    release_fence(heap, fence);
    flw_lock_release(&heap->lock);
    if (flw_result_is_stale(result) || flw_result_is_capture_refusal(result)) {
        return FALLOW_INVALID_STREAM;
    }
    return flw_heap_refuse(heap, result, "cuStreamWaitEvent");
}
