// SPDX-License-Identifier: Apache-2.0
//
// concat_pages: row m is first[m / repeat, 0 .. la), then second[m, 0 .. lb), then fill;
// concat_pages_twin.c is the definition.
//
// Bytes     4 batch repeat cols written (bounded: 4 per used column), as many read without fill; `first` is in the
//           second level cache after the first row: bandwidth.
// Shape     as page_table: block 0 computes the lengths and their sums, the others write rows, 16 bytes a
//           thread. `first` is read 16 bytes at a time; `second` is short, begins at any column, and is read
//           element by element.
// Aliasing  none: the rows' blocks read the lengths while block 0 writes its own.
#include "attention/concat_pages.h"
#include "common/table.cuh"

namespace
{

struct row_plan {
    int32_t first, length; // la, la + lb
};

__device__ row_plan plan_row(const flw_concat_pages_args &args, uint32_t m, int32_t *bits)
{
    int32_t first = 0;
    if (args.first != nullptr) {
        const int32_t most = args.first_cols < args.cols ? args.first_cols : args.cols;
        first = static_cast<int32_t>(
            flw_bound_length(args.first_lengths[m / args.repeat], 0, most, bits));
    }
    const int32_t room = args.cols - first;
    const int64_t given =
        args.second_lengths == nullptr ? args.second_cols : args.second_lengths[m];
    const int64_t second =
        flw_bound_length(given, 0, args.second_cols < room ? args.second_cols : room, bits);
    return {first, first + static_cast<int32_t>(second)};
}

__device__ int32_t load_second(const flw_concat_pages_args &args, int64_t i, int32_t *bits)
{
    const int64_t value = flw_get_int(args.second, i, args.second_is_i64);
    if (value < INT32_MIN || value > INT32_MAX) {
        *bits |= FALLOW_FLAG_INDEX;
        return args.fill;
    }
    return static_cast<int32_t>(value);
}

__device__ void write_row(const flw_concat_pages_args &args, int64_t valid)
{
    const flw_table_part part = flw_table_part_of(blockIdx.x - 1, args.blocks_per_row);
    const int64_t m = part.row, r = part.row / static_cast<uint32_t>(args.repeat);
    int32_t bits = 0, ignored = 0; // block 0 reports about the lengths
    row_plan plan = {0, 0};
    int32_t end = args.pad_len;
    if (r < valid) {
        plan = plan_row(args, part.row, &ignored);
        end = plan.length;
    }
    end = args.is_bounded ? end : args.cols;
    const int32_t *first = args.first + r * args.first_ld; // unused if la is 0
    const int64_t second = m * args.second_ld - plan.first;

    flw_table_write_row(
        args.page_table + m * args.ld, part, end, args.is_vector_table, [&](uint32_t column) {
            const int32_t i = static_cast<int32_t>(column);
            flw_table_pack pack = flw_table_read(first + i, plan.first - i, args.is_vector_first);
#pragma unroll
            for (int k = 0; k < FLW_TABLE_PACK; k++) {
                if (i + k >= plan.first) {
                    pack.at[k] =
                        i + k < plan.length ? load_second(args, second + i + k, &bits) : args.fill;
                }
            }
            return pack;
        });
    flw_raise_flags(args.out.flags, bits);
}

} // namespace

extern "C" __global__ void __launch_bounds__(FLW_TABLE_THREADS)
    flw_concat_pages(const flw_concat_pages_args args)
{
    const int64_t valid = flw_scalar(args.valid_count, args.batch);
    const uint32_t repeat = args.repeat;
    if (blockIdx.x > 0) {
        write_row(args, valid);
        return;
    }
    flw_table_write_lengths(
        args.out, static_cast<int64_t>(args.batch) * repeat, [&](int64_t row, int32_t *bits) {
            const uint32_t m = static_cast<uint32_t>(row);
            return m / repeat < valid ? plan_row(args, m, bits).length : args.pad_len;
        });
}
