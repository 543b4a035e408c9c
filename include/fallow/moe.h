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

/* ---- route: each token's experts and their weights */

/** How a logit becomes a score. Values are pinned. */
typedef enum fallow_route_score {
    FALLOW_ROUTE_SOFTMAX = 0, /**< exp(x - largest) / sum; 0 in a row without a finite largest */
    FALLOW_ROUTE_SIGMOID = 1  /**< 1 / (1 + exp(-x)) */
} fallow_route_score;

/**
 * For each token: the score s[e] of each expert, a NaN logit's is 0 and +inf counts as the largest
 * float; the candidates c = s + bias, a NaN is -inf. With `groups` above 1 a group's score is its
 * largest c, or with `groups_by_two` the sum of its two largest; the groups_kept best stay, the c of
 * all others becomes -inf. ids = the top_k - shared largest c, descending; weights are their s, not c.
 * **Equal candidates and equal groups rank by lower number**, so that ids are always different and
 * below `experts`, whatever the logits: a row of NaN gets ids 0, 1, 2 ... (without a bias).
 *
 * With S the sum of a token's weights: `renormalises` makes them w / S, or 1 / their number where S is
 * 0. The last `shared` slots are shared experts, ids experts, experts + 1 ..., of weight S / scale
 * (1 / scale if renormalised). Then all weights are multiplied by scale, unless `leaves_scale`: the
 * combine does it. Last, each id becomes physical[id].
 * Tokens from *token_count on are padding: ids -1, weights 0, logits not read.
 * Error: ids are exact where candidates are equal or 1e-5 apart (relative); weights 1e-6 relative,
 * 2e-6 where the logit is more than 8 below the row's largest.
 */
typedef struct fallow_route_params {
    size_t struct_size;         /**< set by fallow_route_params_init */
    const void *logits;         /**< [tokens, experts], row stride logits_stride; dtype */
    const float *bias;          /**< [experts]; NULL = 0 */
    const int32_t *token_count; /**< [1], clamped to [0, tokens]; NULL = tokens */
    const int32_t *physical;    /**< [experts + shared]; NULL = the id itself */
    float *weights;             /**< out [tokens, top_k] */
    void *ids;                  /**< out [tokens, top_k] ids_dtype */
    int64_t tokens;             /**< 0 to 2^31 - 1 */
    int64_t logits_stride;      /**< elements; 0 = experts */
    int32_t experts;            /**< 1 to 1,024 */
    int32_t top_k;              /**< 1 to 32, shared ones counted */
    int32_t shared;             /**< 0 to top_k - 1 */
    int32_t groups;             /**< 1 to 32, divides experts; 0 = 1 */
    int32_t groups_kept;        /**< 1 to groups; 0 = groups */
    float scale;                /**< finite and above 0; 0 = 1 */
    fallow_dtype dtype;         /**< F16, BF16, F32 */
    fallow_dtype ids_dtype;     /**< I32, I64 */
    fallow_route_score score;   /**< how a logit becomes a score */
    uint8_t groups_by_two;      /**< 1: a group counts with its two largest */
    uint8_t renormalises;       /**< 1: a token's weights add up to 1 before scale */
    uint8_t leaves_scale;       /**< 1: the combine multiplies by scale */
    uint8_t reserved_0;
} fallow_route_params;

/** Set all fields to 0, their default, and set struct_size. */
static inline void fallow_route_params_init(fallow_route_params *params)
{
    fallow_params_init_sized(params, sizeof *params);
}

/** Return the memory that the call needs, reads and writes. Pure; checks shapes and types as the call does. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_moe_route_query(const fallow_route_params *params,
                                                                 fallow_workspace_need *out_need);

/** tokens experts elements read, (4 + 4 or 8) tokens top_k bytes written. One launch, no scratch. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_moe_route(fallow_kernels *kernels,
                                                           const fallow_route_params *params,
                                                           fallow_stream stream);

/* ---- align_blocks: tokens sorted by expert, in whole blocks */

/** What expert_map does. Values are pinned. */
typedef enum fallow_align_map {
    FALLOW_ALIGN_NO_MAP = 0,
    FALLOW_ALIGN_MAP_AFTER = 1, /**< blocks of all experts are laid out; what is written for a block
                                     is expert_map[e] (-1 of an expert that lives elsewhere) */
    FALLOW_ALIGN_MAP_BEFORE = 2 /**< an id becomes expert_map[id] first, -1 is dropped */
} fallow_align_map;

/** expert_ids beyond the last block. Values are pinned. */
typedef enum fallow_align_pad {
    FALLOW_ALIGN_PAD_ZERO = 0,
    FALLOW_ALIGN_PAD_MINUS_ONE = 1,
    FALLOW_ALIGN_PAD_LEAVE = 2 /**< outside the declared extent: not written, not to be read */
} fallow_align_pad;

/**
 * With c[e] the number of flat indices i whose ids[i] is e, begin[0] = 0 and begin[e + 1] = begin[e] +
 * round_up(c[e], block_size): sorted_ids[begin[e] + r] is the r-th i of expert e, **ascending**; all
 * other slots hold count. expert_ids[j] is the expert of the slots from j block_size on; beyond the
 * last block it is `pad`, never mapped. padded_count = begin[experts].
 * An id of -1 has no expert; so has one below -1, or of experts or more (INDEX).
 *
 * `sorts_invalid`: one expert more, -1, which comes first; slots from padded_count on are outside the
 * declared extent.
 * `batched`: no ids; expert (batch) b has the batch_counts[b] indices b count, b count + 1 ..., counts
 * cut to [0, count] (NEGATIVE, CLAMPED); empty slots hold experts count.
 */
typedef struct fallow_align_blocks_params {
    size_t struct_size;          /**< set by fallow_align_blocks_params_init */
    const void *ids;             /**< [count] ids_dtype, not batched */
    const int32_t *batch_counts; /**< [experts], batched */
    const int32_t *expert_map;   /**< [map_count], with a map_mode */
    int32_t *sorted_ids;         /**< out [capacity] */
    int32_t *expert_ids;         /**< out [ceil(capacity / block_size)] */
    int32_t *padded_count;       /**< out [1] */
    int32_t *flags;              /**< in/out [1]; NULL = not wanted */
    int64_t count;               /**< tokens top_k; batched: the most of one batch. 0 to 2^31 - 1 */
    int64_t capacity; /**< at least, and 0 =, count + min(count, experts) (block_size - 1), with one
                             expert more for sorts_invalid; batched: experts round_up(count,
                             block_size). At most 2^31 - 1 */
    int32_t experts;  /**< 1 to 2,048; batched: batches */
    int32_t map_count;         /**< map_mode before: ids are below it; 0 = experts */
    int32_t block_size;        /**< 1 to 2^20 */
    fallow_dtype ids_dtype;    /**< I32, I64 */
    fallow_align_map map_mode; /**< what expert_map does */
    fallow_align_pad pad;      /**< expert_ids beyond the last block */
    uint8_t sorts_invalid;     /**< 1: ids without an expert come first */
    uint8_t batched;           /**< 1: batch_counts in the place of ids */
    uint8_t reserved_0[6];
} fallow_align_blocks_params;

/** Set all fields to 0, their default, and set struct_size. */
static inline void fallow_align_blocks_params_init(fallow_align_blocks_params *params)
{
    fallow_params_init_sized(params, sizeof *params);
}

/** Return the memory that the call needs, reads and writes. Pure; checks shapes and types as the call does. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_moe_align_blocks_query(
    const fallow_align_blocks_params *params, fallow_workspace_need *out_need);

/** Fills its own sentinels; nothing must be zero before. One launch, no scratch. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_moe_align_blocks(
    fallow_kernels *kernels, const fallow_align_blocks_params *params, fallow_stream stream);

/* ---- expert_counts: how many tokens each expert has, and where their rows lie */

/**
 * counts[e] = the number of i with ids[i] = e; offsets[0] = 0, offsets[e + 1] = offsets[e] +
 * round_up(counts[e], align); ends[e] = offsets[e] + counts[e], the psum layout. positions[i] =
 * offsets[ids[i]] + the number of earlier i of the same expert: the row of each choice, what permute and
 * combine read; -1 where ids[i] is none of [0, experts) (INDEX unless it is -1).
 * m_indices[r] = e for offsets[e] <= r < offsets[e + 1], padding included, and -1 from
 * offsets[experts] on: a product skips a block by its first row, padding rows are computed and never
 * read. Rows from `rows` on have no m_indices, and positions there are -1 (DROPPED).
 * masked_m[e] = counts[e], at most masked_rows (CLAMPED); `masked_positions`: the row of a choice is
 * e masked_rows + its number in e, -1 beyond masked_rows (DROPPED).
 * problem_sizes_1[e] = (counts[e], 2 intermediate, width), _2[e] = (counts[e], width, intermediate).
 *
 * Each output may be NULL: not wanted; not all of them.
 */
typedef struct fallow_expert_counts_params {
    size_t struct_size;       /**< set by fallow_expert_counts_params_init */
    const void *ids;          /**< [count] ids_dtype */
    int32_t *counts;          /**< out [experts] */
    int32_t *offsets;         /**< out [experts + 1] */
    int32_t *ends;            /**< out [experts] */
    int32_t *positions;       /**< out [count] */
    int32_t *m_indices;       /**< out [rows] */
    int32_t *masked_m;        /**< out [experts] */
    int32_t *problem_sizes_1; /**< out [experts, 3] */
    int32_t *problem_sizes_2; /**< out [experts, 3] */
    int32_t *flags;           /**< in/out [1]; NULL = not wanted */
    int64_t count;            /**< tokens top_k, 0 to 2^31 - 1 */
    int64_t rows; /**< 0 = count + min(count, experts) (align - 1), which is always enough and
                              at most 2^31 - 1 */
    int64_t masked_rows;      /**< of one expert; 0 = count */
    int32_t experts;          /**< 1 to 2,048 */
    int32_t align;            /**< 1 to 2^20; 0 = 1 */
    int32_t width;            /**< of the problem sizes, 0 to 2^20 */
    int32_t intermediate;     /**< of the problem sizes, 0 to 2^20 */
    fallow_dtype ids_dtype;   /**< I32, I64 */
    uint8_t masked_positions; /**< 1: positions in the masked rows */
    uint8_t reserved_0[3];
} fallow_expert_counts_params;

/** Set all fields to 0, their default, and set struct_size. */
static inline void fallow_expert_counts_params_init(fallow_expert_counts_params *params)
{
    fallow_params_init_sized(params, sizeof *params);
}

/** Return the memory that the call needs, reads and writes. Pure; checks shapes and types as the call does. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_moe_expert_counts_query(
    const fallow_expert_counts_params *params, fallow_workspace_need *out_need);

/** Nothing must be zero before. One launch, no scratch. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_moe_expert_counts(
    fallow_kernels *kernels, const fallow_expert_counts_params *params, fallow_stream stream);

/* ---- permute: tokens' rows to the rows of their choices */

/** Rows between an expert's last token and the next expert's first. Values are pinned. */
typedef enum fallow_permute_pad {
    FALLOW_PERMUTE_PAD_DEFAULT = 0, /**< zero where rows are quantised, else skip */
    FALLOW_PERMUTE_PAD_SKIP = 1,    /**< outside the declared extent */
    FALLOW_PERMUTE_PAD_ZERO = 2     /**< data and scales are 0: needs offsets and counts */
} fallow_permute_pad;

/**
 * out[positions[t, j], :] = in[t, :]; positions are expert_counts'. A position below 0 has no row; one of
 * row_count or more neither (INDEX). Positions are different; combine is the way back.
 * Quantised (out_dtype E4M3, dtype another): per 128 elements of a row, scale = max(largest |v|, 1e-10) /
 * 448, out = v / scale to nearest even, and v = out * scale; a NaN stays NaN and has no part in scale.
 * Written: the rows that positions name, and with `pad` zero rows [offsets[e] + counts[e],
 * offsets[e + 1]) below row_count. Others are outside the declared extent.
 * Rows of scales that came with E4M3 rows are permuted by a call of their own, as F32.
 */
typedef struct fallow_permute_params {
    size_t struct_size;       /**< set by fallow_permute_params_init */
    const void *in;           /**< [tokens, width], row stride in_stride; dtype */
    const int32_t *positions; /**< [tokens, top_k] */
    const int32_t *offsets;   /**< [experts + 1], for pad zero */
    const int32_t *counts;    /**< [experts], for pad zero */
    void *out;                /**< out [row_count, width], row stride out_stride; out_dtype */
    float *scales;            /**< out [row_count, width / 128], quantised only */
    int32_t *flags;           /**< in/out [1]; NULL = not wanted */
    int64_t tokens;           /**< 0 to 2^31 - 1 */
    int64_t row_count;        /**< 0 to 2^31 - 1 */
    int64_t in_stride;        /**< elements; 0 = width */
    int64_t out_stride;       /**< elements; 0 = width */
    int32_t width;      /**< 1 to 2^20; quantised: a multiple of 128, rows aligned to 16 bytes */
    int32_t top_k;      /**< 1 to 64 */
    int32_t experts;    /**< for pad zero, 1 to 2,048 */
    fallow_dtype dtype; /**< F16, BF16, F32, E4M3, U8 */
    fallow_dtype out_dtype; /**< dtype; or E4M3, of F16, BF16, F32 */
    fallow_permute_pad pad; /**< rows that no position names */
} fallow_permute_params;

/** Set all fields to 0, their default, and set struct_size. */
static inline void fallow_permute_params_init(fallow_permute_params *params)
{
    fallow_params_init_sized(params, sizeof *params);
}

/** Return the memory that the call needs, reads and writes. Pure; checks shapes and types as the call does. */
FALLOW_API FALLOW_NODISCARD fallow_status
fallow_moe_permute_query(const fallow_permute_params *params, fallow_workspace_need *out_need);

/** A token's row is read once and written top_k times. One launch, no scratch. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_moe_permute(fallow_kernels *kernels,
                                                             const fallow_permute_params *params,
                                                             fallow_stream stream);

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
 * Error: 5e-6 relative before the (last) rounding, where |silu| is 1.1e-36 or more and the product is not
 * subnormal; below, silu may be 0. Quantised: the scale is off as much as the largest |v|.
 */
typedef struct fallow_silu_and_mul_params {
    size_t struct_size; /**< set by fallow_silu_and_mul_params_init */
    const void *in;     /**< [rows, 2 width], row stride in_stride: gate, then up; dtype */
    void *out;          /**< out [rows, width], row stride out_stride; out_dtype. May alias `in`
                                    exactly if out_stride is in_stride and the types are equal: each
                                    element then takes its gate's place. (A compact form over the
                                    same memory would overwrite rows that are still to be read.) */
    float *scales;      /**< out [rows, width / 128], quantised only */
    const int32_t *row_counts; /**< [rows / group_rows]; NULL = all rows */
    int64_t rows;              /**< 0 to 2^40 */
    int64_t group_rows;        /**< rows of one expert, divides rows; 0 = rows */
    int64_t in_stride;         /**< elements; 0 = 2 width */
    int64_t out_stride;        /**< elements; 0 = width */
    int32_t width;      /**< 1 to 2^20; quantised: a multiple of 128, rows aligned to 16 bytes */
    fallow_dtype dtype; /**< F16, BF16, F32 */
    fallow_dtype out_dtype; /**< dtype, or E4M3 */
    uint8_t rounds_silu;    /**< 1: silu is rounded to dtype before the product */
    uint8_t reserved_0[3];
} fallow_silu_and_mul_params;

/** Set all fields to 0, their default, and set struct_size. */
static inline void fallow_silu_and_mul_params_init(fallow_silu_and_mul_params *params)
{
    fallow_params_init_sized(params, sizeof *params);
}

/** Return the memory that the call needs, reads and writes. Pure; checks shapes and types as the call does. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_moe_silu_and_mul_query(
    const fallow_silu_and_mul_params *params, fallow_workspace_need *out_need);

/** 3 rows width elements moved. One launch, no scratch. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_moe_silu_and_mul(
    fallow_kernels *kernels, const fallow_silu_and_mul_params *params, fallow_stream stream);

/* ---- combine: the weighted sum of the experts' rows */

/**
 * out[t, :] = scale * sum over j of weights[t, j] * rows[positions[t, j], :], j ascending, in float,
 * scaled last and rounded to dtype once; with `rounds_each` every product and partial sum is rounded to
 * dtype too. A product, a sum and the scaling are each rounded to float by themselves, never fused: every
 * device gives the same bits (of a NaN, only that it is one).
 * Error before the last rounding, without `rounds_each`: of n choices that are not left out, (n + 2) 2^-24
 * |scale| times the sum of their |weight * row|, and (n |scale| + 1) 2^-150 besides for what is
 * subnormal; where no sum of the absolute values, scaled or not, reaches 2^128.
 *
 * A j whose position is below 0 or whose weight is 0 is left out: its row is not read, so what is in it
 * (NaN of an expert that was not chosen) cannot show. A token with none left gets a row of 0. A
 * position of row_count or more counts as below 0 (INDEX). Nothing needs to be zero before: there
 * are no atomics.
 */
typedef struct fallow_combine_params {
    size_t struct_size;       /**< set by fallow_combine_params_init */
    const void *rows;         /**< [row_count, width], row stride rows_stride; dtype */
    const float *weights;     /**< [tokens, top_k]; NULL = all 1 */
    const int32_t *positions; /**< [tokens, top_k], the row of each choice; negative: dropped. NULL:
                                    choice j of token t is row t top_k + j */
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
    uint8_t rounds_each;      /**< 1: every product and partial sum is rounded to dtype */
    uint8_t reserved_0[7];
} fallow_combine_params;

/** Set all fields to 0, their default, and set struct_size. */
static inline void fallow_combine_params_init(fallow_combine_params *params)
{
    fallow_params_init_sized(params, sizeof *params);
}

/** Return the memory that the call needs, reads and writes. Pure; checks shapes and types as the call does. */
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
