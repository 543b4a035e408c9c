/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: checks, needs and launch shapes of tables with rows of several lengths (table.h).
 * Independent of the contents of a row.
 */
#ifndef FLW_KERNELS_TABLE_CALL_H
#define FLW_KERNELS_TABLE_CALL_H

#include "common/library.h"
#include "common/refusal.h"
#include "common/table.h"

/* A table as described by a call. */
struct flw_table {
    int64_t rows, cols, ld;
    int32_t pad_len;
    uint8_t bounded;
};

/* Check the table's parameters: cols, ld (0 becomes cols), pad_len, bounded. The module checks the
 * rows. */
void flw_table_check(struct flw_refusal *refusal, struct flw_table *table);

/* Check the outputs page_table, cache_seqlens, cu_k, max_length and flags. */
void flw_table_check_outputs(struct flw_refusal *refusal, const struct flw_table *table,
                             int32_t *page_table, const struct flw_table_lengths *lengths);

/* Add the same outputs to a query's need, and the bytes written to them. */
void flw_table_need(fallow_workspace_need *need, const struct flw_table *table);

/* True if the table can be written 16 bytes at a time. The last columns need not fill 16 bytes. */
bool flw_table_is_vector(const int32_t *base, int64_t ld);

/* Return the blocks for one row: enough that few rows fill a device, few enough that short rows
 * cost nothing. */
uint32_t flw_table_blocks_per_row(const struct flw_table *table);

/* Return the grid: one block for the lengths, and the rows' blocks. */
struct flw_grid flw_table_grid(const struct flw_table *table);

#endif
