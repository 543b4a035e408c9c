/* SPDX-License-Identifier: Apache-2.0
 *
 * The list of CUDA driver entry points that Fallow calls. X(need, symbol, since, before,
 * parameters)
 *
 *   need    REQUIRED  a driver without this entry is refused
 *           OPTIONAL  otherwise a feature is off (VMM, pools, ids), or tests skip cases
 *                     (contexts of their own)
 *   symbol  the *exported* name with the suffix, so that no macro of cuda.h renames it;
 *           always the plain entry, never a _ptsz twin
 *   since   driver version that introduced the name (2000: the first), and `before` the version from
 *           which the base name means a newer interface (0: never; cudaTypedefs.h)
 *
 * To add one: add a line here, call the entry through `struct flw_driver`, export the entry from
 * simcuda (which reads the same list, so forgetting is a link error), and write a conformance
 * case. */
/* clang-format off */
#define FLW_DRIVER_ENTRY_POINTS(X) \
    X(REQUIRED, cuInit, 2000, 0, (unsigned flags)) \
    X(REQUIRED, cuDriverGetVersion, 2020, 0, (int *version)) \
    X(REQUIRED, cuGetErrorName, 6000, 0, (CUresult error, const char **name)) \
    X(REQUIRED, cuGetErrorString, 6000, 0, (CUresult error, const char **text)) \
    X(REQUIRED, cuDeviceGetCount, 2000, 0, (int *count)) \
    X(REQUIRED, cuDeviceGet, 2000, 0, (CUdevice *device, int ordinal)) \
    X(REQUIRED, cuDeviceGetName, 2000, 0, (char *name, int length, CUdevice device)) \
    X(REQUIRED, cuDeviceTotalMem_v2, 3020, 0, (size_t *bytes, CUdevice device)) \
    X(REQUIRED, cuDeviceGetAttribute, 2000, 0, (int *value, CUdevice_attribute attribute, CUdevice device)) \
    X(REQUIRED, cuDevicePrimaryCtxRetain, 7000, 0, (CUcontext *context, CUdevice device)) \
    X(REQUIRED, cuDevicePrimaryCtxRelease_v2, 11000, 0, (CUdevice device)) \
    X(OPTIONAL, cuDevicePrimaryCtxGetState, 7000, 0, (CUdevice device, unsigned *flags, int *active)) \
    X(OPTIONAL, cuDevicePrimaryCtxReset_v2, 11000, 0, (CUdevice device)) \
    X(OPTIONAL, cuDeviceCanAccessPeer, 4000, 0, (int *can, CUdevice device, CUdevice peer)) \
    X(OPTIONAL, cuCtxCreate_v2, 3020, 11040, (CUcontext *context, unsigned flags, CUdevice device)) \
    X(OPTIONAL, cuCtxDestroy_v2, 4000, 0, (CUcontext context)) \
    X(REQUIRED, cuCtxPushCurrent_v2, 4000, 0, (CUcontext context)) \
    X(REQUIRED, cuCtxPopCurrent_v2, 4000, 0, (CUcontext *context)) \
    X(REQUIRED, cuCtxSetCurrent, 4000, 0, (CUcontext context)) \
    X(REQUIRED, cuCtxGetCurrent, 4000, 0, (CUcontext *context)) \
    X(OPTIONAL, cuCtxEnablePeerAccess, 4000, 0, (CUcontext peer, unsigned flags)) \
    X(OPTIONAL, cuCtxDisablePeerAccess, 4000, 0, (CUcontext peer)) \
    X(REQUIRED, cuCtxGetDevice, 2000, 13000, (CUdevice *device)) \
    X(OPTIONAL, cuCtxGetId, 12000, 0, (CUcontext context, unsigned long long *id)) \
    X(REQUIRED, cuCtxSynchronize, 2000, 13000, (void)) \
    X(OPTIONAL, cuCtxFromGreenCtx, 12040, 0, (CUcontext *context, CUgreenCtx green)) \
    X(OPTIONAL, cuCtxRecordEvent, 12050, 0, (CUcontext context, CUevent event)) \
    X(OPTIONAL, cuCtxWaitEvent, 12050, 0, (CUcontext context, CUevent event)) \
    X(REQUIRED, cuStreamCreate, 2000, 0, (CUstream *stream, unsigned flags)) \
    X(OPTIONAL, cuStreamCreateWithPriority, 5050, 0, (CUstream *stream, unsigned flags, int priority)) \
    X(REQUIRED, cuStreamDestroy_v2, 4000, 0, (CUstream stream)) \
    X(REQUIRED, cuStreamQuery, 2000, 0, (CUstream stream)) \
    X(REQUIRED, cuStreamSynchronize, 2000, 0, (CUstream stream)) \
    X(REQUIRED, cuStreamWaitEvent, 3020, 0, (CUstream stream, CUevent event, unsigned flags)) \
    X(OPTIONAL, cuStreamGetId, 12000, 0, (CUstream stream, unsigned long long *id)) \
    X(OPTIONAL, cuStreamGetCtx, 9020, 12050, (CUstream stream, CUcontext *context)) \
    X(OPTIONAL, cuStreamGetGreenCtx, 12040, 0, (CUstream stream, CUgreenCtx *green)) \
    X(REQUIRED, cuStreamIsCapturing, 10000, 0, (CUstream stream, CUstreamCaptureStatus *status)) \
    X(OPTIONAL, cuStreamGetCaptureInfo_v2, 11030, 12030, (CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph, const CUgraphNode **dependencies, size_t *dependency_count)) \
    X(REQUIRED, cuStreamBeginCapture_v2, 10010, 0, (CUstream stream, CUstreamCaptureMode mode)) \
    X(REQUIRED, cuStreamEndCapture, 10000, 0, (CUstream stream, CUgraph *graph)) \
    X(REQUIRED, cuThreadExchangeStreamCaptureMode, 10010, 0, (CUstreamCaptureMode *mode)) \
    X(REQUIRED, cuLaunchHostFunc, 10000, 0, (CUstream stream, CUhostFn function, void *argument)) \
    X(REQUIRED, cuEventCreate, 2000, 0, (CUevent *event, unsigned flags)) \
    X(REQUIRED, cuEventDestroy_v2, 4000, 0, (CUevent event)) \
    X(REQUIRED, cuEventRecord, 2000, 0, (CUevent event, CUstream stream)) \
    X(REQUIRED, cuEventQuery, 2000, 0, (CUevent event)) \
    X(REQUIRED, cuEventSynchronize, 2000, 0, (CUevent event)) \
    X(REQUIRED, cuMemGetInfo_v2, 3020, 0, (size_t *free_bytes, size_t *total_bytes)) \
    X(REQUIRED, cuMemAlloc_v2, 3020, 0, (CUdeviceptr *pointer, size_t bytes)) \
    X(REQUIRED, cuMemFree_v2, 3020, 0, (CUdeviceptr pointer)) \
    X(OPTIONAL, cuMemAllocPitch_v2, 3020, 0, (CUdeviceptr *pointer, size_t *pitch, size_t width_bytes, size_t height, unsigned element_bytes)) \
    X(OPTIONAL, cuMemAllocManaged, 6000, 0, (CUdeviceptr *pointer, size_t bytes, unsigned flags)) \
    X(REQUIRED, cuMemGetAddressRange_v2, 3020, 0, (CUdeviceptr *base, size_t *bytes, CUdeviceptr pointer)) \
    X(OPTIONAL, cuPointerGetAttribute, 4000, 0, (void *data, CUpointer_attribute attribute, CUdeviceptr pointer)) \
    X(REQUIRED, cuMemHostAlloc, 2020, 0, (void **pointer, size_t bytes, unsigned flags)) \
    X(REQUIRED, cuMemFreeHost, 2000, 0, (void *pointer)) \
    X(OPTIONAL, cuMemHostRegister_v2, 6050, 0, (void *pointer, size_t bytes, unsigned flags)) \
    X(OPTIONAL, cuMemHostUnregister, 4000, 0, (void *pointer)) \
    X(OPTIONAL, cuMemAddressReserve, 10020, 0, (CUdeviceptr *pointer, size_t bytes, size_t alignment, CUdeviceptr address, unsigned long long flags)) \
    X(OPTIONAL, cuMemAddressFree, 10020, 0, (CUdeviceptr pointer, size_t bytes)) \
    X(OPTIONAL, cuMemCreate, 10020, 0, (CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *properties, unsigned long long flags)) \
    X(OPTIONAL, cuMemRelease, 10020, 0, (CUmemGenericAllocationHandle handle)) \
    X(OPTIONAL, cuMemMap, 10020, 0, (CUdeviceptr pointer, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long flags)) \
    X(OPTIONAL, cuMemUnmap, 10020, 0, (CUdeviceptr pointer, size_t bytes)) \
    X(OPTIONAL, cuMemSetAccess, 10020, 0, (CUdeviceptr pointer, size_t bytes, const CUmemAccessDesc *access, size_t count)) \
    X(OPTIONAL, cuMemGetAccess, 10020, 0, (unsigned long long *flags, const CUmemLocation *location, CUdeviceptr pointer)) \
    X(OPTIONAL, cuMemGetAllocationGranularity, 10020, 0, (size_t *bytes, const CUmemAllocationProp *properties, CUmemAllocationGranularity_flags option)) \
    X(OPTIONAL, cuMemExportToShareableHandle, 10020, 0, (void *shareable, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type, unsigned long long flags)) \
    X(OPTIONAL, cuMemImportFromShareableHandle, 10020, 0, (CUmemGenericAllocationHandle *handle, void *shareable, CUmemAllocationHandleType type)) \
    X(OPTIONAL, cuMemRetainAllocationHandle, 11000, 0, (CUmemGenericAllocationHandle *handle, void *address)) \
    X(OPTIONAL, cuMemGetAllocationPropertiesFromHandle, 10020, 0, (CUmemAllocationProp *properties, CUmemGenericAllocationHandle handle)) \
    X(OPTIONAL, cuMemAllocAsync, 11020, 0, (CUdeviceptr *pointer, size_t bytes, CUstream stream)) \
    X(OPTIONAL, cuMemFreeAsync, 11020, 0, (CUdeviceptr pointer, CUstream stream)) \
    X(OPTIONAL, cuMemAllocFromPoolAsync, 11020, 0, (CUdeviceptr *pointer, size_t bytes, CUmemoryPool pool, CUstream stream)) \
    X(OPTIONAL, cuDeviceGetDefaultMemPool, 11020, 0, (CUmemoryPool *pool, CUdevice device)) \
    X(OPTIONAL, cuDeviceGetMemPool, 11020, 0, (CUmemoryPool *pool, CUdevice device)) \
    X(OPTIONAL, cuDeviceSetMemPool, 11020, 0, (CUdevice device, CUmemoryPool pool)) \
    X(OPTIONAL, cuMemPoolCreate, 11020, 0, (CUmemoryPool *pool, const CUmemPoolProps *properties)) \
    X(OPTIONAL, cuMemPoolDestroy, 11020, 0, (CUmemoryPool pool)) \
    X(OPTIONAL, cuMemPoolSetAttribute, 11020, 0, (CUmemoryPool pool, CUmemPool_attribute attribute, void *value)) \
    X(OPTIONAL, cuMemPoolGetAttribute, 11020, 0, (CUmemoryPool pool, CUmemPool_attribute attribute, void *value)) \
    X(OPTIONAL, cuMemPoolTrimTo, 11020, 0, (CUmemoryPool pool, size_t keep_bytes)) \
    X(REQUIRED, cuMemsetD8_v2, 3020, 0, (CUdeviceptr pointer, unsigned char value, size_t count)) \
    X(REQUIRED, cuMemsetD8Async, 3020, 0, (CUdeviceptr pointer, unsigned char value, size_t count, CUstream stream)) \
    X(REQUIRED, cuMemsetD32Async, 3020, 0, (CUdeviceptr pointer, unsigned value, size_t count, CUstream stream)) \
    X(REQUIRED, cuMemcpyHtoD_v2, 3020, 0, (CUdeviceptr to, const void *from, size_t bytes)) \
    X(REQUIRED, cuMemcpyDtoH_v2, 3020, 0, (void *to, CUdeviceptr from, size_t bytes)) \
    X(REQUIRED, cuMemcpyHtoDAsync_v2, 3020, 0, (CUdeviceptr to, const void *from, size_t bytes, CUstream stream)) \
    X(REQUIRED, cuMemcpyDtoHAsync_v2, 3020, 0, (void *to, CUdeviceptr from, size_t bytes, CUstream stream)) \
    X(REQUIRED, cuMemcpyDtoDAsync_v2, 3020, 0, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)) \
    X(OPTIONAL, cuModuleLoadData, 2000, 0, (CUmodule *module, const void *image)) \
    X(OPTIONAL, cuModuleUnload, 2000, 0, (CUmodule module)) \
    X(OPTIONAL, cuModuleGetFunction, 2000, 0, (CUfunction *function, CUmodule module, const char *name)) \
    X(OPTIONAL, cuFuncGetName, 12030, 0, (const char **name, CUfunction function)) \
    X(OPTIONAL, cuFuncGetParamInfo, 12040, 0, (CUfunction function, size_t index, size_t *offset, size_t *bytes)) \
    X(OPTIONAL, cuLaunchKernel, 4000, 0, (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream, void **parameters, void **extra)) \
    X(OPTIONAL, cuGraphInstantiateWithFlags, 11040, 0, (CUgraphExec *executable, CUgraph graph, unsigned long long flags)) \
    X(OPTIONAL, cuGraphLaunch, 10000, 0, (CUgraphExec executable, CUstream stream)) \
    X(OPTIONAL, cuGraphExecDestroy, 10000, 0, (CUgraphExec executable)) \
    X(OPTIONAL, cuGraphDestroy, 10000, 0, (CUgraph graph)) \
    X(OPTIONAL, cuGetProcAddress_v2, 12000, 0, (const char *symbol, void **function, int version, cuuint64_t flags, CUdriverProcAddressQueryResult *status))
/* clang-format on */
