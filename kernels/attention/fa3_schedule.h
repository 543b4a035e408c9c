/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the arguments of the kernel fa3_schedule and the twin.
 */
#ifndef FLW_KERNELS_FA3_SCHEDULE_H
#define FLW_KERNELS_FA3_SCHEDULE_H

#include "common/integer.h"

enum {
    FLW_FA3_SCHEDULE_THREADS = 1024,
    FLW_FA3_SCHEDULE_DYNAMIC_BATCH = 992, /* above: one split each */
    FLW_FA3_SCHEDULE_SORTED_BATCH = 4096, /* at most */
    FLW_FA3_SCHEDULE_INDEX_BITS = 12      /* bits of an index among the sorted requests */
};

/* First element of each vector of the metadata, -1: absent. Both layouts are such sets. */
struct flw_fa3_schedule_places {
    int32_t splits, m_blocks, qlen, batch_idx, heads_in_l2, semaphore;
};

struct flw_fa3_schedule_args {
    const int32_t *cu_seqlens_q;     /* [batch + 1] or NULL */
    const int32_t *seqused_q;        /* [batch] or NULL */
    const int32_t *cu_seqlens_k;     /* [batch + 1] or NULL */
    const int32_t *seqused_k;        /* [batch] or NULL */
    const int32_t *cu_seqlens_k_new; /* [batch + 1] or NULL */
    const int32_t *leftpad_k;        /* [batch] or NULL */
    const int32_t *valid_count;      /* [1] or NULL */
    int32_t *metadata;
    int32_t *flags; /* [1] or NULL */
    struct flw_fa3_schedule_places places;
    int32_t batch, padded_batch; /* also rounded up to 4 */
    int32_t seqlen_q, seqlen_k, seqlen_k_new;
    int32_t pack;             /* query heads of a tile's row group */
    int32_t heads;            /* heads with tiles of their own */
    int32_t heads_per_chosen; /* unit of heads_in_l2 */
    int32_t multiprocessors, block_m, block_n, max_splits;
    int32_t is_dynamic; /* splits depend on the lengths */
    int32_t is_causal;
    int64_t blocks_in_l2;
};

#endif
