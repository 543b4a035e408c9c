/* SPDX-License-Identifier: Apache-2.0 */
#include "host/hostfence.h"

#include <sched.h>

#include "base/backoff.h"
#include "base/bits.h"
#include "base/clock.h"
#include "host/hostpool.h"

bool flw_fences_init(struct flw_hostfences *fences)
{
    *fences = (struct flw_hostfences){0};
    return flw_meta_reserve(&fences->meta, FLW_GIB);
}

void flw_fences_finish(struct flw_hostfences *fences)
{
    flw_meta_release(&fences->meta);
    *fences = (struct flw_hostfences){0};
}

/* ---- events */

/* Lock held. */
static struct flw_hostfence *new_fence(struct flw_hostfences *fences, CUcontext context)
{
    struct flw_hostfence **link = &fences->unused;
    while (*link != NULL && (*link)->context != context && (*link)->event != NULL) {
        link = &(*link)->next;
    }
    struct flw_hostfence *fence = *link;
    if (fence != NULL) {
        *link = fence->next;
        fence->next = NULL;
        fence->context = context;
        return fence;
    }
    fence = flw_meta_extend(&fences->meta, sizeof *fence, 16);
    if (fence != NULL) {
        *fence = (struct flw_hostfence){.context = context};
    }
    return fence;
}

/* Lock held. */
static void drop_fence(struct flw_hostfences *fences, struct flw_hostfence *fence)
{
    fence->uses = NULL;
    fence->heir = NULL;
    fence->next = fences->unused;
    fences->unused = fence;
}

/* Forget the events of a context that has ended. Lock held. */
static void forget_events(struct flw_hostfences *fences, CUcontext context)
{
    for (struct flw_hostfence *fence = fences->unused; fence != NULL; fence = fence->next) {
        fence->event = fence->context == context ? NULL : fence->event;
    }
}

/* Return uses to the open ones. Lock held. */
static void reopen(struct flw_hoststream *stream, struct flw_hostuse *uses)
{
    while (uses != NULL) {
        struct flw_hostuse *use = uses;
        uses = use->next;
        use->next = stream->open;
        stream->open = use;
        stream->open_count++;
        stream->open_bytes += use->block->bytes;
    }
}

/* Move uses that no event can cover any more to the lost ones. Lock held. */
static void lose_uses(struct flw_hostfences *fences, struct flw_hostfence *holder,
                      const struct flw_hoststream *stream, struct flw_hostuse *uses)
{
    holder->context = stream->context;
    holder->heir = stream->heir;
    holder->uses = uses;
    holder->next = fences->lost;
    fences->lost = holder;
}

static CUresult ask_capture(struct flw_hostpool *pool, CUstream handle)
{
    CUstreamCaptureStatus capturing = CU_STREAM_CAPTURE_STATUS_NONE;
    CUresult result = flw_pin_ask(&pool->pin)->cuStreamIsCapturing(handle, &capturing);
    return result == CUDA_SUCCESS && capturing != CU_STREAM_CAPTURE_STATUS_NONE
               ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
               : result;
}

/* Record an event in a section of the stream's context, with one query for a capture: for the
 * legacy stream before the record, which would end captures of other streams; for others after it,
 * in case a capture took the event. Makes driver calls. */
static CUresult record_event(struct flw_hostpool *pool, const struct flw_hoststream *stream,
                             struct flw_hostfence *fence)
{
    CUresult result = CUDA_SUCCESS;
    if (stream->has_id) {
        unsigned long long id = 0;
        result = flw_pin_ask(&pool->pin)->cuStreamGetId(stream->handle, &id);
        if (result == CUDA_SUCCESS && id != stream->id) {
            result = CUDA_ERROR_INVALID_HANDLE; /* another stream has the handle now */
        }
    }
    bool is_legacy = (uintptr_t)stream->handle <= (uintptr_t)CU_STREAM_LEGACY;
    if (result == CUDA_SUCCESS && is_legacy) {
        result = ask_capture(pool, stream->handle);
    }
    if (result == CUDA_SUCCESS && fence->event == NULL) {
        result = flw_pin_ask(&pool->pin)->cuEventCreate(&fence->event, CU_EVENT_DISABLE_TIMING);
        fence->event = result == CUDA_SUCCESS ? fence->event : NULL;
    }
    if (result == CUDA_SUCCESS) {
        result = flw_pin_ask(&pool->pin)->cuEventRecord(fence->event, stream->handle);
    }
    return result == CUDA_SUCCESS && !is_legacy ? ask_capture(pool, stream->handle) : result;
}

/* Return the context of the stream that has the handle of a stream that is gone, if that is
 * another context: frees with the handle may have been meant for either. Makes driver calls. */
static CUcontext find_heir(struct flw_hostpool *pool, const struct flw_hoststream *stream)
{
    struct flw_pin_section section;
    CUcontext heir = NULL;
    if (pool->pin.cu.cuStreamGetCtx == NULL || !flw_pin_enter(&pool->pin, &section, NULL)) {
        return NULL;
    }
    if (flw_pin_ask(&pool->pin)->cuStreamGetCtx(stream->handle, &heir) != CUDA_SUCCESS) {
        heir = NULL;
    }
    flw_pin_leave(&pool->pin, &section);
    return heir != stream->context ? heir : NULL;
}

/* Publish the result of a record. Lock held. */
static fallow_status publish(struct flw_hostpool *pool, struct flw_hoststream *stream,
                             struct flw_hostfence *fence, struct flw_hostuse *uses, CUresult result)
{
    struct flw_hostfences *fences = &pool->fences;
    if (result == CUDA_SUCCESS) {
        fence->uses = uses;
        fence->next = NULL;
        *(stream->newest != NULL ? &stream->newest->next : &stream->oldest) = fence;
        stream->newest = fence;
        stream->refuses_events = false;
        fences->event_count++;
        return FALLOW_OK;
    }
    bool is_gone = flw_result_is_stale(result);
    if (flw_pin_is_lost(&pool->pin) || !(is_gone || stream->thread != 0)) {
        bool is_captured = flw_result_is_capture_refusal(result);
        reopen(stream, uses);
        drop_fence(fences, fence);
        stream->refuses_events |= !is_captured;
        return flw_pin_is_lost(&pool->pin) ? FALLOW_DEVICE_LOST
               : is_captured               ? FALLOW_CAPTURING
                                           : FALLOW_DRIVER;
    }
    struct flw_hostfence *holder = flw_meta_extend(&fences->meta, sizeof *holder, 16);
    if (holder == NULL) { /* no host memory: one event less to reuse */
        holder = fence;
        fence = NULL;
    }
    if (holder != fence && fence != NULL) {
        drop_fence(fences, fence);
    }
    lose_uses(fences, holder, stream, uses);
    if (is_gone && stream->is_known) {
        stream->is_known = false;
        stream->is_lost = true;
        fences->stream_count--;
        fences->lost_count++;
    }
    return FALLOW_OK;
}

/* `is_last`: even if nothing is open, and after other threads. */
static fallow_status record(struct flw_hostpool *pool, struct flw_hoststream *stream, bool is_last)
{
    struct flw_pin_section section;
    CUresult result = CUDA_ERROR_CONTEXT_IS_DESTROYED;
    struct flw_backoff backoff = {0};
    flw_lock_acquire(&pool->lock);
    while (is_last && stream->is_busy) {
        flw_lock_release(&pool->lock);
        flw_backoff_wait(&backoff);
        flw_lock_acquire(&pool->lock);
    }
    if (stream->is_busy || !stream->is_known || (stream->open == NULL && !is_last) ||
        (stream->thread != 0 && stream->thread != flw_hoststream_thread())) {
        flw_lock_release(&pool->lock);
        return FALLOW_OK;
    }
    struct flw_hostfence *fence = new_fence(&pool->fences, stream->context);
    if (fence == NULL) {
        flw_lock_release(&pool->lock);
        return FALLOW_OUT_OF_HOST_MEMORY;
    }
    struct flw_hostuse *uses = stream->open;
    stream->open = NULL;
    stream->open_count = 0;
    stream->open_bytes = 0;
    stream->is_busy = true;
    flw_lock_release(&pool->lock);
    if (flw_pin_enter(&pool->pin, &section, stream->context)) {
        result = record_event(pool, stream, fence);
        flw_pin_leave(&pool->pin, &section);
    } else if (flw_pin_is_refusal(section.refusal)) {
        result = section.refusal; /* in a host function, for example: the stream still exists */
    }
    if (!flw_result_is_stale(result) && stream->context == pool->pin.context) {
        flw_pin_heed(&pool->pin, result, "cuEventRecord");
    }
    CUcontext heir = flw_result_is_stale(result) ? find_heir(pool, stream) : NULL;
    flw_lock_acquire(&pool->lock);
    stream->heir = heir;
    fallow_status status = publish(pool, stream, fence, uses, result);
    if (is_last && status == FALLOW_OK && stream->is_known) {
        stream->is_known = false;
        pool->fences.stream_count--;
    }
    stream->is_busy = false;
    flw_lock_release(&pool->lock);
    return status;
}

fallow_status flw_fences_record(struct flw_hostpool *pool, struct flw_hoststream *stream)
{
    return record(pool, stream, false);
}

/* ---- completion */

/* Query the stream's oldest event; the stream is this thread's. True: complete and removed,
 * *out_uses has the uses. The lock is held on entry and exit, not in between. */
static bool query_oldest(struct flw_hostpool *pool, struct flw_hoststream *stream, bool waits,
                         struct flw_hostuse **out_uses)
{
    struct flw_hostfences *fences = &pool->fences;
    struct flw_hostfence *fence = stream->oldest;
    struct flw_pin_section section;
    CUresult result = CUDA_ERROR_NOT_READY;
    bool has_ended = false; /* another context: then all the work has ended too */
    flw_lock_release(&pool->lock);
    if (flw_pin_enter(&pool->pin, &section, NULL)) {
        const struct flw_driver *cu = flw_pin_ask(&pool->pin);
        atomic_fetch_add(waits ? &fences->wait_count : &fences->query_count, 1);
        result = waits ? cu->cuEventSynchronize(fence->event) : cu->cuEventQuery(fence->event);
        bool is_over = flw_result_is_stale(result) || flw_result_is_gone(result);
        has_ended = is_over && fence->context != pool->pin.context;
        if (is_over && !has_ended) { /* of the pool's own context, with which alone the events
                                         end */
            flw_pin_lose(&pool->pin, result, waits ? "cuEventSynchronize" : "cuEventQuery");
        }
        flw_pin_leave(&pool->pin, &section);
    }
    flw_lock_acquire(&pool->lock);
    stream->refuses_events |= flw_pin_is_refusal(result) && !flw_result_is_capture_refusal(result);
    if (has_ended) {
        fence->event = NULL;
        forget_events(fences, fence->context);
        result = CUDA_SUCCESS;
    }
    if (FLW_HOST_PLANTED(NOT_READY_IS_DONE) && result == CUDA_ERROR_NOT_READY) {
        result = CUDA_SUCCESS;
    }
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_CAPTURED_EVENT) {
        return false;
    }
    stream->oldest = fence->next;
    if (stream->oldest == NULL) {
        stream->newest = NULL;
    }
    if (result == CUDA_SUCCESS) {
        *out_uses = fence->uses;
    } else {
        reopen(stream, fence->uses); /* a capture took the event: it covers nothing */
    }
    drop_fence(fences, fence);
    return result == CUDA_SUCCESS;
}

static bool take_back(struct flw_hostpool *pool, struct flw_hoststream *stream, bool waits)
{
    bool any = false, is_complete = true;
    flw_lock_acquire(&pool->lock);
    if (stream->is_busy) {
        flw_lock_release(&pool->lock);
        return false;
    }
    stream->is_busy = true;
    while (is_complete && stream->oldest != NULL) {
        struct flw_hostuse *uses = NULL;
        is_complete = query_oldest(pool, stream, waits, &uses);
        flw_hostpool_complete(pool, uses);
        any |= is_complete;
    }
    stream->is_busy = false;
    flw_lock_release(&pool->lock);
    return any;
}

bool flw_fences_poll(struct flw_hostpool *pool, struct flw_hoststream *stream)
{
    return take_back(pool, stream, false);
}

/* Records are never unmapped, and new ones are first: the list may be walked without holding the
 * lock throughout. */
static struct flw_hoststream *next_stream(struct flw_hostpool *pool, struct flw_hoststream *stream)
{
    flw_lock_acquire(&pool->lock);
    stream = stream == NULL ? pool->fences.streams : stream->next;
    flw_lock_release(&pool->lock);
    return stream;
}

static bool poll_all(struct flw_hostpool *pool, bool waits)
{
    struct flw_pin_section section;
    bool any = false;
    flw_pin_hold(&pool->pin, &section);
    for (struct flw_hoststream *stream = NULL; (stream = next_stream(pool, stream)) != NULL;) {
        (void)flw_fences_record(pool, stream);
        any |= take_back(pool, stream, waits);
    }
    flw_pin_leave(&pool->pin, &section);
    return any;
}

bool flw_fences_poll_all(struct flw_hostpool *pool)
{
    return poll_all(pool, false);
}

/* ---- waits */

/* Lock held. */
static void lose_again(struct flw_hostfences *fences, struct flw_hostfence *lost)
{
    while (lost != NULL) {
        struct flw_hostfence *next = lost->next;
        lost->next = fences->lost;
        fences->lost = lost;
        lost = next;
    }
}

/* Move the uses of the fences to the lost ones while the driver does not answer. Lock held. */
static void lose_fences(struct flw_hostfences *fences, struct flw_hoststream *stream)
{
    while (stream->oldest != NULL) {
        struct flw_hostfence *fence = stream->oldest;
        stream->oldest = fence->next;
        lose_uses(fences, fence, stream, fence->uses);
    }
    stream->newest = NULL;
}

/* Collect open uses of ended threads on their own streams, and uses that the driver refuses to
 * report on. Lock held. */
static void collect_orphans(struct flw_hostpool *pool)
{
    struct flw_hostfences *fences = &pool->fences;
    for (struct flw_hoststream *stream = fences->streams; stream != NULL; stream = stream->next) {
        bool is_refused = stream->refuses_events && !stream->is_busy;
        if (is_refused) {
            lose_fences(fences, stream);
            stream->refuses_events = false;
        }
        bool is_stuck = stream->open != NULL && !stream->is_busy &&
                        (is_refused || !stream->is_known ||
                         (stream->thread != 0 && stream->thread != flw_hoststream_thread()));
        struct flw_hostfence *holder =
            is_stuck ? flw_meta_extend(&fences->meta, sizeof *holder, 16) : NULL;
        if (holder != NULL) {
            lose_uses(fences, holder, stream, stream->open);
            stream->open = NULL;
            stream->open_count = 0;
            stream->open_bytes = 0;
        }
    }
}

/* A context that is gone has nothing left to wait for; one that cannot be entered was not waited
 * for. Makes driver calls. */
static CUresult sync_context(struct flw_hostpool *pool, CUcontext context)
{
    struct flw_pin_section section;
    if (!flw_pin_enter(&pool->pin, &section, context)) {
        return flw_pin_is_refusal(section.refusal) ? section.refusal : CUDA_SUCCESS;
    }
    bool is_own = context == pool->pin.context;
    atomic_fetch_add(&pool->fences.wait_count, 1);
    CUresult result = flw_pin_ask(&pool->pin)->cuCtxSynchronize();
    flw_pin_leave(&pool->pin, &section);
    if (is_own) {
        flw_pin_heed(&pool->pin, result, "cuCtxSynchronize");
    }
    return !is_own && flw_result_is_gone(result) ? CUDA_SUCCESS : result;
}

/* Wait for the contexts of lost uses, one after the other. Makes driver calls. */
static void wait_for_lost(struct flw_hostpool *pool)
{
    flw_lock_acquire(&pool->lock);
    collect_orphans(pool);
    struct flw_hostfence *lost = pool->fences.lost;
    pool->fences.lost = NULL;
    flw_lock_release(&pool->lock);
    while (lost != NULL && !flw_pin_is_lost(&pool->pin)) {
        CUresult result = sync_context(pool, lost->context);
        if (result == CUDA_SUCCESS && lost->heir != NULL) {
            result = sync_context(pool, lost->heir);
        }
        if (result != CUDA_SUCCESS) {
            break;
        }
        struct flw_hostfence *done = lost;
        struct flw_hostuse *uses = done->uses;
        lost = lost->next;
        flw_lock_acquire(&pool->lock);
        flw_hostpool_complete(pool, uses);
        drop_fence(&pool->fences, done);
        flw_lock_release(&pool->lock);
    }
    flw_lock_acquire(&pool->lock);
    lose_again(&pool->fences, lost);
    flw_lock_release(&pool->lock);
}

/* Lock held. */
static bool is_any_busy(const struct flw_hostfences *fences)
{
    const struct flw_hoststream *stream = fences->streams;
    while (stream != NULL && !stream->is_busy) {
        stream = stream->next;
    }
    return stream != NULL;
}

fallow_status flw_fences_wait(struct flw_hostpool *pool, uint64_t deadline_ns,
                              bool (*is_enough)(struct flw_hostpool *pool, void *context),
                              void *context)
{
    bool waits = deadline_ns == UINT64_MAX;
    bool has_synced = false;
    for (unsigned tries = 0; !flw_pin_is_lost(&pool->pin); tries++) {
        bool any = poll_all(pool, waits);
        flw_lock_acquire(&pool->lock);
        bool is_others = is_any_busy(&pool->fences);
        bool is_over = pool->deferred_bytes == 0 || (is_enough != NULL && is_enough(pool, context));
        flw_lock_release(&pool->lock);
        if (is_over) {
            return FALLOW_OK;
        }
        if (!waits && flw_clock_fine_ns() >= deadline_ns) {
            return FALLOW_TIMEOUT;
        }
        if (any) {
            continue;
        }
        if (!has_synced) {
            wait_for_lost(pool);
            has_synced = true;
        } else if (waits && !is_others) {
            return FALLOW_TIMEOUT; /* only blocks on captured streams remain */
        } else if (tries < 64) {
            sched_yield();
        } else {
            flw_sleep_ns(20000);
        }
    }
    return FALLOW_DEVICE_LOST;
}

/* ---- the end */

fallow_status flw_fences_retire(struct flw_hostpool *pool, CUstream handle)
{
    flw_lock_acquire(&pool->lock);
    struct flw_hoststream *stream = flw_hoststream_known(&pool->fences, handle);
    flw_lock_release(&pool->lock);
    fallow_status status = stream != NULL ? record(pool, stream, true) : FALLOW_OK;
    return status == FALLOW_CAPTURING ? FALLOW_BUSY : status;
}

const char *flw_fences_broken_invariant(struct flw_hostpool *pool)
{
    uint32_t known_count = 0;
    for (const struct flw_hoststream *stream = pool->fences.streams; stream != NULL;
         stream = stream->next) {
        const struct flw_hostfence *last = NULL;
        uint32_t open_count = 0;
        uint64_t open_bytes = 0;
        for (const struct flw_hostuse *use = stream->open; use != NULL; use = use->next) {
            open_count++;
            open_bytes += use->block->bytes;
            if (use->block->awaits == 0) {
                return "a block is open on a stream and waits for nothing";
            }
        }
        if (open_count != stream->open_count || open_bytes != stream->open_bytes) {
            return "the open frees of a stream are miscounted";
        }
        for (const struct flw_hostfence *fence = stream->oldest; fence != NULL;
             fence = fence->next) {
            last = fence;
        }
        if (last != stream->newest) {
            return "a stream's newest event is not its last";
        }
        known_count += stream->is_known;
    }
    return known_count != pool->fences.stream_count ? "streams are miscounted" : NULL;
}

#define DESTROY_TRIES 3

void flw_fences_release(struct flw_hostpool *pool)
{
    struct flw_pin_section section;
    for (struct flw_hoststream *stream = pool->fences.streams; stream != NULL;
         stream = stream->next) {
        while (stream->oldest != NULL) { /* captured, or lost: not waited for */
            struct flw_hostfence *fence = stream->oldest;
            stream->oldest = fence->next;
            drop_fence(&pool->fences, fence);
        }
    }
    for (struct flw_hostfence *fence = pool->fences.unused; fence != NULL; fence = fence->next) {
        for (unsigned n = 0; fence->event != NULL && n < DESTROY_TRIES; n++) {
            if (flw_pin_enter(&pool->pin, &section, fence->context)) {
                CUresult result = flw_pin_ask(&pool->pin)->cuEventDestroy_v2(fence->event);
                fence->event = flw_pin_is_refusal(result) ? fence->event : NULL;
                flw_pin_leave(&pool->pin, &section);
            }
        }
    }
}
