/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the functions for PyTorch, except those of graphs (graph_ids.c). */
#include <stdio.h>

#include "plugin/default_pools.h"
#include "plugin/exception.h"

/* Serve a miss. PyTorch's C++ uses any result as memory, so the functions that PyTorch calls throw. */
static void *allocate(ssize_t size, int device, fallow_stream stream, uint32_t tag,
                      fallow_status seen, bool may_throw)
{
    fallow_request request;
    struct flw_plugin_refusal refusal;
    char message[sizeof refusal.text + 32];
    fallow_request_init(&request);
    request.size_bytes = (size_t)size; /* a negative one is refused as absurd */
    request.tag = tag;
    void *ptr = flw_plugin_alloc(device, FALLOW_PLUGIN_STREAM, &request, stream, seen, &refusal);
    if (ptr == NULL && refusal.status != FALLOW_OK && may_throw) {
        bool is_memory = refusal.status == FALLOW_OUT_OF_MEMORY;
        snprintf(message, sizeof message, "%sfallow: %s", is_memory ? "CUDA out of memory. " : "",
                 refusal.text);
        flw_plugin_throw(is_memory, message);
    }
    return ptr;
}

static inline void *try_to_allocate(ssize_t size, int device, fallow_stream stream, bool may_throw)
{
    void *ptr = NULL;
    struct flw_plugin_device *at = flw_plugin_device_of(device);
    if (at == NULL) {
        return allocate(size, device, stream, 0, FALLOW_OK, may_throw);
    }
    if (atomic_load_explicit(&at->open_ids, memory_order_relaxed) != 0) {
        return allocate(size, device, stream, flw_graph_ids_announce(device, stream, false),
                        FALLOW_OK, may_throw);
    }
    fallow_pool *pool = flw_plugin_pool_of(at, FALLOW_PLUGIN_STREAM);
    fallow_status status = FALLOW_OK;
    if (pool != NULL) {
        status = fallow_alloc(pool, (size_t)size, stream, &ptr);
        if (status == FALLOW_OK) {
            return ptr;
        }
    }
    return allocate(size, device, stream, 0, status, may_throw);
}

void *fallow_torch_alloc(ssize_t size, int device, fallow_stream stream)
{
    return try_to_allocate(size, device, stream, true);
}

void *fallow_rmm_alloc(ssize_t size, int device, fallow_stream stream)
{
    return try_to_allocate(size, device, stream, false);
}

void fallow_torch_free(void *ptr, ssize_t size, int device, fallow_stream stream)
{
    const struct flw_plugin_device *at = flw_plugin_device_of(device);
    (void)size;
    if (at != NULL && atomic_load_explicit(&at->open_ids, memory_order_relaxed) != 0) {
        (void)flw_graph_ids_announce(device, stream, true);
    }
    flw_plugin_free(device, FALLOW_PLUGIN_STREAM, ptr, stream);
}

void fallow_torch_reset(void)
{
    flw_plugin_trim(-1);
}

void *fallow_torch_base_alloc(void *ptr, size_t *out_size)
{
    fallow_block block;
    bool is_ours = flw_plugin_owner_of(ptr, &block) != NULL;
    if (out_size != NULL) {
        *out_size = is_ours ? block.usable_bytes : 0;
    }
    return is_ours ? block.base : ptr;
}

void fallow_torch_record_stream(void *ptr, fallow_stream stream)
{
    fallow_block block;
    if (ptr == NULL) {
        return;
    }
    fallow_pool *pool = flw_plugin_owner_of(ptr, &block);
    fallow_status status =
        pool != NULL ? fallow_record_use(pool, block.base, stream) : FALLOW_INVALID_POINTER;
    if (status != FALLOW_OK) {
        flw_plugin_log("the use of %p on another stream could not be announced: %s", ptr,
                       fallow_status_message(status));
    }
}
