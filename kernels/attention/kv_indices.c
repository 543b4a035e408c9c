/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the public calls of kv_indices: checks, needs, the launch.
 * Does not: compute; kv_indices_twin.c is the definition, kv_indices.cu the kernel.
 */
#include "attention/kv_indices.h"

#include "common/library.h"
#include "common/refusal.h"
#include "fallow/attention.h"

static void check_shape(struct flw_refusal *refusal, const fallow_kv_indices_params *params)
{
    flw_refusal_count(refusal, "batch", params->batch, 0, 65536);
    flw_refusal_count(refusal, "capacity", params->capacity, 0, INT32_MAX);
    flw_refusal_count(refusal, "request_rows", params->request_rows, 1, INT32_MAX);
    flw_refusal_count(refusal, "stride", params->stride, 1, INT32_MAX);
    flw_refusal_dtype(refusal, "requests_dtype", params->requests_dtype, FLW_DTYPES_INTEGERS);
}

fallow_status fallow_attention_kv_indices_query(const fallow_kv_indices_params *caller,
                                                fallow_workspace_need *out_need)
{
    struct flw_refusal refusal;
    fallow_kv_indices_params params;
    fallow_workspace_need need = {.launch_count = 1};
    flw_refusal_begin_query(&refusal, "fallow_attention_kv_indices_query");
    flw_refusal_copy(&refusal, &params, sizeof params, caller);
    check_shape(&refusal, &params);
    if (refusal.status != FALLOW_OK) {
        return refusal.status;
    }
    uint64_t batch = (uint64_t)params.batch, bytes = (uint64_t)params.capacity * 4;
    flw_need_add(&need, "kv_indices", bytes, 4, FALLOW_INIT_PREFIX);
    need.read_bytes =
        bytes + (batch + 1) * 4 + batch * (8 + fallow_dtype_bytes(params.requests_dtype));
    need.write_bytes = bytes;
    return flw_refusal_give_need(&refusal, out_need, &need);
}

static void check_buffers(struct flw_refusal *refusal, const fallow_kv_indices_params *params)
{
    uint64_t batch = (uint64_t)params->batch;
    size_t requests_each = fallow_dtype_bytes(params->requests_dtype);
    uint64_t slots_bytes = batch == 0
                               ? 0
                               : flw_refusal_rows(refusal, "req_to_token", params->request_rows,
                                                  params->stride, params->stride, 4);
    flw_refusal_input(refusal, "cu_seqlens", params->cu_seqlens, (batch + 1) * 4, 4);
    flw_refusal_optional_input(refusal, "lengths", params->lengths, batch * 4, 4);
    flw_refusal_optional_input(refusal, "starts", params->starts, batch * 4, 4);
    flw_refusal_optional_input(refusal, "valid_count", params->valid_count, 4, 4);
    flw_refusal_input(refusal, "requests", params->requests, batch * requests_each, requests_each);
    flw_refusal_input(refusal, "req_to_token", params->req_to_token, slots_bytes, 4);
    flw_refusal_output(refusal, "kv_indices", params->kv_indices, (uint64_t)params->capacity * 4,
                       4);
    flw_refusal_optional_output(refusal, "flags", params->flags, 4, 4);
}

fallow_status fallow_attention_kv_indices(fallow_kernels *kernels,
                                          const fallow_kv_indices_params *caller,
                                          fallow_stream stream)
{
    struct flw_refusal refusal;
    fallow_kv_indices_params params;
    flw_refusal_begin(&refusal, kernels, "fallow_attention_kv_indices");
    flw_refusal_copy(&refusal, &params, sizeof params, caller);
    check_shape(&refusal, &params);
    if (refusal.status != FALLOW_OK) {
        return refusal.status;
    }
    check_buffers(&refusal, &params);
    if (flw_refusal_status(&refusal) != FALLOW_OK) {
        return refusal.status;
    }
    struct flw_kv_indices_args args = {.cu_seqlens = params.cu_seqlens,
                                       .lengths = params.lengths,
                                       .starts = params.starts,
                                       .valid_count = params.valid_count,
                                       .requests = params.requests,
                                       .req_to_token = params.req_to_token,
                                       .kv_indices = params.kv_indices,
                                       .flags = params.flags,
                                       .request_rows = params.request_rows,
                                       .stride = params.stride,
                                       .capacity = params.capacity,
                                       .batch = params.batch,
                                       .fill = params.fill,
                                       .requests_is_i64 = params.requests_dtype == FALLOW_I64};
    int64_t per_block = (int64_t)FLW_KV_INDICES_THREADS * FLW_KV_INDICES_ITEMS;
    struct flw_grid grid = {.blocks_x = 1 + flw_grid_blocks(params.capacity, per_block),
                            .threads = FLW_KV_INDICES_THREADS};
    return flw_kernels_launch(kernels, FLW_KERNEL_kv_indices, grid, &args, stream);
}
