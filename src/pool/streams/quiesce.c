/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/streams/quiesce.h"

#include "base/mutant.h"
#include "heap/order/epoch.h"
#include "heap/order/fence.h"
#include "heap/order/sync.h"
#include "heap/space/slab.h"
#include "pool/state/account.h"
#include "pool/state/extension.h"
#include "pool/state/refusal_log.h"

/* ---- queries for captures */

/* A synchronisation of the context would end an unannounced capture: a stream that the driver does
 * not describe may be in one. Makes driver calls. */
static fallow_status ask_capture(struct flw_pool *pool, struct flw_domain *domain)
{
    struct flw_heap *heap = &pool->heap;
    CUstreamCaptureStatus capturing = CU_STREAM_CAPTURE_STATUS_NONE;
    if (!flw_domain_begin_naming(heap, domain, false)) {
        return FALLOW_OK;
    }
    flw_heap_count_question(heap);
    CUresult result = heap->driver->cuStreamIsCapturing(domain->stream, &capturing);
    flw_domain_end_naming(heap, domain);
    if (result == CUDA_SUCCESS && capturing != CU_STREAM_CAPTURE_STATUS_NONE) {
        return FALLOW_CAPTURING;
    }
    return flw_result_is_stale(result) || flw_result_is_gone(result)
               ? FALLOW_OK
               : flw_heap_refuse(heap, result, "cuStreamIsCapturing");
}

bool flw_pool_is_capturing(struct flw_pool *pool, struct flw_domain *domain)
{
    return ask_capture(pool, domain) == FALLOW_CAPTURING;
}

bool flw_pool_is_blocking_capturing(struct flw_pool *pool)
{
    CUstreamCaptureStatus capturing = CU_STREAM_CAPTURE_STATUS_NONE;
    flw_heap_count_question(&pool->heap);
    return pool->driver.cuStreamIsCapturing(CU_STREAM_LEGACY, &capturing) ==
           CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
}

fallow_status flw_pool_ask_captures(struct flw_pool *pool)
{
    uint32_t cursor = 0;
    bool is_known = flw_captures_are_open() || flw_pool_is_blocking_capturing(pool);
    fallow_status status = is_known ? FALLOW_CAPTURING : FALLOW_OK;
    for (struct flw_domain *domain;
         status == FALLOW_OK && (domain = flw_domain_next(&pool->heap, &cursor)) != NULL;) {
        status = ask_capture(pool, domain);
    }
    return status;
}

/* ---- waiting */

/* True if there is memory that no fence can cover, because the stream was lost or the driver
 * refuses fences. Nothing less justifies a synchronisation, which ends unannounced captures of
 * other threads. Heap lock held. */
static bool has_uncoverable(const struct flw_heap *heap, bool wants_place)
{
    bool has_memory = flw_heap_has_lost_deferred(heap);
    for (uint32_t i = 1; i < heap->domain_end; i++) {
        const struct flw_domain *domain = heap->domains[i];
        bool is_owed = domain->unfenced_bytes > 0;
        has_memory |= domain->ops != NULL && domain->is_lost && (wants_place || is_owed);
        has_memory |= domain->ops != NULL && domain->refuses_fences && !domain->is_foreign &&
                      (domain->newest != NULL || is_owed);
    }
    return has_memory;
}

/* With less memory left by lost streams, growth is cheaper than a poll of all streams. */
#define LOST_BYTES (64 * FLW_MIB)
#define LOST_COUNT 64
#define LOST_SHARE 16 /* of the tracked streams, if more */

/* Let the next event cover all of each lost domain: carve the rest of the slabs, and count a byte
 * for the place. Heap lock held. */
static void prepare_lost(struct flw_heap *heap)
{
    for (uint32_t i = 1; i < heap->domain_end; i++) {
        struct flw_domain *domain = heap->domains[i];
        if (domain->ops == &flw_order_stream && domain->is_lost) {
            for (unsigned c = 0; c < FLW_CLASS_COUNT; c++) {
                flw_heap_carve_rest(heap, domain, c);
            }
            domain->unfenced_bytes += domain->cover_seq + 1 != domain->seq;
        }
    }
}

bool flw_pool_sync_uncoverable(struct flw_pool *pool, bool wants_place)
{
    struct flw_heap *heap = &pool->heap;
    struct flw_driver_section section;
    flw_lock_acquire(&heap->lock);
    bool is_worth_it = has_uncoverable(heap, wants_place);
    flw_lock_release(&heap->lock);
    if (!is_worth_it || atomic_load(&pool->open_captures) != 0 ||
        !flw_heap_enter_driver(heap, &section)) {
        return false;
    }
    fallow_status status = flw_pool_ask_captures(pool);
    status = status == FALLOW_OK ? flw_heap_sync_context(heap) : status;
    flw_heap_leave_driver(heap, &section);
    return status == FALLOW_OK;
}

#define ASKS_A_COVER 16

/* Return true if an event covers everything that was lost. A capture that begins meanwhile waits.
 * Earlier events that are complete free the places of covered streams, since no miss may ever
 * query them. Makes driver calls. */
static bool record_lost(struct flw_pool *pool)
{
    struct flw_heap *heap = &pool->heap;
    struct flw_driver_section section;
    if (atomic_load(&pool->open_captures) != 0 || !flw_heap_enter_driver(heap, &section)) {
        return false;
    }
    for (unsigned n = 0; n < ASKS_A_COVER && flw_heap_ask_one(heap, true) != NULL; n++) {
    }
    bool is_alone = flw_ctxsync_try(heap->driver, heap->context);
    bool may_record = is_alone && flw_pool_ask_captures(pool) == FALLOW_OK;
    if (may_record) {
        flw_lock_acquire(&heap->lock);
        prepare_lost(heap);
        flw_lock_release(&heap->lock);
        may_record = flw_heap_fence_lost(heap) == FALLOW_OK;
    }
    if (is_alone) {
        flw_ctxsync_end(heap->driver, heap->context);
    }
    flw_heap_leave_driver(heap, &section);
    return may_record;
}

void flw_pool_cover_lost(struct flw_pool *pool, bool wants_all, bool may_wait)
{
    struct flw_heap *heap = &pool->heap;
    uint64_t bytes = atomic_load_explicit(&heap->lost_bytes, memory_order_relaxed);
    uint64_t count = atomic_load_explicit(&heap->lost_count, memory_order_relaxed);
    uint64_t known = atomic_load_explicit(&heap->stream_count, memory_order_relaxed);
    uint64_t most = flw_max(LOST_COUNT, known / LOST_SHARE);
    if ((!wants_all || count == 0) && bytes < LOST_BYTES && count < most) {
        return;
    }
    bool can_record = pool->driver.cuCtxRecordEvent != NULL;
    bool is_done =
        can_record ? record_lost(pool) : may_wait && flw_pool_sync_uncoverable(pool, true);
    /* Otherwise retry when as much has been lost again. */
    atomic_store(&heap->lost_bytes, is_done ? 0 : bytes / 2);
    atomic_store(&heap->lost_count, is_done ? 0 : flw_max(count / 2, 1));
}

/* True for the first of the context among foreign contexts in use. Heap lock held. */
static bool is_abroad_first(const struct flw_heap *heap, const struct flw_domain *domain)
{
    uint32_t i = 1;
    while (i < domain->index &&
           !(heap->domains[i]->ops == &flw_order_stream && heap->domains[i]->is_foreign &&
             heap->domains[i]->is_known && heap->domains[i]->context == domain->context)) {
        i++;
    }
    return i == domain->index && domain->ops == &flw_order_stream && domain->is_foreign &&
           domain->is_known;
}

/* Uses of live blocks have no sequence number yet; those of other contexts are covered by
 * synchronising these, as is work without a fence. A context that is gone has nothing left to wait
 * for. Makes driver calls. */
static CUresult sync_users_abroad(struct flw_pool *pool, bool has_unfenced)
{
    struct flw_heap *heap = &pool->heap;
    CUresult result = CUDA_SUCCESS;
    uint32_t cursor = 0;
    flw_lock_acquire(&pool->side_records.lock);
    bool has_uses =
        (pool->side_records.count > 0 || has_unfenced) && !FLW_MUTANT(SLEEP_IGNORES_OTHERS);
    flw_lock_release(&pool->side_records.lock);
    for (struct flw_domain *domain;
         has_uses && result == CUDA_SUCCESS && (domain = flw_domain_next(heap, &cursor)) != NULL;) {
        struct flw_driver_section section;
        flw_lock_acquire(&heap->lock);
        bool is_wanted = is_abroad_first(heap, domain);
        CUcontext context = domain->context;
        flw_lock_release(&heap->lock);
        if (!is_wanted) {
            continue;
        }
        result = flw_heap_enter_context(heap, &section, context);
        if (result == CUDA_SUCCESS) {
            result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
            if (flw_ctxsync_begin(&pool->driver, context)) {
                flw_heap_count_call(heap);
                result = pool->driver.cuCtxSynchronize();
                flw_ctxsync_end(&pool->driver, context);
            }
            flw_heap_leave_driver(heap, &section);
        }
        result = flw_result_is_gone(result) ? CUDA_SUCCESS : result;
    }
    return result;
}

fallow_status flw_pool_await_device(struct flw_pool *pool)
{
    struct flw_heap *heap = &pool->heap;
    uint32_t cursor = 0;
    bool has_unfenced = false;
    for (struct flw_domain *domain; (domain = flw_domain_next(heap, &cursor)) != NULL;) {
        flw_lock_acquire(&heap->lock);
        bool is_awaited = domain->is_foreign && !domain->is_lost;
        uint64_t seq = domain->seq - (domain->unfenced_bytes == 0);
        flw_lock_release(&heap->lock);
        if (is_awaited) {
            has_unfenced |= flw_domain_wait(heap, domain, seq, UINT64_MAX) != FALLOW_OK;
        }
    }
    CUresult result = sync_users_abroad(pool, has_unfenced);
    fallow_status status = flw_heap_refuse(heap, result, "cuCtxSynchronize");
    return status == FALLOW_OK ? flw_heap_sync_context(heap) : status;
}

/* Wait for every stream that can be named, by a fence of its own, which touches no capture. False:
 * one is lost, captured, or another thread's own. Makes driver calls. */
static bool await_streams(struct flw_pool *pool)
{
    struct flw_heap *heap = &pool->heap;
    uint32_t cursor = 0;
    bool is_all = true;
    for (struct flw_domain *domain; (domain = flw_domain_next(heap, &cursor)) != NULL;) {
        flw_lock_acquire(&heap->lock);
        bool is_stream = domain->ops == &flw_order_stream, is_lost = domain->is_lost;
        if (is_stream && !is_lost && !heap->streams_may_die) {
            flw_domain_want_fence(heap, domain, 1);
        }
        uint64_t seq = flw_domain_free_seq(domain) -
                       (heap->streams_may_die && is_stream && domain->unfenced_bytes == 0);
        flw_lock_release(&heap->lock);
        is_all &=
            !is_stream || (!is_lost && flw_domain_wait(heap, domain, seq, UINT64_MAX) == FALLOW_OK);
    }
    return is_all;
}

#define LAST_TRIES 3

/* Wait for every stream that waits for the legacy stream, known or not. False: one is being
 * captured. Makes driver calls. */
static bool await_blocking(struct flw_pool *pool)
{
    if (flw_pool_is_blocking_capturing(pool)) {
        return false;
    }
    flw_heap_count_call(&pool->heap);
    return pool->driver.cuStreamSynchronize(CU_STREAM_LEGACY) == CUDA_SUCCESS;
}

/* Release memory in a way that makes the driver wait for the device, during captures or not:
 * cuMemFree "may perform implicit synchronization", and every known driver does. That is no
 * promise, so this is only for work that was not announced to the pool, and for work that a
 * capture keeps from being waited for. Makes driver calls. */
static bool await_by_free(struct flw_pool *pool)
{
    CUdeviceptr memory = 0;
    flw_heap_count_call(&pool->heap);
    if (pool->driver.cuMemAlloc_v2(&memory, 1) != CUDA_SUCCESS) {
        return false;
    }
    CUresult result = CUDA_ERROR_UNKNOWN;
    for (unsigned n = 0; result != CUDA_SUCCESS && n < LAST_TRIES; n++) {
        flw_heap_count_call(&pool->heap);
        result = pool->driver.cuMemFree_v2(memory);
    }
    if (flw_heap_refuse(&pool->heap, result, "cuMemFree") == FALLOW_DRIVER) {
        flw_pool_log_unreleased(pool, 1);
    }
    return result == CUDA_SUCCESS;
}

/* True if all work on the pool's memory was announced. Live or imported blocks may be used on any
 * stream. */
static bool is_all_told(struct flw_pool *pool)
{
    FLW_EACH_EXTENSION (pool, row, is_used_untold) {
        if (row->is_used_untold(pool)) {
            return false;
        }
    }
    return flw_pool_live(pool, NULL) == 0;
}

fallow_status flw_pool_await_all(struct flw_pool *pool)
{
    bool is_done = !flw_pool_has_epochs(pool) && await_streams(pool) && await_blocking(pool);
    is_done &= is_all_told(pool);
    is_done &= await_by_free(pool);
    if (is_done || flw_heap_is_lost(&pool->heap)) {
        return flw_heap_is_lost(&pool->heap) ? FALLOW_DEVICE_LOST : FALLOW_OK;
    }
    fallow_status status = flw_pool_ask_captures(pool);
    return status != FALLOW_OK ? status : flw_pool_await_device(pool);
}

bool flw_pool_await_last(struct flw_pool *pool)
{
    struct flw_driver_section section;
    fallow_status status = FALLOW_DRIVER;
    for (unsigned n = 0; status == FALLOW_DRIVER && n < LAST_TRIES; n++) {
        if (!flw_heap_enter_driver(&pool->heap, &section)) {
            status = flw_heap_not_entered(&pool->heap);
            continue;
        }
        status = flw_pool_await_all(pool);
        flw_heap_leave_driver(&pool->heap, &section);
    }
    return status == FALLOW_OK || status == FALLOW_CAPTURING;
}
