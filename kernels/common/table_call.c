/* SPDX-License-Identifier: Apache-2.0 */
#include "common/table_call.h"

#define BLOCKS_WANTED 8192 /* about eight waves of the largest device */

void flw_table_check(struct flw_refusal *refusal, struct flw_table *table)
{
    table->ld = table->ld == 0 ? table->cols : table->ld;
    flw_refusal_count(refusal, "cols", table->cols, 1, 1 << 30);
    flw_refusal_count(refusal, "ld", table->ld, table->cols, INT64_MAX);
    flw_refusal_count(refusal, "pad_len", table->pad_len, 0, 1);
    flw_refusal_count(refusal, "bounded", table->bounded, 0, 1);
    (void)flw_refusal_rows(refusal, "page_table", table->rows, table->ld, table->cols, 4);
}

void flw_table_check_outputs(struct flw_refusal *refusal, const struct flw_table *table,
                             int32_t *page_table, const struct flw_table_lengths *lengths)
{
    uint64_t rows = (uint64_t)table->rows;
    uint64_t bytes =
        flw_refusal_rows(refusal, "page_table", table->rows, table->ld, table->cols, 4);
    flw_refusal_output(refusal, "page_table", page_table, bytes, 4);
    flw_refusal_optional_output(refusal, "cache_seqlens", lengths->lengths, rows * 4, 4);
    flw_refusal_optional_output(refusal, "cu_k", lengths->cu, (rows + 1) * 4, 4);
    flw_refusal_optional_output(refusal, "max_length", lengths->max_length, 4, 4);
    flw_refusal_optional_output(refusal, "flags", lengths->flags, 4, 4);
}

void flw_table_need(fallow_workspace_need *need, const struct flw_table *table)
{
    uint64_t rows = (uint64_t)table->rows, cols = (uint64_t)table->cols;
    uint64_t bytes = rows == 0 ? 0 : ((rows - 1) * (uint64_t)table->ld + cols) * 4;
    flw_need_add(need, "page_table", bytes, 4,
                 table->bounded ? FALLOW_INIT_PREFIX : FALLOW_INIT_VALID_TAIL);
    flw_need_add(need, "cache_seqlens", rows * 4, 4, FALLOW_INIT_VALID_TAIL);
    flw_need_add(need, "cu_k", (rows + 1) * 4, 4, FALLOW_INIT_LEADING_ZERO);
    flw_need_add(need, "max_length", 4, 4, FALLOW_INIT_DIRTY);
    need->write_bytes = rows * cols * 4 + rows * 4 + (rows + 1) * 4 + 4;
}

bool flw_table_is_vector(const int32_t *base, int64_t ld)
{
    return flw_is_vector_row(base, ld, FLW_TABLE_PACK, sizeof *base);
}

uint32_t flw_table_blocks_per_row(const struct flw_table *table)
{
    int64_t most = flw_grid_blocks(table->cols, (int64_t)FLW_TABLE_THREADS * FLW_TABLE_PACK);
    int64_t wanted = BLOCKS_WANTED / (table->rows > 0 ? table->rows : 1);
    return (uint32_t)(wanted < 1 ? 1 : wanted < most ? wanted : most);
}

struct flw_grid flw_table_grid(const struct flw_table *table)
{
    return (struct flw_grid){.blocks_x = 1 + table->rows * flw_table_blocks_per_row(table),
                             .threads = FLW_TABLE_THREADS};
}
