/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the record of one rank: what one trace says of the job that it is part of, as one line of JSON, and read
 * back from it.
 * Does not: compare ranks (job.h).
 *
 * A record is written the same whatever it was made from, so that equal records are equal bytes.
 *
 * INVARIANTS (of what is read, checked)
 *   1. A moment's bytes and blocks are the sums of its owners' and the rest's; its owners have different names.
 *      There are at most FLW_SHEET_OWNERS, which have at most 2^48 bytes; no other number is above 2^62.
 *   2. Times of held ascend, and none is above span_ns; there are at most FLW_RANK_STEPS.
 */
#ifndef FLW_TOOL_REPORT_RANK_H
#define FLW_TOOL_REPORT_RANK_H

#include <stdio.h>

#include "report/sheet.h"
#include "trace/io/json.h"

#define FLW_RANK_SCHEMA        1 /* counts changes that break readers */
#define FLW_RANK_STEPS         200
#define FLW_RANK_MOST_NUMBER   (UINT64_C(1) << 62) /* so that two of them add up */
#define FLW_RANK_NAME_BYTES    FLW_SHEET_NAME_BYTES
#define FLW_RANK_RULE_BYTES    512
#define FLW_RANK_MESSAGE_BYTES 512

struct flw_rank_step { /* the most that was held from then to the next step */
    uint64_t time_ns, bytes;
};

/* FLW_UNKNOWN stands for what is not known. */
struct flw_rank {
    char title[FLW_RANK_NAME_BYTES]; /* the file's name */
    uint64_t rank, device;
    char rule[FLW_RANK_RULE_BYTES]; /* by which owners were chosen */
    bool has_code;                  /* else owners are sizes */
    uint64_t events;
    uint64_t begin_ns;    /* since 1970; all other times are since then */
    uint64_t span_ns;     /* to the last event */
    uint64_t limit_bytes; /* most that it could hold */
    bool
        is_reserved; /* held: what the recorded allocator had from the driver; else what was asked for */
    uint64_t peak_held_bytes, peak_requested_bytes;
    struct flw_sheet_holding at_peak; /* of requested bytes */
    /* The first time that it ran out of memory. oom_count 0: it did not, and at_oom is empty. */
    uint64_t oom_count, oom_ns, asked_bytes, free_bytes, oom_held_bytes;
    char asked_by[FLW_RANK_NAME_BYTES]; /* "": not known */
    struct flw_sheet_holding at_oom;
    struct flw_rank_step *steps;
    size_t step_count, step_capacity;
    char *line; /* the record as it is written, without an end of line; malloc's */
};

/* Of a sheet whose trace is still there. `number`: FLW_UNKNOWN where it has none. `limit_bytes` 0: as the trace
 * says. NULL, or what the trace has that no record can say, which flw_rank_read would refuse. */
const char *flw_rank_make(struct flw_rank *rank, const struct flw_sheet *sheet, uint64_t number,
                          uint64_t limit_bytes);

/* All records of a file, each handed to `take`, which owns it. False: message (FLW_RANK_MESSAGE_BYTES) is one line that names the file
 * and what is wrong. */
bool flw_rank_read(const char *path, void (*take)(void *context, struct flw_rank *rank),
                   void *context, char *message);

void flw_rank_finish(struct flw_rank *rank);

#endif
