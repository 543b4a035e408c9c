/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the public calls of verify_pages: checks, needs, the launch.
 * Does not: compute; verify_pages_twin.c is the definition, verify_pages.cu the kernel.
 */
#include "attention/verify_pages.h"

#include "common/table_call.h"
#include "fallow/attention.h"

#define MOST_ROWS (1 << 20)

/* Shapes and types; ld gets the default. */
static struct flw_table check_shape(struct flw_refusal *refusal, fallow_verify_pages_params *params)
{
    int64_t rows = (int64_t)params->batch * params->draft_tokens;
    flw_refusal_count(refusal, "batch", params->batch, 0, 65536);
    flw_refusal_count(refusal, "draft_tokens", params->draft_tokens, 1, FLW_VERIFY_PAGES_MOST);
    flw_refusal_count(refusal, "batch x draft_tokens", rows, 0, MOST_ROWS);
    flw_refusal_count(refusal, "request_rows", params->request_rows, 1, INT32_MAX);
    flw_refusal_count(refusal, "stride", params->stride, 1, INT32_MAX);
    flw_refusal_dtype(refusal, "lengths_dtype", params->lengths_dtype, FLW_DTYPES_INTEGERS);
    flw_refusal_dtype(refusal, "requests_dtype", params->requests_dtype, FLW_DTYPES_INTEGERS);
    struct flw_table table = {
        .rows = rows, .cols = params->draft_tokens, .ld = params->ld, .pad_len = params->pad_len};
    flw_table_check(refusal, &table);
    params->ld = table.ld;
    return table;
}

fallow_status fallow_attention_verify_pages_query(const fallow_verify_pages_params *caller,
                                                  fallow_workspace_need *out_need)
{
    struct flw_refusal refusal;
    fallow_verify_pages_params params;
    fallow_workspace_need need = {.launch_count = 1};
    flw_refusal_begin_query(&refusal, "fallow_attention_verify_pages_query");
    flw_refusal_copy(&refusal, &params, sizeof params, caller);
    struct flw_table table = check_shape(&refusal, &params);
    if (refusal.status != FALLOW_OK) {
        return refusal.status;
    }
    uint64_t rows = (uint64_t)table.rows, batch = (uint64_t)params.batch;
    flw_table_need(&need, &table);
    need.read_bytes = rows * (uint64_t)params.draft_tokens + rows * 4 +
                      batch * (fallow_dtype_bytes(params.lengths_dtype) +
                               fallow_dtype_bytes(params.requests_dtype));
    return flw_refusal_give_need(&refusal, out_need, &need);
}

static void check_inputs(struct flw_refusal *refusal, const fallow_verify_pages_params *params,
                         uint64_t rows)
{
    uint64_t batch = (uint64_t)params->batch;
    size_t lengths_each = fallow_dtype_bytes(params->lengths_dtype);
    size_t requests_each = fallow_dtype_bytes(params->requests_dtype);
    uint64_t slots_bytes = batch == 0
                               ? 0
                               : flw_refusal_rows(refusal, "req_to_token", params->request_rows,
                                                  params->stride, params->stride, 4);
    flw_refusal_input(refusal, "lengths", params->lengths, batch * lengths_each, lengths_each);
    flw_refusal_optional_input(refusal, "delta", params->delta, 4, 4);
    flw_refusal_optional_input(refusal, "valid_count", params->valid_count, 4, 4);
    flw_refusal_input(refusal, "requests", params->requests, batch * requests_each, requests_each);
    flw_refusal_input(refusal, "req_to_token", params->req_to_token, slots_bytes, 4);
    flw_refusal_input(refusal, "mask", params->mask, rows * (uint64_t)params->draft_tokens, 1);
}

fallow_status fallow_attention_verify_pages(fallow_kernels *kernels,
                                            const fallow_verify_pages_params *caller,
                                            fallow_stream stream)
{
    struct flw_refusal refusal;
    fallow_verify_pages_params params;
    flw_refusal_begin(&refusal, kernels, "fallow_attention_verify_pages");
    flw_refusal_copy(&refusal, &params, sizeof params, caller);
    struct flw_table table = check_shape(&refusal, &params);
    if (refusal.status != FALLOW_OK) {
        return refusal.status;
    }
    struct flw_table_lengths out = {.lengths = params.cache_seqlens,
                                    .cu = params.cu_k,
                                    .max_length = params.max_length,
                                    .flags = params.flags};
    check_inputs(&refusal, &params, (uint64_t)table.rows);
    flw_table_check_outputs(&refusal, &table, params.page_table, &out);
    if (flw_refusal_status(&refusal) != FALLOW_OK) {
        return refusal.status;
    }
    struct flw_verify_pages_args args = {.lengths = params.lengths,
                                         .delta = params.delta,
                                         .valid_count = params.valid_count,
                                         .requests = params.requests,
                                         .req_to_token = params.req_to_token,
                                         .mask = params.mask,
                                         .page_table = params.page_table,
                                         .out = out,
                                         .request_rows = params.request_rows,
                                         .stride = params.stride,
                                         .ld = params.ld,
                                         .batch = params.batch,
                                         .draft_tokens = params.draft_tokens,
                                         .fill = params.fill,
                                         .pad_len = params.pad_len,
                                         .lengths_is_i64 = params.lengths_dtype == FALLOW_I64,
                                         .requests_is_i64 = params.requests_dtype == FALLOW_I64,
                                         .is_word_mask = params.draft_tokens % 4 == 0 &&
                                                         (uintptr_t)params.mask % 4 == 0};
    /* A warp per row, and one block for the lengths. */
    struct flw_grid grid = {.blocks_x = 1 + flw_grid_blocks(table.rows, FLW_TABLE_THREADS / 32),
                            .threads = FLW_TABLE_THREADS};
    return flw_kernels_launch(kernels, FLW_KERNEL_verify_pages, grid, &args, stream);
}
