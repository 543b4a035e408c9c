/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a job of many ranks: recognizing a job's files by name, comparing the ranks' records, and writing the
 * comparison.
 * Does not: read traces or records (rank.h).
 *
 * A job is a set of records: duplicates count once, and neither the order of records nor earlier merges change the
 * result.
 *
 * INVARIANTS, after flw_job_seal
 *   1. Records ascend by rank (records without a rank last), then by title, then by content; no two are equal.
 *   2. One record of each rank is compared, chosen by: out of memory, then earliest out-of-memory, then highest peak,
 *      then last in order. All records without a rank are compared.
 */
#ifndef FLW_TOOL_REPORT_JOB_H
#define FLW_TOOL_REPORT_JOB_H

#include "report/rank.h"
#include "trace/io/jsonwriter.h"

struct flw_job {
    struct flw_rank *records;
    size_t count, capacity;
    size_t *compared; /* indices of the compared records */
    size_t compared_count;
    uint64_t limit_bytes; /* of ranks without a limit; 0: the least limit of the others */
};

/* Add a record, which the job owns from now on. */
void flw_job_add(struct flw_job *job, const struct flw_rank *record);

/* Sort the records, drop duplicates, and choose the compared ones. Call after the last flw_job_add. */
void flw_job_seal(struct flw_job *job);

/* Return the rank in a path: the number after the word "rank" in the name of the file or of a folder, else the number
 * after the last "_" of the file's name without extensions. Returns FLW_UNKNOWN if there is none. *says_rank (may be
 * NULL): true if the word "rank" was found. */
uint64_t flw_job_rank_of_path(const char *path, bool *says_rank);

/* True if the names of these files are those of a job: each file has a rank of its own, and either all names have the
 * word "rank" or the ranks are all numbers from 0 on. *out_twice: if all names have the word, a rank that has several
 * files; else FLW_UNKNOWN. */
bool flw_job_is_told(const char *const *paths, size_t count, uint64_t *out_twice);

/* Return the time of the out-of-memory, ns since 1970, or FLW_UNKNOWN. */
uint64_t flw_job_oom_time(const struct flw_rank *record);

/* Print the comparison. Requires a sealed job with at least one record. */
void flw_job_print_text(const struct flw_job *job, FILE *out);
/* Write the member "job" of the report's JSON. */
void flw_job_print_json(const struct flw_job *job, struct flw_json_writer *out);
/* Print the records, one per line. */
void flw_job_print_lines(const struct flw_job *job, FILE *out);

void flw_job_finish(struct flw_job *job);

#endif
