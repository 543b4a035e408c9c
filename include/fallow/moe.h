/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file
 * Kernel modules of mixtures of experts: routing, alignment to blocks, permutation, activation,
 * combination. kernels.h has the conventions.
 */
#ifndef FALLOW_MOE_H
#define FALLOW_MOE_H

#include "fallow/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- silu_and_mul: the activation between the two products of an expert */

/**
 * out[r, i] = silu(in[r, i]) * in[r, width + i], silu(x) = x / (1 + exp(-x)), in float and rounded
 * once; with `rounds_silu`, silu is rounded to the type first and the product again.
 *
 * Written: rows r with r % group_rows < row_counts[r / group_rows]; all without row_counts. Other
 * rows are outside the declared extent: neither written nor to be read.
 * Quantised (out_dtype E4M3): per 128 elements of a row, scale = max(largest |v|, 1e-10) / 448,
 * out = v / scale to nearest even, and v = out * scale.
 * silu is -0 below about -88.7 and NaN for -inf; inf * 0 is NaN, and NaN stays NaN.
 * Error: 4e-6 relative before the rounding; |silu| below 1e-36 may be 0.
 */
typedef struct fallow_silu_and_mul_params {
    size_t struct_size;
    const void *in; /**< [rows, 2 width], row stride in_stride: gate, then up; dtype */
    void *out;      /**< out [rows, width], row stride out_stride; out_dtype. May alias `in`
                                    exactly if out_stride is in_stride and the types are equal: each
                                    element then takes its gate's place. (A compact form over the
                                    same memory would overwrite rows that are still to be read.) */
    float *scales;  /**< out [rows, width / 128], quantised only */
    const int32_t *row_counts; /**< [rows / group_rows]; NULL = all rows */
    int64_t rows;              /**< 0 to 2^40 */
    int64_t group_rows;        /**< rows of one expert, divides rows; 0 = rows */
    int64_t in_stride;         /**< elements; 0 = 2 width */
    int64_t out_stride;        /**< elements; 0 = width */
    int32_t width;      /**< 1 to 2^20; quantised: a multiple of 128, rows aligned to 16 bytes */
    fallow_dtype dtype; /**< F16, BF16, F32 */
    fallow_dtype out_dtype; /**< dtype, or E4M3 */
    uint8_t rounds_silu;
    uint8_t reserved_0[3];
} fallow_silu_and_mul_params;

static inline void fallow_silu_and_mul_params_init(fallow_silu_and_mul_params *params)
{
    fallow_params_init_sized(params, sizeof *params);
}

FALLOW_API FALLOW_NODISCARD fallow_status fallow_moe_silu_and_mul_query(
    const fallow_silu_and_mul_params *params, fallow_workspace_need *out_need);

/** 3 rows width elements moved. One launch, no scratch. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_moe_silu_and_mul(
    fallow_kernels *kernels, const fallow_silu_and_mul_params *params, fallow_stream stream);

/* ---- combine: the weighted sum of the experts' rows */

/**
 * out[t, :] = scale * sum over j of weights[t, j] * rows[positions[t, j], :], j ascending, in float,
 * scaled last and rounded once; with `rounds_each` every product and partial sum is rounded to dtype.
 *
 * A j whose position is below 0 or whose weight is 0 is left out: its row is not read, so what is in it
 * (NaN of an expert that nobody chose) cannot show. A token with none left gets a row of 0. A position
 * of row_count or more counts as below 0 (INDEX). Nothing needs to be zero before: there are no atomics.
 */
typedef struct fallow_combine_params {
    size_t struct_size;
    const void *rows;         /**< [row_count, width], row stride rows_stride; dtype */
    const float *weights;     /**< [tokens, top_k]; NULL = all 1 */
    const int32_t *positions; /**< [tokens, top_k], the row of each choice; negative: dropped */
    void *out;                /**< out [tokens, width], row stride out_stride; dtype */
    int32_t *flags;           /**< in/out [1]; NULL = not wanted */
    int64_t tokens;           /**< 0 to 2^31 - 1 */
    int64_t row_count;        /**< 0 to 2^31 - 1 */
    int64_t rows_stride;      /**< elements; 0 = width */
    int64_t out_stride;       /**< elements; 0 = width */
    int32_t width;            /**< 1 to 2^20 */
    int32_t top_k;            /**< 1 to 64 */
    float scale;              /**< 0 = 1 */
    fallow_dtype dtype;       /**< F16, BF16, F32 */
    uint8_t rounds_each;
    uint8_t reserved_0[7];
} fallow_combine_params;

static inline void fallow_combine_params_init(fallow_combine_params *params)
{
    fallow_params_init_sized(params, sizeof *params);
}

FALLOW_API FALLOW_NODISCARD fallow_status
fallow_moe_combine_query(const fallow_combine_params *params, fallow_workspace_need *out_need);

/** (top_k + 1) tokens width elements and 8 tokens top_k bytes moved. One launch, no scratch. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_moe_combine(fallow_kernels *kernels,
                                                             const fallow_combine_params *params,
                                                             fallow_stream stream);

#ifdef __cplusplus
}
#endif

#endif
