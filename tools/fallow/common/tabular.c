/* SPDX-License-Identifier: Apache-2.0 */
#include "common/tabular.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/bits.h"

#include "common/figures.h"
#include "common/terminal.h"
#include "common/tool_host.h"

#define NAME_LEAST 24 /* a name as long as that stands in its row */
#define GAP        2

/* ---- figures ---- */

struct flw_unit flw_unit_choose(uint64_t peak_bytes)
{
    struct flw_unit mib = {"MiB", FLW_MIB};
    struct flw_unit kib = {"KiB", FLW_KIB};
    return peak_bytes < 4 * FLW_MIB ? kib : mib;
}

const char *flw_plural(uint64_t count)
{
    return count == 1 ? "" : "s";
}

const char *flw_format_count(uint64_t value, char *out)
{
    char digits[24], *at = out;
    int length = snprintf(digits, sizeof digits, "%" PRIu64, value);
    for (int i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0) {
            *at++ = ',';
        }
        *at++ = digits[i];
    }
    *at = '\0';
    return out;
}

void flw_format_optional(uint64_t value, char *out)
{
    if (value == FLW_NOT_APPLICABLE) {
        strcpy(out, "-");
    } else {
        flw_format_count(value, out);
    }
}

void flw_format_bytes(uint64_t bytes, struct flw_unit unit, char *out)
{
    flw_format_optional(bytes == FLW_NOT_APPLICABLE ? bytes : (bytes + unit.bytes / 2) / unit.bytes,
                        out);
}

/* ---- tables ---- */

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

void flw_table_finish(struct flw_table *table)
{
    flw_host_free(table->cells);
    flw_host_free(table->styles);
    *table = (struct flw_table){0};
}

static const char *cell_at(const struct flw_table *table, size_t row, size_t column)
{
    return table->cells[row * table->column_count + column];
}

/* Of a column, of cells that take at most that much. */
static size_t column_width(const struct flw_table *table, size_t column, size_t most)
{
    size_t widest = 0;
    for (size_t row = 0; row < table->row_count; row++) {
        size_t width = flw_terminal_width(cell_at(table, row, column));
        widest = width <= most ? flw_max(widest, width) : widest;
    }
    return widest;
}

/* Blanks are written when something stands behind them. */
static void print_row(const struct flw_table *table, size_t row, size_t first, size_t end,
                      const size_t *widths, FILE *out)
{
    const char *style = table->styles[row], *name = cell_at(table, row, 0);
    size_t name_width = flw_terminal_width(name), blanks;
    fputs(style != NULL ? style : "", out);
    fputs(name, out);
    if (name_width > widths[0]) {
        fputc('\n', out);
        name_width = 0;
    }
    blanks = widths[0] - name_width;
    for (size_t c = first; c < end; c++) {
        const char *cell = cell_at(table, row, c);
        size_t width = flw_terminal_width(cell);
        blanks += GAP + widths[c] - width;
        if (width != 0) {
            fprintf(out, "%*s%s", (int)blanks, "", cell);
            blanks = 0;
        }
    }
    fputs(style != NULL ? "\033[0m\n" : "\n", out);
}

void flw_table_print(const struct flw_table *table, size_t width, FILE *out)
{
    size_t *widths = flw_host_alloc(table->column_count, sizeof *widths);
    widths[0] = column_width(table, 0, flw_max(NAME_LEAST, width / 3));
    for (size_t c = 1; c < table->column_count; c++) {
        widths[c] = column_width(table, c, SIZE_MAX);
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
            print_row(table, row, first, end, widths, out);
        }
    }
    flw_host_free(widths);
}
