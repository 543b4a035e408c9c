/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: tables for people: columns of text, counts, sizes and reals under headings, split into several parts below each
 * other if the width requires it.
 * Does not: format figures (figures.h).
 *
 * A table begins as {.unit = ...}. Each row is flw_table_row and a call for each cell, from left to right. The first row
 * sets the headings; the lines of a heading are divided by \n.
 */
#ifndef FLW_TOOL_TABULAR_H
#define FLW_TOOL_TABULAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "common/figures.h"

#define FLW_TABLE_CELL_BYTES 224 /* room for a policy with its settings */

typedef char flw_table_text[FLW_TABLE_CELL_BYTES];

struct flw_table_column {
    flw_table_text heading;
    bool is_left; /* aligned left */
};

struct flw_table {
    struct flw_unit unit; /* of bytes */
    struct flw_table_column *columns;
    size_t column_count, column_capacity;
    flw_table_text *cells; /* row by row */
    size_t cell_count, cell_capacity;
    const char **styles; /* of rows: a change of colour, or NULL; borrowed */
    size_t row_count, style_capacity;
    size_t head_count; /* lines of the headings, when printed */
};

/* Begin a row. `style`: a change of colour, or NULL. */
void flw_table_row(struct flw_table *table, const char *style);

/* Add a cell. Texts: control characters become question marks, NULL is "-". A name is aligned left, all others right.
 * The heading of bytes ends with the table's unit. A count or bytes not applicable, and NAN, are "-". */
void flw_table_name(struct flw_table *table, const char *heading, const char *text);
void flw_table_cell(struct flw_table *table, const char *heading, const char *text);
void flw_table_count(struct flw_table *table, const char *heading, uint64_t count);
void flw_table_bytes(struct flw_table *table, const char *heading, uint64_t bytes);
void flw_table_real(struct flw_table *table, const char *heading, int decimals, double real);
/* A real with its sign. */
void flw_table_change(struct flw_table *table, const char *heading, int decimals, double real);

/* Print the table for the width of the terminal in parts, and free it. Each part has the first column and as many others as fit. In the first column,
 * a text longer than a third of the width has a line of its own. */
void flw_table_print(struct flw_table *table, FILE *out);

#endif
