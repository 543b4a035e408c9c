/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: counting and printing the facts of `fallow trace info`.
 */
#ifndef FLW_TOOL_TRACE_VERBS_H
#define FLW_TOOL_TRACE_VERBS_H

#include <stdbool.h>
#include <stdint.h>

#include "trace/trace/trace.h"

/* The number of events, and of those that are missing because they were not recorded or are lost. */
struct flw_trace_gap {
    uint64_t event_count, missing_count;
};
struct flw_trace_gap flw_trace_gap_count(const struct flw_trace *trace);

/* Print to standard output. `file_bytes` 0: not a regular file. */
void flw_trace_print_info(const char *path, const struct flw_trace *trace, uint64_t file_bytes,
                          bool wants_json);

#endif
