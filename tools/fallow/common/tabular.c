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

/* ---- cells ---- */

void flw_table_row(struct flw_table *table, const char *style)
{
    FLW_HOST_ADD(table->styles, table->row_count, table->style_capacity, style);
}

/* Add a cell and, in the first row, its column. */
static char *add_cell(struct flw_table *table, const char *heading, bool is_left)
{
    if (table->row_count == 1) {
        size_t column = table->column_count++;
        FLW_HOST_GROW(table->columns, table->column_capacity, table->column_count);
        table->columns[column].is_left = is_left;
        snprintf(table->columns[column].heading, sizeof(flw_table_text), "%s", heading);
    }
    FLW_HOST_GROW(table->cells, table->cell_capacity, table->cell_count + 1);
    return table->cells[table->cell_count++];
}

static void add_text(struct flw_table *table, const char *heading, const char *text, bool is_left)
{
    char *cell = add_cell(table, heading, is_left);
    snprintf(cell, sizeof(flw_table_text), "%s", text == NULL ? "-" : text);
    flw_make_plain(cell);
}

void flw_table_name(struct flw_table *table, const char *heading, const char *text)
{
    add_text(table, heading, text, true);
}

void flw_table_cell(struct flw_table *table, const char *heading, const char *text)
{
    add_text(table, heading, text, false);
}

void flw_table_count(struct flw_table *table, const char *heading, uint64_t count)
{
    (void)flw_format_count(count, add_cell(table, heading, false));
}

void flw_table_bytes(struct flw_table *table, const char *heading, uint64_t bytes)
{
    flw_table_text with_unit;
    size_t length = strlen(heading);
    bool begins_line = length == 0 || heading[length - 1] == '\n';
    snprintf(with_unit, sizeof with_unit, "%s%s%s", heading, begins_line ? "" : " ",
             table->unit.name);
    (void)flw_format_bytes(bytes, table->unit, add_cell(table, with_unit, false));
}

void flw_table_real(struct flw_table *table, const char *heading, int decimals, double real)
{
    char *cell = add_cell(table, heading, false);
    if (decimals == 0 && real >= 0) {
        (void)flw_format_count((uint64_t)(real + 0.5), cell);
    } else {
        snprintf(cell, sizeof(flw_table_text), isnan(real) ? "-" : "%.*f", decimals, real);
    }
}

void flw_table_change(struct flw_table *table, const char *heading, int decimals, double real)
{
    snprintf(add_cell(table, heading, false), sizeof(flw_table_text), isnan(real) ? "-" : "%+.*f",
             decimals, real);
}

/* ---- printing ---- */

static size_t count_lines(const char *heading)
{
    size_t count = 1;
    for (; *heading != '\0'; heading++) {
        count += *heading == '\n';
    }
    return count;
}

/* Return a cell. The first rows are the lines of the headings, kept in `room`. A heading with fewer lines than others
 * begins further down. */
static const char *text_at(const struct flw_table *table, size_t row, size_t column,
                           flw_table_text room)
{
    if (row >= table->head_count) {
        return table->cells[(row - table->head_count) * table->column_count + column];
    }
    const char *line = table->columns[column].heading;
    size_t above = table->head_count - count_lines(line);
    for (size_t i = above; i < row; i++) {
        line = strchr(line, '\n') + 1;
    }
    snprintf(room, sizeof(flw_table_text), "%.*s", row < above ? 0 : (int)strcspn(line, "\n"),
             line);
    return room;
}

/* Return the width of a column, over cells of at most `most` characters. */
static size_t column_width(const struct flw_table *table, size_t column, size_t most)
{
    flw_table_text room;
    size_t widest = 0;
    for (size_t row = 0; row < table->head_count + table->row_count; row++) {
        size_t width = flw_terminal_width(text_at(table, row, column, room));
        widest = width <= most ? flw_max(widest, width) : widest;
    }
    return widest;
}

/* Print the first column, and those from `first` on. Trailing blanks, and lines of headings that are empty here, are
 * left out. */
static void print_row(const struct flw_table *table, size_t row, size_t first, size_t end,
                      const size_t *widths, FILE *out)
{
    bool is_head = row < table->head_count;
    const char *style = is_head ? NULL : table->styles[row - table->head_count];
    bool is_empty = is_head;
    size_t blanks = 0;
    flw_table_text room;
    fputs(style != NULL ? style : "", out);
    for (size_t c = 0; c < end; c = c == 0 ? first : c + 1) {
        const char *cell = text_at(table, row, c, room);
        size_t width = flw_terminal_width(cell);
        bool is_alone = width > widths[c], is_left = table->columns[c].is_left;
        size_t rest = is_alone ? widths[c] : widths[c] - width;
        blanks += (c == 0 ? 0 : GAP) + (is_left ? 0 : rest);
        if (width != 0) {
            fprintf(out, "%*s%s%s", (int)blanks, "", cell, is_alone ? "\n" : "");
            blanks = 0;
            is_empty = false;
        }
        blanks += is_left ? rest : 0;
    }
    fputs(is_empty ? "" : style != NULL ? "\033[0m\n" : "\n", out);
}

void flw_table_print(struct flw_table *table, FILE *out)
{
    size_t width = flw_terminal_columns();
    FLW_LOCAL size_t *widths = flw_host_alloc(table->column_count, sizeof *widths);
    for (size_t c = 0; c < table->column_count; c++) {
        table->head_count = flw_max(table->head_count, count_lines(table->columns[c].heading));
    }
    for (size_t c = 0; c < table->column_count; c++) {
        bool is_name = c == 0 && table->columns[c].is_left;
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
        for (size_t row = 0; row < table->head_count + table->row_count; row++) {
            print_row(table, row, first, end, widths, out);
        }
    }
    flw_host_free(table->columns);
    flw_host_free(table->cells);
    flw_host_free(table->styles);
    *table = (struct flw_table){0};
}
