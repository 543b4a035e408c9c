/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the comparison of a job's ranks, from which the text and the JSON of a job are printed.
 */
#ifndef FLW_TOOL_REPORT_JOB_READING_H
#define FLW_TOOL_REPORT_JOB_READING_H

#include "report/job.h"

/* An owner on several ranks. `bytes` belong to one rank: the rank with the most, or the rank that the caller chose. */
struct flw_job_owner {
    const char *name;
    size_t place; /* of that rank */
    uint64_t bytes, others_bytes, others_most_bytes;
    uint64_t mean_bytes,
        excess_bytes; /* mean of all ranks, or of the others; bytes beyond the mean */
};

struct flw_job_reading {
    const struct flw_job *job;
    const struct flw_rank *like; /* ranks with comparable owners have the same rule as this rank */
    size_t comparable_count;
    size_t oom_count, first, second; /* ranks that ran out of memory; places of the first two */
    bool has_order;                  /* all have a time, so the order is certain */
    uint64_t fallback_bytes;         /* limit of ranks without their own; FLW_UNKNOWN: none */
    bool has_timeline;
    uint64_t *led_ns; /* by place: time in which the rank was nearest to its limit */
    uint64_t span_ns; /* time in which any rank was recorded */
};

/* Compare the ranks. Requires a settled job with at least one record. */
void flw_job_read(struct flw_job_reading *reading, const struct flw_job *job);
void flw_job_reading_finish(struct flw_job_reading *reading);

/* Return the compared record at a place, and the limit of that rank. */
static inline const struct flw_rank *flw_job_at(const struct flw_job_reading *reading, size_t place)
{
    return &reading->job->records[reading->job->compared[place]];
}

static inline uint64_t flw_job_limit_of(const struct flw_job_reading *reading,
                                        const struct flw_rank *record)
{
    return record->limit_bytes != FLW_UNKNOWN ? record->limit_bytes : reading->fallback_bytes;
}

static inline double flw_job_share_of(const struct flw_job_reading *reading,
                                      const struct flw_rank *record, uint64_t bytes)
{
    return (double)bytes / (double)flw_job_limit_of(reading, record);
}

/* Return the time of the out-of-memory, ns since 1970, or FLW_UNKNOWN. */
uint64_t flw_job_oom_time(const struct flw_rank *record);

/* List the owners of which one rank has more than the mean, largest excess first. asked_place SIZE_MAX: for each owner,
 * use the rank where that owner has most. Else compare that rank, at the out-of-memory, with the others at their peaks.
 * The list is empty if fewer than two ranks can be compared. The caller frees the list. */
struct flw_job_owner *flw_job_list_owners(const struct flw_job_reading *reading, size_t asked_place,
                                          size_t *out_count);

/* List places by peak over limit, highest first; in order if no limit is known. The caller frees the list. */
size_t *flw_job_list_places(const struct flw_job_reading *reading);

#endif
