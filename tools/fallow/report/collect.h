/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: collecting one policy's part of a sheet: from a run on the simulated device (collect.c), from the trace's own
 * record, or from the program alone (collect_record.c).
 */
#ifndef FLW_TOOL_REPORT_COLLECT_H
#define FLW_TOOL_REPORT_COLLECT_H

#include "report/probe.h"

/* Collect the policy `recorded` or `bound` without a replay. */
void flw_collect_record(struct flw_sheet *sheet, struct flw_sheet_policy *policy);
void flw_collect_bound(struct flw_sheet *sheet, struct flw_sheet_policy *policy);

/* The memory of the recorded allocator before the failed request. */
struct flw_collect_heap {
    uint64_t reserved_bytes;
    uint64_t pending_bytes, pending_count; /* blocks freed but not yet reusable */
    struct flw_sheet_holes holes;          /* between blocks; empty if the trace has no addresses */
};

/* Sum up the recorded heap before the sheet's out-of-memory; adjacent mapped ranges count as one. O(events). */
void flw_collect_oom_heap(const struct flw_sheet *sheet, struct flw_collect_heap *out);

/* Return the part of the recorded peak that was reserved before the first event and that no block of the trace uses.
 * Only stretches of more than 1 MiB count: a smaller one may be part of a block. O(n log n). */
uint64_t flw_collect_unused(const struct flw_trace *trace);

/* Return the recorded reserved bytes after an event. */
uint64_t flw_collect_reserved(const struct flw_trace_event *event, uint64_t reserved_bytes);

#endif
