/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the arguments of the kernel neutral_rows and the twin.
 */
#ifndef FLW_KERNELS_NEUTRAL_ROWS_H
#define FLW_KERNELS_NEUTRAL_ROWS_H

#include <stdint.h>

enum {
    FLW_NEUTRAL_THREADS = 256,
    FLW_NEUTRAL_TOKENS = FLW_NEUTRAL_THREADS / 32 /* of a block: one per warp */
};

struct flw_neutral_rows_args {
    void *rows;                 /* [tokens, segments, segment_units] of unit_bytes, or NULL */
    float *lse;                 /* [heads, tokens] or [tokens, heads], or NULL */
    const int32_t *cu_q;        /* [batch + 1] */
    const int32_t *key_counts;  /* [batch] or NULL */
    const int32_t *cu_k;        /* [batch + 1] or NULL */
    const int32_t *valid_count; /* [1] or NULL */
    int64_t segment_stride;     /* in units; a token has `segments` segments */
    int64_t segment_units;      /* units to set: a head, or all heads of a token if adjacent */
    int64_t lse_stride;
    int32_t tokens, heads, batch, segments;
    uint32_t unit_bytes;          /* 16 if rows are aligned, otherwise an element's: 4, 2 or 1 */
    uint32_t threads_per_segment; /* a warp, or a block */
    int32_t lse_by_token;
    float lse_value; /* -inf or +inf */
};

#endif
