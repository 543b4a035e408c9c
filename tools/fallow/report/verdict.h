/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the conclusions from a sheet: the policy of reference, the policy that holds least, the headline,
 * a sentence about both policies, and a sentence of advice.
 */
#ifndef FLW_TOOL_REPORT_VERDICT_H
#define FLW_TOOL_REPORT_VERDICT_H

#include "report/sheet.h"

/* Fill in the policies of reference and of least memory, the headline, the verdict and the advice. */
void flw_verdict_fill(struct flw_sheet *sheet);

/* Advise from the replays alone (advice.c). After an out-of-memory: a policy that serves the failed request with the
 * memory there was, preferring a setting of PyTorch to another allocator, else the smallest sufficient device. Otherwise
 * the policy that holds less, preferring a setting of PyTorch if it saves most of the possible savings; no advice if the
 * savings are below a fiftieth. */
void flw_verdict_advise(struct flw_sheet *sheet);

#endif
