/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the public calls of chunk_plan: checks, needs, the launch; the count of chunks on the
 * host.
 * Does not: compute tables; chunk_plan_twin.c is the definition, chunk_plan.cu the kernel. */
#include "mla/chunk_plan.h"

#include "common/library.h"
#include "common/refusal.h"
#include "fallow/mla.h"

#define MOST_TOKENS (1 << 28)

/* Check shapes; replace zeros by defaults. */
static void check_shape(struct flw_refusal *refusal, fallow_chunk_plan_params *params)
{
    params->dcp_size = params->dcp_size == 0 ? 1 : params->dcp_size;
    params->dcp_interleave = params->dcp_interleave == 0 ? 1 : params->dcp_interleave;
    flw_refusal_count(refusal, "mode", (int64_t)params->mode, 0, FALLOW_CHUNK_PACKED);
    flw_refusal_count(refusal, "batch", params->batch, 0, FLW_CHUNK_PLAN_BATCH);
    flw_refusal_count(refusal, "page_size", params->page_size, 1, 65536);
    flw_refusal_count(refusal, "workspace_tokens", params->workspace_tokens, params->page_size,
                      MOST_TOKENS);
    flw_refusal_count(refusal, "token_capacity", params->token_capacity, 0, MOST_TOKENS);
    flw_refusal_count(refusal, "dcp_size", params->dcp_size, 1,
                      params->mode == FALLOW_CHUNK_PACKED ? 1 : 4096);
    flw_refusal_count(refusal, "dcp_rank", params->dcp_rank, 0, params->dcp_size - 1);
    flw_refusal_count(refusal, "dcp_interleave", params->dcp_interleave, 1, 65536);
    flw_refusal_count(refusal, "counts_every_request", params->counts_every_request, 0,
                      params->mode == FALLOW_CHUNK_PACKED ? 0 : 1);
}

static void check_capacity(struct flw_refusal *refusal, const fallow_chunk_plan_params *params)
{
    flw_refusal_count(refusal, "chunk_capacity", params->chunk_capacity, 1, 65536);
}

struct buffers {
    uint64_t batch_bytes; /* of context_lengths */
    uint64_t table_bytes, cu_bytes, row_bytes, map_bytes;
};

static struct buffers measure(const fallow_chunk_plan_params *params)
{
    uint64_t rows = (uint64_t)params->chunk_capacity, batch = (uint64_t)params->batch;
    return (struct buffers){.batch_bytes = batch * 4,
                            .table_bytes = rows * batch * 4,
                            .cu_bytes = rows * (batch + 1) * 4,
                            .row_bytes = rows * 4,
                            .map_bytes = rows * (uint64_t)params->token_capacity * 4};
}

fallow_status fallow_mla_chunk_plan_query(const fallow_chunk_plan_params *caller,
                                          fallow_workspace_need *out_need)
{
    struct flw_refusal refusal;
    fallow_chunk_plan_params params;
    fallow_workspace_need need = {.launch_count = 1};
    flw_refusal_begin_query(&refusal, "fallow_mla_chunk_plan_query");
    flw_refusal_copy(&refusal, &params, sizeof params, caller);
    check_shape(&refusal, &params);
    check_capacity(&refusal, &params);
    if (refusal.status != FALLOW_OK) {
        return refusal.status;
    }
    struct buffers buffers = measure(&params);
    flw_need_add(&need, "starts", buffers.table_bytes, 16, FALLOW_INIT_DIRTY);
    flw_need_add(&need, "lengths", buffers.table_bytes, 16, FALLOW_INIT_DIRTY);
    flw_need_add(&need, "cu_seqlens", buffers.cu_bytes, 16, FALLOW_INIT_LEADING_ZERO);
    flw_need_add(&need, "totals", buffers.row_bytes, 16, FALLOW_INIT_DIRTY);
    flw_need_add(&need, "max_lengths", buffers.row_bytes, 16, FALLOW_INIT_DIRTY);
    flw_need_add(&need, "chunk_count", 4, 4, FALLOW_INIT_DIRTY);
    if (params.token_capacity > 0) {
        flw_need_add(&need, "token_to_seq", buffers.map_bytes, 16, FALLOW_INIT_VALID_TAIL);
    }
    need.read_bytes = buffers.batch_bytes;
    for (uint32_t i = 0; i < need.output_count; i++) {
        need.write_bytes += need.outputs[i].bytes;
    }
    return flw_refusal_give_need(&refusal, out_need, &need);
}

static void check_pointers(struct flw_refusal *refusal, const fallow_chunk_plan_params *params,
                           const struct buffers *buffers)
{
    flw_refusal_input(refusal, "context_lengths", params->context_lengths, buffers->batch_bytes, 4);
    flw_refusal_output(refusal, "starts", params->starts, buffers->table_bytes, 4);
    flw_refusal_output(refusal, "lengths", params->lengths, buffers->table_bytes, 4);
    flw_refusal_output(refusal, "cu_seqlens", params->cu_seqlens, buffers->cu_bytes, 4);
    flw_refusal_optional_output(refusal, "totals", params->totals, buffers->row_bytes, 4);
    flw_refusal_optional_output(refusal, "max_lengths", params->max_lengths, buffers->row_bytes, 4);
    flw_refusal_optional_output(refusal, "chunk_count", params->chunk_count, 4, 4);
    flw_refusal_output(refusal, "token_to_seq", params->token_to_seq, buffers->map_bytes, 4);
    flw_refusal_optional_output(refusal, "flags", params->flags, 4, 4);
}

fallow_status fallow_mla_chunk_plan(fallow_kernels *kernels, const fallow_chunk_plan_params *caller,
                                    fallow_stream stream)
{
    struct flw_refusal refusal;
    fallow_chunk_plan_params params;
    flw_refusal_begin(&refusal, kernels, "fallow_mla_chunk_plan");
    flw_refusal_copy(&refusal, &params, sizeof params, caller);
    check_shape(&refusal, &params);
    check_capacity(&refusal, &params);
    if (refusal.status != FALLOW_OK) {
        return refusal.status;
    }
    struct buffers buffers = measure(&params);
    check_pointers(&refusal, &params, &buffers);
    if (flw_refusal_status(&refusal) != FALLOW_OK) {
        return refusal.status;
    }
    struct flw_chunk_plan_args args = {
        .context_lengths = params.context_lengths,
        .starts = params.starts,
        .lengths = params.lengths,
        .cu_seqlens = params.cu_seqlens,
        .totals = params.totals,
        .max_lengths = params.max_lengths,
        .token_to_seq = params.token_capacity == 0 ? NULL : params.token_to_seq,
        .chunk_count = params.chunk_count,
        .flags = params.flags,
        .batch = params.batch,
        .chunk_capacity = params.chunk_capacity,
        .workspace_tokens = params.workspace_tokens,
        .page_size = params.page_size,
        .token_capacity = params.token_capacity,
        .dcp_size = params.dcp_size,
        .dcp_rank = params.dcp_rank,
        .dcp_interleave = params.dcp_interleave,
        .is_packed = params.mode == FALLOW_CHUNK_PACKED,
        .counts_every_request = params.counts_every_request,
        .is_vector = flw_is_vector_row(params.token_to_seq, params.token_capacity,
                                       params.token_capacity, 4)};
    struct flw_grid grid = {.blocks_x = params.chunk_capacity,
                            .blocks_y =
                                flw_grid_blocks(params.token_capacity, FLW_CHUNK_PLAN_SEGMENT),
                            .threads = FLW_CHUNK_PLAN_THREADS};
    return flw_kernels_launch(kernels, FLW_KERNEL_chunk_plan, grid, &args, stream);
}

/* ---- the host's count */

struct count {
    int64_t chunks, most_tokens;
};

static void see_chunk(struct count *count, int64_t tokens)
{
    count->most_tokens = tokens > count->most_tokens ? tokens : count->most_tokens;
}

/* False: the length of a chunk is 0. */
static bool count_uniform(const fallow_chunk_plan_params *params, const int32_t *contexts,
                          struct count *count)
{
    int32_t counted = 0, longest = 0;
    for (int32_t b = 0; b < params->batch; b++) {
        int32_t share = contexts[b] <= 0 ? 0
                                         : flw_chunk_plan_share(contexts[b], params->dcp_size, 0,
                                                                params->dcp_interleave);
        counted += share > 0 || params->counts_every_request;
        longest = share > longest ? share : longest;
    }
    if (longest == 0) {
        return true;
    }
    int32_t page = params->page_size;
    int32_t length = params->workspace_tokens / counted / page * page;
    if (length == 0) {
        return false;
    }
    count->chunks = ((int64_t)longest + length - 1) / length;
    for (int32_t b = 0; b < params->batch; b++) { /* no chunk is larger than the first */
        int32_t share = contexts[b] <= 0
                            ? 0
                            : flw_chunk_plan_share(contexts[b], params->dcp_size, params->dcp_rank,
                                                   params->dcp_interleave);
        count->most_tokens += share < length ? share : length;
    }
    return true;
}

static void count_packed(const fallow_chunk_plan_params *params, const int32_t *contexts,
                         struct count *count)
{
    int64_t page = params->page_size, whole = params->workspace_tokens / page * page, room = 0;
    for (int32_t b = 0; b < params->batch; b++) {
        int64_t left = contexts[b];
        if (left <= 0) {
            continue;
        }
        if (left > room) { /* the open chunk, if any, ends with the part of this request that
                               fits */
            int64_t take = room / page * page;
            if (count->chunks > 0) {
                see_chunk(count, params->workspace_tokens - room + take);
            }
            left -= take;
            count->chunks++;
            room = params->workspace_tokens;
            if (left > room) { /* it fills whole chunks */
                int64_t filled = (left - room + whole - 1) / whole;
                see_chunk(count, whole);
                count->chunks += filled;
                left -= filled * whole;
            }
        }
        room -= left;
    }
    if (count->chunks > 0) {
        see_chunk(count, params->workspace_tokens - room);
    }
}

fallow_status fallow_mla_chunk_count(const fallow_chunk_plan_params *caller,
                                     const int32_t *context_lengths, int64_t *out_chunk_count,
                                     int64_t *out_most_tokens)
{
    struct flw_refusal refusal;
    fallow_chunk_plan_params params;
    struct count count = {0};
    flw_refusal_begin_query(&refusal, "fallow_mla_chunk_count");
    flw_refusal_copy(&refusal, &params, sizeof params, caller);
    check_shape(&refusal, &params);
    if (refusal.status != FALLOW_OK) {
        return refusal.status;
    }
    if (out_chunk_count == NULL || (context_lengths == NULL && params.batch > 0)) {
        return FALLOW_INVALID_ARGUMENT;
    }
    if (params.mode == FALLOW_CHUNK_PACKED) {
        count_packed(&params, context_lengths, &count);
    } else if (!count_uniform(&params, context_lengths, &count)) {
        return FALLOW_INVALID_ARGUMENT;
    }
    *out_chunk_count = count.chunks;
    if (out_most_tokens != NULL) {
        *out_most_tokens = count.most_tokens;
    }
    return FALLOW_OK;
}
