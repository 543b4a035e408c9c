/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a sheet as text of the terminal, as JSON, as CSV, and in the forms of flame graphs and of Chrome's traces. Does not: open files.
 */
#ifndef FLW_TOOL_REPORT_PRINT_H
#define FLW_TOOL_REPORT_PRINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "report/job.h"
#include "report/owner.h"
#include "report/sheet.h"

#define FLW_PRINT_SCHEMA 1 /* of the JSON: counts changes that break its readers */

struct flw_print_style {
    size_t columns; /* that a table may take */
    bool is_ascii;
    bool uses_colour;
    bool has_times; /* a column of host times */
};

void flw_print_text(const struct flw_sheet *sheet, const struct flw_print_style *style, FILE *out);

/* {"schema": 1, "traces": [...]}: an object a trace, in it one a policy. `job`: a member more; may be NULL. */
void flw_print_json(const struct flw_sheet *sheets, size_t count, const struct flw_job *job,
                    FILE *out);

/* Write the object of one trace alone; the page has the same. */
struct flw_json_writer;
void flw_print_json_sheet(const struct flw_sheet *sheet, struct flw_json_writer *out);

/* One line a column and policy: the most of each within the column, which begins at `event`; the holes
 * when last looked at, which was after op `holes_event`. Empty: not known. */
struct flw_print_form {                /* what forms for other tools need */
    const struct flw_owner_rule *rule; /* the sheet's */
    enum flw_sheet_moment moment;
};

void flw_print_csv(const struct flw_sheet *sheet, const struct flw_print_form *form, FILE *out);

/* What is for other tools, of one trace whose blocks are at hand. */

/* One line an owner, by its whole name: bytes and blocks at each moment, and all that it asked for. */
void flw_print_csv_owners(const struct flw_sheet *sheet, const struct flw_print_form *form,
                          FILE *out);

/* What is alive at the moment as flame graphs take it: a line a call stack, the outermost frame first, with a
 * semicolon between two and its bytes behind a blank; what has no stack stands under its owner's name. A percent sign,
 * a semicolon and what is no letter (a new line) are written as %25, %3B, %0A. */
void flw_print_folded(const struct flw_sheet *sheet, const struct flw_print_form *form, FILE *out);

/* As Chrome's JSON, which Perfetto opens: each block a slice from its allocation to its free, under its owner's name
 * and with its stack as above; live bytes as a counter an owner; phases and the out-of-memory. Without times, an event
 * takes a microsecond. */
void flw_print_chrome(const struct flw_sheet *sheet, const struct flw_print_form *form, FILE *out);

/* Several traces: the ratio of each policy, a row a trace. */
void flw_print_landing(const struct flw_sheet *sheets, size_t count,
                       const struct flw_print_style *style, FILE *out);

#endif
