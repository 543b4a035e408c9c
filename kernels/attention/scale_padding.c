/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the public calls of scale_padding: checks, needs, the launch.
 * Does not: compute; scale_padding_twin.c is the definition, scale_padding.cu the kernel.
 */
#include "attention/scale_padding.h"

#include "common/library.h"
#include "common/refusal.h"
#include "fallow/attention.h"

struct tiles {
    int64_t rows, columns; /* in tiles of a group */
    uint64_t bytes;        /* of all groups */
};

/* Check shapes; replace zeros by defaults. */
static struct tiles check_shape(struct flw_refusal *refusal, fallow_scale_padding_params *params)
{
    params->groups = params->groups == 0 ? 1 : params->groups;
    flw_refusal_count(refusal, "groups", params->groups, 1, 65535);
    flw_refusal_count(refusal, "rows", params->rows, 0, 1 << 30);
    flw_refusal_count(refusal, "columns", params->columns, 1, 1 << 20);
    flw_refusal_count(refusal, "fills_capacity", params->fills_capacity, 0, 1);
    if (refusal->status != FALLOW_OK) {
        return (struct tiles){0};
    }
    struct tiles tiles = {.rows = flw_grid_blocks(params->rows, FLW_SCALE_TILE_ROWS),
                          .columns = flw_grid_blocks(params->columns, FLW_SCALE_TILE_COLUMNS)};
    flw_refusal_count(refusal, "rows x columns, in tiles", tiles.rows * tiles.columns, 0,
                      INT32_MAX);
    tiles.bytes = (uint64_t)flw_refusal_product(refusal, "scales", tiles.rows * tiles.columns,
                                                (int64_t)params->groups * FLW_SCALE_TILE_BYTES);
    return tiles;
}

fallow_status fallow_attention_scale_padding_query(const fallow_scale_padding_params *caller,
                                                   fallow_workspace_need *out_need)
{
    struct flw_refusal refusal;
    fallow_scale_padding_params params;
    fallow_workspace_need need = {.launch_count = 1};
    flw_refusal_begin_query(&refusal, "fallow_attention_scale_padding_query");
    flw_refusal_copy(&refusal, &params, sizeof params, caller);
    struct tiles tiles = check_shape(&refusal, &params);
    if (refusal.status != FALLOW_OK) {
        return refusal.status;
    }
    uint64_t live = (uint64_t)params.rows * (uint64_t)params.columns;
    flw_need_add(&need, "scales", tiles.bytes, 16, FALLOW_INIT_NEUTRAL_TAIL);
    need.read_bytes = (uint64_t)params.groups * 4;
    need.write_bytes = tiles.bytes - (uint64_t)params.groups * live;
    return flw_refusal_give_need(&refusal, out_need, &need);
}

fallow_status fallow_attention_scale_padding(fallow_kernels *kernels,
                                             const fallow_scale_padding_params *caller,
                                             fallow_stream stream)
{
    struct flw_refusal refusal;
    fallow_scale_padding_params params;
    flw_refusal_begin(&refusal, kernels, "fallow_attention_scale_padding");
    flw_refusal_copy(&refusal, &params, sizeof params, caller);
    struct tiles tiles = check_shape(&refusal, &params);
    flw_refusal_optional_input(&refusal, "row_counts", params.row_counts,
                               (uint64_t)params.groups * 4, 4);
    flw_refusal_output(&refusal, "scales", params.scales, tiles.bytes, 16);
    if (flw_refusal_status(&refusal) != FALLOW_OK) {
        return refusal.status;
    }
    struct flw_scale_padding_args args = {.scales = params.scales,
                                          .row_counts = params.row_counts,
                                          .groups = params.groups,
                                          .rows = params.rows,
                                          .columns = params.columns,
                                          .row_tiles = (uint32_t)tiles.rows,
                                          .column_tiles = (uint32_t)tiles.columns,
                                          .fills_capacity = params.fills_capacity};
    struct flw_grid grid = {.blocks_x =
                                flw_grid_blocks(tiles.rows * tiles.columns, FLW_SCALE_THREADS / 32),
                            .blocks_y = params.groups,
                            .threads = FLW_SCALE_THREADS};
    return flw_kernels_launch(kernels, FLW_KERNEL_scale_padding, grid, &args, stream);
}
