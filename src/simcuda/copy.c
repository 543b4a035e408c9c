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
    return flw_storage_is_host((uintptr_t)pointer);
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
    CUresult result = flw_order_give(call, stream, &work, waits);
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
    return flw_order_give(call, stream, &work, waits || !pinned);
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

/* "cuMemcpyPeer" needs no access of the stream's device to the other one's memory. */
static size_t keep_reached(const struct flw_context *context, struct flw_sim_range *range,
                           size_t count)
{
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        const struct flw_region *region = flw_region_find(range[i].address);
        if (region == NULL || region->context == NULL ||
            flw_context_reaches(context, region->context)) {
            range[kept++] = range[i];
        }
    }
    return kept;
}

static CUresult copy_within(struct flw_call *call, struct flw_stream *stream, CUdeviceptr to,
                            CUdeviceptr from, size_t bytes, bool waits, bool is_peer)
{
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
                            .range_count = is_peer ? keep_reached(stream->context, range, 2) : 2,
                            .to = to,
                            .from = from,
                            .bytes = bytes};
    return flw_order_give(call, stream, &work, waits);
}

CUresult CUDAAPI cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes,
                                      CUstream handle)
{
    FLW_CALL_ON_STREAM(cuMemcpyDtoDAsync_v2, FLW_CALL_CONTEXT, handle);
    return copy_within(&call, call.stream, to, from, bytes, false, false);
}

/* ---- copies in the direction that the addresses give */

/* An address that the driver does not know is pageable host memory. A copy between two of those
 * follows the stream's work and is complete when the call returns. */
static CUresult copy_any(struct flw_call *call, struct flw_stream *stream, CUdeviceptr to,
                         CUdeviceptr from, size_t bytes, bool waits)
{
    if (bytes == 0) {
        return CUDA_SUCCESS;
    }
    bool to_known = flw_storage_is_known(to), from_known = flw_storage_is_known(from);
    void *host_to = (void *)(uintptr_t)to;
    const void *host_from = (const void *)(uintptr_t)from;
    if (to_known && from_known) {
        /* "For transfers from device memory to device memory, no host-side synchronization is
         * performed." */
        waits = waits && (is_pinned(host_to) || is_pinned(host_from));
        return copy_within(call, stream, to, from, bytes, waits, false);
    }
    bool is_device = (to >= FLW_SPACE_BEGIN && to < FLW_SPACE_END && !to_known) ||
                     (from >= FLW_SPACE_BEGIN && from < FLW_SPACE_END && !from_known);
    FLW_REFUSE_IF(is_device || to == 0 || from == 0, CUDA_ERROR_INVALID_VALUE);
    if (to_known) {
        return copy_in(call, stream, to, host_from, bytes, waits);
    }
    if (from_known) {
        return copy_out(call, stream, host_to, from, bytes, waits);
    }
    /* a graph could not repeat it */
    FLW_REFUSE_IF(stream->capture != NULL, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    struct flw_work nothing = {.kind = FLW_WORK_EMPTY, .name = "copy on the host"};
    FLW_TRY(flw_order_give(call, stream, &nothing, true));
    memmove(host_to, host_from, bytes);
    return CUDA_SUCCESS;
}

static CUresult copy_linear(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream handle,
                            bool waits)
{
    FLW_CALL_ON_STREAM(cuMemcpyDtoDAsync_v2, FLW_CALL_CONTEXT, handle);
    return copy_any(&call, call.stream, to, from, bytes, waits);
}

/* The plain copy on the device waits for nothing but memory of the host. */
static CUresult copy_device(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream handle)
{
    FLW_CALL_ON_STREAM(cuMemcpyDtoDAsync_v2, FLW_CALL_CONTEXT, handle);
    bool waits =
        flw_storage_is_host(to) || flw_storage_is_host(from) || !flw_storage_is_known(from);
    return copy_within(&call, call.stream, to, from, bytes, waits, false);
}

static CUresult copy_peer(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                          CUcontext from_context, size_t bytes, CUstream handle)
{
    FLW_CALL_ON_STREAM(cuMemcpyDtoDAsync_v2, FLW_CALL_CONTEXT, handle);
    FLW_REFUSE_IF(flw_context_find(to_context) == NULL || flw_context_find(from_context) == NULL,
                  CUDA_ERROR_INVALID_CONTEXT);
    return copy_within(&call, call.stream, to, from, bytes, false, true);
}

/* One side of a box: rows of `pitch` bytes, planes of `height` rows; it begins at x, y, z. */
struct side {
    CUdeviceptr at;
    size_t pitch, height, x, y, z;
};

static CUresult find_side(struct side *side, CUmemorytype type, const void *host,
                          CUdeviceptr device, size_t width)
{
    FLW_REFUSE_IF(type == CU_MEMORYTYPE_ARRAY, CUDA_ERROR_NOT_SUPPORTED); /* no array exists */
    FLW_REFUSE_IF(type != CU_MEMORYTYPE_HOST && type != CU_MEMORYTYPE_DEVICE &&
                      type != CU_MEMORYTYPE_UNIFIED,
                  CUDA_ERROR_INVALID_VALUE);
    /* "If specified, srcPitch must be greater than or equal to WidthInBytes + srcXInBytes" */
    FLW_REFUSE_IF(side->pitch != 0 && (side->pitch < width || side->pitch - width < side->x),
                  CUDA_ERROR_INVALID_VALUE);
    side->pitch = side->pitch == 0 ? width : side->pitch;
    side->at = type == CU_MEMORYTYPE_HOST ? (uintptr_t)host : device;
    side->at += side->x + (side->y + side->z * side->height) * side->pitch;
    return CUDA_SUCCESS;
}

static CUresult copy_box(const CUDA_MEMCPY3D *box, CUstream handle, bool waits)
{
    FLW_CALL_ON_STREAM(cuMemcpyDtoDAsync_v2, FLW_CALL_CONTEXT, handle);
    FLW_REFUSE_IF(box == NULL, CUDA_ERROR_INVALID_VALUE);
    size_t width = box->WidthInBytes, height = box->Height, rows = height, bytes = width, count;
    if (width == 0 || height == 0 || box->Depth == 0) {
        return CUDA_SUCCESS;
    }
    struct side to = {0, box->dstPitch, box->dstHeight, box->dstXInBytes, box->dstY, box->dstZ};
    struct side from = {0, box->srcPitch, box->srcHeight, box->srcXInBytes, box->srcY, box->srcZ};
    FLW_TRY(find_side(&to, box->dstMemoryType, box->dstHost, box->dstDevice, width));
    FLW_TRY(find_side(&from, box->srcMemoryType, box->srcHost, box->srcDevice, width));
    FLW_REFUSE_IF(box->Depth > 1 && (to.height < height || from.height < height),
                  CUDA_ERROR_INVALID_VALUE);
    FLW_REFUSE_IF(
        (box->dstMemoryType == CU_MEMORYTYPE_DEVICE && !flw_storage_is_known(to.at)) ||
            (box->srcMemoryType == CU_MEMORYTYPE_DEVICE && !flw_storage_is_readable(from.at)),
        CUDA_ERROR_INVALID_VALUE);
    if (to.pitch == width && from.pitch == width) { /* a plane without gaps */
        rows = 1;
        FLW_REFUSE_IF(__builtin_mul_overflow(width, height, &bytes), CUDA_ERROR_INVALID_VALUE);
    }
    FLW_REFUSE_IF(__builtin_mul_overflow(box->Depth, rows, &count), CUDA_ERROR_INVALID_VALUE);
    for (size_t i = 0; i < count; i++) {
        size_t plane = i / rows, row = i % rows;
        FLW_TRY(copy_any(&call, call.stream, to.at + (plane * to.height + row) * to.pitch,
                         from.at + (plane * from.height + row) * from.pitch, bytes, waits));
    }
    return CUDA_SUCCESS;
}

static CUresult copy_rectangle(const CUDA_MEMCPY2D *area, CUstream handle, bool waits)
{
    FLW_REFUSE_IF(area == NULL, CUDA_ERROR_INVALID_VALUE);
    CUDA_MEMCPY3D box = {.srcXInBytes = area->srcXInBytes,
                         .srcY = area->srcY,
                         .srcMemoryType = area->srcMemoryType,
                         .srcHost = area->srcHost,
                         .srcDevice = area->srcDevice,
                         .srcPitch = area->srcPitch,
                         .dstXInBytes = area->dstXInBytes,
                         .dstY = area->dstY,
                         .dstMemoryType = area->dstMemoryType,
                         .dstHost = area->dstHost,
                         .dstDevice = area->dstDevice,
                         .dstPitch = area->dstPitch,
                         .WidthInBytes = area->WidthInBytes,
                         .Height = area->Height,
                         .Depth = 1};
    return copy_box(&box, handle, waits);
}

/* ---- their entry points: both forms of a plain one, both of an asynchronous one */

#define NOW(symbol, twin, parameters, ...)      \
    CUresult CUDAAPI symbol parameters          \
    {                                           \
        CUstream stream = CU_STREAM_LEGACY;     \
        return __VA_ARGS__;                     \
    }                                           \
    CUresult CUDAAPI twin parameters            \
    {                                           \
        CUstream stream = CU_STREAM_PER_THREAD; \
        return __VA_ARGS__;                     \
    }
#define LINEAR (CUdeviceptr to, CUdeviceptr from, size_t bytes)
#define PEER \
    (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes)
#define RECTANGLE (const struct CUDA_MEMCPY2D_st *area)
#define BOX       (const struct CUDA_MEMCPY3D_st *box)

NOW(cuMemcpy, cuMemcpy_ptds, LINEAR, copy_linear(to, from, bytes, stream, true))
NOW(cuMemcpyDtoD_v2, cuMemcpyDtoD_v2_ptds, LINEAR, copy_device(to, from, bytes, stream))
NOW(cuMemcpyPeer, cuMemcpyPeer_ptds, PEER,
    copy_peer(to, to_context, from, from_context, bytes, stream))
NOW(cuMemcpy2D_v2, cuMemcpy2D_v2_ptds, RECTANGLE, copy_rectangle(area, stream, true))
NOW(cuMemcpy2DUnaligned_v2, cuMemcpy2DUnaligned_v2_ptds, RECTANGLE,
    copy_rectangle(area, stream, true))
NOW(cuMemcpy3D_v2, cuMemcpy3D_v2_ptds, BOX, copy_box(box, stream, true))

CUresult CUDAAPI cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    return copy_linear(to, from, bytes, stream, false);
}

CUresult CUDAAPI cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                                   CUcontext from_context, size_t bytes, CUstream stream)
{
    return copy_peer(to, to_context, from, from_context, bytes, stream);
}

CUresult CUDAAPI cuMemcpy2DAsync_v2(const struct CUDA_MEMCPY2D_st *area, CUstream stream)
{
    return copy_rectangle(area, stream, false);
}

CUresult CUDAAPI cuMemcpy3DAsync_v2(const struct CUDA_MEMCPY3D_st *box, CUstream stream)
{
    return copy_box(box, stream, false);
}
