/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the public calls of concat_pages: checks, needs, the launch.
 * Does not: compute; concat_pages_twin.c is the definition, concat_pages.cu the kernel.
 */
#include "attention/concat_pages.h"

#include "common/table_call.h"
#include "fallow/attention.h"

#define MOST_ROWS (1 << 20)

/* Shapes and types; repeat and the row strides get their defaults. */
static struct flw_table check_shape(struct flw_refusal *refusal, fallow_concat_pages_params *params)
{
    params->repeat = params->repeat == 0 ? 1 : params->repeat;
    params->first_ld = params->first_ld == 0 ? params->first_cols : params->first_ld;
    params->second_ld = params->second_ld == 0 ? params->second_cols : params->second_ld;
    flw_refusal_count(refusal, "batch", params->batch, 0, 65536);
    flw_refusal_count(refusal, "repeat", params->repeat, 1, MOST_ROWS);
    flw_refusal_count(refusal, "batch x repeat", (int64_t)params->batch * params->repeat, 0,
                      MOST_ROWS);
    flw_refusal_count(refusal, "first_cols", params->first_cols, 0, 1 << 30);
    flw_refusal_count(refusal, "second_cols", params->second_cols, 0, 1 << 30);
    flw_refusal_count(refusal, "first_ld", params->first_ld, params->first_cols, INT64_MAX);
    flw_refusal_count(refusal, "second_ld", params->second_ld, params->second_cols, INT64_MAX);
    flw_refusal_dtype(refusal, "second_dtype", params->second_dtype, FLW_DTYPES_INTEGERS);
    struct flw_table table = {.rows = (int64_t)params->batch * params->repeat,
                              .cols = params->cols,
                              .ld = params->ld,
                              .pad_len = params->pad_len,
                              .bounded = params->bounded};
    flw_table_check(refusal, &table);
    params->ld = table.ld;
    return table;
}

fallow_status fallow_attention_concat_pages_query(const fallow_concat_pages_params *caller,
                                                  fallow_workspace_need *out_need)
{
    struct flw_refusal refusal;
    fallow_concat_pages_params params;
    fallow_workspace_need need = {.launch_count = 1};
    flw_refusal_begin_query(&refusal, "fallow_attention_concat_pages_query");
    flw_refusal_copy(&refusal, &params, sizeof params, caller);
    struct flw_table table = check_shape(&refusal, &params);
    if (refusal.status != FALLOW_OK) {
        return refusal.status;
    }
    uint64_t batch = (uint64_t)params.batch, rows = (uint64_t)table.rows;
    flw_table_need(&need, &table);
    need.read_bytes =
        batch * (uint64_t)params.first_cols * 4 + (params.first_cols > 0 ? batch * 4 : 0) +
        rows * ((uint64_t)params.second_cols * fallow_dtype_bytes(params.second_dtype) + 4);
    return flw_refusal_give_need(&refusal, out_need, &need);
}

static void check_inputs(struct flw_refusal *refusal, const fallow_concat_pages_params *params,
                         int64_t rows)
{
    size_t each = fallow_dtype_bytes(params->second_dtype);
    uint64_t first_bytes = params->first_cols == 0
                               ? 0
                               : flw_refusal_rows(refusal, "first", params->batch, params->first_ld,
                                                  params->first_cols, 4);
    uint64_t second_bytes = params->second_cols == 0
                                ? 0
                                : flw_refusal_rows(refusal, "second", rows, params->second_ld,
                                                   params->second_cols, each);
    flw_refusal_input(refusal, "first", params->first, first_bytes, 4);
    flw_refusal_input(refusal, "first_lengths", params->first_lengths,
                      params->first_cols > 0 ? (uint64_t)params->batch * 4 : 0, 4);
    flw_refusal_input(refusal, "second", params->second, second_bytes, each);
    flw_refusal_optional_input(refusal, "second_lengths", params->second_lengths,
                               (uint64_t)rows * 4, 4);
    flw_refusal_optional_input(refusal, "valid_count", params->valid_count, 4, 4);
}

fallow_status fallow_attention_concat_pages(fallow_kernels *kernels,
                                            const fallow_concat_pages_params *caller,
                                            fallow_stream stream)
{
    struct flw_refusal refusal;
    fallow_concat_pages_params params;
    flw_refusal_begin(&refusal, kernels, "fallow_attention_concat_pages");
    flw_refusal_copy(&refusal, &params, sizeof params, caller);
    struct flw_table table = check_shape(&refusal, &params);
    if (refusal.status != FALLOW_OK) {
        return refusal.status;
    }
    struct flw_table_lengths out = {.lengths = params.cache_seqlens,
                                    .cu = params.cu_k,
                                    .max_length = params.max_length,
                                    .flags = params.flags};
    check_inputs(&refusal, &params, table.rows);
    flw_table_check_outputs(&refusal, &table, params.page_table, &out);
    if (flw_refusal_status(&refusal) != FALLOW_OK) {
        return refusal.status;
    }
    struct flw_concat_pages_args args = {
        .first = params.first_cols > 0 ? params.first : NULL,
        .first_lengths = params.first_lengths,
        .second = params.second,
        .second_lengths = params.second_lengths,
        .valid_count = params.valid_count,
        .page_table = params.page_table,
        .out = out,
        .first_ld = params.first_ld,
        .second_ld = params.second_ld,
        .ld = params.ld,
        .batch = params.batch,
        .repeat = params.repeat,
        .first_cols = params.first_cols,
        .second_cols = params.second_cols,
        .cols = params.cols,
        .fill = params.fill,
        .pad_len = params.pad_len,
        .blocks_per_row = flw_table_blocks_per_row(&table),
        .second_is_i64 = params.second_dtype == FALLOW_I64,
        .is_bounded = params.bounded,
        .is_vector_table = flw_table_is_vector(params.page_table, params.ld),
        .is_vector_first = flw_table_is_vector(params.first, params.first_ld)};
    return flw_kernels_launch(kernels, FLW_KERNEL_concat_pages, flw_table_grid(&table), &args,
                              stream);
}
