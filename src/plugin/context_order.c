/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the pairs that name no stream of use: CuPy's, and PyTorch's for memory pools. Behind them is a
 * pool in context order.
 */
#include "fallow/extend.h"

#include "plugin/default_pools.h"

static void *allocate(size_t size, int device)
{
    const struct flw_plugin_device *at = flw_plugin_device_of(device);
    fallow_pool *pool = at == NULL ? NULL : flw_plugin_pool_of(at, FALLOW_PLUGIN_CONTEXT);
    fallow_status status = FALLOW_OK;
    fallow_request request;
    void *ptr = NULL;
    if (pool != NULL) {
        status = fallow_alloc(pool, size, NULL, &ptr);
        if (status == FALLOW_OK) {
            return ptr;
        }
    }
    fallow_request_init(&request);
    request.size_bytes = size;
    return flw_plugin_alloc(device, FALLOW_PLUGIN_CONTEXT, &request, NULL, status);
}

void *fallow_cupy_malloc(void *param, size_t size, int device)
{
    (void)param;
    return allocate(size, device);
}

void fallow_cupy_free(void *param, void *ptr, int device)
{
    (void)param;
    flw_plugin_free(device, FALLOW_PLUGIN_CONTEXT, ptr, NULL);
}

/* PyTorch's allocator says nothing of captures where it only takes segments from here, but one that it
 * takes in a capture is for a stream of it. */
static bool announce_if_captured(int device, fallow_stream stream)
{
    unsigned long long driver_id;
    const struct flw_plugin_device *at = flw_plugin_device_of(device);
    struct flw_pool *pool =
        at == NULL ? NULL : flw_pool_of(flw_plugin_pool_of(at, FALLOW_PLUGIN_CONTEXT));
    bool is_captured = pool != NULL && flw_plugin_ask_capture(pool, stream, &driver_id);
    if (is_captured) {
        fallow_context_capture_begin();
    }
    return is_captured;
}

void *fallow_torch_segment_alloc(ssize_t size, int device, fallow_stream stream)
{
    bool is_captured = announce_if_captured(device, stream);
    void *ptr = allocate((size_t)size, device);
    if (is_captured) {
        fallow_context_capture_end();
    }
    return ptr;
}

void fallow_torch_segment_free(void *ptr, ssize_t size, int device, fallow_stream stream)
{
    bool is_captured = announce_if_captured(device, stream);
    (void)size;
    flw_plugin_free(device, FALLOW_PLUGIN_CONTEXT, ptr, NULL);
    if (is_captured) {
        fallow_context_capture_end();
    }
}
