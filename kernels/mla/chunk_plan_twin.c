/* SPDX-License-Identifier: Apache-2.0
 *
 * The definition of chunk_plan: contexts cut in uniform steps, or packed in order, into chunks of
 * at most W tokens; for each chunk the starts, lengths and sums of the parts. */
#include "common/twin.h"

#define RUN 1024 /* elements of token_to_seq stored together */

struct plan {
    int32_t contexts[FLW_CHUNK_PLAN_BATCH]; /* this rank's share of the contexts */
    int32_t starts[FLW_CHUNK_PLAN_BATCH], lengths[FLW_CHUNK_PLAN_BATCH]; /* of the present chunk */
    int64_t chunk_count;
    int32_t step;     /* uniform: the length of a chunk */
    int32_t b, taken; /* packed: the next token is the taken-th of request b */
};

static int32_t round_down(int32_t value, int32_t to)
{
    return value / to * to;
}

/* Read the contexts and, for a uniform plan, compute the length and count of chunks;
 * return flags. */
static int32_t begin(struct flw_twin *twin, const struct flw_chunk_plan_args *args,
                     struct plan *plan)
{
    int32_t counted = 0, longest = 0, bits = 0;
    for (int32_t b = 0; b < args->batch; b++) {
        int32_t context = flw_load_i32(twin, "context_lengths", args->context_lengths, b);
        if (context < 0) {
            bits |= FALLOW_FLAG_NEGATIVE;
            context = 0;
        }
        int32_t first = flw_chunk_plan_share(context, args->dcp_size, 0, args->dcp_interleave);
        plan->contexts[b] =
            flw_chunk_plan_share(context, args->dcp_size, args->dcp_rank, args->dcp_interleave);
        counted += first > 0 || args->counts_every_request;
        longest = first > longest ? first : longest;
    }
    if (!args->is_packed && longest > 0) {
        plan->step = round_down(args->workspace_tokens / counted, args->page_size);
        if (plan->step == 0) {
            bits |= FALLOW_FLAG_DROPPED;
        } else {
            plan->chunk_count = ((int64_t)longest + plan->step - 1) / plan->step;
        }
    }
    return bits;
}

static void cut_uniform(const struct flw_chunk_plan_args *args, struct plan *plan, int32_t chunk)
{
    for (int32_t b = 0; b < args->batch && chunk < plan->chunk_count; b++) {
        int64_t start = (int64_t)chunk * plan->step, left = plan->contexts[b] - start;
        plan->starts[b] = (int32_t)start;
        plan->lengths[b] = left < 0 ? 0 : left < plan->step ? (int32_t)left : plan->step;
    }
}

/* Skip requests without tokens left; return whether there is one with any. */
static bool has_more(const struct flw_chunk_plan_args *args, struct plan *plan)
{
    while (plan->b < args->batch && plan->taken == plan->contexts[plan->b]) {
        plan->b++;
        plan->taken = 0;
    }
    return plan->b < args->batch;
}

static void cut_packed(const struct flw_chunk_plan_args *args, struct plan *plan)
{
    int32_t room = args->workspace_tokens;
    bool is_open = has_more(args, plan);
    plan->chunk_count += is_open;
    while (is_open && has_more(args, plan)) {
        int32_t left = plan->contexts[plan->b] - plan->taken, take = left;
        if (left > room) {
            take = round_down(room, args->page_size);
            is_open = false;
        }
        if (take > 0) {
            plan->starts[plan->b] = plan->taken;
            plan->lengths[plan->b] = take;
        }
        plan->taken += take;
        room -= take;
    }
}

/* Store token_to_seq of one chunk. */
static void store_map(struct flw_twin *twin, const struct flw_chunk_plan_args *args,
                      const struct plan *plan, int64_t row, int64_t total)
{
    int32_t run[RUN], b = 0;
    int64_t end = args->batch > 0 ? plan->lengths[0] : 0; /* of request b */
    for (int64_t t = 0; t < args->token_capacity; t++) {
        while (t < total && t >= end) {
            end += plan->lengths[++b];
        }
        run[t % RUN] = t < total ? b : 0;
        if (t % RUN == RUN - 1 || t == args->token_capacity - 1) {
            flw_store(twin, "token_to_seq", args->token_to_seq,
                      (row * args->token_capacity + t / RUN * RUN) * 4, run,
                      (size_t)(t % RUN + 1) * 4);
        }
    }
}

/* Store one row of every table; return flags. */
static int32_t store_row(struct flw_twin *twin, const struct flw_chunk_plan_args *args,
                         const struct plan *plan, int64_t row)
{
    int32_t sum = 0, longest = 0;
    size_t row_bytes = (size_t)args->batch * 4;
    flw_store(twin, "starts", args->starts, row * (int64_t)row_bytes, plan->starts, row_bytes);
    flw_store(twin, "lengths", args->lengths, row * (int64_t)row_bytes, plan->lengths, row_bytes);
    for (int32_t b = 0; b <= args->batch; b++) {
        int32_t length = b < args->batch ? plan->lengths[b] : 0;
        flw_store_i32(twin, "cu_seqlens", args->cu_seqlens, row * (args->batch + 1) + b, sum);
        sum += length;
        longest = length > longest ? length : longest;
    }
    if (args->totals != NULL) {
        flw_store_i32(twin, "totals", args->totals, row, sum);
    }
    if (args->max_lengths != NULL) {
        flw_store_i32(twin, "max_lengths", args->max_lengths, row, longest);
    }
    if (args->token_to_seq == NULL) {
        return 0;
    }
    store_map(twin, args, plan, row, sum);
    return sum > args->token_capacity ? FALLOW_FLAG_CLAMPED : 0;
}

void flw_twin_chunk_plan(struct flw_twin *twin, const struct flw_chunk_plan_args *args)
{
    struct plan plan = {.chunk_count = 0};
    int32_t bits = begin(twin, args, &plan);
    for (int32_t chunk = 0; chunk < args->chunk_capacity; chunk++) {
        memset(plan.starts, 0, sizeof plan.starts);
        memset(plan.lengths, 0, sizeof plan.lengths);
        if (args->is_packed) {
            cut_packed(args, &plan);
        } else {
            cut_uniform(args, &plan, chunk);
        }
        bits |= store_row(twin, args, &plan, chunk);
    }
    if (plan.chunk_count > args->chunk_capacity || (args->is_packed && has_more(args, &plan))) {
        bits |= FALLOW_FLAG_DROPPED;
        plan.chunk_count =
            plan.chunk_count < args->chunk_capacity ? plan.chunk_count : args->chunk_capacity;
    }
    if (args->chunk_count != NULL) {
        flw_store_i32(twin, "chunk_count", args->chunk_count, 0, (int32_t)plan.chunk_count);
    }
    flw_raise_flags(twin, args->flags, bits);
}
