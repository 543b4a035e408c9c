/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the tables of the page.
 */
#ifndef FLW_TOOL_REPORT_PAGE_TABLE_H
#define FLW_TOOL_REPORT_PAGE_TABLE_H

#include <stdio.h>

#include "report/sheet.h"

void flw_page_table_policies(const struct flw_sheet *sheet, FILE *out);
/* What the first table has no room for: where the memory is, what the driver did, the times of
 * allocations and frees apart. Each behind a summary of its own. */
void flw_page_table_more(const struct flw_sheet *sheet, FILE *out);
void flw_page_table_owners(const struct flw_sheet *sheet, enum flw_sheet_kind kind, FILE *out);
/* Print the owners of the memory left at the end, by part of the recording; the owners when memory ran out. */
void flw_page_table_survivors(const struct flw_sheet *sheet, FILE *out);
void flw_page_table_oom(const struct flw_sheet *sheet, FILE *out);
/* Print the owners of a heap without a history. */
void flw_page_table_state(const struct flw_sheet *sheet, FILE *out);
/* Which policies would have served the request that failed, and from which limit on. */
void flw_page_table_answers(const struct flw_sheet_oom *oom, FILE *out);
/* Name the device of the sheet, and print a line for each other device of the recording. */
void flw_page_table_devices(const struct flw_sheet *sheet, FILE *out);
/* Print the glossary. */
void flw_page_table_words(FILE *out);
void flw_page_table_landing(const struct flw_sheet *sheets, size_t count, const char *const *links,
                            FILE *out);

#endif
