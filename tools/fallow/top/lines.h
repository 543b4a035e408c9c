/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the lines that a page of `fallow top` is made of: figures as they stand there, lines cut to the page, the
 * order of rows, pools and processes. Does not: know what a page has.
 */
#ifndef FLW_TOOL_TOP_LINES_H
#define FLW_TOOL_TOP_LINES_H

#include "top/top.h"

#define FLW_TOP_TEXT_BYTES 32

/* "0 B", "12.3 MiB", "1023 KiB": three digits or so. In `text`, which is returned. */
const char *flw_top_bytes(char text[FLW_TOP_TEXT_BYTES], uint64_t bytes);
/* "99.12 %", or "-" of nothing. Never 100 % where one missed. */
const char *flw_top_share(char text[FLW_TOP_TEXT_BYTES], uint64_t part, uint64_t whole);

/* Cut to the page's width; left out where the page is full. */
void flw_top_add_line(struct flw_top_page *page, enum flw_top_style style, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The right text ends at the right edge. */
void flw_top_add_title(struct flw_top_page *page, const char *left, const char *right);
/* Lines that are left. */
uint32_t flw_top_room(const struct flw_top_page *page);

/* The rows [first, end) of `count` that are shown. add_rest adds a line with the number of hidden rows. */
struct flw_top_window {
    uint32_t first, end, count;
};

struct flw_top_window flw_top_window_of(struct flw_top_page *page, uint32_t count, uint32_t most,
                                        uint32_t skip);
void flw_top_add_rest(struct flw_top_page *page, struct flw_top_window window, const char *what);

struct flw_top_row {
    uint64_t key; /* the most comes first */
    uint32_t index;
};

uint64_t flw_top_share_key(uint64_t part, uint64_t whole);
/* That of the sort. */
uint64_t flw_top_key(enum flw_top_sort sort, uint64_t reserved_bytes, uint64_t live_bytes,
                     uint64_t cached_bytes, uint64_t hit_share);
/* The rows' indices into `order`; those with the same key as they were. */
void flw_top_order(struct flw_top_row *rows, uint32_t count, uint32_t *order);

/* Of all pools of a process. */
struct flw_top_sums {
    uint64_t reserved, live, cached, hits, allocs;
};

struct flw_top_sums flw_top_sum_up(const struct flw_top_look *look);

#endif
