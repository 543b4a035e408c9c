// SPDX-License-Identifier: Apache-2.0
//
// Owns: the shared device code of kernels: loads of several types, float conversions, scans and
// reductions over a block, flags.
// Does not: launch anything.
#ifndef FLW_KERNELS_DEVICE_CUH
#define FLW_KERNELS_DEVICE_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <stdint.h>

#include "common/integer.h"
#include "fallow/kernels.h"

#define FLW_WARP      32
#define FLW_ALL_LANES 0xffffffffu

__device__ inline int32_t flw_scalar(const int32_t *scalar, int32_t absent)
{
    return scalar == nullptr ? absent : *scalar;
}

// Load I32 or I64.
__device__ inline int64_t flw_get_int(const void *base, int64_t i, bool is_i64)
{
    return is_i64 ? static_cast<const int64_t *>(base)[i] : static_cast<const int32_t *>(base)[i];
}

__device__ inline void flw_put_int(void *base, int64_t i, bool is_i64, int64_t value)
{
    if (is_i64) {
        static_cast<int64_t *>(base)[i] = value;
    } else {
        static_cast<int32_t *>(base)[i] = static_cast<int32_t>(value);
    }
}

__device__ inline void flw_raise_flags(int32_t *flags, int32_t bits)
{
    if (flags != nullptr && bits != 0) {
        atomicOr(flags, bits);
    }
}

// Element types as template arguments: load to float, store from float, to nearest even.
template <typename T> __device__ inline float flw_to_float(T value);
template <> __device__ inline float flw_to_float(float value)
{
    return value;
}
template <> __device__ inline float flw_to_float(__half value)
{
    return __half2float(value);
}
template <> __device__ inline float flw_to_float(__nv_bfloat16 value)
{
    return __bfloat162float(value);
}
template <> __device__ inline float flw_to_float(__nv_fp8_e4m3 value)
{
    return static_cast<float>(value);
}
template <typename T> __device__ inline T flw_from_float(float value);
template <> __device__ inline float flw_from_float(float value)
{
    return value;
}
template <> __device__ inline __half flw_from_float(float value)
{
    return __float2half_rn(value);
}
template <> __device__ inline __nv_bfloat16 flw_from_float(float value)
{
    return __float2bfloat16_rn(value);
}
template <> __device__ inline __nv_fp8_e4m3 flw_from_float(float value)
{
    return __nv_fp8_e4m3(value); // saturates, to nearest even
}

// Return the sum over all threads before this one; *total: over all of the block. Called by every
// thread of the block; `shared` has one element per warp, and may be used again after a
// __syncthreads.
template <typename T> __device__ inline T flw_block_exclusive_sum(T value, T *shared, T *total)
{
    const int lane = threadIdx.x % FLW_WARP, warp = threadIdx.x / FLW_WARP;
    const int warps = (blockDim.x + FLW_WARP - 1) / FLW_WARP;
    T inclusive = value;
    for (int step = 1; step < FLW_WARP; step *= 2) {
        T below = __shfl_up_sync(FLW_ALL_LANES, inclusive, step);
        inclusive += lane >= step ? below : T(0);
    }
    if (lane == FLW_WARP - 1) {
        shared[warp] = inclusive;
    }
    __syncthreads();
    if (warp == 0) {
        T sum = lane < warps ? shared[lane] : T(0);
        for (int step = 1; step < FLW_WARP; step *= 2) {
            T below = __shfl_up_sync(FLW_ALL_LANES, sum, step);
            sum += lane >= step ? below : T(0);
        }
        if (lane < warps) {
            shared[lane] = sum;
        }
    }
    __syncthreads();
    *total = shared[warps - 1];
    return inclusive - value + (warp == 0 ? T(0) : shared[warp - 1]);
}

__device__ inline int64_t flw_warp_max(int64_t value)
{
    for (int step = FLW_WARP / 2; step > 0; step /= 2) {
        int64_t other = __shfl_xor_sync(FLW_ALL_LANES, value, step);
        value = other > value ? other : value;
    }
    return value;
}

// Return the largest of all threads' values, in thread 0. Called by every thread of the block;
// `shared` has one element per warp.
__device__ inline int64_t flw_block_max(int64_t value, int64_t *shared)
{
    const int warps = (blockDim.x + FLW_WARP - 1) / FLW_WARP;
    value = flw_warp_max(value);
    if (threadIdx.x % FLW_WARP == 0) {
        shared[threadIdx.x / FLW_WARP] = value;
    }
    __syncthreads();
    for (int warp = 1; threadIdx.x == 0 && warp < warps; warp++) {
        value = shared[warp] > value ? shared[warp] : value;
    }
    return value;
}

#endif
