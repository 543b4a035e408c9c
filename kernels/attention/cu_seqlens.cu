// SPDX-License-Identifier: Apache-2.0
//
// cu_seqlens: y[i+1] = y[i] + round_up(max(s[i] + delta, 0), a); cu_seqlens_twin.c is the
// definition.
//
// Bytes     4 batch read, 4 (batch + 1) written per row: latency, never bandwidth.
// Shape     one block per row walks it in steps of threads x items with a running sum: 512 lengths fit one
//           step and 65,536 take sixteen. A scan over several blocks would need a second launch or a zeroed
//           counter.
// Aliasing  a thread reads s[i] before it writes y[i] and accesses no other index before the barrier of
//           the step, so lengths and y may be the same memory.
#include "attention/cu_seqlens.h"
#include "common/device.cuh"

namespace
{

__device__ int64_t saturate(int64_t value, bool is_i64, int32_t *bits)
{
    if (is_i64 || value <= INT32_MAX) {
        return value;
    }
    *bits |= FALLOW_FLAG_OVERFLOW;
    return INT32_MAX;
}

__device__ int64_t load_length(const flw_cu_seqlens_args &args, int64_t i, int64_t delta,
                               int32_t *bits)
{
    const int64_t given = flw_get_int(args.lengths, i, args.lengths_is_i64);
    const int64_t length = flw_clamp(given, -FLW_LONGEST, FLW_LONGEST) + delta;
    if (length > FLW_LONGEST || given > FLW_LONGEST) {
        *bits |= FALLOW_FLAG_OVERFLOW;
    }
    if (length < 0) {
        *bits |= FALLOW_FLAG_NEGATIVE;
    }
    return flw_clamp(length, 0, FLW_LONGEST);
}

} // namespace

extern "C" __global__ void __launch_bounds__(FLW_CU_SEQLENS_THREADS)
    flw_cu_seqlens(const flw_cu_seqlens_args args)
{
    __shared__ int64_t sums[FLW_WARP];
    const int64_t row = blockIdx.x, step = blockDim.x * FLW_CU_SEQLENS_ITEMS;
    const int64_t width = args.batch + (args.is_exclusive ? 0 : 1);
    const int64_t delta = flw_scalar(args.delta, 0);
    const int64_t valid = flw_clamp(flw_scalar(args.valid_count, args.batch), 0, args.batch);
    int64_t carried = 0, longest = 0;
    int32_t bits = 0;

    for (int64_t begin = 0; begin <= args.batch; begin += step) {
        const int64_t first = begin + threadIdx.x * FLW_CU_SEQLENS_ITEMS;
        int64_t rounded[FLW_CU_SEQLENS_ITEMS];
        int64_t own = 0, total = 0;
        for (int j = 0; j < FLW_CU_SEQLENS_ITEMS; j++) {
            const int64_t i = first + j;
            const int64_t length =
                i < valid ? load_length(args, row * args.batch + i, delta, &bits) : 0;
            longest = length > longest ? length : longest;
            rounded[j] = (length + args.round_to - 1) / args.round_to * args.round_to;
            own += rounded[j];
        }
        int64_t sum = carried + flw_block_exclusive_sum(own, sums, &total);
        for (int j = 0; j < FLW_CU_SEQLENS_ITEMS; j++) {
            if (first + j < width) {
                flw_put_int(args.cu_seqlens, row * width + first + j, args.cu_is_i64,
                            saturate(sum, args.cu_is_i64, &bits));
            }
            sum += rounded[j];
        }
        carried += total;
        __syncthreads(); // before `sums` is used again
    }

    longest = flw_block_max(longest, sums); // after the last step's barrier
    if (threadIdx.x == 0) {
        if (args.total != nullptr) {
            flw_put_int(args.total, row, args.cu_is_i64, saturate(carried, args.cu_is_i64, &bits));
        }
        if (args.max_length != nullptr) {
            args.max_length[row] = static_cast<int32_t>(saturate(longest, false, &bits));
        }
    }
    flw_raise_flags(args.flags, bits);
}
