/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/streams/streams.h"

#include "base/mutant.h"
#include "pool/state/settings.h"
#include "pool/streams/cache.h"
#include "pool/streams/quiesce.h"

/* Identity of a stream, by driver calls in the pool's context. */
struct identity {
    uint64_t id;
    CUcontext context;
    uint64_t context_id; /* of a context other than the pool's; 0 unknown */
};

/* Close the caches of a lost domain; the caller's naming keeps the domain until then. */
static void drop_lost(struct flw_pool *pool, struct flw_domain *domain)
{
    if (!FLW_MUTANT(VANISHED_KEEPS_CACHES)) {
        flw_pool_close_caches(pool, domain);
    }
    flw_domain_end_naming(&pool->heap, domain);
}

/* Query the next tracked stream. True: the stream was destroyed and the domain is lost. Makes
 * driver calls in a section. */
static bool ask_next(struct flw_pool *pool)
{
    struct flw_heap *heap = &pool->heap;
    struct flw_domain *domain = flw_domain_begin_naming_next(heap);
    CUstreamCaptureStatus capturing;
    if (domain == NULL) {
        return false;
    }
    flw_heap_count_question(heap);
    CUresult result = heap->driver->cuStreamIsCapturing(domain->stream, &capturing);
    if (!flw_result_is_stale(result) && !(domain->is_foreign && flw_result_is_gone(result))) {
        flw_domain_end_naming(heap, domain);
        return false;
    }
    flw_lock_acquire(&heap->lock);
    flw_domain_lose(heap, domain);
    flw_lock_release(&heap->lock);
    drop_lost(pool, domain);
    return true;
}

#define VANISHED_A_LOOK 4

/* Query one tracked stream, and one more for each destroyed stream found: the pool would not
 * otherwise notice a destroyed handle that is never used again. Every new stream calls this, so
 * the pool keeps at most a few more destroyed streams than live streams. Makes driver calls in a
 * section. */
static void find_vanished(struct flw_pool *pool)
{
    for (unsigned n = 0; n < VANISHED_A_LOOK && ask_next(pool); n++) {
    }
}

/* 0: no id is available. Makes driver calls. */
static uint64_t id_of_context(struct flw_pool *pool, CUcontext context)
{
    unsigned long long id = 0;
    if (context == pool->heap.context || pool->driver.cuCtxGetId == NULL) {
        return 0;
    }
    flw_heap_count_call(&pool->heap);
    return pool->driver.cuCtxGetId(context, &id) == CUDA_SUCCESS ? id : 0;
}

/* True if the error means that the stream's context is gone while the pool's own context still
 * works. Makes driver calls in a section. */
static bool is_of_other(struct flw_pool *pool, CUresult result)
{
    CUstreamCaptureStatus none = CU_STREAM_CAPTURE_STATUS_NONE;
    if (!flw_result_is_gone(result)) {
        return false;
    }
    flw_heap_count_question(&pool->heap);
    return !flw_result_is_gone(pool->driver.cuStreamIsCapturing(CU_STREAM_LEGACY, &none));
}

static fallow_status identify(struct flw_pool *pool, fallow_stream stream, struct identity *out)
{
    struct flw_heap *heap = &pool->heap;
    struct flw_driver_section section;
    const char *call = "cuStreamGetId";
    CUresult result = CUDA_ERROR_NOT_SUPPORTED;
    unsigned long long id = 0;
    *out = (struct identity){.context = heap->context};
    if (!flw_heap_enter_driver(heap, &section)) {
        return flw_heap_not_entered(heap);
    }
    if (pool->driver.cuStreamGetId != NULL) {
        flw_heap_count_call(heap);
        result = pool->driver.cuStreamGetId(stream, &id);
        out->id = result == CUDA_SUCCESS ? id : 0;
    }
    if (result == CUDA_ERROR_NOT_SUPPORTED) {
        result = CUDA_SUCCESS; /* then handles identify streams */
    }
    if (result == CUDA_SUCCESS && pool->driver.cuStreamGetCtx != NULL &&
        (uintptr_t)stream > (uintptr_t)CU_STREAM_PER_THREAD) {
        call = "cuStreamGetCtx";
        flw_heap_count_call(heap);
        result = pool->driver.cuStreamGetCtx(stream, &out->context);
    }
    if (result == CUDA_SUCCESS) {
        out->context_id = id_of_context(pool, out->context);
    }
    bool is_gone = flw_result_is_stale(result) || is_of_other(pool, result);
    if (result == CUDA_SUCCESS) {
        find_vanished(pool);
    }
    flw_heap_leave_driver(heap, &section);
    return is_gone ? FALLOW_INVALID_STREAM : flw_heap_refuse(heap, result, call);
}

/* Return the stream's domain, if tracked. An earlier stream with the same handle is lost:
 * destroyed without retire, and the handle possibly reused. Heap lock held. */
static struct flw_domain *match(struct flw_heap *heap, fallow_stream stream,
                                const struct identity *identity, fallow_status status,
                                struct flw_domain **stale)
{
    struct flw_domain *domain = flw_domain_find(heap, stream);
    if (domain != NULL && (status == FALLOW_INVALID_STREAM ||
                           (identity->id != 0 && domain->id != 0 && domain->id != identity->id))) {
        *stale = domain;
        domain->naming_count++; /* keeps the place until the caches are closed */
        flw_domain_lose(heap, domain);
        domain = NULL;
    }
    return status == FALLOW_OK && domain == NULL ? flw_domain_find_alias(heap, stream, identity->id)
                                                 : domain;
}

/* True if the handle remains valid after the driver refused the query. */
static bool is_believed(struct flw_pool *pool, fallow_status status)
{
    return (status == FALLOW_DRIVER || status == FALLOW_NOT_SUPPORTED) &&
           !flw_pool_asks_identity(pool);
}

/* One attempt; OUT_OF_HOST_MEMORY: every place is taken, or none can be created. */
static struct flw_domain *find_domain(struct flw_pool *pool, fallow_stream stream, bool may_make,
                                      fallow_status *status)
{
    struct flw_heap *heap = &pool->heap;
    struct identity identity;
    struct flw_domain *stale = NULL;
    *status = identify(pool, stream, &identity);
    if (is_believed(pool, *status)) { /* a tracked stream remains the same */
        flw_lock_acquire(&heap->lock);
        struct flw_domain *known = flw_domain_find(heap, stream);
        flw_lock_release(&heap->lock);
        *status = known != NULL ? FALLOW_OK : *status;
        return known;
    }
    if (*status != FALLOW_OK && *status != FALLOW_INVALID_STREAM) {
        return NULL;
    }
    flw_lock_acquire(&heap->lock);
    struct flw_domain *domain = match(heap, stream, &identity, *status, &stale);
    if (*status == FALLOW_OK && domain == NULL && may_make) {
        domain = flw_domain_create(heap, &flw_order_stream, stream, identity.context, identity.id);
        if (domain != NULL) {
            domain->stream_number = flw_stream_ids_add(&heap->stream_ids, identity.id);
            domain->is_foreign = identity.context != heap->context;
            domain->context_id = identity.context_id;
            domain->own_thread_only = stream == CU_STREAM_PER_THREAD;
            domain->thread = flw_thread_token();
            flw_places_note_stream(&heap->places, domain);
            unsigned known = atomic_fetch_add(&heap->stream_count, 1) + 1;
            /* A stream that may vanish without notice must not absorb unowned memory. */
            heap->absorbs_unowned =
                known == 1 && !domain->own_thread_only && !heap->streams_may_die;
        } else {
            *status = FALLOW_OUT_OF_HOST_MEMORY;
        }
    }
    flw_lock_release(&heap->lock);
    if (stale != NULL) {
        drop_lost(pool, stale);
    }
    return domain;
}

struct flw_domain *flw_pool_known_domain(struct flw_pool *pool, fallow_stream stream,
                                         fallow_status *status)
{
    *status = FALLOW_OK;
    if (flw_pool_asks_identity(pool)) {
        return find_domain(pool, stream, false, status);
    }
    flw_lock_acquire(&pool->heap.lock);
    struct flw_domain *domain = flw_domain_find(&pool->heap, stream);
    flw_lock_release(&pool->heap.lock);
    return domain;
}

/* Free the places of complete streams, retired ones first. Makes driver calls. */
static bool ask_fences(struct flw_pool *pool)
{
    struct flw_driver_section section;
    bool has_completed = false;
    if (flw_heap_enter_driver(&pool->heap, &section)) {
        has_completed = flw_heap_poll(&pool->heap);
        flw_heap_leave_driver(&pool->heap, &section);
    }
    return has_completed;
}

struct flw_domain *flw_pool_domain(struct flw_pool *pool, fallow_stream stream,
                                   fallow_status *status)
{
    if (flw_pool_has_epochs(pool)) {
        *status = flw_heap_is_lost(&pool->heap) ? FALLOW_DEVICE_LOST : FALLOW_OK;
        return *status == FALLOW_OK ? pool->heap.context_order : NULL;
    }
    uint64_t refusals = flw_tables_refusals(&pool->heap);
    if (pool->driver.cuCtxRecordEvent !=
        NULL) { /* without a wait: if streams may vanish no place is kept */
        flw_pool_cover_lost(pool, false, false);
    }
    struct flw_domain *domain = find_domain(pool, stream, true, status);
    bool lacks_host = flw_tables_refusals(&pool->heap) != refusals;
    if (*status == FALLOW_OUT_OF_HOST_MEMORY && ask_fences(pool)) {
        domain = find_domain(pool, stream, true, status);
    }
    if (*status == FALLOW_OUT_OF_HOST_MEMORY && !lacks_host &&
        flw_pool_sync_uncoverable(pool, true)) {
        domain =
            find_domain(pool, stream, true, status); /* the places of lost streams are free now */
    }
    if (*status == FALLOW_OUT_OF_HOST_MEMORY && lacks_host) {
        flw_pool_log(pool, FALLOW_LOG_WARNING,
                     "out of host memory: the host refuses memory for a new stream: check "
                     "ulimit -d, ulimit -v and the memory limit of the container");
    } else if (*status == FALLOW_OUT_OF_HOST_MEMORY) {
        flw_pool_log(pool, FALLOW_LOG_WARNING,
                     "too many streams: a pool serves about %u at a time, captured streams "
                     "counted twice; retire streams that are no longer used "
                     "(fallow_stream_retire)",
                     FLW_DOMAIN_COUNT - 1);
    }
    return domain;
}
