/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: outstanding fences: clearing or voiding them near captures, querying them, and waiting for
 * them on the host or on another domain's stream. fence.c has the protocol.
 * Independent of the memory of a domain (domain.c). */
#include "base/backoff.h"
#include "base/mutant.h"
#include "heap/order/domain.h"
#include "heap/order/epoch.h"
#include "heap/order/fence.h"

static void release_fence(struct flw_heap *heap, struct flw_fence *fence)
{
    if (--fence->use_count == 0 && fence->is_unlinked) {
        flw_fence_drop(heap, fence);
    }
}

/* Query the other contexts' events after a fence's first event is complete. Makes driver calls. */
static inline CUresult ask_others(struct flw_heap *heap, const struct flw_fence *fence,
                                  bool is_patient)
{
    return FLW_LIKELY(fence->others == NULL) ? CUDA_SUCCESS
                                             : flw_epoch_ask_others(heap, fence, is_patient);
}

/* Discard a fence with an event that belongs to a capture and covers nothing. A later fence covers
 * the work; on a retired stream that is the retirement's. Heap lock held. */
static void void_fence(struct flw_heap *heap, struct flw_domain *domain, struct flw_fence *fence)
{
    if (!fence->is_unlinked) {
        flw_fence_unlink(heap, domain, fence);
        flw_domain_set_add(&heap->open_users, domain);
        flw_domain_want_fence(heap, domain, 1);
    }
}

/* Heap lock held. */
static void void_uncleared(struct flw_heap *heap, struct flw_domain *domain)
{
    while (flw_domain_has_uncleared(domain)) {
        struct flw_fence *fence = domain->newest;
        fence->use_count++;
        void_fence(heap, domain, fence);
        release_fence(heap, fence);
    }
}

fallow_status flw_domain_clear(struct flw_heap *heap, struct flw_domain *domain)
{
    flw_lock_acquire(&heap->lock);
    bool is_wanted = flw_domain_has_uncleared(domain);
    flw_lock_release(&heap->lock);
    if (!is_wanted) {
        return FALLOW_OK;
    }
    if (!flw_domain_begin_naming(heap, domain, false)) {
        return FALLOW_OK; /* another thread has retired or lost it meanwhile */
    }
    fallow_status status = flw_domain_ask_capture(heap, domain);
    flw_lock_acquire(&heap->lock);
    if (status == FALLOW_INVALID_STREAM) {
        flw_domain_lose(heap, domain);
        status = FALLOW_OK;
    } else if (status != FALLOW_OK) {
        domain->refuses_fences |= status == FALLOW_DRIVER;
        void_uncleared(heap, domain);
    }
    flw_lock_release(&heap->lock);
    flw_domain_end_naming(heap, domain);
    return status == FALLOW_CAPTURING ? FALLOW_WOULD_WAIT : status;
}

void flw_domain_fence_cleared(struct flw_heap *heap, struct flw_domain *domain)
{
    struct flw_driver_section section;
    if (flw_heap_enter_driver(heap, &section)) {
        (void)flw_heap_ask_one(heap, true); /* reuses events even if nothing else polls */
        if (flw_domain_fence(heap, domain) == FALLOW_OK) {
            (void)flw_domain_clear(heap, domain);
        }
        flw_heap_leave_driver(heap, &section);
    }
}

/* Interpret the driver's result for a fence. Another context may end before the stream's last
 * fence is queried, and the events with it: the recorded work is over. */
static CUresult heed_end(const struct flw_heap *heap, const struct flw_fence *fence,
                         CUresult result, bool *out_has_ended)
{
    /* Not read from the domain: the place may belong to another stream now. */
    *out_has_ended = fence->context != heap->context &&
                     (flw_result_is_stale(result) || flw_result_is_gone(result));
    return *out_has_ended ? CUDA_SUCCESS : result;
}

/* True if the result is none of complete, incomplete and captured: nothing is known complete. */
static bool is_refusal(CUresult result)
{
    return result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY &&
           !flw_result_is_capture_refusal(result);
}

/* Forget the events of a fence after the end of the context, including kept ones.
 * Heap lock held. */
static void forget_events(struct flw_heap *heap, struct flw_fence *fence)
{
    fence->event = NULL;
    for (struct flw_fence *unused = heap->objects.unused_fences; unused != NULL;
         unused = unused->next) {
        if (unused->context == fence->context && unused->context_id == fence->context_id) {
            unused->event = NULL;
        }
    }
}

/* Query one fence. True: complete; the domain is updated unless it is NULL, and *has_deferred is set if
 * deferred frees must be returned. */
static bool ask_fence(struct flw_heap *heap, struct flw_domain *domain, struct flw_fence *fence,
                      bool *has_deferred)
{
    /* The lock is held on entry and exit, not in between. */
    uint64_t seq = fence->seq;
    CUevent event = fence->event;
    fence->use_count++;
    flw_lock_release(&heap->lock);
    atomic_fetch_add_explicit(&heap->count.queries, 1, memory_order_relaxed);
    bool has_ended;
    CUresult result = heed_end(
        heap, fence, flw_fence_ask_event(heap, event, heap->driver->cuEventQuery), &has_ended);
    if (result == CUDA_SUCCESS) {
        result = ask_others(heap, fence, false);
    }
    bool is_refused = is_refusal(result);
    if (is_refused) {
        (void)flw_fence_refuse(heap, result, "cuEventQuery");
    }
    if (FLW_MUTANT(NOT_READY_IS_DONE) && result == CUDA_ERROR_NOT_READY) {
        result = CUDA_SUCCESS;
    }
    flw_lock_acquire(&heap->lock);
    if (has_ended) {
        forget_events(heap, fence);
    }
    if (result == CUDA_SUCCESS && has_deferred != NULL) {
        *has_deferred |=
            flw_domain_complete_only(heap, domain, seq + FLW_MUTANT(COMPLETES_TOO_MUCH));
    } else if (result == CUDA_ERROR_CAPTURED_EVENT) {
        void_fence(heap, domain, fence);
    }
    if (result == CUDA_ERROR_NOT_READY && fence == domain->oldest) {
        domain->unready_look = heap->standing.look;
    }
    domain->refuses_fences |= is_refused;
    release_fence(heap, fence);
    return result == CUDA_SUCCESS;
}

/* Return the newest fence that may be queried, or NULL. Heap lock held. */
static struct flw_fence *newest_cleared(struct flw_domain *domain)
{
    struct flw_fence *newest = NULL;
    if (!flw_domain_has_uncleared(domain)) {
        return domain->newest;
    }
    for (struct flw_fence *at = domain->oldest; at != NULL && at->seq <= domain->cleared;
         at = at->next) {
        newest = at;
    }
    return newest;
}

/* Returns true if there was something to clear and it is cleared. As in the next two functions,
 * the lock is held on entry and exit, not in between. */
static bool clear_rest(struct flw_heap *heap, struct flw_domain *domain)
{
    if (!flw_domain_has_uncleared(domain)) {
        return false;
    }
    flw_lock_release(&heap->lock);
    fallow_status status = flw_domain_clear(heap, domain);
    flw_lock_acquire(&heap->lock);
    return status == FALLOW_OK;
}

/* Query the oldest fences before that sequence number until one is incomplete. True if any was
 * complete. */
static bool ask_oldest(struct flw_heap *heap, struct flw_domain *domain, uint64_t seq,
                       bool *has_deferred)
{
    unsigned n = 0;
    while (n < 16 && domain->oldest != NULL && domain->oldest->seq < seq &&
           ask_fence(heap, domain, domain->oldest, has_deferred)) {
        n++;
    }
    return n > 0;
}

/* Query the newest fence first: it covers all older ones. If that is incomplete, query from the
 * oldest until one is incomplete. A fence that was incomplete at the last query is queried after
 * the oldest, because all are incomplete if the oldest is. The stream is queried for a capture
 * only if all fences that may be queried are complete; before that no newer one is. (Memory is
 * transferred in the order and portions in which it was freed: transfers in bulk held up to 3 %
 * more on recorded traces.) Returns true if anything completed. */
static bool poll_domain(struct flw_heap *heap, struct flw_domain *domain, bool *has_deferred)
{
    struct flw_fence *newest = newest_cleared(domain);
    bool may_be_done = !flw_domain_has_uncleared(domain), any = false;
    if (!may_be_done && (newest == NULL || ask_fence(heap, domain, newest, NULL))) {
        (void)clear_rest(heap, domain);
        newest = newest_cleared(domain);
        may_be_done = true;
    }
    if (newest == NULL) {
        return false;
    }
    if (domain->is_behind && domain->oldest != NULL && domain->oldest != newest) {
        any = ask_fence(heap, domain, domain->oldest, has_deferred);
        newest = newest_cleared(domain);
    }
    if (newest == NULL || (domain->is_behind && !any && domain->oldest != newest)) {
        return any;
    }
    uint64_t seq = newest->seq;
    bool is_done = may_be_done && ask_fence(heap, domain, newest, has_deferred);
    domain->is_behind = !is_done;
    return is_done || ask_oldest(heap, domain, seq, has_deferred) || any;
}

/* The lock is held on entry and exit, not in between. */
static bool poll(struct flw_heap *heap)
{
    bool any = false, has_deferred = false;
    bool may_ask = heap->context_order == NULL || !flw_captures_are_open();
    for (uint32_t i = 1;
         heap->standing.oldest != NULL && i < heap->domain_end && !flw_heap_is_lost(heap); i++) {
        struct flw_domain *domain = heap->domains[i];
        if (domain->ops != NULL && domain->newest != NULL && may_ask &&
            domain->unready_look != heap->standing.look) {
            any |= poll_domain(heap, domain, &has_deferred);
        }
    }
    has_deferred |= heap->deferred_count > 0; /* some wait to be checked */
    return (has_deferred && flw_heap_return_deferred(heap)) || any;
}

uint64_t flw_heap_begin_look(struct flw_heap *heap)
{
    flw_lock_acquire(&heap->lock);
    uint64_t look = ++heap->standing.look;
    flw_lock_release(&heap->lock);
    return look;
}

bool flw_heap_poll(struct flw_heap *heap)
{
    flw_lock_acquire(&heap->lock);
    heap->standing.look++;
    bool any = poll(heap);
    flw_lock_release(&heap->lock);
    return any;
}

bool flw_heap_poll_rest(struct flw_heap *heap)
{
    flw_lock_acquire(&heap->lock);
    bool any = poll(heap);
    flw_lock_release(&heap->lock);
    return any;
}

/* Choose the fence to query: the oldest of all and, alternately, the next stream's, since a stream
 * with long work must not hide what others have finished. NULL: none is outstanding. Heap lock
 * held. */
static struct flw_fence *fence_to_ask(struct flw_heap *heap)
{
    struct flw_standing *standing = &heap->standing;
    struct flw_fence *fence = standing->oldest;
    if (standing->is_turn_of_next && standing->next != NULL) {
        fence = standing->next;
    }
    return fence;
}

/* Record that it was incomplete, or could not be queried. Heap lock held. */
static void note_answer(struct flw_heap *heap, const struct flw_fence *asked)
{
    struct flw_standing *standing = &heap->standing;
    standing->is_turn_of_next = !standing->is_turn_of_next;
    if (asked != standing->oldest || standing->next == NULL) {
        standing->next = asked->behind != NULL ? asked->behind : standing->oldest->behind;
    }
}

#define LEAPS_MOST     3
#define LEAP_FROM_MOST 7

/* Return the fence, or a later one of the same stream, which covers it. From the second complete
 * fence in a row on, skip 1, 3, then 7. So a stream that keeps pace costs less than one query per
 * fence; after leaps that were too far, more must be complete before the next leap. Heap lock
 * held. */
static struct flw_fence *leap(struct flw_fence *fence)
{
    const struct flw_domain *domain = fence->domain;
    unsigned done = domain->done_asks - flw_min(domain->done_asks, domain->leap_from);
    done = flw_min(done, LEAPS_MOST + 1);
    for (unsigned reach = done > 1 ? 1u << (done - 1) : 1; reach > 1 && fence->next != NULL;
         reach--) {
        fence = fence->next;
    }
    return fence;
}

/* Query the held fence. True if complete. The lock is held on entry and exit, not in between. */
static bool ask_held(struct flw_heap *heap, struct flw_domain *domain, struct flw_fence *fence,
                     bool *has_deferred)
{
    fence->use_count++;
    bool is_clear = fence->seq <= domain->cleared || clear_rest(heap, domain);
    bool is_done = is_clear && !fence->is_unlinked && ask_fence(heap, domain, fence, has_deferred);
    domain->done_asks = is_done ? domain->done_asks + 1 : 0;
    release_fence(heap, fence);
    return is_done;
}

/* The same for a later fence that covers it; false if there is none. */
static bool ask_ahead(struct flw_heap *heap, struct flw_domain *domain, struct flw_fence *fence,
                      bool *has_deferred)
{
    struct flw_fence *ahead = leap(fence);
    if (ahead == fence) {
        return false;
    }
    bool is_done = ask_held(heap, domain, ahead, has_deferred);
    unsigned from = domain->leap_from;
    domain->leap_from = is_done ? from / 2 : flw_min(2 * from + 1, LEAP_FROM_MOST);
    return is_done;
}

struct flw_domain *flw_heap_ask_one(struct flw_heap *heap, bool may_leap)
{
    struct flw_domain *domain = NULL;
    bool is_done = false, has_deferred = false;
    flw_lock_acquire(&heap->lock);
    struct flw_fence *fence = flw_heap_is_lost(heap) ? NULL : fence_to_ask(heap);
    if (fence != NULL) {
        domain = fence->domain;
        fence->use_count++;
        is_done = (may_leap && ask_ahead(heap, domain, fence, &has_deferred)) ||
                  ask_held(heap, domain, fence, &has_deferred);
        if (!fence->is_unlinked) {
            note_answer(heap, fence);
        }
        release_fence(heap, fence);
    }
    if (has_deferred) {
        (void)flw_domain_return_deferred(heap, domain);
    }
    if (FLW_MUTANT(ASKED_COMPLETES_ANOTHER) && is_done && heap->standing.oldest != NULL) {
        flw_domain_complete(heap, heap->standing.oldest->domain, heap->standing.oldest->seq);
    }
    flw_lock_release(&heap->lock);
    return is_done ? domain : NULL;
}

/* Return the oldest published fence that covers `seq`, held; NULL: none. Heap lock held. */
static struct flw_fence *hold_fence(struct flw_domain *domain, uint64_t seq)
{
    struct flw_fence *fence = domain->oldest;
    while (fence != NULL && fence->seq < seq) {
        fence = fence->next;
    }
    if (fence != NULL) {
        fence->use_count++;
    }
    return fence;
}

/* Return the held fence once it may be queried; otherwise release it. A void fence is
 * not cleared. */
static struct flw_fence *clear_fence(struct flw_heap *heap, struct flw_domain *domain,
                                     struct flw_fence *fence, fallow_status *status)
{
    flw_lock_acquire(&heap->lock);
    bool is_clear = fence->seq <= domain->cleared;
    flw_lock_release(&heap->lock);
    *status = is_clear ? FALLOW_OK : flw_domain_clear(heap, domain);
    flw_lock_acquire(&heap->lock);
    is_clear = *status == FALLOW_OK && fence->seq <= domain->cleared;
    if (!is_clear) {
        release_fence(heap, fence);
    }
    flw_lock_release(&heap->lock);
    *status = is_clear || *status != FALLOW_OK ? *status : FALLOW_WOULD_WAIT;
    return is_clear ? fence : NULL;
}

/* The same, cleared, and recorded by this thread if needed. If another thread is recording it,
 * wait for that: a record takes a driver call, while going on without the memory may take a
 * growth. */
static struct flw_fence *find_fence(struct flw_heap *heap, struct flw_domain *domain, uint64_t seq,
                                    bool may_record, fallow_status *status)
{
    struct flw_fence *fence = NULL;
    *status = FALLOW_OK;
    struct flw_backoff backoff = {0};
    for (unsigned tries = 0; fence == NULL && *status == FALLOW_OK;) {
        flw_lock_acquire(&heap->lock);
        fence = hold_fence(domain, seq);
        bool is_recording = domain->is_recording, is_done = seq <= domain->completed;
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
    return fence == NULL ? NULL : clear_fence(heap, domain, fence, status);
}

/* Wait for all events of the held fence. Returns CUDA_ERROR_NOT_READY after the deadline. Makes
 * driver calls. */
static CUresult wait_for_events(struct flw_heap *heap, const struct flw_fence *fence, CUevent event,
                                uint64_t deadline_ns, bool *out_has_ended)
{
    bool is_patient = deadline_ns == UINT64_MAX;
    for (struct flw_backoff backoff = {0};; flw_backoff_wait(&backoff)) {
        atomic_fetch_add_explicit(&heap->count.queries, !is_patient, memory_order_relaxed);
        CUresult result = flw_fence_ask_event(heap, event,
                                              is_patient ? heap->driver->cuEventSynchronize
                                                         : heap->driver->cuEventQuery);
        result = heed_end(heap, fence, result, out_has_ended);
        if (result == CUDA_SUCCESS) {
            result = ask_others(heap, fence, is_patient);
        }
        if (is_patient || result != CUDA_ERROR_NOT_READY || flw_clock_fine_ns() >= deadline_ns) {
            return result;
        }
    }
}

fallow_status flw_domain_wait(struct flw_heap *heap, struct flw_domain *domain, uint64_t seq,
                              uint64_t deadline_ns)
{
    fallow_status status;
    CUresult result = CUDA_ERROR_CAPTURED_EVENT;
    if (domain == heap->context_order && flw_captures_are_open()) {
        return FALLOW_WOULD_WAIT;
    }
    while (result == CUDA_ERROR_CAPTURED_EVENT) { /* each time one fence less, or a new one */
        struct flw_fence *fence = find_fence(heap, domain, seq, true, &status);
        if (fence == NULL) {
            flw_lock_acquire(&heap->lock);
            bool is_done = seq <= domain->completed;
            flw_lock_release(&heap->lock);
            return is_done ? FALLOW_OK : status;
        }
        flw_lock_acquire(&heap->lock);
        CUevent event = fence->event;
        flw_lock_release(&heap->lock);
        atomic_fetch_add_explicit(&heap->count.waits, 1, memory_order_relaxed);
        bool has_ended;
        result = wait_for_events(heap, fence, event, deadline_ns, &has_ended);
        flw_lock_acquire(&heap->lock);
        if (has_ended) {
            forget_events(heap, fence);
        }
        if (result == CUDA_SUCCESS) {
            flw_domain_complete(heap, domain, fence->seq);
        } else if (result == CUDA_ERROR_CAPTURED_EVENT) {
            void_fence(heap, domain, fence);
        }
        domain->refuses_fences |= is_refusal(result);
        release_fence(heap, fence);
        flw_lock_release(&heap->lock);
    }
    return result == CUDA_ERROR_NOT_READY ? FALLOW_TIMEOUT
           : flw_result_is_capture_refusal(result)
               ? FALLOW_WOULD_WAIT
               : flw_fence_refuse(heap, result,
                                  deadline_ns == UINT64_MAX ? "cuEventSynchronize"
                                                            : "cuEventQuery");
}

/* ---- order among domains */

bool flw_domain_is_after(const struct flw_domain *taker, const struct flw_domain *donor,
                         uint64_t seq)
{
    for (uint32_t i = 0; i < FLW_POINTS_MAX; i++) {
        if (taker->after[i].domain == donor->index && taker->after[i].seq >= seq) {
            return true;
        }
    }
    return false;
}

/* Use the place of the donor, or the oldest. Heap lock held. */
static void note_after(struct flw_domain *taker, const struct flw_domain *donor, uint64_t seq)
{
    uint32_t i = 0;
    while (i < FLW_POINTS_MAX && taker->after[i].domain != donor->index) {
        i++;
    }
    if (i == FLW_POINTS_MAX) {
        i = taker->after_next++ % FLW_POINTS_MAX;
    } else if (taker->after[i].seq >= seq) {
        return;
    }
    taker->after[i] = (struct flw_point){.domain = donor->index, .seq = seq};
}

/* Uses the stream's own context, as a record; see record_fence. Makes driver calls. */
static CUresult make_wait(struct flw_heap *heap, const struct flw_domain *taker, CUevent event)
{
    struct flw_driver_section section;
    bool is_default = (uintptr_t)taker->stream <= (uintptr_t)CU_STREAM_PER_THREAD;
    if (is_default) {
        CUresult result = flw_heap_enter_parts(heap, &section, heap->context, FLW_SECTION_CONTEXT);
        if (result != CUDA_SUCCESS) {
            return result;
        }
    }
    CUresult result = taker->ops->wait(heap, taker, event);
    if (is_default) {
        flw_heap_leave_driver(heap, &section);
    } else if (flw_heap_enter_instead(heap, &section, heap->context, result)) {
        result = taker->ops->wait(heap, taker, event);
        flw_heap_leave_driver(heap, &section);
    }
    return result;
}

fallow_status flw_domain_order_after(struct flw_heap *heap, struct flw_domain *taker,
                                     struct flw_domain *donor, uint64_t seq, bool may_record)
{
    fallow_status status;
    struct flw_fence *fence = find_fence(heap, donor, seq, may_record, &status);
    if (fence == NULL) {
        return status;
    }
    CUresult result =
        FLW_MUTANT(STEAL_WITHOUT_WAIT) ? CUDA_SUCCESS : make_wait(heap, taker, fence->event);
    flw_lock_acquire(&heap->lock);
    if (result == CUDA_SUCCESS) {
        note_after(taker, donor, fence->seq);
    }
    release_fence(heap, fence);
    flw_lock_release(&heap->lock);
    if (flw_result_is_stale(result) || flw_result_is_capture_refusal(result)) {
        return FALLOW_INVALID_STREAM;
    }
    return flw_heap_refuse(heap, result, "cuStreamWaitEvent");
}
