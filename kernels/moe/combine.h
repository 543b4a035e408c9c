/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: what the kernel combine and its twin are given.
 */
#ifndef FLW_KERNELS_COMBINE_H
#define FLW_KERNELS_COMBINE_H

#include <stdint.h>

enum {
    FLW_COMBINE_THREADS = 256
};

struct flw_combine_args {
    const void *rows;         /* [row_count, width] */
    const float *weights;     /* [tokens, top_k] or NULL */
    const int32_t *positions; /* [tokens, top_k] or NULL */
    void *out;                /* [tokens, width] */
    int32_t *flags;           /* [1] or NULL */
    int64_t tokens, row_count, rows_stride, out_stride;
    uint32_t blocks_per_row;
    int32_t width, top_k;
    float scale;
    int32_t dtype; /* fallow_dtype */
    int32_t is_vector;
    int32_t rounds_each;
};

#endif
