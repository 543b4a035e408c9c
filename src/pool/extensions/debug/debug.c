/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/extensions/debug/debug.h"

#include <stdlib.h>

#include "pool/calls/alloc.h"
#include "pool/calls/free.h"
#include "pool/extensions/debug/guard.h"
#include "pool/state/extension.h"
#include "pool/state/settings.h"
#include "pool/streams/cache.h"
#include "pool/streams/current.h"
#include "pool/streams/uses.h"

#define FILL_PATTERN 0xA5A5A5A5u /* and the complement, on alternate allocations */

/* ---- writing (driver calls in a section) */

static CUresult fill32(struct flw_pool *pool, uint64_t address, uint64_t bytes, uint32_t pattern,
                       fallow_stream stream)
{
    CUresult result = CUDA_SUCCESS;
    uint64_t tail = bytes % 4;
    if (bytes >= 4) {
        flw_heap_count_call(&pool->heap);
        result = pool->driver.cuMemsetD32Async(address, pattern, bytes / 4, stream);
    }
    if (result == CUDA_SUCCESS && tail > 0) {
        flw_heap_count_call(&pool->heap);
        result = pool->driver.cuMemsetD8Async(address + bytes - tail, (unsigned char)pattern, tail,
                                              stream);
    }
    return result;
}

static CUresult fill_zones(struct flw_pool *pool, const struct flw_guard *guard,
                           fallow_stream stream)
{
    flw_heap_count_call(&pool->heap);
    CUresult result = pool->driver.cuMemsetD8Async(guard->user - FLW_ZONE_BYTES, FLW_ZONE_BYTE,
                                                   FLW_ZONE_BYTES, stream);
    if (result == CUDA_SUCCESS) {
        flw_heap_count_call(&pool->heap);
        result = pool->driver.cuMemsetD8Async(guard->user + guard->size_bytes, FLW_ZONE_BYTE,
                                              FLW_ZONE_BYTES, stream);
    }
    return result;
}

/* Fill a new block. */
static CUresult fill_new(struct flw_pool *pool, struct flw_guard *guard, uint32_t flags,
                         fallow_stream stream)
{
    struct flw_debug *debug = pool->debug;
    CUresult result = CUDA_SUCCESS;
    if ((debug->checks & FALLOW_CHECK_RED_ZONES) != 0 && !guard->is_captured) {
        result = fill_zones(pool, guard, stream);
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if ((flags & FALLOW_REQUEST_ZERO) != 0) {
        return fill32(pool, guard->user, guard->size_bytes, 0, stream);
    }
    if ((debug->checks & FALLOW_CHECK_POISON) == 0 || guard->is_captured) {
        return CUDA_SUCCESS;
    }
    flw_lock_acquire(&debug->lock);
    bool is_odd = (++debug->fill_count & 1) != 0;
    flw_lock_release(&debug->lock);
    return fill32(pool, guard->user, guard->size_bytes, is_odd ? FILL_PATTERN : ~FILL_PATTERN,
                  stream);
}

/* ---- allocate */

static fallow_status allocate_raw(struct flw_pool *pool, const fallow_request *request,
                                  fallow_stream stream, struct flw_guard *guard)
{
    struct flw_debug *debug = pool->debug;
    fallow_request raw = *request;
    uint64_t front = 0;
    void *ptr = NULL;
    raw.flags &= ~(uint32_t)FALLOW_REQUEST_ZERO; /* zones first */
    if ((debug->checks & FALLOW_CHECK_RED_ZONES) != 0) {
        front = flw_max(FLW_ZONE_BYTES, request->align_bytes);
        raw.size_bytes += front + FLW_ZONE_BYTES;
    }
    fallow_status status = flw_pool_alloc_plain(pool, &raw, stream, &ptr);
    *guard = (struct flw_guard){.raw = (uint64_t)(uintptr_t)ptr,
                                .user = (uint64_t)(uintptr_t)ptr + front,
                                .size_bytes = request->size_bytes,
                                .tag = request->tag};
    return status;
}

static fallow_status alloc(struct flw_pool *pool, const fallow_request *request,
                           fallow_stream stream, void **out_ptr)
{
    struct flw_debug *debug = pool->debug;
    struct flw_driver_section section;
    *out_ptr = NULL;
    flw_debug_poll(pool);
    if ((request->flags & FALLOW_REQUEST_EVERY_STREAM) != 0) {
        return FALLOW_NOT_SUPPORTED; /* zones and pattern are written on one stream */
    }
    if (request->size_bytes == 0 || request->size_bytes > FLW_REQUEST_MAX - 4 * FLW_MIB ||
        request->align_bytes > 2 * FLW_MIB) {
        return flw_pool_alloc_plain(pool, request, stream, out_ptr); /* NULL, or refused */
    }
    struct flw_guard *guard = flw_guard_new(debug);
    if (guard == NULL) {
        return FALLOW_OUT_OF_HOST_MEMORY;
    }
    fallow_status status = allocate_raw(pool, request, stream, guard);
    if (status != FALLOW_OK) {
        flw_guard_drop(debug, guard);
        return status;
    }
    const struct flw_tcache *cache = flw_pool_cache(pool, stream, &status);
    CUresult result = CUDA_ERROR_UNKNOWN;
    status = FALLOW_DRIVER;
    if (cache != NULL && flw_heap_enter_driver(&pool->heap, &section)) {
        guard->domain = cache->domain->index;
        guard->stream_id = cache->domain->id;
        guard->is_captured = flw_capture_is_on(cache->domain);
        guard->is_filled = !guard->is_captured && debug->ring != NULL;
        result = fill_new(pool, guard, request->flags, stream);
        if (result != CUDA_SUCCESS) {
            status = flw_heap_refuse(&pool->heap, result, "cuMemsetD8Async");
        }
        flw_heap_leave_driver(&pool->heap, &section);
    }
    if (result != CUDA_SUCCESS) {
        (void)flw_pool_free_plain(pool, (void *)(uintptr_t)guard->raw, stream);
        flw_guard_drop(debug, guard);
        return flw_heap_is_lost(&pool->heap) ? FALLOW_DEVICE_LOST : status;
    }
    flw_lock_acquire(&debug->lock);
    debug->left_out_count += guard->is_captured && debug->ring != NULL;
    *out_ptr = (void *)(uintptr_t)guard->user;
    flw_guard_insert(debug, guard);
    flw_lock_release(&debug->lock);
    flw_pool_tell(pool, FLW_TRACE_ALLOC, cache->domain,
                  (struct flw_event){
                      .address = (uint64_t)(uintptr_t)*out_ptr,
                      .size_bytes = request->size_bytes,
                      .tag = request->tag,
                      .capture = __atomic_load_n(&cache->domain->captured_by, __ATOMIC_RELAXED)});
    return FALLOW_OK;
}

/* ---- free */

/* Order `stream` after the fill of the allocation: a caller that never used the block need not
 * have ordered the two. False: the other stream cannot be named any more; then the fill is
 * announced as a use, so that the block waits for it. Makes driver calls. */
static bool order_after_fill(struct flw_pool *pool, const struct flw_guard *guard,
                             struct flw_domain *taker)
{
    struct flw_heap *heap = &pool->heap;
    if (guard->domain == taker->index) {
        return true;
    }
    flw_lock_acquire(&heap->lock);
    struct flw_domain *origin = heap->domains[guard->domain];
    bool is_there = origin->ops == &flw_order_stream && origin->id == guard->stream_id;
    bool can_record = is_there && origin->is_known && !origin->is_retired;
    uint64_t seq = flw_domain_free_seq(origin);
    if (can_record) {
        flw_domain_want_fence(heap, origin, 1);
    }
    flw_lock_release(&heap->lock);
    if (!is_there) {
        return true; /* gone, and complete */
    }
    if (can_record && flw_domain_order_after(heap, taker, origin, seq, true) == FALLOW_OK) {
        return true;
    }
    flw_uses_announce(pool, guard->raw, origin->index);
    return false;
}

/* A quarantined block leaves later, on any thread, by the stream's handle: if the handle then
 * belongs to another stream, the order would be wrong. */
static bool may_be_held(const struct flw_pool *pool, const struct flw_domain *domain)
{
    return !pool->config.streams_may_die && !domain->own_thread_only;
}

static fallow_status take_back(struct flw_pool *pool, struct flw_guard *guard, fallow_stream stream,
                               struct flw_domain *domain)
{
    struct flw_debug *debug = pool->debug;
    struct flw_driver_section section;
    bool is_captured = guard->is_captured || flw_capture_is_on(domain);
    bool is_quarantined = false;
    if (guard->is_filled && is_captured) {
        flw_debug_leave_out(debug);
    } else if (guard->is_filled && flw_heap_enter_driver(&pool->heap, &section)) {
        bool has_uses = flw_uses_has(pool, guard->raw);
        bool is_ordered = order_after_fill(pool, guard, domain);
        if (is_ordered && (debug->checks & FALLOW_CHECK_RED_ZONES) != 0) {
            flw_debug_give_check(pool, guard, false, stream);
        }
        if (is_ordered && !has_uses && may_be_held(pool, domain) &&
            (debug->checks & FALLOW_CHECK_QUARANTINE) != 0) {
            is_quarantined = fill32(pool, guard->user, guard->size_bytes, FLW_FREED_PATTERN,
                                    stream) == CUDA_SUCCESS;
        }
        if (!is_ordered) {
            flw_debug_leave_out(debug);
        }
        flw_heap_leave_driver(&pool->heap, &section);
    }
    if (is_quarantined) {
        flw_debug_quarantine(pool, guard, stream, domain);
        return FALLOW_OK;
    }
    fallow_status status = flw_pool_free_plain(pool, (void *)(uintptr_t)guard->raw, stream);
    flw_guard_drop(debug, guard);
    return status;
}

static fallow_status free_checked(struct flw_pool *pool, void *ptr, fallow_stream stream)
{
    struct flw_debug *debug = pool->debug;
    fallow_status status;
    if (ptr == NULL || flw_heap_is_lost(&pool->heap)) {
        return FALLOW_OK;
    }
    flw_debug_poll(pool);
    const struct flw_tcache *cache = flw_pool_cache(pool, stream, &status);
    if (cache == NULL) {
        return status == FALLOW_DEVICE_LOST ? FALLOW_OK : status;
    }
    struct flw_domain *domain = cache->domain;
    flw_lock_acquire(&debug->lock);
    struct flw_guard *guard = flw_guard_take(debug, (uint64_t)(uintptr_t)ptr);
    flw_lock_release(&debug->lock);
    if (guard == NULL) {
        atomic_fetch_add(&pool->usage.misuses, 1);
        return FALLOW_INVALID_POINTER;
    }
    flw_pool_tell(pool, FLW_TRACE_FREE, domain,
                  (struct flw_event){.address = guard->user, .size_bytes = guard->size_bytes});
    return take_back(pool, guard, stream, domain);
}

/* ---- create, end */

static fallow_status probe_failed(struct flw_pool *pool, const char *call, CUresult result)
{
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        flw_pool_log(
            pool, FALLOW_LOG_ERROR,
            "poison, red zones and quarantine: no device memory is free to test them: create the pool while memory is "
            "free, or without these checks");
        return FALLOW_OUT_OF_MEMORY;
    }
    flw_pool_log(
        pool, FALLOW_LOG_ERROR,
        "poison, red zones and quarantine: %s failed with error %d when device memory was tested",
        call, (int)result);
    return FALLOW_DRIVER;
}

/* Write and read back on a separate stream: while a stream that waits for the legacy stream is
 * captured, the legacy stream takes no work. *call is the failed call. */
static CUresult write_and_read(struct flw_pool *pool, CUdeviceptr probe, unsigned char *back,
                               size_t bytes, const char **call)
{
    const struct flw_driver *driver = &pool->driver;
    CUstream stream = NULL;
    *call = "cuStreamCreate";
    CUresult result = driver->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    *call = "cuMemsetD8Async";
    result = driver->cuMemsetD8Async(probe, FLW_ZONE_BYTE, bytes, stream);
    if (result == CUDA_SUCCESS) {
        *call = "cuMemcpyDtoHAsync";
        result = driver->cuMemcpyDtoHAsync_v2(back, probe, bytes, stream);
    }
    if (result == CUDA_SUCCESS) {
        *call = "cuStreamSynchronize";
        result = driver->cuStreamSynchronize(stream);
    }
    (void)driver->cuStreamDestroy_v2(stream);
    return result;
}

fallow_status flw_debug_probe_contents(struct flw_pool *pool)
{
    const struct flw_driver *driver = &pool->driver;
    unsigned char back[64] = {0};
    CUdeviceptr probe = 0;
    const char *call = "cuMemAlloc";
    CUresult result = driver->cuMemAlloc_v2(&probe, sizeof back);
    if (result != CUDA_SUCCESS) {
        return probe_failed(pool, call, result);
    }
    result = write_and_read(pool, probe, back, sizeof back, &call);
    (void)driver->cuMemFree_v2(probe);
    if (result != CUDA_SUCCESS) {
        return probe_failed(pool, call, result);
    }
    bool keeps = true;
    for (size_t i = 0; i < sizeof back; i++) {
        keeps = keeps && back[i] == FLW_ZONE_BYTE;
    }
    if (!keeps) {
        flw_pool_log(
            pool, FALLOW_LOG_ERROR,
            "poison, red zones and quarantine need memory with contents: this simulated "
            "device has no contents (set `backed` in its config, or FALLOW_SIMCUDA=contents)");
    }
    return keeps ? FALLOW_OK : FALLOW_NOT_SUPPORTED;
}

static fallow_status create(struct flw_pool *pool)
{
    const uint32_t with_contents =
        FALLOW_CHECK_POISON | FALLOW_CHECK_RED_ZONES | FALLOW_CHECK_QUARANTINE;
    struct flw_driver_section section;
    uint32_t checks = pool->config.checks & (with_contents | FALLOW_CHECK_LEAKS);
    if (checks == 0) {
        return FALLOW_OK;
    }
    struct flw_debug *debug = calloc(1, sizeof *debug);
    if (debug == NULL) {
        return FALLOW_OUT_OF_HOST_MEMORY;
    }
    flw_lock_init(&debug->lock, FLW_RANK_USES);
    debug->checks = checks;
    debug->quarantine_end = &debug->quarantine;
    debug->quarantine_most_bytes = flw_min(256 * FLW_MIB, pool->heap.limit_bytes / 16);
    fallow_status status = FALLOW_OK;
    if ((checks & with_contents) != 0) {
        bool is_inside = flw_heap_enter_driver(&pool->heap, &section);
        status = flw_heap_not_entered(&pool->heap);
        if (is_inside) {
            status = flw_debug_probe_contents(pool);
            if (status == FALLOW_OK) {
                status = flw_debug_make_ring(pool, debug);
            }
            if (status != FALLOW_OK) {
                flw_debug_drop_ring(pool, debug, false);
            }
            flw_heap_leave_driver(&pool->heap, &section);
        }
    }
    if (status != FALLOW_OK) {
        free(debug);
        return status;
    }
    pool->debug = debug;
    flw_pool_enlist(pool, &flw_debug_extension);
    return FALLOW_OK;
}

static void finish(struct flw_pool *pool, bool is_lost)
{
    struct flw_debug *debug = pool->debug;
    if (!is_lost) {
        flw_debug_poll(pool);
    }
    if ((debug->checks & FALLOW_CHECK_LEAKS) != 0) {
        flw_guard_list_leaks(pool);
    }
    flw_guard_free_all(debug);
    flw_debug_drop_ring(pool, debug, is_lost);
    free(debug);
    pool->debug = NULL;
}

static void stop(struct flw_pool *pool)
{
    if (!flw_heap_is_lost(&pool->heap)) {
        (void)flw_debug_release(pool);
    }
}

const struct flw_extension flw_debug_extension = {.create = create,
                                                  .stop = stop,
                                                  .finish = finish,
                                                  .alloc = alloc,
                                                  .free = free_checked,
                                                  .view = flw_guard_view,
                                                  .view_raw = flw_guard_view_raw,
                                                  .each = flw_guard_each,
                                                  .release = flw_debug_release,
                                                  .stream_ends = flw_debug_release_stream,
                                                  .poll = flw_debug_poll,
                                                  .read_stats = flw_guard_read_stats};
