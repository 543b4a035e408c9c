// SPDX-License-Identifier: Apache-2.0
//
// expert_counts: the number of tokens of each expert, and the position of their rows;
// expert_counts_twin.c is the definition.
//
// Bytes     4 or 8 count read (by each block, from the second level cache), 4 (count + rows) and 48
//           experts written: latency up to about 2^17 ids.
// Shape     as align_blocks: blocks that do not wait for each other, each with all counts and offsets in the
//           shared memory; the first writes the values per expert, all write rows and positions.
#include "moe/expert_counts.h"
#include "moe/expert_ids.cuh"

namespace
{

__device__ void put(int32_t *base, int64_t i, int32_t value)
{
    if (base != nullptr) {
        base[i] = value;
    }
}

__device__ void put_sizes(int32_t *base, int64_t e, int32_t m, int32_t n, int32_t k)
{
    put(base, e * 3, m);
    put(base, e * 3 + 1, n);
    put(base, e * 3 + 2, k);
}

// Write the values per expert; for the first block.
__device__ void write_experts(const flw_expert_counts_args &args, const flw_expert_shared &shared,
                              int32_t *bits)
{
    for (int32_t e = threadIdx.x; e < args.ids.buckets; e += FLW_EXPERT_THREADS) {
        const int32_t count = shared.counts[e];
        int32_t masked = count;
        if (args.masked_m != nullptr && count > args.masked_rows) {
            masked = static_cast<int32_t>(args.masked_rows);
            *bits |= FALLOW_FLAG_CLAMPED;
        }
        put(args.counts, e, count);
        put(args.offsets, e + 1, shared.offsets[e + 1]);
        put(args.ends, e, shared.offsets[e] + count);
        put(args.masked_m, e, masked);
        put_sizes(args.problem_sizes_1, e, count, 2 * args.intermediate, args.width);
        put_sizes(args.problem_sizes_2, e, count, args.width, args.intermediate);
    }
    if (threadIdx.x == 0) {
        put(args.offsets, 0, 0);
        if (args.m_indices != nullptr && shared.offsets[args.ids.buckets] > args.rows) {
            *bits |= FALLOW_FLAG_DROPPED;
        }
    }
}

__device__ void write_rows(const flw_expert_counts_args &args, const int32_t *offsets)
{
    const int64_t used = min(static_cast<int64_t>(offsets[args.ids.buckets]), args.rows);
    flw_expert_write(args.m_indices, 0, used, [&](int64_t row) {
        return flw_expert_of_row(offsets, args.ids.buckets, static_cast<int32_t>(row));
    });
    flw_expert_write(args.m_indices, used, args.rows, [&](int64_t) { return -1; });
}

__device__ void write_positions(const flw_expert_counts_args &args, const flw_expert_shared &shared,
                                int32_t *bits)
{
    flw_expert_place(args.ids, shared, [&](int64_t i, int32_t e, int32_t rank) {
        int32_t position = -1;
        if (e >= 0) {
            const int64_t row = args.is_masked ? rank : shared.offsets[e] + rank;
            if (row >= (args.is_masked ? args.masked_rows : args.rows)) {
                *bits |= FALLOW_FLAG_DROPPED;
            } else {
                position = static_cast<int32_t>(args.is_masked ? e * args.masked_rows + row : row);
            }
        }
        args.positions[i] = position;
    });
}

} // namespace

extern "C" __global__ void __launch_bounds__(FLW_EXPERT_THREADS)
    flw_expert_counts(const flw_expert_counts_args args)
{
    extern __shared__ int32_t memory[];
    const flw_expert_shared shared = flw_expert_cut_shared(args.ids, memory);
    int32_t bits = 0;
    flw_expert_count_all(args.ids, shared, &bits);
    flw_expert_sum(shared, args.ids.buckets, args.align);
    if (blockIdx.x == 0) {
        write_experts(args, shared, &bits);
    }
    if (args.m_indices != nullptr) {
        write_rows(args, shared.offsets);
    }
    if (args.positions != nullptr) {
        write_positions(args, shared, &bits);
    }
    flw_raise_flags(args.flags, bits);
}
