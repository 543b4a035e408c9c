/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: see naive_pool.h.
 *
 * A block carries one *mark* for each stream that may still be using it: an event and the stream it
 * was recorded on. A free records the freeing stream's mark and renews the announced ones. A taker
 * on stream S passes over the marks of S itself and the complete ones; for every other it makes S
 * wait. So memory is never handed over before its last use, whatever the device's order.
 */
#include "policies/naive_pool.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/bits.h"

#define ROUND_BYTES      512u
#define MOST_ALIGN_BYTES ((size_t)2 << 20)
#define MOST_BYTES       ((size_t)1 << 47) /* beyond any device: refused before any arithmetic */
#define CHAINS           4096u
#define MOST_TRIED       64u /* blocks whose events one allocation asks about */

struct mark {
    struct mark *next;
    CUevent event;
    CUstream stream; /* NO_STREAM once retired: its own order is known to nobody */
};

struct block {
    struct block *next;
    struct mark *marks; /* [0] the freeing stream's, the announced uses after it */
    CUdeviceptr base, ptr;
    size_t bytes, requested_bytes; /* from the driver; as asked, when live */
};

/* Synchronization: everything by `mutex`. */
struct flw_naive {
    pthread_mutex_t mutex;
    const struct flw_driver *cu;
    CUcontext context;
    CUdevice device;
    size_t limit_bytes;
    bool lost;
    struct block *live[CHAINS], *cached[CHAINS]; /* by address; by size, last freed first */
    fallow_stats stats;
};

static char no_stream_tag;
#define NO_STREAM        ((CUstream)(void *)&no_stream_tag)
#define IS_PER_THREAD(s) ((s) == (CUstream)0x2)

static struct block **chain_of(struct block **chains, uint64_t key)
{
    return &chains[(key * 0x9E3779B97F4A7C15ull) >> 52];
}

/* Success, or a pool that hands out nothing more. */
static fallow_status judge(struct flw_naive *pool, CUresult result)
{
    pool->stats.driver_call_count++;
    pool->lost = pool->lost || result != CUDA_SUCCESS;
    return result == CUDA_SUCCESS ? FALLOW_OK : FALLOW_DEVICE_LOST;
}

/* As judge, of a call that may say that there is no room. */
static fallow_status judge_room(struct flw_naive *pool, CUresult result)
{
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        pool->stats.driver_call_count++;
        return FALLOW_OUT_OF_MEMORY;
    }
    return judge(pool, result);
}

/* Lock, make the context current, and keep the calls legal beside other threads' captures. A
 * failure leaves the lock free, the context stack as it was and the pool lost. */
static fallow_status enter(struct flw_naive *pool, CUstreamCaptureMode *mode)
{
    CUcontext popped;
    *mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    pthread_mutex_lock(&pool->mutex);
    if (!pool->lost && judge(pool, pool->cu->cuCtxPushCurrent_v2(pool->context)) == FALLOW_OK) {
        if (judge(pool, pool->cu->cuThreadExchangeStreamCaptureMode(mode)) == FALLOW_OK) {
            return FALLOW_OK;
        }
        pool->cu->cuCtxPopCurrent_v2(&popped);
    }
    pthread_mutex_unlock(&pool->mutex);
    return FALLOW_DEVICE_LOST;
}

/* The caller's thread gets its context and mode back even when the pool was lost on the way. */
static fallow_status leave(struct flw_naive *pool, CUstreamCaptureMode mode, fallow_status status)
{
    CUcontext popped;
    judge(pool, pool->cu->cuThreadExchangeStreamCaptureMode(&mode));
    judge(pool, pool->cu->cuCtxPopCurrent_v2(&popped));
    pthread_mutex_unlock(&pool->mutex);
    return status;
}

static fallow_status refuse_captured(struct flw_naive *pool, CUstream stream)
{
    CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
    CUresult result = pool->cu->cuStreamIsCapturing(stream, &capture);
    if (result == CUDA_ERROR_INVALID_HANDLE || result == CUDA_ERROR_CONTEXT_IS_DESTROYED) {
        return FALLOW_INVALID_STREAM;
    }
    if (result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) {
        return FALLOW_CAPTURING; /* the legacy stream while a blocking one is captured */
    }
    fallow_status status = judge(pool, result);
    return status == FALLOW_OK && capture != CU_STREAM_CAPTURE_STATUS_NONE ? FALLOW_CAPTURING
                                                                           : status;
}

static struct block **find_live(struct flw_naive *pool, const void *ptr)
{
    struct block **at = chain_of(pool->live, (uint64_t)(uintptr_t)ptr);
    while (*at != NULL && (*at)->ptr != (CUdeviceptr)(uintptr_t)ptr) {
        at = &(*at)->next;
    }
    return at;
}

/* Give one unlinked block back to the driver after its last use. */
static void give_back(struct flw_naive *pool, struct block *block, bool wait)
{
    while (block->marks != NULL) {
        struct mark *mark = block->marks;
        block->marks = mark->next;
        if (!pool->lost && wait) {
            pool->stats.wait_count++;
            judge(pool, pool->cu->cuEventSynchronize(mark->event));
        }
        if (!pool->lost) {
            judge(pool, pool->cu->cuEventDestroy_v2(mark->event));
        }
        free(mark);
    }
    if (!pool->lost) {
        judge(pool, pool->cu->cuMemFree_v2(block->base));
    }
    pool->stats.trim_count++;
    pool->stats.reserved_bytes -= block->bytes;
    free(block);
}

static void give_back_all(struct flw_naive *pool, struct block **chains, size_t keep_bytes)
{
    for (unsigned i = 0; i < CHAINS; i++) {
        while (chains[i] != NULL && pool->stats.reserved_bytes > keep_bytes) {
            struct block *block = chains[i];
            chains[i] = block->next;
            give_back(pool, block, chains == pool->cached);
        }
    }
}

static fallow_status add_mark(struct flw_naive *pool, struct block *block, CUstream stream)
{
    struct mark *mark = calloc(1, sizeof *mark);
    if (mark == NULL) {
        return FALLOW_OUT_OF_HOST_MEMORY;
    }
    CUresult result = pool->cu->cuEventCreate(&mark->event, CU_EVENT_DISABLE_TIMING);
    fallow_status status = judge_room(pool, result);
    if (status != FALLOW_OK) {
        free(mark);
        return status;
    }
    mark->stream = stream;
    struct mark **at = &block->marks;
    while (*at != NULL) {
        at = &(*at)->next;
    }
    *at = mark;
    return FALLOW_OK;
}

static fallow_status grow(struct flw_naive *pool, size_t bytes, struct block **out_block)
{
    struct block *block = calloc(1, sizeof *block);
    if (block == NULL) {
        return FALLOW_OUT_OF_HOST_MEMORY;
    }
    fallow_status status = FALLOW_OUT_OF_MEMORY;
    for (int attempt = 0; attempt < 2 && status == FALLOW_OUT_OF_MEMORY; attempt++) {
        if (attempt == 1) {
            give_back_all(pool, pool->cached, 0);
        }
        if (!pool->lost && bytes <= pool->limit_bytes &&
            pool->stats.reserved_bytes <= pool->limit_bytes - bytes) {
            status = judge_room(pool, pool->cu->cuMemAlloc_v2(&block->base, bytes));
        }
    }
    if (status == FALLOW_OK) {
        block->bytes = bytes;
        pool->stats.grow_count++;
        pool->stats.reserved_bytes += bytes;
        pool->stats.peak_reserved_bytes =
            flw_max(pool->stats.peak_reserved_bytes, pool->stats.reserved_bytes);
        status = add_mark(pool, block, NO_STREAM);
        if (status != FALLOW_OK) {
            give_back(pool, block, false);
            return status;
        }
        *out_block = block;
        return FALLOW_OK;
    }
    free(block);
    return pool->lost ? FALLOW_DEVICE_LOST : status;
}

/* 0: the taker may have it at once; else the number of marks that it must wait for. */
static int pending_marks(struct flw_naive *pool, const struct block *block, CUstream stream)
{
    int count = 0;
    for (const struct mark *mark = block->marks; mark != NULL; mark = mark->next) {
        if (mark->stream == stream && !IS_PER_THREAD(stream)) {
            continue;
        }
        CUresult result = pool->cu->cuEventQuery(mark->event);
        count += result == CUDA_ERROR_NOT_READY;
        judge(pool, result == CUDA_ERROR_NOT_READY ? CUDA_SUCCESS : result);
    }
    return count;
}

/* The last freed block of exactly this size that needs no wait, else one that does. */
static struct block **find_cached(struct flw_naive *pool, size_t bytes, CUstream stream)
{
    struct block **waiting = NULL;
    struct block **at = chain_of(pool->cached, bytes);
    unsigned tried = 0;
    for (; *at != NULL && tried < MOST_TRIED && !pool->lost; at = &(*at)->next) {
        if ((*at)->bytes != bytes) {
            continue;
        }
        tried++;
        if (pending_marks(pool, *at, stream) == 0) {
            return at;
        }
        waiting = waiting == NULL ? at : waiting;
    }
    return pool->lost ? NULL : waiting;
}

/* The stream waits for all that the block waits for. */
static fallow_status order_after(struct flw_naive *pool, const struct block *block, CUstream stream)
{
    const struct mark *mark = block->marks; /* a block has one at least */
    fallow_status status = FALLOW_OK;
    do {
        if (mark->stream != stream || IS_PER_THREAD(stream)) {
            status = judge(pool, pool->cu->cuStreamWaitEvent(stream, mark->event, 0));
        }
        mark = mark->next;
    } while (status == FALLOW_OK && mark != NULL);
    return status;
}

static fallow_status reuse(struct flw_naive *pool, struct block **at, CUstream stream,
                           struct block **out_block)
{
    struct block *block = *at;
    bool waits = pending_marks(pool, block, stream) > 0;
    fallow_status status = waits ? order_after(pool, block, stream) : FALLOW_OK;
    if (status != FALLOW_OK) {
        return status;
    }
    *at = block->next;
    while (block->marks->next != NULL) { /* the announced uses are ordered now */
        struct mark *mark = block->marks->next;
        block->marks->next = mark->next;
        judge(pool, pool->cu->cuEventDestroy_v2(mark->event));
        free(mark);
    }
    pool->stats.steal_count += waits;
    pool->stats.hit_count += !waits;
    *out_block = block;
    return FALLOW_OK;
}

static void lend(struct flw_naive *pool, struct block *block, size_t size, size_t align)
{
    fallow_stats *stats = &pool->stats;
    block->requested_bytes = size;
    block->ptr = flw_align_up(block->base, flw_max(align, 1));
    struct block **at = chain_of(pool->live, block->ptr);
    block->next = *at;
    *at = block;
    stats->alloc_count++;
    stats->live_count++;
    stats->requested_bytes += size;
    stats->live_bytes += block->bytes;
    stats->peak_requested_bytes = flw_max(stats->peak_requested_bytes, stats->requested_bytes);
    stats->peak_live_bytes = flw_max(stats->peak_live_bytes, stats->live_bytes);
}

fallow_status flw_naive_alloc_aligned(struct flw_naive *pool, size_t size, size_t align,
                                      fallow_stream stream, void **out_ptr)
{
    if (out_ptr == NULL) {
        return FALLOW_INVALID_ARGUMENT;
    }
    *out_ptr = NULL;
    if (size > MOST_BYTES || align > MOST_ALIGN_BYTES || (align != 0 && !flw_is_pow2(align))) {
        return FALLOW_INVALID_ARGUMENT;
    }
    size_t bytes = flw_align_up(size, ROUND_BYTES) + (align > ROUND_BYTES ? align : 0);
    struct block *block = NULL;
    CUstreamCaptureMode mode;
    fallow_status status = enter(pool, &mode);
    if (status != FALLOW_OK) {
        return status;
    }
    if (size == 0) {
        pool->stats.zero_size_count++;
        return leave(pool, mode, FALLOW_OK);
    }
    status = refuse_captured(pool, stream);
    if (status == FALLOW_OK) {
        struct block **at = find_cached(pool, bytes, stream);
        status = at != NULL    ? reuse(pool, at, stream, &block)
                 : !pool->lost ? grow(pool, bytes, &block)
                               : FALLOW_DEVICE_LOST;
    }
    if (status == FALLOW_OK) {
        lend(pool, block, size, align);
        *out_ptr = (void *)(uintptr_t)block->ptr;
    }
    pool->stats.oom_count += status == FALLOW_OUT_OF_MEMORY;
    return leave(pool, mode, status);
}

fallow_status flw_naive_alloc(struct flw_naive *pool, size_t size, fallow_stream stream,
                              void **out_ptr)
{
    return flw_naive_alloc_aligned(pool, size, 0, stream, out_ptr);
}

/* Renew every mark that has a stream; the first one is the freeing stream's. */
static fallow_status record_marks(struct flw_naive *pool, struct block *block, CUstream stream)
{
    block->marks->stream = stream;
    for (struct mark *mark = block->marks; mark != NULL; mark = mark->next) {
        bool fixed =
            mark->stream == NO_STREAM || (IS_PER_THREAD(mark->stream) && mark != block->marks);
        if (fixed) {
            continue;
        }
        fallow_status status = judge(pool, pool->cu->cuEventRecord(mark->event, mark->stream));
        if (status != FALLOW_OK) {
            return status;
        }
        pool->stats.event_count++;
    }
    return FALLOW_OK;
}

/* `sized`: also compare the size with what the block could have been lent for. */
static fallow_status take_back(struct flw_naive *pool, void *ptr, const size_t *sized,
                               fallow_stream stream)
{
    CUstreamCaptureMode mode;
    if (ptr == NULL) {
        return FALLOW_OK;
    }
    if (enter(pool, &mode) != FALLOW_OK) {
        return FALLOW_OK; /* lost: a free succeeds and does nothing */
    }
    struct block **at = find_live(pool, ptr);
    struct block *block = *at;
    if (block == NULL) {
        pool->stats.misuse_count++;
        return leave(pool, mode, FALLOW_INVALID_POINTER);
    }
    if (sized != NULL && flw_align_up(flw_min(*sized, MOST_BYTES), ROUND_BYTES) !=
                             flw_align_up(block->requested_bytes, ROUND_BYTES)) {
        pool->stats.misuse_count++;
        return leave(pool, mode, FALLOW_INVALID_ARGUMENT);
    }
    fallow_status status = refuse_captured(pool, stream);
    if (status == FALLOW_OK) { /* a block that cannot be marked can never be lent again */
        pool->lost = record_marks(pool, block, stream) != FALLOW_OK || pool->lost;
    }
    if (pool->lost || status != FALLOW_OK) {
        return leave(pool, mode, pool->lost ? FALLOW_OK : status);
    }
    *at = block->next;
    at = chain_of(pool->cached, block->bytes);
    block->next = *at;
    *at = block;
    pool->stats.free_count++;
    pool->stats.live_count--;
    pool->stats.requested_bytes -= block->requested_bytes;
    pool->stats.live_bytes -= block->bytes;
    return leave(pool, mode, FALLOW_OK);
}

fallow_status flw_naive_free(struct flw_naive *pool, void *ptr, fallow_stream stream)
{
    return take_back(pool, ptr, NULL, stream);
}

fallow_status flw_naive_free_sized(struct flw_naive *pool, void *ptr, size_t size,
                                   fallow_stream stream)
{
    return take_back(pool, ptr, &size, stream);
}

fallow_status flw_naive_record_use(struct flw_naive *pool, void *ptr, fallow_stream stream)
{
    CUstreamCaptureMode mode;
    fallow_status status = enter(pool, &mode);
    if (status != FALLOW_OK) {
        return status;
    }
    struct block *block = *find_live(pool, ptr);
    status = block == NULL ? FALLOW_INVALID_POINTER : refuse_captured(pool, stream);
    struct mark *mark = block != NULL ? block->marks->next : NULL;
    while (mark != NULL && (mark->stream != stream || IS_PER_THREAD(stream))) {
        mark = mark->next;
    }
    if (status == FALLOW_OK && mark == NULL) {
        status = add_mark(pool, block, stream);
        for (mark = block->marks; mark->next != NULL; mark = mark->next) {
        }
        status = status == FALLOW_OK ? judge(pool, pool->cu->cuEventRecord(mark->event, stream))
                                     : status;
        pool->stats.event_count += status == FALLOW_OK;
    }
    return leave(pool, mode, status);
}

/* Every mark of the stream keeps its event and loses its stream; announced uses are renewed first.
 */
fallow_status flw_naive_retire(struct flw_naive *pool, fallow_stream stream)
{
    CUstreamCaptureMode mode;
    fallow_status status = enter(pool, &mode);
    if (status != FALLOW_OK) {
        return status;
    }
    for (unsigned i = 0; status == FALLOW_OK && i < 2 * CHAINS; i++) {
        bool is_live = i < CHAINS;
        struct block *block = is_live ? pool->live[i] : pool->cached[i - CHAINS];
        for (; block != NULL; block = block->next) {
            for (struct mark *mark = block->marks; mark != NULL; mark = mark->next) {
                if (mark->stream != stream) {
                    continue;
                }
                if (is_live && mark != block->marks && !IS_PER_THREAD(stream)) {
                    status = judge(pool, pool->cu->cuEventRecord(mark->event, stream));
                }
                mark->stream = NO_STREAM;
            }
        }
    }
    return leave(pool, mode, status);
}

fallow_status flw_naive_trim(struct flw_naive *pool, size_t keep_bytes)
{
    CUstreamCaptureMode mode;
    fallow_status status = enter(pool, &mode);
    if (status != FALLOW_OK) {
        return status;
    }
    give_back_all(pool, pool->cached, keep_bytes);
    return leave(pool, mode, pool->lost ? FALLOW_DEVICE_LOST : FALLOW_OK);
}

void flw_naive_get_stats(struct flw_naive *pool, fallow_stats *out_stats)
{
    pthread_mutex_lock(&pool->mutex);
    *out_stats = pool->stats;
    pthread_mutex_unlock(&pool->mutex);
}

fallow_status flw_naive_create(const struct flw_driver *driver, int device, size_t limit_bytes,
                               struct flw_naive **out_pool)
{
    size_t total_bytes = 0;
    fallow_status status = FALLOW_OUT_OF_HOST_MEMORY;
    struct flw_naive *pool = calloc(1, sizeof *pool);
    *out_pool = NULL;
    if (pool == NULL) {
        return status;
    }
    pool->cu = driver;
    pool->stats.struct_size = sizeof pool->stats;
    status = judge(pool, driver->cuDeviceGet(&pool->device, device));
    if (status == FALLOW_OK) {
        status = judge(pool, driver->cuDeviceTotalMem_v2(&total_bytes, pool->device));
    }
    if (status == FALLOW_OK) {
        status = judge(pool, driver->cuDevicePrimaryCtxRetain(&pool->context, pool->device));
    }
    if (status != FALLOW_OK) {
        free(pool);
        return status == FALLOW_DEVICE_LOST ? FALLOW_DRIVER : status;
    }
    pool->limit_bytes = limit_bytes != 0 ? limit_bytes : total_bytes;
    pthread_mutex_init(&pool->mutex, NULL);
    *out_pool = pool;
    return FALLOW_OK;
}

void flw_naive_destroy(struct flw_naive *pool)
{
    CUstreamCaptureMode mode;
    if (pool == NULL) {
        return;
    }
    if (enter(pool, &mode) == FALLOW_OK) {
        give_back_all(pool, pool->cached, 0);
        give_back_all(pool, pool->live, 0);
        leave(pool, mode, FALLOW_OK);
    }
    if (!pool->lost) {
        pool->cu->cuDevicePrimaryCtxRelease_v2(pool->device);
    }
    pool->lost = true; /* what is left has host memory only */
    give_back_all(pool, pool->cached, 0);
    give_back_all(pool, pool->live, 0);
    pthread_mutex_destroy(&pool->mutex);
    free(pool);
}
