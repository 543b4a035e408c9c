/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the page: a sheet as one self-contained HTML file. It asks no server for anything: pictures are
 * inline SVG, choices are radio buttons, style and script are inside. Without scripts it is whole, but for
 * the moment that a reader may choose (page.js); its policy lets no other script run. Every
 * string of the trace is escaped. The same sheet makes the same bytes.
 *
 * Size: bounded for any trace by the sheet's own bounds and by PIXELS of the pictures, below 2 MB.
 */
#ifndef FLW_TOOL_REPORT_PAGE_H
#define FLW_TOOL_REPORT_PAGE_H

#include <stdio.h>

#include "report/sheet.h"

/* False: `out` failed (ask errno), or no host memory. */
bool flw_page_write(const struct flw_sheet *sheet, FILE *out);

/* The table over several traces, one row each; `links`[i] is the file name of a trace's own page
 * beside this one, or NULL. `job`: what is to be said of them as the ranks of one, as
 * text, which is taken apart; NULL. */
bool flw_page_write_landing(const struct flw_sheet *sheets, size_t count, const char *const *links,
                            char *job, FILE *out);

#endif
