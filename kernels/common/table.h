/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the common arguments of tables with rows of several lengths, for kernels and twins: the
 * outputs with the length of each row.
 * Independent of the contents of a row. table_call.h checks, table_twin.h defines, table.cuh
 * computes. */
#ifndef FLW_KERNELS_TABLE_H
#define FLW_KERNELS_TABLE_H

#include <stdint.h>

enum {
    FLW_TABLE_THREADS = 256,
    FLW_TABLE_PACK = 4, /* columns of a thread at a time: 16 bytes */
    FLW_TABLE_ITEMS = 4 /* lengths of a thread, in one step of the block that sums them */
};

/* Each may be NULL: not wanted. */
struct flw_table_lengths {
    int32_t *lengths;    /* out [rows] */
    int32_t *cu;         /* out [rows + 1], the sums of the lengths, from 0 */
    int32_t *max_length; /* out [1], the largest of all rows, 0 if there are none */
    int32_t *flags;      /* in/out [1] */
};

#endif
