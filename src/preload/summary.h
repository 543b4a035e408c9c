/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: what a process did under the preload library, gathered at its end, and its two forms: a line and
 * a JSON object.
 * Does not: count on the hot paths; pools, tracer and hooks do that.
 */
#ifndef FLW_PRELOAD_SUMMARY_H
#define FLW_PRELOAD_SUMMARY_H

#include "fallow/fallow.h"
#include "preload/poison.h"
#include "preload/tracer.h"

/* More pools than this are in the sums but not by themselves. */
#define FLW_SUMMARY_POOLS 64

struct flw_summary {
    const char *mode, *program;
    uint64_t dlsym_count, proc_address_count, linked_count; /* how the hooks were reached */
    uint32_t pool_count;
    fallow_stats pools[FLW_SUMMARY_POOLS];
    fallow_stats sum; /* of all; peaks: the largest sum of those of pools that lived together */
    bool is_trace;
    struct flw_tracer_counts trace; /* mode trace */
    struct flw_poison_counts poison;
    uint64_t foreign_frees, double_frees, retries, retries_served, contexts_ended;
};

/* One line, no newline. */
void flw_summary_print_line(const struct flw_summary *summary, char *out, size_t room);

/* False: errno says why it could not be written whole. */
bool flw_summary_print_json(const struct flw_summary *summary, int fd);

#endif
