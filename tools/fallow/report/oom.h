/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the request that failed in the recording, asked again: the program up to it and then it, by each policy.
 */
#ifndef FLW_TOOL_REPORT_OOM_H
#define FLW_TOOL_REPORT_OOM_H

#include "report/sheet.h"

/* Fills what sheet->oom says of answers; nothing where the recording had no out-of-memory, or no policy is given. Each
 * runs once at what there was, and once without a limit; from there its smallest limit is looked for, in programs that
 * are short enough (FLW_OOM_SEARCH_OPS). */
void flw_oom_ask(const struct flw_sheet_setup *setup, struct flw_sheet *sheet);

#define FLW_OOM_SEARCH_OPS 250000

#endif
