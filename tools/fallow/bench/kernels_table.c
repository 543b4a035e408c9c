/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the table of kernel modules: the parameters of a call at given sizes, and each module's cases.
 */
#include "bench/kernels.h"

#include "fallow/attention.h"
#include "fallow/debug_kernels.h"
#include "fallow/mla.h"
#include "fallow/moe.h"

/* Begins `make` of a module, after the module's two functions in the library; s[] has the sizes. */
#define MODULE(group, operation)                                                                \
    static fallow_status query_##operation(const void *params, fallow_workspace_need *out_need) \
    {                                                                                           \
        return fallow_##group##_##operation##_query(params, out_need);                          \
    }                                                                                           \
    static fallow_status launch_##operation(fallow_kernels *kernels, const void *params,        \
                                            fallow_stream stream)                               \
    {                                                                                           \
        return fallow_##group##_##operation(kernels, params, stream);                           \
    }                                                                                           \
    static void make_##operation(struct flw_kernel_call *call, const int *s)

#define SET(operation, ...)                                                                       \
    do {                                                                                          \
        _Static_assert(sizeof(fallow_##operation##_params) <= sizeof call->params, "room");       \
        memcpy(call->params,                                                                      \
               &(fallow_##operation##_params){.struct_size = sizeof(fallow_##operation##_params), \
                                              __VA_ARGS__},                                       \
               sizeof(fallow_##operation##_params));                                              \
    } while (0)

#define OUT(count, bytes) flw_kernel_output(call, (int64_t)(count) * (bytes))
#define FILL(count, bytes, word) \
    flw_kernel_filled(call, (int64_t)(count) * (bytes), (uint32_t)(word))
#define INTS(count, kind, ...) \
    flw_kernel_integers(call, count, FLW_KERNEL_##kind, (const int[]){__VA_ARGS__})

#define ONES_BF16 0x3f803f80u
#define ONES_F32  0x3f800000u

static int round_up(int value, int step)
{
    return (value + step - 1) / step * step;
}

/* ---- attention */

MODULE(attention, cu_seqlens)
{
    SET(cu_seqlens, .batch = s[0], .rows = s[1], .lengths_dtype = FALLOW_I32,
        .cu_dtype = FALLOW_I32, .lengths = INTS(s[0] * s[1], SCATTERED, 8192),
        .cu_seqlens = OUT((s[0] + 1) * s[1], 4));
}

/* In place: the merged state replaces the first one. */
MODULE(attention, merge_states)
{
    int rows = s[0] * s[1], bytes = s[2] * 2;
    void *out = FILL(rows, bytes, ONES_BF16), *lse = FILL(rows, 4, ONES_F32);
    SET(merge_states, .tokens = s[0], .heads = s[1], .width = s[2], .dtype = FALLOW_BF16,
        .out_dtype = FALLOW_BF16, .out = out, .out_lse = lse, .a = out, .a_lse = lse,
        .b = FILL(rows, bytes, ONES_BF16), .b_lse = FILL(rows, 4, ONES_F32));
}

/* All rows, so that the call moves as many bytes as its query returns. */
MODULE(attention, neutral_rows)
{
    SET(neutral_rows, .tokens = s[0], .heads = s[1], .width = s[2], .batch = 8,
        .dtype = FALLOW_BF16, .cu_q = INTS(9, MULTIPLES, s[0] / 8), .key_counts = FILL(8, 4, 0),
        .rows = OUT(s[0] * s[1], s[2] * 2), .lse = OUT(s[0] * s[1], 4));
}

MODULE(attention, padded_copy)
{
    SET(padded_copy, .rows = s[0], .src_rows = s[0] / 2, .value = -1, .dtype = FALLOW_I32,
        .src = INTS(s[0] / 2, MULTIPLES, 1), .dst = OUT(s[0], 4));
}

/* Llama-3-70B's decode, sorted and swizzled: four vectors and the semaphore. */
MODULE(attention, fa3_schedule)
{
    SET(fa3_schedule, .batch = s[0], .heads_q = 64, .heads_kv = 8, .multiprocessors = 132,
        .block_m = 128, .block_n = 128, .max_splits = 32, .head_dim = 128, .dtype = FALLOW_BF16,
        .packed = 1, .sorted = 1, .swizzled = 1, .seqlen_q = 1,
        .seqused_k = INTS(s[0], SCATTERED, 8192), .metadata = OUT(4 * round_up(s[0], 4) + 1, 4));
}

MODULE(attention, restore_counters)
{
    SET(restore_counters, .consumers = s[0], .count = s[1], .counters = FILL(s[0] * s[1], 4, 1),
        .restored = OUT(s[0], 4));
}

MODULE(attention, scale_padding)
{
    SET(scale_padding, .rows = s[0], .columns = s[1],
        .scales = OUT(round_up(s[0], 128) * round_up(s[1], 4), 1));
}

/* ---- tables of pages, lists of token slots */

/* A decode step; all requests have reached `context`. */
MODULE(attention, page_table)
{
    int cols = s[2] / s[1];
    SET(page_table, .batch = s[0], .page_size = s[1], .stride = s[2], .cols = cols,
        .request_rows = s[0], .lengths_dtype = FALLOW_I32, .requests_dtype = FALLOW_I32,
        .lengths = FILL(s[0], 4, s[2]), .requests = INTS(s[0], MULTIPLES, 1),
        .req_to_token = INTS(s[0] * s[2], MULTIPLES, 1), .page_table = OUT(s[0] * cols, 4),
        .cache_seqlens = OUT(s[0], 4), .cu_k = OUT(s[0] + 1, 4), .max_length = OUT(1, 4));
}

/* Sliding windows while verifying: a prefix's pages, then the draft's. */
MODULE(attention, concat_pages)
{
    int rows = s[0] * s[1], cols = s[2] + s[1];
    SET(concat_pages, .batch = s[0], .repeat = s[1], .first_cols = s[2], .second_cols = s[1],
        .cols = cols, .second_dtype = FALLOW_I32, .first = INTS(s[0] * s[2], MULTIPLES, 1),
        .first_lengths = FILL(s[0], 4, s[2]), .second = INTS(rows * s[1], MULTIPLES, 1),
        .second_lengths = FILL(rows, 4, s[1]), .page_table = OUT(rows * cols, 4),
        .cache_seqlens = OUT(rows, 4), .cu_k = OUT(rows + 1, 4), .max_length = OUT(1, 4));
}

MODULE(attention, verify_pages)
{
    int rows = s[0] * s[1];
    SET(verify_pages, .batch = s[0], .draft_tokens = s[1], .stride = s[2], .request_rows = s[0],
        .lengths_dtype = FALLOW_I32, .requests_dtype = FALLOW_I32,
        .lengths = FILL(s[0], 4, s[2] - s[1]), .requests = INTS(s[0], MULTIPLES, 1),
        .req_to_token = INTS(s[0] * s[2], MULTIPLES, 1), .mask = FILL(rows, s[1], 0x01000101u),
        .page_table = OUT(rows * s[1], 4), .cache_seqlens = OUT(rows, 4), .cu_k = OUT(rows + 1, 4),
        .max_length = OUT(1, 4));
}

/* A decode step: one query a request, attending its last chunk. */
MODULE(attention, local_attention)
{
    int columns = s[1] / s[3];
    SET(local_attention, .batch = s[0], .chunk = s[2], .page_size = s[3], .capacity = s[0],
        .table_columns = columns, .cu_seqlens_q = INTS(s[0] + 1, MULTIPLES, 1),
        .lengths = FILL(s[0], 4, s[1]), .block_table = INTS(s[0] * columns, MULTIPLES, 1),
        .cu_q_local = OUT(s[0] + 1, 4), .seqused_k = OUT(s[0], 4),
        .local_table = OUT(s[0] * (s[2] / s[3]), 4), .virtual_count = OUT(1, 4));
}

MODULE(attention, kv_indices)
{
    int count = s[0] * s[1];
    SET(kv_indices, .batch = s[0], .stride = s[1], .request_rows = s[0], .capacity = count,
        .requests_dtype = FALLOW_I32, .cu_seqlens = INTS(s[0] + 1, MULTIPLES, s[1]),
        .requests = INTS(s[0], MULTIPLES, 1), .req_to_token = INTS(count, MULTIPLES, 1),
        .kv_indices = OUT(count, 4));
}

/* ---- multi-head latent attention */

MODULE(mla, flashmla_schedule)
{
    int parts = fallow_mla_flashmla_parts(s[2], 1, s[1], 1);
    SET(flashmla_schedule, .batch = s[0], .parts = parts, .lengths = INTS(s[0], SCATTERED, 8192),
        .tile_metadata = OUT(parts, 32), .num_splits = OUT(s[0] + 1, 4));
}

MODULE(mla, gather_kv)
{
    static const int token_bytes[] = {
        [FALLOW_KV_ROWS] = 1152, [FALLOW_KV_E4M3] = 576, [FALLOW_KV_FLASHMLA] = 656};
    int blocks = s[0] / s[2], format = call->of->mode;
    SET(gather_kv, .tokens = s[0], .batch = s[1], .page_size = s[2], .block_count = blocks,
        .table_columns = blocks / s[1], .dtype = FALLOW_BF16, .format = (fallow_kv_format)format,
        .cache = FILL(s[0], token_bytes[format], ONES_BF16),
        .block_table = INTS(blocks, SHUFFLED, blocks),
        .cu_seqlens = INTS(s[1] + 1, MULTIPLES, s[0] / s[1]), .dst = OUT(s[0], 576 * 2));
}

MODULE(mla, chunk_plan)
{
    int length = s[2] / s[0] / s[3] * s[3], chunks = (s[1] + length - 1) / length;
    SET(chunk_plan, .batch = s[0], .workspace_tokens = s[2], .page_size = s[3],
        .chunk_capacity = chunks, .token_capacity = s[2], .context_lengths = FILL(s[0], 4, s[1]),
        .starts = OUT(chunks * s[0], 4), .lengths = OUT(chunks * s[0], 4),
        .cu_seqlens = OUT(chunks * (s[0] + 1), 4), .totals = OUT(chunks, 4),
        .max_lengths = OUT(chunks, 4), .token_to_seq = OUT(chunks * s[2], 4),
        .chunk_count = OUT(1, 4));
}

/* Keys alone: the values are read in place. */
MODULE(mla, concat_kv)
{
    int rows = s[0] * s[1];
    SET(concat_kv, .tokens = s[0], .heads = s[1], .dtype = FALLOW_BF16,
        .kv = FILL(rows, 256 * 2, ONES_BF16), .k_rope = FILL(s[0], 64 * 2, ONES_BF16),
        .k = OUT(rows, 192 * 2));
}

/* ---- mixtures of experts, with the sizes of a layer of published models ---- */

/* Mode 1, DeepSeek-V3's: the sigmoid, a bias, 4 of 8 groups by their two largest. */
MODULE(moe, route)
{
    int chosen = s[0] * s[2];
    bool is_grouped = call->of->mode != 0;
    SET(route, .tokens = s[0], .experts = s[1], .top_k = s[2], .dtype = FALLOW_BF16,
        .ids_dtype = FALLOW_I32, .renormalises = 1, .logits = INTS(s[0] * s[1] / 2, LOGITS, 0),
        .weights = OUT(chosen, 4), .ids = OUT(chosen, 4),
        .score = is_grouped ? FALLOW_ROUTE_SIGMOID : FALLOW_ROUTE_SOFTMAX,
        .groups = is_grouped ? 8 : 0, .groups_kept = is_grouped ? 4 : 0,
        .groups_by_two = is_grouped, .scale = is_grouped ? 2.5f : 0,
        .bias = is_grouped ? FILL(s[1], 4, 0) : NULL);
}

/* The rows of all experts' blocks, at most. */
static int padded_rows(const int *s)
{
    int count = s[0] * s[2];
    return count + (count < s[1] ? count : s[1]) * (s[3] - 1);
}

MODULE(moe, align_blocks)
{
    int rows = padded_rows(s);
    SET(align_blocks, .count = s[0] * s[2], .capacity = rows, .experts = s[1], .block_size = s[3],
        .ids_dtype = FALLOW_I32, .ids = INTS(s[0] * s[2], CHOICES, s[1], s[2]),
        .sorted_ids = OUT(rows, 4), .expert_ids = OUT((rows + s[3] - 1) / s[3], 4),
        .padded_count = OUT(1, 4));
}

/* Every output, since the query counts all outputs. */
MODULE(moe, expert_counts)
{
    int count = s[0] * s[2], rows = padded_rows(s);
    SET(expert_counts, .align = s[3], .count = count, .rows = rows, .experts = s[1], .width = 7168,
        .intermediate = 2048, .ids_dtype = FALLOW_I32, .ids = INTS(count, CHOICES, s[1], s[2]),
        .counts = OUT(s[1], 4), .offsets = OUT(s[1] + 1, 4), .ends = OUT(s[1], 4),
        .positions = OUT(count, 4), .m_indices = OUT(rows, 4), .masked_m = OUT(s[1], 4),
        .problem_sizes_1 = OUT(s[1], 12), .problem_sizes_2 = OUT(s[1], 12));
}

/* Mode 0: in place; mode 1: E4M3, with a scale to each 128 elements. */
MODULE(moe, silu_and_mul)
{
    void *in = FILL(s[0], s[1] * 4, ONES_BF16);
    bool is_e4m3 = call->of->mode != 0;
    SET(silu_and_mul, .rows = s[0], .width = s[1], .dtype = FALLOW_BF16, .in = in,
        .out_dtype = is_e4m3 ? FALLOW_E4M3 : FALLOW_BF16, .out = is_e4m3 ? OUT(s[0], s[1]) : in,
        .out_stride = is_e4m3 ? 0 : 2 * s[1], .scales = is_e4m3 ? OUT(s[0], s[1] / 128 * 4) : NULL);
}

/* Mode 1: to E4M3, with scales; no row is padding. */
MODULE(moe, permute)
{
    int rows = s[0] * s[2];
    bool is_e4m3 = call->of->mode != 0;
    SET(permute, .tokens = s[0], .width = s[1], .top_k = s[2], .row_count = rows,
        .dtype = FALLOW_BF16, .in = FILL(s[0], s[1] * 2, ONES_BF16),
        .positions = INTS(rows, SHUFFLED, rows), .out_dtype = is_e4m3 ? FALLOW_E4M3 : FALLOW_BF16,
        .pad = is_e4m3 ? FALLOW_PERMUTE_PAD_SKIP : (fallow_permute_pad)0,
        .out = OUT(rows, s[1] * (is_e4m3 ? 1 : 2)),
        .scales = is_e4m3 ? OUT(rows, s[1] / 128 * 4) : NULL);
}

MODULE(moe, combine)
{
    int rows = s[0] * s[2];
    SET(combine, .tokens = s[0], .width = s[1], .top_k = s[2], .row_count = rows,
        .dtype = FALLOW_BF16, .rows = FILL(rows, s[1] * 2, ONES_BF16),
        .weights = FILL(rows, 4, ONES_F32), .positions = INTS(rows, SHUFFLED, rows),
        .out = OUT(s[0], s[1] * 2));
}

/* ---- poison, and the search for it */

MODULE(debug, poison)
{
    SET(poison, .bytes = s[0], .memory = OUT(s[0], 1));
}

MODULE(debug, validate)
{
    SET(validate, .rows = s[0], .width = s[1], .dtype = FALLOW_BF16,
        .data = FILL(s[0], s[1] * 2, ONES_BF16),
        .report = FILL(1, sizeof(fallow_validate_report), 0));
}

MODULE(debug, validate_ids)
{
    SET(validate_ids, .rows = s[0], .top_k = s[1], .id_count = s[2],
        .ids = INTS(s[0] * s[1], CHOICES, s[2], s[1]),
        .report = FILL(1, sizeof(fallow_validate_report), 0));
}

/* ---- the table */

/* clang-format off */

/* Goals: a share of a copy's speed, for large buffers; microseconds in a graph, for little work; one launch. */
#define COPY  .goal_share = 0.85
#define QUICK .goal_us = 3
#define ONCE  .launch_goal = 1
#define ROW(operation) #operation, make_##operation, query_##operation, launch_##operation

const struct flw_kernel_module flw_kernel_modules[] = {
    {ROW(cu_seqlens), {{"batch", 64}, {"rows", 4}},
     {{"decode", {512, 1}, QUICK, ONCE}, {"chunks", {64, 16}, QUICK, ONCE}}},
    {ROW(merge_states), {{"tokens", 32}, {"heads", 8}, {"width", 128}},
     {{"deepseek-v3", {8192, 128, 128}, COPY, ONCE}, {"deepseek-v3, tp 8", {8192, 16, 128}, COPY, ONCE}}},
    {ROW(neutral_rows), {{"tokens", 32}, {"heads", 8}, {"width", 128}}, {{"deepseek-v3", .sizes = {8192, 128, 128}}}},
    {ROW(padded_copy), {{"rows", 64}}, {{"512 of 1,024", {1024}, QUICK, ONCE}}},
    {ROW(fa3_schedule), {{"batch", 64}}, {{"llama-3-70b", {512}, .goal_us = 10, ONCE}}},
    {ROW(restore_counters), {{"consumers", 8}, {"count", 256}}, {{"8 consumers", {8, 1024}, QUICK}}},
    {ROW(scale_padding), {{"rows", 64}, {"columns", 16}}, {{"nvfp4, one token", {1, 512}, QUICK}}},
    {ROW(page_table), {{"batch", 16}, {"page_size", 64}, {"context", 2048}},
     {{"decode", {64, 64, 8192}, QUICK, ONCE}, {"long, pages of 64", {512, 64, 131072}, ONCE},
      {"long, pages of 1", {512, 1, 131072}, ONCE}}},
    {ROW(concat_pages), {{"batch", 16}, {"draft_tokens", 4}, {"prefix_pages", 64}},
     {{"verify", {64, 8, 512}, QUICK, ONCE}}},
    {ROW(verify_pages), {{"batch", 16}, {"draft_tokens", 8}, {"context", 256}},
     {{"tree of 32", {64, 32, 8192}, QUICK, ONCE}}},
    {ROW(local_attention), {{"batch", 16}, {"context", 1024}, {"chunk", 256}, {"page_size", 16}},
     {{"decode", {512, 32768, 8192, 16}, QUICK, ONCE}}},
    {ROW(kv_indices), {{"batch", 16}, {"context", 256}}, {{"131,072 tokens", {512, 256}, QUICK}}},
    {ROW(flashmla_schedule), {{"batch", 64}, {"heads", 128}, {"multiprocessors", 132}},
     {{"deepseek-v3", {512, 128, 132}, .goal_us = 10, ONCE}}},
    {ROW(gather_kv), {{"tokens", 512}, {"batch", 4}, {"page_size", 64}},
     {{"bf16", {65536, 8, 64}, COPY, .mode = FALLOW_KV_ROWS}, {"e4m3", {65536, 8, 64}, COPY, .mode = FALLOW_KV_E4M3},
      {"flashmla", {65536, 8, 64}, COPY, .mode = FALLOW_KV_FLASHMLA}}},
    {ROW(chunk_plan), {{"batch", 8}, {"context", 2048}, {"workspace", 4096}, {"page_size", 64}},
     {{"8 of 32,768", {8, 32768, 65536, 64}, QUICK, ONCE}}},
    {ROW(concat_kv), {{"tokens", 32}, {"heads", 8}},
     {{"deepseek-v3", {65536, 128}, COPY}, {"deepseek-v3, tp 8", {65536, 16}, COPY}}},
    {ROW(route), {{"tokens", 64}, {"experts", 256}, {"top_k", 8}},
     {{"qwen3-30b-a3b, decode", {64, 128, 8}, QUICK, ONCE}, {"qwen3-30b-a3b", {8192, 128, 8}, ONCE},
      {"mixtral-8x7b", {8192, 8, 2}, ONCE}, {"deepseek-v3, decode", {64, 256, 8}, QUICK, ONCE, .mode = 1},
      {"deepseek-v3", {8192, 256, 8}, ONCE, .mode = 1}}},
    {ROW(align_blocks), {{"tokens", 64}, {"experts", 256}, {"top_k", 8}, {"block", 128}},
     {{"deepseek-v3, decode", {64, 256, 8, 64}, QUICK, ONCE}, {"deepseek-v3", {8192, 256, 8, 64}, ONCE}}},
    {ROW(expert_counts), {{"tokens", 64}, {"experts", 256}, {"top_k", 8}, {"align", 128}},
     {{"deepseek-v3, decode", {64, 256, 8, 128}, QUICK}, {"deepseek-v3", .sizes = {8192, 256, 8, 128}}}},
    {ROW(permute), {{"tokens", 64}, {"width", 256}, {"top_k", 8}},
     {{"qwen3-30b-a3b", {8192, 2048, 8}, COPY}, {"mixtral-8x7b", {8192, 4096, 2}, COPY},
      {"deepseek-v3", {8192, 7168, 8}, COPY}, {"deepseek-v3, e4m3", {8192, 7168, 8}, COPY, .mode = 1}}},
    {ROW(silu_and_mul), {{"rows", 64}, {"width", 256}},
     {{"qwen3-30b-a3b", {65536, 768}, COPY}, {"mixtral-8x7b", {16384, 14336}, COPY},
      {"deepseek-v3", {65536, 2048}, COPY}, {"deepseek-v3, e4m3", {65536, 2048}, COPY, .mode = 1}}},
    {ROW(combine), {{"tokens", 64}, {"width", 256}, {"top_k", 8}},
     {{"qwen3-30b-a3b", {8192, 2048, 8}, COPY}, {"mixtral-8x7b", {8192, 4096, 2}, COPY},
      {"deepseek-v3", {8192, 7168, 8}, COPY}}},
    {ROW(poison), {{"bytes", 65536}}, {{"1 GiB", .sizes = {1 << 30}}}},
    {ROW(validate), {{"rows", 64}, {"width", 256}}, {{"deepseek-v3, outputs", .sizes = {65536, 7168}}}},
    {ROW(validate_ids), {{"rows", 64}, {"top_k", 8}, {"experts", 256}}, {{"deepseek-v3", .sizes = {8192, 8, 256}}}},
    {.name = NULL},
};
