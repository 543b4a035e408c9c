/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the wrappers of what lends and takes back device memory, and of what is asked about it. Each
 * passes its call through.
 * Does not: know contexts.
 */
#include "preload/audit_lend.h"
#include "preload/hooks.h"
#include "preload/life.h"
#include "preload/real.h"

const struct flw_part flw_part_memory = {0};

CUresult flw_hook_cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes)
{
    return flw_audit_heed(flw_real.cuMemAlloc_v2(pointer, bytes), pointer, bytes);
}

CUresult flw_hook_cuMemFree_v2(CUdeviceptr pointer)
{
    flw_audit_forget(pointer);
    return flw_real.cuMemFree_v2(pointer);
}

CUresult flw_hook_cuMemFreeAsync(CUdeviceptr pointer, CUstream stream)
{
    flw_audit_forget(pointer);
    return flw_real.cuMemFreeAsync(pointer, stream);
}

CUresult flw_hook_cuMemFreeAsync_ptsz(CUdeviceptr pointer, CUstream stream)
{
    flw_audit_forget(pointer);
    return flw_real.cuMemFreeAsync_ptsz(pointer, stream);
}

CUresult flw_hook_cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes)
{
    return flw_real.cuMemGetInfo_v2(free_bytes, total_bytes);
}

CUresult flw_hook_cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr pointer)
{
    return flw_real.cuMemGetAddressRange_v2(base, bytes, pointer);
}

CUresult flw_hook_cuPointerGetAttribute(void *data, CUpointer_attribute attribute,
                                        CUdeviceptr pointer)
{
    return flw_real.cuPointerGetAttribute(data, attribute, pointer);
}

CUresult flw_hook_cuPointerGetAttributes(unsigned count, CUpointer_attribute *attributes,
                                         void **data, CUdeviceptr pointer)
{
    return flw_real.cuPointerGetAttributes(count, attributes, data, pointer);
}

CUresult flw_hook_cuPointerSetAttribute(const void *value, CUpointer_attribute attribute,
                                        CUdeviceptr pointer)
{
    return flw_real.cuPointerSetAttribute(value, attribute, pointer);
}

CUresult flw_hook_cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr pointer)
{
    flw_audit_expose(pointer);
    return flw_real.cuIpcGetMemHandle(handle, pointer);
}

CUresult flw_hook_cuMemGetHandleForAddressRange(void *handle, CUdeviceptr pointer, size_t bytes,
                                                CUmemRangeHandleType type, unsigned long long flags)
{
    flw_audit_expose(pointer);
    return flw_real.cuMemGetHandleForAddressRange(handle, pointer, bytes, type, flags);
}
