/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the public calls of flashmla_schedule: checks, needs, the launch.
 * Does not: compute; flashmla_schedule_twin.c is the definition, flashmla_schedule.cu the kernel.
 */
#include "mla/flashmla_schedule.h"

#include "common/library.h"
#include "common/refusal.h"
#include "fallow/mla.h"

enum {
    BLOCK_SIZE = 64,
    OVERHEAD_BLOCKS = 5,
    QUERY_TILE = 64
};

int32_t fallow_mla_flashmla_parts(int32_t multiprocessors, int32_t heads_k, int32_t heads_q,
                                  int32_t queries)
{
    if (multiprocessors < 1 || heads_k < 1 || heads_q < 1 || queries < 1 ||
        heads_q % heads_k != 0) {
        return 0;
    }
    int64_t rows = (int64_t)queries * heads_q / heads_k;
    int64_t parts = multiprocessors / heads_k / ((rows + QUERY_TILE - 1) / QUERY_TILE);
    return parts < 1 ? 1 : (int32_t)parts;
}

/* Check shapes; replace zeros by defaults. */
static void check_shape(struct flw_refusal *refusal, fallow_flashmla_schedule_params *params)
{
    params->block_size = params->block_size == 0 ? BLOCK_SIZE : params->block_size;
    flw_refusal_count(refusal, "batch", params->batch, 0, 65536);
    flw_refusal_count(refusal, "parts", params->parts, 1, FLW_FLASHMLA_SCHEDULE_PARTS);
    flw_refusal_count(refusal, "block_size", params->block_size, 1, INT32_MAX);
    flw_refusal_count(refusal, "overhead_blocks", params->overhead_blocks, -1, 65536);
    params->overhead_blocks = params->overhead_blocks == 0    ? OVERHEAD_BLOCKS
                              : params->overhead_blocks == -1 ? 0
                                                              : params->overhead_blocks;
}

struct buffers {
    uint64_t lengths_bytes, rows_bytes, splits_bytes;
};

static struct buffers measure(const fallow_flashmla_schedule_params *params)
{
    return (struct buffers){.lengths_bytes = (uint64_t)params->batch * 4,
                            .rows_bytes = (uint64_t)params->parts * FLW_FLASHMLA_SCHEDULE_ROW * 4,
                            .splits_bytes = ((uint64_t)params->batch + 1) * 4};
}

fallow_status fallow_mla_flashmla_schedule_query(const fallow_flashmla_schedule_params *caller,
                                                 fallow_workspace_need *out_need)
{
    struct flw_refusal refusal;
    fallow_flashmla_schedule_params params;
    fallow_workspace_need need = {.launch_count = 1};
    flw_refusal_begin_query(&refusal, "fallow_mla_flashmla_schedule_query");
    flw_refusal_copy(&refusal, &params, sizeof params, caller);
    check_shape(&refusal, &params);
    if (refusal.status != FALLOW_OK) {
        return refusal.status;
    }
    struct buffers buffers = measure(&params);
    flw_need_add(&need, "tile_metadata", buffers.rows_bytes, 16, FALLOW_INIT_DIRTY);
    flw_need_add(&need, "num_splits", buffers.splits_bytes, 4, FALLOW_INIT_VALID_TAIL);
    need.read_bytes = buffers.lengths_bytes;
    need.write_bytes = buffers.rows_bytes + buffers.splits_bytes;
    return flw_refusal_give_need(&refusal, out_need, &need);
}

fallow_status fallow_mla_flashmla_schedule(fallow_kernels *kernels,
                                           const fallow_flashmla_schedule_params *caller,
                                           fallow_stream stream)
{
    struct flw_refusal refusal;
    fallow_flashmla_schedule_params params;
    flw_refusal_begin(&refusal, kernels, "fallow_mla_flashmla_schedule");
    flw_refusal_copy(&refusal, &params, sizeof params, caller);
    check_shape(&refusal, &params);
    if (refusal.status != FALLOW_OK) {
        return refusal.status;
    }
    struct buffers buffers = measure(&params);
    flw_refusal_input(&refusal, "lengths", params.lengths, buffers.lengths_bytes, 4);
    flw_refusal_optional_input(&refusal, "valid_count", params.valid_count, 4, 4);
    flw_refusal_output(&refusal, "tile_metadata", params.tile_metadata, buffers.rows_bytes, 16);
    flw_refusal_output(&refusal, "num_splits", params.num_splits, buffers.splits_bytes, 4);
    flw_refusal_optional_output(&refusal, "flags", params.flags, 4, 4);
    if (flw_refusal_status(&refusal) != FALLOW_OK) {
        return refusal.status;
    }
    struct flw_flashmla_schedule_args args = {.lengths = params.lengths,
                                              .valid_count = params.valid_count,
                                              .tile_metadata = params.tile_metadata,
                                              .num_splits = params.num_splits,
                                              .flags = params.flags,
                                              .batch = params.batch,
                                              .parts = params.parts,
                                              .block_size = params.block_size,
                                              .overhead = params.overhead_blocks};
    struct flw_grid grid = {.blocks_x = 1, .threads = FLW_FLASHMLA_SCHEDULE_THREADS};
    return flw_kernels_launch(kernels, FLW_KERNEL_flashmla_schedule, grid, &args, stream);
}
