/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the public calls of page_table: checks, needs, the launch.
 * Does not: compute; page_table_twin.c is the definition, page_table.cu the kernel.
 */
#include "attention/page_table.h"

#include "common/table_call.h"
#include "fallow/attention.h"

#define SECTOR_BYTES 32u

/* Shapes and types; page_size and ld get their defaults. */
static struct flw_table check_shape(struct flw_refusal *refusal, fallow_page_table_params *params)
{
    params->page_size = params->page_size == 0 ? 1 : params->page_size;
    flw_refusal_count(refusal, "batch", params->batch, 0, 65536);
    flw_refusal_count(refusal, "page_size", params->page_size, 1, INT32_MAX);
    flw_refusal_count(refusal, "request_rows", params->request_rows, 1, INT32_MAX);
    flw_refusal_count(refusal, "stride", params->stride, 1, INT32_MAX);
    flw_refusal_count(refusal, "swa_count", params->swa_count, 0, INT32_MAX);
    flw_refusal_dtype(refusal, "lengths_dtype", params->lengths_dtype, FLW_DTYPES_INTEGERS);
    flw_refusal_dtype(refusal, "requests_dtype", params->requests_dtype, FLW_DTYPES_INTEGERS);
    (void)flw_refusal_rows(refusal, "req_to_token", params->request_rows, params->stride,
                           params->stride, 4);
    struct flw_table table = {.rows = params->batch,
                              .cols = params->cols,
                              .ld = params->ld,
                              .pad_len = params->pad_len,
                              .bounded = params->bounded};
    flw_table_check(refusal, &table);
    params->ld = table.ld;
    return table;
}

fallow_status fallow_attention_page_table_query(const fallow_page_table_params *caller,
                                                fallow_workspace_need *out_need)
{
    struct flw_refusal refusal;
    fallow_page_table_params params;
    fallow_workspace_need need = {.launch_count = 1};
    flw_refusal_begin_query(&refusal, "fallow_attention_page_table_query");
    flw_refusal_copy(&refusal, &params, sizeof params, caller);
    struct flw_table table = check_shape(&refusal, &params);
    if (refusal.status != FALLOW_OK) {
        return refusal.status;
    }
    uint64_t each = 4 * (uint64_t)params.page_size, batch = (uint64_t)params.batch;
    uint64_t in_row = ((uint64_t)params.stride - 1) / (uint64_t)params.page_size + 1;
    uint64_t pages = batch * (in_row < (uint64_t)params.cols ? in_row : (uint64_t)params.cols);
    uint64_t page_bytes = pages * (each < SECTOR_BYTES ? each : SECTOR_BYTES);
    flw_table_need(&need, &table);
    need.read_bytes = (params.swa_count > 0 ? 2 : 1) * page_bytes +
                      batch * (fallow_dtype_bytes(params.lengths_dtype) +
                               fallow_dtype_bytes(params.requests_dtype) + 4);
    return flw_refusal_give_need(&refusal, out_need, &need);
}

static void check_inputs(struct flw_refusal *refusal, const fallow_page_table_params *params)
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
    flw_refusal_optional_input(refusal, "starts", params->starts, batch * 4, 4);
    flw_refusal_input(refusal, "requests", params->requests, batch * requests_each, requests_each);
    flw_refusal_input(refusal, "req_to_token", params->req_to_token, slots_bytes, 4);
    flw_refusal_input(refusal, "full_to_swa", params->full_to_swa, (uint64_t)params->swa_count * 4,
                      4);
    if (params->full_to_swa != NULL && params->swa_count == 0) {
        flw_refusal_refuse(refusal, FALLOW_INVALID_ARGUMENT, "swa_count is 0 with full_to_swa");
    }
}

fallow_status fallow_attention_page_table(fallow_kernels *kernels,
                                          const fallow_page_table_params *caller,
                                          fallow_stream stream)
{
    struct flw_refusal refusal;
    fallow_page_table_params params;
    flw_refusal_begin(&refusal, kernels, "fallow_attention_page_table");
    flw_refusal_copy(&refusal, &params, sizeof params, caller);
    struct flw_table table = check_shape(&refusal, &params);
    if (refusal.status != FALLOW_OK) {
        return refusal.status;
    }
    struct flw_table_lengths out = {.lengths = params.cache_seqlens,
                                    .cu = params.cu_k,
                                    .max_length = params.max_length,
                                    .flags = params.flags};
    check_inputs(&refusal, &params);
    flw_table_check_outputs(&refusal, &table, params.page_table, &out);
    if (flw_refusal_status(&refusal) != FALLOW_OK) {
        return refusal.status;
    }
    struct flw_page_table_args args = {
        .lengths = params.lengths,
        .delta = params.delta,
        .valid_count = params.valid_count,
        .starts = params.starts,
        .requests = params.requests,
        .req_to_token = params.req_to_token,
        .full_to_swa = params.full_to_swa,
        .page_table = params.page_table,
        .out = out,
        .request_rows = params.request_rows,
        .stride = params.stride,
        .swa_count = params.swa_count,
        .ld = params.ld,
        .batch = params.batch,
        .cols = params.cols,
        .page_size = params.page_size,
        .fill = params.fill,
        .pad_len = params.pad_len,
        .by_page = flw_divisor_of(params.page_size),
        .blocks_per_row = flw_table_blocks_per_row(&table),
        .lengths_is_i64 = params.lengths_dtype == FALLOW_I64,
        .requests_is_i64 = params.requests_dtype == FALLOW_I64,
        .is_bounded = params.bounded,
        .is_vector_table = flw_table_is_vector(params.page_table, params.ld),
        .is_vector_source = flw_table_is_vector(params.req_to_token, params.stride)};
    return flw_kernels_launch(kernels, FLW_KERNEL_page_table, flw_table_grid(&table), &args,
                              stream);
}
