/* SPDX-License-Identifier: Apache-2.0
 *
 * A stateless driver, sufficient for a pool: memory is counted-up addresses, events are complete
 * when recorded, one context is current for good. The remaining cost of a pair of calls is the
 * preload library's; cuCtxGetId is a thread-local variable, as in a real driver. */
#include <stdatomic.h>
#include <stdint.h>

#include "driver/driver_types.h"

#define CONTEXT ((CUcontext)(uintptr_t)0x1000)

static _Thread_local unsigned long long context_id = 7;
static _Atomic uint64_t next_address = 0x700000000000ull;
static _Atomic uint64_t next_event = 0x2000;

#define ENTRY(name, parameters)                                              \
    __attribute__((visibility("default"))) CUresult CUDAAPI name parameters; \
    CUresult CUDAAPI name parameters

ENTRY(cuInit, (unsigned flags))
{
    (void)flags;
    return CUDA_SUCCESS;
}

ENTRY(cuDriverGetVersion, (int *version))
{
    *version = 13000;
    return CUDA_SUCCESS;
}

ENTRY(cuDeviceGetCount, (int *count))
{
    *count = 1;
    return CUDA_SUCCESS;
}

ENTRY(cuDeviceGet, (CUdevice * device, int ordinal))
{
    *device = ordinal;
    return CUDA_SUCCESS;
}

ENTRY(cuDeviceTotalMem_v2, (size_t * bytes, CUdevice device))
{
    (void)device;
    *bytes = (size_t)80 << 30;
    return CUDA_SUCCESS;
}

ENTRY(cuDeviceGetAttribute, (int *value, CUdevice_attribute attribute, CUdevice device))
{
    (void)attribute;
    (void)device;
    *value = 0;
    return CUDA_SUCCESS;
}

ENTRY(cuDevicePrimaryCtxRetain, (CUcontext * context, CUdevice device))
{
    (void)device;
    *context = CONTEXT;
    return CUDA_SUCCESS;
}

ENTRY(cuDevicePrimaryCtxRelease_v2, (CUdevice device))
{
    (void)device;
    return CUDA_SUCCESS;
}

ENTRY(cuCtxSetCurrent, (CUcontext context))
{
    (void)context;
    return CUDA_SUCCESS;
}

ENTRY(cuCtxPushCurrent_v2, (CUcontext context))
{
    (void)context;
    return CUDA_SUCCESS;
}

ENTRY(cuCtxPopCurrent_v2, (CUcontext * context))
{
    *context = CONTEXT;
    return CUDA_SUCCESS;
}

ENTRY(cuCtxGetCurrent, (CUcontext * context))
{
    *context = CONTEXT;
    return CUDA_SUCCESS;
}

ENTRY(cuCtxGetDevice, (CUdevice * device))
{
    *device = 0;
    return CUDA_SUCCESS;
}

ENTRY(cuCtxGetId, (CUcontext context, unsigned long long *id))
{
    (void)context;
    *id = context_id;
    return CUDA_SUCCESS;
}

ENTRY(cuThreadExchangeStreamCaptureMode, (CUstreamCaptureMode * mode))
{
    *mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    return CUDA_SUCCESS;
}

ENTRY(cuEventCreate, (CUevent * event, unsigned flags))
{
    (void)flags;
    *event = (CUevent)(uintptr_t)atomic_fetch_add(&next_event, 16);
    return CUDA_SUCCESS;
}

ENTRY(cuEventDestroy_v2, (CUevent event))
{
    (void)event;
    return CUDA_SUCCESS;
}

ENTRY(cuCtxRecordEvent, (CUcontext context, CUevent event))
{
    (void)context;
    (void)event;
    return CUDA_SUCCESS;
}

ENTRY(cuEventQuery, (CUevent event))
{
    (void)event;
    return CUDA_SUCCESS;
}

ENTRY(cuEventSynchronize, (CUevent event))
{
    (void)event;
    return CUDA_SUCCESS;
}

ENTRY(cuCtxSynchronize, (void))
{
    return CUDA_SUCCESS;
}

ENTRY(cuMemGetInfo_v2, (size_t * free_bytes, size_t *total_bytes))
{
    *free_bytes = *total_bytes = (size_t)80 << 30;
    return CUDA_SUCCESS;
}

ENTRY(cuMemAlloc_v2, (CUdeviceptr * pointer, size_t bytes))
{
    uint64_t step = (uint64_t)2 << 20;
    *pointer = atomic_fetch_add(&next_address, (bytes + step - 1) / step * step);
    return CUDA_SUCCESS;
}

ENTRY(cuMemFree_v2, (CUdeviceptr pointer))
{
    (void)pointer;
    return CUDA_SUCCESS;
}
