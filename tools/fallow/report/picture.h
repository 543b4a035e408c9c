/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the pictures of the page. Each draws what its sheet knows; where that is nothing it writes a
 * sentence that says what is missing instead. Does not: lay out the page.
 */
#ifndef FLW_TOOL_REPORT_PICTURE_H
#define FLW_TOOL_REPORT_PICTURE_H

#include "report/sheet.h"
#include "report/svg.h"

#define FLW_PICTURE_SHADES 5 /* of an amount in a cell; page.css has so many */

/* Which axis time runs along; the page holds both and shows one. */
enum flw_picture_time {
    FLW_PICTURE_BY_OPS,
    FLW_PICTURE_BY_TIME
};

/* Everything over time, columns merged to one a pixel and a bit. */
/* A picture a policy, all on one scale. */
void flw_picture_small_multiples(const struct flw_sheet *sheet, enum flw_picture_time time,
                                 FILE *out);
void flw_picture_overlay(const struct flw_sheet *sheet, enum flw_picture_time time, FILE *out);
void flw_picture_categories(const struct flw_sheet *sheet, enum flw_sheet_kind kind,
                            enum flw_picture_time time, FILE *out);

/* The heap and its blocks. */
void flw_picture_frame(const struct flw_sheet_frame *frame, FILE *out);
void flw_picture_strip(const struct flw_sheet *sheet, const struct flw_sheet_policy *policy,
                       FILE *out);
void flw_picture_holes(const struct flw_sheet *sheet, const struct flw_sheet_policy *policy,
                       FILE *out);

/* What was asked for. */
void flw_picture_active(const struct flw_sheet *sheet, const struct flw_sheet_policy *policy,
                        FILE *out);
void flw_picture_sizes(const struct flw_sheet *sheet, FILE *out);
void flw_picture_lifetimes(const struct flw_sheet *sheet, FILE *out);

/* The first policy whose blocks are known; NULL: none. */
const struct flw_sheet_policy *flw_picture_find_known(const struct flw_sheet *sheet);

/* The blocks that page.js knows: that policy's heaviest, *out_count of them; the caller frees them. */
#define FLW_PICTURE_LISTED 5000
const struct flw_sheet_rectangle **flw_picture_list(const struct flw_sheet *sheet,
                                                    size_t *out_count);

/* What the program asked for it; a rectangle may be as large as what the policy gave. */
uint64_t flw_picture_asked_bytes(const struct flw_sheet *sheet,
                                 const struct flw_sheet_rectangle *block);

/* A line of numbers for page.js: hexadecimal, for they are many. */
void flw_picture_write_numbers(FILE *out, const uint64_t *numbers, size_t count);

/* For page.js, hidden: these blocks, with the stacks that asked for them. False: there are more. */
bool flw_picture_write_moments(const struct flw_sheet *sheet, FILE *out);

/* What the pictures of blocks have in common: ops along x; a colour a size, the same in all of them
 * (flw_sheet_size_kind); all blocks that are known, the heaviest by size and lifetime first (the caller
 * frees it). */
struct flw_svg_axis flw_picture_op_axis(const struct flw_sheet *sheet);
const char *flw_picture_size_colour(uint64_t bytes);
const struct flw_sheet_rectangle **
flw_picture_sort_by_weight(const struct flw_sheet_policy *policy);

/* Policies side by side. */
void flw_picture_latency(const struct flw_sheet *sheet, FILE *out);
void flw_picture_waste(const struct flw_sheet *sheet, FILE *out);
void flw_picture_trade(const struct flw_sheet *sheet, FILE *out);
void flw_picture_waits(const struct flw_sheet *sheet, FILE *out);

/* The colour of the i-th of several things: a policy's is that of its place in the sheet in every
 * picture. Classes of page.css: c0 to c15, and d0 to d3 for the dashes of a line. */
const char *flw_picture_colour(size_t i);

/* One entry of a legend: a key of that colour class, what it stands for, and a number or NULL. The
 * second shows a line with its dashes. */
void flw_picture_legend(FILE *out, const char *style, const char *text, const char *number);
void flw_picture_line_legend(FILE *out, const char *style, const char *text, const char *number);

/* The legend of the shades s1 to s5, from fewer to more of `what`. A shade stands out the more from the
 * paper, which is light or dark: no text calls it darker. */
void flw_picture_shades(FILE *out, const char *what);

#endif
