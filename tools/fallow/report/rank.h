/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the record of one rank: the facts of one trace that a comparison of the job's ranks needs, as one line of JSON,
 * and reading such lines.
 * Does not: compare ranks (job.h).
 *
 * Equal records are written as equal bytes, whatever their source.
 *
 * INVARIANTS (checked when a record is read)
 *   1. A moment's bytes and blocks are the sums of its owners' and the rest's; the owners of a moment have different
 *      names. There are at most FLW_ANALYSIS_OWNERS, which have at most 2^48 bytes; no other number is above 2^62.
 *   2. Times of held ascend, and none is above span_ns; there are at most FLW_RANK_STEPS.
 */
#ifndef FLW_TOOL_REPORT_RANK_H
#define FLW_TOOL_REPORT_RANK_H

#include <stdio.h>

#include "report/analysis.h"
#include "trace/io/json.h"

#define FLW_RANK_SCHEMA        1 /* version; raised by changes that break readers */
#define FLW_RANK_STEPS         200
#define FLW_RANK_MOST_NUMBER   (UINT64_C(1) << 62) /* so two can be added */
#define FLW_RANK_NAME_BYTES    FLW_ANALYSIS_NAME_BYTES
#define FLW_RANK_RULE_BYTES    512
#define FLW_RANK_MESSAGE_BYTES 512

struct flw_rank_step { /* the most held from the step's time to the next step */
    uint64_t time_ns, bytes;
};

/* Unknown numbers are FLW_UNKNOWN. */
struct flw_rank {
    char title[FLW_RANK_NAME_BYTES]; /* the file's name */
    uint64_t rank, device;
    char rule[FLW_RANK_RULE_BYTES]; /* the rule that chose owners */
    bool has_code;                  /* else owners are sizes */
    uint64_t events;
    uint64_t begin_ns;    /* since 1970; all other times are relative to this one */
    uint64_t span_ns;     /* to the last event */
    uint64_t limit_bytes; /* most memory that the rank could hold */
    bool is_reserved;     /* held counts memory reserved from the driver; else requested bytes */
    uint64_t peak_held_bytes, peak_requested_bytes;
    struct flw_analysis_holding at_peak; /* of requested bytes */
    /* The first out-of-memory. If oom_count is 0 there was none, and at_oom is empty. */
    uint64_t oom_count, oom_ns, asked_bytes, free_bytes, oom_held_bytes;
    char asked_by[FLW_RANK_NAME_BYTES]; /* "": unknown */
    struct flw_analysis_holding at_oom;
    struct flw_rank_step *steps;
    size_t step_count;
    char *line; /* the written record, without an end of line; malloc's */
};

/* Make a record from an analysis; the trace must still be in memory. `number`: FLW_UNKNOWN if there is none. `limit_bytes`
 * 0: the trace's limit. Returns NULL, or the part of the trace that no record can hold and flw_rank_read would
 * refuse. */
const char *flw_rank_make(struct flw_rank *rank, const struct flw_analysis *analysis,
                          uint64_t number, uint64_t limit_bytes);

/* Read all records of a file and pass each to `take`, which owns the record. Returns false if a record is invalid:
 * message (FLW_RANK_MESSAGE_BYTES) is one line with the file and the error. */
bool flw_rank_read(const char *path, void (*take)(void *context, struct flw_rank *rank),
                   void *context, char *message);

void flw_rank_finish(struct flw_rank *rank);

#endif
