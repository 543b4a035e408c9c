/* SPDX-License-Identifier: Apache-2.0
 *
 * The definition of scale_padding: scales of rows and columns that only complete a tile are 0. */
#include "common/twin.h"

static int64_t offset_of(const struct flw_scale_padding_args *args, int64_t group, int64_t row,
                         int64_t column)
{
    int64_t tile = (group * args->row_tiles + row / FLW_SCALE_TILE_ROWS) * args->column_tiles +
                   column / FLW_SCALE_TILE_COLUMNS;
    int64_t row_in_tile = row % FLW_SCALE_TILE_ROWS;
    return tile * FLW_SCALE_TILE_BYTES + row_in_tile % 32 * 16 + row_in_tile / 32 * 4 +
           column % FLW_SCALE_TILE_COLUMNS;
}

void flw_twin_scale_padding(struct flw_twin *twin, const struct flw_scale_padding_args *args)
{
    static const unsigned char zeros[FLW_SCALE_TILE_COLUMNS];
    int64_t columns = (int64_t)args->column_tiles * FLW_SCALE_TILE_COLUMNS;
    for (int64_t group = 0; group < args->groups; group++) {
        int64_t live = args->rows;
        if (args->row_counts != NULL) {
            int64_t given = flw_load_i32(twin, "row_counts", args->row_counts, group);
            live = given < 0 ? 0 : given > args->rows ? args->rows : given;
        }
        int64_t tiles = args->fills_capacity
                            ? args->row_tiles
                            : (live + FLW_SCALE_TILE_ROWS - 1) / FLW_SCALE_TILE_ROWS;
        for (int64_t row = 0; row < tiles * FLW_SCALE_TILE_ROWS; row++) {
            for (int64_t c = 0; c < columns; c += FLW_SCALE_TILE_COLUMNS) {
                int64_t first = row >= live ? c : c > args->columns ? c : args->columns;
                int64_t end = c + FLW_SCALE_TILE_COLUMNS;
                if (first < end) {
                    flw_store(twin, "scales", args->scales, offset_of(args, group, row, first),
                              zeros, (size_t)(end - first));
                }
            }
        }
    }
}
