/* SPDX-License-Identifier: Apache-2.0
 *
 * The list of hooked driver entry points, by topic. X(symbol, base, since, parameters, arguments)
 *
 *   symbol  the *exported* name with the suffix
 *   base    the name for cuGetProcAddress
 *   since   the driver version of this binary interface (cudaTypedefs.h), for cuGetProcAddress: one
 *           base may have several interfaces, and a wrapper serves exactly one of them
 *
 * A _ptsz or _ptds twin (NULL means the thread's own default stream) follows the plain entry at
 * once. A topic's wrappers, CUresult flw_hook_<symbol>(parameters), are in hooks_<topic>.c.
 *
 * To add one: add a line here, the wrapper in the topic's file, and the entry point in simcuda.
 * Names without _v2 with sizes of 32 bits are omitted: they are other functions than their _v2. */
#ifndef FLW_PRELOAD_HOOK_LIST_H
#define FLW_PRELOAD_HOOK_LIST_H

#include "driver/driver_types.h"

/* cuda.h renames these to their newest form; here a name is the exported symbol. */
#undef cuCtxDestroy
#undef cuDevicePrimaryCtxRelease
#undef cuDevicePrimaryCtxReset
#undef cuGetProcAddress
#undef cuMemcpy3DBatchAsync
#undef cuMemcpyBatchAsync
#undef cuStreamBeginCapture
#undef cuStreamDestroy

/* Only used as pointers here: the same tags as in cuda.h, which may be absent. */
struct CUDA_ARRAY3D_DESCRIPTOR_st;
struct CUDA_ARRAY_DESCRIPTOR_st;
struct CUDA_LAUNCH_PARAMS_st;
struct CUDA_MEMCPY2D_st;
struct CUDA_MEMCPY3D_BATCH_OP_st;
struct CUDA_MEMCPY3D_PEER_st;
struct CUDA_MEMCPY3D_st;
struct CUctxCreateParams_st;
struct CUexecAffinityParam_st;
struct CUgraphEdgeData_st;
struct CUlaunchConfig_st;
struct CUmemcpyAttributes_st;
union CUstreamBatchMemOpParams_union;

/* clang-format off */
/* allocate, free, and queries of memory: hooks_memory.c */
#define FLW_HOOKS_MEMORY(X) \
    X(cuMemAlloc_v2, cuMemAlloc, 3020, (CUdeviceptr *pointer, size_t bytes), (pointer, bytes)) \
    X(cuMemFree_v2, cuMemFree, 3020, (CUdeviceptr pointer), (pointer)) \
    X(cuMemFreeAsync, cuMemFreeAsync, 11020, (CUdeviceptr pointer, CUstream stream), (pointer, stream)) \
    X(cuMemFreeAsync_ptsz, cuMemFreeAsync, 11020, (CUdeviceptr pointer, CUstream stream), (pointer, stream)) \
    X(cuDeviceTotalMem_v2, cuDeviceTotalMem, 3020, (size_t *bytes, CUdevice device), (bytes, device)) \
    X(cuMemGetInfo_v2, cuMemGetInfo, 3020, (size_t *free_bytes, size_t *total_bytes), (free_bytes, total_bytes)) \
    X(cuMemGetAddressRange_v2, cuMemGetAddressRange, 3020, (CUdeviceptr *base, size_t *bytes, CUdeviceptr pointer), (base, bytes, pointer)) \
    X(cuPointerGetAttribute, cuPointerGetAttribute, 4000, (void *data, CUpointer_attribute attribute, CUdeviceptr pointer), (data, attribute, pointer)) \
    X(cuPointerGetAttributes, cuPointerGetAttributes, 7000, (unsigned count, CUpointer_attribute *attributes, void **data, CUdeviceptr pointer), (count, attributes, data, pointer)) \
    X(cuPointerSetAttribute, cuPointerSetAttribute, 6000, (const void *value, CUpointer_attribute attribute, CUdeviceptr pointer), (value, attribute, pointer)) \
    X(cuIpcGetMemHandle, cuIpcGetMemHandle, 4010, (CUipcMemHandle *handle, CUdeviceptr pointer), (handle, pointer)) \
    X(cuMemGetHandleForAddressRange, cuMemGetHandleForAddressRange, 11070, (void *handle, CUdeviceptr pointer, size_t bytes, CUmemRangeHandleType type, unsigned long long flags), (handle, pointer, bytes, type, flags))

/* other calls that allocate: hooks_retry.c */
#define FLW_HOOKS_RETRY(X) \
    X(cuMemAllocPitch_v2, cuMemAllocPitch, 3020, (CUdeviceptr *pointer, size_t *pitch, size_t width_bytes, size_t height, unsigned element_bytes), (pointer, pitch, width_bytes, height, element_bytes)) \
    X(cuMemAllocManaged, cuMemAllocManaged, 6000, (CUdeviceptr *pointer, size_t bytes, unsigned flags), (pointer, bytes, flags)) \
    X(cuMemAllocAsync, cuMemAllocAsync, 11020, (CUdeviceptr *pointer, size_t bytes, CUstream stream), (pointer, bytes, stream)) \
    X(cuMemAllocAsync_ptsz, cuMemAllocAsync, 11020, (CUdeviceptr *pointer, size_t bytes, CUstream stream), (pointer, bytes, stream)) \
    X(cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync, 11020, (CUdeviceptr *pointer, size_t bytes, CUmemoryPool pool, CUstream stream), (pointer, bytes, pool, stream)) \
    X(cuMemAllocFromPoolAsync_ptsz, cuMemAllocFromPoolAsync, 11020, (CUdeviceptr *pointer, size_t bytes, CUmemoryPool pool, CUstream stream), (pointer, bytes, pool, stream)) \
    X(cuMemCreate, cuMemCreate, 10020, (CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *properties, unsigned long long flags), (handle, bytes, properties, flags)) \
    X(cuArrayCreate_v2, cuArrayCreate, 3020, (CUarray *array, const struct CUDA_ARRAY_DESCRIPTOR_st *descriptor), (array, descriptor)) \
    X(cuArray3DCreate_v2, cuArray3DCreate, 3020, (CUarray *array, const struct CUDA_ARRAY3D_DESCRIPTOR_st *descriptor), (array, descriptor)) \
    X(cuMipmappedArrayCreate, cuMipmappedArrayCreate, 5000, (CUmipmappedArray *array, const struct CUDA_ARRAY3D_DESCRIPTOR_st *descriptor, unsigned level_count), (array, descriptor, level_count))

/* creation, end and synchronisation of contexts: hooks_context.c */
#define FLW_HOOKS_CONTEXT(X) \
    X(cuCtxCreate_v2, cuCtxCreate, 3020, (CUcontext *context, unsigned flags, CUdevice device), (context, flags, device)) \
    X(cuCtxCreate_v3, cuCtxCreate, 11040, (CUcontext *context, struct CUexecAffinityParam_st *affinities, int affinity_count, unsigned flags, CUdevice device), (context, affinities, affinity_count, flags, device)) \
    X(cuCtxCreate_v4, cuCtxCreate, 12050, (CUcontext *context, struct CUctxCreateParams_st *wishes, unsigned flags, CUdevice device), (context, wishes, flags, device)) \
    X(cuCtxSetCurrent, cuCtxSetCurrent, 4000, (CUcontext context), (context)) \
    X(cuCtxPushCurrent_v2, cuCtxPushCurrent, 4000, (CUcontext context), (context)) \
    X(cuCtxDestroy, cuCtxDestroy, 2000, (CUcontext context), (context)) \
    X(cuCtxDestroy_v2, cuCtxDestroy, 4000, (CUcontext context), (context)) \
    X(cuCtxDetach, cuCtxDetach, 2000, (CUcontext context), (context)) \
    X(cuGreenCtxDestroy, cuGreenCtxDestroy, 12040, (CUgreenCtx green), (green)) \
    X(cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset, 7000, (CUdevice device), (device)) \
    X(cuDevicePrimaryCtxReset_v2, cuDevicePrimaryCtxReset, 11000, (CUdevice device), (device)) \
    X(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease, 7000, (CUdevice device), (device)) \
    X(cuDevicePrimaryCtxRelease_v2, cuDevicePrimaryCtxRelease, 11000, (CUdevice device), (device)) \
    X(cuCtxSynchronize, cuCtxSynchronize, 2000, (void), ()) \
    X(cuCtxSynchronize_v2, cuCtxSynchronize, 13000, (CUcontext context), (context)) \
    X(cuCtxEnablePeerAccess, cuCtxEnablePeerAccess, 4000, (CUcontext peer, unsigned flags), (peer, flags))

/* streams under capture: hooks_capture.c */
#define FLW_HOOKS_BEGIN_CAPTURE(X) \
    X(cuStreamBeginCapture, cuStreamBeginCapture, 10000, (CUstream stream), (stream)) \
    X(cuStreamBeginCapture_ptsz, cuStreamBeginCapture, 10000, (CUstream stream), (stream)) \
    X(cuStreamBeginCapture_v2, cuStreamBeginCapture, 10010, (CUstream stream, CUstreamCaptureMode mode), (stream, mode)) \
    X(cuStreamBeginCapture_v2_ptsz, cuStreamBeginCapture, 10010, (CUstream stream, CUstreamCaptureMode mode), (stream, mode)) \
    X(cuStreamBeginCaptureToGraph, cuStreamBeginCaptureToGraph, 12030, (CUstream stream, CUgraph graph, const CUgraphNode *dependencies, const struct CUgraphEdgeData_st *edges, size_t dependency_count, CUstreamCaptureMode mode), (stream, graph, dependencies, edges, dependency_count, mode)) \
    X(cuStreamBeginCaptureToGraph_ptsz, cuStreamBeginCaptureToGraph, 12030, (CUstream stream, CUgraph graph, const CUgraphNode *dependencies, const struct CUgraphEdgeData_st *edges, size_t dependency_count, CUstreamCaptureMode mode), (stream, graph, dependencies, edges, dependency_count, mode))

#define FLW_HOOKS_CAPTURE(X) \
    FLW_HOOKS_BEGIN_CAPTURE(X) \
    X(cuStreamEndCapture, cuStreamEndCapture, 10000, (CUstream stream, CUgraph *graph), (stream, graph)) \
    X(cuStreamEndCapture_ptsz, cuStreamEndCapture, 10000, (CUstream stream, CUgraph *graph), (stream, graph)) \
    X(cuStreamDestroy, cuStreamDestroy, 2000, (CUstream stream), (stream)) \
    X(cuStreamDestroy_v2, cuStreamDestroy, 4000, (CUstream stream), (stream))

/* fills of memory; substituted only during an audit: hooks_fill.c */
#define FLW_HOOKS_FILL(X) \
    X(cuMemsetD8_v2, cuMemsetD8, 3020, (CUdeviceptr pointer, unsigned char value, size_t count), (pointer, value, count)) \
    X(cuMemsetD8_v2_ptds, cuMemsetD8, 7000, (CUdeviceptr pointer, unsigned char value, size_t count), (pointer, value, count)) \
    X(cuMemsetD8Async, cuMemsetD8Async, 3020, (CUdeviceptr pointer, unsigned char value, size_t count, CUstream stream), (pointer, value, count, stream)) \
    X(cuMemsetD8Async_ptsz, cuMemsetD8Async, 7000, (CUdeviceptr pointer, unsigned char value, size_t count, CUstream stream), (pointer, value, count, stream)) \
    X(cuMemsetD16_v2, cuMemsetD16, 3020, (CUdeviceptr pointer, unsigned short value, size_t count), (pointer, value, count)) \
    X(cuMemsetD16_v2_ptds, cuMemsetD16, 7000, (CUdeviceptr pointer, unsigned short value, size_t count), (pointer, value, count)) \
    X(cuMemsetD16Async, cuMemsetD16Async, 3020, (CUdeviceptr pointer, unsigned short value, size_t count, CUstream stream), (pointer, value, count, stream)) \
    X(cuMemsetD16Async_ptsz, cuMemsetD16Async, 7000, (CUdeviceptr pointer, unsigned short value, size_t count, CUstream stream), (pointer, value, count, stream)) \
    X(cuMemsetD32_v2, cuMemsetD32, 3020, (CUdeviceptr pointer, unsigned value, size_t count), (pointer, value, count)) \
    X(cuMemsetD32_v2_ptds, cuMemsetD32, 7000, (CUdeviceptr pointer, unsigned value, size_t count), (pointer, value, count)) \
    X(cuMemsetD32Async, cuMemsetD32Async, 3020, (CUdeviceptr pointer, unsigned value, size_t count, CUstream stream), (pointer, value, count, stream)) \
    X(cuMemsetD32Async_ptsz, cuMemsetD32Async, 7000, (CUdeviceptr pointer, unsigned value, size_t count, CUstream stream), (pointer, value, count, stream)) \
    X(cuMemsetD2D8_v2, cuMemsetD2D8, 3020, (CUdeviceptr pointer, size_t pitch, unsigned char value, size_t width, size_t height), (pointer, pitch, value, width, height)) \
    X(cuMemsetD2D8_v2_ptds, cuMemsetD2D8, 7000, (CUdeviceptr pointer, size_t pitch, unsigned char value, size_t width, size_t height), (pointer, pitch, value, width, height)) \
    X(cuMemsetD2D8Async, cuMemsetD2D8Async, 3020, (CUdeviceptr pointer, size_t pitch, unsigned char value, size_t width, size_t height, CUstream stream), (pointer, pitch, value, width, height, stream)) \
    X(cuMemsetD2D8Async_ptsz, cuMemsetD2D8Async, 7000, (CUdeviceptr pointer, size_t pitch, unsigned char value, size_t width, size_t height, CUstream stream), (pointer, pitch, value, width, height, stream)) \
    X(cuMemsetD2D16_v2, cuMemsetD2D16, 3020, (CUdeviceptr pointer, size_t pitch, unsigned short value, size_t width, size_t height), (pointer, pitch, value, width, height)) \
    X(cuMemsetD2D16_v2_ptds, cuMemsetD2D16, 7000, (CUdeviceptr pointer, size_t pitch, unsigned short value, size_t width, size_t height), (pointer, pitch, value, width, height)) \
    X(cuMemsetD2D16Async, cuMemsetD2D16Async, 3020, (CUdeviceptr pointer, size_t pitch, unsigned short value, size_t width, size_t height, CUstream stream), (pointer, pitch, value, width, height, stream)) \
    X(cuMemsetD2D16Async_ptsz, cuMemsetD2D16Async, 7000, (CUdeviceptr pointer, size_t pitch, unsigned short value, size_t width, size_t height, CUstream stream), (pointer, pitch, value, width, height, stream)) \
    X(cuMemsetD2D32_v2, cuMemsetD2D32, 3020, (CUdeviceptr pointer, size_t pitch, unsigned value, size_t width, size_t height), (pointer, pitch, value, width, height)) \
    X(cuMemsetD2D32_v2_ptds, cuMemsetD2D32, 7000, (CUdeviceptr pointer, size_t pitch, unsigned value, size_t width, size_t height), (pointer, pitch, value, width, height)) \
    X(cuMemsetD2D32Async, cuMemsetD2D32Async, 3020, (CUdeviceptr pointer, size_t pitch, unsigned value, size_t width, size_t height, CUstream stream), (pointer, pitch, value, width, height, stream)) \
    X(cuMemsetD2D32Async_ptsz, cuMemsetD2D32Async, 7000, (CUdeviceptr pointer, size_t pitch, unsigned value, size_t width, size_t height, CUstream stream), (pointer, pitch, value, width, height, stream))

/* launches, likewise: hooks_fill.c */
#define FLW_HOOKS_LAUNCH(X) \
    X(cuLaunchKernel, cuLaunchKernel, 4000, (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream, void **parameters, void **extra), (function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, parameters, extra)) \
    X(cuLaunchKernel_ptsz, cuLaunchKernel, 7000, (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream, void **parameters, void **extra), (function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, parameters, extra)) \
    X(cuLaunchKernelEx, cuLaunchKernelEx, 11060, (const struct CUlaunchConfig_st *config, CUfunction function, void **parameters, void **extra), (config, function, parameters, extra)) \
    X(cuLaunchKernelEx_ptsz, cuLaunchKernelEx, 11060, (const struct CUlaunchConfig_st *config, CUfunction function, void **parameters, void **extra), (config, function, parameters, extra)) \
    X(cuLaunchCooperativeKernel, cuLaunchCooperativeKernel, 9000, (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream, void **parameters), (function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, parameters)) \
    X(cuLaunchCooperativeKernel_ptsz, cuLaunchCooperativeKernel, 9000, (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream, void **parameters), (function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, parameters))

/* other reads and writes of memory, likewise: hooks_touch.c */
#define FLW_HOOKS_TOUCH(X) \
    X(cuMemcpy, cuMemcpy, 4000, (CUdeviceptr to, CUdeviceptr from, size_t bytes), (to, from, bytes)) \
    X(cuMemcpy_ptds, cuMemcpy, 7000, (CUdeviceptr to, CUdeviceptr from, size_t bytes), (to, from, bytes)) \
    X(cuMemcpyAsync, cuMemcpyAsync, 4000, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream), (to, from, bytes, stream)) \
    X(cuMemcpyAsync_ptsz, cuMemcpyAsync, 7000, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream), (to, from, bytes, stream)) \
    X(cuMemcpyPeer, cuMemcpyPeer, 4000, (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes), (to, to_context, from, from_context, bytes)) \
    X(cuMemcpyPeer_ptds, cuMemcpyPeer, 7000, (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes), (to, to_context, from, from_context, bytes)) \
    X(cuMemcpyPeerAsync, cuMemcpyPeerAsync, 4000, (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes, CUstream stream), (to, to_context, from, from_context, bytes, stream)) \
    X(cuMemcpyPeerAsync_ptsz, cuMemcpyPeerAsync, 7000, (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes, CUstream stream), (to, to_context, from, from_context, bytes, stream)) \
    X(cuMemcpyHtoD_v2, cuMemcpyHtoD, 3020, (CUdeviceptr to, const void *from, size_t bytes), (to, from, bytes)) \
    X(cuMemcpyHtoD_v2_ptds, cuMemcpyHtoD, 7000, (CUdeviceptr to, const void *from, size_t bytes), (to, from, bytes)) \
    X(cuMemcpyHtoDAsync_v2, cuMemcpyHtoDAsync, 3020, (CUdeviceptr to, const void *from, size_t bytes, CUstream stream), (to, from, bytes, stream)) \
    X(cuMemcpyHtoDAsync_v2_ptsz, cuMemcpyHtoDAsync, 7000, (CUdeviceptr to, const void *from, size_t bytes, CUstream stream), (to, from, bytes, stream)) \
    X(cuMemcpyDtoH_v2, cuMemcpyDtoH, 3020, (void *to, CUdeviceptr from, size_t bytes), (to, from, bytes)) \
    X(cuMemcpyDtoH_v2_ptds, cuMemcpyDtoH, 7000, (void *to, CUdeviceptr from, size_t bytes), (to, from, bytes)) \
    X(cuMemcpyDtoHAsync_v2, cuMemcpyDtoHAsync, 3020, (void *to, CUdeviceptr from, size_t bytes, CUstream stream), (to, from, bytes, stream)) \
    X(cuMemcpyDtoHAsync_v2_ptsz, cuMemcpyDtoHAsync, 7000, (void *to, CUdeviceptr from, size_t bytes, CUstream stream), (to, from, bytes, stream)) \
    X(cuMemcpyDtoD_v2, cuMemcpyDtoD, 3020, (CUdeviceptr to, CUdeviceptr from, size_t bytes), (to, from, bytes)) \
    X(cuMemcpyDtoD_v2_ptds, cuMemcpyDtoD, 7000, (CUdeviceptr to, CUdeviceptr from, size_t bytes), (to, from, bytes)) \
    X(cuMemcpyDtoDAsync_v2, cuMemcpyDtoDAsync, 3020, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream), (to, from, bytes, stream)) \
    X(cuMemcpyDtoDAsync_v2_ptsz, cuMemcpyDtoDAsync, 7000, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream), (to, from, bytes, stream)) \
    X(cuMemcpyDtoA_v2, cuMemcpyDtoA, 3020, (CUarray to, size_t offset, CUdeviceptr from, size_t bytes), (to, offset, from, bytes)) \
    X(cuMemcpyDtoA_v2_ptds, cuMemcpyDtoA, 7000, (CUarray to, size_t offset, CUdeviceptr from, size_t bytes), (to, offset, from, bytes)) \
    X(cuMemcpyAtoD_v2, cuMemcpyAtoD, 3020, (CUdeviceptr to, CUarray from, size_t offset, size_t bytes), (to, from, offset, bytes)) \
    X(cuMemcpyAtoD_v2_ptds, cuMemcpyAtoD, 7000, (CUdeviceptr to, CUarray from, size_t offset, size_t bytes), (to, from, offset, bytes)) \
    X(cuMemcpy2D_v2, cuMemcpy2D, 3020, (const struct CUDA_MEMCPY2D_st *copy), (copy)) \
    X(cuMemcpy2D_v2_ptds, cuMemcpy2D, 7000, (const struct CUDA_MEMCPY2D_st *copy), (copy)) \
    X(cuMemcpy2DUnaligned_v2, cuMemcpy2DUnaligned, 3020, (const struct CUDA_MEMCPY2D_st *copy), (copy)) \
    X(cuMemcpy2DUnaligned_v2_ptds, cuMemcpy2DUnaligned, 7000, (const struct CUDA_MEMCPY2D_st *copy), (copy)) \
    X(cuMemcpy2DAsync_v2, cuMemcpy2DAsync, 3020, (const struct CUDA_MEMCPY2D_st *copy, CUstream stream), (copy, stream)) \
    X(cuMemcpy2DAsync_v2_ptsz, cuMemcpy2DAsync, 7000, (const struct CUDA_MEMCPY2D_st *copy, CUstream stream), (copy, stream)) \
    X(cuMemcpy3D_v2, cuMemcpy3D, 3020, (const struct CUDA_MEMCPY3D_st *copy), (copy)) \
    X(cuMemcpy3D_v2_ptds, cuMemcpy3D, 7000, (const struct CUDA_MEMCPY3D_st *copy), (copy)) \
    X(cuMemcpy3DAsync_v2, cuMemcpy3DAsync, 3020, (const struct CUDA_MEMCPY3D_st *copy, CUstream stream), (copy, stream)) \
    X(cuMemcpy3DAsync_v2_ptsz, cuMemcpy3DAsync, 7000, (const struct CUDA_MEMCPY3D_st *copy, CUstream stream), (copy, stream)) \
    X(cuMemcpy3DPeer, cuMemcpy3DPeer, 4000, (const struct CUDA_MEMCPY3D_PEER_st *copy), (copy)) \
    X(cuMemcpy3DPeer_ptds, cuMemcpy3DPeer, 7000, (const struct CUDA_MEMCPY3D_PEER_st *copy), (copy)) \
    X(cuMemcpy3DPeerAsync, cuMemcpy3DPeerAsync, 4000, (const struct CUDA_MEMCPY3D_PEER_st *copy, CUstream stream), (copy, stream)) \
    X(cuMemcpy3DPeerAsync_ptsz, cuMemcpy3DPeerAsync, 7000, (const struct CUDA_MEMCPY3D_PEER_st *copy, CUstream stream), (copy, stream)) \
    X(cuMemcpyBatchAsync, cuMemcpyBatchAsync, 12080, (CUdeviceptr *to, CUdeviceptr *from, size_t *bytes, size_t count, struct CUmemcpyAttributes_st *attributes, size_t *attribute_indexes, size_t attribute_count, size_t *failed, CUstream stream), (to, from, bytes, count, attributes, attribute_indexes, attribute_count, failed, stream)) \
    X(cuMemcpyBatchAsync_ptsz, cuMemcpyBatchAsync, 12080, (CUdeviceptr *to, CUdeviceptr *from, size_t *bytes, size_t count, struct CUmemcpyAttributes_st *attributes, size_t *attribute_indexes, size_t attribute_count, size_t *failed, CUstream stream), (to, from, bytes, count, attributes, attribute_indexes, attribute_count, failed, stream)) \
    X(cuMemcpyBatchAsync_v2, cuMemcpyBatchAsync, 13000, (CUdeviceptr *to, CUdeviceptr *from, size_t *bytes, size_t count, struct CUmemcpyAttributes_st *attributes, size_t *attribute_indexes, size_t attribute_count, CUstream stream), (to, from, bytes, count, attributes, attribute_indexes, attribute_count, stream)) \
    X(cuMemcpyBatchAsync_v2_ptsz, cuMemcpyBatchAsync, 13000, (CUdeviceptr *to, CUdeviceptr *from, size_t *bytes, size_t count, struct CUmemcpyAttributes_st *attributes, size_t *attribute_indexes, size_t attribute_count, CUstream stream), (to, from, bytes, count, attributes, attribute_indexes, attribute_count, stream)) \
    X(cuMemcpy3DBatchAsync, cuMemcpy3DBatchAsync, 12080, (size_t count, struct CUDA_MEMCPY3D_BATCH_OP_st *copies, size_t *failed, unsigned long long flags, CUstream stream), (count, copies, failed, flags, stream)) \
    X(cuMemcpy3DBatchAsync_ptsz, cuMemcpy3DBatchAsync, 12080, (size_t count, struct CUDA_MEMCPY3D_BATCH_OP_st *copies, size_t *failed, unsigned long long flags, CUstream stream), (count, copies, failed, flags, stream)) \
    X(cuMemcpy3DBatchAsync_v2, cuMemcpy3DBatchAsync, 13000, (size_t count, struct CUDA_MEMCPY3D_BATCH_OP_st *copies, unsigned long long flags, CUstream stream), (count, copies, flags, stream)) \
    X(cuMemcpy3DBatchAsync_v2_ptsz, cuMemcpy3DBatchAsync, 13000, (size_t count, struct CUDA_MEMCPY3D_BATCH_OP_st *copies, unsigned long long flags, CUstream stream), (count, copies, flags, stream)) \
    X(cuStreamWriteValue32_v2, cuStreamWriteValue32, 11070, (CUstream stream, CUdeviceptr pointer, cuuint32_t value, unsigned flags), (stream, pointer, value, flags)) \
    X(cuStreamWriteValue32_v2_ptsz, cuStreamWriteValue32, 11070, (CUstream stream, CUdeviceptr pointer, cuuint32_t value, unsigned flags), (stream, pointer, value, flags)) \
    X(cuStreamWriteValue64_v2, cuStreamWriteValue64, 11070, (CUstream stream, CUdeviceptr pointer, cuuint64_t value, unsigned flags), (stream, pointer, value, flags)) \
    X(cuStreamWriteValue64_v2_ptsz, cuStreamWriteValue64, 11070, (CUstream stream, CUdeviceptr pointer, cuuint64_t value, unsigned flags), (stream, pointer, value, flags)) \
    X(cuStreamBatchMemOp_v2, cuStreamBatchMemOp, 11070, (CUstream stream, unsigned count, union CUstreamBatchMemOpParams_union *operations, unsigned flags), (stream, count, operations, flags)) \
    X(cuStreamBatchMemOp_v2_ptsz, cuStreamBatchMemOp, 11070, (CUstream stream, unsigned count, union CUstreamBatchMemOpParams_union *operations, unsigned flags), (stream, count, operations, flags)) \
    X(cuGraphLaunch, cuGraphLaunch, 10000, (CUgraphExec graph, CUstream stream), (graph, stream)) \
    X(cuGraphLaunch_ptsz, cuGraphLaunch, 10000, (CUgraphExec graph, CUstream stream), (graph, stream)) \
    X(cuLaunchCooperativeKernelMultiDevice, cuLaunchCooperativeKernelMultiDevice, 9000, (struct CUDA_LAUNCH_PARAMS_st *launches, unsigned count, unsigned flags), (launches, count, flags)) \
    X(cuLaunch, cuLaunch, 2000, (CUfunction function), (function)) \
    X(cuLaunchGrid, cuLaunchGrid, 2000, (CUfunction function, int width, int height), (function, width, height)) \
    X(cuLaunchGridAsync, cuLaunchGridAsync, 2000, (CUfunction function, int width, int height, CUstream stream), (function, width, height, stream))

/* pinned host memory, for mode trace: hooks_trace.c */
#define FLW_HOOKS_HOST(X) \
    X(cuMemAllocHost_v2, cuMemAllocHost, 3020, (void **pointer, size_t bytes), (pointer, bytes)) \
    X(cuMemHostAlloc, cuMemHostAlloc, 2020, (void **pointer, size_t bytes, unsigned flags), (pointer, bytes, flags)) \
    X(cuMemFreeHost, cuMemFreeHost, 2000, (void *pointer), (pointer))

/* lookups of entry points: hooks_lookup.c */
#define FLW_HOOKS_LOOKUP(X) \
    X(cuGetProcAddress, cuGetProcAddress, 11030, (const char *symbol, void **function, int version, cuuint64_t flags), (symbol, function, version, flags)) \
    X(cuGetProcAddress_v2, cuGetProcAddress, 12000, (const char *symbol, void **function, int version, cuuint64_t flags, CUdriverProcAddressQueryResult *status), (symbol, function, version, flags, status))

#define FLW_HOOK_LIST(X) \
    FLW_HOOKS_MEMORY(X) \
    FLW_HOOKS_RETRY(X) \
    FLW_HOOKS_CONTEXT(X) \
    FLW_HOOKS_CAPTURE(X) \
    FLW_HOOKS_FILL(X) \
    FLW_HOOKS_LAUNCH(X) \
    FLW_HOOKS_TOUCH(X) \
    FLW_HOOKS_HOST(X) \
    FLW_HOOKS_LOOKUP(X)
/* clang-format on */

#endif
