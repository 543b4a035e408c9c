/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the arguments of the kernel padded_copy and the twin.
 */
#ifndef FLW_KERNELS_PADDED_COPY_H
#define FLW_KERNELS_PADDED_COPY_H

#include <stdint.h>

enum {
    FLW_PADDED_COPY_THREADS = 256
};

/* Rows that are adjacent in both are one stretch: `stretches` is 1 and contains the rows;
 * otherwise one stretch per row. */
struct flw_padded_copy_args {
    const void *src;            /* [src_rows, width]; NULL: none */
    void *dst;                  /* [rows, width]; may be src */
    const int32_t *valid_count; /* [1] or NULL */
    int64_t value;
    int64_t src_stride, dst_stride; /* of stretches */
    int64_t stretch;                /* elements of one */
    int64_t rows, width;
    int64_t src_rows; /* at most rows */
    uint32_t blocks_per_stretch;
    int32_t is_flat; /* one stretch */
    int32_t is_i64, is_vector;
};

#endif
