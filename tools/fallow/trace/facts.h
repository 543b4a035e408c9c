/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: what `fallow trace info` says of a trace beyond the trace's own fields, counted once for its
 * screen and its JSON.
 * Does not: print it.
 */
#ifndef FLW_TOOL_TRACE_FACTS_H
#define FLW_TOOL_TRACE_FACTS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "trace/trace.h"

struct flw_trace_facts {
    const char *path;
    const struct flw_trace *trace;
    uint64_t file_bytes; /* 0: no regular file */
    const char *devices; /* recorded ones, in the trace's notes; NULL where there is one */
    int devices_bytes;
    bool has_sizes;          /* there are allocations, and there was memory to sort their sizes */
    uint64_t distinct_sizes; /* of allocations */
    uint64_t smallest_bytes, largest_bytes;
    uint64_t start_bytes; /* requested, of the blocks of the start */
    uint64_t end_count, end_bytes;
    uint64_t ops[FLW_TRACE_OP_COUNT]; /* events of each */
    uint64_t wait_count;
    uint64_t lost_count;               /* events that are missing */
    uint64_t stack_count, frame_count; /* that a record or a segment of the start has; each once */
    uint64_t stacked_count;            /* records that have a stack */
    uint64_t duration_ns;
};

/* Events that there were, and those of them that are missing: they were not recorded, or are lost. */
struct flw_trace_gap {
    uint64_t event_count, missing_count;
};
struct flw_trace_gap flw_trace_gap_count(const struct flw_trace *trace);

/* The facts name the trace and the path, which outlive them. */
struct flw_trace_facts flw_trace_facts_count(const char *path, const struct flw_trace *trace);

/* The screen, and one JSON object: the same keys for every trace, null where a number is unknown. */

#endif
