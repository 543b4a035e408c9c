/* SPDX-License-Identifier: Apache-2.0
 *
 * The definition of fa3_schedule: blocks of each request, splits with about equal work for every
 * multiprocessor, and the order of the requests. */
#include <math.h>

#include "common/twin.h"

/* Data of a request. */
struct request {
    int64_t qlen, m_blocks, n_blocks;
    int64_t splits, blocks_each; /* of one split */
};

static int64_t at_least_zero(int64_t value, int32_t *bits)
{
    *bits |= value < 0 ? FALLOW_FLAG_NEGATIVE : 0;
    return value < 0 ? 0 : value;
}

static int64_t ceil_divide(int64_t value, int64_t by)
{
    return (value + by - 1) / by;
}

/* Return the i-th difference of cu, or the given value without cu. */
static int64_t load_difference(struct flw_twin *twin, const char *name, const int32_t *cu,
                               int64_t i, int32_t given)
{
    return cu == NULL
               ? given
               : (int64_t)flw_load_i32(twin, name, cu, i + 1) - flw_load_i32(twin, name, cu, i);
}

static struct request load_request(struct flw_twin *twin, const struct flw_fa3_schedule_args *args,
                                   int64_t i, int32_t *bits)
{
    struct request request = {.splits = 1};
    int64_t q = args->seqused_q != NULL
                    ? flw_load_i32(twin, "seqused_q", args->seqused_q, i)
                    : load_difference(twin, "cu_seqlens_q", args->cu_seqlens_q, i, args->seqlen_q);
    int64_t k = args->seqused_k != NULL
                    ? flw_load_i32(twin, "seqused_k", args->seqused_k, i)
                    : load_difference(twin, "cu_seqlens_k", args->cu_seqlens_k, i, args->seqlen_k);
    k += load_difference(twin, "cu_seqlens_k_new", args->cu_seqlens_k_new, i, args->seqlen_k_new);
    k -= args->leftpad_k != NULL ? flw_load_i32(twin, "leftpad_k", args->leftpad_k, i) : 0;
    int64_t rows = at_least_zero(q, bits) * args->pack;
    request.qlen = flw_saturate_i32(rows, bits);
    request.m_blocks = flw_saturate_i32(ceil_divide(rows, args->block_m), bits);
    request.n_blocks = flw_saturate_i32(ceil_divide(at_least_zero(k, bits), args->block_n), bits);
    return request;
}

/* Return the blocks of keys that one multiprocessor should take, with a tenth to spare. */
static int64_t blocks_per_sm(const struct flw_fa3_schedule_args *args, int64_t total)
{
    float share = (float)total * 1.1f;
    share = share * (float)args->heads;
    share = ceilf(share / (float)args->multiprocessors);
    return share >= 2147483648.0f ? INT32_MAX : (int64_t)share;
}

static void split(const struct flw_fa3_schedule_args *args, int64_t total, struct request *request)
{
    if (args->is_dynamic && total > 0) {
        request->splits = flw_clamp(ceil_divide(request->n_blocks, blocks_per_sm(args, total)), 1,
                                    args->max_splits);
    }
    request->blocks_each = ceil_divide(request->n_blocks, request->splits);
}

static int64_t sum_blocks(struct flw_twin *twin, const struct flw_fa3_schedule_args *args,
                          int64_t valid, int32_t *bits)
{
    int64_t total = 0;
    for (int64_t i = 0; i < valid; i++) {
        struct request request = load_request(twin, args, i, bits);
        int64_t product = request.m_blocks * request.n_blocks;
        if (product > FLW_LONGEST) {
            product = FLW_LONGEST;
            *bits |= FALLOW_FLAG_OVERFLOW;
        }
        total += product;
    }
    return total;
}

/* Return the number of heads with keys of one split that fit the cache together. */
static int64_t count_heads(const struct flw_fa3_schedule_args *args, int64_t blocks_each)
{
    int64_t chosen = 16, blocks = blocks_each > 1 ? blocks_each : 1;
    while (chosen > 1 && chosen * blocks > args->blocks_in_l2) {
        chosen /= 2;
    }
    chosen *= args->heads_per_chosen;
    return chosen < args->heads ? chosen : args->heads;
}

/* Sorted: out_order[r] is the request with r others before it. */
static void order_requests(struct flw_twin *twin, const struct flw_fa3_schedule_args *args,
                           int64_t total, int64_t valid, int32_t *out_order)
{
    int64_t work[FLW_FA3_SCHEDULE_SORTED_BATCH];
    int32_t bits = 0;
    for (int64_t i = 0; i < valid; i++) {
        struct request request = load_request(twin, args, i, &bits);
        split(args, total, &request);
        work[i] = args->is_causal
                      ? request.blocks_each * args->block_n - request.m_blocks * args->block_m
                      : request.blocks_each;
    }
    for (int64_t i = 0; i < valid; i++) {
        int64_t before = 0;
        for (int64_t j = 0; j < valid; j++) {
            before += work[j] > work[i] || (work[j] == work[i] && j < i);
        }
        out_order[before] = (int32_t)i;
    }
}

static void store_place(struct flw_twin *twin, const struct flw_fa3_schedule_args *args,
                        int32_t vector, int64_t row, int64_t value)
{
    if (vector >= 0) {
        flw_store_i32(twin, "metadata", args->metadata, vector + row, (int32_t)value);
    }
}

void flw_twin_fa3_schedule(struct flw_twin *twin, const struct flw_fa3_schedule_args *args)
{
    const struct flw_fa3_schedule_places *places = &args->places;
    int32_t order[FLW_FA3_SCHEDULE_SORTED_BATCH], bits = 0;
    bool is_sorted = places->batch_idx >= 0;
    int64_t valid = flw_clamp(flw_load_scalar(twin, "valid_count", args->valid_count, args->batch),
                              0, args->batch);
    int64_t total = sum_blocks(twin, args, valid, &bits);
    if (is_sorted) {
        order_requests(twin, args, total, valid, order);
    }
    for (int64_t row = 0; row < args->padded_batch; row++) {
        struct request request = {.qlen = 0};
        int64_t i = is_sorted && row < valid ? order[row] : row, heads = 0;
        if (row < valid) {
            request = load_request(twin, args, i, &bits);
            split(args, total, &request);
            heads = count_heads(args, request.blocks_each);
        }
        store_place(twin, args, places->splits, row, request.splits);
        store_place(twin, args, places->m_blocks, row, request.m_blocks);
        store_place(twin, args, places->qlen, row, request.qlen);
        store_place(twin, args, places->batch_idx, row, row < valid ? i : 0);
        store_place(twin, args, places->heads_in_l2, row, heads);
    }
    store_place(twin, args, places->semaphore, 0, 0);
    flw_raise_flags(twin, args->flags, bits);
}
