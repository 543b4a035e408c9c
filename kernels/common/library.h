/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: loading kernels, each before the first launch, and launching a kernel on a stream.
 * Does not: check parameters (refusal.h), know the computation of a kernel.
 * Synchronization: fields set by create are immutable afterwards; a function is written once, by
 * the thread that loads it. */
#ifndef FLW_KERNELS_LIBRARY_H
#define FLW_KERNELS_LIBRARY_H

#include <stdbool.h>

#include "common/kernel_list.h"
#include "fallow/kernels.h"

enum flw_kernel {
#define X(name) FLW_KERNEL_##name,
    FLW_KERNEL_LIST(X)
#undef X
    FLW_KERNEL_COUNT
};

/* The shape of a launch. blocks_x 0: nothing to do, OK; above 2^31 - 1, or y above 65,535:
 * refused. */
struct flw_grid {
    int64_t blocks_x, blocks_y; /* y: 0 = 1 */
    unsigned threads;           /* a block, in x */
    unsigned shared_bytes;      /* dynamic */
};

/* Store the thread's message for fallow_kernels_last_error. */
void flw_kernels_refuse(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Launch a kernel on a stream, loading it first if necessary. `args` is the flw_<name>_args;
 * copied. DRIVER, INVALID_STREAM, NOT_SUPPORTED, INVALID_ARGUMENT (the shape), CAPTURING (not
 * loaded yet, and the stream is being captured), each with a message. */
fallow_status flw_kernels_launch(fallow_kernels *kernels, enum flw_kernel kernel,
                                 struct flw_grid grid, const void *args, fallow_stream stream);

/* Return the blocks of `per_block` items that hold `count`. */
static inline int64_t flw_grid_blocks(int64_t count, int64_t per_block)
{
    return (count + per_block - 1) / per_block;
}

/* True if rows that begin at `base`, `stride` elements apart and `width` long, can be moved 16
 * bytes at a time. */
static inline bool flw_is_vector_row(const void *base, int64_t stride, int64_t width,
                                     size_t element_bytes)
{
    return (uintptr_t)base % 16 == 0 && (uint64_t)stride * element_bytes % 16 == 0 &&
           (uint64_t)width * element_bytes % 16 == 0;
}

/* Return the steps of a row: of 16 bytes, or of an element. */
static inline int64_t flw_row_packs(int64_t width, size_t element_bytes, bool is_vector)
{
    return is_vector ? width * (int64_t)element_bytes / 16 : width;
}

/* A launch with each block in one row: a thread takes 16 bytes, or an element. */
struct flw_row_grid {
    struct flw_grid grid;
    uint32_t blocks_per_row;
};

static inline struct flw_row_grid flw_grid_rows(int64_t rows, int64_t width, size_t element_bytes,
                                                bool is_vector, unsigned most_threads)
{
    int64_t packs = flw_row_packs(width, element_bytes, is_vector);
    packs = packs < 1 ? 1 : packs;
    unsigned threads =
        packs < most_threads ? (unsigned)flw_grid_blocks(packs, 32) * 32 : most_threads;
    int64_t blocks = flw_grid_blocks(packs, threads);
    return (struct flw_row_grid){.grid = {.blocks_x = rows * blocks, .threads = threads},
                                 .blocks_per_row = (uint32_t)blocks};
}

/* A block over several rows: `columns` threads share a row, and `rows` rows, a power of two, are
 * processed at once. A thread then keeps the column: one 32-bit division per thread. */
struct flw_tile {
    int32_t columns, rows;
};

static inline struct flw_tile flw_tile_of(int32_t row_units, int32_t most_rows,
                                          int32_t most_threads)
{
    struct flw_tile tile = {.columns = row_units < most_threads ? row_units : most_threads,
                            .rows = 1};
    while (tile.rows * 2 <= most_rows && tile.rows * 2 * tile.columns <= most_threads) {
        tile.rows *= 2;
    }
    return tile;
}

#endif
