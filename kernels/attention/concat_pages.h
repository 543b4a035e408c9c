/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the arguments of the kernel concat_pages and the twin.
 */
#ifndef FLW_KERNELS_CONCAT_PAGES_H
#define FLW_KERNELS_CONCAT_PAGES_H

#include "common/integer.h"
#include "common/table.h"

struct flw_concat_pages_args {
    const int32_t *first;          /* [batch, first_cols], first_ld apart, or NULL */
    const int32_t *first_lengths;  /* [batch] */
    const void *second;            /* [batch repeat, second_cols], second_ld apart; i32, or i64 */
    const int32_t *second_lengths; /* [batch repeat] or NULL */
    const int32_t *valid_count;    /* [1] or NULL */
    int32_t *page_table;           /* [batch repeat, cols], row stride ld */
    struct flw_table_lengths out;
    int64_t first_ld, second_ld, ld;
    int32_t batch, repeat, first_cols, second_cols, cols, fill, pad_len;
    uint32_t blocks_per_row;
    int32_t second_is_i64, is_bounded;
    int32_t is_vector_table, is_vector_first; /* rows begin at multiples of 16 bytes */
};

#endif
