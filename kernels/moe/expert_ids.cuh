// SPDX-License-Identifier: Apache-2.0
//
// Owns: the device code of expert_ids.h: counts of all ids, offsets of the buckets, the stable
// place of each id of a slice, and integers written by all blocks together.
// Does not: know a module's outputs.
//
// All functions are called by every thread of the block, FLW_EXPERT_THREADS of them.
#ifndef FLW_KERNELS_EXPERT_IDS_CUH
#define FLW_KERNELS_EXPERT_IDS_CUH

#include "common/vector.cuh"
#include "moe/expert_ids.h"

// The parts of the block's shared memory.
struct flw_expert_shared {
    int32_t *counts;  // [buckets], of all ids
    int32_t *offsets; // [buckets + 1], counts rounded up and summed
    int32_t
        *next; // [buckets], the place of the slice's next id of a bucket, from the bucket's begin
    uint16_t *ranks; // [rank_warps + 1, stride]
};

__device__ inline flw_expert_shared flw_expert_cut_shared(const flw_expert_ids &ids,
                                                          int32_t *shared)
{
    flw_expert_shared cut;
    cut.counts = shared;
    cut.offsets = cut.counts + ids.buckets;
    cut.next = cut.offsets + ids.buckets + 1;
    cut.ranks = reinterpret_cast<uint16_t *>(shared + (3 * ids.buckets + 3) / 2 * 2);
    return cut;
}

// Return the bucket of an id, -1 if it has none.
__device__ inline int32_t flw_expert_bucket(const flw_expert_ids &ids, int64_t id, int32_t *bits)
{
    if (id < -1 || id >= ids.map_count - ids.shift) {
        *bits |= FALLOW_FLAG_INDEX;
        return -1;
    }
    int32_t bucket = static_cast<int32_t>(id) + ids.shift;
    if (bucket >= 0 && ids.map != nullptr) {
        bucket = __ldg(ids.map + bucket);
        if (bucket < -1 || bucket >= ids.buckets) {
            *bits |= FALLOW_FLAG_INDEX;
            return -1;
        }
    }
    return bucket;
}

// Count one for each lane of a warp with a bucket other than -1. Lanes that agree with lane 0 add
// together, so that one expert with everything costs no more than many with little.
__device__ inline void flw_expert_count_one(int32_t *counts, int32_t bucket)
{
    const int32_t leader = __shfl_sync(FLW_ALL_LANES, bucket, 0);
    const unsigned same = __ballot_sync(FLW_ALL_LANES, bucket == leader);
    if (bucket >= 0 && bucket != leader) {
        atomicAdd(counts + bucket, 1);
    } else if (bucket >= 0 && threadIdx.x % FLW_WARP == 0) {
        atomicAdd(counts + bucket, __popc(same));
    }
}

template <typename T, int N>
__device__ inline void flw_expert_count_as(const flw_expert_ids &ids, int64_t begin, int64_t end,
                                           int32_t *counts, int32_t *bits)
{
    constexpr int loads = 4; // issued before the first is used
    const T *from = static_cast<const T *>(ids.ids);
    for (int64_t base = begin; base < end; base += FLW_EXPERT_THREADS * N * loads) {
        flw_pack<T, N> packs[loads];
#pragma unroll
        for (int u = 0; u < loads; u++) {
            const int64_t at = base + (u * FLW_EXPERT_THREADS + threadIdx.x) * N;
            if (at + N <= end) {
                packs[u] = flw_read_once<T, N>(from + at);
            } else {
                for (int n = 0; n < N; n++) {
                    packs[u].at[n] = at + n < end ? from[at + n] : T(-1);
                }
            }
        }
#pragma unroll
        for (int u = 0; u < loads; u++) {
#pragma unroll
            for (int n = 0; n < N; n++) {
                const int64_t at = base + (u * FLW_EXPERT_THREADS + threadIdx.x) * N + n;
                flw_expert_count_one(counts,
                                     at < end ? flw_expert_bucket(ids, packs[u].at[n], bits) : -1);
            }
        }
    }
}

// Add the counts of ids [begin, end); begin is a multiple of 4. The caller provides a barrier
// before and after.
__device__ inline void flw_expert_count(const flw_expert_ids &ids, int64_t begin, int64_t end,
                                        int32_t *counts, int32_t *bits)
{
    if (ids.is_i64) {
        if (ids.is_vector) {
            flw_expert_count_as<int64_t, 2>(ids, begin, end, counts, bits);
        } else {
            flw_expert_count_as<int64_t, 1>(ids, begin, end, counts, bits);
        }
    } else if (ids.is_vector) {
        flw_expert_count_as<int32_t, 4>(ids, begin, end, counts, bits);
    } else {
        flw_expert_count_as<int32_t, 1>(ids, begin, end, counts, bits);
    }
}

__device__ inline int64_t flw_expert_slice_begin(const flw_expert_ids &ids)
{
    return min(static_cast<int64_t>(blockIdx.x) * ids.slice, ids.count);
}

// Set counts of all ids, and next: those before this block's slice. Ends with a barrier.
__device__ inline void flw_expert_count_all(const flw_expert_ids &ids,
                                            const flw_expert_shared &shared, int32_t *bits)
{
    const int64_t begin = flw_expert_slice_begin(ids);
    for (int32_t b = threadIdx.x; b < ids.buckets; b += FLW_EXPERT_THREADS) {
        shared.counts[b] = 0;
    }
    __syncthreads();
    flw_expert_count(ids, 0, begin, shared.counts, bits);
    __syncthreads();
    for (int32_t b = threadIdx.x; b < ids.buckets; b += FLW_EXPERT_THREADS) {
        shared.next[b] = shared.counts[b];
    }
    __syncthreads();
    flw_expert_count(ids, begin, ids.count, shared.counts, bits);
    __syncthreads();
}

// offsets[0] = 0, offsets[b + 1] = offsets[b] + counts[b] rounded up. Ends with a barrier.
__device__ inline void flw_expert_sum(const flw_expert_shared &shared, int32_t buckets,
                                      uint32_t round_to)
{
    __shared__ int32_t sums[FLW_WARP];
    int32_t carried = 0;
    for (int32_t first = 0; first <= buckets; first += FLW_EXPERT_THREADS) {
        const int32_t b = first + threadIdx.x;
        int32_t own = 0, total = 0;
        if (b < buckets) {
            own = (shared.counts[b] + round_to - 1) / round_to * round_to;
        }
        const int32_t sum = carried + flw_block_exclusive_sum(own, sums, &total);
        if (b <= buckets) {
            shared.offsets[b] = sum;
        }
        carried += total;
        __syncthreads();
    }
}

// Return the bucket b with offsets[b] <= row < offsets[b + 1]; row is below offsets[buckets].
__device__ inline int32_t flw_expert_of_row(const int32_t *offsets, int32_t buckets, int32_t row)
{
    int32_t low = 0, high = buckets; // offsets[low] <= row < offsets[high]
    while (high - low > 1) {
        const int32_t middle = (low + high) / 2;
        if (offsets[middle] <= row) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

// For each id i of this block's slice call put(i, bucket, place), with place the number of earlier
// ids of the bucket in all blocks; bucket -1: no place. Ranks follow from the order of lanes, warps
// and steps, never from the order of atomics.
template <typename Put>
__device__ inline void flw_expert_place(const flw_expert_ids &ids, const flw_expert_shared &shared,
                                        Put put)
{
    constexpr int rounds = FLW_EXPERT_WARP_IDS / FLW_WARP, batch = 8;
    const int lane = threadIdx.x % FLW_WARP, warp = threadIdx.x / FLW_WARP;
    const int32_t stride = ids.buckets + ids.buckets % 2, warps = ids.rank_warps;
    const int64_t begin = flw_expert_slice_begin(ids), end = min(begin + ids.slice, ids.count);
    uint16_t *own = shared.ranks + warp * stride;
    for (int64_t base = begin; base < end; base += warps * FLW_EXPERT_WARP_IDS) {
        int32_t bucket[rounds], rank[rounds], ignored = 0;
        for (int32_t i = threadIdx.x; i < warps * stride / 2; i += FLW_EXPERT_THREADS) {
            reinterpret_cast<uint32_t *>(shared.ranks)[i] = 0;
        }
        __syncthreads();
        const int64_t first = base + warp * FLW_EXPERT_WARP_IDS + lane;
        if (warp < warps) {
#pragma unroll
            for (int r = 0; r < rounds; r++) {
                const int64_t i = first + r * FLW_WARP;
                bucket[r] =
                    i < end ? flw_expert_bucket(ids, flw_get_int(ids.ids, i, ids.is_i64), &ignored)
                            : -1;
            }
#pragma unroll
            for (int r = 0; r < rounds; r++) {
                const unsigned same = __match_any_sync(FLW_ALL_LANES, bucket[r]);
                const int below = __popc(same & ((1u << lane) - 1));
                const int before = bucket[r] >= 0 ? own[bucket[r]] : 0;
                __syncwarp();
                if (bucket[r] >= 0 && below == 0) {
                    own[bucket[r]] = static_cast<uint16_t>(before + __popc(same));
                }
                __syncwarp();
                rank[r] = before + below;
            }
        }
        __syncthreads();
        for (int32_t b = threadIdx.x; b < ids.buckets; b += FLW_EXPERT_THREADS) {
            int sum = 0;
            for (int w = 0; w < warps; w += batch) { // several loads before the first store
                int counts[batch];
#pragma unroll
                for (int k = 0; k < batch; k++) {
                    counts[k] = w + k < warps ? shared.ranks[(w + k) * stride + b] : 0;
                }
#pragma unroll
                for (int k = 0; k < batch; k++) {
                    if (w + k < warps) {
                        shared.ranks[(w + k) * stride + b] = static_cast<uint16_t>(sum);
                    }
                    sum += counts[k];
                }
            }
            shared.ranks[warps * stride + b] = static_cast<uint16_t>(sum);
        }
        __syncthreads();
        if (warp < warps) {
#pragma unroll
            for (int r = 0; r < rounds; r++) {
                const int64_t i = first + r * FLW_WARP;
                if (i < end) {
                    const int32_t b = bucket[r];
                    put(i, b, b < 0 ? -1 : shared.next[b] + own[b] + rank[r]);
                }
            }
        }
        __syncthreads();
        for (int32_t b = threadIdx.x; b < ids.buckets; b += FLW_EXPERT_THREADS) {
            shared.next[b] += shared.ranks[warps * stride + b];
        }
    }
}

// Write out[i] = value(i) for begin <= i < end, by all blocks together, 16 bytes at a time.
template <typename Value>
__device__ inline void flw_expert_write(int32_t *out, int64_t begin, int64_t end, Value value)
{
    constexpr int pack_size = 4;
    const int64_t thread = static_cast<int64_t>(blockIdx.x) * FLW_EXPERT_THREADS + threadIdx.x;
    const int64_t threads = static_cast<int64_t>(gridDim.x) * FLW_EXPERT_THREADS;
    if (begin >= end) {
        return;
    }
    const int64_t ahead = -(reinterpret_cast<uintptr_t>(out + begin) / 4) % pack_size;
    const int64_t first = min(begin + ahead, end);
    const int64_t last = first + (end - first) / pack_size * pack_size;
    if (thread < first - begin) {
        out[begin + thread] = value(begin + thread);
    }
    for (int64_t at = first + thread * pack_size; at < last; at += threads * pack_size) {
        flw_pack<int32_t, pack_size> pack;
        for (int n = 0; n < pack_size; n++) {
            pack.at[n] = value(at + n);
        }
        flw_write<int32_t, pack_size>(out + at, pack);
    }
    if (thread < end - last) {
        out[last + thread] = value(last + thread);
    }
}

#endif
