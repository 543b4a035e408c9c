/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the public calls of silu_and_mul: checks, needs, the launch.
 * Does not: compute; silu_and_mul_twin.c is the definition, silu_and_mul.cu the kernel.
 */
#include "moe/silu_and_mul.h"

#include "common/library.h"
#include "common/quantise.h"
#include "common/refusal.h"
#include "fallow/moe.h"

/* Check shapes and types; replace zeros by defaults. */
static void check_shape(struct flw_refusal *refusal, fallow_silu_and_mul_params *params)
{
    flw_refusal_count(refusal, "rows", params->rows, 0, (int64_t)1 << 40);
    flw_refusal_count(refusal, "width", params->width, 1, 1 << 20);
    flw_refusal_count(refusal, "rounds_silu", params->rounds_silu, 0, 1);
    flw_refusal_dtype(refusal, "dtype", params->dtype, FLW_DTYPES_FLOATS);
    flw_refusal_out_dtype(refusal, &params->out_dtype, params->dtype);
    params->group_rows = params->group_rows == 0 ? params->rows : params->group_rows;
    params->in_stride = params->in_stride == 0 ? 2 * (int64_t)params->width : params->in_stride;
    params->out_stride = params->out_stride == 0 ? params->width : params->out_stride;
    flw_refusal_count(refusal, "in_stride", params->in_stride, 2 * (int64_t)params->width,
                      (int64_t)1 << 40);
    flw_refusal_count(refusal, "out_stride", params->out_stride, params->width, (int64_t)1 << 40);
    if (params->group_rows < 0 ||
        (params->rows > 0 && (params->group_rows == 0 || params->rows % params->group_rows != 0))) {
        flw_refusal_refuse(refusal, FALLOW_INVALID_ARGUMENT, "group_rows does not divide rows");
    }
    if (params->out_dtype == FALLOW_E4M3 && params->width % FLW_QUANTISE_GROUP != 0) {
        flw_refusal_refuse(
            refusal, FALLOW_INVALID_ARGUMENT,
            "width is not a multiple of %d, the number of elements that share a scale",
            (int)FLW_QUANTISE_GROUP);
    }
}

struct buffers {
    size_t in_each, out_each;
    uint64_t in_bytes, out_bytes, scale_bytes;
};

static struct buffers measure(struct flw_refusal *refusal, const fallow_silu_and_mul_params *params)
{
    struct buffers buffers = {.in_each = fallow_dtype_bytes(params->dtype),
                              .out_each = fallow_dtype_bytes(params->out_dtype)};
    buffers.in_bytes = flw_refusal_rows(refusal, "in", params->rows, params->in_stride,
                                        2 * (int64_t)params->width, buffers.in_each);
    buffers.out_bytes = flw_refusal_rows(refusal, "out", params->rows, params->out_stride,
                                         params->width, buffers.out_each);
    if (params->out_dtype == FALLOW_E4M3) {
        buffers.scale_bytes =
            (uint64_t)params->rows * (uint64_t)(params->width / FLW_QUANTISE_GROUP) * 4;
    }
    return buffers;
}

fallow_status fallow_moe_silu_and_mul_query(const fallow_silu_and_mul_params *caller,
                                            fallow_workspace_need *out_need)
{
    struct flw_refusal refusal;
    fallow_silu_and_mul_params params;
    fallow_workspace_need need = {.launch_count = 1};
    flw_refusal_begin_query(&refusal, "fallow_moe_silu_and_mul_query");
    flw_refusal_copy(&refusal, &params, sizeof params, caller);
    check_shape(&refusal, &params);
    struct buffers buffers = measure(&refusal, &params);
    if (refusal.status != FALLOW_OK) {
        return refusal.status;
    }
    uint64_t elements = (uint64_t)params.rows * (uint64_t)params.width;
    flw_need_add(&need, "out", buffers.out_bytes, 16, FALLOW_INIT_PREFIX);
    if (buffers.scale_bytes > 0) {
        flw_need_add(&need, "scales", buffers.scale_bytes, 4, FALLOW_INIT_PREFIX);
    }
    need.read_bytes = 2 * elements * buffers.in_each;
    need.write_bytes = elements * buffers.out_each + buffers.scale_bytes;
    return flw_refusal_give_need(&refusal, out_need, &need);
}

static bool is_vector_of(const fallow_silu_and_mul_params *params, const struct buffers *buffers)
{
    return flw_is_vector_row(params->in, params->in_stride, params->width, buffers->in_each) &&
           (params->out_dtype == FALLOW_E4M3
                ? flw_is_vector_row(params->out, params->out_stride, params->width, 1)
                : flw_is_vector_row(params->out, params->out_stride, params->width,
                                    buffers->out_each));
}

fallow_status fallow_moe_silu_and_mul(fallow_kernels *kernels,
                                      const fallow_silu_and_mul_params *caller,
                                      fallow_stream stream)
{
    struct flw_refusal refusal;
    fallow_silu_and_mul_params params;
    flw_refusal_begin(&refusal, kernels, "fallow_moe_silu_and_mul");
    flw_refusal_copy(&refusal, &params, sizeof params, caller);
    check_shape(&refusal, &params);
    struct buffers buffers = measure(&refusal, &params);
    if (refusal.status != FALLOW_OK) {
        return refusal.status;
    }
    bool may_alias = params.out_dtype == params.dtype && params.out_stride == params.in_stride;
    uint64_t count_bytes = params.row_counts == NULL || params.rows == 0
                               ? 0
                               : (uint64_t)(params.rows / params.group_rows) * 4;
    flw_refusal_input(&refusal, "in", params.in, buffers.in_bytes, buffers.in_each);
    flw_refusal_input(&refusal, "row_counts", params.row_counts, count_bytes, 4);
    flw_refusal_output_alias(&refusal, "out", params.out, buffers.out_bytes, buffers.out_each,
                             may_alias ? "in" : NULL);
    flw_refusal_output(&refusal, "scales", params.scales, buffers.scale_bytes, 4);
    bool is_vector = is_vector_of(&params, &buffers);
    if (params.out_dtype == FALLOW_E4M3 && !is_vector && params.rows > 0) {
        flw_refusal_refuse(&refusal, FALLOW_INVALID_ARGUMENT,
                           "in and out: quantised rows must begin at multiples of 16 bytes");
    }
    struct flw_row_grid rows =
        flw_grid_rows(params.rows, params.width, buffers.in_each, is_vector, FLW_SILU_THREADS);
    if (flw_refusal_status(&refusal) != FALLOW_OK) {
        return refusal.status;
    }
    struct flw_silu_and_mul_args args = {.in = params.in,
                                         .out = params.out,
                                         .scales = params.scales,
                                         .row_counts = params.row_counts,
                                         .rows = params.rows,
                                         .group_rows = params.group_rows,
                                         .in_stride = params.in_stride,
                                         .out_stride = params.out_stride,
                                         .blocks_per_row = rows.blocks_per_row,
                                         .width = params.width,
                                         .dtype = (int32_t)params.dtype,
                                         .is_vector = is_vector,
                                         .quantises = params.out_dtype == FALLOW_E4M3,
                                         .rounds_silu = params.rounds_silu};
    return flw_kernels_launch(kernels, FLW_KERNEL_silu_and_mul, rows.grid, &args, stream);
}
