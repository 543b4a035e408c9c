/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the page: one HTML file that loads nothing. page.html is the frame, page.css the style, and the script in page/
 * draws every picture from the data in the page (page_data.c). Without scripts the page shows plain tables of owners
 * and policies. Its content policy allows no other script, and every string of the trace is escaped. The same analysis
 * makes the same bytes.
 *
 * Size: bounded for any trace by the bounds of the analysis and of page_data.c, below 1.5 MB a device.
 */
#ifndef FLW_TOOL_REPORT_PAGE_H
#define FLW_TOOL_REPORT_PAGE_H

#include <stdio.h>

#include "report/analysis.h"

struct flw_json_writer;

/* Write the page's data of one device: a JSON object without "<". */
void flw_page_write_data(const struct flw_analysis *analysis, FILE *out);

/* Write the page of a trace. `others`: the data of the trace's other devices, each object behind a comma; "" for none.
 * Returns false if `out` failed (see errno). */
bool flw_page_write(const struct flw_analysis *analysis, const char *others, FILE *out);

/* Write the page of several traces, a row each. links[i] is the file name of a trace's own page beside this one, or
 * NULL if the trace has none. `job`: if the traces are ranks of a job, the text about that job, else NULL. */
bool flw_page_write_landing(const struct flw_analysis *analyses, size_t count,
                            const char *const *links, const char *job, FILE *out);

/* ---- of page_heap.c, for page_data.c ---- */

/* Write the members heap, stacks, shapes, blocks, has_all_blocks, owners, frames and streams. */
void flw_page_write_heap(const struct flw_analysis *analysis, struct flw_json_writer *out);

/* Write numbers as a text in base 36: rows of `width` numbers, a semicolon between rows, a blank between numbers. */
void flw_page_write_rows(struct flw_json_writer *out, const char *key, const uint64_t *numbers,
                         size_t count, size_t width);

/* Write a row of numbers, each as the difference from the number before. */
void flw_page_write_steps(struct flw_json_writer *out, const char *key, const uint64_t *numbers,
                          size_t count);

#endif
