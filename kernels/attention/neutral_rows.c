/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the public calls of neutral_rows: checks, needs, the launch.
 * Does not: compute; neutral_rows_twin.c is the definition, neutral_rows.cu the kernel.
 */
#include "attention/neutral_rows.h"

#include <math.h>

#include "common/library.h"
#include "common/refusal.h"
#include "fallow/attention.h"

#define TYPES (FLW_DTYPES_FLOATS | 1u << FALLOW_E4M3 | 1u << FALLOW_U8)

struct buffers {
    size_t each;
    uint64_t row_bytes, rows_bytes, lse_bytes, cu_bytes;
};

/* Check shapes and types; replace zeros by defaults. */
static struct buffers check_shape(struct flw_refusal *refusal, fallow_neutral_rows_params *params)
{
    int64_t inner = params->lse_by_token ? params->heads : params->tokens;
    int64_t outer = params->lse_by_token ? params->tokens : params->heads;
    bool has_rows = params->width != 0 || params->rows != NULL;
    if (!has_rows) {
        params->width = 1;
        params->dtype = FALLOW_U8;
    }
    params->stride = params->stride == 0 ? params->width : params->stride;
    params->lse_stride = params->lse_stride == 0 ? inner : params->lse_stride;
    flw_refusal_count(refusal, "tokens", params->tokens, 0, INT32_MAX - 8);
    flw_refusal_count(refusal, "heads", params->heads, 1, 65536);
    flw_refusal_count(refusal, "width", params->width, 1, 1 << 20);
    flw_refusal_count(refusal, "batch", params->batch, 0, 1 << 24);
    flw_refusal_count(refusal, "stride", params->stride, params->width, (int64_t)1 << 40);
    flw_refusal_count(refusal, "lse_stride", params->lse_stride, inner, (int64_t)1 << 40);
    flw_refusal_count(refusal, "lse_by_token", params->lse_by_token, 0, 1);
    flw_refusal_count(refusal, "lse_is_plus_inf", params->lse_is_plus_inf, 0, 1);
    flw_refusal_dtype(refusal, "dtype", params->dtype, TYPES);
    if (refusal->status != FALLOW_OK) {
        return (struct buffers){0};
    }
    size_t each = fallow_dtype_bytes(params->dtype);
    int64_t rows = flw_refusal_product(refusal, "tokens x heads", params->tokens, params->heads);
    return (struct buffers){
        .each = each,
        .row_bytes = has_rows ? (uint64_t)params->width * each : 0,
        .rows_bytes =
            has_rows ? flw_refusal_rows(refusal, "rows", rows, params->stride, params->width, each)
                     : 0,
        .lse_bytes = params->tokens == 0
                         ? 0
                         : flw_refusal_rows(refusal, "lse", outer, params->lse_stride, inner, 4),
        .cu_bytes = ((uint64_t)params->batch + 1) * 4};
}

fallow_status fallow_attention_neutral_rows_query(const fallow_neutral_rows_params *caller,
                                                  fallow_workspace_need *out_need)
{
    struct flw_refusal refusal;
    fallow_neutral_rows_params params;
    fallow_workspace_need need = {.launch_count = 1};
    flw_refusal_begin_query(&refusal, "fallow_attention_neutral_rows_query");
    flw_refusal_copy(&refusal, &params, sizeof params, caller);
    struct buffers buffers = check_shape(&refusal, &params);
    if (refusal.status != FALLOW_OK) {
        return refusal.status;
    }
    uint64_t rows = (uint64_t)params.tokens * (uint64_t)params.heads;
    flw_need_add(&need, "rows", buffers.rows_bytes, 16, FALLOW_INIT_NEUTRAL_TAIL);
    flw_need_add(&need, "lse", buffers.lse_bytes, 4, FALLOW_INIT_NEUTRAL_TAIL);
    need.read_bytes = buffers.cu_bytes + (uint64_t)params.batch * 4;
    need.write_bytes = rows * (buffers.row_bytes + 4);
    return flw_refusal_give_need(&refusal, out_need, &need);
}

static void check_buffers(struct flw_refusal *refusal, const fallow_neutral_rows_params *params,
                          const struct buffers *buffers)
{
    uint64_t cu_bytes = params->tokens == 0 ? 0 : buffers->cu_bytes;
    if (params->rows == NULL && params->lse == NULL && params->tokens > 0) {
        flw_refusal_refuse(refusal, FALLOW_INVALID_ARGUMENT, "rows and lse are both NULL");
    }
    if (params->key_counts != NULL && params->cu_k != NULL) {
        flw_refusal_refuse(refusal, FALLOW_INVALID_ARGUMENT, "key_counts and cu_k are both given");
    }
    flw_refusal_input(refusal, "cu_q", params->cu_q, cu_bytes, 4);
    flw_refusal_optional_input(refusal, "key_counts", params->key_counts,
                               (uint64_t)params->batch * 4, 4);
    flw_refusal_optional_input(refusal, "cu_k", params->cu_k, cu_bytes, 4);
    flw_refusal_optional_input(refusal, "valid_count", params->valid_count, 4, 4);
    flw_refusal_optional_output(refusal, "rows", params->rows, buffers->rows_bytes, buffers->each);
    flw_refusal_optional_output(refusal, "lse", params->lse, buffers->lse_bytes, 4);
}

/* Describe the rows of a token as segments of units: one segment if the heads are adjacent. */
static void shape_segments(struct flw_neutral_rows_args *args,
                           const fallow_neutral_rows_params *params, size_t each)
{
    bool is_dense = params->stride == params->width;
    int64_t width = is_dense ? (int64_t)params->heads * params->width : params->width;
    int64_t stride = is_dense ? width : params->stride;
    bool is_vector = flw_is_vector_row(params->rows, stride, width, each);
    /* NOLINTNEXTLINE(clang-analyzer-core*): a dtype without a size was refused */
    int64_t per_unit = is_vector ? 16 / (int64_t)each : 1;
    args->unit_bytes = is_vector ? 16 : (uint32_t)each;
    args->segments = is_dense ? 1 : params->heads;
    args->segment_units = width / per_unit;
    args->segment_stride = stride / per_unit;
    args->threads_per_segment = is_dense ? FLW_NEUTRAL_THREADS : 32;
}

fallow_status fallow_attention_neutral_rows(fallow_kernels *kernels,
                                            const fallow_neutral_rows_params *caller,
                                            fallow_stream stream)
{
    struct flw_refusal refusal;
    fallow_neutral_rows_params params;
    flw_refusal_begin(&refusal, kernels, "fallow_attention_neutral_rows");
    flw_refusal_copy(&refusal, &params, sizeof params, caller);
    struct buffers buffers = check_shape(&refusal, &params);
    if (refusal.status != FALLOW_OK) {
        return refusal.status;
    }
    check_buffers(&refusal, &params, &buffers);
    if (flw_refusal_status(&refusal) != FALLOW_OK) {
        return refusal.status;
    }
    struct flw_neutral_rows_args args = {.rows = params.rows,
                                         .lse = params.lse,
                                         .cu_q = params.cu_q,
                                         .key_counts = params.key_counts,
                                         .cu_k = params.cu_k,
                                         .valid_count = params.valid_count,
                                         .lse_stride = params.lse_stride,
                                         .tokens = (int32_t)params.tokens,
                                         .heads = params.heads,
                                         .batch = params.batch,
                                         .lse_by_token = params.lse_by_token,
                                         .lse_value =
                                             params.lse_is_plus_inf ? INFINITY : -INFINITY};
    shape_segments(&args, &params, buffers.each);
    struct flw_grid grid = {.blocks_x = flw_grid_blocks(params.tokens, FLW_NEUTRAL_TOKENS),
                            .threads = FLW_NEUTRAL_THREADS};
    return flw_kernels_launch(kernels, FLW_KERNEL_neutral_rows, grid, &args, stream);
}
