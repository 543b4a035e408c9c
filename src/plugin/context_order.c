/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the pairs that name no stream: CuPy's, and PyTorch's for memory pools. What comes back rests in
 * a *limbo* of its device until the context has done everything; then it goes to the pool.
 *
 * Synchronization: one mutex, never held over a driver call.
 */
#include "plugin/default_pools.h"

/* One synchronisation of the context for so many. */
#define LIMBO_COUNT 256
#define LIMBO_BYTES (64 * FLW_MIB)

struct limbo {
    uint32_t count;
    uint64_t bytes;
    void *blocks[LIMBO_COUNT];
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct limbo limbos[FLW_PLUGIN_DEVICES];

void flw_context_order_forget(void)
{
    pthread_mutex_init(&mutex, NULL);
    for (int i = 0; i < FLW_PLUGIN_DEVICES; i++) {
        limbos[i] = (struct limbo){0};
    }
}

void flw_context_order_lose(int device)
{
    pthread_mutex_lock(&mutex);
    limbos[device].count = 0;
    limbos[device].bytes = 0;
    pthread_mutex_unlock(&mutex);
}

/* Takes the whole limbo. Nothing else reaches the blocks meanwhile. */
static void flush(int device, struct limbo *taken)
{
    bool is_quiescent = flw_plugin_synchronize(
        flw_plugin_pool_of(flw_plugin_device_of(device), FALLOW_PLUGIN_CONTEXT));
    for (uint32_t i = 0; i < taken->count; i++) {
        if (is_quiescent) {
            flw_plugin_return(device, FALLOW_PLUGIN_CONTEXT, taken->blocks[i], NULL);
        }
    }
    if (!is_quiescent) {
        flw_plugin_say("%u blocks of device %d are kept: its context cannot be synchronised now",
                       taken->count, device);
    }
}

void flw_context_order_flush(int device)
{
    struct limbo taken;
    pthread_mutex_lock(&mutex);
    taken = limbos[device];
    limbos[device].count = 0;
    limbos[device].bytes = 0;
    pthread_mutex_unlock(&mutex);
    if (taken.count > 0) {
        flush(device, &taken);
    }
}

static void *lend(size_t size, int device)
{
    struct flw_plugin_device *at = flw_plugin_device_of(device);
    fallow_pool *pool = at == NULL ? NULL : flw_plugin_pool_of(at, FALLOW_PLUGIN_CONTEXT);
    fallow_status status = FALLOW_OK;
    fallow_request request;
    void *ptr = NULL;
    if (pool != NULL) {
        status = fallow_alloc(pool, size, NULL, &ptr);
        if (status == FALLOW_OUT_OF_MEMORY) {
            flw_context_order_flush(device);
            status = fallow_alloc(pool, size, NULL, &ptr);
        }
        if (status == FALLOW_OK) {
            return ptr;
        }
    }
    fallow_request_init(&request);
    request.size_bytes = size;
    return flw_plugin_lend(device, FALLOW_PLUGIN_CONTEXT, &request, NULL, status);
}

static void take_back(void *ptr, int device)
{
    struct flw_plugin_device *at = flw_plugin_device_of(device);
    fallow_pool *pool = at == NULL ? NULL : flw_plugin_pool_of(at, FALLOW_PLUGIN_CONTEXT);
    fallow_block block;
    fallow_block_init(&block);
    if (ptr == NULL) {
        return;
    }
    if (pool == NULL || fallow_block_info(pool, ptr, &block) != FALLOW_OK ||
        block.state != FALLOW_BLOCK_LIVE || block.base != ptr) {
        flw_plugin_return(device, FALLOW_PLUGIN_CONTEXT, ptr, NULL); /* says what is wrong */
        return;
    }
    pthread_mutex_lock(&mutex);
    struct limbo *limbo = &limbos[device];
    limbo->blocks[limbo->count++] = ptr;
    limbo->bytes += block.usable_bytes;
    bool is_full = limbo->count == LIMBO_COUNT || limbo->bytes >= LIMBO_BYTES;
    struct limbo taken = {.count = 0};
    if (is_full) {
        taken = *limbo;
        limbo->count = 0;
        limbo->bytes = 0;
    }
    pthread_mutex_unlock(&mutex);
    if (is_full) {
        flush(device, &taken);
    }
}

void *fallow_cupy_malloc(void *param, size_t size, int device)
{
    (void)param;
    return lend(size, device);
}

void fallow_cupy_free(void *param, void *ptr, int device)
{
    (void)param;
    take_back(ptr, device);
}

void *fallow_torch_segment_alloc(ssize_t size, int device, fallow_stream stream)
{
    (void)stream;
    return lend((size_t)size, device);
}

void fallow_torch_segment_free(void *ptr, ssize_t size, int device, fallow_stream stream)
{
    (void)size;
    (void)stream;
    take_back(ptr, device);
}
