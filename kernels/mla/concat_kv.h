/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the arguments of the kernel concat_kv and the twin.
 */
#ifndef FLW_KERNELS_CONCAT_KV_H
#define FLW_KERNELS_CONCAT_KV_H

#include <stdint.h>

enum {
    FLW_CONCAT_THREADS = 256,
    FLW_CONCAT_WIDEST = 16384, /* elements of a part */
    FLW_CONCAT_BATCH = 4       /* heads that a thread reads before it writes the first */
};

struct flw_concat_kv_args {
    const void *kv;             /* [tokens, heads, nope + value] */
    const void *k_rope;         /* [tokens, rope] */
    const int32_t *token_count; /* [1] or NULL */
    void *k;                    /* [tokens, heads, nope + rope] */
    void *v;                    /* [tokens, heads, v_columns] or NULL */
    /* Strides in bytes. */
    int64_t kv_token, kv_head, rope_token, k_token, k_head, v_token, v_head;
    int32_t tokens, heads;
    /* Widths in units of unit_bytes, which a thread moves at once. */
    int32_t nope_units, rope_units, value_units, v_units; /* v_units: of a row of v, 0 without */
    int32_t unit_bytes;
    int32_t columns; /* threads that share a head; divides the block */
};

#endif
