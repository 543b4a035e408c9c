/* SPDX-License-Identifier: Apache-2.0
 *
 * The one list of CUDA driver entry points that Fallow calls. X(need, symbol, parameters)
 *
 *   need    REQUIRED  the driver is refused, by name, without it
 *           OPTIONAL  absent means that a feature is off (VMM, pools, ids), or that tests skip what
 *                     only they need (contexts of their own)
 *   symbol  the *exported* name, suffix included, so that no macro of cuda.h can rename it;
 *           always the plain entry, never a _ptsz twin
 *
 * To add one: add a line here, call it through `struct flw_driver`, export it from simcuda (which
 * reads the same list, so forgetting is a link error), and give it a conformance case.
 */
/* clang-format off */
#define FLW_DRIVER_ENTRY_POINTS(X) \
    X(REQUIRED, cuInit, (unsigned flags)) \
    X(REQUIRED, cuDriverGetVersion, (int *version)) \
    X(REQUIRED, cuGetErrorName, (CUresult error, const char **name)) \
    X(REQUIRED, cuGetErrorString, (CUresult error, const char **text)) \
    X(REQUIRED, cuDeviceGetCount, (int *count)) \
    X(REQUIRED, cuDeviceGet, (CUdevice *device, int ordinal)) \
    X(REQUIRED, cuDeviceGetName, (char *name, int length, CUdevice device)) \
    X(REQUIRED, cuDeviceTotalMem_v2, (size_t *bytes, CUdevice device)) \
    X(REQUIRED, cuDeviceGetAttribute, (int *value, CUdevice_attribute attribute, CUdevice device)) \
    X(REQUIRED, cuDevicePrimaryCtxRetain, (CUcontext *context, CUdevice device)) \
    X(REQUIRED, cuDevicePrimaryCtxRelease_v2, (CUdevice device)) \
    X(OPTIONAL, cuDevicePrimaryCtxGetState, (CUdevice device, unsigned *flags, int *active)) \
    X(OPTIONAL, cuDevicePrimaryCtxReset_v2, (CUdevice device)) \
    X(OPTIONAL, cuDeviceCanAccessPeer, (int *can, CUdevice device, CUdevice peer)) \
    X(OPTIONAL, cuCtxCreate_v2, (CUcontext *context, unsigned flags, CUdevice device)) \
    X(OPTIONAL, cuCtxDestroy_v2, (CUcontext context)) \
    X(REQUIRED, cuCtxPushCurrent_v2, (CUcontext context)) \
    X(REQUIRED, cuCtxPopCurrent_v2, (CUcontext *context)) \
    X(REQUIRED, cuCtxSetCurrent, (CUcontext context)) \
    X(REQUIRED, cuCtxGetCurrent, (CUcontext *context)) \
    X(REQUIRED, cuCtxGetDevice, (CUdevice *device)) \
    X(OPTIONAL, cuCtxGetId, (CUcontext context, unsigned long long *id)) \
    X(REQUIRED, cuCtxSynchronize, (void)) \
    X(OPTIONAL, cuCtxFromGreenCtx, (CUcontext *context, CUgreenCtx green)) \
    X(OPTIONAL, cuCtxRecordEvent, (CUcontext context, CUevent event)) \
    X(OPTIONAL, cuCtxWaitEvent, (CUcontext context, CUevent event)) \
    X(REQUIRED, cuStreamCreate, (CUstream *stream, unsigned flags)) \
    X(OPTIONAL, cuStreamCreateWithPriority, (CUstream *stream, unsigned flags, int priority)) \
    X(REQUIRED, cuStreamDestroy_v2, (CUstream stream)) \
    X(REQUIRED, cuStreamQuery, (CUstream stream)) \
    X(REQUIRED, cuStreamSynchronize, (CUstream stream)) \
    X(REQUIRED, cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned flags)) \
    X(OPTIONAL, cuStreamGetId, (CUstream stream, unsigned long long *id)) \
    X(OPTIONAL, cuStreamGetCtx, (CUstream stream, CUcontext *context)) \
    X(OPTIONAL, cuStreamGetGreenCtx, (CUstream stream, CUgreenCtx *green)) \
    X(REQUIRED, cuStreamIsCapturing, (CUstream stream, CUstreamCaptureStatus *status)) \
    X(OPTIONAL, cuStreamGetCaptureInfo_v2, (CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph, const CUgraphNode **dependencies, size_t *dependency_count)) \
    X(REQUIRED, cuStreamBeginCapture_v2, (CUstream stream, CUstreamCaptureMode mode)) \
    X(REQUIRED, cuStreamEndCapture, (CUstream stream, CUgraph *graph)) \
    X(REQUIRED, cuThreadExchangeStreamCaptureMode, (CUstreamCaptureMode *mode)) \
    X(REQUIRED, cuLaunchHostFunc, (CUstream stream, CUhostFn function, void *argument)) \
    X(REQUIRED, cuEventCreate, (CUevent *event, unsigned flags)) \
    X(REQUIRED, cuEventDestroy_v2, (CUevent event)) \
    X(REQUIRED, cuEventRecord, (CUevent event, CUstream stream)) \
    X(REQUIRED, cuEventQuery, (CUevent event)) \
    X(REQUIRED, cuEventSynchronize, (CUevent event)) \
    X(REQUIRED, cuMemGetInfo_v2, (size_t *free_bytes, size_t *total_bytes)) \
    X(REQUIRED, cuMemAlloc_v2, (CUdeviceptr *pointer, size_t bytes)) \
    X(REQUIRED, cuMemFree_v2, (CUdeviceptr pointer)) \
    X(OPTIONAL, cuMemAllocPitch_v2, (CUdeviceptr *pointer, size_t *pitch, size_t width_bytes, size_t height, unsigned element_bytes)) \
    X(OPTIONAL, cuMemAllocManaged, (CUdeviceptr *pointer, size_t bytes, unsigned flags)) \
    X(REQUIRED, cuMemGetAddressRange_v2, (CUdeviceptr *base, size_t *bytes, CUdeviceptr pointer)) \
    X(OPTIONAL, cuPointerGetAttribute, (void *data, CUpointer_attribute attribute, CUdeviceptr pointer)) \
    X(REQUIRED, cuMemHostAlloc, (void **pointer, size_t bytes, unsigned flags)) \
    X(REQUIRED, cuMemFreeHost, (void *pointer)) \
    X(OPTIONAL, cuMemHostRegister_v2, (void *pointer, size_t bytes, unsigned flags)) \
    X(OPTIONAL, cuMemHostUnregister, (void *pointer)) \
    X(OPTIONAL, cuMemAddressReserve, (CUdeviceptr *pointer, size_t bytes, size_t alignment, CUdeviceptr address, unsigned long long flags)) \
    X(OPTIONAL, cuMemAddressFree, (CUdeviceptr pointer, size_t bytes)) \
    X(OPTIONAL, cuMemCreate, (CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *properties, unsigned long long flags)) \
    X(OPTIONAL, cuMemRelease, (CUmemGenericAllocationHandle handle)) \
    X(OPTIONAL, cuMemMap, (CUdeviceptr pointer, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long flags)) \
    X(OPTIONAL, cuMemUnmap, (CUdeviceptr pointer, size_t bytes)) \
    X(OPTIONAL, cuMemSetAccess, (CUdeviceptr pointer, size_t bytes, const CUmemAccessDesc *access, size_t count)) \
    X(OPTIONAL, cuMemGetAccess, (unsigned long long *flags, const CUmemLocation *location, CUdeviceptr pointer)) \
    X(OPTIONAL, cuMemGetAllocationGranularity, (size_t *bytes, const CUmemAllocationProp *properties, CUmemAllocationGranularity_flags option)) \
    X(OPTIONAL, cuMemExportToShareableHandle, (void *shareable, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type, unsigned long long flags)) \
    X(OPTIONAL, cuMemImportFromShareableHandle, (CUmemGenericAllocationHandle *handle, void *shareable, CUmemAllocationHandleType type)) \
    X(OPTIONAL, cuMemRetainAllocationHandle, (CUmemGenericAllocationHandle *handle, void *address)) \
    X(OPTIONAL, cuMemGetAllocationPropertiesFromHandle, (CUmemAllocationProp *properties, CUmemGenericAllocationHandle handle)) \
    X(OPTIONAL, cuMemAllocAsync, (CUdeviceptr *pointer, size_t bytes, CUstream stream)) \
    X(OPTIONAL, cuMemFreeAsync, (CUdeviceptr pointer, CUstream stream)) \
    X(OPTIONAL, cuMemAllocFromPoolAsync, (CUdeviceptr *pointer, size_t bytes, CUmemoryPool pool, CUstream stream)) \
    X(OPTIONAL, cuDeviceGetDefaultMemPool, (CUmemoryPool *pool, CUdevice device)) \
    X(OPTIONAL, cuDeviceGetMemPool, (CUmemoryPool *pool, CUdevice device)) \
    X(OPTIONAL, cuDeviceSetMemPool, (CUdevice device, CUmemoryPool pool)) \
    X(OPTIONAL, cuMemPoolCreate, (CUmemoryPool *pool, const CUmemPoolProps *properties)) \
    X(OPTIONAL, cuMemPoolDestroy, (CUmemoryPool pool)) \
    X(OPTIONAL, cuMemPoolSetAttribute, (CUmemoryPool pool, CUmemPool_attribute attribute, void *value)) \
    X(OPTIONAL, cuMemPoolGetAttribute, (CUmemoryPool pool, CUmemPool_attribute attribute, void *value)) \
    X(OPTIONAL, cuMemPoolTrimTo, (CUmemoryPool pool, size_t keep_bytes)) \
    X(REQUIRED, cuMemsetD8_v2, (CUdeviceptr pointer, unsigned char value, size_t count)) \
    X(REQUIRED, cuMemsetD8Async, (CUdeviceptr pointer, unsigned char value, size_t count, CUstream stream)) \
    X(REQUIRED, cuMemsetD32Async, (CUdeviceptr pointer, unsigned value, size_t count, CUstream stream)) \
    X(REQUIRED, cuMemcpyHtoD_v2, (CUdeviceptr to, const void *from, size_t bytes)) \
    X(REQUIRED, cuMemcpyDtoH_v2, (void *to, CUdeviceptr from, size_t bytes)) \
    X(REQUIRED, cuMemcpyHtoDAsync_v2, (CUdeviceptr to, const void *from, size_t bytes, CUstream stream)) \
    X(REQUIRED, cuMemcpyDtoHAsync_v2, (void *to, CUdeviceptr from, size_t bytes, CUstream stream)) \
    X(REQUIRED, cuMemcpyDtoDAsync_v2, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)) \
    X(OPTIONAL, cuModuleLoadData, (CUmodule *module, const void *image)) \
    X(OPTIONAL, cuModuleUnload, (CUmodule module)) \
    X(OPTIONAL, cuModuleGetFunction, (CUfunction *function, CUmodule module, const char *name)) \
    X(OPTIONAL, cuFuncGetName, (const char **name, CUfunction function)) \
    X(OPTIONAL, cuFuncGetParamInfo, (CUfunction function, size_t index, size_t *offset, size_t *bytes)) \
    X(OPTIONAL, cuLaunchKernel, (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream, void **parameters, void **extra)) \
    X(OPTIONAL, cuGraphInstantiateWithFlags, (CUgraphExec *executable, CUgraph graph, unsigned long long flags)) \
    X(OPTIONAL, cuGraphLaunch, (CUgraphExec executable, CUstream stream)) \
    X(OPTIONAL, cuGraphExecDestroy, (CUgraphExec executable)) \
    X(OPTIONAL, cuGraphDestroy, (CUgraph graph)) \
    X(OPTIONAL, cuGetProcAddress_v2, (const char *symbol, void **function, int version, cuuint64_t flags, CUdriverProcAddressQueryResult *status))
/* clang-format on */
