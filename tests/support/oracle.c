/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the reference pool: one driver allocation for each block, and a free that waits for the
 * whole device. It is correct for every order of streams, because it caches nothing. Does not:
 * support threads, captures or a failing driver; the model has none. */
#include "support/pool_under_test.h"

#include <stdlib.h>

#include "base/bits.h"

#define MOST_BYTES       ((size_t)1 << 47) /* beyond any device: refused before any arithmetic */
#define MOST_ALIGN_BYTES ((size_t)2 << 20)
#define ROUND_BYTES      512u

struct block {
    struct block *next;
    CUdeviceptr base, ptr;
    size_t bytes, requested_bytes; /* allocated by the driver; requested */
};

struct oracle {
    const struct flw_driver *cu;
    CUdevice device;
    CUcontext context; /* made current by the tests' only thread */
    size_t limit_bytes;
    struct block *blocks;
    fallow_stats stats;
};

static fallow_status create(const struct flw_driver *driver, const fallow_pool_config *config,
                            void **out_pool)
{
    struct oracle *oracle = calloc(1, sizeof *oracle);
    *out_pool = oracle;
    if (oracle == NULL) {
        return FALLOW_OUT_OF_HOST_MEMORY;
    }
    oracle->cu = driver;
    oracle->limit_bytes = config->limit_bytes != 0 ? config->limit_bytes : SIZE_MAX;
    bool is_made =
        driver->cuDeviceGet(&oracle->device, config->device) == CUDA_SUCCESS &&
        driver->cuDevicePrimaryCtxRetain(&oracle->context, oracle->device) == CUDA_SUCCESS &&
        driver->cuCtxSetCurrent(oracle->context) == CUDA_SUCCESS;
    return is_made ? FALLOW_OK : FALLOW_DRIVER;
}

/* The link to the block, or to NULL. */
static struct block **find(struct oracle *oracle, const void *ptr)
{
    struct block **at = &oracle->blocks;
    while (*at != NULL && (*at)->ptr != (CUdeviceptr)(uintptr_t)ptr) {
        at = &(*at)->next;
    }
    return at;
}

static fallow_status alloc_aligned(void *pool, size_t size, size_t align, fallow_stream stream,
                                   void **out_ptr)
{
    struct oracle *oracle = pool;
    fallow_stats *stats = &oracle->stats;
    struct block block = {.next = oracle->blocks, .requested_bytes = size};
    (void)stream;
    *out_ptr = NULL;
    if (size > MOST_BYTES || align > MOST_ALIGN_BYTES || (align != 0 && !flw_is_pow2(align))) {
        return FALLOW_INVALID_ARGUMENT;
    }
    if (size == 0) {
        stats->zero_size_count++;
        return FALLOW_OK;
    }
    block.bytes = flw_align_up(size, ROUND_BYTES) + (align > ROUND_BYTES ? align : 0);
    if (block.bytes > oracle->limit_bytes ||
        stats->reserved_bytes > oracle->limit_bytes - block.bytes ||
        oracle->cu->cuMemAlloc_v2(&block.base, block.bytes) != CUDA_SUCCESS) {
        return FALLOW_OUT_OF_MEMORY;
    }
    block.ptr = flw_align_up(block.base, flw_max(align, 1));
    oracle->blocks = malloc(sizeof block);
    *oracle->blocks = block;
    *out_ptr = (void *)(uintptr_t)block.ptr;
    stats->alloc_count++;
    stats->live_count++;
    stats->requested_bytes += size;
    stats->live_bytes = stats->reserved_bytes += block.bytes;
    stats->peak_requested_bytes = flw_max(stats->peak_requested_bytes, stats->requested_bytes);
    stats->peak_reserved_bytes = flw_max(stats->peak_reserved_bytes, stats->reserved_bytes);
    return FALLOW_OK;
}

static fallow_status alloc(void *pool, size_t size, fallow_stream stream, void **out_ptr)
{
    return alloc_aligned(pool, size, 0, stream, out_ptr);
}

static fallow_status release(struct oracle *oracle, struct block **at)
{
    struct block *block = *at;
    fallow_stats *stats = &oracle->stats;
    if (oracle->cu->cuCtxSynchronize() != CUDA_SUCCESS ||
        oracle->cu->cuMemFree_v2(block->base) != CUDA_SUCCESS) {
        return FALLOW_DRIVER;
    }
    *at = block->next;
    stats->free_count++;
    stats->live_count--;
    stats->requested_bytes -= block->requested_bytes;
    stats->live_bytes = stats->reserved_bytes -= block->bytes;
    free(block);
    return FALLOW_OK;
}

static fallow_status take_back(void *pool, void *ptr, fallow_stream stream)
{
    struct oracle *oracle = pool;
    struct block **at = find(oracle, ptr);
    (void)stream;
    oracle->stats.misuse_count += ptr != NULL && *at == NULL;
    return ptr == NULL ? FALLOW_OK : *at == NULL ? FALLOW_INVALID_POINTER : release(oracle, at);
}

/* Free a block if it could have been allocated for that size. */
static fallow_status take_back_sized(void *pool, void *ptr, size_t size, fallow_stream stream)
{
    struct oracle *oracle = pool;
    struct block *block = *find(oracle, ptr);
    if (block != NULL && flw_align_up(flw_min(size, MOST_BYTES), ROUND_BYTES) !=
                             flw_align_up(block->requested_bytes, ROUND_BYTES)) {
        oracle->stats.misuse_count++;
        return FALLOW_INVALID_ARGUMENT;
    }
    return take_back(pool, ptr, stream);
}

static fallow_status record_use(void *pool, void *ptr, fallow_stream stream)
{
    (void)stream;
    return *find(pool, ptr) != NULL ? FALLOW_OK : FALLOW_INVALID_POINTER;
}

static fallow_status retire(void *pool, fallow_stream stream)
{
    (void)pool;
    (void)stream;
    return FALLOW_OK;
}

static fallow_status trim(void *pool, size_t keep_bytes)
{
    (void)pool;
    (void)keep_bytes;
    return FALLOW_OK;
}

static fallow_status get_stats(void *pool, fallow_stats *out_stats)
{
    *out_stats = ((struct oracle *)pool)->stats;
    return FALLOW_OK;
}

static void destroy(void *pool)
{
    struct oracle *oracle = pool;
    while (oracle->blocks != NULL && release(oracle, &oracle->blocks) == FALLOW_OK) {
    }
    (void)oracle->cu->cuDevicePrimaryCtxRelease_v2(oracle->device);
    free(oracle);
}

const struct flw_put_ops flw_put_oracle = {
    .name = "oracle",
    .create = create,
    .destroy = destroy,
    .alloc = alloc,
    .alloc_aligned = alloc_aligned,
    .free = take_back,
    .free_sized = take_back_sized,
    .record_use = record_use,
    .retire = retire,
    .trim = trim,
    .get_stats = get_stats,
};
