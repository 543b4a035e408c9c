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
 * Choose each token's experts. s[e] is the score of expert e; a NaN logit's score is 0 and +inf counts as the
 * largest float. The candidates are c = s + bias; a NaN is -inf. With `groups` above 1 a group's score is its
 * largest c, or with `groups_by_two` the sum of its two largest; the groups_kept best groups stay, and the c
 * of all others become -inf. ids are the experts of the top_k - shared largest c, descending; weights are
 * their s, not c. **Equal candidates and equal groups rank by lower number**, so ids are always different
 * and below `experts`, whatever the logits: a row of NaN gets ids 0, 1, 2 ... (without a bias).
 *
 * With S the sum of a token's weights: `renormalises` divides each weight by S; if S is 0, each becomes 1 /
 * their number. The last `shared` slots are shared experts, ids experts, experts + 1 ..., of weight S / scale
 * (1 / scale if renormalised). Then all weights are multiplied by scale, unless `leaves_scale` leaves
 * that to combine. Finally each id becomes physical[id].
 * Tokens from *token_count on are padding: ids -1, weights 0, logits not read.
 * Error: ids are exact if candidates are equal or differ by 1e-5 (relative); weights 1e-6 relative, 2e-6 if
 * the logit is more than 8 below the row's largest.
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

/** Use of expert_map. Values are pinned. */
typedef enum fallow_align_map {
    FALLOW_ALIGN_NO_MAP = 0,
    FALLOW_ALIGN_MAP_AFTER = 1, /**< all experts have blocks; expert_ids of a block is expert_map[e]
                                     (-1 for an expert of another rank) */
    FALLOW_ALIGN_MAP_BEFORE = 2 /**< each id is replaced by expert_map[id] first; -1 is dropped */
} fallow_align_map;

/** expert_ids beyond the last block. Values are pinned. */
typedef enum fallow_align_pad {
    FALLOW_ALIGN_PAD_ZERO = 0,
    FALLOW_ALIGN_PAD_MINUS_ONE = 1,
    FALLOW_ALIGN_PAD_LEAVE = 2 /**< outside the declared extent: not written, not to be read */
} fallow_align_pad;

/**
 * Sort tokens by expert, in whole blocks. c[e] is the number of flat indices i with ids[i] = e; begin[0] = 0
 * and begin[e + 1] = begin[e] + round_up(c[e], block_size). sorted_ids[begin[e] + r] is the r-th such i,
 * **ascending**; all other slots hold count. expert_ids[j] is the expert of the slots from j block_size on;
 * beyond the last block it is `pad`, never mapped. padded_count = begin[experts].
 * An id of -1 has no expert, nor has an id below -1 or not below `experts` (INDEX).
 *
 * `sorts_invalid`: an additional expert -1 precedes the others; slots from padded_count on are outside the
 * declared extent.
 * `batched`: without ids, expert (batch) b has batch_counts[b] indices b count, b count + 1 ..., with counts
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
    int64_t capacity;   /**< at least count + min(count, experts) (block_size - 1), with one more
                             expert for sorts_invalid; batched: experts round_up(count,
                             block_size). 0 = this least value. At most 2^31 - 1 */
    int32_t experts;    /**< 1 to 2,048; batched: batches */
    int32_t map_count;  /**< map_mode before: number of ids; 0 = experts */
    int32_t block_size; /**< 1 to 2^20 */
    fallow_dtype ids_dtype;    /**< I32, I64 */
    fallow_align_map map_mode; /**< use of expert_map */
    fallow_align_pad pad;      /**< expert_ids beyond the last block */
    uint8_t sorts_invalid;     /**< 1: ids without an expert are first */
    uint8_t batched;           /**< 1: batch_counts instead of ids */
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

/** Writes its own sentinels; no memory needs to be zero. One launch, no scratch. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_moe_align_blocks(
    fallow_kernels *kernels, const fallow_align_blocks_params *params, fallow_stream stream);

/* ---- expert_counts: number of tokens and position of the rows of each expert */

/**
 * Count the tokens of each expert and place their rows. counts[e] is the number of i with ids[i] = e;
 * offsets[0] = 0, offsets[e + 1] = offsets[e] + round_up(counts[e], align); ends[e] = offsets[e] + counts[e],
 * the psum layout. positions[i] = offsets[ids[i]] + the number of earlier i with the same expert: the row of
 * each choice, which permute and combine read; -1 if ids[i] is not in [0, experts) (INDEX unless it is -1).
 * m_indices[r] = e for offsets[e] <= r < offsets[e + 1], padding included, and -1 from offsets[experts] on:
 * a product skips a block by its first row; padding rows are computed and never read. Rows from `rows` on
 * have no m_indices, and positions of these rows are -1 (DROPPED).
 * masked_m[e] = counts[e], at most masked_rows (CLAMPED). With `masked_positions` the row of a choice is
 * e masked_rows + its number in e, -1 beyond masked_rows (DROPPED).
 * problem_sizes_1[e] = (counts[e], 2 intermediate, width), _2[e] = (counts[e], width, intermediate).
 *
 * Outputs that are not wanted may be NULL, but not all of them.
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
    int64_t rows; /**< 0 = count + min(count, experts) (align - 1), which is always enough; at
                              most 2^31 - 1 */
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

/** No memory needs to be zero. One launch, no scratch. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_moe_expert_counts(
    fallow_kernels *kernels, const fallow_expert_counts_params *params, fallow_stream stream);

/* ---- permute: copy each token's row to the rows of its choices */

/** Rows between an expert's last token and the next expert's first. Values are pinned. */
typedef enum fallow_permute_pad {
    FALLOW_PERMUTE_PAD_DEFAULT = 0, /**< zero if rows are quantised, else skip */
    FALLOW_PERMUTE_PAD_SKIP = 1,    /**< outside the declared extent */
    FALLOW_PERMUTE_PAD_ZERO = 2     /**< data and scales are 0: needs offsets and counts */
} fallow_permute_pad;

/**
 * out[positions[t, j], :] = in[t, :] with the positions of expert_counts. A choice with a position below 0
 * has no row, nor has one not below row_count (INDEX). Positions must be different. combine is the inverse.
 * Quantised (out_dtype E4M3, dtype another): per 128 elements of a row, scale = max(largest |v|, 1e-10) /
 * 448, out = v / scale to nearest even, and v = out * scale; a NaN stays NaN and does not affect scale.
 * Written: the rows in positions, and with `pad` zero rows [offsets[e] + counts[e], offsets[e + 1]) below
 * row_count. Other rows are outside the declared extent.
 * Permute the rows of scales of E4M3 input by a separate call, as F32.
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
    fallow_dtype out_dtype; /**< dtype (or 0); or E4M3, of F16, BF16, F32 */
    fallow_permute_pad pad; /**< rows without a position */
} fallow_permute_params;

/** Set all fields to 0, their default, and set struct_size. */
static inline void fallow_permute_params_init(fallow_permute_params *params)
{
    fallow_params_init_sized(params, sizeof *params);
}

/** Return the memory that the call needs, reads and writes. Pure; checks shapes and types as the call does. */
FALLOW_API FALLOW_NODISCARD fallow_status
fallow_moe_permute_query(const fallow_permute_params *params, fallow_workspace_need *out_need);

/** Reads each token's row once and writes it top_k times. One launch, no scratch. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_moe_permute(fallow_kernels *kernels,
                                                             const fallow_permute_params *params,
                                                             fallow_stream stream);

/* ---- silu_and_mul: the activation between the two products of an expert */

/**
 * out[r, i] = silu(in[r, i]) * in[r, width + i], silu(x) = x / (1 + exp(-x)), in float and rounded
 * once; with `rounds_silu`, silu is rounded to the type first and the product again.
 *
 * Written: rows r with r % group_rows < row_counts[r / group_rows]; all rows without row_counts. Other rows
 * are outside the declared extent: not written, and must not be read.
 * Quantised (out_dtype E4M3): per 128 elements of a row, scale = max(largest |v|, 1e-10) / 448,
 * out = v / scale to nearest even, and v = out * scale.
 * silu is -0 below about -88.7 and NaN for -inf; inf * 0 is NaN, and NaN stays NaN.
 * Error: 5e-6 relative before the (last) rounding, if |silu| is 1.1e-36 or more and the product is not
 * subnormal; otherwise silu may be 0. Quantised: the scale has the error of the largest |v|.
 */
typedef struct fallow_silu_and_mul_params {
    size_t struct_size; /**< set by fallow_silu_and_mul_params_init */
    const void *in;     /**< [rows, 2 width], row stride in_stride: gate, then up; dtype */
    void *out;          /**< out [rows, width], row stride out_stride; out_dtype. May alias `in`
                                    exactly if out_stride is in_stride and the types are equal: each
                                    element then overwrites its gate. (A compact form over the same
                                    memory would overwrite rows before they are read.) */
    float *scales;      /**< out [rows, width / 128], quantised only */
    const int32_t *row_counts; /**< [rows / group_rows]; NULL = all rows */
    int64_t rows;              /**< 0 to 2^40 */
    int64_t group_rows;        /**< rows of one expert, divides rows; 0 = rows */
    int64_t in_stride;         /**< elements; 0 = 2 width */
    int64_t out_stride;        /**< elements; 0 = width */
    int32_t width;      /**< 1 to 2^20; quantised: a multiple of 128, rows aligned to 16 bytes */
    fallow_dtype dtype; /**< F16, BF16, F32 */
    fallow_dtype out_dtype; /**< dtype (or 0), or E4M3 */
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

/** Reads and writes 3 rows width elements. One launch, no scratch. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_moe_silu_and_mul(
    fallow_kernels *kernels, const fallow_silu_and_mul_params *params, fallow_stream stream);

/* ---- combine: the weighted sum of the experts' rows */

/**
 * out[t, :] = scale * sum over j of weights[t, j] * rows[positions[t, j], :], j ascending, in float,
 * scaled last and rounded to dtype once; with `rounds_each` every product and partial sum is also rounded
 * to dtype. A product, a sum and the scaling are each rounded to float by themselves, never fused: every
 * device gives the same bits (of a NaN, only that it is one).
 * Error before the last rounding, without `rounds_each`: with n choices that count, at most (n + 2) 2^-24
 * |scale| times the sum of their |weight * row|, plus (n |scale| + 1) 2^-150 for subnormals, if no sum of the
 * absolute values, scaled or not, reaches 2^128.
 *
 * A choice with a position below 0 or a weight of 0 does not count: its row is not read, so its contents (NaN
 * of an expert that was not chosen) have no effect. A token without choices that count gets a row of 0. A
 * position not below row_count counts as below 0 (INDEX). No memory needs to be zero: there are no atomics.
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

/** Reads and writes (top_k + 1) tokens width elements and 8 tokens top_k bytes. One launch, no scratch. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_moe_combine(fallow_kernels *kernels,
                                                             const fallow_combine_params *params,
                                                             fallow_stream stream);

#ifdef __cplusplus
}
#endif

#endif
