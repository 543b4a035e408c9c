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
 * Sums are int64; a sum too large for the type of cu_seqlens is stored as its largest value (OVERFLOW).
 * A v + *delta below 0 counts as 0 (NEGATIVE). total = y[n]. max_length is the largest v + *delta of
 * the n valid lengths before rounding, 0 if n is 0. The exclusive form lacks y[batch].
 */
typedef struct fallow_cu_seqlens_params {
    size_t struct_size;   /**< set by fallow_cu_seqlens_params_init */
    const void *lengths;  /**< [rows, batch] lengths_dtype; may alias cu_seqlens exactly if that
                                     is exclusive or rows is 1, and the types are equal */
    const int32_t *delta; /**< [1], added to each valid length; NULL = 0 */
    const int32_t *valid_count; /**< [1]; NULL = batch */
    void *cu_seqlens;    /**< out [rows, batch + 1], with `exclusive` [rows, batch]; cu_dtype */
    void *total;         /**< out [rows] cu_dtype; NULL = not wanted */
    int32_t *max_length; /**< out [rows]; NULL = not wanted */
    int32_t *flags;      /**< in/out [1]; NULL = not wanted */
    int32_t batch;       /**< 0 to 65,536 */
    int32_t rows;        /**< 1 to 65,535; 0 = 1 */
    int32_t round_to;    /**< >= 1; 0 = 1 */
    fallow_dtype lengths_dtype; /**< I32, I64 */
    fallow_dtype cu_dtype;      /**< I32, I64 */
    uint8_t exclusive;          /**< 1: y[batch] is left out */
    uint8_t reserved_0[3];
} fallow_cu_seqlens_params;

/** Set all fields to 0, their default, and set struct_size. */
static inline void fallow_cu_seqlens_params_init(fallow_cu_seqlens_params *params)
{
    fallow_params_init_sized(params, sizeof *params);
}

/** Return the memory that the call needs, reads and writes. Pure; checks shapes and types as the call does. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_attention_cu_seqlens_query(
    const fallow_cu_seqlens_params *params, fallow_workspace_need *out_need);

/** Replaces zeros and cat, pad of cumsum, or copy of cumsum into cu[1:]. One launch, one block a
 *  row, no scratch. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_attention_cu_seqlens(
    fallow_kernels *kernels, const fallow_cu_seqlens_params *params, fallow_stream stream);

/* ---- page_table: a decode step's metadata in one launch */

/**
 * For each row r < n: start = starts[r] within [0, stride],
 *
 *     c = lengths[r] + *delta within [0, min(cols * page_size, stride - start)]
 *     page_table[r, j] = req_to_token[requests[r], start + j * page_size] / page_size,  j < ceil(c / page_size)
 *     page_table[r, j] = fill,                                       ceil(c / page_size) <= j < cols
 *
 * and for the pads n <= r < batch: c = pad_len, and all of the row is fill. Here n = *valid_count within
 * [0, batch]. For all rows, pads included: cache_seqlens[r] = c, cu_k[0] = 0, cu_k[r+1] = cu_k[r] + c,
 * max_length is the largest c, 0 if batch is 0.
 *
 * Modes: full writes all columns (capture, first use, consumers that do not mask). Bounded writes the
 * columns j < ceil(c / page_size) of each row, pads included, and keeps the others, for consumers that
 * stop at cache_seqlens.
 * With full_to_swa (sliding windows) a token slot is mapped before it is divided.
 * The padded form of a block table (FlashMLA, trtllm) has a sentinel as fill and neither cache_seqlens nor
 * cu_k. `starts` selects a chunk of a prefix.
 *
 * Never read: requests, lengths and starts of pads; a slot at or beyond `stride` of its row.
 * Flags: NEGATIVE and CLAMPED for a length or start that was cut; OVERFLOW for a cu_k stored as 2^31-1;
 * INDEX if fill replaces an entry: a request outside the table (its whole row), a slot below 0 or outside
 * full_to_swa, a mapped slot below 0.
 */
typedef struct fallow_page_table_params {
    size_t struct_size;          /**< set by fallow_page_table_params_init; no input may alias an
                                     output */
    const void *lengths;         /**< [batch] lengths_dtype */
    const int32_t *delta;        /**< [1], added to each valid length; NULL = 0 */
    const int32_t *valid_count;  /**< [1]; NULL = batch */
    const int32_t *starts;       /**< [batch], first token of each row; NULL = 0 */
    const void *requests;        /**< [batch] requests_dtype, rows of req_to_token */
    const int32_t *req_to_token; /**< [request_rows, stride], token slots; those of one page are
                                     contiguous from a multiple of page_size on */
    const int32_t *full_to_swa;  /**< [swa_count], slot to slot; NULL = none */
    int32_t *page_table;         /**< out [batch, cols], row stride ld */
    int32_t *cache_seqlens;      /**< out [batch]; NULL = not wanted */
    int32_t *cu_k;               /**< out [batch + 1]; NULL = not wanted */
    int32_t *max_length;         /**< out [1]; NULL = not wanted */
    int32_t *flags;              /**< in/out [1]; NULL = not wanted */
    int64_t request_rows;        /**< 1 to 2^31-1 */
    int64_t stride;              /**< of req_to_token's rows; 1 to 2^31-1 */
    int64_t swa_count;           /**< of full_to_swa; 0 = there is none */
    int64_t ld;                  /**< of page_table's rows, >= cols; 0 = cols */
    int32_t batch;               /**< 0 to 65,536 */
    int32_t cols;                /**< 1 to 2^30 */
    int32_t page_size;           /**< >= 1, any; 0 = 1 */
    int32_t fill;                /**< a page that may be read, or the consumer's sentinel */
    int32_t pad_len;             /**< of pads: 0 or 1 */
    fallow_dtype lengths_dtype;  /**< I32, I64 */
    fallow_dtype requests_dtype; /**< I32, I64 */
    uint8_t bounded;             /**< 1: bounded mode */
    uint8_t reserved_0[3];
} fallow_page_table_params;

/** Set all fields to 0, their default, and set struct_size. */
static inline void fallow_page_table_params_init(fallow_page_table_params *params)
{
    fallow_params_init_sized(params, sizeof *params);
}

/** Return the memory that the call needs, reads and writes. Pure; checks shapes and types as the call does. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_attention_page_table_query(
    const fallow_page_table_params *params, fallow_workspace_need *out_need);

/** Replaces add, copy, cumsum, copy, gather, floor division, copy. One launch, no scratch. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_attention_page_table(
    fallow_kernels *kernels, const fallow_page_table_params *params, fallow_stream stream);

/* ---- verify_pages: the draft tokens that each token of a draft tree sees */

/**
 * With D = draft_tokens, for each row r < n and i < D, and c = lengths[r] + *delta within [0, stride]:
 * row m = r * D + i of page_table has the D slots
 *
 *     req_to_token[requests[r], c + j],   0 <= j < D,
 *
 * first the slots with mask[m, j] != 0, then the others, each in ascending j. cache_seqlens[m] is the number
 * of slots with mask[m, j] != 0. For the pads n * D <= m < batch * D it is pad_len, and the row is fill. Here
 * n = *valid_count within [0, batch]; cu_k and max_length are as in page_table. All D columns are
 * written. A page is one token, as consumers with draft trees require.
 *
 * Flags: NEGATIVE and CLAMPED for a length that was cut; also CLAMPED for slots with c + j beyond `stride`,
 * and INDEX for a request outside the table; fill replaces these slots. OVERFLOW for a cu_k stored as
 * 2^31-1.
 */
typedef struct fallow_verify_pages_params {
    size_t struct_size;          /**< set by fallow_verify_pages_params_init; no input may alias an
                                     output */
    const void *lengths;         /**< [batch] lengths_dtype, without the draft tokens */
    const int32_t *delta;        /**< [1], added to each valid length; NULL = 0 */
    const int32_t *valid_count;  /**< [1], of the batch; NULL = batch */
    const void *requests;        /**< [batch] requests_dtype, rows of req_to_token */
    const int32_t *req_to_token; /**< [request_rows, stride], token slots */
    const uint8_t *mask;         /**< [batch * draft_tokens, draft_tokens] */
    int32_t *page_table;         /**< out [batch * draft_tokens, draft_tokens], row stride ld */
    int32_t *cache_seqlens;      /**< out [batch * draft_tokens]; NULL = not wanted */
    int32_t *cu_k;               /**< out [batch * draft_tokens + 1]; NULL = not wanted */
    int32_t *max_length;         /**< out [1]; NULL = not wanted */
    int32_t *flags;              /**< in/out [1]; NULL = not wanted */
    int64_t request_rows;        /**< 1 to 2^31-1 */
    int64_t stride;              /**< of req_to_token's rows; 1 to 2^31-1 */
    int64_t ld;                  /**< of page_table's rows, >= draft_tokens; 0 = draft_tokens */
    int32_t batch;               /**< 0 to 65,536; batch * draft_tokens: to 2^20 */
    int32_t draft_tokens;        /**< 1 to 1,024 */
    int32_t fill;                /**< a page that may be read */
    int32_t pad_len;             /**< of pads: 0 or 1 */
    fallow_dtype lengths_dtype;  /**< I32, I64 */
    fallow_dtype requests_dtype; /**< I32, I64 */
} fallow_verify_pages_params;

/** Set all fields to 0, their default, and set struct_size. */
static inline void fallow_verify_pages_params_init(fallow_verify_pages_params *params)
{
    fallow_params_init_sized(params, sizeof *params);
}

/** Return the memory that the call needs, reads and writes. Pure; checks shapes and types as the call does. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_attention_verify_pages_query(
    const fallow_verify_pages_params *params, fallow_workspace_need *out_need);

/** Replaces gather, sort by mask, gather, sum, and pad of cumsum. One launch, no scratch. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_attention_verify_pages(
    fallow_kernels *kernels, const fallow_verify_pages_params *params, fallow_stream stream);

/* ---- concat_pages: a table's rows from two sources */

/**
 * For each row m < n * repeat, with la = first_lengths[m / repeat] within [0, min(first_cols, cols)] and
 * lb = second_lengths[m] within [0, min(second_cols, cols - la)]:
 *
 *     page_table[m, j] = first[m / repeat, j],   j < la
 *     page_table[m, j] = second[m, j - la],      la <= j < la + lb
 *     page_table[m, j] = fill,                   la + lb <= j < cols
 *
 * and for the pads n * repeat <= m < batch * repeat: a length of pad_len, a row of fill. Here
 * n = *valid_count within [0, batch]. cache_seqlens (la + lb, or pad_len), cu_k, max_length and the
 * modes are as in page_table.
 *
 * Sliding windows while verifying: `first` is the prefix's table, `repeat` the number of draft tokens,
 * `second` the output of verify_pages, with its lengths. The table of draft decoding: first_cols = 0, repeat = top_k,
 * second = out_cache_loc (I64), second_cols = cols = its steps.
 *
 * Flags: NEGATIVE and CLAMPED for a length that was cut; OVERFLOW for a cu_k stored as 2^31-1; INDEX for
 * an I64 element outside the range of int32, which fill replaces.
 */
typedef struct fallow_concat_pages_params {
    size_t struct_size;           /**< set by fallow_concat_pages_params_init; no input may alias an
                                       output */
    const int32_t *first;         /**< [batch, first_cols], row stride first_ld; NULL if first_cols
                                       is 0 */
    const int32_t *first_lengths; /**< [batch]; NULL if first_cols is 0 */
    const void *second; /**< [batch * repeat, second_cols] second_dtype, row stride second_ld;
                                       NULL if second_cols is 0 */
    const int32_t *second_lengths; /**< [batch * repeat]; NULL = second_cols */
    const int32_t *valid_count;    /**< [1], of the batch; NULL = batch */
    int32_t *page_table;           /**< out [batch * repeat, cols], row stride ld */
    int32_t *cache_seqlens;        /**< out [batch * repeat]; NULL = not wanted */
    int32_t *cu_k;                 /**< out [batch * repeat + 1]; NULL = not wanted */
    int32_t *max_length;           /**< out [1]; NULL = not wanted */
    int32_t *flags;                /**< in/out [1]; NULL = not wanted */
    int64_t first_ld;              /**< >= first_cols; 0 = first_cols */
    int64_t second_ld;             /**< >= second_cols; 0 = second_cols */
    int64_t ld;                    /**< >= cols; 0 = cols */
    int32_t batch;                 /**< 0 to 65,536; batch * repeat: to 2^20 */
    int32_t repeat;                /**< rows of second to one of first; 0 = 1 */
    int32_t first_cols;            /**< 0 to 2^30 */
    int32_t second_cols;           /**< 0 to 2^30 */
    int32_t cols;                  /**< 1 to 2^30 */
    int32_t fill;                  /**< a page that may be read, or the consumer's sentinel */
    int32_t pad_len;               /**< of pads: 0 or 1 */
    fallow_dtype second_dtype;     /**< I32, I64 */
    uint8_t bounded;               /**< 1: bounded mode */
    uint8_t reserved_0[7];
} fallow_concat_pages_params;

/** Set all fields to 0, their default, and set struct_size. */
static inline void fallow_concat_pages_params_init(fallow_concat_pages_params *params)
{
    fallow_params_init_sized(params, sizeof *params);
}

/** Return the memory that the call needs, reads and writes. Pure; checks shapes and types as the call does. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_attention_concat_pages_query(
    const fallow_concat_pages_params *params, fallow_workspace_need *out_need);

/** One launch, no scratch. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_attention_concat_pages(
    fallow_kernels *kernels, const fallow_concat_pages_params *params, fallow_stream stream);

/* ---- kv_indices: the token slots of ragged rows, one after the other */

/**
 * For each row b < n, with width = cu_seqlens[b+1] - cu_seqlens[b] and start = starts[b] within
 * [0, stride]:
 *
 *     kv_indices[cu_seqlens[b] + t] = req_to_token[requests[b], start + t],   t < lengths[b]
 *     kv_indices[cu_seqlens[b] + t] = fill,                                   lengths[b] <= t < width
 *
 * Here n = *valid_count within [0, batch], and cu_seqlens ascends from 0. A width is lengths[b], or larger
 * if the sums were rounded up. For chunk i of a prefix pass row i of its starts, lengths and sums.
 *
 * The declared extent ends at cu_seqlens[n], or at `capacity` if that is less (CLAMPED); nothing is written
 * beyond it. A row of length 0 causes no lookup, not even of its request.
 * Flags: NEGATIVE for a length, width or start below 0; CLAMPED for a length beyond its width or beyond
 * `stride` (fill from there on), or a start beyond `stride`; INDEX for a request outside the table (the whole
 * row is fill). If cu_seqlens does not ascend from 0, nothing outside the extent is written and its contents
 * are undefined.
 *
 * The padded form, a row of pages for each request, is page_table with starts and a sentinel.
 */
typedef struct fallow_kv_indices_params {
    size_t struct_size;          /**< set by fallow_kv_indices_params_init; no input may alias an
                                     output */
    const int32_t *cu_seqlens;   /**< [batch + 1]; entries after [n] are not read */
    const int32_t *lengths;      /**< [batch]; NULL = the widths */
    const int32_t *starts;       /**< [batch], first token of each row; NULL = 0 */
    const int32_t *valid_count;  /**< [1]; NULL = batch */
    const void *requests;        /**< [batch] requests_dtype, rows of req_to_token */
    const int32_t *req_to_token; /**< [request_rows, stride], token slots */
    int32_t *kv_indices;         /**< out [capacity], up to cu_seqlens[n] */
    int32_t *flags;              /**< in/out [1]; NULL = not wanted */
    int64_t request_rows;        /**< 1 to 2^31-1 */
    int64_t stride;              /**< of req_to_token's rows; 1 to 2^31-1 */
    int64_t capacity;            /**< of kv_indices; 0 to 2^31-1 */
    int32_t batch;               /**< 0 to 65,536 */
    int32_t fill;                /**< where a row has more room than slots */
    fallow_dtype requests_dtype; /**< I32, I64 */
    uint32_t reserved_0;
} fallow_kv_indices_params;

/** Set all fields to 0, their default, and set struct_size. */
static inline void fallow_kv_indices_params_init(fallow_kv_indices_params *params)
{
    fallow_params_init_sized(params, sizeof *params);
}

/** Return the memory that the call needs, reads and writes. Pure; checks shapes and types as the call does. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_attention_kv_indices_query(
    const fallow_kv_indices_params *params, fallow_workspace_need *out_need);

/** Replaces a gather a request. One launch, no scratch. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_attention_kv_indices(
    fallow_kernels *kernels, const fallow_kv_indices_params *params, fallow_stream stream);

/* ---- merge_states: attention over two parts of the keys, as attention over all of them */

/**
 * With m = max(a_lse, b_lse) and w = exp(lse - m) of each side:
 * out = (w_a a + w_b b) / (w_a + w_b), out_lse = m + log(w_a + w_b), for each head of each token, in
 * float and rounded once. With `is_base_2` it is exp2 and log2.
 *
 * An LSE of +inf counts as -inf: no keys. A side with weight 0 in float (from a difference of 104 on, in
 * base 2 of 150) is not read, so its contents have no effect; the other side's row and LSE are copied bit
 * for bit. If both sides have no keys, the row is 0, or with `keeps_a` a copy of a, and the LSE is -inf. A
 * NaN in an LSE makes the row and its LSE NaN; a NaN in a row stays unless its side has weight 0.
 * Tokens from *context_tokens on have no a: rows and LSE of b are copied, those of a are not read.
 * E4M3: value / *out_scale, to nearest even, saturating, also for copies.
 * Error: 6e-7 of the larger of |a| and |b| before the rounding; 3e-7 + 1.2e-7 |out_lse|.
 */
typedef struct fallow_merge_states_params {
    size_t struct_size; /**< set by fallow_merge_states_params_init */
    const void *a;      /**< [tokens, heads, width], row stride a_stride; dtype. The prefix */
    const void *b;      /**< [tokens, heads, width], row stride b_stride; dtype. The suffix */
    const float *a_lse; /**< [heads, tokens], with `lse_by_token` [tokens, heads], row stride
                                         a_lse_stride */
    const float *b_lse; /**< [heads, tokens], with `lse_by_token` [tokens, heads], row stride
                                         b_lse_stride */
    void *out;          /**< out [tokens, heads, width], row stride out_stride; out_dtype. May alias
                                         a or b exactly if strides and types are equal */
    float *out_lse;     /**< out [heads, tokens], with `lse_by_token` [tokens, heads], row stride
                                         out_lse_stride; may alias a_lse or b_lse exactly if the strides
                                         are equal. NULL = not wanted */
    const int32_t *context_tokens; /**< [1], clamped to [0, tokens]; NULL = tokens */
    const float *out_scale;        /**< [1], E4M3 only; NULL = 1 */
    int64_t tokens;                /**< tokens x heads: 0 to 2^31 - 1 */
    int64_t
        a_stride; /**< from a head to the next, elements; a token is `heads` of them; 0 = width */
    int64_t b_stride;       /**< the same */
    int64_t out_stride;     /**< the same */
    int64_t a_lse_stride;   /**< elements; 0 = tokens, with `lse_by_token` heads */
    int64_t b_lse_stride;   /**< the same */
    int64_t out_lse_stride; /**< the same */
    int32_t heads;          /**< 1 to 65,536 */
    int32_t width;          /**< 1 to 2^20; 16 bytes at a time where rows are multiples of 16 bytes
                                 (E4M3: of 16 elements) */
    fallow_dtype dtype;     /**< F16, BF16, F32 */
    fallow_dtype out_dtype; /**< dtype (or 0), or E4M3 */
    uint8_t lse_by_token;   /**< 1: the LSE are [tokens, heads] */
    uint8_t is_base_2;      /**< 1: the LSE are logarithms to base 2 */
    uint8_t keeps_a;        /**< 1: where neither side has keys the row is a copy of a */
    uint8_t reserved_0[5];
} fallow_merge_states_params;

/** Set all fields to 0, their default, and set struct_size. */
static inline void fallow_merge_states_params_init(fallow_merge_states_params *params)
{
    fallow_params_init_sized(params, sizeof *params);
}

/** Return the memory that the call needs, reads and writes. Pure; checks shapes and types as the call does. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_attention_merge_states_query(
    const fallow_merge_states_params *params, fallow_workspace_need *out_need);

/** 3 tokens heads width elements and 12 tokens heads bytes moved. One launch, no scratch. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_attention_merge_states(
    fallow_kernels *kernels, const fallow_merge_states_params *params, fallow_stream stream);

/* ---- neutral_rows: rows without keys */

/**
 * Row t belongs to request b if cu_q[b] <= t < cu_q[b+1]. Rows of requests without keys, and rows of no
 * request (t >= cu_q[n], n = *valid_count clamped to [0, batch]), get rows[t] = 0 and LSE -inf, or +inf
 * with `lse_is_plus_inf`. They are stored, not multiplied, so earlier contents such as NaN have no effect.
 * All other rows are outside the declared extent: not read and not written.
 *
 * Without key_counts and cu_k every request has keys: only the rows of padding are set. Without `rows`
 * only the LSE are set. If cu_q does not ascend from 0 it is unspecified which rows are neutral.
 */
typedef struct fallow_neutral_rows_params {
    size_t struct_size; /**< set by fallow_neutral_rows_params_init */
    void *rows;         /**< in/out [tokens, heads, width], row stride `stride`; dtype.
                     NULL = only the LSE */
    float *lse;         /**< in/out [heads, tokens], with `lse_by_token` [tokens, heads], row stride
                     lse_stride. NULL = only the rows */
    const int32_t *cu_q;        /**< [batch + 1] */
    const int32_t *key_counts;  /**< [batch], 0 and less: no keys; NULL = not given */
    const int32_t *cu_k;        /**< [batch + 1], the same as differences; NULL = not given. One of
                                     both at most */
    const int32_t *valid_count; /**< [1]; NULL = batch */
    int64_t tokens;             /**< 0 to 2^31 - 9 */
    int64_t stride;             /**< from a head to the next, elements; 0 = width */
    int64_t lse_stride;         /**< elements; 0 = tokens, with `lse_by_token` heads */
    int32_t heads;              /**< 1 to 65,536 */
    int32_t width;              /**< 1 to 2^20; 0 without rows */
    int32_t batch;              /**< 0 to 2^24 */
    fallow_dtype dtype;         /**< U8, E4M3, F16, BF16, F32 */
    uint8_t lse_by_token;       /**< 1: the LSE are [tokens, heads] */
    uint8_t lse_is_plus_inf;    /**< 1: the LSE of such rows are +inf */
    uint8_t reserved_0[6];
} fallow_neutral_rows_params;

/** Set all fields to 0, their default, and set struct_size. */
static inline void fallow_neutral_rows_params_init(fallow_neutral_rows_params *params)
{
    fallow_params_init_sized(params, sizeof *params);
}

/** Return the memory that the call needs, reads and writes. Pure; checks shapes and types as the call does. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_attention_neutral_rows_query(
    const fallow_neutral_rows_params *params, fallow_workspace_need *out_need);

/** Writes the neutral rows and reads 8 batch bytes. One launch, no scratch. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_attention_neutral_rows(
    fallow_kernels *kernels, const fallow_neutral_rows_params *params, fallow_stream stream);

/* ---- padded_copy: rows of a batch into a larger buffer of a graph */

/**
 * dst[r, :] = src[r, :] for r < n, and value for n <= r < rows; n = *valid_count clamped to
 * [0, src_rows]. A kernel captured for `rows` then reads a legal value in every row: 0 for
 * positions, 1 for lengths, -1 for slots and expert ids. Rows of src from n on are not read.
 */
typedef struct fallow_padded_copy_params {
    size_t struct_size;         /**< set by fallow_padded_copy_params_init */
    const void *src;            /**< [src_rows, width], row stride src_stride; dtype */
    void *dst;                  /**< out [rows, width], row stride dst_stride; dtype. May alias src
                                     exactly if the strides are equal */
    const int32_t *valid_count; /**< [1]; NULL = src_rows */
    int64_t value;              /**< of the padding; one that dtype holds */
    int64_t rows;               /**< 0 to 2^31 - 1 */
    int64_t src_rows;           /**< 1 to rows; 0 = rows */
    int64_t src_stride;         /**< elements; 0 = width */
    int64_t dst_stride;         /**< elements; 0 = width */
    int64_t width;              /**< 1 to 2^31 - 1; 0 = 1, a vector */
    fallow_dtype dtype;         /**< I32, I64 */
    uint32_t reserved_0;
} fallow_padded_copy_params;

/** Set all fields to 0, their default, and set struct_size. */
static inline void fallow_padded_copy_params_init(fallow_padded_copy_params *params)
{
    fallow_params_init_sized(params, sizeof *params);
}

/** Return the memory that the call needs, reads and writes. Pure; checks shapes and types as the call does. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_attention_padded_copy_query(
    const fallow_padded_copy_params *params, fallow_workspace_need *out_need);

/** Replaces fill and copy. (n + rows) width elements moved. One launch, no scratch. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_attention_padded_copy(
    fallow_kernels *kernels, const fallow_padded_copy_params *params, fallow_stream stream);

/* ---- fa3_schedule: FlashAttention-3's metadata for batches of varying lengths */

/** Order of the vectors of the metadata. Values are pinned. */
typedef enum fallow_fa3_layout {
    FALLOW_FA3_LAYOUT = 0, /**< splits | m_blocks | batch_idx if sorted | heads_in_l2 if swizzled */
    FALLOW_FA3_LAYOUT_VLLM = 1 /**< vLLM's fork: qlen | splits if batch <= 992 and max_splits > 1 |
                                    heads_in_l2 if swizzled; never sorted */
} fallow_fa3_layout;

/**
 * For request i < n, n = *valid_count clamped to [0, batch], with
 *   pack = packed ? heads_q / heads_kv : 1, heads = packed ? heads_kv : heads_q:
 * qlen[i] = q[i] pack; m_blocks[i] = ceil(qlen[i] / block_m);
 * n_blocks[i] = ceil(max(k[i] - leftpad_k[i] + k_new[i], 0) / block_n);
 * total = sum of m_blocks[i] n_blocks[i];
 * per_sm = (int)ceilf(float(total) * 1.1f * float(heads) / float(multiprocessors)), in fp32, left to right;
 * splits[i] = ceil(n_blocks[i] / per_sm) clamped to [1, max_splits]; 1 where max_splits = 1, batch > 992
 *   or total = 0;
 * n'[i] = ceil(n_blocks[i] / splits[i]);
 * heads_in_l2[i] = min(heads, h (packed ? 1 : heads_q / heads_kv)), h the largest of 16, 8, 4, 2, 1 with
 *   h max(n'[i], 1) <= 8 MiB / (block_n (head_dim + head_dim_v) bytes of dtype), 1 if none.
 * q is seqused_q, else the differences of cu_seqlens_q, else seqlen_q; k is found alike, and k_new without
 * the first.
 *
 * Sorted: all vectors are in the order of descending n' (causal: n' block_n - m_blocks block_m), equal ones
 * by ascending i, which batch_idx holds.
 * Each vector is round_up(batch, 4) long, 0 from n on. The last element of the metadata is the
 * semaphore of the tile scheduler, set to 0.
 * Flags: NEGATIVE for a q, or a sum of k, below 0, which counts as 0; OVERFLOW for a qlen or a count of
 * blocks above 2^31 - 1, which counts as that, and for a product above 2^46 - 1.
 */
typedef struct fallow_fa3_schedule_params {
    size_t struct_size;              /**< set by fallow_fa3_schedule_params_init */
    const int32_t *cu_seqlens_q;     /**< [batch + 1]; NULL = seqlen_q each */
    const int32_t *seqused_q;        /**< [batch]; NULL = by cu_seqlens_q */
    const int32_t *cu_seqlens_k;     /**< [batch + 1]; NULL = seqlen_k each */
    const int32_t *seqused_k;        /**< [batch]; NULL = by cu_seqlens_k */
    const int32_t *cu_seqlens_k_new; /**< [batch + 1]; NULL = seqlen_k_new each */
    const int32_t *leftpad_k;        /**< [batch]; NULL = 0 */
    const int32_t *valid_count;      /**< [1]; NULL = batch */
    int32_t *metadata;               /**< out [vectors round_up(batch, 4) + 1] */
    int32_t *flags;                  /**< in/out [1]; NULL = not wanted */
    int32_t batch;                   /**< 0 to 65,536; sorted: to 4,096 */
    int32_t seqlen_q;                /**< >= 0, where no array gives it */
    int32_t seqlen_k;                /**< >= 0 */
    int32_t seqlen_k_new;            /**< >= 0 */
    int32_t heads_q;                 /**< a multiple of heads_kv, to 65,536 */
    int32_t heads_kv;                /**< >= 1 */
    int32_t multiprocessors;         /**< >= 1 */
    int32_t block_m;                 /**< rows of a tile, 1 to 1,024 */
    int32_t block_n;                 /**< keys of a tile, 1 to 1,024 */
    int32_t max_splits;              /**< 1 to 256; 0 = 1 */
    int32_t head_dim;                /**< swizzled: 1 to 65,536 */
    int32_t head_dim_v;              /**< 0 = head_dim */
    fallow_dtype dtype;              /**< of K and V; swizzled: F16, BF16, E4M3 */
    fallow_fa3_layout layout;        /**< FALLOW_FA3_LAYOUT is the default */
    uint8_t packed;                  /**< 1: query heads of a KV head share a tile */
    uint8_t causal;                  /**< 1: sorted by the shortest row's blocks */
    uint8_t sorted;                  /**< 1: with batch_idx */
    uint8_t swizzled;                /**< 1: with heads_in_l2 */
    uint8_t no_semaphore;            /**< 1: the last element is left out */
    uint8_t reserved_0[7];
} fallow_fa3_schedule_params;

/** Set all fields to 0, their default, and set struct_size. */
static inline void fallow_fa3_schedule_params_init(fallow_fa3_schedule_params *params)
{
    fallow_params_init_sized(params, sizeof *params);
}

/** Return the memory that the call needs, reads and writes. Pure; checks shapes and types as the call does. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_attention_fa3_schedule_query(
    const fallow_fa3_schedule_params *params, fallow_workspace_need *out_need);

/** One launch of one block, no scratch; the semaphore needs no memset. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_attention_fa3_schedule(
    fallow_kernels *kernels, const fallow_fa3_schedule_params *params, fallow_stream stream);

/* ---- local_attention: chunks of attention as requests of their own */

/**
 * Attention within chunks of A = chunk keys, as plain attention over virtual requests. For request i < n,
 * n = *valid_count clamped to [0, batch], with q = cu_seqlens_q[i + 1] - cu_seqlens_q[i], s = lengths[i]:
 *   q_first = min(A - (s - q) mod A, q); rows = 1 + ceil((q - q_first) / A); last = (s - 1) mod A + 1;
 * virtual request j of request i has min(q_first + j A, q) - min(q_first + (j - 1) A, q) queries (q_first for j
 * = 0); A keys, the last one `last`; and its first key is s - last - (rows - 1 - j) A, so that its table is
 * block_table[i, min(first key / page_size + c, table_columns - 1)] for c < A / page_size.
 * Virtual requests are in the order of i, then of j.
 *
 * s = 0: one virtual request without queries, keys 0, table row of zeros; block_table is not read. q = 0: one
 * virtual request with the last keys. Entries after the last virtual request, up to capacity: no queries,
 * keys 0, table rows of zeros. Virtual requests beyond capacity are dropped (DROPPED); capacity >= 2 batch +
 * floor(queries / A) is always enough, batch if no q is above 1.
 * Flags also: NEGATIVE for a q or s below 0, which counts as 0; CLAMPED for a q above s > 0, which counts as
 * s; INDEX if a key of s is beyond the table; OVERFLOW for a sum of queries stored as 2^31-1.
 */
typedef struct fallow_local_attention_params {
    size_t struct_size; /**< set by fallow_local_attention_params_init; no input may alias an
                                     output */
    const int32_t *cu_seqlens_q; /**< [batch + 1]; only differences count */
    const int32_t *lengths; /**< [batch], keys of each request, including those of its queries */
    const int32_t *valid_count; /**< [1]; NULL = batch */
    const int32_t *block_table; /**< [batch, table_columns], row stride table_stride */
    int32_t *cu_q_local;        /**< out [capacity + 1] */
    int32_t *seqused_k;         /**< out [capacity] */
    int32_t *local_table;       /**< out [capacity, chunk / page_size] */
    int32_t *virtual_count;     /**< out [1], virtual requests written; NULL = not wanted */
    int32_t *flags;             /**< in/out [1]; NULL = not wanted */
    int64_t table_stride;       /**< >= table_columns; 0 = table_columns */
    int32_t batch;              /**< 0 to 65,536 */
    int32_t capacity;           /**< 0 to 2^31-1 */
    int32_t chunk;              /**< >= 1, a multiple of page_size */
    int32_t page_size;          /**< >= 1; 0 = 1 */
    int32_t table_columns;      /**< >= 1 */
    int32_t reserved_0;
} fallow_local_attention_params;

/** Set all fields to 0, their default, and set struct_size. */
static inline void fallow_local_attention_params_init(fallow_local_attention_params *params)
{
    fallow_params_init_sized(params, sizeof *params);
}

/** Return the memory that the call needs, reads and writes. Pure; checks shapes and types as the call does. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_attention_local_attention_query(
    const fallow_local_attention_params *params, fallow_workspace_need *out_need);

/** Replaces a computation on the host and its synchronization. One launch, no scratch. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_attention_local_attention(
    fallow_kernels *kernels, const fallow_local_attention_params *params, fallow_stream stream);

/* ---- restore_counters: reset counters after an aborted kernel */

/**
 * counters[c, i] = 0; restored[c] is the number of counters of consumer c that were not 0.
 *
 * A kernel that expects zeros and leaves zeros fails after it was aborted once. Call this module after an
 * abort, before the first use of counters, or at the start of a captured graph. Counters belong to one
 * consumer on one stream. Without `restored` the counters are not read, so they may be uninitialised; with
 * `restored` they must have been written before.
 */
typedef struct fallow_restore_counters_params {
    size_t struct_size; /**< set by fallow_restore_counters_params_init */
    int32_t *counters;  /**< in/out [consumers, count], row stride `stride` */
    int32_t *restored;  /**< out [consumers]; NULL = not wanted */
    int64_t stride;     /**< elements; 0 = count */
    int32_t consumers;  /**< 1 to 65,535; 0 = 1 */
    int32_t count;      /**< 0 to 2^24 */
} fallow_restore_counters_params;

/** Set all fields to 0, their default, and set struct_size. */
static inline void fallow_restore_counters_params_init(fallow_restore_counters_params *params)
{
    fallow_params_init_sized(params, sizeof *params);
}

/** Return the memory that the call needs, reads and writes. Pure; checks shapes and types as the call does. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_attention_restore_counters_query(
    const fallow_restore_counters_params *params, fallow_workspace_need *out_need);

/** One launch, one block per consumer, no scratch. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_attention_restore_counters(
    fallow_kernels *kernels, const fallow_restore_counters_params *params, fallow_stream stream);

/* ---- scale_padding: unused part of the last tiles of block scales */

/**
 * Scales of one byte are stored in tiles of 128 rows by 4 columns and 512 bytes; the scale of row r and
 * column c of a tile is at 16 (r % 32) + 4 (r / 32) + c. Tiles are row-major, and a group has
 * ceil(rows / 128) by ceil(columns / 4) tiles. With m = row_counts[group] clamped to [0, rows]: in tiles with
 * rows below m (with `fills_capacity` in all tiles), the scales of rows from m on and of columns from
 * `columns` on become 0. The quantiser writes all other scales; this module neither writes nor reads them.
 * Without `fills_capacity` the declared extent of a group ends with its last tile with rows below m.
 *
 * The query's write_bytes are those of full groups.
 */
typedef struct fallow_scale_padding_params {
    size_t struct_size; /**< set by fallow_scale_padding_params_init */
    void *scales;       /**< in/out [groups, ceil(rows / 128), ceil(columns / 4), 512] U8, aligned
                           to 16 */
    const int32_t *row_counts; /**< [groups]; NULL = rows */
    int32_t groups;            /**< 1 to 65,535; 0 = 1. One per expert if experts are separate */
    int32_t rows;              /**< of a group at most, 0 to 2^30 */
    int32_t columns;           /**< 1 to 2^20: a row's elements over 16 (NVFP4) or 32 (MXFP8) */
    uint8_t fills_capacity;    /**< for kernels that were captured for all rows */
    uint8_t reserved_0[3];
} fallow_scale_padding_params;

/** Set all fields to 0, their default, and set struct_size. */
static inline void fallow_scale_padding_params_init(fallow_scale_padding_params *params)
{
    fallow_params_init_sized(params, sizeof *params);
}

/** Return the memory that the call needs, reads and writes. Pure; checks shapes and types as the call does. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_attention_scale_padding_query(
    const fallow_scale_padding_params *params, fallow_workspace_need *out_need);

/** Replaces zeros of everything before the quantiser. One launch, no scratch. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_attention_scale_padding(
    fallow_kernels *kernels, const fallow_scale_padding_params *params, fallow_stream stream);

#ifdef __cplusplus
}
#endif

#endif
