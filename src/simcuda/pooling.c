/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: driver pools as objects: the default one of a device, explicit ones, their attributes.
 * Does not: allocate from them (mempool.c). */
#include <stdlib.h>

#include "base/bits.h"
#include "simcuda/forms.h"
#include "simcuda/host.h"
#include "simcuda/mempool.h"

#define POOLS (FLW_CALL_POOLS | FLW_CALL_UNSAFE)

struct flw_memory_pool *flw_pool_first(void)
{
    return flw_world.pools;
}

struct flw_memory_pool *flw_pool_find(CUmemoryPool handle)
{
    return flw_table_find(&flw_world.pool_table, (uintptr_t)handle);
}

static struct flw_memory_pool *make_pool(struct flw_device *device)
{
    struct flw_memory_pool *pool = flw_host_get(sizeof *pool);
    pool->device = device;
    pool->follows_events = true;
    pool->is_opportunistic = true;
    pool->makes_dependencies = true;
    pool->handle = (CUmemoryPool)(uintptr_t)flw_table_add(&flw_world.pool_table, pool);
    pool->next = flw_world.pools;
    flw_world.pools = pool;
    return pool;
}

static void free_pool(struct flw_memory_pool *pool)
{
    struct flw_memory_pool **place = &flw_world.pools;
    while (*place != pool) {
        place = &(*place)->next;
    }
    *place = pool->next;
    free(pool);
}

void flw_pool_end_if_unused(struct flw_memory_pool *pool)
{
    flw_pool_trim(pool, 0);
    if (pool->reserved_bytes == 0) {
        free_pool(pool);
    }
}

void flw_pool_finish_all(void)
{
    while (flw_world.pools != NULL) {
        flw_pool_drop_blocks(flw_world.pools);
        free_pool(flw_world.pools);
    }
}

static struct flw_memory_pool *default_pool(struct flw_device *device)
{
    if (device->default_pool == NULL) {
        device->default_pool = make_pool(device);
        device->default_pool->is_default = true;
    }
    return device->default_pool;
}

struct flw_memory_pool *flw_pool_current(struct flw_device *device)
{
    return device->current_pool != NULL ? device->current_pool : default_pool(device);
}

CUresult CUDAAPI cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device)
{
    FLW_CALL_ON_DEVICE(cuDeviceGetDefaultMemPool, FLW_CALL_POOLS, device);
    FLW_REFUSE_IF(pool == NULL, CUDA_ERROR_INVALID_VALUE);
    *pool = default_pool(call.device)->handle;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice device)
{
    FLW_CALL_ON_DEVICE(cuDeviceGetMemPool, FLW_CALL_POOLS, device);
    FLW_REFUSE_IF(pool == NULL, CUDA_ERROR_INVALID_VALUE);
    *pool = flw_pool_current(call.device)->handle;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceSetMemPool(CUdevice device, CUmemoryPool handle)
{
    FLW_CALL_ON_DEVICE(cuDeviceSetMemPool, FLW_CALL_POOLS, device);
    struct flw_memory_pool *pool = flw_pool_find(handle);
    /* "The memory pool must be local to the specified device." */
    FLW_REFUSE_IF(pool == NULL || pool->device != call.device, CUDA_ERROR_INVALID_VALUE);
    call.device->current_pool = pool;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemPoolCreate(CUmemoryPool *out, const CUmemPoolProps *properties)
{
    FLW_CALL(cuMemPoolCreate, POOLS);
    if (out == NULL || properties == NULL ||
        properties->allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
        properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
        flw_device_find(properties->location.id) == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    /* pools between processes are not simulated */
    FLW_REFUSE_IF(properties->handleTypes != CU_MEM_HANDLE_TYPE_NONE, CUDA_ERROR_NOT_SUPPORTED);
    struct flw_memory_pool *pool = make_pool(flw_device_find(properties->location.id));
    pool->max_bytes = properties->maxSize;
    *out = pool->handle;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemPoolDestroy(CUmemoryPool handle)
{
    FLW_CALL(cuMemPoolDestroy, POOLS);
    struct flw_memory_pool *pool = flw_pool_find(handle);
    /* "A device's default memory pool cannot be destroyed." */
    FLW_REFUSE_IF(pool == NULL || pool->is_default, CUDA_ERROR_INVALID_VALUE);
    /* "Destroying the current mempool of a device sets the default mempool ... as the current"
     */
    if (pool->device->current_pool == pool) {
        pool->device->current_pool = NULL;
    }
    flw_table_remove(&flw_world.pool_table, (uintptr_t)handle);
    pool->is_destroyed = true;
    flw_pool_end_if_unused(pool);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemPoolTrimTo(CUmemoryPool handle, size_t keep_bytes)
{
    FLW_CALL(cuMemPoolTrimTo, POOLS);
    struct flw_memory_pool *pool = flw_pool_find(handle);
    FLW_REFUSE_IF(pool == NULL, CUDA_ERROR_INVALID_VALUE);
    flw_pool_trim(pool, keep_bytes);
    return CUDA_SUCCESS;
}

static CUresult set_attribute(struct flw_memory_pool *pool, CUmemPool_attribute attribute,
                              const void *value)
{
    switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
        pool->follows_events = *(const int *)value != 0;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
        pool->is_opportunistic = *(const int *)value != 0;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
        pool->makes_dependencies = *(const int *)value != 0;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        pool->release_threshold = *(const cuuint64_t *)value;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        /* "It is illegal to set this attribute to a non-zero value." */
        FLW_REFUSE_IF(*(const cuuint64_t *)value != 0, CUDA_ERROR_INVALID_VALUE);
        if (attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH) {
            pool->used_high = pool->used_bytes;
        } else {
            pool->reserved_high = pool->reserved_bytes;
        }
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult CUDAAPI cuMemPoolSetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute,
                                       void *value)
{
    FLW_CALL(cuMemPoolSetAttribute, POOLS);
    struct flw_memory_pool *pool = flw_pool_find(handle);
    FLW_REFUSE_IF(pool == NULL || value == NULL, CUDA_ERROR_INVALID_VALUE);
    return set_attribute(pool, attribute, value);
}

static CUresult get_attribute(const struct flw_memory_pool *pool, CUmemPool_attribute attribute,
                              void *value)
{
    cuuint64_t wide = 0;
    switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
        *(int *)value = pool->follows_events;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
        *(int *)value = pool->is_opportunistic;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
        *(int *)value = pool->makes_dependencies;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        wide = pool->release_threshold;
        break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
        wide = pool->reserved_bytes;
        break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        wide = pool->reserved_high;
        break;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
        wide = pool->used_bytes;
        break;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        wide = pool->used_high;
        break;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    *(cuuint64_t *)value = wide;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemPoolGetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute,
                                       void *value)
{
    FLW_CALL(cuMemPoolGetAttribute, POOLS);
    struct flw_memory_pool *pool = flw_pool_find(handle);
    FLW_REFUSE_IF(pool == NULL || value == NULL, CUDA_ERROR_INVALID_VALUE);
    return get_attribute(pool, attribute, value);
}

/* ---- access of devices. The own device always has it. */

static CUresult find_access(const struct flw_memory_pool *pool, const CUmemLocation *location)
{
    FLW_REFUSE_IF(pool == NULL || location == NULL ||
                      location->type != CU_MEM_LOCATION_TYPE_DEVICE ||
                      flw_device_find(location->id) == NULL,
                  CUDA_ERROR_INVALID_VALUE);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool handle,
                                    CUmemLocation *location)
{
    FLW_CALL(cuMemPoolGetAttribute, POOLS);
    struct flw_memory_pool *pool = flw_pool_find(handle);
    FLW_TRY(find_access(pool, location));
    FLW_REFUSE_IF(flags == NULL, CUDA_ERROR_INVALID_VALUE);
    *flags = location->id == pool->device->ordinal ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
                                                   : (CUmemAccess_flags)pool->access[location->id];
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemPoolSetAccess(CUmemoryPool handle, const CUmemAccessDesc *access,
                                    size_t count)
{
    FLW_CALL(cuMemPoolSetAttribute, POOLS);
    struct flw_memory_pool *pool = flw_pool_find(handle);
    FLW_REFUSE_IF(pool == NULL || access == NULL, CUDA_ERROR_INVALID_VALUE);
    for (size_t i = 0; i < count; i++) {
        FLW_TRY(find_access(pool, &access[i].location));
        FLW_REFUSE_IF(access[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE &&
                          access[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
                          access[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
                      CUDA_ERROR_INVALID_VALUE);
        bool is_own = access[i].location.id == pool->device->ordinal;
        FLW_REFUSE_IF(is_own && access[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
                      CUDA_ERROR_INVALID_VALUE);
        FLW_REFUSE_IF(!flw_device_reaches(pool->device->ordinal, access[i].location.id),
                      CUDA_ERROR_INVALID_DEVICE);
    }
    for (size_t i = 0; i < count; i++) {
        pool->access[access[i].location.id] = (unsigned char)access[i].flags;
    }
    flw_world.region_version++;
    return CUDA_SUCCESS;
}
