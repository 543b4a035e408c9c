/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the list of the driver's exported names that the library does not call but other programs do:
 * per-thread twins, older and newer binary interfaces, kin of entry points. X(symbol, since, before,
 * parameters): cuGetProcAddress gives the function for versions from `since` up to `before` (0: all
 * later ones).
 * Does not: count them: a call of one counts, costs and fails as the entry point that it leads to.
 */
#ifndef FLW_SIMCUDA_FORMS_H
#define FLW_SIMCUDA_FORMS_H

#include "simcuda/world.h"

/* cuda.h renames these to their newest form; here a name is the exported symbol. */
#undef cuCtxDestroy
#undef cuDevicePrimaryCtxRelease
#undef cuDevicePrimaryCtxReset
#undef cuGetProcAddress
#undef cuStreamBeginCapture
#undef cuStreamDestroy

struct CUctxCreateParams_st;
struct CUdevResource_st;
struct CUlaunchConfig_st;

/* clang-format off */
#define FLW_OTHER_FORMS(X) \
    X(cuStreamQuery_ptsz, 7000, 0, (CUstream stream)) \
    X(cuStreamSynchronize_ptsz, 7000, 0, (CUstream stream)) \
    X(cuStreamWaitEvent_ptsz, 7000, 0, (CUstream stream, CUevent event, unsigned flags)) \
    X(cuStreamGetId_ptsz, 12000, 0, (CUstream stream, unsigned long long *id)) \
    X(cuStreamGetCtx_ptsz, 9020, 12050, (CUstream stream, CUcontext *context)) \
    X(cuStreamIsCapturing_ptsz, 10000, 0, (CUstream stream, CUstreamCaptureStatus *status)) \
    X(cuStreamGetCaptureInfo_v2_ptsz, 11030, 12030, (CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph, const CUgraphNode **dependencies, size_t *dependency_count)) \
    X(cuStreamBeginCapture_v2_ptsz, 10010, 0, (CUstream stream, CUstreamCaptureMode mode)) \
    X(cuStreamEndCapture_ptsz, 10000, 0, (CUstream stream, CUgraph *graph)) \
    X(cuLaunchHostFunc_ptsz, 10000, 0, (CUstream stream, CUhostFn function, void *argument)) \
    X(cuEventRecord_ptsz, 7000, 0, (CUevent event, CUstream stream)) \
    X(cuMemAllocAsync_ptsz, 11020, 0, (CUdeviceptr *pointer, size_t bytes, CUstream stream)) \
    X(cuMemFreeAsync_ptsz, 11020, 0, (CUdeviceptr pointer, CUstream stream)) \
    X(cuMemAllocFromPoolAsync_ptsz, 11020, 0, (CUdeviceptr *pointer, size_t bytes, CUmemoryPool pool, CUstream stream)) \
    X(cuMemsetD8_v2_ptds, 7000, 0, (CUdeviceptr pointer, unsigned char value, size_t count)) \
    X(cuMemsetD8Async_ptsz, 7000, 0, (CUdeviceptr pointer, unsigned char value, size_t count, CUstream stream)) \
    X(cuMemsetD32Async_ptsz, 7000, 0, (CUdeviceptr pointer, unsigned value, size_t count, CUstream stream)) \
    X(cuMemcpyHtoD_v2_ptds, 7000, 0, (CUdeviceptr to, const void *from, size_t bytes)) \
    X(cuMemcpyDtoH_v2_ptds, 7000, 0, (void *to, CUdeviceptr from, size_t bytes)) \
    X(cuMemcpyHtoDAsync_v2_ptsz, 7000, 0, (CUdeviceptr to, const void *from, size_t bytes, CUstream stream)) \
    X(cuMemcpyDtoHAsync_v2_ptsz, 7000, 0, (void *to, CUdeviceptr from, size_t bytes, CUstream stream)) \
    X(cuMemcpyDtoDAsync_v2_ptsz, 7000, 0, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)) \
    X(cuLaunchKernel_ptsz, 7000, 0, (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream, void **parameters, void **extra)) \
    X(cuGraphLaunch_ptsz, 10000, 0, (CUgraphExec executable, CUstream stream)) \
    X(cuStreamBeginCapture, 10000, 10010, (CUstream stream)) \
    X(cuStreamBeginCapture_ptsz, 10000, 10010, (CUstream stream)) \
    X(cuStreamDestroy, 2000, 4000, (CUstream stream)) \
    X(cuCtxDestroy, 2000, 4000, (CUcontext context)) \
    X(cuCtxCreate_v4, 12050, 0, (CUcontext *context, struct CUctxCreateParams_st *wishes, unsigned flags, CUdevice device)) \
    X(cuGreenCtxCreate, 12040, 0, (CUgreenCtx *green, CUdevResourceDesc descriptor, CUdevice device, unsigned flags)) \
    X(cuGreenCtxDestroy, 12040, 0, (CUgreenCtx green)) \
    X(cuGreenCtxStreamCreate, 12050, 0, (CUstream *stream, CUgreenCtx green, unsigned flags, int priority)) \
    X(cuDeviceGetDevResource, 12040, 0, (CUdevice device, struct CUdevResource_st *resource, CUdevResourceType type)) \
    X(cuDevResourceGenerateDesc, 12040, 0, (CUdevResourceDesc *descriptor, struct CUdevResource_st *resources, unsigned count)) \
    X(cuStreamGetCtx_v2, 12050, 0, (CUstream stream, CUcontext *context, CUgreenCtx *green)) \
    X(cuCtxSynchronize_v2, 13000, 0, (CUcontext context)) \
    X(cuDevicePrimaryCtxRelease, 7000, 11000, (CUdevice device)) \
    X(cuDevicePrimaryCtxReset, 7000, 11000, (CUdevice device)) \
    X(cuGetProcAddress, 11030, 12000, (const char *symbol, void **function, int version, cuuint64_t flags)) \
    X(cuMemAllocHost_v2, 3020, 0, (void **pointer, size_t bytes)) \
    X(cuPointerGetAttributes, 7000, 0, (unsigned count, CUpointer_attribute *attributes, void **data, CUdeviceptr pointer)) \
    X(cuPointerSetAttribute, 6000, 0, (const void *value, CUpointer_attribute attribute, CUdeviceptr pointer)) \
    X(cuIpcGetMemHandle, 4010, 0, (CUipcMemHandle *handle, CUdeviceptr pointer)) \
    X(cuMemGetHandleForAddressRange, 11070, 0, (void *handle, CUdeviceptr pointer, size_t bytes, CUmemRangeHandleType type, unsigned long long flags)) \
    X(cuLaunchKernelEx, 11060, 0, (const struct CUlaunchConfig_st *config, CUfunction function, void **parameters, void **extra)) \
    X(cuLaunchKernelEx_ptsz, 11060, 0, (const struct CUlaunchConfig_st *config, CUfunction function, void **parameters, void **extra)) \
    X(cuLaunchCooperativeKernel, 9000, 0, (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream, void **parameters)) \
    X(cuLaunchCooperativeKernel_ptsz, 9000, 0, (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream, void **parameters)) \
    X(cuMemsetD16_v2, 3020, 0, (CUdeviceptr pointer, unsigned short value, size_t count)) \
    X(cuMemsetD16_v2_ptds, 7000, 0, (CUdeviceptr pointer, unsigned short value, size_t count)) \
    X(cuMemsetD16Async, 3020, 0, (CUdeviceptr pointer, unsigned short value, size_t count, CUstream stream)) \
    X(cuMemsetD16Async_ptsz, 7000, 0, (CUdeviceptr pointer, unsigned short value, size_t count, CUstream stream)) \
    X(cuMemsetD32_v2, 3020, 0, (CUdeviceptr pointer, unsigned value, size_t count)) \
    X(cuMemsetD32_v2_ptds, 7000, 0, (CUdeviceptr pointer, unsigned value, size_t count)) \
    X(cuMemsetD2D8_v2, 3020, 0, (CUdeviceptr pointer, size_t pitch, unsigned char value, size_t width, size_t height)) \
    X(cuMemsetD2D8_v2_ptds, 7000, 0, (CUdeviceptr pointer, size_t pitch, unsigned char value, size_t width, size_t height)) \
    X(cuMemsetD2D8Async, 3020, 0, (CUdeviceptr pointer, size_t pitch, unsigned char value, size_t width, size_t height, CUstream stream)) \
    X(cuMemsetD2D8Async_ptsz, 7000, 0, (CUdeviceptr pointer, size_t pitch, unsigned char value, size_t width, size_t height, CUstream stream)) \
    X(cuMemsetD2D16_v2, 3020, 0, (CUdeviceptr pointer, size_t pitch, unsigned short value, size_t width, size_t height)) \
    X(cuMemsetD2D16_v2_ptds, 7000, 0, (CUdeviceptr pointer, size_t pitch, unsigned short value, size_t width, size_t height)) \
    X(cuMemsetD2D16Async, 3020, 0, (CUdeviceptr pointer, size_t pitch, unsigned short value, size_t width, size_t height, CUstream stream)) \
    X(cuMemsetD2D16Async_ptsz, 7000, 0, (CUdeviceptr pointer, size_t pitch, unsigned short value, size_t width, size_t height, CUstream stream)) \
    X(cuMemsetD2D32_v2, 3020, 0, (CUdeviceptr pointer, size_t pitch, unsigned value, size_t width, size_t height)) \
    X(cuMemsetD2D32_v2_ptds, 7000, 0, (CUdeviceptr pointer, size_t pitch, unsigned value, size_t width, size_t height)) \
    X(cuMemsetD2D32Async, 3020, 0, (CUdeviceptr pointer, size_t pitch, unsigned value, size_t width, size_t height, CUstream stream)) \
    X(cuMemsetD2D32Async_ptsz, 7000, 0, (CUdeviceptr pointer, size_t pitch, unsigned value, size_t width, size_t height, CUstream stream))
/* clang-format on */

#define X(symbol, since, before, parameters) FLW_SIM_EXPORT CUresult CUDAAPI symbol parameters;
FLW_OTHER_FORMS(X)
#undef X

/* What NULL means to a per-thread twin. */
static inline CUstream flw_own_stream(CUstream stream)
{
    return stream == NULL ? CU_STREAM_PER_THREAD : stream;
}

#endif
