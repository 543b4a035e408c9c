/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a sheet as text of the terminal (24 lines of 80 columns with up to 11 policies; more where the trace
 * has call stacks: ten and the rule for each moment that it tells), as JSON and as CSV. Does not: open files.
 */
#ifndef FLW_TOOL_REPORT_PRINT_H
#define FLW_TOOL_REPORT_PRINT_H

#include <stdbool.h>
#include <stdio.h>

#include "report/sheet.h"

#define FLW_PRINT_SCHEMA 1 /* of the JSON: counts changes that break its readers */

struct flw_print_style {
    bool is_ascii;
    bool uses_colour;
};

void flw_print_text(const struct flw_sheet *sheet, const struct flw_print_style *style, FILE *out);

/* {"schema": 1, "traces": [...]}: an object a trace, in it one a policy. */
void flw_print_json(const struct flw_sheet *sheets, size_t count, FILE *out);

/* One line a column and policy: the most of each within the column, which begins at `event`; the holes
 * when last looked at, which was after op `holes_event`. Empty: not known. */
void flw_print_csv(const struct flw_sheet *sheet, FILE *out);

/* Several traces: the ratio of each policy, a line a trace or two, 80 columns. */
void flw_print_landing(const struct flw_sheet *sheets, size_t count, FILE *out);

#endif
