/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the public calls of cu_seqlens: checks, needs, the launch.
 * Does not: compute; cu_seqlens_twin.c is the definition, cu_seqlens.cu the kernel.
 */
#include "attention/cu_seqlens.h"

#include "common/library.h"
#include "common/refusal.h"
#include "fallow/attention.h"

/* Shapes and types; params.rows and round_to get their defaults. */
static void check_shape(struct flw_refusal *refusal, fallow_cu_seqlens_params *params)
{
    params->rows = params->rows == 0 ? 1 : params->rows;
    params->round_to = params->round_to == 0 ? 1 : params->round_to;
    flw_refusal_count(refusal, "batch", params->batch, 0, 65536);
    flw_refusal_count(refusal, "rows", params->rows, 1, 65535);
    flw_refusal_count(refusal, "round_to", params->round_to, 1, INT32_MAX);
    flw_refusal_count(refusal, "exclusive", params->exclusive, 0, 1);
    flw_refusal_dtype(refusal, "lengths_dtype", params->lengths_dtype, FLW_DTYPES_INTEGERS);
    flw_refusal_dtype(refusal, "cu_dtype", params->cu_dtype, FLW_DTYPES_INTEGERS);
}

struct buffers {
    uint64_t lengths_bytes, cu_bytes, total_bytes;
    size_t cu_align;
};

static struct buffers measure(const fallow_cu_seqlens_params *params)
{
    uint64_t cu_each = fallow_dtype_bytes(params->cu_dtype), rows = (uint64_t)params->rows;
    return (struct buffers){
        .lengths_bytes = rows * (uint64_t)params->batch * fallow_dtype_bytes(params->lengths_dtype),
        .cu_bytes = rows * ((uint64_t)params->batch + (params->exclusive ? 0 : 1)) * cu_each,
        .total_bytes = params->total != NULL ? rows * cu_each : 0,
        .cu_align = cu_each};
}

fallow_status fallow_attention_cu_seqlens_query(const fallow_cu_seqlens_params *caller,
                                                fallow_workspace_need *out_need)
{
    struct flw_refusal refusal;
    fallow_cu_seqlens_params params;
    fallow_workspace_need need = {.launch_count = 1};
    flw_refusal_begin_query(&refusal, "fallow_attention_cu_seqlens_query");
    flw_refusal_copy(&refusal, &params, sizeof params, caller);
    check_shape(&refusal, &params);
    if (refusal.status != FALLOW_OK) {
        return refusal.status;
    }
    struct buffers buffers = measure(&params);
    uint64_t rows = (uint64_t)params.rows;
    flw_need_add(&need, "cu_seqlens", buffers.cu_bytes, buffers.cu_align, FALLOW_INIT_LEADING_ZERO);
    flw_need_add(&need, "total", rows * buffers.cu_align, buffers.cu_align, FALLOW_INIT_DIRTY);
    flw_need_add(&need, "max_length", rows * 4, 4, FALLOW_INIT_DIRTY);
    need.read_bytes = buffers.lengths_bytes;
    need.write_bytes = buffers.cu_bytes;
    return flw_refusal_give_need(&refusal, out_need, &need);
}

fallow_status fallow_attention_cu_seqlens(fallow_kernels *kernels,
                                          const fallow_cu_seqlens_params *caller,
                                          fallow_stream stream)
{
    struct flw_refusal refusal;
    fallow_cu_seqlens_params params;
    flw_refusal_begin(&refusal, kernels, "fallow_attention_cu_seqlens");
    flw_refusal_copy(&refusal, &params, sizeof params, caller);
    check_shape(&refusal, &params);
    if (refusal.status != FALLOW_OK) {
        return refusal.status;
    }
    struct buffers buffers = measure(&params);
    bool may_alias =
        params.lengths_dtype == params.cu_dtype && (params.exclusive || params.rows == 1);
    size_t lengths_align = fallow_dtype_bytes(params.lengths_dtype);
    flw_refusal_input(&refusal, "lengths", params.lengths, buffers.lengths_bytes, lengths_align);
    flw_refusal_optional_input(&refusal, "delta", params.delta, 4, 4);
    flw_refusal_optional_input(&refusal, "valid_count", params.valid_count, 4, 4);
    flw_refusal_output_alias(&refusal, "cu_seqlens", params.cu_seqlens, buffers.cu_bytes,
                             buffers.cu_align, may_alias ? "lengths" : NULL);
    flw_refusal_output(&refusal, "total", params.total, buffers.total_bytes, buffers.cu_align);
    flw_refusal_optional_output(&refusal, "max_length", params.max_length,
                                (uint64_t)params.rows * 4, 4);
    flw_refusal_optional_output(&refusal, "flags", params.flags, 4, 4);
    if (flw_refusal_status(&refusal) != FALLOW_OK) {
        return refusal.status;
    }
    struct flw_cu_seqlens_args args = {.lengths = params.lengths,
                                       .delta = params.delta,
                                       .valid_count = params.valid_count,
                                       .cu_seqlens = params.cu_seqlens,
                                       .total = params.total,
                                       .max_length = params.max_length,
                                       .flags = params.flags,
                                       .batch = params.batch,
                                       .rows = params.rows,
                                       .round_to = params.round_to,
                                       .lengths_is_i64 = params.lengths_dtype == FALLOW_I64,
                                       .cu_is_i64 = params.cu_dtype == FALLOW_I64,
                                       .is_exclusive = params.exclusive};
    struct flw_grid grid = {.blocks_x = params.rows, .threads = FLW_CU_SEQLENS_THREADS};
    return flw_kernels_launch(kernels, FLW_KERNEL_cu_seqlens, grid, &args, stream);
}
