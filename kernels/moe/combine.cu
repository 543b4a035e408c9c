// SPDX-License-Identifier: Apache-2.0
//
// combine: out[t] = scale * sum over j of weights[t, j] * rows[positions[t, j]]; combine_twin.c is
// the definition.
//
// Bytes     (top_k + 1) tokens width elements, 8 tokens top_k of weights and positions: bandwidth.
// Shape     a thread sums one pack of 16 bytes over all choices of the token; a block is in one token, with
//           choices that all the threads read: from the first level cache after the first. Four rows are
//           loaded before the first is used.
// Order     j ascending, so that the sum does not depend on the schedule; a choice that does not count is not
//           read, never multiplied by 0.
// Rounding  every product, sum and scaling by itself, as in the definition: nvcc.cmake forbids the compiler to
//           fuse a product with the sum, and check.kernel_resources counts.
#include "common/vector.cuh"
#include "moe/combine.h"

namespace
{

template <typename T> __device__ float round_if(bool rounds, float value)
{
    return rounds ? flw_to_float(flw_from_float<T>(value)) : value;
}

// Return the weight of a choice, 0 if it does not count.
__device__ float weight_of(const flw_combine_args &args, int64_t at, int32_t row)
{
    const bool counts = row >= 0 && row < args.row_count;
    return !counts ? 0.0f : args.weights == nullptr ? 1.0f : args.weights[at];
}

template <typename T, int N> __device__ void run(const flw_combine_args &args)
{
    const uint32_t token = blockIdx.x / args.blocks_per_row;
    const int32_t i = ((blockIdx.x - token * args.blocks_per_row) * blockDim.x + threadIdx.x) * N;
    if (i >= args.width) {
        return;
    }
    const T *rows = static_cast<const T *>(args.rows) + i;
    const int64_t first = static_cast<int64_t>(token) * args.top_k;
    float sum[N] = {};
#pragma unroll 4
    for (int32_t j = 0; j < args.top_k; j++) {
        const int32_t row =
            args.positions == nullptr ? static_cast<int32_t>(first + j) : args.positions[first + j];
        const float weight = weight_of(args, first + j, row);
        if (weight != 0.0f) { // true for a NaN
            const flw_pack<T, N> pack = flw_read_once<T, N>(rows + row * args.rows_stride);
            for (int n = 0; n < N; n++) {
                const float product =
                    round_if<T>(args.rounds_each, weight * flw_to_float(pack.at[n]));
                sum[n] = round_if<T>(args.rounds_each, sum[n] + product);
            }
        }
        if (i == 0 && row >= args.row_count) {
            flw_raise_flags(args.flags, FALLOW_FLAG_INDEX);
        }
    }
    flw_pack<T, N> out;
    for (int n = 0; n < N; n++) {
        out.at[n] = flw_from_float<T>(args.scale * sum[n]);
    }
    flw_write<T, N>(static_cast<T *>(args.out) + token * args.out_stride + i, out);
}

template <typename T> __device__ void run_as(const flw_combine_args &args)
{
    if (args.is_vector) {
        run<T, 16 / sizeof(T)>(args);
    } else {
        run<T, 1>(args);
    }
}

} // namespace

extern "C" __global__ void __launch_bounds__(FLW_COMBINE_THREADS)
    flw_combine(const flw_combine_args args)
{
    if (args.dtype == FALLOW_BF16) {
        run_as<__nv_bfloat16>(args);
    } else if (args.dtype == FALLOW_F16) {
        run_as<__half>(args);
    } else {
        run_as<float>(args);
    }
}
