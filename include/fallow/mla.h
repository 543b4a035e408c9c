/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file
 * Kernel modules of multi-head latent attention: the decode schedule, chunked prefill.
 * kernels.h has the conventions.
 */
#ifndef FALLOW_MLA_H
#define FALLOW_MLA_H

#include "fallow/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- flashmla_schedule: blocks of keys to parts of the GPU */

/** Return the number of parts into which FlashMLA's decode divides the GPU, which is the number of rows of
 *  its tile metadata: max(multiprocessors / heads_k / ceil((queries heads_q / heads_k) / 64), 1), floored
 *  left to right. 0 if an argument is below 1 or heads_k does not divide heads_q. Pure. */
FALLOW_API int32_t fallow_mla_flashmla_parts(int32_t multiprocessors, int32_t heads_k,
                                             int32_t heads_q, int32_t queries);

/**
 * Assign blocks of keys to parts of the GPU. Request i < n has nb[i] = max(s[i] - 1, 0) / block_size + 1
 * blocks, at least one. Here n = *valid_count clamped to [0, batch] and s = lengths; a length below 0 counts
 * as 0 (NEGATIVE). With o = overhead_blocks, each part has a budget of ceil(sum of (nb[i] + o) / parts) + o.
 * Parts process the requests in order. Let r be the blocks left of the current request. A part with a budget
 * of at least r + o finishes the request and continues with the next. Otherwise it takes its budget less o
 * blocks, if that is above 0, as one split of the request, and ends.
 *
 * Row of a part: {first request, last request, first block in the first request, end (exclusive) of the
 * blocks in the last request, splits of the first request before this part, is the first request split,
 * is the last request split, 0}; the end is 0 in a request of length 0. If first and last request are the
 * same, both flags are set if one is. A part without blocks has the row
 * {n, n - 1, 0, end of request n - 1, 0, 0, 0, 0}: a loop over its requests does not run. n = 0: every row is
 * {0, -1, 0, 0, 0, 0, 0, 0}.
 * num_splits[0] = 0; num_splits[i + 1] - num_splits[i] = parts that touch request i; flat from n on.
 */
typedef struct fallow_flashmla_schedule_params {
    size_t struct_size;         /**< set by fallow_flashmla_schedule_params_init */
    const int32_t *lengths;     /**< [batch], keys of each request */
    const int32_t *valid_count; /**< [1]; NULL = batch */
    int32_t *tile_metadata;     /**< out [parts, 8]; aligned to 16 bytes */
    int32_t *num_splits;        /**< out [batch + 1] */
    int32_t *flags;             /**< in/out [1]; NULL = not wanted */
    int32_t batch;              /**< 0 to 65,536 */
    int32_t parts;              /**< 1 to 1,024; see fallow_mla_flashmla_parts */
    int32_t block_size;         /**< keys of a block; 0 = 64 */
    int32_t overhead_blocks;    /**< cost of a split in blocks, up to 65,536; 0 = 5, -1 = none */
} fallow_flashmla_schedule_params;

/** Set all fields to 0, their default, and set struct_size. */
static inline void fallow_flashmla_schedule_params_init(fallow_flashmla_schedule_params *params)
{
    fallow_params_init_sized(params, sizeof *params);
}

/** Return the memory that the call needs, reads and writes. Pure; checks shapes and types as the call does. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_mla_flashmla_schedule_query(
    const fallow_flashmla_schedule_params *params, fallow_workspace_need *out_need);

/** One launch of one block, no scratch. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_mla_flashmla_schedule(
    fallow_kernels *kernels, const fallow_flashmla_schedule_params *params, fallow_stream stream);

/* ---- chunk_plan: contexts cut to chunks that fit a workspace */

/** How contexts are cut. Values are pinned. */
typedef enum fallow_chunk_mode {
    FALLOW_CHUNK_UNIFORM = 0, /**< every context in steps of one length */
    FALLOW_CHUNK_PACKED = 1   /**< each chunk filled with contexts in order */
} fallow_chunk_mode;

/**
 * Let c_b = max(context_lengths[b], 0) (below 0: NEGATIVE), W = workspace_tokens, p = page_size.
 *
 * Uniform: length = W / nb rounded down to a multiple of p, where nb counts the b with c_b > 0
 * (counts_every_request: all). Chunk i has start[b] = i length and
 * len[b] = max(min(c_b, start[b] + length) - start[b], 0), for i < n = ceil(max c / length). If
 * length is 0, no chunk is planned: n is 0 (DROPPED). fallow_mla_chunk_count detects this in advance;
 * packed chunks avoid it.
 * Packed: requests in order, each continued where the previous chunk ended. A chunk takes
 * min(rest of c_b, free tokens of the chunk) of a request, rounded down to a multiple of p if that does
 * not finish the request; a request that is not finished ends the chunk. start[b] and len[b] are 0 for
 * requests without tokens in the chunk; requests without context open no chunk.
 *
 * cu_seqlens[i, :] are the sums of len from 0, totals[i] the last sum, at most W, and max_lengths[i] the
 * largest len. token_to_seq[i, t] = b for cu[b] <= t < cu[b + 1], 0 beyond totals[i]; the map is cut if a
 * total is above token_capacity (CLAMPED). Rows n <= i < chunk_capacity hold 0. Chunks beyond
 * chunk_capacity are left out (DROPPED), and chunk_count is min(n, chunk_capacity).
 *
 * Decode context parallelism (dcp_size D > 1, uniform only): tokens are distributed over the ranks in turn,
 * dcp_interleave at a time. c_b is this rank's share of the context, and W and p are this rank's. length
 * and n follow from rank 0's shares, the longest, so that all ranks have the same chunks.
 */
typedef struct fallow_chunk_plan_params {
    size_t struct_size;             /**< set by fallow_chunk_plan_params_init */
    const int32_t *context_lengths; /**< [batch] */
    int32_t *starts;                /**< out [chunk_capacity, batch] */
    int32_t *lengths;               /**< out [chunk_capacity, batch] */
    int32_t *cu_seqlens;            /**< out [chunk_capacity, batch + 1] */
    int32_t *totals;                /**< out [chunk_capacity]; NULL = not wanted */
    int32_t *max_lengths;           /**< out [chunk_capacity]; NULL = not wanted */
    int32_t *token_to_seq;          /**< out [chunk_capacity, token_capacity] */
    int32_t *chunk_count;           /**< out [1]; NULL = not wanted */
    int32_t *flags;                 /**< in/out [1]; NULL = not wanted */
    int32_t batch;                  /**< 0 to 4,096 */
    int32_t chunk_capacity;         /**< 1 to 65,536 */
    int32_t workspace_tokens;       /**< page_size to 2^28 */
    int32_t page_size;              /**< 1 to 65,536 */
    int32_t token_capacity;         /**< 0 to 2^28; 0: no token_to_seq */
    int32_t dcp_size;               /**< 1 to 4,096; 0 = 1 */
    int32_t dcp_rank;               /**< 0 to dcp_size - 1 */
    int32_t dcp_interleave;         /**< 1 to 65,536; 0 = 1 */
    fallow_chunk_mode mode;         /**< FALLOW_CHUNK_UNIFORM is the default */
    uint8_t counts_every_request;   /**< 1: nb is batch; uniform only */
    uint8_t reserved_0[3];
} fallow_chunk_plan_params;

/** Set all fields to 0, their default, and set struct_size. */
static inline void fallow_chunk_plan_params_init(fallow_chunk_plan_params *params)
{
    fallow_params_init_sized(params, sizeof *params);
}

/** Return the memory that the call needs, reads and writes. Pure; checks shapes and types as the call does. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_mla_chunk_plan_query(
    const fallow_chunk_plan_params *params, fallow_workspace_need *out_need);

/** All tables of all chunks in one launch, without scratch and without the host. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_mla_chunk_plan(
    fallow_kernels *kernels, const fallow_chunk_plan_params *params, fallow_stream stream);

/**
 * Compute the number of chunks on the host, from lengths in host memory: *out_chunk_count is n, without
 * regard to chunk_capacity (it and the pointers of params are ignored). *out_most_tokens is the largest
 * total, 0 if n is 0; out_most_tokens may be NULL.
 *
 * Errors      INVALID_ARGUMENT: params, a NULL pointer, or a uniform length of 0 (W / nb < p).
 * Cost        host only; a few nanoseconds per request.
 */
FALLOW_API FALLOW_NODISCARD fallow_status
fallow_mla_chunk_count(const fallow_chunk_plan_params *params, const int32_t *context_lengths,
                       int64_t *out_chunk_count, int64_t *out_most_tokens);

/* ---- gather_kv: pages of the compressed cache to rows */

/** Format of a token in the cache and in the output. Values are pinned. */
typedef enum fallow_kv_format {
    FALLOW_KV_ROWS = 0,     /**< width elements of dtype, copied bit for bit */
    FALLOW_KV_E4M3 = 1,     /**< width e4m3, to BF16: float(e4m3) * *scale, rounded once */
    FALLOW_KV_FLASHMLA = 2, /**< 656 bytes to 576 BF16: 512 e4m3, then 4 F32 scales of 128 elements
                                 each, then 64 BF16, which are copied */
    FALLOW_KV_INDEXER = 3 /**< a block holds page_size rows of 128 e4m3, then page_size F32 scales;
                                 rows to dst, scales to dst_scales, bit for bit */
} fallow_kv_format;

/**
 * For each sequence b and each t with cu_seqlens[b] <= t < cu_seqlens[b + 1], let
 * position = starts[b] + t - cu_seqlens[b]; then
 * dst[t, :] = cache[block_table[b, position / page_size], position % page_size, :].
 *
 * Written: rows t < min(cu_seqlens[batch], tokens). Others are outside the declared extent: neither
 * written nor to be read. cu_seqlens[batch] above tokens: the rest is dropped (DROPPED).
 * INDEX and a row of zeros, without a read, if the position is below 0, its page is beyond table_columns,
 * the block is below 0 or not below block_count, or token_to_seq[t] is not a sequence.
 * Strides of the cache are in its elements: of dtype in FALLOW_KV_ROWS, bytes in the other formats.
 */
typedef struct fallow_gather_kv_params {
    size_t struct_size; /**< set by fallow_gather_kv_params_init */
    const void *cache;  /**< [block_count, page_size, ...], strides block_stride and token_stride;
                                      FLASHMLA: aligned to 16 bytes, INDEXER: to 4, strides too */
    const int32_t *block_table;  /**< [batch, table_columns], row stride table_stride */
    const int32_t *cu_seqlens;   /**< [batch + 1], ascending from 0 */
    const int32_t *starts;       /**< [batch], the first position; NULL = all 0 */
    const int32_t *token_to_seq; /**< [tokens], the sequence of each row, as in chunk plans;
                                      NULL = searched in cu_seqlens */
    const float *scale;          /**< [1], E4M3 only; NULL = 1 */
    void *dst;                   /**< out [tokens, width], row stride dst_stride; dtype */
    float *dst_scales;           /**< out [tokens], INDEXER only */
    int32_t *flags;              /**< in/out [1]; NULL = not wanted */
    int64_t block_stride;        /**< 0 = page_size token_stride; INDEXER: 0 = 132 page_size */
    int64_t token_stride;        /**< 0 = width, FLASHMLA: 656; INDEXER: 0 or 128 */
    int64_t dst_stride;          /**< elements of dst; 0 = width */
    int64_t table_stride;        /**< elements; 0 = table_columns */
    int32_t tokens;              /**< rows of dst, 0 to 2^31 - 1 */
    int32_t batch;               /**< 0 to 65,536 */
    int32_t block_count;         /**< 0 to 2^31 - 1 */
    int32_t table_columns;       /**< 0 to 2^31 - 1 */
    int32_t page_size;           /**< tokens of a block, 1 to 65,536 */
    int32_t width;           /**< 1 to 16,384; 0 = 576, INDEXER: 128. FLASHMLA, INDEXER: no other */
    fallow_dtype dtype;      /**< of dst. ROWS: F16, BF16, E4M3, U8; INDEXER: E4M3; others: BF16 */
    fallow_kv_format format; /**< FALLOW_KV_ROWS is the default */
} fallow_gather_kv_params;

/** Set all fields to 0, their default, and set struct_size. */
static inline void fallow_gather_kv_params_init(fallow_gather_kv_params *params)
{
    fallow_params_init_sized(params, sizeof *params);
}

/** Return the memory that the call needs, reads and writes. Pure; checks shapes and types as the call does. */
FALLOW_API FALLOW_NODISCARD fallow_status
fallow_mla_gather_kv_query(const fallow_gather_kv_params *params, fallow_workspace_need *out_need);

/** Reads and writes 2,304 bytes per token of 576 BF16; 1,808 for FLASHMLA. One launch, no scratch. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_mla_gather_kv(
    fallow_kernels *kernels, const fallow_gather_kv_params *params, fallow_stream stream);

/* ---- concat_kv: the keys and values of a chunk from their parts */

/**
 * With row = kv[t, h, :], the up projection's nope_width elements of key and v_width of value:
 * k[t, h, :] = row[0 .. nope_width), then k_rope[t, :], the same for every head;
 * v[t, h, :] = row[nope_width .. nope_width + v_width), then 0 up to v_columns. Bits are copied.
 *
 * A backend that accepts values of another width and stride than keys needs no v: it reads the values in
 * place, at kv + nope_width with kv's strides. A backend that needs v as wide as k must find 0 in the
 * additional columns, since 0 * NaN is NaN.
 * Written: tokens t < *token_count clamped to [0, tokens]. Others are outside the declared extent:
 * neither written nor to be read.
 */
typedef struct fallow_concat_kv_params {
    size_t struct_size;         /**< set by fallow_concat_kv_params_init */
    const void *kv;             /**< [tokens, heads, nope_width + v_width], strides kv_token_stride
                                     and kv_head_stride; dtype */
    const void *k_rope;         /**< [tokens, rope_width], row stride rope_stride; dtype */
    const int32_t *token_count; /**< [1]; NULL = tokens */
    void *k;                    /**< out [tokens, heads, nope_width + rope_width], strides
                                     k_token_stride and k_head_stride; dtype */
    void *v;                    /**< out [tokens, heads, v_columns], strides v_token_stride and
                                     v_head_stride; dtype. NULL = not wanted, v_columns 0 */
    int64_t kv_token_stride;    /**< elements, as all strides; 0 = heads kv_head_stride */
    int64_t kv_head_stride;     /**< 0 = nope_width + v_width */
    int64_t rope_stride;        /**< 0 = rope_width */
    int64_t k_token_stride;     /**< 0 = heads k_head_stride */
    int64_t k_head_stride;      /**< 0 = nope_width + rope_width */
    int64_t v_token_stride;     /**< 0 = heads v_head_stride */
    int64_t v_head_stride;      /**< 0 = v_columns */
    int32_t tokens;             /**< 0 to 2^31 - 1 */
    int32_t heads;              /**< 1 to 65,535 */
    int32_t nope_width;         /**< 1 to 16,384; 0 = 128 */
    int32_t rope_width;         /**< 1 to 16,384; 0 = 64 */
    int32_t v_width;            /**< 1 to 16,384; 0 = 128 */
    int32_t v_columns;          /**< 0: no v; else v_width to 16,384 */
    fallow_dtype dtype;         /**< F16, BF16, F32, E4M3 */
    uint32_t reserved_0;
} fallow_concat_kv_params;

/** Set all fields to 0, their default, and set struct_size. */
static inline void fallow_concat_kv_params_init(fallow_concat_kv_params *params)
{
    fallow_params_init_sized(params, sizeof *params);
}

/** Return the memory that the call needs, reads and writes. Pure; checks shapes and types as the call does. */
FALLOW_API FALLOW_NODISCARD fallow_status
fallow_mla_concat_kv_query(const fallow_concat_kv_params *params, fallow_workspace_need *out_need);

/** 640 bytes moved a token and head of 128 + 64 BF16 without v, and 128 a token. One launch, no
 *  scratch. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_mla_concat_kv(
    fallow_kernels *kernels, const fallow_concat_kv_params *params, fallow_stream stream);

#ifdef __cplusplus
}
#endif

#endif
