/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the public calls of merge_states: checks, needs, the launch.
 * Does not: compute; merge_states_twin.c is the definition, merge_states.cu the kernel.
 */
#include "attention/merge_states.h"

#include "common/library.h"
#include "common/refusal.h"
#include "fallow/attention.h"

struct buffers {
    size_t each, out_each;
    uint64_t a_bytes, b_bytes, out_bytes, a_lse_bytes, b_lse_bytes, out_lse_bytes;
    uint64_t rows;
};

static uint64_t measure_lse(struct flw_refusal *refusal, const char *name,
                            const fallow_merge_states_params *params, int64_t *stride)
{
    int64_t inner = params->lse_by_token ? params->heads : params->tokens;
    int64_t outer = params->lse_by_token ? params->tokens : params->heads;
    *stride = *stride == 0 ? inner : *stride;
    flw_refusal_count(refusal, name, *stride, inner, (int64_t)1 << 40);
    return inner == 0 ? 0 : flw_refusal_rows(refusal, name, outer, *stride, inner, 4);
}

static uint64_t measure_rows(struct flw_refusal *refusal, const char *name, uint64_t rows,
                             int64_t *stride, int64_t width, size_t each)
{
    *stride = *stride == 0 ? width : *stride;
    flw_refusal_count(refusal, name, *stride, width, (int64_t)1 << 40);
    return flw_refusal_rows(refusal, name, (int64_t)rows, *stride, width, each);
}

/* Check shapes and types; replace zeros by defaults. */
static struct buffers check_shape(struct flw_refusal *refusal, fallow_merge_states_params *params)
{
    struct buffers buffers = {.each = fallow_dtype_bytes(params->dtype)};
    flw_refusal_count(refusal, "tokens", params->tokens, 0, INT32_MAX);
    flw_refusal_count(refusal, "heads", params->heads, 1, 65536);
    flw_refusal_count(refusal, "width", params->width, 1, 1 << 20);
    flw_refusal_count(refusal, "lse_by_token", params->lse_by_token, 0, 1);
    flw_refusal_count(refusal, "is_base_2", params->is_base_2, 0, 1);
    flw_refusal_count(refusal, "keeps_a", params->keeps_a, 0, 1);
    flw_refusal_dtype(refusal, "dtype", params->dtype, FLW_DTYPES_FLOATS);
    if (refusal->status != FALLOW_OK) {
        return buffers;
    }
    flw_refusal_out_dtype(refusal, &params->out_dtype, params->dtype);
    buffers.out_each = fallow_dtype_bytes(params->out_dtype);
    buffers.rows = (uint64_t)params->tokens * (uint64_t)params->heads;
    flw_refusal_count(refusal, "tokens x heads", (int64_t)buffers.rows, 0, INT32_MAX);
    buffers.a_bytes = measure_rows(refusal, "a_stride", buffers.rows, &params->a_stride,
                                   params->width, buffers.each);
    buffers.b_bytes = measure_rows(refusal, "b_stride", buffers.rows, &params->b_stride,
                                   params->width, buffers.each);
    buffers.out_bytes = measure_rows(refusal, "out_stride", buffers.rows, &params->out_stride,
                                     params->width, buffers.out_each);
    buffers.a_lse_bytes = measure_lse(refusal, "a_lse_stride", params, &params->a_lse_stride);
    buffers.b_lse_bytes = measure_lse(refusal, "b_lse_stride", params, &params->b_lse_stride);
    buffers.out_lse_bytes = measure_lse(refusal, "out_lse_stride", params, &params->out_lse_stride);
    return buffers;
}

fallow_status fallow_attention_merge_states_query(const fallow_merge_states_params *caller,
                                                  fallow_workspace_need *out_need)
{
    struct flw_refusal refusal;
    fallow_merge_states_params params;
    fallow_workspace_need need = {.launch_count = 1};
    flw_refusal_begin_query(&refusal, "fallow_attention_merge_states_query");
    flw_refusal_copy(&refusal, &params, sizeof params, caller);
    struct buffers buffers = check_shape(&refusal, &params);
    if (refusal.status != FALLOW_OK) {
        return refusal.status;
    }
    uint64_t elements = buffers.rows * (uint64_t)params.width;
    flw_need_add(&need, "out", buffers.out_bytes, 16, FALLOW_INIT_DIRTY);
    flw_need_add(&need, "out_lse", buffers.out_lse_bytes, 4, FALLOW_INIT_DIRTY);
    need.read_bytes = 2 * elements * buffers.each + 2 * buffers.rows * 4;
    need.write_bytes = elements * buffers.out_each + buffers.rows * 4;
    return flw_refusal_give_need(&refusal, out_need, &need);
}

/* out may be a or b if the row strides are equal; likewise the LSE. */
static void check_buffers(struct flw_refusal *refusal, const fallow_merge_states_params *params,
                          const struct buffers *buffers)
{
    bool is_same_type = params->out_dtype == params->dtype;
    const char *alias = params->out == params->b
                            ? (params->out_stride == params->b_stride ? "b" : NULL)
                            : (params->out_stride == params->a_stride ? "a" : NULL);
    const char *lse_alias = params->out_lse == params->b_lse
                                ? (params->out_lse_stride == params->b_lse_stride ? "b_lse" : NULL)
                                : (params->out_lse_stride == params->a_lse_stride ? "a_lse" : NULL);
    flw_refusal_input(refusal, "a", params->a, buffers->a_bytes, buffers->each);
    flw_refusal_input(refusal, "b", params->b, buffers->b_bytes, buffers->each);
    flw_refusal_input(refusal, "a_lse", params->a_lse, buffers->a_lse_bytes, 4);
    flw_refusal_input(refusal, "b_lse", params->b_lse, buffers->b_lse_bytes, 4);
    flw_refusal_optional_input(refusal, "context_tokens", params->context_tokens, 4, 4);
    flw_refusal_optional_input(refusal, "out_scale", params->out_scale, 4, 4);
    flw_refusal_output_alias(refusal, "out", params->out, buffers->out_bytes, buffers->out_each,
                             is_same_type ? alias : NULL);
    flw_refusal_output_alias(refusal, "out_lse", params->out_lse,
                             params->out_lse == NULL ? 0 : buffers->out_lse_bytes, 4, lse_alias);
    if (params->out_scale != NULL && is_same_type) {
        flw_refusal_refuse(refusal, FALLOW_INVALID_ARGUMENT, "out_scale: only for out_dtype E4M3");
    }
}

static bool is_vector_of(const fallow_merge_states_params *params, const struct buffers *buffers)
{
    return flw_is_vector_row(params->a, params->a_stride, params->width, buffers->each) &&
           flw_is_vector_row(params->b, params->b_stride, params->width, buffers->each) &&
           flw_is_vector_row(params->out, params->out_stride, params->width, buffers->out_each);
}

fallow_status fallow_attention_merge_states(fallow_kernels *kernels,
                                            const fallow_merge_states_params *caller,
                                            fallow_stream stream)
{
    struct flw_refusal refusal;
    fallow_merge_states_params params;
    flw_refusal_begin(&refusal, kernels, "fallow_attention_merge_states");
    flw_refusal_copy(&refusal, &params, sizeof params, caller);
    struct buffers buffers = check_shape(&refusal, &params);
    if (refusal.status != FALLOW_OK) {
        return refusal.status;
    }
    check_buffers(&refusal, &params, &buffers);
    if (flw_refusal_status(&refusal) != FALLOW_OK) {
        return refusal.status;
    }
    bool is_vector = is_vector_of(&params, &buffers);
    int64_t packs = is_vector ? params.width * (int64_t)buffers.each / 16 : params.width;
    uint32_t threads_per_row = packs < FLW_MERGE_THREADS ? (uint32_t)packs : FLW_MERGE_THREADS;
    /* NOLINTNEXTLINE(clang-analyzer-core*): a width of 0 was refused */
    uint32_t rows_per_pass = FLW_MERGE_THREADS / threads_per_row;
    struct flw_merge_states_args args = {.a = params.a,
                                         .b = params.b,
                                         .a_lse = params.a_lse,
                                         .b_lse = params.b_lse,
                                         .out = params.out,
                                         .out_lse = params.out_lse,
                                         .context_tokens = params.context_tokens,
                                         .out_scale = params.out_scale,
                                         .a_stride = params.a_stride,
                                         .b_stride = params.b_stride,
                                         .out_stride = params.out_stride,
                                         .a_lse_stride = params.a_lse_stride,
                                         .b_lse_stride = params.b_lse_stride,
                                         .out_lse_stride = params.out_lse_stride,
                                         .tokens = (int32_t)params.tokens,
                                         .heads = params.heads,
                                         .width = params.width,
                                         .threads_per_row = threads_per_row,
                                         .rows_per_pass = rows_per_pass,
                                         .dtype = (int32_t)params.dtype,
                                         .is_vector = is_vector,
                                         .quantises = params.out_dtype == FALLOW_E4M3,
                                         .lse_by_token = params.lse_by_token,
                                         .is_base_2 = params.is_base_2,
                                         .keeps_a = params.keeps_a};
    struct flw_grid grid = {
        .blocks_x = flw_grid_blocks((int64_t)buffers.rows, rows_per_pass * FLW_MERGE_PASSES),
        .threads = (threads_per_row * rows_per_pass + 31) / 32 * 32};
    return flw_kernels_launch(kernels, FLW_KERNEL_merge_states, grid, &args, stream);
}
