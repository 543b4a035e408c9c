/* SPDX-License-Identifier: Apache-2.0
 *
 * The definition of align_blocks: count, round up to blocks, place in ascending flat index, fill.
 */
#include "common/integer.h"
#include "moe/expert_ids_twin.h"

struct sorting {
    int64_t counts[FLW_EXPERT_MOST + 1];
    int64_t offsets[FLW_EXPERT_MOST + 2];
    int64_t next[FLW_EXPERT_MOST + 1];
};

static void count(struct flw_twin *twin, const struct flw_align_blocks_args *args,
                  struct sorting *sorting, int32_t *bits)
{
    for (int32_t b = 0; b < args->ids.buckets; b++) {
        sorting->counts[b] = 0;
        if (args->batch_counts != NULL) {
            int32_t given = flw_load_i32(twin, "batch_counts", args->batch_counts, b);
            sorting->counts[b] = flw_bound_length(given, 0, args->batch_tokens, bits);
        }
    }
    for (int64_t i = 0; args->batch_counts == NULL && i < args->ids.count; i++) {
        int32_t bucket = flw_twin_bucket(twin, &args->ids, i, bits);
        if (bucket >= 0) {
            sorting->counts[bucket]++;
        }
    }
    sorting->offsets[0] = 0;
    for (int32_t b = 0; b < args->ids.buckets; b++) {
        /* NOLINTNEXTLINE(clang-analyzer-core*): written above for every bucket */
        int64_t blocks = (sorting->counts[b] + args->block_size - 1) / args->block_size;
        sorting->next[b] = sorting->offsets[b];
        sorting->offsets[b + 1] = sorting->offsets[b] + blocks * args->block_size;
    }
}

static void place(struct flw_twin *twin, const struct flw_align_blocks_args *args,
                  struct sorting *sorting)
{
    int32_t ignored = 0;
    for (int64_t i = 0; args->batch_counts == NULL && i < args->ids.count; i++) {
        int32_t bucket = flw_twin_bucket(twin, &args->ids, i, &ignored);
        if (bucket >= 0) {
            flw_store_i32(twin, "sorted_ids", args->sorted_ids, sorting->next[bucket]++,
                          (int32_t)i);
        }
    }
    for (int32_t b = 0; args->batch_counts != NULL && b < args->ids.buckets; b++) {
        for (int64_t r = 0; r < sorting->counts[b]; r++) {
            flw_store_i32(twin, "sorted_ids", args->sorted_ids, sorting->next[b]++,
                          (int32_t)(b * args->batch_tokens + r));
        }
    }
}

static void fill(struct flw_twin *twin, const struct flw_align_blocks_args *args,
                 const struct sorting *sorting)
{
    int64_t total = sorting->offsets[args->ids.buckets];
    for (int32_t b = 0; b < args->ids.buckets; b++) {
        int32_t expert = b - args->ids.shift;
        if (args->block_map != NULL && sorting->counts[b] > 0) {
            expert = flw_load_i32(twin, "expert_map", args->block_map, b);
        }
        for (int64_t at = sorting->next[b]; at < sorting->offsets[b + 1]; at++) {
            flw_store_i32(twin, "sorted_ids", args->sorted_ids, at, args->sentinel);
        }
        for (int64_t at = sorting->offsets[b]; at < sorting->offsets[b + 1];
             at += args->block_size) {
            flw_store_i32(twin, "expert_ids", args->expert_ids, at / args->block_size, expert);
        }
    }
    for (int64_t at = total; !args->leaves_tail && at < args->capacity; at++) {
        flw_store_i32(twin, "sorted_ids", args->sorted_ids, at, args->sentinel);
    }
    for (int64_t j = total / args->block_size; args->writes_pad && j < args->blocks; j++) {
        flw_store_i32(twin, "expert_ids", args->expert_ids, j, args->pad_expert_id);
    }
    flw_store_i32(twin, "padded_count", args->padded_count, 0, (int32_t)total);
}

void flw_twin_align_blocks(struct flw_twin *twin, const struct flw_align_blocks_args *args)
{
    struct sorting sorting;
    int32_t bits = 0;
    count(twin, args, &sorting, &bits);
    place(twin, args, &sorting);
    fill(twin, args, &sorting);
    flw_raise_flags(twin, args->flags, bits);
}
