/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: what the kernel silu_and_mul and its twin are given.
 */
#ifndef FLW_KERNELS_SILU_AND_MUL_H
#define FLW_KERNELS_SILU_AND_MUL_H

#include <stdint.h>

enum {
    FLW_SILU_THREADS = 256
};

struct flw_silu_and_mul_args {
    const void *in;            /* [rows, 2 width] */
    void *out;                 /* [rows, width]; may be `in` */
    float *scales;             /* [rows, width / 128] or NULL */
    const int32_t *row_counts; /* [rows / group_rows] or NULL */
    int64_t rows, group_rows, in_stride, out_stride;
    uint32_t blocks_per_row; /* rows x it are the grid, so rows are below 2^31 */
    int32_t width;
    int32_t dtype;     /* fallow_dtype of `in`, and of `out` where nothing is quantised */
    int32_t is_vector; /* rows may be moved 16 bytes at a time */
    int32_t quantises;
    int32_t rounds_silu;
};

#endif
