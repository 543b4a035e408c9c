// SPDX-License-Identifier: Apache-2.0
//
// permute: out[positions[t, j]] = in[t]; permute_twin.c is the definition.
//
// Bytes     (1 + top_k) tokens width elements and 4 tokens top_k of positions: bandwidth, the row is read
//           once and written once per choice.
// Shape     a block is in one token, with positions that all the threads read: from the first level cache
//           after the first; a thread keeps 16 bytes in registers and writes them to each row. The grid's rows
//           after the tokens' write padding, four per expert. A group that shares a scale is 16 threads (32 of
//           F32), which find the largest by shuffles.
// Aliasing  none: out is written while in is read.
#include "common/quantise.cuh"
#include "moe/permute.h"

namespace
{

// Call put(row) for each row of a token, or pad(row) for each padding row of an expert.
template <typename Put, typename Pad>
__device__ void for_rows(const flw_permute_args &args, uint32_t line, bool raises, Put put, Pad pad)
{
    if (line < args.tokens) {
        const int64_t first = static_cast<int64_t>(line) * args.top_k;
#pragma unroll 4
        for (int32_t j = 0; j < args.top_k; j++) {
            const int32_t row = __ldg(args.positions + first + j);
            if (row >= 0 && row < args.row_count) {
                put(row);
            } else if (raises && row >= args.row_count) {
                flw_raise_flags(args.flags, FALLOW_FLAG_INDEX);
            }
        }
        return;
    }
    const uint32_t padder = line - static_cast<uint32_t>(args.tokens);
    const uint32_t expert = padder / FLW_PERMUTE_PADDERS;
    const int64_t begin = static_cast<int64_t>(args.offsets[expert]) + args.counts[expert];
    const int64_t end = flw_clamp(args.offsets[expert + 1], 0, args.row_count);
    int64_t row = (begin < 0 ? 0 : begin) + padder % FLW_PERMUTE_PADDERS;
    for (; row < end; row += FLW_PERMUTE_PADDERS) {
        pad(row);
    }
}

// Units of 1, 2, 4 or 16 bytes, unchanged; an element has `each` bytes.
template <typename Unit>
__device__ void copy(const flw_permute_args &args, uint32_t line, int32_t thread, int32_t each)
{
    const int32_t at = thread * static_cast<int32_t>(sizeof(Unit)); // bytes into the row
    if (at >= args.width * each) {
        return;
    }
    Unit value = {};
    if (line < args.tokens) {
        const char *in = static_cast<const char *>(args.in) + line * args.in_stride * each + at;
        value = __ldg(reinterpret_cast<const Unit *>(in));
    }
    char *out = static_cast<char *>(args.out) + at;
    const int64_t out_stride = args.out_stride * each;
    const auto put = [&](int64_t row) {
        *reinterpret_cast<Unit *>(out + row * out_stride) = value;
    };
    for_rows(args, line, at == 0, put, put);
}

template <typename T>
__device__ void quantise(const flw_permute_args &args, uint32_t line, int32_t thread)
{
    constexpr int N = 16 / sizeof(T);
    const int32_t i = thread * N;
    if (i >= args.width) {
        return; // a whole group returns, or none of it: 128 divides the width
    }
    flw_pack<__nv_fp8_e4m3, N> pack = {};
    float scale = 0.0f;
    if (line < args.tokens) { // all threads of a block, or none
        const flw_pack<T, N> in =
            flw_read_once<T, N>(static_cast<const T *>(args.in) + line * args.in_stride + i);
        float values[N];
        for (int n = 0; n < N; n++) {
            values[n] = flw_to_float(in.at[n]);
        }
        scale = flw_quantise_scale_of<N>(values);
        pack = flw_quantise<N>(values, scale);
    }
    const int64_t groups = args.width / FLW_QUANTISE_GROUP;
    const auto put = [&](int64_t row) {
        flw_write<__nv_fp8_e4m3, N>(
            static_cast<__nv_fp8_e4m3 *>(args.out) + row * args.out_stride + i, pack);
        if (i % FLW_QUANTISE_GROUP == 0) {
            args.scales[row * groups + i / FLW_QUANTISE_GROUP] = scale;
        }
    };
    for_rows(args, line, i == 0, put, put);
}

} // namespace

extern "C" __global__ void __launch_bounds__(FLW_PERMUTE_THREADS)
    flw_permute(const flw_permute_args args)
{
    const uint32_t line = blockIdx.x / args.blocks_per_row;
    const int32_t thread = (blockIdx.x - line * args.blocks_per_row) * blockDim.x + threadIdx.x;
    const int32_t each = args.dtype == FALLOW_F32                                ? 4
                         : args.dtype == FALLOW_BF16 || args.dtype == FALLOW_F16 ? 2
                                                                                 : 1;
    if (args.quantises) {
        if (args.dtype == FALLOW_BF16) {
            quantise<__nv_bfloat16>(args, line, thread);
        } else if (args.dtype == FALLOW_F16) {
            quantise<__half>(args, line, thread);
        } else {
            quantise<float>(args, line, thread);
        }
    } else if (args.is_vector) {
        copy<uint4>(args, line, thread, each);
    } else if (each == 4) {
        copy<uint32_t>(args, line, thread, each);
    } else if (each == 2) {
        copy<uint16_t>(args, line, thread, each);
    } else {
        copy<uint8_t>(args, line, thread, each);
    }
}
