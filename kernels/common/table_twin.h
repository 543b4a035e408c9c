/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the definition of a table's lengths (table.h), for twins: each row's, their sums, the
 * largest.
 * Independent of the contents of a row.
 *
 * A twin begins, adds the rows in order, and ends. */
#ifndef FLW_KERNELS_TABLE_TWIN_H
#define FLW_KERNELS_TABLE_TWIN_H

#include "common/twin.h"

struct flw_table_sum {
    int64_t rows, sum, longest;
    int32_t bits;
};

static inline void flw_table_sum_begin(struct flw_twin *twin, const struct flw_table_lengths *out,
                                       struct flw_table_sum *sum)
{
    *sum = (struct flw_table_sum){0};
    if (out->cu != NULL) {
        flw_store_i32(twin, "cu_k", out->cu, 0, 0);
    }
}

static inline void flw_table_sum_add(struct flw_twin *twin, const struct flw_table_lengths *out,
                                     struct flw_table_sum *sum, int64_t length)
{
    int64_t row = sum->rows++;
    sum->sum += length;
    sum->longest = length > sum->longest ? length : sum->longest;
    if (out->lengths != NULL) {
        flw_store_i32(twin, "cache_seqlens", out->lengths, row, (int32_t)length);
    }
    if (out->cu != NULL) {
        flw_store_i32(twin, "cu_k", out->cu, row + 1, flw_saturate_i32(sum->sum, &sum->bits));
    }
}

static inline void flw_table_sum_end(struct flw_twin *twin, const struct flw_table_lengths *out,
                                     struct flw_table_sum *sum)
{
    if (out->max_length != NULL) {
        flw_store_i32(twin, "max_length", out->max_length, 0, (int32_t)sum->longest);
    }
    flw_raise_flags(twin, out->flags, sum->bits);
}

#endif
