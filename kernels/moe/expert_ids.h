/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the common part of kernels that sort tokens by expert: flat ids, the bucket of each, and
 * the division of the work for a launch with independent blocks.
 * Independent of a module's outputs.
 *
 * Each block counts all ids by itself and places those of its own slice: the ids are read once per
 * block, from the second level cache, which is cheaper than a second launch or zeroed counters. */
#ifndef FLW_KERNELS_EXPERT_IDS_H
#define FLW_KERNELS_EXPERT_IDS_H

#include <stdint.h>

enum {
    FLW_EXPERT_THREADS = 1024,
    FLW_EXPERT_MOST = 2048,      /* experts; one more bucket is possible */
    FLW_EXPERT_WARP_IDS = 128,   /* ids of a warp in one step of the placement */
    FLW_EXPERT_BLOCK_IDS = 4096, /* ids, or output elements, that justify a block */
    FLW_EXPERT_BLOCKS = 32,
    FLW_EXPERT_SHARED_BYTES = 46 * 1024
};

struct flw_expert_ids {
    const void *ids;    /* [count]; i32, or i64 */
    const int32_t *map; /* [map_count] id to bucket, below 0: none; NULL = the id itself */
    int64_t count;
    int64_t slice; /* ids of one block, a multiple of step */
    int32_t buckets;
    int32_t map_count;  /* legal ids are below it: of the map, or buckets */
    int32_t shift;      /* added to an id first: 1 maps -1 to bucket 0 */
    int32_t rank_warps; /* warps that place; a step is 128 ids of each */
    int32_t is_i64, is_vector;
};

/* Dynamic shared memory: counts, offsets and next as int32, then a histogram of uint16 per placing
 * warp, and one for their sums. */
static inline int64_t flw_expert_stride(int32_t buckets)
{
    return (int64_t)buckets + buckets % 2;
}

static inline int64_t flw_expert_shared_bytes(int32_t buckets, int32_t rank_warps)
{
    return (int64_t)(3 * buckets + 3) / 2 * 2 * 4 +
           flw_expert_stride(buckets) * 2 * (rank_warps + 1);
}

/* Divide the work: return the blocks; `elements` is the number of other elements written. */
static inline int64_t flw_expert_cut(struct flw_expert_ids *ids, int64_t elements)
{
    int64_t work = ids->count > elements ? ids->count : elements;
    int64_t blocks = (work + FLW_EXPERT_BLOCK_IDS - 1) / FLW_EXPERT_BLOCK_IDS;
    blocks = blocks < 1 ? 1 : blocks > FLW_EXPERT_BLOCKS ? FLW_EXPERT_BLOCKS : blocks;
    ids->rank_warps = FLW_EXPERT_THREADS / 32;
    while (ids->rank_warps > 1 &&
           flw_expert_shared_bytes(ids->buckets, ids->rank_warps) > FLW_EXPERT_SHARED_BYTES) {
        ids->rank_warps--;
    }
    int64_t step = (int64_t)ids->rank_warps * FLW_EXPERT_WARP_IDS;
    int64_t steps = (ids->count + blocks * step - 1) / (blocks * step);
    ids->slice = steps * step;
    return blocks;
}

#endif
