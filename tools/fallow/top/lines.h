/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the figures and lines of `fallow top`, and the order of rows, pools and processes.
 */
#ifndef FLW_TOOL_TOP_LINES_H
#define FLW_TOOL_TOP_LINES_H

#include "common/figures.h"
#include "top/top.h"

#define FLW_TOP_TEXT_BYTES 32

/* Write a share into `text` and return it: "99.12 %", or "-" if `whole` is 0. Never 100 % if a part is missing. */
const char *flw_top_share(char text[FLW_TOP_TEXT_BYTES], uint64_t part, uint64_t whole);

/* Write a line, cut to the page's width. */
void flw_top_add_line(struct flw_top_page *page, enum flw_top_style style, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

struct flw_top_row {
    uint64_t key; /* the largest is first */
    uint32_t index;
};

uint64_t flw_top_share_key(uint64_t part, uint64_t whole);
/* Return the value by which the sort orders. */
uint64_t flw_top_key(enum flw_top_sort sort, uint64_t reserved_bytes, uint64_t live_bytes,
                     uint64_t cached_bytes, uint64_t hit_share);
/* Write the rows' indices into `order`; rows with equal keys keep their order. */
void flw_top_order(struct flw_top_row *rows, uint32_t count, uint32_t *order);

/* Write the indices of a process's pools into `order`. */
void flw_top_order_pools(const struct flw_top_look *look, enum flw_top_sort sort, uint32_t *order);

/* Sums over all pools of a process. */
struct flw_top_sums {
    uint64_t reserved, live, cached, hits, allocs;
};

struct flw_top_sums flw_top_sum_up(const struct flw_top_look *look);

#endif
