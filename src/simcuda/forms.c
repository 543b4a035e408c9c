/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: per-thread twins (NULL means the calling thread's own default stream), other binary interfaces
 * and launches by other names: each leads to the entry point that does the work.
 * Does not: hold rules of its own.
 */
#include "simcuda/forms.h"

#define FORWARD(symbol, since, before, parameters, call) \
    CUresult CUDAAPI symbol parameters                   \
    {                                                    \
        return call;                                     \
    }
FLW_FORWARDED_FORMS(FORWARD)
#undef FORWARD

FLW_SIM_NEWER(cuCtxCreate_v4, (CUcontext * context, struct CUctxCreateParams_st *wishes,
                               unsigned flags, CUdevice device))
{
    return wishes != NULL ? CUDA_ERROR_NOT_SUPPORTED : cuCtxCreate_v2(context, flags, device);
}

CUresult CUDAAPI cuLaunchKernelEx(const struct CUlaunchConfig_st *config, CUfunction function,
                                  void **parameters, void **extra)
{
    FLW_REFUSE_IF(config == NULL, CUDA_ERROR_INVALID_VALUE);
    return cuLaunchKernel(function, config->gridDimX, config->gridDimY, config->gridDimZ,
                          config->blockDimX, config->blockDimY, config->blockDimZ,
                          config->sharedMemBytes, config->hStream, parameters, extra);
}

CUresult CUDAAPI cuLaunchKernelEx_ptsz(const struct CUlaunchConfig_st *config, CUfunction function,
                                       void **parameters, void **extra)
{
    FLW_REFUSE_IF(config == NULL, CUDA_ERROR_INVALID_VALUE);
    struct CUlaunchConfig_st changed = *config;
    changed.hStream = flw_own_stream(config->hStream);
    return cuLaunchKernelEx(&changed, function, parameters, extra);
}
