/* SPDX-License-Identifier: Apache-2.0 */
#include "simcuda/launch.h"
CUresult flw_kernel_run(struct flw_stream *stream, const struct flw_work *work, uint64_t sequence,
                        const struct flw_order_clock *clock)
{
    (void)stream;
    (void)work;
    (void)sequence;
    (void)clock;
    return CUDA_ERROR_NOT_SUPPORTED;
}
void flw_kernel_copy_parameters(struct flw_work *work)
{
    (void)work;
}
CUresult CUDAAPI cuModuleLoadData(CUmodule *module, const void *image)
{
    struct flw_call call;
    (void)module;
    (void)image;
    CUresult r = flw_call_enter(&call, FLW_ENTRY_cuModuleLoadData, FLW_CALL_PLAIN);
    return flw_call_leave(r == CUDA_SUCCESS ? CUDA_ERROR_NOT_SUPPORTED : r);
}
CUresult CUDAAPI cuModuleUnload(CUmodule module)
{
    struct flw_call call;
    (void)module;
    CUresult r = flw_call_enter(&call, FLW_ENTRY_cuModuleUnload, FLW_CALL_PLAIN);
    return flw_call_leave(r == CUDA_SUCCESS ? CUDA_ERROR_NOT_SUPPORTED : r);
}
CUresult CUDAAPI cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
    struct flw_call call;
    (void)function;
    (void)module;
    (void)name;
    CUresult r = flw_call_enter(&call, FLW_ENTRY_cuModuleGetFunction, FLW_CALL_PLAIN);
    return flw_call_leave(r == CUDA_SUCCESS ? CUDA_ERROR_NOT_SUPPORTED : r);
}
CUresult CUDAAPI cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y,
                                unsigned grid_z, unsigned block_x, unsigned block_y,
                                unsigned block_z, unsigned shared_bytes, CUstream stream,
                                void **parameters, void **extra)
{
    struct flw_call call;
    (void)function;
    (void)grid_x;
    (void)grid_y;
    (void)grid_z;
    (void)block_x;
    (void)block_y;
    (void)block_z;
    (void)shared_bytes;
    (void)stream;
    (void)parameters;
    (void)extra;
    CUresult r = flw_call_enter(&call, FLW_ENTRY_cuLaunchKernel, FLW_CALL_PLAIN);
    return flw_call_leave(r == CUDA_SUCCESS ? CUDA_ERROR_NOT_SUPPORTED : r);
}
