/* SPDX-License-Identifier: Apache-2.0 */
#include "simcuda/storage.h"
bool flw_pool_owns(uint64_t address)
{
    (void)address;
    return false;
}
CUresult flw_pool_free_now(uint64_t address)
{
    (void)address;
    return CUDA_ERROR_INVALID_VALUE;
}
bool flw_pool_block_at(uint64_t a, uint64_t *b, uint64_t *e)
{
    (void)a;
    (void)b;
    (void)e;
    return false;
}
void flw_pool_host_waited(void)
{
}
void flw_pool_finish_all(void)
{
}
CUresult CUDAAPI cuMemAllocAsync(CUdeviceptr *pointer, size_t bytes, CUstream stream)
{
    struct flw_call call;
    (void)pointer;
    (void)bytes;
    (void)stream;
    CUresult r = flw_call_enter(&call, FLW_ENTRY_cuMemAllocAsync, FLW_CALL_PLAIN);
    return flw_call_leave(r == CUDA_SUCCESS ? CUDA_ERROR_NOT_SUPPORTED : r);
}
CUresult CUDAAPI cuMemFreeAsync(CUdeviceptr pointer, CUstream stream)
{
    struct flw_call call;
    (void)pointer;
    (void)stream;
    CUresult r = flw_call_enter(&call, FLW_ENTRY_cuMemFreeAsync, FLW_CALL_PLAIN);
    return flw_call_leave(r == CUDA_SUCCESS ? CUDA_ERROR_NOT_SUPPORTED : r);
}
CUresult CUDAAPI cuMemAllocFromPoolAsync(CUdeviceptr *pointer, size_t bytes, CUmemoryPool pool,
                                         CUstream stream)
{
    struct flw_call call;
    (void)pointer;
    (void)bytes;
    (void)pool;
    (void)stream;
    CUresult r = flw_call_enter(&call, FLW_ENTRY_cuMemAllocFromPoolAsync, FLW_CALL_PLAIN);
    return flw_call_leave(r == CUDA_SUCCESS ? CUDA_ERROR_NOT_SUPPORTED : r);
}
CUresult CUDAAPI cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device)
{
    struct flw_call call;
    (void)pool;
    (void)device;
    CUresult r = flw_call_enter(&call, FLW_ENTRY_cuDeviceGetDefaultMemPool, FLW_CALL_PLAIN);
    return flw_call_leave(r == CUDA_SUCCESS ? CUDA_ERROR_NOT_SUPPORTED : r);
}
CUresult CUDAAPI cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice device)
{
    struct flw_call call;
    (void)pool;
    (void)device;
    CUresult r = flw_call_enter(&call, FLW_ENTRY_cuDeviceGetMemPool, FLW_CALL_PLAIN);
    return flw_call_leave(r == CUDA_SUCCESS ? CUDA_ERROR_NOT_SUPPORTED : r);
}
CUresult CUDAAPI cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool)
{
    struct flw_call call;
    (void)device;
    (void)pool;
    CUresult r = flw_call_enter(&call, FLW_ENTRY_cuDeviceSetMemPool, FLW_CALL_PLAIN);
    return flw_call_leave(r == CUDA_SUCCESS ? CUDA_ERROR_NOT_SUPPORTED : r);
}
CUresult CUDAAPI cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *properties)
{
    struct flw_call call;
    (void)pool;
    (void)properties;
    CUresult r = flw_call_enter(&call, FLW_ENTRY_cuMemPoolCreate, FLW_CALL_PLAIN);
    return flw_call_leave(r == CUDA_SUCCESS ? CUDA_ERROR_NOT_SUPPORTED : r);
}
CUresult CUDAAPI cuMemPoolDestroy(CUmemoryPool pool)
{
    struct flw_call call;
    (void)pool;
    CUresult r = flw_call_enter(&call, FLW_ENTRY_cuMemPoolDestroy, FLW_CALL_PLAIN);
    return flw_call_leave(r == CUDA_SUCCESS ? CUDA_ERROR_NOT_SUPPORTED : r);
}
CUresult CUDAAPI cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute,
                                       void *value)
{
    struct flw_call call;
    (void)pool;
    (void)attribute;
    (void)value;
    CUresult r = flw_call_enter(&call, FLW_ENTRY_cuMemPoolSetAttribute, FLW_CALL_PLAIN);
    return flw_call_leave(r == CUDA_SUCCESS ? CUDA_ERROR_NOT_SUPPORTED : r);
}
CUresult CUDAAPI cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute,
                                       void *value)
{
    struct flw_call call;
    (void)pool;
    (void)attribute;
    (void)value;
    CUresult r = flw_call_enter(&call, FLW_ENTRY_cuMemPoolGetAttribute, FLW_CALL_PLAIN);
    return flw_call_leave(r == CUDA_SUCCESS ? CUDA_ERROR_NOT_SUPPORTED : r);
}
CUresult CUDAAPI cuMemPoolTrimTo(CUmemoryPool pool, size_t keep_bytes)
{
    struct flw_call call;
    (void)pool;
    (void)keep_bytes;
    CUresult r = flw_call_enter(&call, FLW_ENTRY_cuMemPoolTrimTo, FLW_CALL_PLAIN);
    return flw_call_leave(r == CUDA_SUCCESS ? CUDA_ERROR_NOT_SUPPORTED : r);
}
