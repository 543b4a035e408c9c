/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the conclusions from a sheet: the policy of reference, the policy that holds least, the headline,
 * a sentence about both policies, and a sentence of advice.
 */
#ifndef FLW_TOOL_REPORT_VERDICT_H
#define FLW_TOOL_REPORT_VERDICT_H

#include "report/sheet.h"

/* Return the user's present policy: the recorded allocator if the trace contains the reserved memory and the part
 * reserved before the recording; else the model of PyTorch's policy, else the first policy that allocates. NULL if no
 * memory was held. */
const struct flw_sheet_policy *flw_verdict_reference(const struct flw_sheet *sheet);

/* Return the policy that holds least among the policies that allocate and failed no request, or NULL. The driver alone
 * does not count: it holds least by making every free wait. */
const struct flw_sheet_policy *flw_verdict_best(const struct flw_sheet *sheet);

/* Write the sheet's headline and verdict. */
void flw_verdict_write(struct flw_sheet *sheet);

/* Advise from the replays alone. After an out-of-memory: a policy that serves the failed request with the memory there
 * was, preferring a setting of PyTorch to another allocator, else the smallest sufficient device. Otherwise the policy
 * that holds less, preferring a setting of PyTorch if it saves most of the possible savings; no advice if the savings
 * are below a fiftieth. */
void flw_verdict_advise(const struct flw_sheet *sheet, struct flw_sheet_advice *out);

#endif
