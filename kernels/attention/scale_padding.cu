// SPDX-License-Identifier: Apache-2.0
//
// scale_padding: scales of rows and columns that only complete a tile are 0; scale_padding_twin.c
// is the definition.
//
// Bytes     only padding is written; 4 groups are read.
// Shape     a warp has a tile of 512 bytes, a thread 16 of it: the 4 columns of rows l, l + 32, l + 64 and
//           l + 96. If all are padding: one store; otherwise a store per row, or a byte per column.
// Aliasing  scales are written and never read.
#include "attention/scale_padding.h"
#include "common/device.cuh"

extern "C" __global__ void __launch_bounds__(FLW_SCALE_THREADS)
    flw_scale_padding(const flw_scale_padding_args args)
{
    const uint32_t tile = blockIdx.x * (FLW_SCALE_THREADS / FLW_WARP) + threadIdx.x / FLW_WARP;
    const uint32_t lane = threadIdx.x % FLW_WARP, group = blockIdx.y;
    const uint32_t row_tile = tile / args.column_tiles;
    const int32_t column = (tile - row_tile * args.column_tiles) * FLW_SCALE_TILE_COLUMNS;
    const int32_t given = args.row_counts == nullptr ? args.rows : args.row_counts[group];
    const int32_t live = min(max(given, 0), args.rows);
    const uint32_t tiles = args.fills_capacity
                               ? args.row_tiles
                               : (live + FLW_SCALE_TILE_ROWS - 1) / FLW_SCALE_TILE_ROWS;
    if (row_tile >= tiles) {
        return;
    }
    const int64_t in_group = static_cast<int64_t>(args.row_tiles) * args.column_tiles;
    unsigned char *at = args.scales + (group * in_group + tile) * FLW_SCALE_TILE_BYTES + lane * 16;
    const int32_t row = row_tile * FLW_SCALE_TILE_ROWS + lane;
    if (row >= live) {
        *reinterpret_cast<uint4 *>(at) = make_uint4(0, 0, 0, 0);
        return;
    }
    const int32_t columns =
        min(args.columns - column, static_cast<int32_t>(FLW_SCALE_TILE_COLUMNS));
    for (int q = 0; q < FLW_SCALE_TILE_ROWS / FLW_WARP; q++) {
        if (row + q * FLW_WARP >= live) {
            *reinterpret_cast<uint32_t *>(at + q * 4) = 0;
        } else {
            for (int c = columns; c < FLW_SCALE_TILE_COLUMNS; c++) {
                at[q * 4 + c] = 0;
            }
        }
    }
}
