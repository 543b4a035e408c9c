/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: what is to be said when the ranks of a job are compared: what a job's text and its JSON are printed from.
 */
#ifndef FLW_TOOL_REPORT_JOB_READING_H
#define FLW_TOOL_REPORT_JOB_READING_H

#include "report/job.h"

/* An owner over several ranks. `bytes` are of the rank that is looked at: the one with the most, or the one asked
 * for. */
struct flw_job_owner {
    const char *name;
    size_t place; /* of that rank */
    uint64_t bytes, others_bytes, others_most_bytes;
    uint64_t mean_bytes, excess_bytes; /* of all, or of the others; how much more it is */
};

struct flw_job_reading {
    const struct flw_job *job;
    const struct flw_rank *like; /* owners are comparable with its */
    size_t comparable_count;
    size_t oom_count, first, second; /* ranks that ran out; places of the first two */
    bool has_order;                  /* all of these by a clock */
    uint64_t fallback_bytes;         /* limit of who does not know its own; FLW_UNKNOWN */
    bool has_timeline;
    uint64_t *led_ns; /* by place: how long it was nearest to its limit */
    uint64_t span_ns; /* while any was recorded */
};

/* Of a settled job with a record at least. */
void flw_job_read(struct flw_job_reading *reading, const struct flw_job *job);
void flw_job_reading_finish(struct flw_job_reading *reading);

/* The record that stands for the rank at a place, and the limit that it is held to. */
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

/* When it ran out of memory, ns since 1970; FLW_UNKNOWN. */
uint64_t flw_job_oom_time(const struct flw_rank *record);

/* The owners of which one rank has more than the mean, the most first. `asked_place` SIZE_MAX: whichever has the
 * most of it; else that one, when it ran out of memory, against the others at their peaks. None where fewer than
 * two ranks can be compared. The caller's to free. */
struct flw_job_owner *flw_job_list_owners(const struct flw_job_reading *reading, size_t asked_place,
                                          size_t *out_count);

/* Places by how near the peak came to the limit, the nearest first; in order where no limit is known. The caller's
 * to free. */
size_t *flw_job_list_places(const struct flw_job_reading *reading);

#endif
