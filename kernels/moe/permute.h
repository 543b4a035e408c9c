/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the arguments of the kernel permute and the twin.
 */
#ifndef FLW_KERNELS_PERMUTE_H
#define FLW_KERNELS_PERMUTE_H

#include <stdint.h>

enum {
    FLW_PERMUTE_THREADS = 256,
    FLW_PERMUTE_PADDERS = 4 /* rows of the grid that write an expert's padding */
};

struct flw_permute_args {
    const void *in;           /* [tokens, width] */
    const int32_t *positions; /* [tokens, top_k] */
    const int32_t *offsets;   /* [experts + 1] or NULL */
    const int32_t *counts;    /* [experts] or NULL */
    void *out;                /* [row_count, width] */
    float *scales;            /* [row_count, width / 128] or NULL */
    int32_t *flags;           /* [1] or NULL */
    int64_t tokens, row_count, in_stride, out_stride;
    uint32_t blocks_per_row;
    int32_t width, top_k;
    int32_t experts;   /* experts with padding to be zeroed; 0: none */
    int32_t dtype;     /* fallow_dtype of `in`, and of `out` if nothing is quantised */
    int32_t is_vector; /* rows may be moved 16 bytes at a time */
    int32_t quantises;
};

#endif
