// SPDX-License-Identifier: Apache-2.0
//
// fa3_schedule: splits = clamp(ceil(n_blocks / per_sm), 1, max), per_sm = ceil(total * 1.1 * heads
// / SMs), requests in the order of their work; fa3_schedule_twin.c is the definition.
//
// Bytes     4 to 28 batch read (twice), 4 vectors round_up(batch, 4) + 4 written: latency, never bandwidth.
// Shape     One block: the first split needs the sum over all requests. A bitonic sort in shared memory uses
//           keys with the work, descending, above the request's index, so that no two are equal and the order is
//           the definition's. A request's data is computed again for the row instead of being moved along: two
//           divisions and a few loads.
// Aliasing  none: lengths are read again while rows are written.
#include "attention/fa3_schedule.h"

#include "common/device.cuh"

namespace
{

struct request {
    int64_t qlen, m_blocks, n_blocks;
    int64_t splits, blocks_each; // of one split
};

__device__ int64_t at_least_zero(int64_t value, int32_t *bits)
{
    *bits |= value < 0 ? FALLOW_FLAG_NEGATIVE : 0;
    return value < 0 ? 0 : value;
}

__device__ int64_t ceil_divide(int64_t value, int64_t by)
{
    return (value + by - 1) / by;
}

__device__ int64_t load_difference(const int32_t *cu, int32_t i, int32_t given)
{
    return cu == nullptr ? given : static_cast<int64_t>(cu[i + 1]) - cu[i];
}

__device__ request load_request(const flw_fa3_schedule_args &args, int32_t i, int32_t *bits)
{
    const int64_t q = args.seqused_q != nullptr
                          ? args.seqused_q[i]
                          : load_difference(args.cu_seqlens_q, i, args.seqlen_q);
    int64_t k = args.seqused_k != nullptr ? args.seqused_k[i]
                                          : load_difference(args.cu_seqlens_k, i, args.seqlen_k);
    k += load_difference(args.cu_seqlens_k_new, i, args.seqlen_k_new);
    k -= args.leftpad_k != nullptr ? args.leftpad_k[i] : 0;
    const int64_t rows = at_least_zero(q, bits) * args.pack;
    request out;
    out.qlen = flw_saturate_i32(rows, bits);
    out.m_blocks = flw_saturate_i32(ceil_divide(rows, args.block_m), bits);
    out.n_blocks = flw_saturate_i32(ceil_divide(at_least_zero(k, bits), args.block_n), bits);
    out.splits = 1;
    out.blocks_each = out.n_blocks;
    return out;
}

// In fp32, left to right, every step rounded: the published result to the bit.
__device__ int64_t blocks_per_sm(const flw_fa3_schedule_args &args, int64_t total)
{
    const float share =
        __fmul_rn(__fmul_rn(__ll2float_rn(total), 1.1f), __int2float_rn(args.heads));
    const float blocks = ceilf(__fdiv_rn(share, __int2float_rn(args.multiprocessors)));
    return blocks >= 2147483648.0f ? INT32_MAX : static_cast<int64_t>(blocks);
}

// per_sm 0: splits do not depend on the lengths.
__device__ void split(const flw_fa3_schedule_args &args, int64_t per_sm, request *out)
{
    if (per_sm > 0) {
        out->splits = flw_clamp(ceil_divide(out->n_blocks, per_sm), 1, args.max_splits);
        out->blocks_each = ceil_divide(out->n_blocks, out->splits);
    }
}

__device__ int64_t count_heads(const flw_fa3_schedule_args &args, int64_t blocks_each)
{
    const int64_t blocks = blocks_each > 1 ? blocks_each : 1;
    int64_t chosen = 16;
    while (chosen > 1 && chosen * blocks > args.blocks_in_l2) {
        chosen /= 2;
    }
    chosen *= args.heads_per_chosen;
    return chosen < args.heads ? chosen : args.heads;
}

// Ascending keys are the order. |work| is below 2^42: 31 bits of blocks, 10 of a block's size.
__device__ uint64_t key_of(const flw_fa3_schedule_args &args, const request &given, int32_t i)
{
    const int64_t work = args.is_causal
                             ? given.blocks_each * args.block_n - given.m_blocks * args.block_m
                             : given.blocks_each;
    const int64_t descending = (static_cast<int64_t>(1) << 42) - work;
    return static_cast<uint64_t>(descending) << FLW_FA3_SCHEDULE_INDEX_BITS |
           static_cast<uint64_t>(i);
}

// Bitonic sort, ascending; `count` is a power of two. Called by every thread of the block.
__device__ void sort_keys(uint64_t *keys, int32_t count)
{
    for (int32_t run = 2; run <= count; run *= 2) {
        for (int32_t apart = run / 2; apart > 0; apart /= 2) {
            __syncthreads();
            for (int32_t pair = threadIdx.x; pair < count / 2; pair += blockDim.x) {
                const int32_t low = 2 * pair - (pair & (apart - 1)), high = low + apart;
                const uint64_t a = keys[low], b = keys[high];
                if ((a > b) == ((low & run) == 0)) {
                    keys[low] = b;
                    keys[high] = a;
                }
            }
        }
    }
    __syncthreads();
}

__device__ void put(const flw_fa3_schedule_args &args, int32_t vector, int32_t row, int64_t value)
{
    if (vector >= 0) {
        args.metadata[vector + row] = static_cast<int32_t>(value);
    }
}

} // namespace

extern "C" __global__ void __launch_bounds__(FLW_FA3_SCHEDULE_THREADS)
    flw_fa3_schedule(const flw_fa3_schedule_args args)
{
    __shared__ int64_t sums[FLW_WARP];
    __shared__ uint64_t keys[FLW_FA3_SCHEDULE_SORTED_BATCH];
    const int32_t thread = threadIdx.x, step = blockDim.x;
    const int32_t valid =
        static_cast<int32_t>(flw_clamp(flw_scalar(args.valid_count, args.batch), 0, args.batch));
    const bool is_sorted = args.places.batch_idx >= 0;
    int64_t own = 0, total = 0;
    int32_t bits = 0;

    for (int32_t i = thread; i < valid; i += step) {
        const request given = load_request(args, i, &bits);
        const int64_t product = given.m_blocks * given.n_blocks;
        bits |= product > FLW_LONGEST ? FALLOW_FLAG_OVERFLOW : 0;
        own += flw_clamp(product, 0, FLW_LONGEST);
    }
    flw_block_exclusive_sum(own, sums, &total);
    const int64_t per_sm = args.is_dynamic && total > 0 ? blocks_per_sm(args, total) : 0;

    if (is_sorted) {
        int32_t count = 1;
        while (count < valid) {
            count *= 2;
        }
        for (int32_t i = thread; i < count; i += step) {
            keys[i] = UINT64_MAX; // behind every request
            if (i < valid) {
                request given = load_request(args, i, &bits);
                split(args, per_sm, &given);
                keys[i] = key_of(args, given, i);
            }
        }
        sort_keys(keys, count);
    }

    for (int32_t row = thread; row < args.padded_batch; row += step) {
        request given = {0, 0, 0, 0, 0};
        int64_t heads = 0;
        int32_t i = 0;
        if (row < valid) {
            i = is_sorted ? static_cast<int32_t>(keys[row] & (FLW_FA3_SCHEDULE_SORTED_BATCH - 1))
                          : row;
            given = load_request(args, i, &bits);
            split(args, per_sm, &given);
            heads = count_heads(args, given.blocks_each);
        }
        put(args, args.places.splits, row, given.splits);
        put(args, args.places.m_blocks, row, given.m_blocks);
        put(args, args.places.qlen, row, given.qlen);
        put(args, args.places.batch_idx, row, i);
        put(args, args.places.heads_in_l2, row, heads);
    }
    if (thread == 0) {
        put(args, args.places.semaphore, 0, 0);
    }
    flw_raise_flags(args.flags, bits);
}
