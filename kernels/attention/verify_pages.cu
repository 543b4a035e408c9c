// SPDX-License-Identifier: Apache-2.0
//
// verify_pages: row r D + i has the slots after request r's length: first those that mask row r D +
// i selects, then the others, each in order; verify_pages_twin.c is the definition.
//
// Bytes     5 batch D D (mask and table) and 4 batch D: latency; D is a few tens.
// Shape     block 0 counts every row's mask and computes the lengths and their sums; the others have one warp
//           per row, 32 columns at a time: a ballot gives the place of each. No block waits for another.
// Aliasing  none.
#include "attention/verify_pages.h"
#include "common/table.cuh"

namespace
{

// Count the true elements of a row of the mask, by one thread.
__device__ int32_t count_true(const flw_verify_pages_args &args, int64_t m)
{
    const uint8_t *mask = args.mask + m * args.draft_tokens;
    int32_t count = 0;
    if (args.is_word_mask) {
        const uint32_t *words = reinterpret_cast<const uint32_t *>(mask);
        for (int32_t j = 0; j < args.draft_tokens / 4; j++) {
            count += __popc(__vsetne4(words[j], 0)); // 1 in each byte that is not 0
        }
    } else {
        for (int32_t j = 0; j < args.draft_tokens; j++) {
            count += mask[j] != 0;
        }
    }
    return count;
}

// The slots of row r of the batch: the first one, and the number in the table.
struct slots_of {
    const int32_t *from;
    int32_t found;
};

__device__ slots_of find_slots(const flw_verify_pages_args &args, int64_t r, int32_t *bits)
{
    const int64_t given = flw_get_int(args.lengths, r, args.lengths_is_i64);
    const int64_t length = flw_bound_length(given, flw_scalar(args.delta, 0), args.stride, bits);
    const int64_t found = flw_bound_length(args.draft_tokens, 0, args.stride - length, bits);
    const int64_t request = flw_get_int(args.requests, r, args.requests_is_i64);
    if (request < 0 || request >= args.request_rows) {
        *bits |= FALLOW_FLAG_INDEX;
        return {nullptr, 0};
    }
    return {args.req_to_token + request * args.stride + length, static_cast<int32_t>(found)};
}

// Called by all lanes of a warp with the same row.
__device__ void write_row(const flw_verify_pages_args &args, int64_t m, int64_t valid)
{
    const int32_t lane = threadIdx.x % FLW_WARP, width = args.draft_tokens;
    const uint32_t below = (1u << lane) - 1;
    const int64_t r = static_cast<uint32_t>(m) / static_cast<uint32_t>(width);
    const uint8_t *mask = args.mask + m * width;
    int32_t *to = args.page_table + m * args.ld;
    if (r >= valid) {
        for (int32_t j = lane; j < width; j += FLW_WARP) {
            to[j] = args.fill;
        }
        return;
    }
    int32_t bits = 0, all_true = 0, true_before = 0;
    const slots_of slots = find_slots(args, r, &bits);
    for (int32_t begin = 0; begin < width; begin += FLW_WARP) {
        const bool is_true = begin + lane < width && mask[begin + lane] != 0;
        all_true += __popc(__ballot_sync(FLW_ALL_LANES, is_true));
    }
    for (int32_t begin = 0; begin < width; begin += FLW_WARP) {
        const int32_t j = begin + lane;
        const bool is_true = j < width && mask[j] != 0;
        const uint32_t ballot = __ballot_sync(FLW_ALL_LANES, is_true);
        const int32_t before = true_before + __popc(ballot & below); // true ones before j
        if (j < width) {
            to[is_true ? before : all_true + j - before] =
                j < slots.found ? __ldg(slots.from + j) : args.fill;
        }
        true_before += __popc(ballot);
    }
    if (lane == 0) {
        flw_raise_flags(args.out.flags, bits);
    }
}

} // namespace

extern "C" __global__ void __launch_bounds__(FLW_TABLE_THREADS)
    flw_verify_pages(const flw_verify_pages_args args)
{
    const int64_t valid = flw_scalar(args.valid_count, args.batch);
    const int64_t rows = static_cast<int64_t>(args.batch) * args.draft_tokens;
    if (blockIdx.x > 0) {
        const int64_t m = (blockIdx.x - 1) * static_cast<int64_t>(FLW_TABLE_THREADS / FLW_WARP) +
                          threadIdx.x / FLW_WARP;
        if (m < rows) { // equal in all lanes of a warp; no barrier follows
            write_row(args, m, valid);
        }
        return;
    }
    const uint32_t width = args.draft_tokens;
    flw_table_write_lengths(args.out, rows, [&](int64_t m, int32_t *) {
        return static_cast<uint32_t>(m) / width < valid ? count_true(args, m) : args.pad_len;
    });
}
