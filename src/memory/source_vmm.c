/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the remapping source: cuMemCreate, cuMemMap, cuMemSetAccess, cuMemUnmap, cuMemRelease.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "fallow/fallow.h"
#include "memory/size_class.h"
#include "memory/source.h"

static void count_call(struct flw_source *source)
{
    atomic_fetch_add_explicit(source->call_count, 1, memory_order_relaxed);
}

static CUmemAllocationProp properties_of(const struct flw_source *source, uint32_t handle_types)
{
    CUmemAllocationProp properties = {0};
    unsigned types = 0;
    types |= (handle_types & FALLOW_HANDLE_FD) != 0 ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : 0u;
    types |= (handle_types & FALLOW_HANDLE_FABRIC) != 0 ? CU_MEM_HANDLE_TYPE_FABRIC : 0u;
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = source->device;
    properties.requestedHandleTypes = (CUmemAllocationHandleType)types;
    return properties;
}

/* An answer that a driver or a device without the feature gives, and a healthy one never. */
static bool says_no(CUresult result)
{
    return result == CUDA_ERROR_NOT_SUPPORTED || result == CUDA_ERROR_INVALID_VALUE;
}

CUresult flw_source_vmm_probe(struct flw_source *source, bool *out_can)
{
    const struct flw_driver *driver = source->driver;
    CUmemAllocationProp properties = properties_of(source, source->handle_types);
    int supported = 0;
    size_t granularity = 0;
    *out_can = false;
    if (driver->cuMemCreate == NULL || driver->cuMemMap == NULL || driver->cuMemUnmap == NULL ||
        driver->cuMemSetAccess == NULL || driver->cuMemRelease == NULL ||
        driver->cuMemAddressReserve == NULL || driver->cuMemAddressFree == NULL ||
        driver->cuMemGetAllocationGranularity == NULL) {
        return CUDA_SUCCESS;
    }
    CUresult result = driver->cuDeviceGetAttribute(
        &supported, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, source->device);
    if (result == CUDA_SUCCESS && supported != 0) {
        result = driver->cuMemGetAllocationGranularity(&granularity, &properties,
                                                       CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
    }
    if (result == CUDA_SUCCESS && flw_is_pow2(granularity)) {
        source->granularity_bytes = flw_max(granularity, FLW_UNIT_BYTES);
        *out_can = true;
    }
    return says_no(result) ? CUDA_SUCCESS : result;
}

static CUresult vmm_reserve(struct flw_source *source, uint64_t bytes, uint64_t align_bytes,
                            uint64_t *out_base)
{
    CUdeviceptr base = 0;
    count_call(source);
    CUresult result = source->driver->cuMemAddressReserve(
        &base, bytes, flw_max(align_bytes, source->granularity_bytes), 0, 0);
    *out_base = base;
    return result;
}

static CUresult vmm_unreserve(struct flw_source *source, uint64_t base, uint64_t bytes)
{
    count_call(source);
    return source->driver->cuMemAddressFree(base, bytes);
}

static CUresult vmm_create(struct flw_source *source, uint64_t bytes, uint32_t handle_types,
                           uint64_t *out_handle)
{
    CUmemAllocationProp properties = properties_of(source, handle_types | source->handle_types);
    CUmemGenericAllocationHandle handle = 0;
    count_call(source);
    CUresult result = source->driver->cuMemCreate(&handle, bytes, &properties, 0);
    *out_handle = handle;
    return result;
}

static CUresult vmm_release(struct flw_source *source, uint64_t handle)
{
    count_call(source);
    return source->driver->cuMemRelease(handle);
}

static CUresult vmm_map(struct flw_source *source, uint64_t address, uint64_t bytes,
                        uint64_t handle)
{
    count_call(source);
    return source->driver->cuMemMap(address, bytes, 0, handle, 0);
}

static CUresult vmm_unmap(struct flw_source *source, uint64_t address, uint64_t bytes)
{
    count_call(source);
    return source->driver->cuMemUnmap(address, bytes);
}

static CUresult vmm_set_access(struct flw_source *source, uint64_t address, uint64_t bytes)
{
    CUmemAccessDesc access[FLW_SOURCE_DEVICES];
    for (uint32_t i = 0; i < source->access_count; i++) {
        access[i].location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        access[i].location.id = source->access_devices[i];
        access[i].flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    }
    count_call(source);
    return source->driver->cuMemSetAccess(address, bytes, access, source->access_count);
}

static CUresult vmm_set_peer(struct flw_source *source, uint64_t address, uint64_t bytes,
                             int device, bool is_allowed)
{
    CUmemAccessDesc access = {0};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = device;
    access.flags = is_allowed ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    count_call(source);
    return source->driver->cuMemSetAccess(address, bytes, &access, 1);
}

const struct flw_source_ops flw_source_vmm = {
    .name = "virtual memory management",
    .remaps = true,
    .reserve = vmm_reserve,
    .unreserve = vmm_unreserve,
    .create = vmm_create,
    .release = vmm_release,
    .map = vmm_map,
    .unmap = vmm_unmap,
    .set_access = vmm_set_access,
    .set_peer = vmm_set_peer,
};
