// SPDX-License-Identifier: Apache-2.0
//
// silu_and_mul: out[i] = in[i] / (1 + exp(-in[i])) * in[width + i]; silu_and_mul_twin.c is the
// definition.
//
// Bytes     rows width (2 read, 1 written) elements: bandwidth, nothing is read twice.
// Shape     a thread takes 16 bytes of the gate and 16 of the corresponding up half; a block is in one row, so
//           that a row costs one 32-bit division and none of 64. A group of 128 elements that share a scale is
//           16 threads (32 of F32), which find the largest by shuffles; no shared memory.
// Aliasing  a thread reads the gate and up before it writes, and only over its own gate, so out may be in at
//           the same stride.
// Speed     exp and the division are the fast forms: an H200's bandwidth leaves room for 36 instructions per
//           element. silu_and_mul.h derives their errors.
#include "common/quantise.cuh"
#include "moe/silu_and_mul.h"

namespace
{

__device__ float fast_exp2(float y)
{
    float power;
    asm("ex2.approx.f32 %0, %1;" : "=f"(power) : "f"(y));
    return power;
}

__device__ float silu(float x)
{
    return __fdividef(x, 1.0f + fast_exp2(x * -FLW_SILU_LOG2_OF_E));
}

template <typename T> __device__ float activate(T gate, T up, bool rounds_silu)
{
    float value = silu(flw_to_float(gate));
    if (rounds_silu) {
        value = flw_to_float(flw_from_float<T>(value));
    }
    return value * flw_to_float(up);
}

__device__ bool is_written(const flw_silu_and_mul_args &args, uint32_t row)
{
    const uint32_t group_rows = static_cast<uint32_t>(args.group_rows);
    return args.row_counts == nullptr ||
           static_cast<int64_t>(row % group_rows) < args.row_counts[row / group_rows];
}

template <typename T, int N> __device__ void run(const flw_silu_and_mul_args &args)
{
    const uint32_t row = blockIdx.x / args.blocks_per_row;
    const int32_t i = ((blockIdx.x - row * args.blocks_per_row) * blockDim.x + threadIdx.x) * N;
    if (i >= args.width || !is_written(args, row)) {
        return; // a whole group returns, or none of it: 128 divides the width then
    }
    const T *gate_at = static_cast<const T *>(args.in) + row * args.in_stride + i;
    const flw_pack<T, N> gate = flw_read<T, N>(gate_at);
    const flw_pack<T, N> up = flw_read<T, N>(gate_at + args.width);
    float values[N];
    for (int j = 0; j < N; j++) {
        values[j] = activate(gate.at[j], up.at[j], args.rounds_silu);
    }
    if (N == 1 || !args.quantises) {
        flw_pack<T, N> out;
        for (int j = 0; j < N; j++) {
            out.at[j] = flw_from_float<T>(values[j]);
        }
        flw_write<T, N>(static_cast<T *>(args.out) + row * args.out_stride + i, out);
        return;
    }
    if constexpr (N > 1) {
        const float scale = flw_quantise_scale_of<N>(values);
        flw_write<__nv_fp8_e4m3, N>(static_cast<__nv_fp8_e4m3 *>(args.out) + row * args.out_stride +
                                        i,
                                    flw_quantise<N>(values, scale));
        if (i % FLW_QUANTISE_GROUP == 0) {
            const int64_t groups = args.width / FLW_QUANTISE_GROUP;
            args.scales[row * groups + i / FLW_QUANTISE_GROUP] = scale;
        }
    }
}

template <typename T> __device__ void run_as(const flw_silu_and_mul_args &args)
{
    if (args.is_vector) {
        run<T, 16 / sizeof(T)>(args);
    } else {
        run<T, 1>(args);
    }
}

} // namespace

extern "C" __global__ void __launch_bounds__(FLW_SILU_THREADS)
    flw_silu_and_mul(const flw_silu_and_mul_args args)
{
    if (args.dtype == FALLOW_BF16) {
        run_as<__nv_bfloat16>(args);
    } else if (args.dtype == FALLOW_F16) {
        run_as<__half>(args);
    } else {
        run_as<float>(args);
    }
}
