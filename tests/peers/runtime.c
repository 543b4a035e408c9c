/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: libcudart.so.13 for programs on the simulated driver, which the real library refuses: the functions that the
 * allocators of PyTorch and RMM call, each as a call of the driver. Functions that are linked but never called return
 * cudaErrorNotSupported. Errors of the runtime have the driver's numbers.
 */
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local cudaError_t last_error;
static _Thread_local int has_context;

static cudaError_t keep(CUresult result)
{
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY) {
        last_error = (cudaError_t)result;
    }
    return (cudaError_t)result;
}

/* Make the primary context of device 0, the only device, current in this thread. The reference is kept. */
static CUresult enter(void)
{
    CUcontext primary = NULL;
    CUresult result = CUDA_SUCCESS;
    if (has_context) {
        return CUDA_SUCCESS;
    }
    if ((result = cuInit(0)) == CUDA_SUCCESS &&
        (result = cuDevicePrimaryCtxRetain(&primary, 0)) == CUDA_SUCCESS) {
        result = cuCtxSetCurrent(primary);
    }
    has_context = result == CUDA_SUCCESS;
    return result;
}

/* Define a function of the runtime as a call of the driver. */
#define CALL(name, parameters, call)                \
    cudaError_t name parameters                     \
    {                                               \
        CUresult result = enter();                  \
        return keep(result != 0 ? result : (call)); \
    }
#define ABSENT(name, parameters)               \
    cudaError_t name parameters                \
    {                                          \
        return keep(CUDA_ERROR_NOT_SUPPORTED); \
    }

/* ---- devices ---- */

CALL(cudaDriverGetVersion, (int *version), cuDriverGetVersion(version))
CALL(cudaRuntimeGetVersion, (int *version), (*version = CUDART_VERSION, CUDA_SUCCESS))
CALL(cudaGetDeviceCount, (int *count), cuDeviceGetCount(count))
CALL(cudaGetDevice, (int *device), (*device = 0, CUDA_SUCCESS))
CALL(cudaSetDevice, (int device), device == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE)
CALL(cudaDeviceSynchronize, (void), cuCtxSynchronize())
CALL(cudaDeviceCanAccessPeer, (int *can, int device, int peer),
     cuDeviceCanAccessPeer(can, device, peer))
CALL(cudaDeviceGetAttribute, (int *value, enum cudaDeviceAttr attribute, int device),
     cuDeviceGetAttribute(value, (CUdevice_attribute)attribute, device))
CALL(cudaDeviceGetStreamPriorityRange, (int *least, int *greatest),
     cuCtxGetStreamPriorityRange(least, greatest))
CALL(cudaMemGetInfo, (size_t * free_bytes, size_t *bytes), cuMemGetInfo_v2(free_bytes, bytes))

static CUresult get_properties(struct cudaDeviceProp *out, int device)
{
    memset(out, 0, sizeof *out);
    CUresult result = cuDeviceGetName(out->name, sizeof out->name, device);
    if (result == CUDA_SUCCESS) {
        result = cuDeviceTotalMem_v2(&out->totalGlobalMem, device);
    }
    cuDeviceGetAttribute(&out->major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device);
    cuDeviceGetAttribute(&out->minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device);
    cuDeviceGetAttribute(&out->multiProcessorCount, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
                         device);
    return result;
}

CALL(cudaGetDeviceProperties, (struct cudaDeviceProp * out, int device),
     get_properties(out, device))

/* ---- errors ---- */

const char *cudaGetErrorName(cudaError_t error)
{
    const char *name = NULL;
    return cuGetErrorName((CUresult)error, &name) == CUDA_SUCCESS ? name : "unknown error";
}

const char *cudaGetErrorString(cudaError_t error)
{
    const char *text = NULL;
    return cuGetErrorString((CUresult)error, &text) == CUDA_SUCCESS ? text : "unknown error";
}

cudaError_t cudaGetLastError(void)
{
    cudaError_t error = last_error;
    last_error = cudaSuccess;
    return error;
}

cudaError_t cudaPeekAtLastError(void)
{
    return last_error;
}

/* ---- memory ---- */

CALL(cudaMalloc, (void **out, size_t bytes), cuMemAlloc_v2((CUdeviceptr *)out, bytes))
CALL(cudaFree, (void *pointer), pointer == NULL ? CUDA_SUCCESS : cuMemFree_v2((CUdeviceptr)pointer))
CALL(cudaMallocAsync, (void **out, size_t bytes, cudaStream_t stream),
     cuMemAllocAsync((CUdeviceptr *)out, bytes, stream))
CALL(cudaFreeAsync, (void *pointer, cudaStream_t stream),
     cuMemFreeAsync((CUdeviceptr)pointer, stream))
CALL(cudaDeviceGetDefaultMemPool, (cudaMemPool_t * pool, int device),
     cuDeviceGetDefaultMemPool(pool, device))
CALL(cudaMemPoolGetAttribute, (cudaMemPool_t pool, enum cudaMemPoolAttr attribute, void *value),
     cuMemPoolGetAttribute(pool, (CUmemPool_attribute)attribute, value))
CALL(cudaMemPoolSetAttribute, (cudaMemPool_t pool, enum cudaMemPoolAttr attribute, void *value),
     cuMemPoolSetAttribute(pool, (CUmemPool_attribute)attribute, value))
CALL(cudaMemPoolTrimTo, (cudaMemPool_t pool, size_t bytes), cuMemPoolTrimTo(pool, bytes))

static CUresult absent(void)
{
    return CUDA_ERROR_NOT_SUPPORTED;
}

/* Return the functions for PyTorch's expandable segments. PyTorch ends the process if a function is missing, even one
 * that is never called. */
cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **out, unsigned version,
                                             unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *status)
{
    CUresult result = enter();
    if (result == CUDA_SUCCESS &&
        cuGetProcAddress_v2(symbol, out, (int)version, flags, NULL) != CUDA_SUCCESS) {
        *out = (void *)absent;
    }
    *status = cudaDriverEntryPointSuccess;
    return keep(result);
}

/* ---- streams and events ---- */

CALL(cudaStreamCreateWithPriority, (cudaStream_t * stream, unsigned flags, int priority),
     cuStreamCreateWithPriority(stream, flags, priority))
CALL(cudaStreamGetId, (cudaStream_t stream, unsigned long long *id), cuStreamGetId(stream, id))
CALL(cudaStreamQuery, (cudaStream_t stream), cuStreamQuery(stream))
CALL(cudaStreamSynchronize, (cudaStream_t stream), cuStreamSynchronize(stream))
CALL(cudaStreamWaitEvent, (cudaStream_t stream, cudaEvent_t event, unsigned flags),
     cuStreamWaitEvent(stream, event, flags))
CALL(cudaStreamIsCapturing, (cudaStream_t stream, enum cudaStreamCaptureStatus *status),
     cuStreamIsCapturing(stream, (CUstreamCaptureStatus *)status))
CALL(cudaThreadExchangeStreamCaptureMode, (enum cudaStreamCaptureMode * mode),
     cuThreadExchangeStreamCaptureMode((CUstreamCaptureMode *)mode))
CALL(cudaEventCreateWithFlags, (cudaEvent_t * event, unsigned flags), cuEventCreate(event, flags))
CALL(cudaEventRecord, (cudaEvent_t event, cudaStream_t stream), cuEventRecord(event, stream))
CALL(cudaEventQuery, (cudaEvent_t event), cuEventQuery(event))
CALL(cudaEventSynchronize, (cudaEvent_t event), cuEventSynchronize(event))
CALL(cudaEventDestroy, (cudaEvent_t event), cuEventDestroy_v2(event))

/* ---- functions that no measured program calls ---- */

ABSENT(cudaDeviceEnablePeerAccess, (int peer, unsigned flags))
ABSENT(cudaDeviceGetGraphMemAttribute,
       (int device, enum cudaGraphMemAttributeType attribute, void *value))
ABSENT(cudaDeviceSetGraphMemAttribute,
       (int device, enum cudaGraphMemAttributeType attribute, void *value))
ABSENT(cudaEventElapsedTime, (float *ms, cudaEvent_t start, cudaEvent_t end))
ABSENT(cudaGraphNodeGetDependencies,
       (cudaGraphNode_t node, cudaGraphNode_t *from, cudaGraphEdgeData *edges, size_t *count))
ABSENT(cudaIpcCloseMemHandle, (void *pointer))
ABSENT(cudaIpcGetMemHandle, (cudaIpcMemHandle_t * handle, void *pointer))
ABSENT(cudaIpcOpenMemHandle, (void **pointer, cudaIpcMemHandle_t handle, unsigned flags))
ABSENT(cudaMemcpy, (void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind))
ABSENT(cudaMemcpyAsync,
       (void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream))
ABSENT(cudaMemcpyPeerAsync,
       (void *to, int device, const void *from, int from_device, size_t bytes, cudaStream_t stream))
ABSENT(cudaMemPoolSetAccess,
       (cudaMemPool_t pool, const struct cudaMemAccessDesc *list, size_t count))
ABSENT(cudaStreamGetCaptureInfo,
       (cudaStream_t stream, enum cudaStreamCaptureStatus *status, unsigned long long *id,
        cudaGraph_t *graph, const cudaGraphNode_t **nodes, const cudaGraphEdgeData **edges,
        size_t *count))

/* ---- NVML, through which PyTorch checks for fabric handles: this library is also loaded under that name ---- */

#define NVML_NOT_SUPPORTED 3
#define NVML(name, answer) \
    int name(void)         \
    {                      \
        return answer;     \
    }

NVML(nvmlInit_v2, 0)
NVML(nvmlDeviceGetHandleByPciBusId_v2, 0)
NVML(nvmlDeviceGetComputeRunningProcesses, NVML_NOT_SUPPORTED)
NVML(nvmlDeviceGetNvLinkRemoteDeviceType, NVML_NOT_SUPPORTED)
NVML(nvmlDeviceGetNvLinkRemotePciInfo_v2, NVML_NOT_SUPPORTED)
NVML(nvmlSystemGetCudaDriverVersion_v2, NVML_NOT_SUPPORTED)
