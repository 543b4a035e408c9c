// SPDX-License-Identifier: Apache-2.0
//
// neutral_rows: rows of requests without keys, and rows of no request, become 0, their LSE -inf or
// +inf; neutral_rows_twin.c is the definition.
//
// Bytes     only neutral rows are written: (neutral tokens) heads (width elements + 4); 8 (batch + 1) are read.
//           Latency if there are few.
// Shape     a block has eight tokens, one per warp, which looks it up: 32 entries of cu_q at a time, two steps
//           up to 1,024 requests, four to 65,536. After the barrier all threads fill the neutral rows, 16 bytes
//           at a time if aligned: by warps if heads are apart, otherwise by the block.
// Aliasing  rows and lse are written and never read.
#include "attention/neutral_rows.h"
#include "common/device.cuh"

namespace
{

// Return how many of the first `count` ascending entries are at most `value`. Called by a whole
// warp.
__device__ int32_t count_at_most(const int32_t *entries, int32_t count, int32_t value)
{
    const int32_t lane = threadIdx.x % FLW_WARP;
    int32_t begin = 0, end = count;
    while (begin < end) { // equal in all lanes
        const int32_t step = (end - begin + FLW_WARP - 1) / FLW_WARP;
        const int32_t probe = begin + (lane + 1) * step - 1;
        const bool is_below = probe < end && entries[probe] <= value;
        const int32_t below = __popc(__ballot_sync(FLW_ALL_LANES, is_below));
        const int32_t most = end;
        begin = min(begin + below * step, most);
        end = min(begin + step - 1, most);
    }
    return begin;
}

__device__ bool is_neutral(const flw_neutral_rows_args &args, int32_t token)
{
    const int32_t valid =
        static_cast<int32_t>(flw_clamp(flw_scalar(args.valid_count, args.batch), 0, args.batch));
    const int32_t request = count_at_most(args.cu_q, valid + 1, token) - 1;
    if (request < 0 || request >= valid) {
        return true;
    }
    if (args.key_counts != nullptr) {
        return args.key_counts[request] <= 0;
    }
    return args.cu_k != nullptr && args.cu_k[request + 1] <= args.cu_k[request];
}

template <typename U> __device__ void fill(const flw_neutral_rows_args &args, int32_t token)
{
    const uint32_t width = args.threads_per_segment, groups = blockDim.x / width;
    const uint32_t group = threadIdx.x / width, lane = threadIdx.x % width;
    U *row = static_cast<U *>(args.rows) +
             static_cast<int64_t>(token) * args.segments * args.segment_stride;
    for (int32_t s = group; s < args.segments; s += groups) {
        for (int64_t i = lane; i < args.segment_units; i += width) {
            row[s * args.segment_stride + i] = U{};
        }
    }
}

__device__ void fill_as(const flw_neutral_rows_args &args, int32_t token)
{
    if (args.unit_bytes == 16) {
        fill<uint4>(args, token);
    } else if (args.unit_bytes == 4) {
        fill<uint32_t>(args, token);
    } else if (args.unit_bytes == 2) {
        fill<uint16_t>(args, token);
    } else {
        fill<uint8_t>(args, token);
    }
}

} // namespace

extern "C" __global__ void __launch_bounds__(FLW_NEUTRAL_THREADS)
    flw_neutral_rows(const flw_neutral_rows_args args)
{
    __shared__ int32_t neutral[FLW_NEUTRAL_TOKENS];
    const uint32_t first = blockIdx.x * FLW_NEUTRAL_TOKENS, warp = threadIdx.x / FLW_WARP;
    const bool found =
        first + warp < static_cast<uint32_t>(args.tokens) &&
        is_neutral(args, static_cast<int32_t>(first + warp)); // a whole warp, or none
    if (threadIdx.x % FLW_WARP == 0) {
        neutral[warp] = found;
    }
    __syncthreads();
    for (int t = 0; t < FLW_NEUTRAL_TOKENS && args.rows != nullptr; t++) {
        if (neutral[t]) {
            fill_as(args, static_cast<int32_t>(first) + t);
        }
    }
    // Eight tokens of a head are one sector if the LSE are stored by head.
    const uint32_t t = threadIdx.x % FLW_NEUTRAL_TOKENS;
    if (args.lse == nullptr || !neutral[t]) {
        return;
    }
    for (int64_t head = threadIdx.x / FLW_NEUTRAL_TOKENS; head < args.heads;
         head += FLW_NEUTRAL_THREADS / FLW_NEUTRAL_TOKENS) {
        const int64_t token = static_cast<int64_t>(first) + t;
        args.lse[args.lse_by_token ? token * args.lse_stride + head
                                   : head * args.lse_stride + token] = args.lse_value;
    }
}
