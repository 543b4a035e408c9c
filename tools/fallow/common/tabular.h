/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: tables for people: names on the left, cells on the right of their columns, in as many parts below each
 * other as the width asks for. Does not: know what is in a cell; figures.h writes numbers.
 */
#ifndef FLW_TOOL_TABULAR_H
#define FLW_TOOL_TABULAR_H

#include <stddef.h>
#include <stdio.h>

#define FLW_TABLE_CELL_BYTES 224 /* as long as a policy with its settings */

typedef char flw_table_cell[FLW_TABLE_CELL_BYTES];

struct flw_table {
    size_t column_count;            /* the first has the names */
    size_t head_count;              /* rows that every part begins with */
    size_t row_count, row_capacity; /* these too */
    flw_table_cell *cells;          /* row by row */
    const char **styles;            /* of rows: a change of colour, or NULL; borrowed */
    size_t style_capacity;
};

/* A row of empty cells, a heading as long as there are fewer than head_count; to be filled before the next. */
flw_table_cell *flw_table_add(struct flw_table *table, const char *style);

/* A part has the names, and as many columns as fit; the next part the others. A name too long for a third of
 * the width has a line of its own. */
void flw_table_print(const struct flw_table *table, size_t width, FILE *out);

void flw_table_finish(struct flw_table *table);

#endif
