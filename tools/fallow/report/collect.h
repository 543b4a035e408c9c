/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the steps by which flw_analysis_collect (analysis.h) fills an analysis, each in a file of its own.
 */
#ifndef FLW_TOOL_REPORT_COLLECT_H
#define FLW_TOOL_REPORT_COLLECT_H

#include "report/analysis.h"
#include "report/owner.h"

/* Fill the part that describes the program and is the same for every policy: columns, marks, histograms, the
 * out-of-memory, owners, and the choice of blocks that become rectangles (collect_program.c). Requires trace, program and
 * op_count. */
void flw_collect_program(struct flw_analysis *analysis, const struct flw_owner_rule *rule);

/* Fill the categories, the bands, and the owners of memory at each moment (collect_owners.c). */
void flw_collect_program_owners(struct flw_analysis *analysis);

/* Collect the policy `recorded` or `bound` without a replay (collect_record.c). */
void flw_collect_record(struct flw_analysis *analysis, struct flw_analysis_policy *policy);
void flw_collect_bound(struct flw_analysis *analysis, struct flw_analysis_policy *policy);

/* Fill the pending memory before the analysis's out-of-memory, and find the holes between blocks, none if the trace has no
 * addresses; adjacent mapped ranges count as one. Returns the recorded allocator's reserved bytes. O(events). */
uint64_t flw_collect_oom_heap(struct flw_analysis *analysis, struct flw_analysis_holes *out_holes);

/* Return the part of the recorded peak that was reserved before the first event and that no block of the trace uses.
 * Only stretches of more than 1 MiB count: a smaller one may be part of a block. O(n log n). */
uint64_t flw_collect_unused(const struct flw_trace *trace);

/* Return the recorded reserved bytes after an event. */
uint64_t flw_collect_reserved(const struct flw_trace_event *event, uint64_t reserved_bytes);

/* Repeat the recording's failed request with each policy after the same earlier ops, and fill the answers in analysis->oom;
 * do nothing if the recording has no out-of-memory or there are no policies (oom.c). Each policy runs once with the
 * memory that was available and once without a limit; then the policy's smallest limit is searched for if the program
 * has at most 250,000 ops. */
void flw_oom_ask(const struct flw_analysis_setup *setup, struct flw_analysis *analysis);

/* Fill in the policies of reference and of least memory, the headline, the verdict and the advice (verdict.c). */
void flw_verdict_fill(struct flw_analysis *analysis);

/* Advise from the replays alone (advice.c). After an out-of-memory: a policy that serves the failed request with the
 * memory there was, preferring a setting of PyTorch to another allocator, else the smallest sufficient device. Otherwise
 * the policy that holds less, preferring a setting of PyTorch if it saves most of the possible savings; no advice if the
 * savings are below a fiftieth. */
void flw_verdict_advise(struct flw_analysis *analysis);

#endif
