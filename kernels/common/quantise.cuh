// SPDX-License-Identifier: Apache-2.0
//
// Owns: the device code of quantise.h: a group is spread over consecutive threads of one warp, N
// elements each.
// Does not: know a row.
#ifndef FLW_KERNELS_QUANTISE_CUH
#define FLW_KERNELS_QUANTISE_CUH

#include "common/quantise.h"
#include "common/vector.cuh"

// Return the scale of this thread's group; called by all threads of a group.
template <int N> __device__ inline float flw_quantise_scale_of(const float (&values)[N])
{
    constexpr int threads = FLW_QUANTISE_GROUP / N;
    const unsigned first = threadIdx.x % FLW_WARP / threads * threads;
    const unsigned mask = threads == FLW_WARP ? FLW_ALL_LANES : ((1u << threads) - 1) << first;
    float largest = FLW_QUANTISE_LEAST;
    for (int j = 0; j < N; j++) {
        largest = fmaxf(largest, fabsf(values[j])); // a NaN does not count
    }
    for (int step = threads / 2; step > 0; step /= 2) {
        largest = fmaxf(largest, __shfl_xor_sync(mask, largest, step));
    }
    return largest / FLW_QUANTISE_TOP;
}

template <int N>
__device__ inline flw_pack<__nv_fp8_e4m3, N> flw_quantise(const float (&values)[N], float scale)
{
    flw_pack<__nv_fp8_e4m3, N> pack;
    for (int j = 0; j < N; j++) {
        pack.at[j] = flw_from_float<__nv_fp8_e4m3>(values[j] / scale);
    }
    return pack;
}

#endif
