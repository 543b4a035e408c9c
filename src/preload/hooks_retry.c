/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the wrappers of the other calls that allocate. Each passes its call through; where the driver
 * has no memory for it, what idles in pools goes back and it is tried once more.
 * Does not: lend memory of its own.
 */
#include "heap/epoch.h"
#include "preload/audit_lend.h"
#include "preload/homes.h"
#include "preload/hooks.h"
#include "preload/real.h"

/* The driver has no memory: is there some now, so that the call is worth another try? */
static bool made_room(CUresult result)
{
    if (result != CUDA_ERROR_OUT_OF_MEMORY || !flw_homes_serve() || flw_captures_are_open() ||
        flw_homes_trim() == 0) {
        return false;
    }
    flw_home_count(&flw_home_counts.retries);
    return true;
}

static CUresult tried_again(CUresult result)
{
    if (result == CUDA_SUCCESS) {
        flw_home_count(&flw_home_counts.retries_served);
    }
    return result;
}

CUresult flw_hook_cuMemAllocPitch_v2(CUdeviceptr *pointer, size_t *pitch, size_t width_bytes,
                                     size_t height, unsigned element_bytes)
{
    CUresult result =
        flw_real.cuMemAllocPitch_v2(pointer, pitch, width_bytes, height, element_bytes);
    if (made_room(result)) {
        result = tried_again(
            flw_real.cuMemAllocPitch_v2(pointer, pitch, width_bytes, height, element_bytes));
    }
    return flw_audit_heed(result, pointer, result == CUDA_SUCCESS ? *pitch * height : 0);
}

CUresult flw_hook_cuMemAllocManaged(CUdeviceptr *pointer, size_t bytes, unsigned flags)
{
    CUresult result = flw_real.cuMemAllocManaged(pointer, bytes, flags);
    if (made_room(result)) {
        result = tried_again(flw_real.cuMemAllocManaged(pointer, bytes, flags));
    }
    return result;
}

CUresult flw_hook_cuMemAllocAsync(CUdeviceptr *pointer, size_t bytes, CUstream stream)
{
    CUresult result = flw_real.cuMemAllocAsync(pointer, bytes, stream);
    if (made_room(result)) {
        result = tried_again(flw_real.cuMemAllocAsync(pointer, bytes, stream));
    }
    return flw_audit_heed(result, pointer, bytes);
}

CUresult flw_hook_cuMemAllocAsync_ptsz(CUdeviceptr *pointer, size_t bytes, CUstream stream)
{
    CUresult result = flw_real.cuMemAllocAsync_ptsz(pointer, bytes, stream);
    if (made_room(result)) {
        result = tried_again(flw_real.cuMemAllocAsync_ptsz(pointer, bytes, stream));
    }
    return flw_audit_heed(result, pointer, bytes);
}

CUresult flw_hook_cuMemAllocFromPoolAsync(CUdeviceptr *pointer, size_t bytes, CUmemoryPool pool,
                                          CUstream stream)
{
    CUresult result = flw_real.cuMemAllocFromPoolAsync(pointer, bytes, pool, stream);
    if (made_room(result)) {
        result = tried_again(flw_real.cuMemAllocFromPoolAsync(pointer, bytes, pool, stream));
    }
    return flw_audit_heed(result, pointer, bytes);
}

CUresult flw_hook_cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *pointer, size_t bytes,
                                               CUmemoryPool pool, CUstream stream)
{
    CUresult result = flw_real.cuMemAllocFromPoolAsync_ptsz(pointer, bytes, pool, stream);
    if (made_room(result)) {
        result = tried_again(flw_real.cuMemAllocFromPoolAsync_ptsz(pointer, bytes, pool, stream));
    }
    return flw_audit_heed(result, pointer, bytes);
}

CUresult flw_hook_cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes,
                              const CUmemAllocationProp *properties, unsigned long long flags)
{
    CUresult result = flw_real.cuMemCreate(handle, bytes, properties, flags);
    if (made_room(result)) {
        result = tried_again(flw_real.cuMemCreate(handle, bytes, properties, flags));
    }
    return result;
}

CUresult flw_hook_cuArrayCreate_v2(CUarray *array,
                                   const struct CUDA_ARRAY_DESCRIPTOR_st *descriptor)
{
    CUresult result = flw_real.cuArrayCreate_v2(array, descriptor);
    if (made_room(result)) {
        result = tried_again(flw_real.cuArrayCreate_v2(array, descriptor));
    }
    return result;
}

CUresult flw_hook_cuArray3DCreate_v2(CUarray *array,
                                     const struct CUDA_ARRAY3D_DESCRIPTOR_st *descriptor)
{
    CUresult result = flw_real.cuArray3DCreate_v2(array, descriptor);
    if (made_room(result)) {
        result = tried_again(flw_real.cuArray3DCreate_v2(array, descriptor));
    }
    return result;
}

CUresult flw_hook_cuMipmappedArrayCreate(CUmipmappedArray *array,
                                         const struct CUDA_ARRAY3D_DESCRIPTOR_st *descriptor,
                                         unsigned level_count)
{
    CUresult result = flw_real.cuMipmappedArrayCreate(array, descriptor, level_count);
    if (made_room(result)) {
        result = tried_again(flw_real.cuMipmappedArrayCreate(array, descriptor, level_count));
    }
    return result;
}
