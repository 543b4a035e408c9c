/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the public calls of concat_kv: checks, needs, the launch.
 * Does not: compute; concat_kv_twin.c is the definition, concat_kv.cu the kernel.
 */
#include "mla/concat_kv.h"

#include "common/library.h"
#include "common/refusal.h"
#include "fallow/mla.h"

#define DTYPES         (FLW_DTYPES_FLOATS | 1u << FALLOW_E4M3)
#define LONGEST_STRIDE ((int64_t)1 << 40)

struct buffers {
    size_t each;
    int64_t kv_width, k_width;
    uint64_t kv_bytes, rope_bytes, k_bytes, v_bytes;
};

/* Check rows of `heads` heads of `width`: set default strides, return the bytes. */
static uint64_t check_rows(struct flw_refusal *refusal, const fallow_concat_kv_params *params,
                           const char *name, int64_t width, int64_t *token_stride,
                           int64_t *head_stride)
{
    int64_t heads = params->heads;
    *head_stride = *head_stride == 0 ? width : *head_stride;
    if (*head_stride < width || *head_stride > LONGEST_STRIDE) {
        flw_refusal_refuse(refusal, FALLOW_INVALID_ARGUMENT,
                           "%s_head_stride is %lld, outside %lld to 2^40", name,
                           (long long)*head_stride, (long long)width);
        return 0;
    }
    int64_t least = (heads - 1) * *head_stride + width;
    *token_stride = *token_stride == 0 ? heads * *head_stride : *token_stride;
    if (*token_stride < least || *token_stride > LONGEST_STRIDE << 16) {
        flw_refusal_refuse(refusal, FALLOW_INVALID_ARGUMENT,
                           "%s_token_stride is %lld, outside %lld to 2^56", name,
                           (long long)*token_stride, (long long)least);
        return 0;
    }
    return flw_refusal_rows(refusal, name, params->tokens, *token_stride, least,
                            fallow_dtype_bytes(params->dtype));
}

/* Check shapes and types; replace zeros by defaults. */
static struct buffers check_shape(struct flw_refusal *refusal, fallow_concat_kv_params *params)
{
    struct buffers buffers = {0};
    params->nope_width = params->nope_width == 0 ? 128 : params->nope_width;
    params->rope_width = params->rope_width == 0 ? 64 : params->rope_width;
    params->v_width = params->v_width == 0 ? 128 : params->v_width;
    params->rope_stride = params->rope_stride == 0 ? params->rope_width : params->rope_stride;
    flw_refusal_dtype(refusal, "dtype", params->dtype, DTYPES);
    flw_refusal_count(refusal, "tokens", params->tokens, 0, INT32_MAX);
    flw_refusal_count(refusal, "heads", params->heads, 1, 65535);
    flw_refusal_count(refusal, "nope_width", params->nope_width, 1, FLW_CONCAT_WIDEST);
    flw_refusal_count(refusal, "rope_width", params->rope_width, 1, FLW_CONCAT_WIDEST);
    flw_refusal_count(refusal, "v_width", params->v_width, 1, FLW_CONCAT_WIDEST);
    if (params->v_columns != 0) {
        flw_refusal_count(refusal, "v_columns", params->v_columns, params->v_width,
                          FLW_CONCAT_WIDEST);
    }
    flw_refusal_count(refusal, "rope_stride", params->rope_stride, params->rope_width,
                      LONGEST_STRIDE);
    if (refusal->status != FALLOW_OK) {
        return buffers;
    }
    buffers.each = fallow_dtype_bytes(params->dtype);
    buffers.kv_width = (int64_t)params->nope_width + params->v_width;
    buffers.k_width = (int64_t)params->nope_width + params->rope_width;
    buffers.kv_bytes = check_rows(refusal, params, "kv", buffers.kv_width, &params->kv_token_stride,
                                  &params->kv_head_stride);
    buffers.rope_bytes = flw_refusal_rows(refusal, "k_rope", params->tokens, params->rope_stride,
                                          params->rope_width, buffers.each);
    buffers.k_bytes = check_rows(refusal, params, "k", buffers.k_width, &params->k_token_stride,
                                 &params->k_head_stride);
    if (params->v_columns != 0) {
        buffers.v_bytes = check_rows(refusal, params, "v", params->v_columns,
                                     &params->v_token_stride, &params->v_head_stride);
    }
    return buffers;
}

fallow_status fallow_mla_concat_kv_query(const fallow_concat_kv_params *caller,
                                         fallow_workspace_need *out_need)
{
    struct flw_refusal refusal;
    fallow_concat_kv_params params;
    fallow_workspace_need need = {.launch_count = 1};
    flw_refusal_begin_query(&refusal, "fallow_mla_concat_kv_query");
    flw_refusal_copy(&refusal, &params, sizeof params, caller);
    struct buffers buffers = check_shape(&refusal, &params);
    if (refusal.status != FALLOW_OK) {
        return refusal.status;
    }
    uint64_t tokens = (uint64_t)params.tokens, rows = tokens * (uint64_t)params.heads;
    uint64_t value = params.v_columns != 0 ? (uint64_t)params.v_width : 0;
    flw_need_add(&need, "k", buffers.k_bytes, 16, FALLOW_INIT_PREFIX);
    if (params.v_columns != 0) {
        flw_need_add(&need, "v", buffers.v_bytes, 16,
                     params.v_columns > params.v_width ? FALLOW_INIT_NEUTRAL_TAIL
                                                       : FALLOW_INIT_PREFIX);
    }
    need.read_bytes =
        (rows * ((uint64_t)params.nope_width + value) + tokens * (uint64_t)params.rope_width) *
        buffers.each;
    need.write_bytes =
        rows * ((uint64_t)buffers.k_width + (uint64_t)params.v_columns) * buffers.each;
    return flw_refusal_give_need(&refusal, out_need, &need);
}

/* True if heads and their parts can be moved 16 bytes at a time. */
static bool is_vector_of(const fallow_concat_kv_params *params, size_t each)
{
    bool has_v = params->v_columns != 0;
    return flw_is_vector_row(params->kv, params->kv_head_stride, params->nope_width, each) &&
           flw_is_vector_row(params->kv, params->kv_token_stride, params->nope_width, each) &&
           flw_is_vector_row(params->k_rope, params->rope_stride, params->rope_width, each) &&
           flw_is_vector_row(params->k, params->k_head_stride, params->nope_width, each) &&
           flw_is_vector_row(params->k, params->k_token_stride, params->nope_width, each) &&
           (!has_v ||
            (flw_is_vector_row(params->v, params->v_head_stride, params->v_width, each) &&
             flw_is_vector_row(params->v, params->v_token_stride, params->v_columns, each)));
}

static int32_t units_of(int32_t width, size_t each, bool is_vector)
{
    return (int32_t)flw_row_packs(width, each, is_vector);
}

static fallow_status launch(fallow_kernels *kernels, const fallow_concat_kv_params *params,
                            const struct buffers *buffers, fallow_stream stream)
{
    int64_t each = (int64_t)buffers->each;
    bool is_vector = is_vector_of(params, buffers->each);
    struct flw_concat_kv_args args = {
        .kv = params->kv,
        .k_rope = params->k_rope,
        .token_count = params->token_count,
        .k = params->k,
        .v = params->v_columns == 0 ? NULL : params->v,
        .kv_token = params->kv_token_stride * each,
        .kv_head = params->kv_head_stride * each,
        .rope_token = params->rope_stride * each,
        .k_token = params->k_token_stride * each,
        .k_head = params->k_head_stride * each,
        .v_token = params->v_token_stride * each,
        .v_head = params->v_head_stride * each,
        .tokens = params->tokens,
        .heads = params->heads,
        .nope_units = units_of(params->nope_width, buffers->each, is_vector),
        .rope_units = units_of(params->rope_width, buffers->each, is_vector),
        .value_units = units_of(params->v_width, buffers->each, is_vector),
        .v_units = units_of(params->v_columns, buffers->each, is_vector),
        .unit_bytes = is_vector ? 16 : (int32_t)each};
    struct flw_tile tile = flw_tile_of(args.nope_units + args.rope_units + args.v_units,
                                       params->heads, FLW_CONCAT_THREADS);
    struct flw_grid grid = {
        .blocks_x = params->tokens,
        .blocks_y = flw_grid_blocks(params->heads, (int64_t)tile.rows * FLW_CONCAT_BATCH),
        .threads = (unsigned)(tile.columns * tile.rows)};
    args.columns = tile.columns;
    return flw_kernels_launch(kernels, FLW_KERNEL_concat_kv, grid, &args, stream);
}

fallow_status fallow_mla_concat_kv(fallow_kernels *kernels, const fallow_concat_kv_params *caller,
                                   fallow_stream stream)
{
    struct flw_refusal refusal;
    fallow_concat_kv_params params;
    flw_refusal_begin(&refusal, kernels, "fallow_mla_concat_kv");
    flw_refusal_copy(&refusal, &params, sizeof params, caller);
    struct buffers buffers = check_shape(&refusal, &params);
    if (refusal.status != FALLOW_OK) {
        return refusal.status;
    }
    flw_refusal_input(&refusal, "kv", params.kv, buffers.kv_bytes, buffers.each);
    flw_refusal_input(&refusal, "k_rope", params.k_rope, buffers.rope_bytes, buffers.each);
    flw_refusal_optional_input(&refusal, "token_count", params.token_count, 4, 4);
    flw_refusal_output(&refusal, "k", params.k, buffers.k_bytes, buffers.each);
    flw_refusal_output(&refusal, "v", params.v, buffers.v_bytes, buffers.each);
    if (params.v != NULL && params.v_columns == 0) {
        flw_refusal_refuse(&refusal, FALLOW_INVALID_ARGUMENT, "v is given, but v_columns is 0");
    }
    if (flw_refusal_status(&refusal) != FALLOW_OK) {
        return refusal.status;
    }
    return launch(kernels, &params, &buffers, stream);
}
