/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: questions about addresses: ranges, pointer attributes, handles for other processes.
 * Does not: give memory (memory.c) or open another process's.
 */
#include <string.h>
#include <unistd.h>

#include "simcuda/forms.h"
#include "simcuda/storage.h"

/* "the allocation by cuMemAlloc() or cuMemAllocPitch() that contains the input pointer"; under a
 * reservation it is the mapping, which stands for one handle. */
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
    struct flw_call call;
    CUresult result = flw_call_enter(&call, FLW_ENTRY_cuMemGetAddressRange_v2, FLW_CALL_CONTEXT);
    uint64_t begin = 0;
    uint64_t length = 0;
    if (result == CUDA_SUCCESS && !range_of(pointer, &begin, &length)) {
        result = CUDA_ERROR_NOT_FOUND;
    }
    if (result == CUDA_SUCCESS && base != NULL) {
        *base = begin; /* "Both parameters pbase and psize are optional." */
    }
    if (result == CUDA_SUCCESS && bytes != NULL) {
        *bytes = length;
    }
    return flw_call_leave(result);
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

static CUresult pointer_attribute(void *data, CUpointer_attribute attribute, CUdeviceptr pointer)
{
    uint64_t begin;
    uint64_t bytes;
    if (!range_of(pointer, &begin, &bytes)) {
        return CUDA_ERROR_INVALID_VALUE; /* not a pointer that this driver gave */
    }
    struct flw_region *region = flw_region_find(pointer);
    struct flw_device *device = device_of(pointer);
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
        if (region->host == NULL) {
            return CUDA_ERROR_INVALID_VALUE;
        }
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
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult CUDAAPI cuPointerGetAttribute(void *data, CUpointer_attribute attribute,
                                       CUdeviceptr pointer)
{
    struct flw_call call;
    CUresult result = flw_call_enter(&call, FLW_ENTRY_cuPointerGetAttribute, FLW_CALL_CONTEXT);
    if (result == CUDA_SUCCESS && data == NULL) {
        result = CUDA_ERROR_INVALID_VALUE;
    }
    if (result == CUDA_SUCCESS) {
        result = pointer_attribute(data, attribute, pointer);
    }
    return flw_call_leave(result);
}

/* "this function will not return an error when the ptr encountered is not a valid CUDA pointer.
 * Instead, the attributes are assigned default NULL values and CUDA_SUCCESS is returned." */
static void clear_attribute(void *data, CUpointer_attribute attribute)
{
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        memset(data, 0, sizeof(unsigned));
        break;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *(int *)data = -2; /* as the driver answers for memory of no device */
        break;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_MAPPED:
        memset(data, 0, sizeof(bool));
        break;
    default:
        memset(data, 0, sizeof(void *));
        break;
    }
}

static bool is_attribute(CUpointer_attribute attribute)
{
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPED:
        return true;
    default:
        return false;
    }
}

CUresult CUDAAPI cuPointerGetAttributes(unsigned count, CUpointer_attribute *attributes,
                                        void **data, CUdeviceptr pointer)
{
    struct flw_call call;
    CUresult result = flw_call_enter(&call, FLW_ENTRY_cuPointerGetAttribute, FLW_CALL_CONTEXT);
    if (result == CUDA_SUCCESS && (attributes == NULL || data == NULL)) {
        result = CUDA_ERROR_INVALID_VALUE;
    }
    for (unsigned i = 0; i < count && result == CUDA_SUCCESS; i++) {
        if (data[i] == NULL || !is_attribute(attributes[i])) {
            result = CUDA_ERROR_INVALID_VALUE;
        } else if (pointer_attribute(data[i], attributes[i], pointer) != CUDA_SUCCESS) {
            clear_attribute(data[i], attributes[i]);
        }
    }
    return flw_call_leave(result);
}

CUresult CUDAAPI cuPointerSetAttribute(const void *value, CUpointer_attribute attribute,
                                       CUdeviceptr pointer)
{
    struct flw_call call;
    CUresult result = flw_call_enter(&call, FLW_ENTRY_cuPointerGetAttribute, FLW_CALL_CONTEXT);
    struct flw_region *region = flw_region_find(pointer);
    if (result == CUDA_SUCCESS &&
        (value == NULL || region == NULL || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)) {
        result = CUDA_ERROR_INVALID_VALUE;
    }
    if (result == CUDA_SUCCESS) {
        unsigned wanted;
        memcpy(&wanted, value, sizeof wanted);
        region->is_synchronous = wanted != 0;
    }
    return flw_call_leave(result);
}

/* "If a region of memory is freed with cuMemFree() and a subsequent call to cuMemAlloc() returns
 * memory with the same device address, cuIpcGetMemHandle() will return a unique handle for the new
 * memory." An address inside gives the handle of the whole allocation. */
CUresult CUDAAPI cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr pointer)
{
    struct flw_call call;
    CUresult result = flw_call_enter(&call, FLW_ENTRY_cuMemGetAddressRange_v2, FLW_CALL_CONTEXT);
    struct flw_region *region = flw_region_find(pointer);
    if (result == CUDA_SUCCESS &&
        (handle == NULL || region == NULL || region->kind != FLW_REGION_ALLOCATION)) {
        result = CUDA_ERROR_INVALID_VALUE;
    }
    if (result == CUDA_SUCCESS) {
        uint64_t content[3] = {(uint64_t)getpid(), region->physical->id, region->bytes};
        memset(handle, 0, sizeof *handle);
        memcpy(handle->reserved, content, sizeof content);
    }
    return flw_call_leave(result);
}
