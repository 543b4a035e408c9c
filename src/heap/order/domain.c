/* SPDX-License-Identifier: Apache-2.0 */
#include "heap/order/domain.h"

#include <stddef.h>
#include <string.h>

#include "base/mutant.h"
#include "heap/space/deferred.h"
#include "heap/space/run.h"
#include "heap/space/slab.h"
#include "heap/state/run_index_inl.h"
#include "heap/state/thread.h"

static CUresult stream_record(struct flw_heap *heap, const struct flw_domain *domain,
                              struct flw_fence *fence)
{
    flw_heap_count_call(heap);
    return heap->driver->cuEventRecord(fence->event, domain->stream);
}

static CUresult stream_wait(struct flw_heap *heap, const struct flw_domain *domain, CUevent event)
{
    flw_heap_count_call(heap);
    atomic_fetch_add_explicit(&heap->count.stream_waits, 1, memory_order_relaxed);
    return heap->driver->cuStreamWaitEvent(domain->stream, event, 0);
}

const struct flw_order_ops flw_order_stream = {.name = "stream",
                                               .is_stream = true,
                                               .reuses_at_once = true,
                                               .record = stream_record,
                                               .wait = stream_wait};
const struct flw_order_ops flw_order_capture = {.name = "capture", .reuses_at_once = true};
const struct flw_order_ops flw_order_released = {.name = "released capture"};
const struct flw_order_ops flw_order_no_stream = {.name = "no stream"};
const struct flw_order_ops flw_order_unrecorded = {.name = "context, unrecorded"};

struct flw_domain *flw_domain_create(struct flw_heap *heap, const struct flw_order_ops *ops,
                                     CUstream stream, CUcontext context, uint64_t id)
{
    struct flw_domain *domain = heap->places.free;
    struct flw_deferred *waiting = NULL;
    uint32_t index = heap->domain_end;
    uint64_t seq = 1;
    if (domain != NULL) {
        heap->places.free = domain->next_place;
        index = domain->index;
        seq = domain->seq; /* points of the place's previous owner stay complete */
        waiting = domain->waiting;
    } else if (index < FLW_DOMAIN_COUNT) {
        domain = flw_meta_extend(&heap->objects.meta, sizeof *domain, FLW_LINE_PAIR);
    }
    if (domain == NULL) {
        return NULL;
    }
    FLW_ASSERT(!flw_domain_has_runs(domain));
    memset((void *)domain, 0, offsetof(struct flw_domain, batches));
    domain->ops = ops;
    domain->index = index;
    domain->stream = stream;
    domain->context = context;
    domain->id = id;
    domain->seq = seq;
    domain->completed = seq - 1;
    domain->waiting = waiting;
    while (waiting != NULL) {
        domain->waiting_last = waiting;
        waiting = waiting->next;
    }
    (void)flw_domain_set_remove(&heap->open_users, domain);
    heap->domains[index] = domain;
    heap->domain_end = index == heap->domain_end ? index + 1 : heap->domain_end;
    return domain;
}

struct flw_domain *flw_domain_find(const struct flw_heap *heap, CUstream stream)
{
    uintptr_t self = flw_thread_token();
    struct flw_domain *domain = *flw_places_chain(&heap->places, stream, self);
    while (domain != NULL &&
           (domain->stream != stream || (domain->own_thread_only && domain->thread != self))) {
        domain = domain->next_place;
    }
    return domain;
}

struct flw_domain *flw_domain_find_alias(const struct flw_heap *heap, CUstream stream, uint64_t id)
{
    struct flw_domain *domain = *flw_places_chain(&heap->places, stream, flw_thread_token());
    while (domain != NULL && (id == 0 || domain->id != id)) {
        domain = domain->next_place;
    }
    return domain;
}

struct flw_domain *flw_domain_next(struct flw_heap *heap, uint32_t *cursor)
{
    struct flw_domain *domain = NULL;
    flw_lock_acquire(&heap->lock);
    while (domain == NULL && ++*cursor < heap->domain_end) {
        domain = heap->domains[*cursor]->ops != NULL ? heap->domains[*cursor] : NULL;
    }
    flw_lock_release(&heap->lock);
    return domain;
}

/* ---- completion */

static void make_batches_unowned(struct flw_heap *heap, struct flw_domain *domain,
                                 unsigned class_index)
{
    struct flw_batch_list *list = &domain->batches[class_index];
    for (struct flw_batch *batch; (batch = list->tail) != NULL;) {
        if (batch->seq > domain->completed + FLW_MUTANT(BATCH_UNOWNED_EARLY)) {
            return;
        }
        flw_batch_remove(list, batch);
        flw_heap_push_batch(heap, heap->domains[FLW_UNOWNED], batch);
    }
    flw_class_set_remove(&domain->with_batches, class_index);
}

/* Make memory of the domain unowned that the completed number covers. */
static void make_unowned(struct flw_heap *heap, struct flw_domain *domain)
{
    struct flw_domain *unowned = heap->domains[FLW_UNOWNED];
    if (flw_domain_keeps(heap, domain) || domain == heap->dedicated) {
        return;
    }
    for (struct flw_span *run; (run = domain->runs.oldest) != NULL;) {
        if (run->u.run.seq > domain->completed + FLW_MUTANT(RUN_UNOWNED_EARLY)) {
            break;
        }
        if (flw_run_is_dedicated(run)) { /* joins nothing; all of them have sequence number 0 */
            run->u.run.owner = heap->dedicated->index;
            flw_run_index_pass_oldest(&domain->runs, &heap->dedicated->runs, 0);
        } else {
            flw_run_index_remove(&domain->runs, run);
            run->u.run.seq = 0;
            run->u.run.owner = FLW_UNOWNED;
            flw_run_index_by_state(heap, flw_run_join(heap, run));
        }
    }
    for (struct flw_span *run; (run = domain->dedicated_runs.oldest) != NULL;) {
        if (run->u.run.seq > domain->completed) {
            break;
        }
        run->u.run.owner = FLW_UNOWNED;
        flw_run_index_pass_oldest(&domain->dedicated_runs, &unowned->dedicated_runs, 0);
    }
    FLW_EACH_CLASS (c, &domain->with_batches) {
        make_batches_unowned(heap, domain, c);
    }
}

void flw_domain_free_place(struct flw_heap *heap, struct flw_domain *domain)
{
    if (heap->multi_stream != NULL && domain->ops == &flw_order_stream) {
        make_unowned(heap, domain); /* kept until now because the stream was known */
    }
    /* Uses of live blocks may name a lost stream: only a synchronisation covers them, or each
     * use's own fence if streams may die. */
    bool is_over = !domain->is_lost || heap->streams_may_die ||
                   (domain->sync_seq != 0 && domain->sync_seq == domain->completed) ||
                   (domain->cover_seq != 0 && domain->cover_seq == domain->completed);
    bool is_done = domain->ops == &flw_order_stream && !domain->is_known && is_over &&
                   domain->capture == 0 && domain->newest == NULL && !domain->is_recording &&
                   domain->naming_count == 0 && domain->unfenced_bytes == 0 &&
                   domain->capture_count == 0 && !flw_domain_has_runs(domain);
    for (unsigned c = 0; is_done && c < FLW_CLASS_COUNT; c++) {
        is_done = domain->batches[c].head == NULL && domain->current[c] == NULL;
    }
    if (is_done && domain->cache_count == 0) {
        flw_domain_owe_nothing(heap, domain);
        flw_places_vacate(&heap->places, domain);
    }
}

/* A later event of the context covers everything that an earlier one covers. */
static FLW_NOINLINE void complete_lost(struct flw_heap *heap, uint64_t cover)
{
    for (uint32_t i = 1; i < heap->domain_end; i++) {
        struct flw_domain *domain = heap->domains[i];
        if (domain->ops == &flw_order_stream && domain->cover != 0 && domain->cover <= cover) {
            domain->cover = 0;
            bool has_deferred = flw_domain_complete_only(heap, domain, domain->cover_seq);
            (void)has_deferred; /* as the caller's */
        }
    }
}

bool flw_domain_complete_only(struct flw_heap *heap, struct flw_domain *domain, uint64_t seq)
{
    if (seq <= domain->completed) {
        return false;
    }
    if (FLW_UNLIKELY(domain->cover != 0) && seq >= domain->cover_seq) {
        uint64_t cover = domain->cover;
        domain->cover = 0;
        complete_lost(heap, cover);
    }
    domain->completed = seq;
    domain->refuses_fences = false;
    while (domain->oldest != NULL && domain->oldest->seq <= seq) {
        struct flw_fence *fence = domain->oldest;
        flw_fence_unlink(heap, domain, fence);
        if (fence->use_count == 0) {
            flw_fence_drop(heap, fence);
        }
    }
    make_unowned(heap, domain);
    flw_domain_free_place(heap, domain);
    return heap->deferred_count > 0;
}

static void return_to_owner(struct flw_heap *heap, struct flw_deferred *deferred)
{
    struct flw_domain *domain = heap->domains[deferred->domain];
    bool is_complete = deferred->own_seq != 0 && deferred->own_seq <= domain->completed;
    if (!domain->is_known || (is_complete && !flw_domain_keeps(heap, domain))) {
        domain = heap->domains[FLW_UNOWNED];
    }
    heap->deferred_bytes -= deferred->bytes;
    heap->deferred_count--;
    if (deferred->run != NULL) { /* the stream got no work for it since the free */
        uint64_t seq = deferred->own_seq != 0 && deferred->domain == domain->index
                           ? deferred->own_seq
                           : flw_domain_free_seq(domain);
        flw_heap_put_run_at_point(heap, domain->index, seq, deferred->run);
    } else {
        flw_heap_put_block(heap, domain, deferred->slot);
    }
    flw_heap_drop_deferred(heap, deferred);
}

/* Check one that may be complete. Returns true if it was. */
static bool look_at(struct flw_heap *heap, struct flw_deferred *deferred)
{
    bool is_done = !flw_heap_await_deferred(heap, deferred);
    if (is_done) {
        return_to_owner(heap, deferred);
    }
    return is_done;
}

static bool return_waiting(struct flw_heap *heap, struct flw_domain *domain)
{
    bool any = false;
    while (domain->waiting != NULL && domain->waiting->awaits.seq <= domain->completed) {
        struct flw_deferred *deferred = domain->waiting;
        domain->waiting = deferred->next;
        any |= look_at(heap, deferred);
    }
    return any;
}

bool flw_heap_return_unnumbered(struct flw_heap *heap)
{
    bool any = false;
    struct flw_domain *unowned = heap->domains[FLW_UNOWNED];
    struct flw_deferred *rest = unowned->waiting;
    unowned->waiting = NULL;
    for (struct flw_deferred *next; rest != NULL; rest = next) {
        next = rest->next;
        any |= look_at(heap, rest);
    }
    return any;
}

bool flw_domain_return_deferred(struct flw_heap *heap, struct flw_domain *domain)
{
    bool any = return_waiting(heap, domain);
    return flw_heap_return_unnumbered(heap) || any;
}

bool flw_heap_return_deferred(struct flw_heap *heap)
{
    bool any = false;
    for (uint32_t i = 1; i < heap->domain_end; i++) {
        any |= return_waiting(heap, heap->domains[i]);
    }
    return flw_heap_return_unnumbered(heap) || any;
}

void flw_domain_complete(struct flw_heap *heap, struct flw_domain *domain, uint64_t seq)
{
    if (flw_domain_complete_only(heap, domain, seq)) {
        (void)flw_heap_return_deferred(heap);
    }
}

/* ---- the stream's handle */

/* False if the domain's stream must not be named. Heap lock held. */
static bool begin_naming(const struct flw_heap *heap, struct flw_domain *domain)
{
    bool is_nameable = domain->ops == &flw_order_stream && domain->is_known &&
                       !heap->streams_may_die &&
                       (!domain->own_thread_only || domain->thread == flw_thread_token());
    domain->naming_count += is_nameable;
    return is_nameable;
}

bool flw_domain_begin_naming(struct flw_heap *heap, struct flw_domain *domain, bool foreign_only)
{
    flw_lock_acquire(&heap->lock);
    bool is_nameable = (domain->is_foreign || !foreign_only) && begin_naming(heap, domain);
    flw_lock_release(&heap->lock);
    return is_nameable;
}

#define PLACES_A_LOOK 16

struct flw_domain *flw_domain_begin_naming_next(struct flw_heap *heap)
{
    struct flw_domain *named = NULL;
    flw_lock_acquire(&heap->lock);
    uint32_t *place = &heap->places.named;
    uint32_t looks = heap->streams_may_die ? 0 : flw_min(PLACES_A_LOOK, heap->domain_end - 1);
    for (; named == NULL && looks > 0; looks--) {
        *place = *place + 1 < heap->domain_end ? *place + 1 : 1;
        named = begin_naming(heap, heap->domains[*place]) ? heap->domains[*place] : NULL;
    }
    flw_lock_release(&heap->lock);
    return named;
}

void flw_domain_end_naming(struct flw_heap *heap, struct flw_domain *domain)
{
    flw_lock_acquire(&heap->lock);
    if (--domain->naming_count == 0 && !domain->is_known) {
        flw_domain_free_place(heap, domain);
    }
    flw_lock_release(&heap->lock);
}

/* Makes driver calls. */
static CUresult ask_stream(struct flw_heap *heap, const struct flw_domain *domain,
                           CUstreamCaptureStatus *capturing)
{
    flw_heap_count_question(heap);
    return heap->driver->cuStreamIsCapturing(domain->stream, capturing);
}

/* Makes driver calls. */
static CUresult enter_and_ask(struct flw_heap *heap, const struct flw_domain *domain,
                              CUcontext context, CUstreamCaptureStatus *capturing)
{
    struct flw_driver_section section;
    bool is_default = (uintptr_t)domain->stream <= (uintptr_t)CU_STREAM_PER_THREAD;
    if (!is_default) {
        return ask_stream(heap, domain, capturing);
    }
    CUresult result = flw_heap_enter_parts(heap, &section, context, FLW_SECTION_CONTEXT);
    if (result == CUDA_SUCCESS) {
        result = ask_stream(heap, domain, capturing);
        flw_heap_leave_driver(heap, &section);
    }
    return result;
}

/* The stream's own context counts, not the current one, except for default streams. */
fallow_status flw_domain_ask_capture(struct flw_heap *heap, struct flw_domain *domain)
{
    struct flw_driver_section section;
    CUstreamCaptureStatus capturing = CU_STREAM_CAPTURE_STATUS_NONE;
    CUcontext context = domain->is_foreign ? domain->context : heap->context;
    flw_lock_acquire(&heap->lock);
    uint64_t recorded = domain->newest != NULL ? domain->newest->seq : 0;
    flw_lock_release(&heap->lock);
    CUresult result = enter_and_ask(heap, domain, context, &capturing);
    if (flw_heap_enter_instead(heap, &section, context, result)) {
        result = enter_and_ask(heap, domain, context, &capturing);
        flw_heap_leave_driver(heap, &section);
    }
    if (flw_result_is_stale(result) || (domain->is_foreign && flw_result_is_gone(result))) {
        return FALLOW_INVALID_STREAM;
    }
    if (result != CUDA_SUCCESS) { /* IMPLICIT: the legacy stream while a blocking stream is
                                      captured */
        return flw_heap_refuse(heap, result, "cuStreamIsCapturing");
    }
    if (capturing != CU_STREAM_CAPTURE_STATUS_NONE) {
        return FALLOW_CAPTURING;
    }
    if (recorded != 0) {
        flw_lock_acquire(&heap->lock);
        domain->cleared = flw_max(domain->cleared, recorded);
        flw_lock_release(&heap->lock);
    }
    return FALLOW_OK;
}

/* ---- loss */

void flw_domain_lose_quietly(struct flw_heap *heap, struct flw_domain *domain)
{
    if (!domain->is_lost) {
        heap->lost_bytes += flw_max(domain->unfenced_bytes, flw_domain_run_bytes(domain));
        heap->lost_count++;
    }
    __atomic_store_n(&domain->is_lost, true, __ATOMIC_RELAXED); /* cache owners read it */
    flw_domain_owe_nothing(heap, domain);
    if (domain->is_known) {
        flw_places_forget_stream(&heap->places, domain);
        atomic_fetch_sub_explicit(&heap->stream_count, 1, memory_order_relaxed);
        atomic_fetch_add_explicit(&heap->count.order_changes, 1, memory_order_release);
    }
    domain->cleared = domain->seq; /* it cannot be queried any more, and no capture outlives
                                       the streams */
    if (heap->multi_stream != NULL) {
        make_unowned(heap, domain); /* kept memory that is complete needs no synchronisation */
    }
}

void flw_domain_lose(struct flw_heap *heap, struct flw_domain *domain)
{
    if (!domain->is_lost) {
        flw_domain_lose_quietly(heap, domain);
        atomic_fetch_add_explicit(&heap->count.lost_streams, 1, memory_order_relaxed);
    }
}
