/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the arguments of the kernel merge_states and the twin.
 */
#ifndef FLW_KERNELS_MERGE_STATES_H
#define FLW_KERNELS_MERGE_STATES_H

#include <stdint.h>

enum {
    FLW_MERGE_THREADS = 256,
    FLW_MERGE_PASSES = 2 /* rows of a thread in flight at once */
};

/* From this difference of two LSE on, exp(-difference) is 0 in float. */
#define FLW_MERGE_FAR       104.0f
#define FLW_MERGE_FAR_2     150.0f /* exp2 */
#define FLW_MERGE_LOG2_OF_E 1.44269504088896341f

/* A row is a head of a token: row token * heads + head. */
struct flw_merge_states_args {
    const void *a, *b; /* [tokens, heads, width] */
    const float *a_lse, *b_lse;
    void *out;                              /* [tokens, heads, width]; may be a or b */
    float *out_lse;                         /* or NULL; may be a_lse or b_lse */
    const int32_t *context_tokens;          /* [1] or NULL */
    const float *out_scale;                 /* [1] or NULL */
    int64_t a_stride, b_stride, out_stride; /* of rows */
    int64_t a_lse_stride, b_lse_stride, out_lse_stride;
    int32_t tokens, heads, width;
    uint32_t threads_per_row, rows_per_pass; /* their product is at most a block */
    int32_t dtype;                           /* of a and b, and of out unless quantised */
    int32_t is_vector;                       /* rows may be moved 16 bytes at a time */
    int32_t quantises;
    int32_t lse_by_token; /* 1: [tokens, heads]; 0: [heads, tokens] */
    int32_t is_base_2, keeps_a;
};

#endif
