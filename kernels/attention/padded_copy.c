/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the public calls of padded_copy: checks, needs, the launch.
 * Does not: compute; padded_copy_twin.c is the definition, padded_copy.cu the kernel.
 */
#include "attention/padded_copy.h"

#include "common/library.h"
#include "common/refusal.h"
#include "fallow/attention.h"

struct buffers {
    size_t each;
    uint64_t src_bytes, dst_bytes;
};

/* Check shapes and types; replace zeros by defaults. */
static struct buffers check_shape(struct flw_refusal *refusal, fallow_padded_copy_params *params)
{
    params->width = params->width == 0 ? 1 : params->width;
    params->src_rows = params->src_rows == 0 ? params->rows : params->src_rows;
    params->src_stride = params->src_stride == 0 ? params->width : params->src_stride;
    params->dst_stride = params->dst_stride == 0 ? params->width : params->dst_stride;
    flw_refusal_count(refusal, "rows", params->rows, 0, INT32_MAX);
    flw_refusal_count(refusal, "src_rows", params->src_rows, 0, params->rows);
    flw_refusal_count(refusal, "width", params->width, 1, INT32_MAX);
    flw_refusal_count(refusal, "src_stride", params->src_stride, params->width, (int64_t)1 << 40);
    flw_refusal_count(refusal, "dst_stride", params->dst_stride, params->width, (int64_t)1 << 40);
    flw_refusal_dtype(refusal, "dtype", params->dtype, FLW_DTYPES_INTEGERS);
    if (params->dtype == FALLOW_I32) {
        flw_refusal_count(refusal, "value", params->value, INT32_MIN, INT32_MAX);
    }
    if (refusal->status != FALLOW_OK) {
        return (struct buffers){0};
    }
    size_t each = fallow_dtype_bytes(params->dtype);
    return (struct buffers){.each = each,
                            .src_bytes = flw_refusal_rows(refusal, "src", params->src_rows,
                                                          params->src_stride, params->width, each),
                            .dst_bytes = flw_refusal_rows(refusal, "dst", params->rows,
                                                          params->dst_stride, params->width, each)};
}

fallow_status fallow_attention_padded_copy_query(const fallow_padded_copy_params *caller,
                                                 fallow_workspace_need *out_need)
{
    struct flw_refusal refusal;
    fallow_padded_copy_params params;
    fallow_workspace_need need = {.launch_count = 1};
    flw_refusal_begin_query(&refusal, "fallow_attention_padded_copy_query");
    flw_refusal_copy(&refusal, &params, sizeof params, caller);
    struct buffers buffers = check_shape(&refusal, &params);
    if (refusal.status != FALLOW_OK) {
        return refusal.status;
    }
    uint64_t row_bytes = (uint64_t)params.width * buffers.each;
    flw_need_add(&need, "dst", buffers.dst_bytes, 16, FALLOW_INIT_VALID_TAIL);
    need.read_bytes = (uint64_t)params.src_rows * row_bytes;
    need.write_bytes = (uint64_t)params.rows * row_bytes;
    return flw_refusal_give_need(&refusal, out_need, &need);
}

fallow_status fallow_attention_padded_copy(fallow_kernels *kernels,
                                           const fallow_padded_copy_params *caller,
                                           fallow_stream stream)
{
    struct flw_refusal refusal;
    fallow_padded_copy_params params;
    flw_refusal_begin(&refusal, kernels, "fallow_attention_padded_copy");
    flw_refusal_copy(&refusal, &params, sizeof params, caller);
    struct buffers buffers = check_shape(&refusal, &params);
    if (refusal.status != FALLOW_OK) {
        return refusal.status;
    }
    flw_refusal_input(&refusal, "src", params.src, buffers.src_bytes, buffers.each);
    flw_refusal_optional_input(&refusal, "valid_count", params.valid_count, 4, 4);
    flw_refusal_output_alias(&refusal, "dst", params.dst, buffers.dst_bytes, buffers.each,
                             params.src_stride == params.dst_stride ? "src" : NULL);
    if (flw_refusal_status(&refusal) != FALLOW_OK) {
        return refusal.status;
    }
    bool is_flat = params.src_stride == params.width && params.dst_stride == params.width;
    bool is_vector = (uintptr_t)params.src % 16 == 0 && (uintptr_t)params.dst % 16 == 0 &&
                     (is_flat || ((uint64_t)params.src_stride * buffers.each % 16 == 0 &&
                                  (uint64_t)params.dst_stride * buffers.each % 16 == 0));
    int64_t stretch = is_flat ? params.rows * params.width : params.width;
    int64_t per_block = FLW_PADDED_COPY_THREADS * (is_vector ? 16 / (int64_t)buffers.each : 1);
    int64_t blocks = flw_grid_blocks(stretch, per_block);
    struct flw_padded_copy_args args = {.src = params.src,
                                        .dst = params.dst,
                                        .valid_count = params.valid_count,
                                        .value = params.value,
                                        .src_stride = params.src_stride,
                                        .dst_stride = params.dst_stride,
                                        .stretch = stretch,
                                        .rows = params.rows,
                                        .width = params.width,
                                        .src_rows = params.src_rows,
                                        .blocks_per_stretch = (uint32_t)blocks,
                                        .is_flat = is_flat,
                                        .is_i64 = params.dtype == FALLOW_I64,
                                        .is_vector = is_vector};
    struct flw_grid grid = {.blocks_x = is_flat ? blocks : params.rows * blocks,
                            .threads = FLW_PADDED_COPY_THREADS};
    return flw_kernels_launch(kernels, FLW_KERNEL_padded_copy, grid, &args, stream);
}
