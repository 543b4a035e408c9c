/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the arguments of the kernel cu_seqlens and the twin.
 */
#ifndef FLW_KERNELS_CU_SEQLENS_H
#define FLW_KERNELS_CU_SEQLENS_H

#include "common/integer.h"

enum {
    FLW_CU_SEQLENS_THREADS = 1024,
    FLW_CU_SEQLENS_ITEMS = 4 /* of a thread, in one step of the block */
};

struct flw_cu_seqlens_args {
    const void *lengths;        /* [rows, batch] i32, or i64 */
    const int32_t *delta;       /* [1] or NULL */
    const int32_t *valid_count; /* [1] or NULL */
    void *cu_seqlens;           /* [rows, batch + 1], exclusive: [rows, batch]; i32, or i64 */
    void *total;                /* [rows] or NULL; i32, or i64 */
    int32_t *max_length;        /* [rows] or NULL */
    int32_t *flags;             /* [1] or NULL */
    int32_t batch, rows, round_to;
    int32_t lengths_is_i64, cu_is_i64, is_exclusive;
};

#endif
