/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the cases of the modules of multi-head latent attention.
 */
#include "bench/kernels.h"

#include "fallow/mla.h"

FLW_KERNEL_ADAPT(mla, flashmla_schedule)

static void make_flashmla_schedule(struct flw_kernel_call *call)
{
    static const int64_t longest = 8192;
    fallow_flashmla_schedule_params *params = flw_kernel_params(call, sizeof *params);
    params->batch = (int32_t)flw_kernel_size(call, "batch", 64);
    int32_t heads = (int32_t)flw_kernel_size(call, "heads", 128);
    int32_t processors = (int32_t)flw_kernel_size(call, "multiprocessors", 132);
    params->parts = fallow_mla_flashmla_parts(processors, 1, heads, 1);
    params->lengths = flw_kernel_integers(call, params->batch, flw_kernel_scatter, &longest);
    params->tile_metadata = flw_kernel_output(call, params->parts * 32);
    params->num_splits = flw_kernel_output(call, (params->batch + 1) * 4);
}

FLW_KERNEL_ADAPT(mla, gather_kv)

static void gather_kv(struct flw_kernel_call *call, fallow_kv_format format, int64_t token_bytes)
{
    fallow_gather_kv_params *params = flw_kernel_params(call, sizeof *params);
    params->tokens = (int32_t)flw_kernel_size(call, "tokens", 512);
    params->batch = (int32_t)flw_kernel_size(call, "batch", 4);
    params->page_size = (int32_t)flw_kernel_size(call, "page_size", 64);
    params->block_count = params->tokens / params->page_size;
    params->table_columns = params->block_count / params->batch;
    params->dtype = FALLOW_BF16;
    params->format = format;
    int64_t blocks = params->block_count, each = params->tokens / params->batch;
    params->cache = flw_kernel_filled(call, params->tokens * token_bytes, FLW_KERNEL_ONES_BF16);
    params->block_table = flw_kernel_integers(call, blocks, flw_kernel_shuffle, &blocks);
    params->cu_seqlens = flw_kernel_integers(call, params->batch + 1, flw_kernel_multiples, &each);
    params->dst = flw_kernel_output(call, (int64_t)params->tokens * 576 * 2);
}

static void make_gather_kv(struct flw_kernel_call *call)
{
    gather_kv(call, FALLOW_KV_ROWS, 1152);
}

static void make_gather_kv_e4m3(struct flw_kernel_call *call)
{
    gather_kv(call, FALLOW_KV_E4M3, 576);
}

static void make_gather_kv_flashmla(struct flw_kernel_call *call)
{
    gather_kv(call, FALLOW_KV_FLASHMLA, 656);
}

FLW_KERNEL_ADAPT(mla, chunk_plan)

static void make_chunk_plan(struct flw_kernel_call *call)
{
    fallow_chunk_plan_params *params = flw_kernel_params(call, sizeof *params);
    params->batch = (int32_t)flw_kernel_size(call, "batch", 8);
    int64_t context = flw_kernel_size(call, "context", 2048);
    params->workspace_tokens = (int32_t)flw_kernel_size(call, "workspace", 4096);
    params->page_size = (int32_t)flw_kernel_size(call, "page_size", 64);
    int32_t page = params->page_size;
    int32_t length = params->workspace_tokens / params->batch / page * page;
    params->chunk_capacity = (int32_t)((context + length - 1) / length);
    params->token_capacity = params->workspace_tokens;
    int64_t chunks = params->chunk_capacity, batch = params->batch;
    params->context_lengths = flw_kernel_integers(call, batch, flw_kernel_same, &context);
    params->starts = flw_kernel_output(call, chunks * batch * 4);
    params->lengths = flw_kernel_output(call, chunks * batch * 4);
    params->cu_seqlens = flw_kernel_output(call, chunks * (batch + 1) * 4);
    params->totals = flw_kernel_output(call, chunks * 4);
    params->max_lengths = flw_kernel_output(call, chunks * 4);
    params->token_to_seq = flw_kernel_output(call, chunks * params->token_capacity * 4);
    params->chunk_count = flw_kernel_output(call, 4);
}

FLW_KERNEL_ADAPT(mla, concat_kv)

/* Keys alone: the values are read where they are. */
static void make_concat_kv(struct flw_kernel_call *call)
{
    fallow_concat_kv_params *params = flw_kernel_params(call, sizeof *params);
    params->tokens = (int32_t)flw_kernel_size(call, "tokens", 32);
    params->heads = (int32_t)flw_kernel_size(call, "heads", 8);
    params->dtype = FALLOW_BF16;
    int64_t rows = (int64_t)params->tokens * params->heads;
    params->kv = flw_kernel_filled(call, rows * 256 * 2, FLW_KERNEL_ONES_BF16);
    params->k_rope =
        flw_kernel_filled(call, (int64_t)params->tokens * 64 * 2, FLW_KERNEL_ONES_BF16);
    params->k = flw_kernel_output(call, rows * 192 * 2);
}

const struct flw_kernel_case flw_kernel_cases_mla[] = {
    {FLW_KERNEL_ROW(flashmla_schedule, "deepseek-v3"), .sizes = {512, 128, 132}, .goal_us = 10,
     FLW_KERNEL_ONCE},
    {FLW_KERNEL_ROW(gather_kv, "bf16"), .sizes = {65536, 8, 64}, FLW_KERNEL_COPY},
    {FLW_KERNEL_MADE(gather_kv, make_gather_kv_e4m3, "e4m3"), .sizes = {65536, 8, 64},
     FLW_KERNEL_COPY},
    {FLW_KERNEL_MADE(gather_kv, make_gather_kv_flashmla, "flashmla"), .sizes = {65536, 8, 64},
     FLW_KERNEL_COPY},
    {FLW_KERNEL_ROW(chunk_plan, "8 of 32,768"), .sizes = {8, 32768, 65536, 64}, FLW_KERNEL_QUICK,
     FLW_KERNEL_ONCE},
    {FLW_KERNEL_ROW(concat_kv, "deepseek-v3"), .sizes = {65536, 128}, FLW_KERNEL_COPY},
    {FLW_KERNEL_ROW(concat_kv, "deepseek-v3, tp 8"), .sizes = {65536, 16}, FLW_KERNEL_COPY},
    {.module = NULL},
};
