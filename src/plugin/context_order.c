/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the pairs without a stream of use: CuPy's, and PyTorch's for memory pools. Their pool is
 * in context order. */
#include "fallow/extend.h"

#include "plugin/default_pools.h"

static void *allocate(size_t size, int device)
{
    const struct flw_plugin_device *at = flw_plugin_device_of(device);
    fallow_pool *pool = at == NULL ? NULL : flw_plugin_pool_of(at, FALLOW_PLUGIN_CONTEXT);
    fallow_status status = FALLOW_OK;
    fallow_request request;
    struct flw_plugin_refusal refusal;
    void *ptr = NULL;
    if (pool != NULL) {
        status = fallow_alloc(pool, size, NULL, &ptr);
        if (status == FALLOW_OK) {
            return ptr;
        }
    }
    fallow_request_init(&request);
    request.size_bytes = size;
    return flw_plugin_alloc(device, FALLOW_PLUGIN_CONTEXT, &request, NULL, status, &refusal);
}

/* For a call without a stream of use: detect an unannounced capture. Segments are allocated for a
 * stream, which PyTorch's own allocator may be capturing. */
static bool begin_call(int device, const fallow_stream *stream)
{
    const struct flw_plugin_device *at = flw_plugin_device_of(device);
    struct flw_pool *pool = stream == NULL || at == NULL
                                ? NULL
                                : flw_pool_of(flw_plugin_pool_of(at, FALLOW_PLUGIN_CONTEXT));
    if (pool != NULL && flw_plugin_is_capturing(pool, *stream)) {
        fallow_context_capture_begin();
        return true;
    }
    return flw_graph_ids_guard();
}

static void end_call(bool is_captured)
{
    if (is_captured) {
        fallow_context_capture_end();
    }
}

void *fallow_cupy_malloc(void *param, size_t size, int device)
{
    bool is_captured = begin_call(device, NULL);
    void *ptr = allocate(size, device);
    (void)param;
    end_call(is_captured);
    return ptr;
}

void fallow_cupy_free(void *param, void *ptr, int device)
{
    bool is_captured = begin_call(device, NULL);
    (void)param;
    flw_plugin_free(device, FALLOW_PLUGIN_CONTEXT, ptr, NULL);
    end_call(is_captured);
}

void *fallow_torch_segment_alloc(ssize_t size, int device, fallow_stream stream)
{
    bool is_captured = begin_call(device, &stream);
    void *ptr = allocate((size_t)size, device);
    end_call(is_captured);
    return ptr;
}

void fallow_torch_segment_free(void *ptr, ssize_t size, int device, fallow_stream stream)
{
    bool is_captured = begin_call(device, &stream);
    (void)size;
    flw_plugin_free(device, FALLOW_PLUGIN_CONTEXT, ptr, stream);
    end_call(is_captured);
}
