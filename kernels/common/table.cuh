// SPDX-License-Identifier: Apache-2.0
//
// Owns: the device code of table.h: one block that computes each row's length and their sums, and
// blocks that write rows, including fill.
// Does not: know the contents of a row.
//
// A launch is 1 + rows * blocks_per_row blocks of FLW_TABLE_THREADS. No block waits for another:
// each computes the lengths that it needs from the inputs.
#ifndef FLW_KERNELS_TABLE_CUH
#define FLW_KERNELS_TABLE_CUH

#include "common/table.h"
#include "common/vector.cuh"

using flw_table_pack = flw_pack<int32_t, FLW_TABLE_PACK>;

// Called by every thread of one block; length_of(row, &bits) returns a row's length.
template <typename LengthOf>
__device__ inline void flw_table_write_lengths(const flw_table_lengths &out, int64_t rows,
                                               LengthOf length_of)
{
    __shared__ int64_t sums[FLW_WARP];
    const int64_t step = blockDim.x * FLW_TABLE_ITEMS;
    int64_t carried = 0, longest = 0;
    int32_t bits = 0;

    for (int64_t begin = 0; begin < rows; begin += step) {
        const int64_t first = begin + threadIdx.x * FLW_TABLE_ITEMS;
        int32_t lengths[FLW_TABLE_ITEMS];
        int64_t own = 0, total = 0;
#pragma unroll
        for (int j = 0; j < FLW_TABLE_ITEMS; j++) {
            lengths[j] = first + j < rows ? length_of(first + j, &bits) : 0;
        }
#pragma unroll
        for (int j = 0; j < FLW_TABLE_ITEMS; j++) {
            own += lengths[j];
            longest = lengths[j] > longest ? lengths[j] : longest;
        }
        int64_t sum = carried + flw_block_exclusive_sum(own, sums, &total);
#pragma unroll
        for (int j = 0; j < FLW_TABLE_ITEMS; j++) {
            sum += lengths[j];
            if (first + j < rows && out.lengths != nullptr) {
                out.lengths[first + j] = lengths[j];
            }
            if (first + j < rows && out.cu != nullptr) {
                out.cu[first + j + 1] = flw_saturate_i32(sum, &bits);
            }
        }
        carried += total;
        __syncthreads(); // before `sums` is used again
    }

    longest = flw_block_max(longest, sums);
    if (threadIdx.x == 0) {
        if (out.cu != nullptr) {
            out.cu[0] = 0;
        }
        if (out.max_length != nullptr) {
            *out.max_length = static_cast<int32_t>(longest);
        }
    }
    flw_raise_flags(out.flags, bits);
}

// The row and the part of it that this block writes: the parts of a row are interleaved, pack by
// pack.
struct flw_table_part {
    uint32_t row, first, step; // columns: a thread's first pack, and the distance to the next
};

__device__ inline flw_table_part flw_table_part_of(uint32_t block, uint32_t blocks_per_row)
{
    const uint32_t row = block / blocks_per_row, part = block - row * blocks_per_row;
    return {row, (part * FLW_TABLE_THREADS + threadIdx.x) * FLW_TABLE_PACK,
            blocks_per_row * FLW_TABLE_THREADS * FLW_TABLE_PACK};
}

// Write the part's columns below `end`; pack_of(i) returns columns i to i + 3, and is not called
// for a pack without any. is_vector: `to` begins at a multiple of 16 bytes.
template <typename PackOf>
__device__ inline void flw_table_write_row(int32_t *to, const flw_table_part &part, uint32_t end,
                                           bool is_vector, PackOf pack_of)
{
    for (uint32_t i = part.first; i < end; i += part.step) { // end <= 2^30, step <= 2^30 + 2^10
        const flw_table_pack pack = pack_of(i);
        if (is_vector && i + FLW_TABLE_PACK <= end) {
            flw_write<int32_t, FLW_TABLE_PACK>(to + i, pack);
        } else {
#pragma unroll
            for (int k = 0; k < FLW_TABLE_PACK; k++) {
                if (i + k < end) {
                    to[i + k] = pack.at[k];
                }
            }
        }
    }
}

// Return `count` elements (0 to 4) of a row from i on; is_vector: row begins at a multiple of 16
// bytes, i is a multiple of 4.
__device__ inline flw_table_pack flw_table_read(const int32_t *from, int64_t count, bool is_vector)
{
    flw_table_pack pack = {};
    if (is_vector && count >= FLW_TABLE_PACK) {
        return flw_read_once<int32_t, FLW_TABLE_PACK>(from);
    }
#pragma unroll
    for (int k = 0; k < FLW_TABLE_PACK; k++) {
        if (k < count) {
            pack.at[k] = __ldg(from + k);
        }
    }
    return pack;
}

#endif
