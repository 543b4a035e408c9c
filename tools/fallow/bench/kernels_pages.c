/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the cases of the modules that make tables of pages and lists of token slots.
 */
#include "bench/kernels.h"

#include "fallow/attention.h"

static const int64_t one[] = {1};

FLW_KERNEL_ADAPT(attention, page_table)

/* A decode step whose requests have all reached `context`, so that what the query says is moved. */
static void make_page_table(struct flw_kernel_call *call)
{
    fallow_page_table_params *params = flw_kernel_params(call, sizeof *params);
    params->batch = (int32_t)flw_kernel_size(call, "batch", 16);
    params->page_size = (int32_t)flw_kernel_size(call, "page_size", 64);
    params->stride = flw_kernel_size(call, "context", 2048);
    params->cols = (int32_t)(params->stride / params->page_size);
    params->request_rows = params->batch;
    params->lengths_dtype = FALLOW_I32;
    params->requests_dtype = FALLOW_I32;
    params->lengths = flw_kernel_integers(call, params->batch, flw_kernel_same, &params->stride);
    params->requests = flw_kernel_integers(call, params->batch, flw_kernel_multiples, one);
    params->req_to_token =
        flw_kernel_integers(call, params->batch * params->stride, flw_kernel_multiples, one);
    params->page_table = flw_kernel_output(call, (int64_t)params->batch * params->cols * 4);
    params->cache_seqlens = flw_kernel_output(call, params->batch * 4);
    params->cu_k = flw_kernel_output(call, (params->batch + 1) * 4);
    params->max_length = flw_kernel_output(call, 4);
}

FLW_KERNEL_ADAPT(attention, concat_pages)

/* Sliding windows while verifying: the prefix's table, then the draft's pages, for each draft token. */
static void make_concat_pages(struct flw_kernel_call *call)
{
    fallow_concat_pages_params *params = flw_kernel_params(call, sizeof *params);
    params->batch = (int32_t)flw_kernel_size(call, "batch", 16);
    params->repeat = (int32_t)flw_kernel_size(call, "draft_tokens", 4);
    params->first_cols = (int32_t)flw_kernel_size(call, "prefix_pages", 64);
    params->second_cols = params->repeat;
    params->cols = params->first_cols + params->second_cols;
    params->second_dtype = FALLOW_I32;
    int64_t batch = params->batch, rows = batch * params->repeat;
    int64_t first_cols = params->first_cols, second_cols = params->second_cols;
    params->first = flw_kernel_integers(call, batch * first_cols, flw_kernel_multiples, one);
    params->first_lengths = flw_kernel_integers(call, batch, flw_kernel_same, &first_cols);
    params->second = flw_kernel_integers(call, rows * second_cols, flw_kernel_multiples, one);
    params->second_lengths = flw_kernel_integers(call, rows, flw_kernel_same, &second_cols);
    params->page_table = flw_kernel_output(call, rows * params->cols * 4);
    params->cache_seqlens = flw_kernel_output(call, rows * 4);
    params->cu_k = flw_kernel_output(call, (rows + 1) * 4);
    params->max_length = flw_kernel_output(call, 4);
}

FLW_KERNEL_ADAPT(attention, verify_pages)

static void make_verify_pages(struct flw_kernel_call *call)
{
    fallow_verify_pages_params *params = flw_kernel_params(call, sizeof *params);
    params->batch = (int32_t)flw_kernel_size(call, "batch", 16);
    params->draft_tokens = (int32_t)flw_kernel_size(call, "draft_tokens", 8);
    params->stride = flw_kernel_size(call, "context", 256);
    params->request_rows = params->batch;
    params->lengths_dtype = FALLOW_I32;
    params->requests_dtype = FALLOW_I32;
    int64_t drafts = params->draft_tokens, rows = params->batch * drafts;
    const int64_t length = params->stride - drafts;
    params->lengths = flw_kernel_integers(call, params->batch, flw_kernel_same, &length);
    params->requests = flw_kernel_integers(call, params->batch, flw_kernel_multiples, one);
    params->req_to_token =
        flw_kernel_integers(call, params->batch * params->stride, flw_kernel_multiples, one);
    params->mask = flw_kernel_filled(call, rows * drafts, 0x01000101u);
    params->page_table = flw_kernel_output(call, rows * drafts * 4);
    params->cache_seqlens = flw_kernel_output(call, rows * 4);
    params->cu_k = flw_kernel_output(call, (rows + 1) * 4);
    params->max_length = flw_kernel_output(call, 4);
}

FLW_KERNEL_ADAPT(attention, local_attention)

/* A decode step: one query a request, whose last chunk is attended. */
static void make_local_attention(struct flw_kernel_call *call)
{
    fallow_local_attention_params *params = flw_kernel_params(call, sizeof *params);
    params->batch = (int32_t)flw_kernel_size(call, "batch", 16);
    int64_t context = flw_kernel_size(call, "context", 1024);
    params->chunk = (int32_t)flw_kernel_size(call, "chunk", 256);
    params->page_size = (int32_t)flw_kernel_size(call, "page_size", 16);
    params->capacity = params->batch;
    params->table_columns = (int32_t)(context / params->page_size);
    int64_t batch = params->batch, pages = params->chunk / params->page_size;
    params->cu_seqlens_q = flw_kernel_integers(call, batch + 1, flw_kernel_multiples, one);
    params->lengths = flw_kernel_integers(call, batch, flw_kernel_same, &context);
    params->block_table =
        flw_kernel_integers(call, batch * params->table_columns, flw_kernel_multiples, one);
    params->cu_q_local = flw_kernel_output(call, (batch + 1) * 4);
    params->seqused_k = flw_kernel_output(call, batch * 4);
    params->local_table = flw_kernel_output(call, batch * pages * 4);
    params->virtual_count = flw_kernel_output(call, 4);
}

FLW_KERNEL_ADAPT(attention, kv_indices)

static void make_kv_indices(struct flw_kernel_call *call)
{
    fallow_kv_indices_params *params = flw_kernel_params(call, sizeof *params);
    params->batch = (int32_t)flw_kernel_size(call, "batch", 16);
    params->stride = flw_kernel_size(call, "context", 256);
    params->request_rows = params->batch;
    params->capacity = params->batch * params->stride;
    params->requests_dtype = FALLOW_I32;
    params->cu_seqlens =
        flw_kernel_integers(call, params->batch + 1, flw_kernel_multiples, &params->stride);
    params->requests = flw_kernel_integers(call, params->batch, flw_kernel_multiples, one);
    params->req_to_token = flw_kernel_integers(call, params->capacity, flw_kernel_multiples, one);
    params->kv_indices = flw_kernel_output(call, params->capacity * 4);
}

const struct flw_kernel_case flw_kernel_cases_pages[] = {
    {FLW_KERNEL_ROW(page_table, "decode"), .sizes = {64, 64, 8192}, FLW_KERNEL_QUICK,
     FLW_KERNEL_ONCE},
    {FLW_KERNEL_ROW(page_table, "long, pages of 64"), .sizes = {512, 64, 131072}, FLW_KERNEL_ONCE},
    {FLW_KERNEL_ROW(page_table, "long, pages of 1"), .sizes = {512, 1, 131072}, FLW_KERNEL_ONCE},
    {FLW_KERNEL_ROW(concat_pages, "verify"), .sizes = {64, 8, 512}, FLW_KERNEL_QUICK,
     FLW_KERNEL_ONCE},
    {FLW_KERNEL_ROW(verify_pages, "tree of 32"), .sizes = {64, 32, 8192}, FLW_KERNEL_QUICK,
     FLW_KERNEL_ONCE},
    {FLW_KERNEL_ROW(local_attention, "decode"), .sizes = {512, 32768, 8192, 16}, FLW_KERNEL_QUICK,
     FLW_KERNEL_ONCE},
    {FLW_KERNEL_ROW(kv_indices, "131,072 tokens"), .sizes = {512, 256}, FLW_KERNEL_QUICK},
    {.module = NULL},
};
