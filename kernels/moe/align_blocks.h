/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the arguments of the kernel align_blocks and the twin.
 */
#ifndef FLW_KERNELS_ALIGN_BLOCKS_H
#define FLW_KERNELS_ALIGN_BLOCKS_H

#include "moe/expert_ids.h"

struct flw_align_blocks_args {
    struct flw_expert_ids ids;   /* batched form: only buckets */
    const int32_t *batch_counts; /* [buckets]; NULL = the ids are counted */
    const int32_t *block_map;    /* [buckets] an expert to the value in expert_ids, or NULL */
    int32_t *sorted_ids;         /* [capacity] */
    int32_t *expert_ids;         /* [blocks] */
    int32_t *padded_count;       /* [1] */
    int32_t *flags;              /* [1] or NULL */
    int64_t capacity, blocks;
    int64_t batch_tokens; /* batched form: ids of bucket b begin at b batch_tokens */
    int32_t sentinel;     /* of slots without an id */
    int32_t block_size;
    int32_t pad_expert_id; /* of blocks beyond the last */
    int32_t writes_pad;    /* 0: they are not written */
    int32_t leaves_tail;   /* slots beyond padded_count are not written */
};

#endif
