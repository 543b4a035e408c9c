/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the arguments of the kernel page_table and the twin.
 */
#ifndef FLW_KERNELS_PAGE_TABLE_H
#define FLW_KERNELS_PAGE_TABLE_H

#include "common/integer.h"
#include "common/table.h"

struct flw_page_table_args {
    const void *lengths;         /* [batch] i32, or i64 */
    const int32_t *delta;        /* [1] or NULL */
    const int32_t *valid_count;  /* [1] or NULL */
    const int32_t *starts;       /* [batch] or NULL */
    const void *requests;        /* [batch] i32, or i64 */
    const int32_t *req_to_token; /* [request_rows, stride] */
    const int32_t *full_to_swa;  /* [swa_count] or NULL */
    int32_t *page_table;         /* [batch, cols], row stride ld */
    struct flw_table_lengths out;
    int64_t request_rows, stride, swa_count, ld;
    int32_t batch, cols, page_size, fill, pad_len;
    struct flw_divisor by_page; /* / page_size */
    uint32_t blocks_per_row;
    int32_t lengths_is_i64, requests_is_i64, is_bounded;
    int32_t is_vector_table, is_vector_source; /* rows begin at multiples of 16 bytes */
};

#endif
