/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: what a sheet says of the program itself, whatever the policy: columns, categories,
 * histograms, marks, and which blocks become rectangles.
 */
#ifndef FLW_TOOL_REPORT_FACTS_H
#define FLW_TOOL_REPORT_FACTS_H

#include "report/owner.h"
#include "report/sheet.h"

/* A block whose life is drawn. */
struct flw_fact_block {
    uint64_t begin_op, end_op;
    uint32_t block;
};

struct flw_facts {
    struct flw_fact_block *selected; /* by block, and so by begin_op */
    size_t selected_count, left_out_count;
    uint64_t *end_ops; /* by block: where its life ends; op_count where it does not */
};

/* Fills the sheet's own part; sheet->trace, program and op_count are set. */
void flw_facts_gather(struct flw_sheet *sheet, const struct flw_owner_rule *rule,
                      struct flw_facts *out);
void flw_facts_finish(struct flw_facts *facts);

/* facts_owner.c: the categories and bands; whose memory it is at each moment. */
void flw_facts_gather_owners(struct flw_sheet *sheet, const struct flw_facts *facts,
                             const struct flw_owners *code);
void flw_facts_gather_holdings(struct flw_sheet *sheet, const struct flw_facts *facts,
                               const struct flw_owners *code);

/* The owner of each block. */
void flw_facts_own_blocks(const struct flw_trace *trace, const struct flw_owners *code,
                          uint32_t *out_owners);

#endif
