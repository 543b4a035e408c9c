/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the memcpy entry points.
 * Does not: move bytes (work.c) or order the copy (schedule.c).
 *
 * The plain forms use the legacy stream. Copies from pageable host memory read it before the call
 * returns, and copies to it are complete when the call returns; pinned memory is read and written
 * when the operation runs ("API synchronization behavior" of the driver's manual). */
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "simcuda/check.h"
#include "simcuda/forms.h"
#include "simcuda/host.h"
#include "simcuda/storage.h"

static bool is_pinned(const void *pointer)
{
    struct flw_region *region = flw_region_find((uintptr_t)pointer);
    return region != NULL && region->host != NULL;
}

static CUresult give_and_wait(struct flw_call *call, struct flw_stream *stream,
                              struct flw_work *work, bool waits)
{
    struct flw_position position = {0};
    struct flw_context *context = stream->context;
    bool is_captured = stream->capture != NULL;
    CUresult result = flw_order_submit(stream, work, &position);
    if (result == CUDA_SUCCESS && waits && !is_captured) {
        struct flw_order_clock clock = {0};
        if (flw_check_is_on()) {
            flw_clock_copy(&clock, &stream->clock);
        }
        flw_order_wait(call->thread, &position);
        flw_clock_host_saw(&clock);
        flw_clock_finish(&clock);
        result = context->sticky;
    }
    return result;
}

static CUresult copy_in(struct flw_call *call, struct flw_stream *stream, CUdeviceptr to,
                        const void *from, size_t bytes, bool waits)
{
    if (bytes == 0) {
        return CUDA_SUCCESS;
    }
    FLW_REFUSE_IF(from == NULL || !flw_storage_is_known(to), CUDA_ERROR_INVALID_VALUE);
    struct flw_sim_range range[2] = {{.address = to, .bytes = bytes, .is_write = 1},
                                     {.address = (uintptr_t)from, .bytes = bytes}};
    bool pinned = is_pinned(from);
    struct flw_work work = {.kind = FLW_WORK_COPY,
                            .name = "copy to the device",
                            .ranges = range,
                            .range_count = pinned ? 2 : 1,
                            .to = to,
                            .host_from = from,
                            .bytes = bytes};
    if (!pinned && flw_world.config.backed) {
        work.staged = flw_host_get(bytes);
        memcpy(work.staged, from, bytes);
        work.host_from = work.staged;
    }
    CUresult result = give_and_wait(call, stream, &work, waits);
    free(work.staged);
    return result;
}

static CUresult copy_out(struct flw_call *call, struct flw_stream *stream, void *to,
                         CUdeviceptr from, size_t bytes, bool waits)
{
    if (bytes == 0) {
        return CUDA_SUCCESS;
    }
    FLW_REFUSE_IF(to == NULL || !flw_storage_is_readable(from), CUDA_ERROR_INVALID_VALUE);
    struct flw_sim_range range[2] = {{.address = from, .bytes = bytes},
                                     {.address = (uintptr_t)to, .bytes = bytes, .is_write = 1}};
    bool pinned = is_pinned(to);
    struct flw_work work = {.kind = FLW_WORK_COPY,
                            .name = "copy to the host",
                            .ranges = range,
                            .range_count = pinned ? 2 : 1,
                            .from = from,
                            .host_to = to,
                            .bytes = bytes};
    return give_and_wait(call, stream, &work, waits || !pinned);
}

CUresult CUDAAPI cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes)
{
    FLW_CALL(cuMemcpyHtoD_v2, FLW_CALL_CONTEXT);
    return copy_in(&call, call.context->legacy, to, from, bytes, true);
}

CUresult CUDAAPI cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes)
{
    FLW_CALL(cuMemcpyDtoH_v2, FLW_CALL_CONTEXT);
    return copy_out(&call, call.context->legacy, to, from, bytes, true);
}

CUresult CUDAAPI cuMemcpyHtoD_v2_ptds(CUdeviceptr to, const void *from, size_t bytes)
{
    FLW_CALL_ON_STREAM(cuMemcpyHtoD_v2, FLW_CALL_CONTEXT, CU_STREAM_PER_THREAD);
    return copy_in(&call, call.stream, to, from, bytes, true);
}

CUresult CUDAAPI cuMemcpyDtoH_v2_ptds(void *to, CUdeviceptr from, size_t bytes)
{
    FLW_CALL_ON_STREAM(cuMemcpyDtoH_v2, FLW_CALL_CONTEXT, CU_STREAM_PER_THREAD);
    return copy_out(&call, call.stream, to, from, bytes, true);
}

CUresult CUDAAPI cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes,
                                      CUstream handle)
{
    FLW_CALL_ON_STREAM(cuMemcpyHtoDAsync_v2, FLW_CALL_CONTEXT, handle);
    return copy_in(&call, call.stream, to, from, bytes, false);
}

CUresult CUDAAPI cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream handle)
{
    FLW_CALL_ON_STREAM(cuMemcpyDtoHAsync_v2, FLW_CALL_CONTEXT, handle);
    return copy_out(&call, call.stream, to, from, bytes, false);
}

CUresult CUDAAPI cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes,
                                      CUstream handle)
{
    FLW_CALL_ON_STREAM(cuMemcpyDtoDAsync_v2, FLW_CALL_CONTEXT, handle);
    if (bytes == 0) {
        return CUDA_SUCCESS;
    }
    FLW_REFUSE_IF(!flw_storage_is_known(to) || !flw_storage_is_readable(from),
                  CUDA_ERROR_INVALID_VALUE);
    struct flw_sim_range range[2] = {{.address = to, .bytes = bytes, .is_write = 1},
                                     {.address = from, .bytes = bytes}};
    struct flw_work work = {.kind = FLW_WORK_COPY,
                            .name = "copy on the device",
                            .ranges = range,
                            .range_count = 2,
                            .to = to,
                            .from = from,
                            .bytes = bytes};
    return flw_order_submit(call.stream, &work, NULL);
}
