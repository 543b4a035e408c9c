/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the lists of the driver's exported names that the library does not call but other programs
 * do: per-thread twins, older and newer binary interfaces, variants of entry points. X(symbol,
 * since, before, parameters): cuGetProcAddress returns the function for versions from `since` up
 * to `before` (0: all later ones).
 * Does not: count them: a call counts, costs and fails as the entry point that it calls. */
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
struct CUuuid_st;

/* clang-format off */
/* Forms that only make another call, given in the last column: forms.c defines them. */
#define FLW_FORWARDED_FORMS(X) \
    X(cuStreamQuery_ptsz, 7000, 0, (CUstream stream), cuStreamQuery(flw_own_stream(stream))) \
    X(cuStreamSynchronize_ptsz, 7000, 0, (CUstream stream), cuStreamSynchronize(flw_own_stream(stream))) \
    X(cuStreamWaitEvent_ptsz, 7000, 0, (CUstream stream, CUevent event, unsigned flags), cuStreamWaitEvent(flw_own_stream(stream), event, flags)) \
    X(cuStreamGetId_ptsz, 12000, 0, (CUstream stream, unsigned long long *id), cuStreamGetId(flw_own_stream(stream), id)) \
    X(cuStreamGetCtx_ptsz, 9020, 12050, (CUstream stream, CUcontext *context), cuStreamGetCtx(flw_own_stream(stream), context)) \
    X(cuStreamIsCapturing_ptsz, 10000, 0, (CUstream stream, CUstreamCaptureStatus *status), cuStreamIsCapturing(flw_own_stream(stream), status)) \
    X(cuStreamGetCaptureInfo_v2_ptsz, 11030, 12030, (CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph, const CUgraphNode **dependencies, size_t *dependency_count), cuStreamGetCaptureInfo_v2(flw_own_stream(stream), status, id, graph, dependencies, dependency_count)) \
    X(cuStreamBeginCapture_v2_ptsz, 10010, 0, (CUstream stream, CUstreamCaptureMode mode), cuStreamBeginCapture_v2(flw_own_stream(stream), mode)) \
    X(cuStreamEndCapture_ptsz, 10000, 0, (CUstream stream, CUgraph *graph), cuStreamEndCapture(flw_own_stream(stream), graph)) \
    X(cuLaunchHostFunc_ptsz, 10000, 0, (CUstream stream, CUhostFn function, void *argument), cuLaunchHostFunc(flw_own_stream(stream), function, argument)) \
    X(cuEventRecord_ptsz, 7000, 0, (CUevent event, CUstream stream), cuEventRecord(event, flw_own_stream(stream))) \
    X(cuMemAllocAsync_ptsz, 11020, 0, (CUdeviceptr *pointer, size_t bytes, CUstream stream), cuMemAllocAsync(pointer, bytes, flw_own_stream(stream))) \
    X(cuMemFreeAsync_ptsz, 11020, 0, (CUdeviceptr pointer, CUstream stream), cuMemFreeAsync(pointer, flw_own_stream(stream))) \
    X(cuMemAllocFromPoolAsync_ptsz, 11020, 0, (CUdeviceptr *pointer, size_t bytes, CUmemoryPool pool, CUstream stream), cuMemAllocFromPoolAsync(pointer, bytes, pool, flw_own_stream(stream))) \
    X(cuMemsetD8Async_ptsz, 7000, 0, (CUdeviceptr pointer, unsigned char value, size_t count, CUstream stream), cuMemsetD8Async(pointer, value, count, flw_own_stream(stream))) \
    X(cuMemsetD32Async_ptsz, 7000, 0, (CUdeviceptr pointer, unsigned value, size_t count, CUstream stream), cuMemsetD32Async(pointer, value, count, flw_own_stream(stream))) \
    X(cuMemcpyHtoDAsync_v2_ptsz, 7000, 0, (CUdeviceptr to, const void *from, size_t bytes, CUstream stream), cuMemcpyHtoDAsync_v2(to, from, bytes, flw_own_stream(stream))) \
    X(cuMemcpyDtoHAsync_v2_ptsz, 7000, 0, (void *to, CUdeviceptr from, size_t bytes, CUstream stream), cuMemcpyDtoHAsync_v2(to, from, bytes, flw_own_stream(stream))) \
    X(cuMemcpyDtoDAsync_v2_ptsz, 7000, 0, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream), cuMemcpyDtoDAsync_v2(to, from, bytes, flw_own_stream(stream))) \
    X(cuLaunchKernel_ptsz, 7000, 0, (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream, void **parameters, void **extra), cuLaunchKernel(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, flw_own_stream(stream), parameters, extra)) \
    X(cuGraphLaunch_ptsz, 10000, 0, (CUgraphExec executable, CUstream stream), cuGraphLaunch(executable, flw_own_stream(stream))) \
    X(cuStreamBeginCapture, 10000, 10010, (CUstream stream), cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL)) \
    X(cuStreamBeginCapture_ptsz, 10000, 10010, (CUstream stream), cuStreamBeginCapture_v2(flw_own_stream(stream), CU_STREAM_CAPTURE_MODE_GLOBAL)) \
    X(cuStreamDestroy, 2000, 4000, (CUstream stream), cuStreamDestroy_v2(stream)) \
    X(cuCtxDestroy, 2000, 4000, (CUcontext context), cuCtxDestroy_v2(context)) \
    X(cuDevicePrimaryCtxRelease, 7000, 11000, (CUdevice device), cuDevicePrimaryCtxRelease_v2(device)) \
    X(cuDevicePrimaryCtxReset, 7000, 11000, (CUdevice device), cuDevicePrimaryCtxReset_v2(device)) \
    X(cuMemAllocHost_v2, 3020, 0, (void **pointer, size_t bytes), cuMemHostAlloc(pointer, bytes, 0)) \
    X(cuLaunchCooperativeKernel, 9000, 0, (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream, void **parameters), cuLaunchKernel(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, parameters, NULL)) \
    X(cuLaunchCooperativeKernel_ptsz, 9000, 0, (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream, void **parameters), cuLaunchKernel(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, flw_own_stream(stream), parameters, NULL))

#define FLW_OWN_FORMS(X) \
    X(cuMemsetD8_v2_ptds, 7000, 0, (CUdeviceptr pointer, unsigned char value, size_t count)) \
    X(cuMemcpyHtoD_v2_ptds, 7000, 0, (CUdeviceptr to, const void *from, size_t bytes)) \
    X(cuMemcpyDtoH_v2_ptds, 7000, 0, (void *to, CUdeviceptr from, size_t bytes)) \
    X(cuDeviceGetUuid_v2, 11040, 0, (struct CUuuid_st *uuid, CUdevice device)) \
    X(cuCtxGetStreamPriorityRange, 5050, 0, (int *least, int *greatest)) \
    X(cuCtxCreate_v4, 12050, 0, (CUcontext *context, struct CUctxCreateParams_st *wishes, unsigned flags, CUdevice device)) \
    X(cuGreenCtxCreate, 12040, 0, (CUgreenCtx *green, CUdevResourceDesc descriptor, CUdevice device, unsigned flags)) \
    X(cuGreenCtxDestroy, 12040, 0, (CUgreenCtx green)) \
    X(cuGreenCtxStreamCreate, 12050, 0, (CUstream *stream, CUgreenCtx green, unsigned flags, int priority)) \
    X(cuDeviceGetDevResource, 12040, 0, (CUdevice device, struct CUdevResource_st *resource, CUdevResourceType type)) \
    X(cuDevResourceGenerateDesc, 12040, 0, (CUdevResourceDesc *descriptor, struct CUdevResource_st *resources, unsigned count)) \
    X(cuStreamGetCtx_v2, 12050, 0, (CUstream stream, CUcontext *context, CUgreenCtx *green)) \
    X(cuCtxSynchronize_v2, 13000, 0, (CUcontext context)) \
    X(cuGetProcAddress, 11030, 12000, (const char *symbol, void **function, int version, cuuint64_t flags)) \
    X(cuPointerGetAttributes, 7000, 0, (unsigned count, CUpointer_attribute *attributes, void **data, CUdeviceptr pointer)) \
    X(cuPointerSetAttribute, 6000, 0, (const void *value, CUpointer_attribute attribute, CUdeviceptr pointer)) \
    X(cuIpcGetMemHandle, 4010, 0, (CUipcMemHandle *handle, CUdeviceptr pointer)) \
    X(cuMemGetHandleForAddressRange, 11070, 0, (void *handle, CUdeviceptr pointer, size_t bytes, CUmemRangeHandleType type, unsigned long long flags)) \
    X(cuLaunchKernelEx, 11060, 0, (const struct CUlaunchConfig_st *config, CUfunction function, void **parameters, void **extra)) \
    X(cuLaunchKernelEx_ptsz, 11060, 0, (const struct CUlaunchConfig_st *config, CUfunction function, void **parameters, void **extra)) \
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

#define FLW_OTHER_FORMS(X) FLW_FORWARDED_FORMS(X) FLW_OWN_FORMS(X)
/* clang-format on */

#define X(symbol, since, before, parameters) FLW_SIM_EXPORT CUresult CUDAAPI symbol parameters;
FLW_OWN_FORMS(X)
#undef X
#define X(symbol, since, before, parameters, call) \
    FLW_SIM_EXPORT CUresult CUDAAPI symbol parameters;
FLW_FORWARDED_FORMS(X)
#undef X

/* Return the calls of a name that is not simulated; 0: none, or no such name. */
uint64_t flw_absent_calls(const char *name);
void flw_absent_forget(void);
/* Print the names that were called to stderr, in one line. */
void flw_absent_report(void);

/* Return the stream that NULL means in a per-thread twin. */
static inline CUstream flw_own_stream(CUstream stream)
{
    return stream == NULL ? CU_STREAM_PER_THREAD : stream;
}

#endif
