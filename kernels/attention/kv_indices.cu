// SPDX-License-Identifier: Apache-2.0
//
// kv_indices: kv_indices[cu[b] + t] = slot(start[b] + t) for t < length[b], fill in the rest of row
// b; kv_indices_twin.c is the definition.
//
// Bytes     4 read and 4 written per index: 1 MiB for 131,072, latency more than bandwidth.
// Shape     blocks take indices, not rows, so that a long row among short ones is shared by all blocks. A warp
//           finds the row of the first index with 32 probes at a time (two rounds for 512 rows). If that row
//           includes the warp's last index, as long rows do, the search is over; otherwise each thread searches
//           between the two. Lanes take neighbouring indices, since a row's first slot is not aligned to 16
//           bytes: four loads of 128 bytes per warp are in flight at once.
//           Block 0 checks the rows for values out of bounds.
#include "attention/kv_indices.h"
#include "common/device.cuh"

namespace
{

struct row_plan {
    int32_t begin, found; // the first index; the number of slots
    const int32_t *source;
};

__device__ row_plan plan_row(const flw_kv_indices_args &args, int32_t b, int32_t *bits)
{
    const int64_t begin = args.cu_seqlens[b];
    const int64_t width = flw_bound_length(args.cu_seqlens[b + 1], -begin, INT32_MAX, bits);
    int64_t length = width;
    if (args.lengths != nullptr) {
        length = flw_bound_length(args.lengths[b], 0, width, bits);
    }
    if (length == 0) {
        return {static_cast<int32_t>(begin), 0, nullptr};
    }
    const int64_t start =
        flw_bound_length(args.starts == nullptr ? 0 : args.starts[b], 0, args.stride, bits);
    const int64_t request = flw_get_int(args.requests, b, args.requests_is_i64);
    length = flw_bound_length(length, 0, args.stride - start, bits);
    if (request < 0 || request >= args.request_rows) {
        *bits |= FALLOW_FLAG_INDEX;
        return {static_cast<int32_t>(begin), 0, nullptr};
    }
    return {static_cast<int32_t>(begin), static_cast<int32_t>(length),
            args.req_to_token + request * args.stride + start};
}

// Return lo plus how many of the rows [lo, hi) begin at or before index i; the rows before lo do.
// Called by all lanes of a warp with the same arguments. Ends within [lo, hi] for any contents of
// the rows.
__device__ int32_t rows_begun(const int32_t *cu, int32_t lo, int32_t hi, int32_t i)
{
    const int32_t lane = threadIdx.x % FLW_WARP;
    while (lo < hi) {
        const int32_t step = (hi - lo + FLW_WARP - 1) / FLW_WARP, probe = lo + lane * step;
        const bool is_begun = probe < hi && cu[probe] <= i;
        const int32_t passed = __popc(__ballot_sync(FLW_ALL_LANES, is_begun));
        const int32_t end = lo + passed * step;
        hi = end < hi ? end : hi;
        lo = passed == 0 ? lo : lo + (passed - 1) * step + 1;
    }
    return lo;
}

// The same by one thread.
__device__ int32_t rows_begun_alone(const int32_t *cu, int32_t lo, int32_t hi, int32_t i)
{
    while (lo < hi) {
        const int32_t middle = lo + (hi - lo) / 2;
        if (cu[middle] <= i) {
            lo = middle + 1;
        } else {
            hi = middle;
        }
    }
    return lo;
}

__device__ void look_over_rows(const flw_kv_indices_args &args, int32_t valid)
{
    int32_t bits = 0;
    if (threadIdx.x == 0) {
        (void)flw_bound_length(args.cu_seqlens[valid], 0, args.capacity, &bits);
    }
    for (int32_t b = threadIdx.x; b < valid; b += FLW_KV_INDICES_THREADS) {
        (void)plan_row(args, b, &bits);
    }
    flw_raise_flags(args.flags, bits);
}

// Write the warp's indices: FLW_KV_INDICES_ITEMS times 32 from `first` on, below `total`.
__device__ void write_indices(const flw_kv_indices_args &args, int32_t valid, int64_t first,
                              int64_t total)
{
    const int32_t *cu = args.cu_seqlens;
    const int64_t span = FLW_WARP * FLW_KV_INDICES_ITEMS;
    const int32_t last = static_cast<int32_t>((first + span < total ? first + span : total) - 1);
    const int32_t low = rows_begun(cu, 0, valid, static_cast<int32_t>(first));
    const int32_t high = low >= valid || cu[low] > last ? low : rows_begun(cu, low, valid, last);
    int32_t row = -1, ignored = 0; // block 0 reports about the rows
    row_plan plan = {0, 0, nullptr};
    int32_t indices[FLW_KV_INDICES_ITEMS];

#pragma unroll
    for (int k = 0; k < FLW_KV_INDICES_ITEMS; k++) {
        const int64_t i = first + k * FLW_WARP + threadIdx.x % FLW_WARP;
        const int32_t at = static_cast<int32_t>(i < total ? i : last);
        const int32_t own = (low == high ? low : rows_begun_alone(cu, low, high, at)) - 1;
        if (own != row && own >= 0) {
            row = own;
            plan = plan_row(args, row, &ignored);
        }
        const int32_t t = at - plan.begin;
        indices[k] = t >= 0 && t < plan.found ? __ldg(plan.source + t) : args.fill;
    }
#pragma unroll
    for (int k = 0; k < FLW_KV_INDICES_ITEMS; k++) {
        const int64_t i = first + k * FLW_WARP + threadIdx.x % FLW_WARP;
        if (i < total) {
            args.kv_indices[i] = indices[k];
        }
    }
}

} // namespace

extern "C" __global__ void __launch_bounds__(FLW_KV_INDICES_THREADS)
    flw_kv_indices(const flw_kv_indices_args args)
{
    const int32_t valid =
        static_cast<int32_t>(flw_clamp(flw_scalar(args.valid_count, args.batch), 0, args.batch));
    if (blockIdx.x == 0) {
        if (args.flags != nullptr) {
            look_over_rows(args, valid);
        }
        return;
    }
    const int64_t total = flw_clamp(args.cu_seqlens[valid], 0, args.capacity);
    const int64_t warp =
        (blockIdx.x - 1) * static_cast<int64_t>(FLW_KV_INDICES_THREADS / FLW_WARP) +
        threadIdx.x / FLW_WARP;
    const int64_t first = warp * FLW_WARP * FLW_KV_INDICES_ITEMS;
    if (first < total) { // equal in all lanes of a warp; no barrier follows
        write_indices(args, valid, first, total);
    }
}
