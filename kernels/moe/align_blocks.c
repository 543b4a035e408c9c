/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the public calls of align_blocks: checks, needs, the launch.
 * Does not: compute; align_blocks_twin.c is the definition, align_blocks.cu the kernel.
 */
#include "moe/align_blocks.h"

#include "common/library.h"
#include "common/refusal.h"
#include "fallow/moe.h"

static void check_forms(struct flw_refusal *refusal, const fallow_align_blocks_params *params)
{
    flw_refusal_count(refusal, "map_mode", params->map_mode, FALLOW_ALIGN_NO_MAP,
                      FALLOW_ALIGN_MAP_BEFORE);
    flw_refusal_count(refusal, "pad", params->pad, FALLOW_ALIGN_PAD_ZERO, FALLOW_ALIGN_PAD_LEAVE);
    flw_refusal_count(refusal, "batched", params->batched, 0, 1);
    flw_refusal_count(refusal, "sorts_invalid", params->sorts_invalid, 0, 1);
    if (params->map_mode != FALLOW_ALIGN_MAP_BEFORE && params->map_count != params->experts) {
        flw_refusal_refuse(
            refusal, FALLOW_INVALID_ARGUMENT,
            "map_count must equal experts unless map_mode is FALLOW_ALIGN_MAP_BEFORE");
    }
    if ((params->batched || params->sorts_invalid) && params->map_mode != FALLOW_ALIGN_NO_MAP) {
        flw_refusal_refuse(refusal, FALLOW_INVALID_ARGUMENT,
                           "map_mode must be FALLOW_ALIGN_NO_MAP with batched or sorts_invalid");
    }
    if (params->batched && params->sorts_invalid) {
        flw_refusal_refuse(refusal, FALLOW_INVALID_ARGUMENT,
                           "sorts_invalid must be 0 with batched, which has no ids");
    }
}

struct buffers {
    int32_t buckets;
    int64_t blocks;
    size_t id_each;
    uint64_t id_bytes, map_bytes, batch_bytes, sorted_bytes, expert_bytes;
};

/* Return the most slots that can be in use: whole blocks of each expert with an id. */
static int64_t most_slots(struct flw_refusal *refusal, const fallow_align_blocks_params *params,
                          int64_t buckets)
{
    int64_t size = params->block_size;
    if (params->batched) {
        return flw_refusal_product(refusal, "experts x count", buckets,
                                   (params->count + size - 1) / size * size);
    }
    int64_t used = params->count < buckets ? params->count : buckets;
    return params->count + flw_refusal_product(refusal, "experts x block_size", used, size - 1);
}

/* Check shapes and types; replace zeros by defaults. */
static struct buffers check_shape(struct flw_refusal *refusal, fallow_align_blocks_params *params)
{
    struct buffers buffers = {0};
    params->map_count = params->map_count == 0 ? params->experts : params->map_count;
    flw_refusal_count(refusal, "count", params->count, 0, INT32_MAX);
    flw_refusal_count(refusal, "experts", params->experts, 1, FLW_EXPERT_MOST);
    flw_refusal_count(refusal, "map_count", params->map_count, 1, 1 << 20);
    flw_refusal_count(refusal, "block_size", params->block_size, 1, 1 << 20);
    flw_refusal_dtype(refusal, "ids_dtype", params->ids_dtype, FLW_DTYPES_INTEGERS);
    check_forms(refusal, params);
    if (refusal->status != FALLOW_OK) {
        return buffers;
    }
    buffers.buckets = params->experts + params->sorts_invalid;
    int64_t least = most_slots(refusal, params, buffers.buckets);
    params->capacity = params->capacity == 0 ? least : params->capacity;
    flw_refusal_count(refusal, "capacity", params->capacity, least, INT32_MAX);
    buffers.blocks = flw_grid_blocks(params->capacity, params->block_size);
    buffers.id_each = fallow_dtype_bytes(params->ids_dtype);
    buffers.id_bytes = params->batched ? 0 : (uint64_t)params->count * buffers.id_each;
    buffers.batch_bytes = params->batched ? (uint64_t)params->experts * 4 : 0;
    buffers.map_bytes =
        params->map_mode == FALLOW_ALIGN_NO_MAP ? 0 : (uint64_t)params->map_count * 4;
    buffers.sorted_bytes = (uint64_t)params->capacity * 4;
    buffers.expert_bytes = (uint64_t)buffers.blocks * 4;
    return buffers;
}

fallow_status fallow_moe_align_blocks_query(const fallow_align_blocks_params *caller,
                                            fallow_workspace_need *out_need)
{
    struct flw_refusal refusal;
    fallow_align_blocks_params params;
    fallow_workspace_need need = {.launch_count = 1};
    flw_refusal_begin_query(&refusal, "fallow_moe_align_blocks_query");
    flw_refusal_copy(&refusal, &params, sizeof params, caller);
    struct buffers buffers = check_shape(&refusal, &params);
    if (refusal.status != FALLOW_OK) {
        return refusal.status;
    }
    flw_need_add(&need, "sorted_ids", buffers.sorted_bytes, 4,
                 params.sorts_invalid ? FALLOW_INIT_PREFIX : FALLOW_INIT_SENTINEL);
    flw_need_add(&need, "expert_ids", buffers.expert_bytes, 4,
                 params.pad == FALLOW_ALIGN_PAD_LEAVE ? FALLOW_INIT_PREFIX : FALLOW_INIT_SENTINEL);
    flw_need_add(&need, "padded_count", 4, 4, FALLOW_INIT_DIRTY);
    need.read_bytes = buffers.id_bytes + buffers.batch_bytes + buffers.map_bytes;
    need.write_bytes = buffers.sorted_bytes + buffers.expert_bytes + 4;
    return flw_refusal_give_need(&refusal, out_need, &need);
}

static void check_buffers(struct flw_refusal *refusal, const fallow_align_blocks_params *params,
                          const struct buffers *buffers)
{
    flw_refusal_input(refusal, "ids", params->ids, buffers->id_bytes, buffers->id_each);
    flw_refusal_input(refusal, "batch_counts", params->batch_counts, buffers->batch_bytes, 4);
    flw_refusal_input(refusal, "expert_map", params->expert_map, buffers->map_bytes, 4);
    flw_refusal_output(refusal, "sorted_ids", params->sorted_ids, buffers->sorted_bytes, 4);
    flw_refusal_output(refusal, "expert_ids", params->expert_ids, buffers->expert_bytes, 4);
    flw_refusal_output(refusal, "padded_count", params->padded_count, 4, 4);
    flw_refusal_optional_output(refusal, "flags", params->flags, 4, 4);
}

fallow_status fallow_moe_align_blocks(fallow_kernels *kernels,
                                      const fallow_align_blocks_params *caller,
                                      fallow_stream stream)
{
    struct flw_refusal refusal;
    fallow_align_blocks_params params;
    flw_refusal_begin(&refusal, kernels, "fallow_moe_align_blocks");
    flw_refusal_copy(&refusal, &params, sizeof params, caller);
    struct buffers buffers = check_shape(&refusal, &params);
    if (refusal.status != FALLOW_OK) {
        return refusal.status;
    }
    check_buffers(&refusal, &params, &buffers);
    if (flw_refusal_status(&refusal) != FALLOW_OK) {
        return refusal.status;
    }
    bool is_before = params.map_mode == FALLOW_ALIGN_MAP_BEFORE;
    struct flw_align_blocks_args args = {
        .ids = {.ids = params.ids,
                .map = is_before ? params.expert_map : NULL,
                .count = params.batched ? 0 : params.count,
                .buckets = buffers.buckets,
                .map_count = is_before ? params.map_count : buffers.buckets,
                .shift = params.sorts_invalid,
                .is_i64 = params.ids_dtype == FALLOW_I64,
                .is_vector = (uintptr_t)params.ids % 16 == 0},
        .batch_counts = params.batched ? params.batch_counts : NULL,
        .block_map = params.map_mode == FALLOW_ALIGN_MAP_AFTER ? params.expert_map : NULL,
        .sorted_ids = params.sorted_ids,
        .expert_ids = params.expert_ids,
        .padded_count = params.padded_count,
        .flags = params.flags,
        .capacity = params.capacity,
        .blocks = buffers.blocks,
        .batch_tokens = params.batched ? params.count : 0,
        .sentinel = (int32_t)(params.batched ? params.count * params.experts : params.count),
        .block_size = params.block_size,
        .pad_expert_id = params.pad == FALLOW_ALIGN_PAD_ZERO ? 0 : -1,
        .writes_pad = params.pad != FALLOW_ALIGN_PAD_LEAVE,
        .leaves_tail = params.sorts_invalid};
    struct flw_grid grid = {.blocks_x = flw_expert_cut(&args.ids, params.capacity),
                            .threads = FLW_EXPERT_THREADS};
    grid.shared_bytes = (unsigned)flw_expert_shared_bytes(args.ids.buckets, args.ids.rank_warps);
    return flw_kernels_launch(kernels, FLW_KERNEL_align_blocks, grid, &args, stream);
}
