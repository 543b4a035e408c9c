/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a job of many ranks: which files are its, by their names; their records together, what is to be said when
 * they are compared, and how that is written.
 * Does not: read traces or records (rank.h).
 *
 * A job is a set: what is added twice counts once, and in which order, and through how many merges, changes nothing.
 *
 * INVARIANTS, once settled
 *   1. Records ascend by rank (those without one last), then by title, then by what they say; no two are equal.
 *   2. Of each rank one record is compared: one that ran out of memory before one that did not, then the one that
 *      did so first, then the one with the higher peak, then the later record. Records without a rank are all
 *      compared.
 */
#ifndef FLW_TOOL_REPORT_JOB_H
#define FLW_TOOL_REPORT_JOB_H

#include "report/rank.h"
#include "trace/io/jsonwriter.h"

struct flw_job {
    struct flw_rank *records;
    size_t count, capacity;
    size_t *compared; /* which of them: one a rank */
    size_t compared_count;
    uint64_t limit_bytes; /* of ranks that do not know theirs; 0: the least that another knows */
};

/* The job owns it from now on. */
void flw_job_add(struct flw_job *job, const struct flw_rank *record);

/* After the last: sorts, drops what is there twice, and chooses. */
void flw_job_settle(struct flw_job *job);

/* The number of the rank that a file's name tells: "rank" and a number behind it, in the name or in a folder's; else
 * a number behind the last "_" of the name without its endings. FLW_UNKNOWN: none.
 * `says_rank`: it was the former; may be NULL. */
uint64_t flw_job_rank_of_path(const char *path, bool *says_rank);

/* Whether the names of these files tell that they are a job's: each a rank of its own, all by the word "rank", or all
 * ranks from 0 on. `out_twice`: where all say the word, and a rank has several files, that rank; else FLW_UNKNOWN. */
bool flw_job_is_told(const char *const *paths, size_t count, uint64_t *out_twice);

/* Of a settled job with a record at least. */
void flw_job_print_text(const struct flw_job *job, size_t columns, FILE *out);
/* The member "job". */
void flw_job_print_json(const struct flw_job *job, struct flw_json_writer *out);
/* The records, one a line. */
void flw_job_print_lines(const struct flw_job *job, FILE *out);

void flw_job_finish(struct flw_job *job);

#endif
