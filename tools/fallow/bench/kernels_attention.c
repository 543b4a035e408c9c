/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the cases of the modules of attention.
 */
#include "bench/kernels.h"

#include "fallow/attention.h"

static const int64_t lengths_of[] = {8192}; /* drawn below it */

FLW_KERNEL_ADAPT(attention, cu_seqlens)

static void make_cu_seqlens(struct flw_kernel_call *call)
{
    fallow_cu_seqlens_params *params = flw_kernel_params(call, sizeof *params);
    params->batch = (int32_t)flw_kernel_size(call, "batch", 64);
    params->rows = (int32_t)flw_kernel_size(call, "rows", 4);
    params->lengths_dtype = FALLOW_I32;
    params->cu_dtype = FALLOW_I32;
    int64_t count = (int64_t)params->batch * params->rows;
    params->lengths = flw_kernel_integers(call, count, flw_kernel_scatter, lengths_of);
    params->cu_seqlens = flw_kernel_output(call, (count + params->rows) * 4);
}

FLW_KERNEL_ADAPT(attention, merge_states)

/* In place: the merged state takes the first one's place. */
static void make_merge_states(struct flw_kernel_call *call)
{
    fallow_merge_states_params *params = flw_kernel_params(call, sizeof *params);
    params->tokens = flw_kernel_size(call, "tokens", 32);
    params->heads = (int32_t)flw_kernel_size(call, "heads", 8);
    params->width = (int32_t)flw_kernel_size(call, "width", 128);
    params->dtype = FALLOW_BF16;
    params->out_dtype = FALLOW_BF16;
    int64_t rows = params->tokens * params->heads;
    params->out = flw_kernel_filled(call, rows * params->width * 2, FLW_KERNEL_ONES_BF16);
    params->out_lse = flw_kernel_filled(call, rows * 4, FLW_KERNEL_ONES_F32);
    params->a = params->out;
    params->a_lse = params->out_lse;
    params->b = flw_kernel_filled(call, rows * params->width * 2, FLW_KERNEL_ONES_BF16);
    params->b_lse = flw_kernel_filled(call, rows * 4, FLW_KERNEL_ONES_F32);
}

FLW_KERNEL_ADAPT(attention, neutral_rows)

/* All of them, so that what the query says is moved. */
static void make_neutral_rows(struct flw_kernel_call *call)
{
    static const int64_t none = 0;
    fallow_neutral_rows_params *params = flw_kernel_params(call, sizeof *params);
    params->tokens = flw_kernel_size(call, "tokens", 32);
    params->heads = (int32_t)flw_kernel_size(call, "heads", 8);
    params->width = (int32_t)flw_kernel_size(call, "width", 128);
    params->batch = 8;
    params->dtype = FALLOW_BF16;
    int64_t rows = params->tokens * params->heads, each = params->tokens / params->batch;
    params->cu_q = flw_kernel_integers(call, params->batch + 1, flw_kernel_multiples, &each);
    params->key_counts = flw_kernel_integers(call, params->batch, flw_kernel_same, &none);
    params->rows = flw_kernel_output(call, rows * params->width * 2);
    params->lse = flw_kernel_output(call, rows * 4);
}

FLW_KERNEL_ADAPT(attention, padded_copy)

static void make_padded_copy(struct flw_kernel_call *call)
{
    static const int64_t one = 1;
    fallow_padded_copy_params *params = flw_kernel_params(call, sizeof *params);
    params->rows = flw_kernel_size(call, "rows", 64);
    params->src_rows = params->rows / 2;
    params->value = -1;
    params->dtype = FALLOW_I32;
    params->src = flw_kernel_integers(call, params->src_rows, flw_kernel_multiples, &one);
    params->dst = flw_kernel_output(call, params->rows * 4);
}

FLW_KERNEL_ADAPT(attention, fa3_schedule)

/* Llama-3-70B's decode, sorted and swizzled: four vectors and the semaphore. */
static void make_fa3_schedule(struct flw_kernel_call *call)
{
    static const int64_t longest = 8192;
    fallow_fa3_schedule_params *params = flw_kernel_params(call, sizeof *params);
    params->batch = (int32_t)flw_kernel_size(call, "batch", 64);
    params->heads_q = 64;
    params->heads_kv = 8;
    params->multiprocessors = 132;
    params->block_m = 128;
    params->block_n = 128;
    params->max_splits = 32;
    params->head_dim = 128;
    params->dtype = FALLOW_BF16;
    params->packed = 1;
    params->sorted = 1;
    params->swizzled = 1;
    params->seqlen_q = 1;
    params->seqused_k = flw_kernel_integers(call, params->batch, flw_kernel_scatter, &longest);
    params->metadata =
        flw_kernel_output(call, (4 * (((int64_t)params->batch + 3) / 4 * 4) + 1) * 4);
}

FLW_KERNEL_ADAPT(attention, restore_counters)

static void make_restore_counters(struct flw_kernel_call *call)
{
    fallow_restore_counters_params *params = flw_kernel_params(call, sizeof *params);
    params->consumers = (int32_t)flw_kernel_size(call, "consumers", 8);
    params->count = (int32_t)flw_kernel_size(call, "count", 256);
    params->counters = flw_kernel_filled(call, (int64_t)params->consumers * params->count * 4, 1);
    params->restored = flw_kernel_output(call, params->consumers * 4);
}

FLW_KERNEL_ADAPT(attention, scale_padding)

static void make_scale_padding(struct flw_kernel_call *call)
{
    fallow_scale_padding_params *params = flw_kernel_params(call, sizeof *params);
    params->rows = (int32_t)flw_kernel_size(call, "rows", 64);
    params->columns = (int32_t)flw_kernel_size(call, "columns", 16);
    int64_t tiles = (int64_t)((params->rows + 127) / 128) * ((params->columns + 3) / 4);
    params->scales = flw_kernel_output(call, tiles * 512);
}

const struct flw_kernel_case flw_kernel_cases_attention[] = {
    {FLW_KERNEL_ROW(cu_seqlens, "decode"), .sizes = {512, 1}, FLW_KERNEL_QUICK, FLW_KERNEL_ONCE},
    {FLW_KERNEL_ROW(cu_seqlens, "chunks"), .sizes = {64, 16}, FLW_KERNEL_QUICK, FLW_KERNEL_ONCE},
    {FLW_KERNEL_ROW(merge_states, "deepseek-v3"), .sizes = {8192, 128, 128}, FLW_KERNEL_COPY,
     FLW_KERNEL_ONCE},
    {FLW_KERNEL_ROW(merge_states, "deepseek-v3, tp 8"), .sizes = {8192, 16, 128}, FLW_KERNEL_COPY,
     FLW_KERNEL_ONCE},
    {FLW_KERNEL_ROW(neutral_rows, "deepseek-v3"), .sizes = {8192, 128, 128}},
    {FLW_KERNEL_ROW(padded_copy, "512 of 1,024"), .sizes = {1024}, FLW_KERNEL_QUICK,
     FLW_KERNEL_ONCE},
    {FLW_KERNEL_ROW(fa3_schedule, "llama-3-70b"), .sizes = {512}, .goal_us = 10, FLW_KERNEL_ONCE},
    {FLW_KERNEL_ROW(restore_counters, "8 consumers"), .sizes = {8, 1024}, FLW_KERNEL_QUICK},
    {FLW_KERNEL_ROW(scale_padding, "nvfp4, one token"), .sizes = {1, 512}, FLW_KERNEL_QUICK},
    {.module = NULL},
};
