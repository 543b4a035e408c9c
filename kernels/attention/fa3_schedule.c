/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the public calls of fa3_schedule: checks, needs, the launch.
 * Does not: compute; fa3_schedule_twin.c is the definition, fa3_schedule.cu the kernel.
 */
#include "attention/fa3_schedule.h"

#include "common/library.h"
#include "common/refusal.h"
#include "fallow/attention.h"

#define CACHE_TYPES (1u << FALLOW_F16 | 1u << FALLOW_BF16 | 1u << FALLOW_E4M3)
#define L2_BYTES    (8 << 20) /* less than the hardware's, as FA3 measured to be best */

static void check_lengths(struct flw_refusal *refusal, const fallow_fa3_schedule_params *params)
{
    int64_t most = params->sorted ? FLW_FA3_SCHEDULE_SORTED_BATCH : 65536;
    flw_refusal_count(refusal, "batch", params->batch, 0, most);
    flw_refusal_count(refusal, "seqlen_q", params->seqlen_q, 0, INT32_MAX);
    flw_refusal_count(refusal, "seqlen_k", params->seqlen_k, 0, INT32_MAX);
    flw_refusal_count(refusal, "seqlen_k_new", params->seqlen_k_new, 0, INT32_MAX);
}

/* Check shapes and modes; replace zeros by defaults. */
static void check_shape(struct flw_refusal *refusal, fallow_fa3_schedule_params *params)
{
    params->max_splits = params->max_splits == 0 ? 1 : params->max_splits;
    params->head_dim_v = params->head_dim_v == 0 ? params->head_dim : params->head_dim_v;
    flw_refusal_count(refusal, "layout", (int64_t)params->layout, 0, FALLOW_FA3_LAYOUT_VLLM);
    flw_refusal_count(refusal, "packed", params->packed, 0, 1);
    flw_refusal_count(refusal, "causal", params->causal, 0, 1);
    flw_refusal_count(refusal, "sorted", params->sorted, 0,
                      params->layout == FALLOW_FA3_LAYOUT_VLLM ? 0 : 1);
    flw_refusal_count(refusal, "swizzled", params->swizzled, 0, 1);
    flw_refusal_count(refusal, "no_semaphore", params->no_semaphore, 0, 1);
    check_lengths(refusal, params);
    flw_refusal_count(refusal, "heads_q", params->heads_q, 1, 65536);
    flw_refusal_count(refusal, "heads_kv", params->heads_kv, 1, 65536);
    flw_refusal_count(refusal, "multiprocessors", params->multiprocessors, 1, INT32_MAX);
    flw_refusal_count(refusal, "block_m", params->block_m, 1, 1024);
    flw_refusal_count(refusal, "block_n", params->block_n, 1, 1024);
    flw_refusal_count(refusal, "max_splits", params->max_splits, 1, 256);
    if (refusal->status == FALLOW_OK && params->heads_q % params->heads_kv != 0) {
        flw_refusal_refuse(refusal, FALLOW_INVALID_ARGUMENT,
                           "heads_q %d is not a multiple of heads_kv %d", params->heads_q,
                           params->heads_kv);
    }
    if (params->swizzled) {
        flw_refusal_count(refusal, "head_dim", params->head_dim, 1, 65536);
        flw_refusal_count(refusal, "head_dim_v", params->head_dim_v, 1, 65536);
        flw_refusal_dtype(refusal, "dtype", params->dtype, CACHE_TYPES);
    }
}

static bool is_dynamic(const fallow_fa3_schedule_params *params)
{
    return params->batch <= FLW_FA3_SCHEDULE_DYNAMIC_BATCH && params->max_splits > 1;
}

static int32_t pad_batch(const fallow_fa3_schedule_params *params)
{
    return (params->batch + 3) / 4 * 4;
}

/* Take the next vector of the metadata, if present. */
static int32_t place(bool is_there, int32_t length, int32_t *end)
{
    int32_t begin = *end;
    if (!is_there) {
        return -1;
    }
    *end += length;
    return begin;
}

/* Place the vectors; out_count: elements of the metadata. */
static struct flw_fa3_schedule_places place_all(const fallow_fa3_schedule_params *params,
                                                int32_t *out_count)
{
    bool is_vllm = params->layout == FALLOW_FA3_LAYOUT_VLLM;
    int32_t length = pad_batch(params);
    struct flw_fa3_schedule_places places;
    *out_count = 0;
    places.qlen = place(is_vllm, length, out_count);
    places.splits = place(!is_vllm || is_dynamic(params), length, out_count);
    places.m_blocks = place(!is_vllm, length, out_count);
    places.batch_idx = place(params->sorted, length, out_count);
    places.heads_in_l2 = place(params->swizzled, length, out_count);
    places.semaphore = place(!params->no_semaphore, 1, out_count);
    return places;
}

fallow_status fallow_attention_fa3_schedule_query(const fallow_fa3_schedule_params *caller,
                                                  fallow_workspace_need *out_need)
{
    struct flw_refusal refusal;
    fallow_fa3_schedule_params params;
    fallow_workspace_need need = {.launch_count = 1};
    int32_t count;
    flw_refusal_begin_query(&refusal, "fallow_attention_fa3_schedule_query");
    flw_refusal_copy(&refusal, &params, sizeof params, caller);
    check_shape(&refusal, &params);
    if (refusal.status != FALLOW_OK) {
        return refusal.status;
    }
    (void)place_all(&params, &count);
    uint64_t bytes = (uint64_t)count * 4;
    /* The arrays of q, of k, of new k and of paddings. */
    uint64_t arrays = (uint64_t)(params.seqused_q != NULL || params.cu_seqlens_q != NULL) +
                      (params.seqused_k != NULL || params.cu_seqlens_k != NULL) +
                      (params.cu_seqlens_k_new != NULL) + (params.leftpad_k != NULL);
    flw_need_add(&need, "metadata", bytes, 4, FALLOW_INIT_DIRTY);
    need.read_bytes = arrays * 4 * (uint64_t)params.batch;
    need.write_bytes = bytes;
    return flw_refusal_give_need(&refusal, out_need, &need);
}

static void check_buffers(struct flw_refusal *refusal, const fallow_fa3_schedule_params *params,
                          int32_t count)
{
    uint64_t each = (uint64_t)params->batch * 4;
    const struct {
        const char *name;
        const int32_t *pointer;
        uint64_t bytes;
    } inputs[] = {{"cu_seqlens_q", params->cu_seqlens_q, each + 4},
                  {"seqused_q", params->seqused_q, each},
                  {"cu_seqlens_k", params->cu_seqlens_k, each + 4},
                  {"seqused_k", params->seqused_k, each},
                  {"cu_seqlens_k_new", params->cu_seqlens_k_new, each + 4},
                  {"leftpad_k", params->leftpad_k, each},
                  {"valid_count", params->valid_count, 4}};
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++) {
        flw_refusal_optional_input(refusal, inputs[i].name, inputs[i].pointer, inputs[i].bytes, 4);
    }
    flw_refusal_output(refusal, "metadata", params->metadata, (uint64_t)count * 4, 4);
    flw_refusal_optional_output(refusal, "flags", params->flags, 4, 4);
}

static struct flw_fa3_schedule_args args_of(const fallow_fa3_schedule_params *params,
                                            struct flw_fa3_schedule_places places)
{
    int32_t group = params->heads_q / params->heads_kv;
    int64_t block_bytes = (int64_t)params->block_n *
                          ((int64_t)params->head_dim + params->head_dim_v) *
                          (int64_t)fallow_dtype_bytes(params->dtype);
    return (struct flw_fa3_schedule_args){
        .cu_seqlens_q = params->cu_seqlens_q,
        .seqused_q = params->seqused_q,
        .cu_seqlens_k = params->cu_seqlens_k,
        .seqused_k = params->seqused_k,
        .cu_seqlens_k_new = params->cu_seqlens_k_new,
        .leftpad_k = params->leftpad_k,
        .valid_count = params->valid_count,
        .metadata = params->metadata,
        .flags = params->flags,
        .places = places,
        .batch = params->batch,
        .padded_batch = pad_batch(params),
        .seqlen_q = params->seqlen_q,
        .seqlen_k = params->seqlen_k,
        .seqlen_k_new = params->seqlen_k_new,
        .pack = params->packed ? group : 1,
        .heads = params->packed ? params->heads_kv : params->heads_q,
        .heads_per_chosen = params->packed ? 1 : group,
        .multiprocessors = params->multiprocessors,
        .block_m = params->block_m,
        .block_n = params->block_n,
        .max_splits = params->max_splits,
        .is_dynamic = is_dynamic(params),
        .is_causal = params->causal,
        /* NOLINTNEXTLINE(clang-analyzer-core*): the dtype, blocks and dimensions were checked */
        .blocks_in_l2 = params->swizzled ? L2_BYTES / block_bytes : 0};
}

fallow_status fallow_attention_fa3_schedule(fallow_kernels *kernels,
                                            const fallow_fa3_schedule_params *caller,
                                            fallow_stream stream)
{
    struct flw_refusal refusal;
    fallow_fa3_schedule_params params;
    int32_t count;
    flw_refusal_begin(&refusal, kernels, "fallow_attention_fa3_schedule");
    flw_refusal_copy(&refusal, &params, sizeof params, caller);
    check_shape(&refusal, &params);
    if (refusal.status != FALLOW_OK) {
        return refusal.status;
    }
    struct flw_fa3_schedule_places places = place_all(&params, &count);
    check_buffers(&refusal, &params, count);
    if (flw_refusal_status(&refusal) != FALLOW_OK) {
        return refusal.status;
    }
    struct flw_fa3_schedule_args args = args_of(&params, places);
    struct flw_grid grid = {.blocks_x = 1, .threads = FLW_FA3_SCHEDULE_THREADS};
    return flw_kernels_launch(kernels, FLW_KERNEL_fa3_schedule, grid, &args, stream);
}
