/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: what a sheet comes to: which policy the others are measured against, which holds least, and
 * the one sentence that says so.
 */
#ifndef FLW_TOOL_REPORT_VERDICT_H
#define FLW_TOOL_REPORT_VERDICT_H

#include "report/sheet.h"

/* What the user has now: the recorded allocator where the trace knows what it held, else the model
 * of PyTorch's policy, else the first policy that allocates; NULL if nothing was held at all. */
const struct flw_sheet_policy *flw_verdict_reference(const struct flw_sheet *sheet);

/* Of those that allocate and failed no request, the one that holds least; NULL if there is none.
 * Not the driver alone: it holds least by making every free wait. */
const struct flw_sheet_policy *flw_verdict_best(const struct flw_sheet *sheet);

void flw_verdict_write(const struct flw_sheet *sheet, char *out, size_t room);

#endif
