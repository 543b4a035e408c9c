/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: queries of addresses: ranges, pointer attributes, handles for other processes.
 * Does not: allocate memory (memory.c) or open another process's. */
#include <string.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/sealed_file.h"
#include "simcuda/forms.h"
#include "simcuda/mempool.h"
#include "simcuda/storage.h"

/* "the allocation by cuMemAlloc() or cuMemAllocPitch() that contains the input pointer"; in a
 * reservation it is the mapping, which has one handle. */
static bool range_of(uint64_t address, uint64_t *begin, uint64_t *bytes)
{
    uint64_t end;
    if (flw_pool_block_at(address, begin, &end)) {
        *bytes = end - *begin;
        return true;
    }
    struct flw_region *region = flw_region_find(address);
    if (region == NULL || region->kind == FLW_REGION_POOLED) {
        return false;
    }
    if (region->kind == FLW_REGION_RESERVATION) {
        struct flw_mapping *mapping = flw_mapping_find(address);
        if (mapping == NULL) {
            return false;
        }
        *begin = mapping->node.begin;
        *bytes = mapping->node.end - mapping->node.begin;
        return true;
    }
    *begin = region->node.begin;
    *bytes = region->bytes;
    return address - *begin < *bytes;
}

CUresult CUDAAPI cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr pointer)
{
    FLW_CALL(cuMemGetAddressRange_v2, FLW_CALL_CONTEXT);
    uint64_t begin = 0;
    uint64_t length = 0;
    FLW_REFUSE_IF(!range_of(pointer, &begin, &length), CUDA_ERROR_NOT_FOUND);
    if (base != NULL) {
        *base = begin; /* "Both parameters pbase and psize are optional." */
    }
    if (bytes != NULL) {
        *bytes = length;
    }
    return CUDA_SUCCESS;
}

static struct flw_device *device_of(uint64_t address)
{
    struct flw_region *region = flw_region_find(address);
    if (region == NULL) {
        return NULL;
    }
    if (region->kind == FLW_REGION_RESERVATION) {
        struct flw_mapping *mapping = flw_mapping_find(address);
        return mapping != NULL ? mapping->physical->device : NULL;
    }
    return region->device;
}

/* True if other processes or network adapters can get the memory. cuMemAlloc's memory has handles
 * (cuIpcGetMemHandle) and can be registered; cuMemCreate's as the properties state; all other
 * memory cannot. */
static bool is_registrable(const struct flw_region *region, const struct flw_mapping *mapping)
{
    return !flw_world.config.without_rdma &&
           (region->kind == FLW_REGION_ALLOCATION ||
            (mapping != NULL &&
             mapping->physical->properties.allocFlags.gpuDirectRDMACapable != 0));
}

static CUresult sharing_attribute(void *data, CUpointer_attribute attribute,
                                  const struct flw_region *region,
                                  const struct flw_mapping *mapping)
{
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        *(bool *)data = region->kind == FLW_REGION_ALLOCATION && !flw_world.profile.is_vgpu;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        *(unsigned long long *)data =
            mapping != NULL ? (unsigned long long)mapping->physical->properties.requestedHandleTypes
                            : 0;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
        *(bool *)data = is_registrable(region, mapping);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        *(CUmemoryPool *)data = region->pool != NULL ? region->pool->handle : NULL;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

static CUresult pointer_attribute(void *data, CUpointer_attribute attribute, CUdeviceptr pointer)
{
    uint64_t begin;
    uint64_t bytes;
    /* not a pointer of this driver */
    FLW_REFUSE_IF(!range_of(pointer, &begin, &bytes), CUDA_ERROR_INVALID_VALUE);
    struct flw_region *region = flw_region_find(pointer);
    struct flw_device *device = device_of(pointer);
    if (region->kind == FLW_REGION_RESERVATION) {
        /* "not necessarily the address of the mapped region, but the address of the mappable address
         * range" */
        begin = region->node.begin;
        bytes = region->bytes;
    }
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        *(CUcontext *)data = region->context != NULL ? region->context->handle : NULL;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *(unsigned *)data =
            region->kind == FLW_REGION_HOST ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        *(CUdeviceptr *)data = pointer;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        FLW_REFUSE_IF(region->host == NULL, CUDA_ERROR_INVALID_VALUE);
        *(void **)data = (char *)region->host + (pointer - region->node.begin);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        *(bool *)data = region->kind == FLW_REGION_MANAGED;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *(int *)data = device != NULL ? device->ordinal : region->context->device->ordinal;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *(CUdeviceptr *)data = begin;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        *(size_t *)data = bytes;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        *(unsigned *)data = region->is_synchronous;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        *(unsigned long long *)data = region->physical != NULL ? region->physical->id : 0;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MAPPED:
        *(bool *)data = true;
        return CUDA_SUCCESS;
    default:
        return sharing_attribute(data, attribute, region, flw_mapping_find(pointer));
    }
}

CUresult CUDAAPI cuPointerGetAttribute(void *data, CUpointer_attribute attribute,
                                       CUdeviceptr pointer)
{
    FLW_CALL(cuPointerGetAttribute, FLW_CALL_CONTEXT);
    FLW_REFUSE_IF(data == NULL, CUDA_ERROR_INVALID_VALUE);
    return pointer_attribute(data, attribute, pointer);
}

/* Size of an attribute; 0: no such attribute. */
static const unsigned char attribute_bytes[] = {
    [CU_POINTER_ATTRIBUTE_CONTEXT] = sizeof(CUcontext),
    [CU_POINTER_ATTRIBUTE_MEMORY_TYPE] = sizeof(unsigned),
    [CU_POINTER_ATTRIBUTE_DEVICE_POINTER] = sizeof(CUdeviceptr),
    [CU_POINTER_ATTRIBUTE_HOST_POINTER] = sizeof(void *),
    [CU_POINTER_ATTRIBUTE_SYNC_MEMOPS] = sizeof(unsigned),
    [CU_POINTER_ATTRIBUTE_BUFFER_ID] = sizeof(unsigned long long),
    [CU_POINTER_ATTRIBUTE_IS_MANAGED] = sizeof(bool),
    [CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL] = sizeof(int),
    [CU_POINTER_ATTRIBUTE_RANGE_START_ADDR] = sizeof(CUdeviceptr),
    [CU_POINTER_ATTRIBUTE_RANGE_SIZE] = sizeof(size_t),
    [CU_POINTER_ATTRIBUTE_MAPPED] = sizeof(bool),
    [CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE] = sizeof(bool),
    [CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES] = sizeof(unsigned long long),
    [CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE] = sizeof(bool),
    [CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE] = sizeof(CUmemoryPool),
};

static bool is_attribute(CUpointer_attribute attribute)
{
    return (size_t)attribute < sizeof attribute_bytes && attribute_bytes[attribute] != 0;
}

/* "this function will not return an error when the ptr encountered is not a valid CUDA pointer.
 * Instead, the attributes are assigned default NULL values and CUDA_SUCCESS is returned." A device
 * is -2 then, as drivers return for memory of no device. */
static void clear_attribute(void *data, CUpointer_attribute attribute)
{
    int none = -2;
    memset(data, 0, attribute_bytes[attribute]);
    if (attribute == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) {
        memcpy(data, &none, sizeof none);
    }
}

CUresult CUDAAPI cuPointerGetAttributes(unsigned count, CUpointer_attribute *attributes,
                                        void **data, CUdeviceptr pointer)
{
    FLW_CALL(cuPointerGetAttribute, FLW_CALL_CONTEXT);
    FLW_REFUSE_IF(attributes == NULL || data == NULL, CUDA_ERROR_INVALID_VALUE);
    for (unsigned i = 0; i < count; i++) {
        FLW_REFUSE_IF(data[i] == NULL || !is_attribute(attributes[i]), CUDA_ERROR_INVALID_VALUE);
        if (pointer_attribute(data[i], attributes[i], pointer) != CUDA_SUCCESS) {
            clear_attribute(data[i], attributes[i]);
        }
    }
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuPointerSetAttribute(const void *value, CUpointer_attribute attribute,
                                       CUdeviceptr pointer)
{
    FLW_CALL(cuPointerGetAttribute, FLW_CALL_CONTEXT);
    struct flw_region *region = flw_region_find(pointer);
    FLW_REFUSE_IF(value == NULL || region == NULL || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS,
                  CUDA_ERROR_INVALID_VALUE);
    /* as observed with a driver for mapped memory */
    FLW_REFUSE_IF(region->kind == FLW_REGION_RESERVATION, CUDA_ERROR_NOT_SUPPORTED);
    unsigned wanted;
    memcpy(&wanted, value, sizeof wanted);
    region->is_synchronous = wanted != 0;
    return CUDA_SUCCESS;
}

/* "If a region of memory is freed with cuMemFree() and a subsequent call to cuMemAlloc() returns
 * memory with the same device address, cuIpcGetMemHandle() will return a unique handle for the new
 * memory." An address inside returns the handle of the whole allocation. */
CUresult CUDAAPI cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr pointer)
{
    FLW_CALL(cuMemGetAddressRange_v2, FLW_CALL_CONTEXT);
    struct flw_region *region = flw_region_find(pointer);
    FLW_REFUSE_IF(handle == NULL || region == NULL || region->kind != FLW_REGION_ALLOCATION,
                  CUDA_ERROR_INVALID_VALUE);
    FLW_REFUSE_IF(flw_world.profile.is_vgpu, CUDA_ERROR_NOT_SUPPORTED);
    uint64_t content[3] = {(uint64_t)getpid(), region->physical->id, region->bytes};
    memset(handle, 0, sizeof *handle);
    memcpy(handle->reserved, content, sizeof content);
    return CUDA_SUCCESS;
}

/* ---- memory as a file for another driver */

/* "All the physical allocations backing the address range must be resident on the same device and have
 * identical allocation properties." */
static CUresult is_one_kind(uint64_t begin, uint64_t end)
{
    const struct flw_mapping *first = flw_mapping_find(begin), *mapping;
    for (uint64_t at = begin; at < end; at = mapping->node.end) {
        mapping = flw_mapping_find(at);
        FLW_REFUSE_IF(mapping == NULL ||
                          memcmp(&mapping->physical->properties, &first->physical->properties,
                                 sizeof first->physical->properties) != 0,
                      CUDA_ERROR_INVALID_VALUE);
    }
    return first->physical->properties.allocFlags.gpuDirectRDMACapable != 0
               ? CUDA_SUCCESS
               : CUDA_ERROR_NOT_SUPPORTED; /* an estimate: it was not created for registration */
}

static CUresult can_be_a_file(uint64_t begin, uint64_t bytes, unsigned long long flags)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), end = begin + bytes;
    const struct flw_region *region = flw_region_find(begin);
    if (bytes == 0 || end < begin || begin % page != 0 || bytes % page != 0 ||
        flags > CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE || region == NULL ||
        end > region->node.end) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    /* The flag requires memory that is coherent with the processor's. */
    FLW_REFUSE_IF(flw_world.config.without_rdma || region->kind == FLW_REGION_HOST || flags != 0,
                  CUDA_ERROR_NOT_SUPPORTED);
    if (region->kind == FLW_REGION_RESERVATION) {
        return is_one_kind(begin, end);
    }
    return region->kind == FLW_REGION_ALLOCATION &&
                   end <= flw_align_up(region->node.begin + region->bytes, page)
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_VALUE;
}

/* Create a file of the range's size, as a dma-buf has; nothing can be read from it. */
static CUresult make_file(int *out, uint64_t bytes)
{
    int file = flw_sealed_file_make("simcuda-dma-buf", bytes);
    if (file < 0) {
        return CUDA_ERROR_OUT_OF_MEMORY; /* the host's */
    }
    *out = file;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemGetHandleForAddressRange(void *handle, CUdeviceptr pointer, size_t bytes,
                                               CUmemRangeHandleType type, unsigned long long flags)
{
    FLW_CALL(cuMemGetAddressRange_v2, FLW_CALL_CONTEXT);
    FLW_REFUSE_IF(handle == NULL || type != CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD,
                  CUDA_ERROR_INVALID_VALUE);
    FLW_TRY(can_be_a_file(pointer, bytes, flags));
    return make_file(handle, bytes);
}
