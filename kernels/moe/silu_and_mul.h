/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the arguments of the kernel silu_and_mul and the twin.
 */
#ifndef FLW_KERNELS_SILU_AND_MUL_H
#define FLW_KERNELS_SILU_AND_MUL_H

#include <stdint.h>

enum {
    FLW_SILU_THREADS = 256
};

/* log2(e), to nearest: 1.34e-8 too small (relative). */
#define FLW_SILU_LOG2_OF_E 1.44269502f

/* The bound in moe.h, relative and before the last rounding, if |silu| is FLW_SILU_LEAST or more.
 * The kernel computes y = -x log2(e), e = 2^y, s = 1 + e, x / s, times up. An error of e counts by
 * e / (1 + e), so the worst cases have a large e: x down to -87.4, where s reaches 2^126 and the
 * division's own bound ends. In units of 1e-6:
 *
 *   2.65  y is below 128, so the rounding is at most 2^-18, which changes 2^y by 2^-18 ln 2
 *   1.17  the constant has an error of 1.34e-8, times |y| ln 2 = 87.4
 *   0.30  ex2.approx: 2 ulp of the correctly rounded result (PTX ISA, ex2), 2.5 2^-23
 *   0.06  1 + e: 2^-24
 *   0.30  __fdividef: 2 ulp, for a divisor up to 2^126 (CUDA Programming Guide, intrinsic functions)
 *   0.06  the product: 2^-24
 *
 * together 4.54. The guide's bound for __expf is 2 + floor(1.173 |x|) ulp, 104 here, or 12.4 in
 * this unit; it is the same product and ex2.approx, but that is not documented, so the kernel uses
 * the instruction itself.
 *
 * For s from 2^126 up, __fdividef returns 0: |silu| is below 87.4 / 2^126 there. */
#define FLW_SILU_ERROR 5e-6
#define FLW_SILU_LEAST 1.1e-36

struct flw_silu_and_mul_args {
    const void *in;            /* [rows, 2 width] */
    void *out;                 /* [rows, width]; may be `in` */
    float *scales;             /* [rows, width / 128] or NULL */
    const int32_t *row_counts; /* [rows / group_rows] or NULL */
    int64_t rows, group_rows, in_stride, out_stride;
    uint32_t blocks_per_row; /* rows times this are the grid, so rows are below 2^31 */
    int32_t width;
    int32_t dtype;     /* fallow_dtype of `in`, and of `out` if nothing is quantised */
    int32_t is_vector; /* rows may be moved 16 bytes at a time */
    int32_t quantises;
    int32_t rounds_silu;
};

#endif
