/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: adding the findings of a twin to a report.
 * Does not: search. */
#ifndef FLW_KERNELS_REPORT_H
#define FLW_KERNELS_REPORT_H

#include "common/twin.h"

/* A pair of a report: the count, and 1 + the byte offset of the first. */
struct flw_finding {
    uint64_t count, first;
};

static inline void flw_finding_add(struct flw_finding *finding, int64_t offset)
{
    finding->first = finding->count == 0 ? (uint64_t)offset + 1 : finding->first;
    finding->count++;
}

/* Add to the pair that begins at `count` in a report, and keep the smaller first. */
static inline void flw_report(struct flw_twin *twin, uint64_t *count,
                              const struct flw_finding *finding)
{
    uint64_t pair[2];
    if (finding->count > 0) {
        flw_load(twin, "report", count, 0, pair, sizeof pair);
        pair[0] += finding->count;
        pair[1] = pair[1] == 0 || finding->first < pair[1] ? finding->first : pair[1];
        flw_store(twin, "report", count, 0, pair, sizeof pair);
    }
}

#endif
