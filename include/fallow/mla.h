/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file
 * Kernel modules of multi-head latent attention: the decode schedule.
 * kernels.h has the conventions.
 */
#ifndef FALLOW_MLA_H
#define FALLOW_MLA_H

#include "fallow/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- flashmla_schedule: blocks of keys to parts of the GPU */

/** Parts that FlashMLA's decode divides the GPU in, which is the number of rows of its tile metadata:
 *  max(multiprocessors / heads_k / ceil((queries heads_q / heads_k) / 64), 1), floored left to right.
 *  0 where an argument is below 1 or heads_k does not divide heads_q. Pure. */
FALLOW_API int32_t fallow_mla_flashmla_parts(int32_t multiprocessors, int32_t heads_k,
                                             int32_t heads_q, int32_t queries);

/**
 * Request i < n has nb[i] = max(s[i] - 1, 0) / block_size + 1 blocks, so an empty one counts one; here n =
 * *valid_count clamped to [0, batch], s = lengths, one below 0 counts as 0 (NEGATIVE). With
 * o = overhead_blocks, each part may spend payload = ceil(sum of (nb[i] + o) / parts) + o.
 * Parts walk through the requests in order. A part that can spend r + o, where r is what is left of the
 * request it is at, finishes that request and goes on with the next; otherwise it takes what it can
 * spend less o, if that is above 0, as one split of the request, and ends.
 *
 * Row of a part: {first request, last request, first block in the first request, end (exclusive) of the
 * blocks in the last request, splits of the first request before this part, is the first request split,
 * is the last request split, 0}; the end is 0 in a request of length 0. Where first and last
 * request are the same, both flags are set if one is. A part that gets nothing has the row
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
    int32_t overhead_blocks;    /**< what a split costs on top, up to 65,536; 0 = 5, -1 = none */
} fallow_flashmla_schedule_params;

static inline void fallow_flashmla_schedule_params_init(fallow_flashmla_schedule_params *params)
{
    fallow_params_init_sized(params, sizeof *params);
}

FALLOW_API FALLOW_NODISCARD fallow_status fallow_mla_flashmla_schedule_query(
    const fallow_flashmla_schedule_params *params, fallow_workspace_need *out_need);

/** One launch of one block, no scratch. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_mla_flashmla_schedule(
    fallow_kernels *kernels, const fallow_flashmla_schedule_params *params, fallow_stream stream);

#ifdef __cplusplus
}
#endif

#endif
