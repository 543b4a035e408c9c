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
#undef cuDeviceGetUuid
#undef cuDevicePrimaryCtxSetFlags
#undef cuEventElapsedTime
#undef cuGraphInstantiate
#undef cuMemAdvise
#undef cuMemPrefetchAsync
#undef cuMemcpy
#undef cuStreamGetCaptureInfo
#undef cuStreamGetFlags
#undef cuDevicePrimaryCtxRelease
#undef cuDevicePrimaryCtxReset
#undef cuGetProcAddress
#undef cuStreamBeginCapture
#undef cuStreamDestroy

struct CUDA_MEMCPY2D_st;
struct CUDA_MEMCPY3D_st;
struct CUctxCreateParams_st;
struct CUexecAffinityParam_st;
struct CUgraphEdgeData_st;
struct CUdevResource_st;
struct CUlaunchConfig_st;
struct CUuuid_st;

/* clang-format off */
/* Forms that only make another call, given in the last column: forms.c defines them. */
#define FLW_FORWARDED_FORMS(X) \
    X(cuDeviceGetUuid, 9020, 11040, (struct CUuuid_st *uuid, CUdevice device), cuDeviceGetUuid_v2(uuid, device)) \
    X(cuDevicePrimaryCtxSetFlags, 7000, 11000, (CUdevice device, unsigned flags), cuDevicePrimaryCtxSetFlags_v2(device, flags)) \
    X(cuModuleLoadDataEx, 2010, 0, (CUmodule *module, const void *image, unsigned count, CUjit_option *options, void **values), cuModuleLoadData(module, image)) \
    X(cuModuleLoadFatBinary, 2000, 0, (CUmodule *module, const void *image), cuModuleLoadData(module, image)) \
    X(cuKernelGetAttribute, 12000, 0, (int *value, CUfunction_attribute attribute, CUkernel kernel, CUdevice device), cuFuncGetAttribute(value, attribute, (CUfunction)kernel)) \
    X(cuKernelSetAttribute, 12000, 0, (CUfunction_attribute attribute, int value, CUkernel kernel, CUdevice device), cuFuncSetAttribute((CUfunction)kernel, attribute, value)) \
    X(cuKernelSetCacheConfig, 12000, 0, (CUkernel kernel, CUfunc_cache config, CUdevice device), cuFuncSetCacheConfig((CUfunction)kernel, config)) \
    X(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, 7000, 0, (int *blocks, CUfunction function, int block, size_t shared_bytes, unsigned flags), flags > 1 ? CUDA_ERROR_INVALID_VALUE : cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, block, shared_bytes)) \
    X(cuOccupancyMaxPotentialBlockSizeWithFlags, 7000, 0, (int *grid, int *block, CUfunction function, CUoccupancyB2DSize shared_of, size_t shared_bytes, int limit, unsigned flags), flags > 1 ? CUDA_ERROR_INVALID_VALUE : cuOccupancyMaxPotentialBlockSize(grid, block, function, shared_of, shared_bytes, limit)) \
    X(cuEventRecordWithFlags_ptsz, 11010, 0, (CUevent event, CUstream stream, unsigned flags), cuEventRecordWithFlags(event, flw_own_stream(stream), flags)) \
    X(cuStreamGetFlags_ptsz, 7000, 0, (CUstream stream, unsigned *flags), cuStreamGetFlags(flw_own_stream(stream), flags)) \
    X(cuStreamGetPriority_ptsz, 7000, 0, (CUstream stream, int *priority), cuStreamGetPriority(flw_own_stream(stream), priority)) \
    X(cuStreamAddCallback_ptsz, 7000, 0, (CUstream stream, CUstreamCallback function, void *argument, unsigned flags), cuStreamAddCallback(flw_own_stream(stream), function, argument, flags)) \
    X(cuStreamAttachMemAsync_ptsz, 7000, 0, (CUstream stream, CUdeviceptr pointer, size_t bytes, unsigned flags), cuStreamAttachMemAsync(flw_own_stream(stream), pointer, bytes, flags)) \
    X(cuStreamGetCaptureInfo, 10010, 11030, (CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id), cuStreamGetCaptureInfo_v2(stream, status, id, NULL, NULL, NULL)) \
    X(cuStreamGetCaptureInfo_ptsz, 10010, 11030, (CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id), cuStreamGetCaptureInfo_v2(flw_own_stream(stream), status, id, NULL, NULL, NULL)) \
    X(cuMemcpyAsync_ptsz, 7000, 0, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream), cuMemcpyAsync(to, from, bytes, flw_own_stream(stream))) \
    X(cuMemcpyPeerAsync_ptsz, 7000, 0, (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes, CUstream stream), cuMemcpyPeerAsync(to, to_context, from, from_context, bytes, flw_own_stream(stream))) \
    X(cuMemcpy2DAsync_v2_ptsz, 7000, 0, (const struct CUDA_MEMCPY2D_st *area, CUstream stream), cuMemcpy2DAsync_v2(area, flw_own_stream(stream))) \
    X(cuMemcpy3DAsync_v2_ptsz, 7000, 0, (const struct CUDA_MEMCPY3D_st *box, CUstream stream), cuMemcpy3DAsync_v2(box, flw_own_stream(stream))) \
    X(cuMemPrefetchAsync_ptsz, 8000, 12020, (CUdeviceptr pointer, size_t bytes, CUdevice device, CUstream stream), cuMemPrefetchAsync(pointer, bytes, device, flw_own_stream(stream))) \
    X(cuGraphUpload_ptsz, 11010, 0, (CUgraphExec executable, CUstream stream), cuGraphUpload(executable, flw_own_stream(stream))) \
    X(cuGraphInstantiateWithParams_ptsz, 12000, 0, (CUgraphExec *executable, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *parameters), cuGraphInstantiateWithParams(executable, graph, parameters)) \
    X(cuGraphInstantiate, 10000, 11000, (CUgraphExec *executable, CUgraph graph, CUgraphNode *node, char *log, size_t bytes), cuGraphInstantiateWithFlags(executable, graph, 0)) \
    X(cuGraphInstantiate_v2, 11000, 0, (CUgraphExec *executable, CUgraph graph, CUgraphNode *node, char *log, size_t bytes), cuGraphInstantiateWithFlags(executable, graph, 0)) \
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

/* The same, newer than the driver that the profile `old` imitates. */
#define FLW_NEWER_FORWARDED_FORMS(X) \
    X(cuKernelGetName, 12030, 0, (const char **name, CUkernel kernel), cuFuncGetName(name, (CUfunction)kernel)) \
    X(cuKernelGetParamInfo, 12040, 0, (CUkernel kernel, size_t index, size_t *offset, size_t *bytes), cuFuncGetParamInfo((CUfunction)kernel, index, offset, bytes)) \
    X(cuEventElapsedTime_v2, 12080, 0, (float *milliseconds, CUevent begin, CUevent end), cuEventElapsedTime(milliseconds, begin, end)) \
    X(cuStreamGetDevice_ptsz, 12080, 0, (CUstream stream, CUdevice *device), cuStreamGetDevice(flw_own_stream(stream), device)) \
    X(cuStreamGetCtx_v2_ptsz, 12050, 0, (CUstream stream, CUcontext *context, CUgreenCtx *green), cuStreamGetCtx_v2(flw_own_stream(stream), context, green)) \
    X(cuStreamGetCaptureInfo_v3_ptsz, 12030, 0, (CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph, const CUgraphNode **dependencies, const struct CUgraphEdgeData_st **edges, size_t *count), cuStreamGetCaptureInfo_v3(flw_own_stream(stream), status, id, graph, dependencies, edges, count)) \
    X(cuMemAdvise_v2, 12020, 0, (CUdeviceptr pointer, size_t bytes, CUmem_advise advice, CUmemLocation location), cuMemAdvise(pointer, bytes, advice, location.id)) \
    X(cuMemPrefetchAsync_v2, 12020, 0, (CUdeviceptr pointer, size_t bytes, CUmemLocation location, unsigned flags, CUstream stream), flags != 0 ? CUDA_ERROR_INVALID_VALUE : cuMemPrefetchAsync(pointer, bytes, location.id, stream)) \
    X(cuMemPrefetchAsync_v2_ptsz, 12020, 0, (CUdeviceptr pointer, size_t bytes, CUmemLocation location, unsigned flags, CUstream stream), cuMemPrefetchAsync_v2(pointer, bytes, location, flags, flw_own_stream(stream))) \
    X(cuMemGetDefaultMemPool, 13000, 0, (CUmemoryPool *pool, CUmemLocation *location, CUmemAllocationType type), flw_pool_location(location, type) ? cuDeviceGetDefaultMemPool(pool, location->id) : CUDA_ERROR_INVALID_VALUE) \
    X(cuMemGetMemPool, 13000, 0, (CUmemoryPool *pool, CUmemLocation *location, CUmemAllocationType type), flw_pool_location(location, type) ? cuDeviceGetMemPool(pool, location->id) : CUDA_ERROR_INVALID_VALUE) \
    X(cuMemSetMemPool, 13000, 0, (CUmemLocation *location, CUmemAllocationType type, CUmemoryPool pool), flw_pool_location(location, type) ? cuDeviceSetMemPool(location->id, pool) : CUDA_ERROR_INVALID_VALUE)

#define FLW_OWN_FORMS(X) \
    X(cuDeviceGetPCIBusId, 4010, 0, (char *text, int length, CUdevice device)) \
    X(cuDeviceGetByPCIBusId, 4010, 0, (CUdevice *device, const char *text)) \
    X(cuDeviceGetP2PAttribute, 8000, 0, (int *value, CUdevice_P2PAttribute attribute, CUdevice device, CUdevice peer)) \
    X(cuDevicePrimaryCtxSetFlags_v2, 11000, 0, (CUdevice device, unsigned flags)) \
    X(cuCtxCreate_v3, 11040, 12050, (CUcontext *context, struct CUexecAffinityParam_st *affinities, int count, unsigned flags, CUdevice device)) \
    X(cuCtxGetDevice_v2, 13000, 0, (CUdevice *device, CUcontext context)) \
    X(cuCtxGetApiVersion, 3020, 0, (CUcontext context, unsigned *version)) \
    X(cuCtxGetFlags, 7000, 0, (unsigned *flags)) \
    X(cuCtxSetFlags, 12010, 0, (unsigned flags)) \
    X(cuCtxGetLimit, 3010, 0, (size_t *value, CUlimit limit)) \
    X(cuCtxSetLimit, 3010, 0, (CUlimit limit, size_t value)) \
    X(cuCtxGetCacheConfig, 3020, 0, (CUfunc_cache *config)) \
    X(cuCtxSetCacheConfig, 3020, 0, (CUfunc_cache config)) \
    X(cuCtxResetPersistingL2Cache, 11000, 0, (void)) \
    X(cuCtxGetDevResource, 12040, 0, (CUcontext context, struct CUdevResource_st *resource, CUdevResourceType type)) \
    X(cuGreenCtxGetDevResource, 12040, 0, (CUgreenCtx green, struct CUdevResource_st *resource, CUdevResourceType type)) \
    X(cuModuleLoad, 2000, 0, (CUmodule *module, const char *path)) \
    X(cuModuleGetGlobal_v2, 3020, 0, (CUdeviceptr *address, size_t *bytes, CUmodule module, const char *name)) \
    X(cuModuleGetLoadingMode, 11070, 0, (CUmoduleLoadingMode *mode)) \
    X(cuLibraryLoadData, 12000, 0, (CUlibrary *library, const void *code, CUjit_option *jit_options, void **jit_values, unsigned jit_count, CUlibraryOption *options, void **values, unsigned count)) \
    X(cuLibraryLoadFromFile, 12000, 0, (CUlibrary *library, const char *path, CUjit_option *jit_options, void **jit_values, unsigned jit_count, CUlibraryOption *options, void **values, unsigned count)) \
    X(cuLibraryUnload, 12000, 0, (CUlibrary library)) \
    X(cuLibraryGetKernel, 12000, 0, (CUkernel *kernel, CUlibrary library, const char *name)) \
    X(cuLibraryGetModule, 12000, 0, (CUmodule *module, CUlibrary library)) \
    X(cuLibraryGetGlobal, 12000, 0, (CUdeviceptr *address, size_t *bytes, CUlibrary library, const char *name)) \
    X(cuLibraryGetManaged, 12000, 0, (CUdeviceptr *address, size_t *bytes, CUlibrary library, const char *name)) \
    X(cuKernelGetFunction, 12000, 0, (CUfunction *function, CUkernel kernel)) \
    X(cuKernelGetLibrary, 12050, 0, (CUlibrary *library, CUkernel kernel)) \
    X(cuFuncGetModule, 11000, 0, (CUmodule *module, CUfunction function)) \
    X(cuFuncLoad, 12040, 0, (CUfunction function)) \
    X(cuFuncIsLoaded, 12040, 0, (CUfunctionLoadingState *state, CUfunction function)) \
    X(cuFuncGetAttribute, 2020, 0, (int *value, CUfunction_attribute attribute, CUfunction function)) \
    X(cuFuncSetAttribute, 9000, 0, (CUfunction function, CUfunction_attribute attribute, int value)) \
    X(cuFuncSetCacheConfig, 3000, 0, (CUfunction function, CUfunc_cache config)) \
    X(cuOccupancyMaxActiveBlocksPerMultiprocessor, 6050, 0, (int *blocks, CUfunction function, int block_size, size_t shared_bytes)) \
    X(cuOccupancyAvailableDynamicSMemPerBlock, 10020, 0, (size_t *bytes, CUfunction function, int blocks, int block_size)) \
    X(cuOccupancyMaxPotentialBlockSize, 6050, 0, (int *grid, int *block, CUfunction function, CUoccupancyB2DSize shared_of, size_t shared_bytes, int limit)) \
    X(cuEventRecordWithFlags, 11010, 0, (CUevent event, CUstream stream, unsigned flags)) \
    X(cuEventElapsedTime, 2000, 12080, (float *milliseconds, CUevent begin, CUevent end)) \
    X(cuStreamGetFlags, 5050, 0, (CUstream stream, unsigned *flags)) \
    X(cuStreamGetPriority, 5050, 0, (CUstream stream, int *priority)) \
    X(cuStreamGetDevice, 12080, 0, (CUstream stream, CUdevice *device)) \
    X(cuStreamAddCallback, 5000, 0, (CUstream stream, CUstreamCallback function, void *argument, unsigned flags)) \
    X(cuStreamAttachMemAsync, 6000, 0, (CUstream stream, CUdeviceptr pointer, size_t bytes, unsigned flags)) \
    X(cuStreamGetCaptureInfo_v3, 12030, 0, (CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph, const CUgraphNode **dependencies, const struct CUgraphEdgeData_st **edges, size_t *count)) \
    X(cuMemcpy, 4000, 0, (CUdeviceptr to, CUdeviceptr from, size_t bytes)) \
    X(cuMemcpy_ptds, 7000, 0, (CUdeviceptr to, CUdeviceptr from, size_t bytes)) \
    X(cuMemcpyAsync, 4000, 0, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)) \
    X(cuMemcpyDtoD_v2, 3020, 0, (CUdeviceptr to, CUdeviceptr from, size_t bytes)) \
    X(cuMemcpyDtoD_v2_ptds, 7000, 0, (CUdeviceptr to, CUdeviceptr from, size_t bytes)) \
    X(cuMemcpyPeer, 4000, 0, (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes)) \
    X(cuMemcpyPeer_ptds, 7000, 0, (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes)) \
    X(cuMemcpyPeerAsync, 4000, 0, (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes, CUstream stream)) \
    X(cuMemcpy2D_v2, 3020, 0, (const struct CUDA_MEMCPY2D_st *area)) \
    X(cuMemcpy2D_v2_ptds, 7000, 0, (const struct CUDA_MEMCPY2D_st *area)) \
    X(cuMemcpy2DUnaligned_v2, 3020, 0, (const struct CUDA_MEMCPY2D_st *area)) \
    X(cuMemcpy2DUnaligned_v2_ptds, 7000, 0, (const struct CUDA_MEMCPY2D_st *area)) \
    X(cuMemcpy2DAsync_v2, 3020, 0, (const struct CUDA_MEMCPY2D_st *area, CUstream stream)) \
    X(cuMemcpy3D_v2, 3020, 0, (const struct CUDA_MEMCPY3D_st *box)) \
    X(cuMemcpy3D_v2_ptds, 7000, 0, (const struct CUDA_MEMCPY3D_st *box)) \
    X(cuMemcpy3DAsync_v2, 3020, 0, (const struct CUDA_MEMCPY3D_st *box, CUstream stream)) \
    X(cuMemHostGetDevicePointer_v2, 3020, 0, (CUdeviceptr *out, void *pointer, unsigned flags)) \
    X(cuMemHostGetFlags, 2030, 0, (unsigned *flags, void *pointer)) \
    X(cuMemAdvise, 8000, 12020, (CUdeviceptr pointer, size_t bytes, CUmem_advise advice, CUdevice device)) \
    X(cuMemPrefetchAsync, 8000, 12020, (CUdeviceptr pointer, size_t bytes, CUdevice device, CUstream stream)) \
    X(cuMemPoolGetAccess, 11020, 0, (CUmemAccess_flags *flags, CUmemoryPool pool, CUmemLocation *location)) \
    X(cuMemPoolSetAccess, 11020, 0, (CUmemoryPool pool, const CUmemAccessDesc *access, size_t count)) \
    X(cuGraphUpload, 11010, 0, (CUgraphExec executable, CUstream stream)) \
    X(cuGraphInstantiateWithParams, 12000, 0, (CUgraphExec *executable, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *parameters)) \
    X(cuGraphCreate, 10000, 0, (CUgraph *graph, unsigned flags)) \
    X(cuProfilerStart, 4000, 0, (void)) \
    X(cuProfilerStop, 4000, 0, (void)) \
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

#define FLW_OTHER_FORMS(X) FLW_FORWARDED_FORMS(X) FLW_NEWER_FORWARDED_FORMS(X) FLW_OWN_FORMS(X)
/* clang-format on */

#define X(symbol, since, before, parameters) FLW_SIM_EXPORT CUresult CUDAAPI symbol parameters;
FLW_OWN_FORMS(X)
#undef X
#define X(symbol, since, before, parameters, call) \
    FLW_SIM_EXPORT CUresult CUDAAPI symbol parameters;
FLW_FORWARDED_FORMS(X)
FLW_NEWER_FORWARDED_FORMS(X)
#undef X

/* Return the calls of a name that is not simulated; 0: none, or no such name. */
uint64_t flw_absent_calls(const char *name);
void flw_absent_forget(void);
/* Print the names that were called to stderr, in one line. */
void flw_absent_report(void);

/* True if it is a device's location of pinned memory; other locations have no pools. */
static inline bool flw_pool_location(const CUmemLocation *location, CUmemAllocationType type)
{
    return location != NULL && location->type == CU_MEM_LOCATION_TYPE_DEVICE &&
           type == CU_MEM_ALLOCATION_TYPE_PINNED;
}

/* Return the stream that NULL means in a per-thread twin. */
static inline CUstream flw_own_stream(CUstream stream)
{
    return stream == NULL ? CU_STREAM_PER_THREAD : stream;
}

#endif
