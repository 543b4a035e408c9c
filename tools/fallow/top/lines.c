/* SPDX-License-Identifier: Apache-2.0 */
#include "top/lines.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "common/tool_host.h"

/* ---- numbers */

/* Never 100 % where one missed. */
const char *flw_top_share(char text[FLW_TOP_TEXT_BYTES], uint64_t part, uint64_t whole)
{
    if (whole == 0) {
        return "-";
    }
    double percent = 100 * (double)part / (double)whole;
    percent = part < whole && percent > 99.99 ? 99.99 : percent;
    snprintf(text, FLW_TOP_TEXT_BYTES, "%.2f %%", percent);
    return text;
}

/* ---- order */

const char *flw_top_sort_name(enum flw_top_sort sort)
{
    static const char *const names[FLW_TOP_SORTS] = {"number", "reserved", "live", "cached",
                                                     "hits"};
    return names[sort];
}

static int compare_rows(const void *left, const void *right)
{
    const struct flw_top_row *a = left, *b = right;
    if (a->key != b->key) {
        return a->key < b->key ? 1 : -1;
    }
    return a->index < b->index ? -1 : 1;
}

uint64_t flw_top_share_key(uint64_t part, uint64_t whole)
{
    return whole == 0 ? 0 : (uint64_t)((double)part / (double)whole * 1e9);
}

/* What four columns of some row are sorted by. */
uint64_t flw_top_key(enum flw_top_sort sort, uint64_t reserved_bytes, uint64_t live_bytes,
                     uint64_t cached_bytes, uint64_t hit_share)
{
    const uint64_t keys[FLW_TOP_SORTS] = {0, reserved_bytes, live_bytes, cached_bytes, hit_share};
    return keys[sort];
}

void flw_top_order(struct flw_top_row *rows, uint32_t count, uint32_t *order)
{
    if (count > 0) {
        qsort(rows, count, sizeof *rows, compare_rows);
    }
    for (uint32_t i = 0; i < count; i++) {
        order[i] = rows[i].index;
    }
}

static uint64_t pool_key(const uint64_t *value, enum flw_top_sort sort)
{
    return flw_top_key(sort, value[FLW_VALUE_reserved_bytes], value[FLW_VALUE_live_bytes],
                       value[FLW_VALUE_cached_bytes],
                       flw_top_share_key(value[FLW_VALUE_hit_count], value[FLW_VALUE_alloc_count]));
}

void flw_top_order_pools(const struct flw_top_look *look, enum flw_top_sort sort, uint32_t *order)
{
    char label[FLW_TOP_LABEL_BYTES];
    struct flw_top_row *rows = flw_host_alloc(look->pool_count, sizeof *rows);
    for (uint32_t i = 0; i < look->pool_count; i++) {
        rows[i] = (struct flw_top_row){pool_key(flw_top_pool(look, i, label)->value, sort), i};
    }
    flw_top_order(rows, look->pool_count, order);
    flw_host_free(rows);
}

struct flw_top_sums flw_top_sum_up(const struct flw_top_look *look)
{
    char label[FLW_TOP_LABEL_BYTES];
    struct flw_top_sums sums = {0};
    for (uint32_t i = 0; i < look->pool_count; i++) {
        const uint64_t *value = flw_top_pool(look, i, label)->value;
        sums.reserved += value[FLW_VALUE_reserved_bytes];
        sums.live += value[FLW_VALUE_live_bytes];
        sums.cached += value[FLW_VALUE_cached_bytes];
        sums.hits += value[FLW_VALUE_hit_count];
        sums.allocs += value[FLW_VALUE_alloc_count];
    }
    return sums;
}

void flw_top_order_looks(const struct flw_top_look *looks, uint32_t count, enum flw_top_sort sort,
                         uint32_t *order)
{
    struct flw_top_row *rows = flw_host_alloc(count, sizeof *rows);
    for (uint32_t i = 0; i < count; i++) {
        struct flw_top_sums sums = flw_top_sum_up(&looks[i]);
        rows[i] = (struct flw_top_row){flw_top_key(sort, sums.reserved, sums.live, sums.cached,
                                                   flw_top_share_key(sums.hits, sums.allocs)),
                                       i};
    }
    flw_top_order(rows, count, order);
    flw_host_free(rows);
}

/* ---- lines */

/* To so many columns: a letter may have several bytes. */
static void cut(char *line, uint32_t width)
{
    for (uint32_t columns = 0; *line != '\0'; line++) {
        bool begins_letter = ((unsigned char)*line & 0xc0) != 0x80;
        if (begins_letter && columns++ == width) {
            *line = '\0';
            return;
        }
    }
}

void flw_top_add_line(struct flw_top_page *page, enum flw_top_style style, const char *format, ...)
{
    char line[FLW_TOP_LINE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    cut(line, page->width);
    for (size_t end = strlen(line); end > 0 && line[end - 1] == ' '; end--) {
        line[end - 1] = '\0';
    }
    page->put(page, style, line);
}
