/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the wrappers of what writes device memory, memsets and launches. Each passes its call through.
 * Does not: lend memory.
 */
#include "preload/hooks.h"
#include "preload/life.h"
#include "preload/real.h"

const struct flw_part flw_part_fill = {0};

CUresult flw_hook_cuMemsetD8_v2(CUdeviceptr pointer, unsigned char value, size_t count)
{
    return flw_real.cuMemsetD8_v2(pointer, value, count);
}

CUresult flw_hook_cuMemsetD8_v2_ptds(CUdeviceptr pointer, unsigned char value, size_t count)
{
    return flw_real.cuMemsetD8_v2_ptds(pointer, value, count);
}

CUresult flw_hook_cuMemsetD8Async(CUdeviceptr pointer, unsigned char value, size_t count,
                                  CUstream stream)
{
    return flw_real.cuMemsetD8Async(pointer, value, count, stream);
}

CUresult flw_hook_cuMemsetD8Async_ptsz(CUdeviceptr pointer, unsigned char value, size_t count,
                                       CUstream stream)
{
    return flw_real.cuMemsetD8Async_ptsz(pointer, value, count, stream);
}

CUresult flw_hook_cuMemsetD16_v2(CUdeviceptr pointer, unsigned short value, size_t count)
{
    return flw_real.cuMemsetD16_v2(pointer, value, count);
}

CUresult flw_hook_cuMemsetD16_v2_ptds(CUdeviceptr pointer, unsigned short value, size_t count)
{
    return flw_real.cuMemsetD16_v2_ptds(pointer, value, count);
}

CUresult flw_hook_cuMemsetD16Async(CUdeviceptr pointer, unsigned short value, size_t count,
                                   CUstream stream)
{
    return flw_real.cuMemsetD16Async(pointer, value, count, stream);
}

CUresult flw_hook_cuMemsetD16Async_ptsz(CUdeviceptr pointer, unsigned short value, size_t count,
                                        CUstream stream)
{
    return flw_real.cuMemsetD16Async_ptsz(pointer, value, count, stream);
}

CUresult flw_hook_cuMemsetD32_v2(CUdeviceptr pointer, unsigned value, size_t count)
{
    return flw_real.cuMemsetD32_v2(pointer, value, count);
}

CUresult flw_hook_cuMemsetD32_v2_ptds(CUdeviceptr pointer, unsigned value, size_t count)
{
    return flw_real.cuMemsetD32_v2_ptds(pointer, value, count);
}

CUresult flw_hook_cuMemsetD32Async(CUdeviceptr pointer, unsigned value, size_t count,
                                   CUstream stream)
{
    return flw_real.cuMemsetD32Async(pointer, value, count, stream);
}

CUresult flw_hook_cuMemsetD32Async_ptsz(CUdeviceptr pointer, unsigned value, size_t count,
                                        CUstream stream)
{
    return flw_real.cuMemsetD32Async_ptsz(pointer, value, count, stream);
}

CUresult flw_hook_cuMemsetD2D8_v2(CUdeviceptr pointer, size_t pitch, unsigned char value,
                                  size_t width, size_t height)
{
    return flw_real.cuMemsetD2D8_v2(pointer, pitch, value, width, height);
}

CUresult flw_hook_cuMemsetD2D8_v2_ptds(CUdeviceptr pointer, size_t pitch, unsigned char value,
                                       size_t width, size_t height)
{
    return flw_real.cuMemsetD2D8_v2_ptds(pointer, pitch, value, width, height);
}

CUresult flw_hook_cuMemsetD2D8Async(CUdeviceptr pointer, size_t pitch, unsigned char value,
                                    size_t width, size_t height, CUstream stream)
{
    return flw_real.cuMemsetD2D8Async(pointer, pitch, value, width, height, stream);
}

CUresult flw_hook_cuMemsetD2D8Async_ptsz(CUdeviceptr pointer, size_t pitch, unsigned char value,
                                         size_t width, size_t height, CUstream stream)
{
    return flw_real.cuMemsetD2D8Async_ptsz(pointer, pitch, value, width, height, stream);
}

CUresult flw_hook_cuMemsetD2D16_v2(CUdeviceptr pointer, size_t pitch, unsigned short value,
                                   size_t width, size_t height)
{
    return flw_real.cuMemsetD2D16_v2(pointer, pitch, value, width, height);
}

CUresult flw_hook_cuMemsetD2D16_v2_ptds(CUdeviceptr pointer, size_t pitch, unsigned short value,
                                        size_t width, size_t height)
{
    return flw_real.cuMemsetD2D16_v2_ptds(pointer, pitch, value, width, height);
}

CUresult flw_hook_cuMemsetD2D16Async(CUdeviceptr pointer, size_t pitch, unsigned short value,
                                     size_t width, size_t height, CUstream stream)
{
    return flw_real.cuMemsetD2D16Async(pointer, pitch, value, width, height, stream);
}

CUresult flw_hook_cuMemsetD2D16Async_ptsz(CUdeviceptr pointer, size_t pitch, unsigned short value,
                                          size_t width, size_t height, CUstream stream)
{
    return flw_real.cuMemsetD2D16Async_ptsz(pointer, pitch, value, width, height, stream);
}

CUresult flw_hook_cuMemsetD2D32_v2(CUdeviceptr pointer, size_t pitch, unsigned value, size_t width,
                                   size_t height)
{
    return flw_real.cuMemsetD2D32_v2(pointer, pitch, value, width, height);
}

CUresult flw_hook_cuMemsetD2D32_v2_ptds(CUdeviceptr pointer, size_t pitch, unsigned value,
                                        size_t width, size_t height)
{
    return flw_real.cuMemsetD2D32_v2_ptds(pointer, pitch, value, width, height);
}

CUresult flw_hook_cuMemsetD2D32Async(CUdeviceptr pointer, size_t pitch, unsigned value,
                                     size_t width, size_t height, CUstream stream)
{
    return flw_real.cuMemsetD2D32Async(pointer, pitch, value, width, height, stream);
}

CUresult flw_hook_cuMemsetD2D32Async_ptsz(CUdeviceptr pointer, size_t pitch, unsigned value,
                                          size_t width, size_t height, CUstream stream)
{
    return flw_real.cuMemsetD2D32Async_ptsz(pointer, pitch, value, width, height, stream);
}

CUresult flw_hook_cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y,
                                 unsigned grid_z, unsigned block_x, unsigned block_y,
                                 unsigned block_z, unsigned shared_bytes, CUstream stream,
                                 void **parameters, void **extra)
{
    return flw_real.cuLaunchKernel(function, grid_x, grid_y, grid_z, block_x, block_y, block_z,
                                   shared_bytes, stream, parameters, extra);
}

CUresult flw_hook_cuLaunchKernel_ptsz(CUfunction function, unsigned grid_x, unsigned grid_y,
                                      unsigned grid_z, unsigned block_x, unsigned block_y,
                                      unsigned block_z, unsigned shared_bytes, CUstream stream,
                                      void **parameters, void **extra)
{
    return flw_real.cuLaunchKernel_ptsz(function, grid_x, grid_y, grid_z, block_x, block_y, block_z,
                                        shared_bytes, stream, parameters, extra);
}

CUresult flw_hook_cuLaunchKernelEx(const struct CUlaunchConfig_st *config, CUfunction function,
                                   void **parameters, void **extra)
{
    return flw_real.cuLaunchKernelEx(config, function, parameters, extra);
}

CUresult flw_hook_cuLaunchKernelEx_ptsz(const struct CUlaunchConfig_st *config, CUfunction function,
                                        void **parameters, void **extra)
{
    return flw_real.cuLaunchKernelEx_ptsz(config, function, parameters, extra);
}

CUresult flw_hook_cuLaunchCooperativeKernel(CUfunction function, unsigned grid_x, unsigned grid_y,
                                            unsigned grid_z, unsigned block_x, unsigned block_y,
                                            unsigned block_z, unsigned shared_bytes,
                                            CUstream stream, void **parameters)
{
    return flw_real.cuLaunchCooperativeKernel(function, grid_x, grid_y, grid_z, block_x, block_y,
                                              block_z, shared_bytes, stream, parameters);
}

CUresult flw_hook_cuLaunchCooperativeKernel_ptsz(CUfunction function, unsigned grid_x,
                                                 unsigned grid_y, unsigned grid_z, unsigned block_x,
                                                 unsigned block_y, unsigned block_z,
                                                 unsigned shared_bytes, CUstream stream,
                                                 void **parameters)
{
    return flw_real.cuLaunchCooperativeKernel_ptsz(function, grid_x, grid_y, grid_z, block_x,
                                                   block_y, block_z, shared_bytes, stream,
                                                   parameters);
}
