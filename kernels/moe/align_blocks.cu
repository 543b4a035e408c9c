// SPDX-License-Identifier: Apache-2.0
//
// align_blocks: flat ids sorted by expert, each expert's share padded to whole blocks;
// align_blocks_twin.c is the definition.
//
// Bytes     4 or 8 count read (by each block, from the second level cache), 4 capacity and 4 blocks
//           written: latency up to about 2^17 ids.
// Shape     one launch of blocks that do not wait for each other: each counts all ids in shared memory, so that
//           each has all offsets, then places the ids of its own slice and writes the part of the slots between
//           and behind. No memory must be zero before, and there is no scratch.
// Order     ascending flat index within an expert; see flw_expert_place.
#include "common/integer.h"
#include "moe/align_blocks.h"
#include "moe/expert_ids.cuh"

namespace
{

// The batched form: the counts are given.
__device__ void load_counts(const flw_align_blocks_args &args, const flw_expert_shared &shared,
                            int32_t *bits)
{
    for (int32_t b = threadIdx.x; b < args.ids.buckets; b += FLW_EXPERT_THREADS) {
        shared.counts[b] = static_cast<int32_t>(
            flw_bound_length(args.batch_counts[b], 0, args.batch_tokens, bits));
    }
    __syncthreads();
}

// Write the slots of a bucket without an id; one warp per bucket.
__device__ void write_buckets(const flw_align_blocks_args &args, const flw_expert_shared &shared)
{
    const int lane = threadIdx.x % FLW_WARP;
    const int32_t warps = gridDim.x * (FLW_EXPERT_THREADS / FLW_WARP);
    int32_t b = (blockIdx.x * FLW_EXPERT_THREADS + threadIdx.x) / FLW_WARP;
    for (; b < args.ids.buckets; b += warps) {
        const int64_t begin = shared.offsets[b], end = shared.offsets[b + 1];
        const int64_t filled = begin + shared.counts[b], first = b * args.batch_tokens;
        for (int64_t at = (args.batch_counts != nullptr ? begin : filled) + lane; at < end;
             at += FLW_WARP) {
            args.sorted_ids[at] =
                at < filled ? static_cast<int32_t>(first + at - begin) : args.sentinel;
        }
    }
}

__device__ void write_expert_ids(const flw_align_blocks_args &args, const int32_t *offsets)
{
    const int32_t total = offsets[args.ids.buckets];
    const int64_t used = total / args.block_size;
    flw_expert_write(args.expert_ids, 0, used, [&](int64_t block) {
        const int32_t bucket = flw_expert_of_row(offsets, args.ids.buckets,
                                                 static_cast<int32_t>(block * args.block_size));
        return args.block_map != nullptr ? __ldg(args.block_map + bucket) : bucket - args.ids.shift;
    });
    if (args.writes_pad) {
        flw_expert_write(args.expert_ids, used, args.blocks,
                         [&](int64_t) { return args.pad_expert_id; });
    }
}

} // namespace

extern "C" __global__ void __launch_bounds__(FLW_EXPERT_THREADS)
    flw_align_blocks(const flw_align_blocks_args args)
{
    extern __shared__ int32_t memory[];
    const flw_expert_shared shared = flw_expert_cut_shared(args.ids, memory);
    int32_t bits = 0;
    if (args.batch_counts != nullptr) {
        load_counts(args, shared, &bits);
    } else {
        flw_expert_count_all(args.ids, shared, &bits);
    }
    flw_expert_sum(shared, args.ids.buckets, args.block_size);
    const int32_t total = shared.offsets[args.ids.buckets];
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        *args.padded_count = total;
    }
    write_expert_ids(args, shared.offsets);
    write_buckets(args, shared);
    if (!args.leaves_tail) {
        flw_expert_write(args.sorted_ids, total, args.capacity,
                         [&](int64_t) { return args.sentinel; });
    }
    if (args.batch_counts == nullptr) {
        flw_expert_place(args.ids, shared, [&](int64_t i, int32_t bucket, int32_t place) {
            if (bucket >= 0) {
                args.sorted_ids[shared.offsets[bucket] + place] = static_cast<int32_t>(i);
            }
        });
    }
    flw_raise_flags(args.flags, bits);
}
