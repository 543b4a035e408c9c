/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the arguments of the kernel local_attention and the twin, and the division of a request
 * into chunks. */
#ifndef FLW_KERNELS_LOCAL_ATTENTION_H
#define FLW_KERNELS_LOCAL_ATTENTION_H

#include "common/integer.h"

enum {
    FLW_LOCAL_ATTENTION_THREADS = 256,
    FLW_LOCAL_ATTENTION_ROWS = 64 /* virtual requests of a block, at most */
};

struct flw_local_attention_args {
    const int32_t *cu_seqlens_q; /* [batch + 1] */
    const int32_t *lengths;      /* [batch] */
    const int32_t *valid_count;  /* [1] or NULL */
    const int32_t *block_table;  /* [batch, table_columns], rows table_stride apart */
    int32_t *cu_q_local;         /* [capacity + 1] */
    int32_t *seqused_k;          /* [capacity] */
    int32_t *local_table;        /* [capacity, columns] */
    int32_t *virtual_count;      /* [1] or NULL */
    int32_t *flags;              /* [1] or NULL */
    int64_t table_stride;
    int32_t batch, capacity, chunk, page_size, table_columns;
    int32_t columns; /* chunk / page_size */
    struct flw_divisor by_chunk, by_page;
    int32_t rows_per_block;          /* the kernel's */
    int32_t tile_columns, tile_rows; /* threads of a row, rows in parallel */
    int32_t is_vector;               /* tables are moved 16 bytes at a time */
};

#endif
