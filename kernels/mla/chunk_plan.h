/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the arguments of the kernel chunk_plan and the twin, and a rank's share of a context. */
#ifndef FLW_KERNELS_CHUNK_PLAN_H
#define FLW_KERNELS_CHUNK_PLAN_H

#include <stdint.h>

enum {
    FLW_CHUNK_PLAN_THREADS = 512,
    FLW_CHUNK_PLAN_BATCH = 4096,  /* most requests; their sums are in shared memory */
    FLW_CHUNK_PLAN_SEGMENT = 8192 /* elements of token_to_seq that a block fills */
};

struct flw_chunk_plan_args {
    const int32_t *context_lengths; /* [batch] */
    int32_t *starts;                /* [chunk_capacity, batch] */
    int32_t *lengths;               /* [chunk_capacity, batch] */
    int32_t *cu_seqlens;            /* [chunk_capacity, batch + 1] */
    int32_t *totals;                /* [chunk_capacity] or NULL */
    int32_t *max_lengths;           /* [chunk_capacity] or NULL */
    int32_t *token_to_seq;          /* [chunk_capacity, token_capacity] or NULL */
    int32_t *chunk_count;           /* [1] or NULL */
    int32_t *flags;                 /* [1] or NULL */
    int32_t batch, chunk_capacity, workspace_tokens, page_size, token_capacity;
    int32_t dcp_size, dcp_rank, dcp_interleave;
    int32_t is_packed, counts_every_request;
    int32_t is_vector; /* rows of token_to_seq take 16 bytes at a time */
};

/* Return how many tokens 0 <= t < context have t / interleave % size == rank. */
#ifdef __CUDACC__
__device__
#endif
    static inline int32_t
    flw_chunk_plan_share(int32_t context, int32_t size, int32_t rank, int32_t interleave)
{
    int32_t round = size * interleave; /* at most 2^28 */
    int32_t rest = context % round - rank * interleave;
    return context / round * interleave + (rest < 0 ? 0 : rest > interleave ? interleave : rest);
}

#endif
