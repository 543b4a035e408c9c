/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the arguments of the kernel combine and the twin.
 */
#ifndef FLW_KERNELS_COMBINE_H
#define FLW_KERNELS_COMBINE_H

#include <stdint.h>

enum {
    FLW_COMBINE_THREADS = 256
};

/* The bound in moe.h, for n choices: relative to |scale| times the sum of |weight row|, before the
 * rounding to dtype. With u = 2^-24, a product of floats has an error of at most u of itself. It
 * is then in at most n - 1 sums (adding the first to 0 is exact) and in the scaling, and each
 * rounds by u again: together (1 + u)^(n + 1) - 1, which is below (n + 2) u for the at most 64
 * choices. Fused products would be within the same bound, with other bits. Values below 2^-126 are
 * multiples of 2^-149: each product and the scaled sum may have an additional error of half of
 * that. */
#define FLW_COMBINE_ERROR(n) (((n) + 2) * 0x1p-24)
#define FLW_COMBINE_STEP     0x1p-149

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
