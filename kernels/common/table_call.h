/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: checks, needs and launch shapes of tables with rows of several lengths (table.h).
 * Does not: know what a row holds.
 */
#ifndef FLW_KERNELS_TABLE_CALL_H
#define FLW_KERNELS_TABLE_CALL_H

#include "common/library.h"
#include "common/refusal.h"
#include "common/table.h"

/* A table as a call describes it. */
struct flw_table {
    int64_t rows, cols, ld;
    int32_t pad_len;
    uint8_t bounded;
};

/* Of the table's parameters: cols, ld (0 becomes cols), pad_len, bounded. The rows are the module's. */
void flw_table_check(struct flw_refusal *refusal, struct flw_table *table);

/* The outputs page_table, cache_seqlens, cu_k, max_length and flags. */
void flw_table_check_outputs(struct flw_refusal *refusal, const struct flw_table *table,
                             int32_t *page_table, const struct flw_table_lengths *lengths);

/* The same outputs for a query, and the bytes written to them. */
void flw_table_need(fallow_workspace_need *need, const struct flw_table *table);

/* May the table be written 16 bytes at a time? Its last columns need not fill 16 bytes. */
bool flw_table_is_vector(const int32_t *base, int64_t ld);

/* Blocks for one row: enough that few rows fill a device, few enough that short rows cost nothing. */
uint32_t flw_table_blocks_per_row(const struct flw_table *table);

/* One block for the lengths, and the rows' blocks. */
struct flw_grid flw_table_grid(const struct flw_table *table);

#endif
