/* SPDX-License-Identifier: Apache-2.0 */
#include "common/tabular.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/bits.h"

#include "common/command.h"
#include "common/terminal.h"
#include "common/tool_host.h"

#define NAME_LEAST 24 /* longer names have a row of their own */
#define GAP        2

/* ---- rows ---- */

flw_table_cell *flw_table_add(struct flw_table *table, const char *style)
{
    size_t row = table->row_count++;
    table->cells = flw_host_grow(table->cells, &table->row_capacity, table->row_count,
                                 table->column_count * sizeof *table->cells);
    table->styles = flw_host_grow(table->styles, &table->style_capacity, table->row_count,
                                  sizeof *table->styles);
    table->styles[row] = style;
    return table->cells + row * table->column_count;
}

static size_t count_lines(const char *heading)
{
    size_t count = 1;
    for (; *heading != '\0'; heading++) {
        count += *heading == '\n';
    }
    return count;
}

/* Fill a heading. A heading with fewer lines than others begins further down. */
static void fill_heading(const struct flw_table *table, size_t column)
{
    const char *line = table->columns[column].heading;
    for (size_t row = table->head_count - count_lines(line);; row++) {
        char *cell = table->cells[row * table->column_count + column];
        size_t length = strcspn(line, "\n");
        bool is_last = line[length] == '\0';
        bool has_unit = is_last && table->columns[column].kind == FLW_COLUMN_BYTES;
        snprintf(cell, FLW_TABLE_CELL_BYTES, "%.*s%s%s", (int)length, line,
                 has_unit && length != 0 ? " " : "", has_unit ? table->unit.name : "");
        if (is_last) {
            return;
        }
        line += length + 1;
    }
}

void flw_table_begin(struct flw_table *table, const struct flw_column *columns, size_t count,
                     struct flw_unit unit)
{
    *table = (struct flw_table){.columns = columns, .column_count = count, .unit = unit};
    for (size_t c = 0; c < count; c++) {
        table->head_count = flw_max(table->head_count, count_lines(columns[c].heading));
    }
    for (size_t row = 0; row < table->head_count; row++) {
        (void)flw_table_add(table, NULL);
    }
    for (size_t c = 0; c < count; c++) {
        fill_heading(table, c);
    }
}

static void fill_cell(const struct flw_table *table, const struct flw_column *column,
                      union flw_value value, char *out)
{
    switch (column->kind) {
    case FLW_COLUMN_TEXT:
    case FLW_COLUMN_CELL:
        snprintf(out, FLW_TABLE_CELL_BYTES, "%s", value.text == NULL ? "-" : value.text);
        flw_make_plain(out);
        break;
    case FLW_COLUMN_COUNT:
        (void)flw_format_count(value.count, out);
        break;
    case FLW_COLUMN_BYTES:
        (void)flw_format_bytes(value.count, table->unit, out);
        break;
    case FLW_COLUMN_REAL:
        if (column->decimals == 0 && !column->is_signed && value.real >= 0) {
            (void)flw_format_count((uint64_t)(value.real + 0.5), out);
            break;
        }
        snprintf(out, FLW_TABLE_CELL_BYTES,
                 isnan(value.real)   ? "-"
                 : column->is_signed ? "%+.*f"
                                     : "%.*f",
                 column->decimals, value.real);
        break;
    }
}

void flw_table_row(struct flw_table *table, const char *style, const union flw_value *values)
{
    flw_table_cell *cells = flw_table_add(table, style);
    for (size_t c = 0; c < table->column_count; c++) {
        fill_cell(table, &table->columns[c], values[c], cells[c]);
    }
}

void flw_table_finish(struct flw_table *table)
{
    flw_host_free(table->cells);
    flw_host_free(table->styles);
    *table = (struct flw_table){0};
}

/* ---- printing ---- */

static const char *cell_at(const struct flw_table *table, size_t row, size_t column)
{
    return table->cells[row * table->column_count + column];
}

static bool is_text(const struct flw_table *table, size_t column)
{
    return table->columns == NULL ? column == 0 : table->columns[column].kind == FLW_COLUMN_TEXT;
}

/* Return the width of a column, over cells of at most `most` characters. */
static size_t column_width(const struct flw_table *table, size_t column, size_t most)
{
    size_t widest = 0;
    for (size_t row = 0; row < table->row_count; row++) {
        size_t width = flw_terminal_width(cell_at(table, row, column));
        widest = width <= most ? flw_max(widest, width) : widest;
    }
    return widest;
}

/* Print the first column, and those from `first` on. Trailing blanks are left out. */
static void print_row(const struct flw_table *table, size_t row, size_t first, size_t end,
                      const size_t *widths, FILE *out)
{
    const char *style = table->styles[row];
    size_t blanks = 0;
    fputs(style != NULL ? style : "", out);
    for (size_t c = 0; c < end; c = c == 0 ? first : c + 1) {
        const char *cell = cell_at(table, row, c);
        size_t width = flw_terminal_width(cell);
        bool is_alone = width > widths[c];
        size_t rest = is_alone ? widths[c] : widths[c] - width;
        blanks += (c == 0 ? 0 : GAP) + (is_text(table, c) ? 0 : rest);
        if (width != 0) {
            fprintf(out, "%*s%s%s", (int)blanks, "", cell, is_alone ? "\n" : "");
            blanks = 0;
        }
        blanks += is_text(table, c) ? rest : 0;
    }
    fputs(style != NULL ? "\033[0m\n" : "\n", out);
}

/* True if a line of the headings has nothing in this part. */
static bool is_empty(const struct flw_table *table, size_t row, size_t first, size_t end)
{
    bool is = cell_at(table, row, 0)[0] == '\0';
    for (size_t c = first; c < end; c++) {
        is &= cell_at(table, row, c)[0] == '\0';
    }
    return is;
}

void flw_table_print(const struct flw_table *table, size_t width, FILE *out)
{
    size_t *widths = flw_host_alloc(table->column_count, sizeof *widths);
    for (size_t c = 0; c < table->column_count; c++) {
        bool is_name = c == 0 && is_text(table, c);
        widths[c] = column_width(table, c, is_name ? flw_max(NAME_LEAST, width / 3) : SIZE_MAX);
    }
    for (size_t first = 1, end; first < table->column_count; first = end) {
        size_t used = widths[0];
        for (end = first;
             end < table->column_count && (end == first || used + GAP + widths[end] <= width);
             end++) {
            used += GAP + widths[end];
        }
        fputs(first > 1 ? "\n" : "", out);
        for (size_t row = 0; row < table->row_count; row++) {
            if (row < table->head_count && is_empty(table, row, first, end)) {
                continue;
            }
            print_row(table, row, first, end, widths, out);
        }
    }
    flw_host_free(widths);
}
