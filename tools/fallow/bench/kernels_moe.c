/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the cases of the modules of mixtures of experts, at the sizes of one layer of known models.
 */
#include "bench/kernels.h"

#include "fallow/moe.h"

FLW_KERNEL_ADAPT(moe, route)

static fallow_route_params *make_routing(struct flw_kernel_call *call)
{
    fallow_route_params *params = flw_kernel_params(call, sizeof *params);
    params->tokens = flw_kernel_size(call, "tokens", 64);
    params->experts = (int32_t)flw_kernel_size(call, "experts", 256);
    params->top_k = (int32_t)flw_kernel_size(call, "top_k", 8);
    params->dtype = FALLOW_BF16;
    params->ids_dtype = FALLOW_I32;
    params->renormalises = 1;
    params->logits =
        flw_kernel_integers(call, params->tokens * params->experts / 2, flw_kernel_logits, NULL);
    params->weights = flw_kernel_output(call, params->tokens * params->top_k * 4);
    params->ids = flw_kernel_output(call, params->tokens * params->top_k * 4);
    return params;
}

static void make_route(struct flw_kernel_call *call)
{
    (void)make_routing(call);
}

/* DeepSeek-V3's: the sigmoid, a bias, 4 of 8 groups by their two largest. */
static void make_route_grouped(struct flw_kernel_call *call)
{
    fallow_route_params *params = make_routing(call);
    params->score = FALLOW_ROUTE_SIGMOID;
    params->groups = 8;
    params->groups_kept = 4;
    params->groups_by_two = 1;
    params->scale = 2.5f;
    params->bias = flw_kernel_filled(call, (int64_t)params->experts * 4, 0);
}

FLW_KERNEL_ADAPT(moe, align_blocks)

static void make_align_blocks(struct flw_kernel_call *call)
{
    fallow_align_blocks_params *params = flw_kernel_params(call, sizeof *params);
    int64_t tokens = flw_kernel_size(call, "tokens", 64);
    int64_t experts = flw_kernel_size(call, "experts", 256);
    int64_t top_k = flw_kernel_size(call, "top_k", 8);
    int64_t block = flw_kernel_size(call, "block", 128);
    const int64_t choice[] = {experts, top_k};
    params->count = tokens * top_k;
    int64_t used = params->count < experts ? params->count : experts;
    params->capacity = params->count + used * (block - 1);
    params->experts = (int32_t)experts;
    params->block_size = (int32_t)block;
    params->ids_dtype = FALLOW_I32;
    params->ids = flw_kernel_integers(call, params->count, flw_kernel_choice, choice);
    params->sorted_ids = flw_kernel_output(call, params->capacity * 4);
    params->expert_ids = flw_kernel_output(call, (params->capacity + block - 1) / block * 4);
    params->padded_count = flw_kernel_output(call, 4);
}

FLW_KERNEL_ADAPT(moe, expert_counts)

/* Every output, since the query counts them all. */
static void make_expert_counts(struct flw_kernel_call *call)
{
    fallow_expert_counts_params *params = flw_kernel_params(call, sizeof *params);
    int64_t tokens = flw_kernel_size(call, "tokens", 64);
    int64_t experts = flw_kernel_size(call, "experts", 256);
    int64_t top_k = flw_kernel_size(call, "top_k", 8);
    params->align = (int32_t)flw_kernel_size(call, "align", 128);
    const int64_t choice[] = {experts, top_k};
    params->count = tokens * top_k;
    int64_t used = params->count < experts ? params->count : experts;
    params->rows = params->count + used * (params->align - 1);
    params->experts = (int32_t)experts;
    params->width = 7168;
    params->intermediate = 2048;
    params->ids_dtype = FALLOW_I32;
    params->ids = flw_kernel_integers(call, params->count, flw_kernel_choice, choice);
    params->counts = flw_kernel_output(call, experts * 4);
    params->offsets = flw_kernel_output(call, (experts + 1) * 4);
    params->ends = flw_kernel_output(call, experts * 4);
    params->positions = flw_kernel_output(call, params->count * 4);
    params->m_indices = flw_kernel_output(call, params->rows * 4);
    params->masked_m = flw_kernel_output(call, experts * 4);
    params->problem_sizes_1 = flw_kernel_output(call, experts * 12);
    params->problem_sizes_2 = flw_kernel_output(call, experts * 12);
}

FLW_KERNEL_ADAPT(moe, silu_and_mul)

/* In place: each element takes its gate's place. */
static void make_silu_and_mul(struct flw_kernel_call *call)
{
    fallow_silu_and_mul_params *params = flw_kernel_params(call, sizeof *params);
    params->rows = flw_kernel_size(call, "rows", 64);
    params->width = (int32_t)flw_kernel_size(call, "width", 256);
    params->dtype = FALLOW_BF16;
    params->out_dtype = FALLOW_BF16;
    params->out_stride = 2 * params->width;
    params->out = flw_kernel_filled(call, params->rows * params->width * 4, FLW_KERNEL_ONES_BF16);
    params->in = params->out;
}

/* The operand of the second product in 8 bits, with a scale to each 128. */
static void make_silu_and_mul_e4m3(struct flw_kernel_call *call)
{
    fallow_silu_and_mul_params *params = flw_kernel_params(call, sizeof *params);
    params->rows = flw_kernel_size(call, "rows", 64);
    params->width = (int32_t)flw_kernel_size(call, "width", 256);
    params->dtype = FALLOW_BF16;
    params->out_dtype = FALLOW_E4M3;
    params->in = flw_kernel_filled(call, params->rows * params->width * 4, FLW_KERNEL_ONES_BF16);
    params->out = flw_kernel_output(call, params->rows * params->width);
    params->scales = flw_kernel_output(call, params->rows * (params->width / 128) * 4);
}

FLW_KERNEL_ADAPT(moe, permute)

static fallow_permute_params *make_permutation(struct flw_kernel_call *call)
{
    fallow_permute_params *params = flw_kernel_params(call, sizeof *params);
    params->tokens = flw_kernel_size(call, "tokens", 64);
    params->width = (int32_t)flw_kernel_size(call, "width", 256);
    params->top_k = (int32_t)flw_kernel_size(call, "top_k", 8);
    params->row_count = params->tokens * params->top_k;
    params->dtype = FALLOW_BF16;
    params->in = flw_kernel_filled(call, params->tokens * params->width * 2, FLW_KERNEL_ONES_BF16);
    params->positions =
        flw_kernel_integers(call, params->row_count, flw_kernel_shuffle, &params->row_count);
    return params;
}

static void make_permute(struct flw_kernel_call *call)
{
    fallow_permute_params *params = make_permutation(call);
    params->out_dtype = FALLOW_BF16;
    params->out = flw_kernel_output(call, params->row_count * params->width * 2);
}

static void make_permute_e4m3(struct flw_kernel_call *call)
{
    fallow_permute_params *params = make_permutation(call);
    params->out_dtype = FALLOW_E4M3;
    params->pad = FALLOW_PERMUTE_PAD_SKIP; /* all rows are some token's */
    params->out = flw_kernel_output(call, params->row_count * params->width);
    params->scales = flw_kernel_output(call, params->row_count * (params->width / 128) * 4);
}

FLW_KERNEL_ADAPT(moe, combine)

static void make_combine(struct flw_kernel_call *call)
{
    fallow_combine_params *params = flw_kernel_params(call, sizeof *params);
    params->tokens = flw_kernel_size(call, "tokens", 64);
    params->width = (int32_t)flw_kernel_size(call, "width", 256);
    params->top_k = (int32_t)flw_kernel_size(call, "top_k", 8);
    params->row_count = params->tokens * params->top_k;
    params->dtype = FALLOW_BF16;
    params->rows =
        flw_kernel_filled(call, params->row_count * params->width * 2, FLW_KERNEL_ONES_BF16);
    params->weights = flw_kernel_filled(call, params->row_count * 4, FLW_KERNEL_ONES_F32);
    params->positions =
        flw_kernel_integers(call, params->row_count, flw_kernel_shuffle, &params->row_count);
    params->out = flw_kernel_output(call, params->tokens * params->width * 2);
}

const struct flw_kernel_case flw_kernel_cases_moe[] = {
    {FLW_KERNEL_ROW(route, "qwen3-30b-a3b, decode"), .sizes = {64, 128, 8}, FLW_KERNEL_QUICK,
     FLW_KERNEL_ONCE},
    {FLW_KERNEL_ROW(route, "qwen3-30b-a3b"), .sizes = {8192, 128, 8}, FLW_KERNEL_ONCE},
    {FLW_KERNEL_ROW(route, "mixtral-8x7b"), .sizes = {8192, 8, 2}, FLW_KERNEL_ONCE},
    {FLW_KERNEL_MADE(route, make_route_grouped, "deepseek-v3, decode"), .sizes = {64, 256, 8},
     FLW_KERNEL_QUICK, FLW_KERNEL_ONCE},
    {FLW_KERNEL_MADE(route, make_route_grouped, "deepseek-v3"), .sizes = {8192, 256, 8},
     FLW_KERNEL_ONCE},
    {FLW_KERNEL_ROW(align_blocks, "deepseek-v3, decode"), .sizes = {64, 256, 8, 64},
     FLW_KERNEL_QUICK, FLW_KERNEL_ONCE},
    {FLW_KERNEL_ROW(align_blocks, "deepseek-v3"), .sizes = {8192, 256, 8, 64}, FLW_KERNEL_ONCE},
    {FLW_KERNEL_ROW(expert_counts, "deepseek-v3, decode"), .sizes = {64, 256, 8, 128},
     FLW_KERNEL_QUICK},
    {FLW_KERNEL_ROW(expert_counts, "deepseek-v3"), .sizes = {8192, 256, 8, 128}},
    {FLW_KERNEL_ROW(permute, "qwen3-30b-a3b"), .sizes = {8192, 2048, 8}, FLW_KERNEL_COPY},
    {FLW_KERNEL_ROW(permute, "mixtral-8x7b"), .sizes = {8192, 4096, 2}, FLW_KERNEL_COPY},
    {FLW_KERNEL_ROW(permute, "deepseek-v3"), .sizes = {8192, 7168, 8}, FLW_KERNEL_COPY},
    {FLW_KERNEL_MADE(permute, make_permute_e4m3, "deepseek-v3, e4m3"), .sizes = {8192, 7168, 8},
     FLW_KERNEL_COPY},
    {FLW_KERNEL_ROW(silu_and_mul, "qwen3-30b-a3b"), .sizes = {65536, 768}, FLW_KERNEL_COPY},
    {FLW_KERNEL_ROW(silu_and_mul, "mixtral-8x7b"), .sizes = {16384, 14336}, FLW_KERNEL_COPY},
    {FLW_KERNEL_ROW(silu_and_mul, "deepseek-v3"), .sizes = {65536, 2048}, FLW_KERNEL_COPY},
    {FLW_KERNEL_MADE(silu_and_mul, make_silu_and_mul_e4m3, "deepseek-v3, e4m3"),
     .sizes = {65536, 2048}, FLW_KERNEL_COPY},
    {FLW_KERNEL_ROW(combine, "qwen3-30b-a3b"), .sizes = {8192, 2048, 8}, FLW_KERNEL_COPY},
    {FLW_KERNEL_ROW(combine, "mixtral-8x7b"), .sizes = {8192, 4096, 2}, FLW_KERNEL_COPY},
    {FLW_KERNEL_ROW(combine, "deepseek-v3"), .sizes = {8192, 7168, 8}, FLW_KERNEL_COPY},
    {.module = NULL},
};
