// SPDX-License-Identifier: Apache-2.0
//
// merge_states: out = (w_a a + w_b b) / (w_a + w_b), w = exp(lse - max of both);
// merge_states_twin.c is the definition.
//
// Bytes     tokens heads (3 width elements and 3 x 4 of LSE): bandwidth, nothing is read twice.
// Shape     a block owns whole rows, a row being a head of a token. First one thread per row reads both LSE,
//           stores the two weights in shared memory and writes the row's LSE. After the barrier a thread
//           mixes 16 bytes of each of two rows, loaded before the first is used. Rows have one stride, so that
//           only the threads of the LSE divide.
// Aliasing  a and out: a thread reads the packs that it then writes, and no others. LSE: the one thread
//           that reads a row's LSE then writes it; the others use shared memory. So out may be a or b, and
//           out_lse a_lse or b_lse, for any width: no row is shared by two blocks.
// Selects   a side with weight 0 is not loaded, never multiplied by 0.
#include "attention/merge_states.h"
#include "common/vector.cuh"

#include <type_traits>

namespace
{

struct mix {
    float a, b;
};

__device__ float without_keys(float lse)
{
    return isinf(lse) ? -INFINITY : lse;
}

__device__ mix mix_of(const flw_merge_states_args &args, float a, float b, float *lse)
{
    if (isnan(a) || isnan(b)) {
        *lse = __int_as_float(0x7fc00000);
        return {*lse, *lse};
    }
    a = without_keys(a);
    b = without_keys(b);
    const float most = fmaxf(a, b);
    *lse = most;
    if (isinf(most)) {
        return {args.keeps_a ? 1.0f : 0.0f, 0.0f};
    }
    const float difference = most - fminf(a, b);
    if (difference >= (args.is_base_2 ? FLW_MERGE_FAR_2 : FLW_MERGE_FAR)) {
        return {a > b ? 1.0f : 0.0f, a > b ? 0.0f : 1.0f};
    }
    const float weight = args.is_base_2 ? exp2f(-difference) : expf(-difference);
    *lse = fmaf(log1pf(weight), args.is_base_2 ? FLW_MERGE_LOG2_OF_E : 1.0f, most);
    const float less = weight / (1.0f + weight), more = 1.0f / (1.0f + weight);
    return {a >= b ? more : less, a >= b ? less : more};
}

__device__ int64_t lse_at(const flw_merge_states_args &args, int64_t stride, uint32_t token,
                          uint32_t head)
{
    return args.lse_by_token ? token * stride + head : head * stride + token;
}

// Read a row's LSE, then write it.
__device__ mix take_lse(const flw_merge_states_args &args, int32_t context, uint32_t row)
{
    const uint32_t token = row / static_cast<uint32_t>(args.heads);
    const uint32_t head = row - token * static_cast<uint32_t>(args.heads);
    float lse = args.b_lse[lse_at(args, args.b_lse_stride, token, head)];
    mix parts = {0.0f, 1.0f};
    if (static_cast<int32_t>(token) < context) {
        const float a = args.a_lse[lse_at(args, args.a_lse_stride, token, head)];
        parts = mix_of(args, a, lse, &lse);
    }
    if (args.out_lse != nullptr) {
        args.out_lse[lse_at(args, args.out_lse_stride, token, head)] = lse;
    }
    return parts;
}

__device__ bool is_read(float part)
{
    return part != 0.0f && !isnan(part);
}

template <typename T, typename O, int N>
__device__ flw_pack<O, N> blend(const mix &parts, const flw_pack<T, N> &a, const flw_pack<T, N> &b,
                                float scale)
{
    const bool copies_a = parts.b == 0.0f && parts.a != 0.0f;
    const bool copies_b = parts.a == 0.0f && parts.b != 0.0f;
    flw_pack<O, N> out;
    for (int n = 0; n < N; n++) {
        const float of_a = flw_to_float(a.at[n]), of_b = flw_to_float(b.at[n]);
        const float merged = fmaf(parts.a, of_a, parts.b * of_b);
        if constexpr (std::is_same<T, O>::value) { // a copy keeps the bits
            out.at[n] = copies_a ? a.at[n] : copies_b ? b.at[n] : flw_from_float<T>(merged);
        } else {
            out.at[n] = flw_from_float<O>((copies_a ? of_a : copies_b ? of_b : merged) / scale);
        }
    }
    return out;
}

template <typename T, typename O, int N>
__device__ void run(const flw_merge_states_args &args, mix *parts)
{
    const uint32_t per_block = args.rows_per_pass * FLW_MERGE_PASSES;
    const uint32_t rows = static_cast<uint32_t>(args.tokens) * static_cast<uint32_t>(args.heads);
    const uint32_t first = blockIdx.x * per_block;
    const uint32_t count = min(per_block, rows - first);
    const int32_t context = flw_scalar(args.context_tokens, args.tokens);
    for (uint32_t r = threadIdx.x; r < count; r += blockDim.x) {
        parts[r] = take_lse(args, context, first + r);
    }
    const float scale = args.out_scale == nullptr ? 1.0f : *args.out_scale;
    __syncthreads();

    const uint32_t slot = threadIdx.x / args.threads_per_row;
    if (slot >= args.rows_per_pass) {
        return;
    }
    const uint32_t lane = threadIdx.x - slot * args.threads_per_row;
    for (int32_t i = lane * N; i < args.width; i += args.threads_per_row * N) {
        flw_pack<T, N> a[FLW_MERGE_PASSES] = {}, b[FLW_MERGE_PASSES] = {};
#pragma unroll
        for (int pass = 0; pass < FLW_MERGE_PASSES; pass++) {
            const uint32_t r = slot + pass * args.rows_per_pass;
            const int64_t row = first + r;
            if (r < count && is_read(parts[r].a)) {
                a[pass] = flw_read<T, N>(static_cast<const T *>(args.a) + row * args.a_stride + i);
            }
            if (r < count && is_read(parts[r].b)) {
                b[pass] = flw_read<T, N>(static_cast<const T *>(args.b) + row * args.b_stride + i);
            }
        }
#pragma unroll
        for (int pass = 0; pass < FLW_MERGE_PASSES; pass++) {
            const uint32_t r = slot + pass * args.rows_per_pass;
            const int64_t row = first + r;
            if (r < count) {
                flw_write<O, N>(static_cast<O *>(args.out) + row * args.out_stride + i,
                                blend<T, O, N>(parts[r], a[pass], b[pass], scale));
            }
        }
    }
}

template <typename T> __device__ void run_as(const flw_merge_states_args &args, mix *parts)
{
    constexpr int pack = 16 / sizeof(T);
    if (args.quantises) {
        if (args.is_vector) {
            run<T, __nv_fp8_e4m3, pack>(args, parts);
        } else {
            run<T, __nv_fp8_e4m3, 1>(args, parts);
        }
    } else if (args.is_vector) {
        run<T, T, pack>(args, parts);
    } else {
        run<T, T, 1>(args, parts);
    }
}

} // namespace

extern "C" __global__ void __launch_bounds__(FLW_MERGE_THREADS)
    flw_merge_states(const flw_merge_states_args args)
{
    __shared__ mix parts[FLW_MERGE_THREADS * FLW_MERGE_PASSES];
    if (args.dtype == FALLOW_BF16) {
        run_as<__nv_bfloat16>(args, parts);
    } else if (args.dtype == FALLOW_F16) {
        run_as<__half>(args, parts);
    } else {
        run_as<float>(args, parts);
    }
}
