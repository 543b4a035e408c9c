/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the public calls of permute: checks, needs, the launch.
 * Does not: compute; permute_twin.c is the definition, permute.cu the kernel.
 */
#include "moe/permute.h"

#include "common/library.h"
#include "common/quantise.h"
#include "common/refusal.h"
#include "fallow/moe.h"
#include "moe/expert_ids.h"

#define BYTES (1u << FALLOW_E4M3 | 1u << FALLOW_U8)

struct buffers {
    size_t in_each, out_each;
    uint64_t in_bytes, out_bytes, scale_bytes, position_bytes;
    bool quantises, zeroes;
};

static void check_types(struct flw_refusal *refusal, fallow_permute_params *params)
{
    flw_refusal_dtype(refusal, "dtype", params->dtype, FLW_DTYPES_FLOATS | BYTES);
    flw_refusal_out_dtype(refusal, &params->out_dtype, params->dtype);
    flw_refusal_count(refusal, "pad", params->pad, FALLOW_PERMUTE_PAD_DEFAULT,
                      FALLOW_PERMUTE_PAD_ZERO);
    if (params->out_dtype != params->dtype && params->width % FLW_QUANTISE_GROUP != 0) {
        flw_refusal_refuse(
            refusal, FALLOW_INVALID_ARGUMENT,
            "width is not a multiple of %d, the number of elements that share a scale",
            (int)FLW_QUANTISE_GROUP);
    }
}

/* Check shapes and types; replace zeros by defaults. */
static struct buffers check_shape(struct flw_refusal *refusal, fallow_permute_params *params)
{
    struct buffers buffers = {0};
    params->in_stride = params->in_stride == 0 ? params->width : params->in_stride;
    params->out_stride = params->out_stride == 0 ? params->width : params->out_stride;
    flw_refusal_count(refusal, "tokens", params->tokens, 0, INT32_MAX);
    flw_refusal_count(refusal, "row_count", params->row_count, 0, INT32_MAX);
    flw_refusal_count(refusal, "width", params->width, 1, 1 << 20);
    flw_refusal_count(refusal, "top_k", params->top_k, 1, 64);
    flw_refusal_count(refusal, "in_stride", params->in_stride, params->width, (int64_t)1 << 40);
    flw_refusal_count(refusal, "out_stride", params->out_stride, params->width, (int64_t)1 << 40);
    if (refusal->status == FALLOW_OK) {
        check_types(refusal, params);
    }
    if (refusal->status != FALLOW_OK) {
        return buffers;
    }
    buffers.quantises = params->out_dtype != params->dtype;
    buffers.zeroes = params->pad == FALLOW_PERMUTE_PAD_ZERO ||
                     (params->pad == FALLOW_PERMUTE_PAD_DEFAULT && buffers.quantises);
    flw_refusal_count(refusal, "experts", params->experts, buffers.zeroes, FLW_EXPERT_MOST);
    buffers.in_each = fallow_dtype_bytes(params->dtype);
    buffers.out_each = fallow_dtype_bytes(params->out_dtype);
    buffers.in_bytes = flw_refusal_rows(refusal, "in", params->tokens, params->in_stride,
                                        params->width, buffers.in_each);
    buffers.out_bytes = flw_refusal_rows(refusal, "out", params->row_count, params->out_stride,
                                         params->width, buffers.out_each);
    buffers.position_bytes = (uint64_t)params->tokens * (uint64_t)params->top_k * 4;
    if (buffers.quantises) {
        buffers.scale_bytes =
            (uint64_t)params->row_count * (uint64_t)(params->width / FLW_QUANTISE_GROUP) * 4;
    }
    return buffers;
}

fallow_status fallow_moe_permute_query(const fallow_permute_params *caller,
                                       fallow_workspace_need *out_need)
{
    struct flw_refusal refusal;
    fallow_permute_params params;
    fallow_workspace_need need = {.launch_count = 1};
    flw_refusal_begin_query(&refusal, "fallow_moe_permute_query");
    flw_refusal_copy(&refusal, &params, sizeof params, caller);
    struct buffers buffers = check_shape(&refusal, &params);
    if (refusal.status != FALLOW_OK) {
        return refusal.status;
    }
    uint64_t width = (uint64_t)params.width, rows = (uint64_t)params.row_count;
    uint64_t chosen = (uint64_t)params.tokens * (uint64_t)params.top_k;
    uint64_t written = buffers.zeroes || rows < chosen ? rows : chosen;
    uint64_t row_scales = buffers.quantises ? width / FLW_QUANTISE_GROUP * 4 : 0;
    flw_need_add(&need, "out", buffers.out_bytes, 16, FALLOW_INIT_PREFIX);
    if (buffers.quantises) {
        flw_need_add(&need, "scales", buffers.scale_bytes, 4, FALLOW_INIT_NEUTRAL_TAIL);
    }
    need.read_bytes = (uint64_t)params.tokens * width * buffers.in_each + buffers.position_bytes +
                      (buffers.zeroes ? ((uint64_t)params.experts * 2 + 1) * 4 : 0);
    need.write_bytes = written * (width * buffers.out_each + row_scales);
    return flw_refusal_give_need(&refusal, out_need, &need);
}

static void check_buffers(struct flw_refusal *refusal, const fallow_permute_params *params,
                          const struct buffers *buffers)
{
    uint64_t experts = buffers->zeroes ? (uint64_t)params->experts : 0;
    flw_refusal_input(refusal, "in", params->in, buffers->in_bytes, buffers->in_each);
    flw_refusal_input(refusal, "positions", params->positions, buffers->position_bytes, 4);
    flw_refusal_input(refusal, "offsets", params->offsets, experts == 0 ? 0 : experts * 4 + 4, 4);
    flw_refusal_input(refusal, "counts", params->counts, experts * 4, 4);
    flw_refusal_output(refusal, "out", params->out, buffers->out_bytes, buffers->out_each);
    flw_refusal_output(refusal, "scales", params->scales, buffers->scale_bytes, 4);
    flw_refusal_optional_output(refusal, "flags", params->flags, 4, 4);
}

fallow_status fallow_moe_permute(fallow_kernels *kernels, const fallow_permute_params *caller,
                                 fallow_stream stream)
{
    struct flw_refusal refusal;
    fallow_permute_params params;
    flw_refusal_begin(&refusal, kernels, "fallow_moe_permute");
    flw_refusal_copy(&refusal, &params, sizeof params, caller);
    struct buffers buffers = check_shape(&refusal, &params);
    if (refusal.status != FALLOW_OK) {
        return refusal.status;
    }
    check_buffers(&refusal, &params, &buffers);
    bool is_vector =
        flw_is_vector_row(params.in, params.in_stride, params.width, buffers.in_each) &&
        flw_is_vector_row(params.out, params.out_stride, params.width, buffers.out_each);
    if (buffers.quantises && !is_vector) {
        flw_refusal_refuse(&refusal, FALLOW_INVALID_ARGUMENT,
                           "in and out: quantised rows must begin at multiples of 16 bytes");
    }
    if (flw_refusal_status(&refusal) != FALLOW_OK) {
        return refusal.status;
    }
    int32_t padded = buffers.zeroes && params.row_count > 0 ? params.experts : 0;
    struct flw_row_grid rows =
        flw_grid_rows(params.tokens + (int64_t)padded * FLW_PERMUTE_PADDERS, params.width,
                      buffers.in_each, is_vector, FLW_PERMUTE_THREADS);
    struct flw_permute_args args = {.in = params.in,
                                    .positions = params.positions,
                                    .offsets = params.offsets,
                                    .counts = params.counts,
                                    .out = params.out,
                                    .scales = params.scales,
                                    .flags = params.flags,
                                    .tokens = params.tokens,
                                    .row_count = params.row_count,
                                    .in_stride = params.in_stride,
                                    .out_stride = params.out_stride,
                                    .blocks_per_row = rows.blocks_per_row,
                                    .width = params.width,
                                    .top_k = params.top_k,
                                    .experts = padded,
                                    .dtype = (int32_t)params.dtype,
                                    .is_vector = is_vector,
                                    .quantises = buffers.quantises};
    return flw_kernels_launch(kernels, FLW_KERNEL_permute, rows.grid, &args, stream);
}
