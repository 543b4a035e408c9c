/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the arguments of the kernel scale_padding and the twin; the address of a scale. */
#ifndef FLW_KERNELS_SCALE_PADDING_H
#define FLW_KERNELS_SCALE_PADDING_H

#include <stdint.h>

/* A tile has 128 rows of 4 scales: row r, column c at 16 (r % 32) + 4 (r / 32) + c. */
enum {
    FLW_SCALE_TILE_ROWS = 128,
    FLW_SCALE_TILE_COLUMNS = 4,
    FLW_SCALE_TILE_BYTES = 512,
    FLW_SCALE_THREADS = 256 /* eight tiles, one per warp */
};

struct flw_scale_padding_args {
    unsigned char *scales;     /* [groups, row_tiles, column_tiles, 512] */
    const int32_t *row_counts; /* [groups] or NULL */
    int32_t groups, rows, columns;
    uint32_t row_tiles, column_tiles;
    int32_t fills_capacity;
};

#endif
