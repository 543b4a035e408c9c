/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: what the verbs of `fallow trace` share: the command line, and the trace it names.
 */
#ifndef FLW_TOOL_TRACE_VERBS_H
#define FLW_TOOL_TRACE_VERBS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trace/trace/trace.h"

struct flw_verb_options {
    const char *const *paths; /* what to read; "-" = standard input */
    size_t path_count;
    const char *out_path; /* -o; NULL = not given */
    const char *form;     /* --to; NULL = not given */
    int device;           /* -1 = the one with the most events */
    bool goes_on;         /* --damaged */
    bool wants_json;      /* --json */
};

/* Read a trace; a file that could only be read in part is complained about and read so far as it
 * goes. False: it could not be, and that was said. */
bool flw_verb_read(const struct flw_verb_options *options, const char *path,
                   struct flw_trace **out_trace);

/* Events that there were, and those of them that are missing: they were not recorded, or are lost. */
struct flw_trace_gap {
    uint64_t event_count, missing_count;
};
struct flw_trace_gap flw_trace_gap_count(const struct flw_trace *trace);

/* `fallow trace info FILE`. An enum flw_exit. */
int flw_verb_info(const struct flw_verb_options *options);

/* The bytes of a file; 0 where it is no regular one. */
unsigned long long flw_verb_file_bytes(const char *path);

#endif
