// SPDX-License-Identifier: Apache-2.0
//
// page_table: a row's length c, and page_table[r, j] = slot(start + j p) / p for j < ceil(c / p),
// then fill; page_table_twin.c is the definition.
//
// Bytes     4 batch cols written (bounded: 4 per page), and of the source 4 per page for p = 1, a sector of 32
//           for p >= 8: bandwidth with long rows, latency with short ones.
// Shape     block 0 computes every row's length and their sums. The others write rows, some blocks per row,
//           interleaved pack by pack, so that a long row among short ones is not one block's. Each computes the
//           row's length from the inputs: no block waits for another, and no memory has to be zero.
//           A thread writes 16 bytes; it reads 16 bytes if a page is one token, otherwise four slots that are in
//           flight at once. / p is a multiplication.
// Aliasing  none: the rows' blocks read the lengths while block 0 writes its own.
#include "attention/page_table.h"
#include "common/table.cuh"

namespace
{

struct row_plan {
    int64_t length, start;
};

__device__ row_plan plan_row(const flw_page_table_args &args, int64_t r, int32_t *bits)
{
    const int64_t given = flw_get_int(args.lengths, r, args.lengths_is_i64);
    const int64_t delta = flw_scalar(args.delta, 0);
    const int64_t start =
        flw_bound_length(args.starts == nullptr ? 0 : args.starts[r], 0, args.stride, bits);
    const int64_t in_table = static_cast<int64_t>(args.cols) * args.page_size;
    const int64_t in_source = args.stride - start;
    const int64_t most = in_table < in_source ? in_table : in_source;
    return {flw_bound_length(given, delta, most, bits), start};
}

__device__ int32_t page_of(const flw_page_table_args &args, int32_t slot, int32_t *bits)
{
    if (args.full_to_swa != nullptr && slot >= 0) {
        slot = slot < args.swa_count ? __ldg(args.full_to_swa + slot) : -1;
    }
    if (slot < 0) {
        *bits |= FALLOW_FLAG_INDEX;
        return args.fill;
    }
    return flw_divide(slot, args.by_page);
}

// Load the slots of up to four pages, from column i on.
__device__ flw_table_pack load_slots(const flw_page_table_args &args, const int32_t *source,
                                     uint32_t i, int32_t count, bool is_vector)
{
    if (args.page_size == 1) {
        return flw_table_read(source + i, count, is_vector);
    }
    flw_table_pack slots = {};
    const int32_t *from = source + static_cast<int64_t>(i) * args.page_size;
#pragma unroll
    for (int k = 0; k < FLW_TABLE_PACK; k++) {
        if (k < count) {
            slots.at[k] = __ldg(from + static_cast<int64_t>(k) * args.page_size);
        }
    }
    return slots;
}

__device__ void write_row(const flw_page_table_args &args, int64_t valid)
{
    const flw_table_part part = flw_table_part_of(blockIdx.x - 1, args.blocks_per_row);
    const int64_t r = part.row;
    int32_t bits = 0, ignored = 0; // block 0 reports about the lengths
    int64_t length = args.pad_len;
    const int32_t *source = nullptr;
    bool is_vector = false;
    if (r < valid) {
        const int64_t request = flw_get_int(args.requests, r, args.requests_is_i64);
        const row_plan plan = plan_row(args, r, &ignored);
        length = plan.length;
        if (request >= 0 && request < args.request_rows) {
            source = args.req_to_token + request * args.stride + plan.start;
            is_vector = args.is_vector_source && plan.start % FLW_TABLE_PACK == 0;
        } else {
            bits |= threadIdx.x == 0 ? FALLOW_FLAG_INDEX : 0;
        }
    }
    const int32_t last = static_cast<int32_t>(length) - 1; // length <= stride < 2^31
    const int32_t pages = last < 0 ? 0 : flw_divide(last, args.by_page) + 1;
    const int32_t found = source == nullptr ? 0 : pages;
    const int32_t end = args.is_bounded ? pages : args.cols;

    flw_table_write_row(
        args.page_table + r * args.ld, part, end, args.is_vector_table, [&](uint32_t i) {
            const int32_t count = found - static_cast<int32_t>(i); // may be negative
            const flw_table_pack slots = load_slots(args, source, i, count, is_vector);
            flw_table_pack pack;
#pragma unroll
            for (int k = 0; k < FLW_TABLE_PACK; k++) {
                pack.at[k] = k < count ? page_of(args, slots.at[k], &bits) : args.fill;
            }
            return pack;
        });
    flw_raise_flags(args.out.flags, bits);
}

} // namespace

extern "C" __global__ void __launch_bounds__(FLW_TABLE_THREADS)
    flw_page_table(const flw_page_table_args args)
{
    const int64_t valid = flw_scalar(args.valid_count, args.batch);
    if (blockIdx.x > 0) {
        write_row(args, valid);
        return;
    }
    flw_table_write_lengths(args.out, args.batch, [&](int64_t r, int32_t *bits) {
        return static_cast<int32_t>(r < valid ? plan_row(args, r, bits).length : args.pad_len);
    });
}
