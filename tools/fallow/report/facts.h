/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the part of a sheet that describes the program and is the same for every policy: columns, owners, histograms,
 * marks, the out-of-memory, and the choice of blocks that become rectangles.
 */
#ifndef FLW_TOOL_REPORT_FACTS_H
#define FLW_TOOL_REPORT_FACTS_H

#include "report/owner.h"
#include "report/sheet.h"

/* Fill the sheet's own part. Requires sheet->trace, program and op_count. */
void flw_facts_gather(struct flw_sheet *sheet, const struct flw_owner_rule *rule);

/* Fill the categories, the bands, and the owners of memory at each moment (facts_owner.c). */
void flw_facts_gather_owners(struct flw_sheet *sheet);

#endif
