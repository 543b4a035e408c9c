/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: cuInit, the devices and their attributes, the counts of primary contexts. Does not: create
 * contexts. */
#include <stdio.h>
#include <string.h>

#include "simcuda/forms.h"
#include "simcuda/order.h"
#include "simcuda/storage.h"

struct flw_device *flw_device_find(CUdevice device)
{
    if (device < 0 || device >= flw_world.config.device_count) {
        return NULL;
    }
    return &flw_world.device[device];
}

bool flw_device_reaches(CUdevice device, CUdevice other)
{
    CUdevice last = flw_world.config.device_count - 1;
    return device == other || !flw_world.config.lonely_device || (device != last && other != last);
}

CUresult flw_device_enter(struct flw_call *call, enum flw_entry entry, unsigned needs,
                          CUdevice device)
{
    CUresult result = flw_call_enter(call, entry, needs);
    call->device = flw_device_find(device);
    return result == CUDA_SUCCESS && call->device == NULL ? CUDA_ERROR_INVALID_DEVICE : result;
}

CUresult CUDAAPI cuInit(unsigned flags)
{
    FLW_CALL(cuInit, FLW_CALL_BEFORE_INIT);
    /* "Currently, the Flags parameter must be 0." */
    FLW_REFUSE_IF(flags != 0, CUDA_ERROR_INVALID_VALUE);
    /* a message has named the profile */
    FLW_REFUSE_IF(flw_profile_is_wrong(), CUDA_ERROR_INVALID_VALUE);
    flw_world.is_initialised = true;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDriverGetVersion(int *version)
{
    FLW_CALL(cuDriverGetVersion, FLW_CALL_BEFORE_INIT | FLW_CALL_IN_CALLBACK);
    FLW_REFUSE_IF(version == NULL, CUDA_ERROR_INVALID_VALUE);
    *version = flw_world.config.driver_version;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetCount(int *count)
{
    FLW_CALL(cuDeviceGetCount, FLW_CALL_PLAIN);
    FLW_REFUSE_IF(count == NULL, CUDA_ERROR_INVALID_VALUE);
    *count = flw_world.config.device_count;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGet(CUdevice *device, int ordinal)
{
    FLW_CALL_ON_DEVICE(cuDeviceGet, FLW_CALL_PLAIN, ordinal);
    FLW_REFUSE_IF(device == NULL, CUDA_ERROR_INVALID_VALUE);
    *device = ordinal;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetName(char *name, int length, CUdevice device)
{
    FLW_CALL_ON_DEVICE(cuDeviceGetName, FLW_CALL_PLAIN, device);
    FLW_REFUSE_IF(name == NULL || length <= 0, CUDA_ERROR_INVALID_VALUE);
    snprintf(name, (size_t)length, "simulated device %d", device);
    return CUDA_SUCCESS;
}

/* Sixteen bytes, which differ only between devices. */
CUresult CUDAAPI cuDeviceGetUuid_v2(struct CUuuid_st *uuid, CUdevice device)
{
    FLW_CALL_ON_DEVICE(cuDeviceGetName, FLW_CALL_PLAIN, device);
    FLW_REFUSE_IF(uuid == NULL, CUDA_ERROR_INVALID_VALUE);
    const char bytes[16] = {'s', 'i', 'm', 'c', 'u', 'd', 'a', (char)device};
    memcpy(uuid, bytes, sizeof bytes);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    FLW_CALL_ON_DEVICE(cuDeviceTotalMem_v2, FLW_CALL_PLAIN, device);
    FLW_REFUSE_IF(bytes == NULL, CUDA_ERROR_INVALID_VALUE);
    *bytes = flw_world.config.device_bytes;
    return CUDA_SUCCESS;
}

/* The same for every device and profile: those of an H100. An unknown attribute reads 0, like an
 * unsupported feature. */
static const int fixed_attributes[CU_DEVICE_ATTRIBUTE_MAX] = {
    [CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR] = 9,
    [CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT] = FLW_MULTIPROCESSORS,
    [CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK] = 1024,
    [CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X] = 1024,
    [CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y] = 1024,
    [CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z] = 64,
    [CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X] = 0x7fffffff,
    [CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y] = 65535,
    [CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z] = 65535,
    [CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK] = 48 << 10,
    [CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN] = 227 << 10,
    [CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR] = 228 << 10,
    [CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK] = 1 << 10,
    [CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY] = 64 << 10,
    [CU_DEVICE_ATTRIBUTE_WARP_SIZE] = 32,
    [CU_DEVICE_ATTRIBUTE_MAX_PITCH] = 0x7fffffff,
    [CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK] = 65536,
    [CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR] = 65536,
    [CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR] = 2048,
    [CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR] = 32,
    [CU_DEVICE_ATTRIBUTE_CLOCK_RATE] = 1980000,
    [CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE] = 2619000,
    [CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH] = 5120,
    [CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE] = 50 << 20,
    [CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT] = 512,
    [CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT] = 32,
    [CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT] = 512,
    [CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT] = 3,
    [CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY] = 1,
    [CU_DEVICE_ATTRIBUTE_ECC_ENABLED] = 1,
    [CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING] = 1,
    [CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS] = 1,
    [CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED] = 1,
    [CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED] = 1,
    [CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED] = 1,
    [CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO] = 2,
    [CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED] = 1,
    [CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM] = 1,
    [CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH] = 1,
    [CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED] = 1,
};

#define PCI_BUS_FIRST 1 /* of device 0; the others follow */

static int attribute_value(CUdevice_attribute attribute, CUdevice device)
{
    const struct flw_sim_config *config = &flw_world.config;
    switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
        return PCI_BUS_FIRST + device;
    case CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY:
    case CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED:
        return !flw_world.profile.is_vgpu;
    case CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS:
        return flw_world.profile.reads_host;
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED:
        return !config->without_rdma;
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED:
        return !config->without_vmm && !config->without_rdma;
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
        return !config->without_vmm;
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED:
        return !config->without_vmm && !config->without_fabric;
    case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
        return !config->without_pools;
    default:
        return fixed_attributes[attribute];
    }
}

/* False for those of the attributes above that an old driver lacks. */
static bool is_known_attribute(CUdevice_attribute attribute)
{
    bool is_new = attribute == CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED ||
                  attribute >= CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID;
    return attribute >= 1 && attribute < CU_DEVICE_ATTRIBUTE_MAX &&
           !(is_new && flw_world.profile.is_old);
}

CUresult CUDAAPI cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
    FLW_CALL_ON_DEVICE(cuDeviceGetAttribute, FLW_CALL_PLAIN, device);
    FLW_REFUSE_IF(value == NULL || !is_known_attribute(attribute), CUDA_ERROR_INVALID_VALUE);
    *value = attribute_value(attribute, device);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer)
{
    FLW_CALL(cuDeviceCanAccessPeer, FLW_CALL_PLAIN);
    FLW_REFUSE_IF(can == NULL, CUDA_ERROR_INVALID_VALUE);
    FLW_REFUSE_IF(flw_device_find(device) == NULL || flw_device_find(peer) == NULL,
                  CUDA_ERROR_INVALID_DEVICE);
    *can = device != peer && flw_device_reaches(device, peer);
    return CUDA_SUCCESS;
}

/* "in the following format [domain]:[bus]:[device].[function]" */
CUresult CUDAAPI cuDeviceGetPCIBusId(char *text, int length, CUdevice device)
{
    FLW_CALL_ON_DEVICE(cuDeviceGetName, FLW_CALL_PLAIN, device);
    FLW_REFUSE_IF(text == NULL || length <= 0, CUDA_ERROR_INVALID_VALUE);
    snprintf(text, (size_t)length, "0000:%02x:00.0", (unsigned)(PCI_BUS_FIRST + device));
    return CUDA_SUCCESS;
}

/* "[domain]:[bus]:[device].[function], [domain]:[bus]:[device], [bus]:[device].[function]" */
CUresult CUDAAPI cuDeviceGetByPCIBusId(CUdevice *device, const char *text)
{
    FLW_CALL(cuDeviceGet, FLW_CALL_PLAIN);
    FLW_REFUSE_IF(device == NULL || text == NULL, CUDA_ERROR_INVALID_VALUE);
    unsigned place[4] = {0};
    if (sscanf(text, "%x:%x:%x.%x", &place[0], &place[1], &place[2], &place[3]) < 3) {
        memset(place, 0, sizeof place);
        FLW_REFUSE_IF(sscanf(text, "%x:%x.%x", &place[1], &place[2], &place[3]) != 3,
                      CUDA_ERROR_INVALID_VALUE);
    }
    CUdevice found = (CUdevice)place[1] - PCI_BUS_FIRST;
    FLW_REFUSE_IF(place[0] != 0 || place[2] != 0 || place[3] != 0 || flw_device_find(found) == NULL,
                  CUDA_ERROR_INVALID_DEVICE);
    *device = found;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attribute,
                                         CUdevice device, CUdevice peer)
{
    FLW_CALL(cuDeviceCanAccessPeer, FLW_CALL_PLAIN);
    FLW_REFUSE_IF(flw_device_find(device) == NULL || flw_device_find(peer) == NULL,
                  CUDA_ERROR_INVALID_DEVICE);
    /* "or if the srcDevice and dstDevice represent the same device" */
    FLW_REFUSE_IF(device == peer, CUDA_ERROR_INVALID_DEVICE);
    FLW_REFUSE_IF(value == NULL || attribute < CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK ||
                      attribute > CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED,
                  CUDA_ERROR_INVALID_VALUE);
    *value = attribute != CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK &&
             attribute != CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED &&
             flw_device_reaches(device, peer);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes)
{
    FLW_CALL(cuMemGetInfo_v2, FLW_CALL_CONTEXT);
    FLW_REFUSE_IF(free_bytes == NULL || total_bytes == NULL, CUDA_ERROR_INVALID_VALUE);
    flw_memory_collect();
    *total_bytes = flw_world.config.device_bytes;
    *free_bytes = flw_world.config.device_bytes - call.context->device->given_bytes;
    return CUDA_SUCCESS;
}
