/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the public calls of combine: checks, needs, the launch.
 * Does not: compute; combine_twin.c is the definition, combine.cu the kernel.
 */
#include "moe/combine.h"

#include "common/library.h"
#include "common/refusal.h"
#include "fallow/moe.h"

struct buffers {
    size_t each;
    uint64_t rows_bytes, out_bytes, choice_bytes; /* choice_bytes: of weights, and of positions */
};

/* Check shapes and types; replace zeros by defaults. */
static struct buffers check_shape(struct flw_refusal *refusal, fallow_combine_params *params)
{
    params->rows_stride = params->rows_stride == 0 ? params->width : params->rows_stride;
    params->out_stride = params->out_stride == 0 ? params->width : params->out_stride;
    params->scale = params->scale == 0.0f ? 1.0f : params->scale;
    flw_refusal_count(refusal, "tokens", params->tokens, 0, INT32_MAX);
    flw_refusal_count(refusal, "row_count", params->row_count, 0, INT32_MAX);
    flw_refusal_count(refusal, "width", params->width, 1, 1 << 20);
    flw_refusal_count(refusal, "top_k", params->top_k, 1, 64);
    flw_refusal_count(refusal, "rounds_each", params->rounds_each, 0, 1);
    flw_refusal_count(refusal, "rows_stride", params->rows_stride, params->width, (int64_t)1 << 40);
    flw_refusal_count(refusal, "out_stride", params->out_stride, params->width, (int64_t)1 << 40);
    flw_refusal_dtype(refusal, "dtype", params->dtype, FLW_DTYPES_FLOATS);
    size_t each = fallow_dtype_bytes(params->dtype);
    return (struct buffers){
        .each = each,
        .rows_bytes = flw_refusal_rows(refusal, "rows", params->row_count, params->rows_stride,
                                       params->width, each),
        .out_bytes = flw_refusal_rows(refusal, "out", params->tokens, params->out_stride,
                                      params->width, each),
        .choice_bytes = (uint64_t)flw_refusal_product(refusal, "tokens x top_k", params->tokens,
                                                      (int64_t)params->top_k * 4)};
}

fallow_status fallow_moe_combine_query(const fallow_combine_params *caller,
                                       fallow_workspace_need *out_need)
{
    struct flw_refusal refusal;
    fallow_combine_params params;
    fallow_workspace_need need = {.launch_count = 1};
    flw_refusal_begin_query(&refusal, "fallow_moe_combine_query");
    flw_refusal_copy(&refusal, &params, sizeof params, caller);
    struct buffers buffers = check_shape(&refusal, &params);
    if (refusal.status != FALLOW_OK) {
        return refusal.status;
    }
    uint64_t row_bytes = (uint64_t)params.width * buffers.each, tokens = (uint64_t)params.tokens;
    flw_need_add(&need, "out", buffers.out_bytes, 16, FALLOW_INIT_DIRTY);
    need.read_bytes = tokens * (uint64_t)params.top_k * row_bytes + 2 * buffers.choice_bytes;
    need.write_bytes = tokens * row_bytes;
    return flw_refusal_give_need(&refusal, out_need, &need);
}

fallow_status fallow_moe_combine(fallow_kernels *kernels, const fallow_combine_params *caller,
                                 fallow_stream stream)
{
    struct flw_refusal refusal;
    fallow_combine_params params;
    flw_refusal_begin(&refusal, kernels, "fallow_moe_combine");
    flw_refusal_copy(&refusal, &params, sizeof params, caller);
    struct buffers buffers = check_shape(&refusal, &params);
    if (refusal.status != FALLOW_OK) {
        return refusal.status;
    }
    flw_refusal_input(&refusal, "rows", params.rows, buffers.rows_bytes, buffers.each);
    flw_refusal_optional_input(&refusal, "weights", params.weights, buffers.choice_bytes, 4);
    flw_refusal_optional_input(&refusal, "positions", params.positions, buffers.choice_bytes, 4);
    if (params.positions == NULL) {
        flw_refusal_count(&refusal, "tokens x top_k, without positions",
                          params.tokens * params.top_k, 0, params.row_count);
    }
    flw_refusal_output(&refusal, "out", params.out, buffers.out_bytes, buffers.each);
    flw_refusal_optional_output(&refusal, "flags", params.flags, 4, 4);
    if (flw_refusal_status(&refusal) != FALLOW_OK) {
        return refusal.status;
    }
    bool is_vector =
        flw_is_vector_row(params.rows, params.rows_stride, params.width, buffers.each) &&
        flw_is_vector_row(params.out, params.out_stride, params.width, buffers.each);
    struct flw_row_grid rows =
        flw_grid_rows(params.tokens, params.width, buffers.each, is_vector, FLW_COMBINE_THREADS);
    struct flw_combine_args args = {.rows = params.rows,
                                    .weights = params.weights,
                                    .positions = params.positions,
                                    .out = params.out,
                                    .flags = params.flags,
                                    .tokens = params.tokens,
                                    .row_count = params.row_count,
                                    .rows_stride = params.rows_stride,
                                    .out_stride = params.out_stride,
                                    .blocks_per_row = rows.blocks_per_row,
                                    .width = params.width,
                                    .top_k = params.top_k,
                                    .scale = params.scale,
                                    .dtype = (int32_t)params.dtype,
                                    .is_vector = is_vector,
                                    .rounds_each = params.rounds_each};
    return flw_kernels_launch(kernels, FLW_KERNEL_combine, rows.grid, &args, stream);
}
