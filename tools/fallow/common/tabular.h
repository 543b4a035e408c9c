/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: tables for people: columns of text, counts, sizes and reals under headings, split into several parts below each
 * other if the width requires it.
 * Does not: format figures (figures.h).
 */
#ifndef FLW_TOOL_TABULAR_H
#define FLW_TOOL_TABULAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "common/figures.h"

#define FLW_TABLE_CELL_BYTES 224 /* room for a policy with its settings */

typedef char flw_table_cell[FLW_TABLE_CELL_BYTES];

enum flw_column_kind {
    FLW_COLUMN_TEXT, /* aligned left; control characters become question marks */
    FLW_COLUMN_CELL, /* text aligned right */
    FLW_COLUMN_COUNT,
    FLW_COLUMN_BYTES, /* in the table's unit, which is added to the heading */
    FLW_COLUMN_REAL   /* NAN is "-" */
};

struct flw_column {
    const char *heading; /* lines divided by \n */
    enum flw_column_kind kind;
    int decimals; /* of a real */
    bool is_signed;
};

/* A value; the column's kind selects the member. NULL prints "-". */
union flw_value {
    const char *text;
    uint64_t count;
    double real;
};

struct flw_table {
    const struct flw_column *columns; /* NULL: the first is text, the others are aligned right */
    struct flw_unit unit;
    size_t column_count;
    size_t head_count;              /* rows that are repeated in each part */
    size_t row_count, row_capacity; /* includes these */
    flw_table_cell *cells;          /* row by row */
    const char **styles;            /* of rows: a change of colour, or NULL; borrowed */
    size_t style_capacity;
};

/* Begin a table with its headings. `columns` are borrowed. */
void flw_table_begin(struct flw_table *table, const struct flw_column *columns, size_t count,
                     struct flw_unit unit);

/* Add a row with a value for each column. */
void flw_table_row(struct flw_table *table, const char *style, const union flw_value *values);

/* Add a row of empty cells, a heading if there are fewer than head_count. Fill the row before the next call. */
flw_table_cell *flw_table_add(struct flw_table *table, const char *style);

/* Print the table in parts. Each part has the first column and as many others as fit. In the first column, a text
 * longer than a third of the width has a line of its own. */
void flw_table_print(const struct flw_table *table, size_t width, FILE *out);

void flw_table_finish(struct flw_table *table);

#endif
