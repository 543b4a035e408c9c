/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: repeating the recording's failed request with each policy, after the same earlier ops.
 */
#ifndef FLW_TOOL_REPORT_OOM_H
#define FLW_TOOL_REPORT_OOM_H

#include "report/sheet.h"

/* Fill the answers in sheet->oom; do nothing if the recording has no out-of-memory or there are no policies. Each
 * policy runs once with the memory that was available and once without a limit; then the policy's smallest limit is
 * searched for if the program has at most FLW_OOM_SEARCH_OPS ops. */
void flw_oom_ask(const struct flw_sheet_setup *setup, struct flw_sheet *sheet);

#define FLW_OOM_SEARCH_OPS 250000

#endif
