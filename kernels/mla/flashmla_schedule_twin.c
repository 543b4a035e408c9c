/* SPDX-License-Identifier: Apache-2.0
 *
 * The definition of flashmla_schedule: parts process the requests in order, each with the same
 * budget of blocks and a fixed overhead for every split. */
#include "common/twin.h"

/* Position of the walk: `block` blocks of `request` are taken, by `split` parts. */
struct walk {
    int64_t request, block, split;
    int64_t split_sum; /* of the finished requests */
};

static int64_t load_length(struct flw_twin *twin, const struct flw_flashmla_schedule_args *args,
                           int64_t i, int32_t *bits)
{
    int64_t length = flw_load_i32(twin, "lengths", args->lengths, i);
    *bits |= length < 0 ? FALLOW_FLAG_NEGATIVE : 0;
    return length < 0 ? 0 : length;
}

/* An empty request counts as one block. */
static int64_t count_blocks(int64_t length, int64_t block_size)
{
    return (length > 1 ? length - 1 : 0) / block_size + 1;
}

/* Process one part. */
static void spend(struct flw_twin *twin, const struct flw_flashmla_schedule_args *args,
                  int64_t valid, int64_t payload, struct walk *at)
{
    int32_t bits = 0;
    int64_t left = payload;
    while (at->request < valid) {
        int64_t length = load_length(twin, args, at->request, &bits);
        int64_t rest = count_blocks(length, args->block_size) - at->block;
        if (left < rest + args->overhead) {
            if (left > args->overhead) {
                at->block += left - args->overhead;
                at->split++;
            }
            return;
        }
        left -= rest + args->overhead;
        at->split_sum += at->split + 1;
        flw_store_i32(twin, "num_splits", args->num_splits, at->request + 1,
                      (int32_t)at->split_sum);
        at->request++;
        at->block = at->split = 0;
    }
}

static void store_row(struct flw_twin *twin, const struct flw_flashmla_schedule_args *args,
                      int64_t part, const struct walk *begin, const struct walk *end)
{
    int32_t bits = 0;
    int64_t last = end->block > 0 ? end->request : end->request - 1;
    int64_t length = last >= 0 ? load_length(twin, args, last, &bits) : 0;
    int64_t blocks = length == 0 ? 0 : count_blocks(length, args->block_size);
    bool is_first_split = begin->block != 0, is_last_split = end->block > 0;
    if (begin->request == last) {
        is_first_split = is_last_split = is_first_split || is_last_split;
    }
    int32_t row[FLW_FLASHMLA_SCHEDULE_ROW] = {
        (int32_t)begin->request, (int32_t)last,
        (int32_t)begin->block,   (int32_t)(end->block > 0 ? end->block : blocks),
        (int32_t)begin->split,   is_first_split,
        is_last_split,           0,
    };
    flw_store(twin, "tile_metadata", args->tile_metadata, part * (int64_t)sizeof row, row,
              sizeof row);
}

void flw_twin_flashmla_schedule(struct flw_twin *twin,
                                const struct flw_flashmla_schedule_args *args)
{
    int64_t valid = flw_clamp(flw_load_scalar(twin, "valid_count", args->valid_count, args->batch),
                              0, args->batch);
    int64_t total = 0;
    int32_t bits = 0;
    for (int64_t i = 0; i < valid; i++) {
        total += count_blocks(load_length(twin, args, i, &bits), args->block_size) + args->overhead;
    }
    int64_t payload = (total + args->parts - 1) / args->parts + args->overhead;

    struct walk at = {.request = 0};
    flw_store_i32(twin, "num_splits", args->num_splits, 0, 0);
    for (int64_t part = 0; part < args->parts; part++) {
        struct walk begin = at;
        spend(twin, args, valid, payload, &at);
        store_row(twin, args, part, &begin, &at);
    }
    for (int64_t i = valid; i < args->batch; i++) {
        flw_store_i32(twin, "num_splits", args->num_splits, i + 1, (int32_t)at.split_sum);
    }
    flw_raise_flags(twin, args->flags, bits);
}
