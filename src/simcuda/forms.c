/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: per-thread twins (NULL means the calling thread's own default stream), other binary interfaces
 * and launches by other names: each leads to the entry point that does the work.
 * Does not: hold rules of its own.
 */
#include "simcuda/forms.h"

CUresult CUDAAPI cuStreamQuery_ptsz(CUstream stream)
{
    return cuStreamQuery(flw_own_stream(stream));
}

CUresult CUDAAPI cuStreamSynchronize_ptsz(CUstream stream)
{
    return cuStreamSynchronize(flw_own_stream(stream));
}

CUresult CUDAAPI cuStreamWaitEvent_ptsz(CUstream stream, CUevent event, unsigned flags)
{
    return cuStreamWaitEvent(flw_own_stream(stream), event, flags);
}

CUresult CUDAAPI cuStreamGetId_ptsz(CUstream stream, unsigned long long *id)
{
    return cuStreamGetId(flw_own_stream(stream), id);
}

CUresult CUDAAPI cuStreamGetCtx_ptsz(CUstream stream, CUcontext *context)
{
    return cuStreamGetCtx(flw_own_stream(stream), context);
}

CUresult CUDAAPI cuStreamIsCapturing_ptsz(CUstream stream, CUstreamCaptureStatus *status)
{
    return cuStreamIsCapturing(flw_own_stream(stream), status);
}

CUresult CUDAAPI cuStreamGetCaptureInfo_v2_ptsz(CUstream stream, CUstreamCaptureStatus *status,
                                                cuuint64_t *id, CUgraph *graph,
                                                const CUgraphNode **dependencies,
                                                size_t *dependency_count)
{
    return cuStreamGetCaptureInfo_v2(flw_own_stream(stream), status, id, graph, dependencies,
                                     dependency_count);
}

CUresult CUDAAPI cuStreamBeginCapture_v2_ptsz(CUstream stream, CUstreamCaptureMode mode)
{
    return cuStreamBeginCapture_v2(flw_own_stream(stream), mode);
}

CUresult CUDAAPI cuStreamEndCapture_ptsz(CUstream stream, CUgraph *graph)
{
    return cuStreamEndCapture(flw_own_stream(stream), graph);
}

CUresult CUDAAPI cuLaunchHostFunc_ptsz(CUstream stream, CUhostFn function, void *argument)
{
    return cuLaunchHostFunc(flw_own_stream(stream), function, argument);
}

CUresult CUDAAPI cuEventRecord_ptsz(CUevent event, CUstream stream)
{
    return cuEventRecord(event, flw_own_stream(stream));
}

CUresult CUDAAPI cuMemAllocAsync_ptsz(CUdeviceptr *pointer, size_t bytes, CUstream stream)
{
    return cuMemAllocAsync(pointer, bytes, flw_own_stream(stream));
}

CUresult CUDAAPI cuMemFreeAsync_ptsz(CUdeviceptr pointer, CUstream stream)
{
    return cuMemFreeAsync(pointer, flw_own_stream(stream));
}

CUresult CUDAAPI cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *pointer, size_t bytes, CUmemoryPool pool,
                                              CUstream stream)
{
    return cuMemAllocFromPoolAsync(pointer, bytes, pool, flw_own_stream(stream));
}

CUresult CUDAAPI cuMemsetD8Async_ptsz(CUdeviceptr pointer, unsigned char value, size_t count,
                                      CUstream stream)
{
    return cuMemsetD8Async(pointer, value, count, flw_own_stream(stream));
}

CUresult CUDAAPI cuMemsetD32Async_ptsz(CUdeviceptr pointer, unsigned value, size_t count,
                                       CUstream stream)
{
    return cuMemsetD32Async(pointer, value, count, flw_own_stream(stream));
}

CUresult CUDAAPI cuMemcpyHtoDAsync_v2_ptsz(CUdeviceptr to, const void *from, size_t bytes,
                                           CUstream stream)
{
    return cuMemcpyHtoDAsync_v2(to, from, bytes, flw_own_stream(stream));
}

CUresult CUDAAPI cuMemcpyDtoHAsync_v2_ptsz(void *to, CUdeviceptr from, size_t bytes,
                                           CUstream stream)
{
    return cuMemcpyDtoHAsync_v2(to, from, bytes, flw_own_stream(stream));
}

CUresult CUDAAPI cuMemcpyDtoDAsync_v2_ptsz(CUdeviceptr to, CUdeviceptr from, size_t bytes,
                                           CUstream stream)
{
    return cuMemcpyDtoDAsync_v2(to, from, bytes, flw_own_stream(stream));
}

CUresult CUDAAPI cuLaunchKernel_ptsz(CUfunction function, unsigned grid_x, unsigned grid_y,
                                     unsigned grid_z, unsigned block_x, unsigned block_y,
                                     unsigned block_z, unsigned shared_bytes, CUstream stream,
                                     void **parameters, void **extra)
{
    return cuLaunchKernel(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes,
                          flw_own_stream(stream), parameters, extra);
}

CUresult CUDAAPI cuGraphLaunch_ptsz(CUgraphExec executable, CUstream stream)
{
    return cuGraphLaunch(executable, flw_own_stream(stream));
}

CUresult CUDAAPI cuStreamBeginCapture(CUstream stream)
{
    return cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

CUresult CUDAAPI cuStreamBeginCapture_ptsz(CUstream stream)
{
    return cuStreamBeginCapture_v2(flw_own_stream(stream), CU_STREAM_CAPTURE_MODE_GLOBAL);
}

CUresult CUDAAPI cuStreamDestroy(CUstream stream)
{
    return cuStreamDestroy_v2(stream);
}

CUresult CUDAAPI cuCtxDestroy(CUcontext context)
{
    return cuCtxDestroy_v2(context);
}

FLW_SIM_NEWER(cuCtxCreate_v4, (CUcontext * context, struct CUctxCreateParams_st *wishes,
                               unsigned flags, CUdevice device))
{
    return wishes != NULL ? CUDA_ERROR_NOT_SUPPORTED : cuCtxCreate_v2(context, flags, device);
}

CUresult CUDAAPI cuDevicePrimaryCtxRelease(CUdevice device)
{
    return cuDevicePrimaryCtxRelease_v2(device);
}

CUresult CUDAAPI cuDevicePrimaryCtxReset(CUdevice device)
{
    return cuDevicePrimaryCtxReset_v2(device);
}

CUresult CUDAAPI cuLaunchCooperativeKernel(CUfunction function, unsigned grid_x, unsigned grid_y,
                                           unsigned grid_z, unsigned block_x, unsigned block_y,
                                           unsigned block_z, unsigned shared_bytes, CUstream stream,
                                           void **parameters)
{
    return cuLaunchKernel(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes,
                          stream, parameters, NULL);
}

CUresult CUDAAPI cuLaunchCooperativeKernel_ptsz(CUfunction function, unsigned grid_x,
                                                unsigned grid_y, unsigned grid_z, unsigned block_x,
                                                unsigned block_y, unsigned block_z,
                                                unsigned shared_bytes, CUstream stream,
                                                void **parameters)
{
    return cuLaunchKernel(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes,
                          flw_own_stream(stream), parameters, NULL);
}

CUresult CUDAAPI cuLaunchKernelEx(const struct CUlaunchConfig_st *config, CUfunction function,
                                  void **parameters, void **extra)
{
    if (config == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return cuLaunchKernel(function, config->gridDimX, config->gridDimY, config->gridDimZ,
                          config->blockDimX, config->blockDimY, config->blockDimZ,
                          config->sharedMemBytes, config->hStream, parameters, extra);
}

CUresult CUDAAPI cuLaunchKernelEx_ptsz(const struct CUlaunchConfig_st *config, CUfunction function,
                                       void **parameters, void **extra)
{
    if (config == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct CUlaunchConfig_st changed = *config;
    changed.hStream = flw_own_stream(config->hStream);
    return cuLaunchKernelEx(&changed, function, parameters, extra);
}

CUresult CUDAAPI cuMemAllocHost_v2(void **pointer, size_t bytes)
{
    return cuMemHostAlloc(pointer, bytes, 0);
}
