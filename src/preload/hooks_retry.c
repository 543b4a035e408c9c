/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the wrappers of the other calls that allocate. Each passes its call through.
 * Does not: lend memory of its own.
 */
#include "preload/audit_lend.h"
#include "preload/hooks.h"
#include "preload/real.h"

CUresult flw_hook_cuMemAllocPitch_v2(CUdeviceptr *pointer, size_t *pitch, size_t width_bytes,
                                     size_t height, unsigned element_bytes)
{
    CUresult result =
        flw_real.cuMemAllocPitch_v2(pointer, pitch, width_bytes, height, element_bytes);
    return flw_audit_heed(result, pointer, result == CUDA_SUCCESS ? *pitch * height : 0);
}

CUresult flw_hook_cuMemAllocManaged(CUdeviceptr *pointer, size_t bytes, unsigned flags)
{
    return flw_real.cuMemAllocManaged(pointer, bytes, flags);
}

CUresult flw_hook_cuMemAllocAsync(CUdeviceptr *pointer, size_t bytes, CUstream stream)
{
    return flw_audit_heed(flw_real.cuMemAllocAsync(pointer, bytes, stream), pointer, bytes);
}

CUresult flw_hook_cuMemAllocAsync_ptsz(CUdeviceptr *pointer, size_t bytes, CUstream stream)
{
    return flw_audit_heed(flw_real.cuMemAllocAsync_ptsz(pointer, bytes, stream), pointer, bytes);
}

CUresult flw_hook_cuMemAllocFromPoolAsync(CUdeviceptr *pointer, size_t bytes, CUmemoryPool pool,
                                          CUstream stream)
{
    return flw_audit_heed(flw_real.cuMemAllocFromPoolAsync(pointer, bytes, pool, stream), pointer,
                          bytes);
}

CUresult flw_hook_cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *pointer, size_t bytes,
                                               CUmemoryPool pool, CUstream stream)
{
    return flw_audit_heed(flw_real.cuMemAllocFromPoolAsync_ptsz(pointer, bytes, pool, stream),
                          pointer, bytes);
}

CUresult flw_hook_cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes,
                              const CUmemAllocationProp *properties, unsigned long long flags)
{
    return flw_real.cuMemCreate(handle, bytes, properties, flags);
}

CUresult flw_hook_cuArrayCreate_v2(CUarray *array,
                                   const struct CUDA_ARRAY_DESCRIPTOR_st *descriptor)
{
    return flw_real.cuArrayCreate_v2(array, descriptor);
}

CUresult flw_hook_cuArray3DCreate_v2(CUarray *array,
                                     const struct CUDA_ARRAY3D_DESCRIPTOR_st *descriptor)
{
    return flw_real.cuArray3DCreate_v2(array, descriptor);
}

CUresult flw_hook_cuMipmappedArrayCreate(CUmipmappedArray *array,
                                         const struct CUDA_ARRAY3D_DESCRIPTOR_st *descriptor,
                                         unsigned level_count)
{
    return flw_real.cuMipmappedArrayCreate(array, descriptor, level_count);
}
