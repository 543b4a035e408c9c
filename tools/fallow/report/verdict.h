/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: what a sheet comes to: which policy the others are measured against, which holds least, the one sentence
 * that says so, and one that says what to type.
 */
#ifndef FLW_TOOL_REPORT_VERDICT_H
#define FLW_TOOL_REPORT_VERDICT_H

#include "report/sheet.h"

/* Return the user's present policy: the recorded allocator if the trace contains its reserved memory, including
 * memory from before the recording; else the model of PyTorch's policy, else the first policy that allocates. NULL
 * if no memory was held. */
const struct flw_sheet_policy *flw_verdict_reference(const struct flw_sheet *sheet);

/* Of those that allocate and failed no request, the one that holds least; NULL if there is none.
 * Not the driver alone: it holds least by making every free wait. */
const struct flw_sheet_policy *flw_verdict_best(const struct flw_sheet *sheet);

void flw_verdict_write(const struct flw_sheet *sheet, char *out, size_t room);

/* From the replays alone. After an out-of-memory: what serves the request that failed in what there was, a setting of
 * PyTorch before another allocator, else the smallest device. Else what holds less, a setting of PyTorch where that
 * saves most of what anything saves, and nothing where it is less than a fiftieth. */
void flw_verdict_advise(const struct flw_sheet *sheet, struct flw_sheet_advice *out);

#endif
