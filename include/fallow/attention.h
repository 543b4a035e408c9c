/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file
 * Kernel modules of attention: prefix sums of lengths, page tables, merge of attention states.
 * kernels.h has the conventions.
 */
#ifndef FALLOW_ATTENTION_H
#define FALLOW_ATTENTION_H

#include "fallow/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- cu_seqlens: lengths to offsets */

/**
 * For each of `rows` rows: y[0] = 0, y[i+1] = the sum over j <= i of g(s[j]) for i < n, and
 * y[i+1] = y[n] for n <= i < batch, a flat tail of zero-length entries. Here n = *valid_count clamped
 * to [0, batch], and g(v) = round_up(max(v + *delta, 0), round_to).
 *
 * Sums are int64; one above what cu_seqlens holds is stored as that type's largest value (OVERFLOW).
 * A v + *delta below 0 counts as 0 (NEGATIVE). total = y[n]. max_length is the largest v + *delta of
 * the valid ones before rounding, 0 if there are none. Exclusive form: without y[batch].
 */
typedef struct fallow_cu_seqlens_params {
    size_t struct_size;   /**< set by fallow_cu_seqlens_params_init */
    const void *lengths;  /**< [rows, batch] lengths_dtype; may alias cu_seqlens exactly if that
                                     is exclusive or rows is 1, and the types are equal */
    const int32_t *delta; /**< [1], added to each valid length; NULL = 0 */
    const int32_t *valid_count; /**< [1]; NULL = batch */
    void *cu_seqlens;           /**< out [rows, batch + 1], exclusive: [rows, batch]; cu_dtype */
    void *total;                /**< out [rows] cu_dtype; NULL = not wanted */
    int32_t *max_length;        /**< out [rows]; NULL = not wanted */
    int32_t *flags;             /**< in/out [1]; NULL = not wanted */
    int32_t batch;              /**< 0 to 65,536 */
    int32_t rows;               /**< 1 to 65,535; 0 = 1 */
    int32_t round_to;           /**< >= 1; 0 = 1 */
    fallow_dtype lengths_dtype; /**< I32, I64 */
    fallow_dtype cu_dtype;      /**< I32, I64 */
    uint8_t exclusive;          /**< 1: y[batch] is left out */
    uint8_t reserved_0[3];
} fallow_cu_seqlens_params;

static inline void fallow_cu_seqlens_params_init(fallow_cu_seqlens_params *params)
{
    fallow_params_init_sized(params, sizeof *params);
}

FALLOW_API FALLOW_NODISCARD fallow_status fallow_attention_cu_seqlens_query(
    const fallow_cu_seqlens_params *params, fallow_workspace_need *out_need);

/** Replaces zeros and cat, pad of cumsum, or copy of cumsum into cu[1:]. One launch, one block a
 *  row, no scratch. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_attention_cu_seqlens(
    fallow_kernels *kernels, const fallow_cu_seqlens_params *params, fallow_stream stream);

#ifdef __cplusplus
}
#endif

#endif
