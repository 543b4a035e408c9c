// SPDX-License-Identifier: Apache-2.0
//
// chunk_plan: contexts cut into chunks of at most W tokens; chunk_plan_twin.c is the definition.
//
// Bytes     4 batch read; 4 (3 batch + 1) written per chunk, and 4 token_capacity if the map is wanted:
//           latency, except for the map.
// Shape     a block owns one chunk, and with blockIdx.y above 0 only a segment of the map. Blocks do not
//           communicate: each reads all contexts and finds its own chunk.
//           Uniform: count and longest by a reduction, then the sums of this chunk's lengths.
//           Packed: with C the sums of the contexts, a chunk is a range [begin, end) of all tokens in
//           a row. From begin the next end follows by one search: if C[e] <= begin + W < C[e + 1], it is
//           x + the room left after x, rounded down to pages, with x = max(C[e], begin). One warp walks
//           from chunk to chunk, 32 places per step of the search.
//           In both modes a request's part is the overlap of [sums[b], sums[b + 1]) with [begin, end).
// Aliasing  none: the outputs are separate from all inputs.
#include "common/device.cuh"
#include "mla/chunk_plan.h"

namespace
{

constexpr int MAP_ITEMS = 4; // elements of the map that a thread computes together

// This block's chunk: tokens [begin, end) of `sums`; `start` of every request if uniform.
struct chunk {
    int64_t begin, end, start;
};

struct uniform {
    int64_t length, count; // of chunks
    bool is_impossible;
};

__device__ int32_t share_of(const flw_chunk_plan_args &args, int32_t b, int32_t rank)
{
    const int32_t context = __ldg(args.context_lengths + b);
    return flw_chunk_plan_share(context < 0 ? 0 : context, args.dcp_size, rank,
                                args.dcp_interleave);
}

__device__ uniform find_uniform(const flw_chunk_plan_args &args, int64_t *shared)
{
    int32_t counted = 0, total = 0;
    int64_t longest = 0;
    for (int32_t b = threadIdx.x; b < args.batch; b += blockDim.x) {
        const int32_t share = share_of(args, b, 0);
        counted += share > 0 || args.counts_every_request;
        longest = share > longest ? share : longest;
    }
    flw_block_exclusive_sum(counted, reinterpret_cast<int32_t *>(shared), &total);
    __syncthreads();                          // before `shared` is used again
    longest = flw_block_max(longest, shared); // in thread 0
    if (threadIdx.x == 0) {
        shared[0] = longest;
    }
    __syncthreads();
    longest = shared[0];
    __syncthreads(); // before `shared` is used again
    uniform plan = {0, 0, false};
    if (longest > 0) {
        plan.length = args.workspace_tokens / total / args.page_size * args.page_size;
        plan.is_impossible = plan.length == 0;
        plan.count = plan.is_impossible ? 0 : (longest + plan.length - 1) / plan.length;
    }
    return plan;
}

// sums[b] = the sum of value(0) .. value(b - 1), for b <= batch. Called by all threads.
template <typename Value>
__device__ void sum_up(const flw_chunk_plan_args &args, int64_t *sums, int64_t *shared, Value value)
{
    int64_t carried = 0;
    for (int32_t begin = 0; begin <= args.batch; begin += blockDim.x) {
        const int32_t b = begin + threadIdx.x;
        const int64_t own = b < args.batch ? value(b) : 0;
        int64_t total = 0;
        const int64_t before = flw_block_exclusive_sum(own, shared, &total);
        if (b <= args.batch) {
            sums[b] = carried + before;
        }
        carried += total;
        __syncthreads(); // `shared` is used again, `sums` is complete
    }
}

__device__ chunk cut_uniform(const flw_chunk_plan_args &args, const uniform &plan, int64_t *sums,
                             int64_t *shared)
{
    const bool exists = blockIdx.x < plan.count;
    const int64_t start = exists ? blockIdx.x * plan.length : 0;
    const int64_t length = exists ? plan.length : 0;
    sum_up(args, sums, shared, [&](int32_t b) {
        return flw_clamp(share_of(args, b, args.dcp_rank) - start, 0, length);
    });
    return {0, sums[args.batch], start};
}

// Return the last e with sums[e] <= limit; sums[batch] > limit. Called by a whole warp.
__device__ int32_t search(const int64_t *sums, int32_t batch, int64_t limit)
{
    const int32_t lane = threadIdx.x % FLW_WARP;
    int32_t low = 0, high = batch; // sums[low] <= limit < sums[high]
    while (high - low > 1) {
        const int32_t step = (high - low + FLW_WARP - 1) / FLW_WARP;
        const int32_t probe = low + (lane + 1) * step;
        const bool is_below = probe < high && sums[probe] <= limit;
        const int32_t passed = __popc(__ballot_sync(FLW_ALL_LANES, is_below));
        const int32_t next = low + (passed + 1) * step;
        low += passed * step;
        high = next < high ? next : high;
    }
    return low;
}

// Return the end of the chunk that begins at `begin`.
__device__ int64_t end_of_chunk(const flw_chunk_plan_args &args, const int64_t *sums, int64_t begin)
{
    const int64_t limit = begin + args.workspace_tokens;
    if (limit >= sums[args.batch]) {
        return sums[args.batch];
    }
    const int64_t cut = sums[search(sums, args.batch, limit)]; // of the request that does not fit
    const int64_t from = cut > begin ? cut : begin;
    const int32_t room = static_cast<int32_t>(limit - from);
    return from + room / args.page_size * args.page_size;
}

// The first warp walks from chunk to chunk; the others wait. *out_count: chunks walked.
__device__ chunk cut_packed(const flw_chunk_plan_args &args, const int64_t *sums, int64_t *shared,
                            bool counts, int64_t *out_count)
{
    const int64_t until = counts ? args.chunk_capacity + 1LL : blockIdx.x + 1LL;
    if (threadIdx.x < FLW_WARP) {
        int64_t at = 0, count = 0, begin = 0, end = 0;
        while (count < until && at < sums[args.batch]) {
            const int64_t next = end_of_chunk(args, sums, at);
            if (count == blockIdx.x) {
                begin = at;
                end = next;
            }
            at = next;
            count++;
        }
        if (threadIdx.x == 0) {
            shared[0] = begin;
            shared[1] = end;
            shared[2] = count;
        }
    }
    __syncthreads();
    const chunk found = {shared[0], shared[1], 0};
    *out_count = shared[2];
    __syncthreads(); // before `shared` is used again
    return found;
}

__device__ void write_tables(const flw_chunk_plan_args &args, const chunk &cut, const int64_t *sums,
                             int64_t *shared)
{
    const int64_t row = blockIdx.x;
    int64_t longest = 0;
    for (int32_t b = threadIdx.x; b <= args.batch; b += blockDim.x) {
        const int64_t from = flw_clamp(sums[b], cut.begin, cut.end);
        args.cu_seqlens[row * (args.batch + 1) + b] = static_cast<int32_t>(from - cut.begin);
        if (b < args.batch) {
            const int64_t length = flw_clamp(sums[b + 1], cut.begin, cut.end) - from;
            const int64_t start = args.is_packed ? (length > 0 ? from - sums[b] : 0) : cut.start;
            args.starts[row * args.batch + b] = static_cast<int32_t>(start);
            args.lengths[row * args.batch + b] = static_cast<int32_t>(length);
            longest = length > longest ? length : longest;
        }
    }
    longest = flw_block_max(longest, shared); // in thread 0
    if (threadIdx.x == 0) {
        const int64_t total = cut.end - cut.begin;
        if (args.totals != nullptr) {
            args.totals[row] = static_cast<int32_t>(total);
        }
        if (args.max_lengths != nullptr) {
            args.max_lengths[row] = static_cast<int32_t>(longest);
        }
        if (args.token_to_seq != nullptr && total > args.token_capacity) {
            flw_raise_flags(args.flags, FALLOW_FLAG_CLAMPED);
        }
    }
}

// Return the last b with sums[b] <= token, which is below sums[batch].
__device__ int32_t sequence_of(const int64_t *sums, int32_t batch, int64_t token)
{
    int32_t low = 0, high = batch;
    while (high - low > 1) {
        const int32_t middle = (low + high) / 2;
        const bool is_right = sums[middle] <= token;
        low = is_right ? middle : low;
        high = is_right ? high : middle;
    }
    return low;
}

__device__ void write_map(const flw_chunk_plan_args &args, const chunk &cut, const int64_t *sums)
{
    const int32_t total = static_cast<int32_t>(cut.end - cut.begin);
    const int32_t begin = blockIdx.y * FLW_CHUNK_PLAN_SEGMENT;
    const int32_t left = args.token_capacity - begin;
    const int32_t end = begin + (left < FLW_CHUNK_PLAN_SEGMENT ? left : FLW_CHUNK_PLAN_SEGMENT);
    int32_t *row = args.token_to_seq + blockIdx.x * static_cast<int64_t>(args.token_capacity);
    for (int32_t t = begin + threadIdx.x * MAP_ITEMS; t < end; t += blockDim.x * MAP_ITEMS) {
        int32_t found[MAP_ITEMS] = {};
        int32_t b = t < total ? sequence_of(sums, args.batch, cut.begin + t) : 0;
#pragma unroll
        for (int j = 0; j < MAP_ITEMS; j++) {
            if (t + j < total) {
                while (sums[b + 1] <= cut.begin + t + j) {
                    b++;
                }
                found[j] = b;
            }
        }
        if (args.is_vector) {
            *reinterpret_cast<int4 *>(row + t) = make_int4(found[0], found[1], found[2], found[3]);
        } else {
#pragma unroll
            for (int j = 0; j < MAP_ITEMS; j++) {
                if (t + j < end) {
                    row[t + j] = found[j];
                }
            }
        }
    }
}

// Write the values of the whole plan, once.
__device__ void write_count(const flw_chunk_plan_args &args, int64_t count, bool is_impossible)
{
    int32_t bits = 0;
    for (int32_t b = threadIdx.x; b < args.batch; b += blockDim.x) {
        bits |= __ldg(args.context_lengths + b) < 0 ? FALLOW_FLAG_NEGATIVE : 0;
    }
    if (threadIdx.x == 0) {
        if (count > args.chunk_capacity || is_impossible) {
            bits |= FALLOW_FLAG_DROPPED;
        }
        if (args.chunk_count != nullptr) {
            *args.chunk_count = static_cast<int32_t>(flw_clamp(count, 0, args.chunk_capacity));
        }
    }
    flw_raise_flags(args.flags, bits);
}

} // namespace

extern "C" __global__ void __launch_bounds__(FLW_CHUNK_PLAN_THREADS)
    flw_chunk_plan(const flw_chunk_plan_args args)
{
    __shared__ int64_t sums[FLW_CHUNK_PLAN_BATCH + 1];
    __shared__ int64_t shared[FLW_WARP];
    const bool counts = blockIdx.x == 0 && blockIdx.y == 0;
    chunk cut;
    int64_t count = 0;
    bool is_impossible = false;
    if (args.is_packed) {
        sum_up(args, sums, shared, [&](int32_t b) { return share_of(args, b, 0); });
        cut = cut_packed(args, sums, shared, counts, &count);
    } else {
        const uniform plan = find_uniform(args, shared);
        cut = cut_uniform(args, plan, sums, shared);
        count = plan.count;
        is_impossible = plan.is_impossible;
    }
    if (blockIdx.y == 0) {
        write_tables(args, cut, sums, shared);
    }
    if (args.token_to_seq != nullptr) {
        write_map(args, cut, sums);
    }
    if (counts) {
        write_count(args, count, is_impossible);
    }
}
