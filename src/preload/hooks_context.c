/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the wrappers of what makes, ends, selects and synchronises contexts. Each passes its call
 * through.
 * Does not: lend memory.
 */
#include "preload/hooks.h"
#include "preload/real.h"

CUresult flw_hook_cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device)
{
    return flw_real.cuCtxCreate_v2(context, flags, device);
}

CUresult flw_hook_cuCtxCreate_v3(CUcontext *context, struct CUexecAffinityParam_st *affinities,
                                 int affinity_count, unsigned flags, CUdevice device)
{
    return flw_real.cuCtxCreate_v3(context, affinities, affinity_count, flags, device);
}

CUresult flw_hook_cuCtxCreate_v4(CUcontext *context, struct CUctxCreateParams_st *wishes,
                                 unsigned flags, CUdevice device)
{
    return flw_real.cuCtxCreate_v4(context, wishes, flags, device);
}

CUresult flw_hook_cuCtxSetCurrent(CUcontext context)
{
    return flw_real.cuCtxSetCurrent(context);
}

CUresult flw_hook_cuCtxPushCurrent_v2(CUcontext context)
{
    return flw_real.cuCtxPushCurrent_v2(context);
}

CUresult flw_hook_cuCtxDestroy(CUcontext context)
{
    return flw_real.cuCtxDestroy(context);
}

CUresult flw_hook_cuCtxDestroy_v2(CUcontext context)
{
    return flw_real.cuCtxDestroy_v2(context);
}

CUresult flw_hook_cuCtxDetach(CUcontext context)
{
    return flw_real.cuCtxDetach(context);
}

CUresult flw_hook_cuDevicePrimaryCtxReset(CUdevice device)
{
    return flw_real.cuDevicePrimaryCtxReset(device);
}

CUresult flw_hook_cuDevicePrimaryCtxReset_v2(CUdevice device)
{
    return flw_real.cuDevicePrimaryCtxReset_v2(device);
}

CUresult flw_hook_cuDevicePrimaryCtxRelease(CUdevice device)
{
    return flw_real.cuDevicePrimaryCtxRelease(device);
}

CUresult flw_hook_cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    return flw_real.cuDevicePrimaryCtxRelease_v2(device);
}

CUresult flw_hook_cuCtxSynchronize(void)
{
    return flw_real.cuCtxSynchronize();
}

CUresult flw_hook_cuCtxSynchronize_v2(CUcontext context)
{
    return flw_real.cuCtxSynchronize_v2(context);
}

CUresult flw_hook_cuCtxEnablePeerAccess(CUcontext peer, unsigned flags)
{
    return flw_real.cuCtxEnablePeerAccess(peer, flags);
}
