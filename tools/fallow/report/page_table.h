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
/* Whose the memory is that is left at the end, and from which part of the recording; whose it was when memory ran out. */
void flw_page_table_survivors(const struct flw_sheet *sheet, FILE *out);
void flw_page_table_oom(const struct flw_sheet *sheet, FILE *out);
/* Whose memory it is of a heap without a history. */
void flw_page_table_state(const struct flw_sheet *sheet, FILE *out);
/* Which policies would have served the request that failed, and from which limit on. */
void flw_page_table_answers(const struct flw_sheet_oom *oom, FILE *out);
/* Which device of several it is, and a line for each of the others. */
void flw_page_table_devices(const struct flw_sheet *sheet, FILE *out);
/* The glossary. */
void flw_page_table_words(FILE *out);
void flw_page_table_landing(const struct flw_sheet *sheets, size_t count, const char *const *links,
                            FILE *out);

#endif
