/* SPDX-License-Identifier: Apache-2.0 */
#include "report/job.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/compare.h"
#include "trace/io/codec.h"

#include "common/tool_host.h"

/* ---- files of a job ---- */

static uint64_t number_at(const char *digits)
{
    uint64_t number = strtoull(digits, NULL, 10);
    return number <= FLW_RANK_MOST_NUMBER ? number : FLW_UNKNOWN;
}

/* Return the number after the last "rank" before `end`: the word, then "_", "-", "=" or nothing, then digits. */
static uint64_t find_word(const char *text, const char *end)
{
    for (const char *at = end; at > text; at--) {
        const char *word = at - 1;
        if (end - word < 5 || strncasecmp(word, "rank", 4) != 0 ||
            (word > text && isalpha((unsigned char)word[-1]))) {
            continue;
        }
        const char *digits = word + 4;
        digits += strchr("_-=", *digits) != NULL;
        if (digits < end && isdigit((unsigned char)*digits)) {
            return number_at(digits);
        }
    }
    return FLW_UNKNOWN;
}

/* Return the end of "snapshot_3" in "snapshot_3.pickle.xz". */
static const char *find_stem_end(const char *base)
{
    bool is_packed = flw_packer_tell(base) != FLW_CODEC_PLAIN;
    const char *end = is_packed ? strrchr(base, '.') : base + strlen(base);
    const char *dot = memrchr(base, '.', (size_t)(end - base));
    return dot == NULL || dot == base ? end : dot;
}

uint64_t flw_job_rank_of_path(const char *path, bool *says_rank)
{
    const char *slash = strrchr(path, '/');
    const char *base = slash == NULL ? path : slash + 1;
    const char *folder = slash == NULL ? path : slash;
    while (folder > path && folder[-1] != '/') {
        folder--;
    }
    uint64_t rank = find_word(base, base + strlen(base));
    rank = rank == FLW_UNKNOWN && slash != NULL ? find_word(folder, slash) : rank;
    if (says_rank != NULL) {
        *says_rank = rank != FLW_UNKNOWN;
    }
    const char *stem = find_stem_end(base), *digits = stem;
    while (digits > base && isdigit((unsigned char)digits[-1])) {
        digits--;
    }
    if (rank == FLW_UNKNOWN && digits < stem && digits > base && digits[-1] == '_') {
        rank = number_at(digits);
    }
    return rank;
}

bool flw_job_is_told(const char *const *paths, size_t count, uint64_t *out_twice)
{
    bool says_rank = false;
    bool all_say = true;
    bool is_from_0 = true;
    FLW_LOCAL uint64_t *ranks = flw_host_alloc(count, sizeof *ranks);
    bool is_told = count > 1;
    uint64_t twice = FLW_UNKNOWN;
    for (size_t i = 0; is_told && i < count; i++) {
        ranks[i] = flw_job_rank_of_path(paths[i], &says_rank);
        all_say &= says_rank;
        is_from_0 &= ranks[i] < count;
        is_told = ranks[i] != FLW_UNKNOWN;
        for (size_t other = 0; other < i && twice == FLW_UNKNOWN; other++) {
            twice = ranks[other] == ranks[i] ? ranks[i] : FLW_UNKNOWN;
        }
    }
    *out_twice = is_told && all_say ? twice : FLW_UNKNOWN;
    return is_told && twice == FLW_UNKNOWN && (all_say || is_from_0);
}

/* ---- the set ---- */

void flw_job_add(struct flw_job *job, const struct flw_rank *record)
{
    FLW_HOST_ADD(job->records, job->count, job->capacity, *record);
}

static int compare_records(const void *left, const void *right)
{
    const struct flw_rank *a = left, *b = right;
    int order = flw_compare_u64(&a->rank, &b->rank);
    order = order != 0 ? order : strcmp(a->title, b->title);
    return order != 0 ? order : strcmp(a->line, b->line);
}

uint64_t flw_job_oom_time(const struct flw_rank *record)
{
    uint64_t time_ns = FLW_UNKNOWN;
    bool is_known =
        record->oom_count != 0 && record->oom_ns != FLW_UNKNOWN && record->begin_ns != FLW_UNKNOWN;
    return is_known && !__builtin_add_overflow(record->begin_ns, record->oom_ns, &time_ns)
               ? time_ns
               : FLW_UNKNOWN;
}

/* True if record `a` of a rank is compared with other ranks in preference to record `b` of the same rank. */
static bool is_told_better(const struct flw_rank *a, const struct flw_rank *b)
{
    if ((a->oom_count != 0) != (b->oom_count != 0)) {
        return a->oom_count != 0;
    }
    if (flw_job_oom_time(a) != flw_job_oom_time(b)) {
        return flw_job_oom_time(a) < flw_job_oom_time(b);
    }
    if (a->peak_held_bytes != b->peak_held_bytes) {
        return a->peak_held_bytes > b->peak_held_bytes;
    }
    return compare_records(a, b) > 0;
}

static void choose(struct flw_job *job)
{
    flw_host_free(job->compared);
    job->compared = flw_host_alloc(job->count, sizeof *job->compared);
    job->compared_count = 0;
    for (size_t i = 0; i < job->count; i++) {
        const struct flw_rank *record = &job->records[i];
        size_t *last = &job->compared[job->compared_count - (job->compared_count != 0)];
        bool is_again = i != 0 && record->rank != FLW_UNKNOWN && record[-1].rank == record->rank;
        if (!is_again) {
            job->compared[job->compared_count++] = i;
        } else if (is_told_better(record, &job->records[*last])) {
            *last = i;
        }
    }
}

void flw_job_seal(struct flw_job *job)
{
    size_t kept = 0;
    FLW_SORT(job->records, job->count, compare_records);
    for (size_t i = 0; i < job->count; i++) {
        if (kept != 0 && compare_records(&job->records[kept - 1], &job->records[i]) == 0) {
            flw_rank_finish(&job->records[i]);
        } else {
            job->records[kept++] = job->records[i];
        }
    }
    job->count = kept;
    choose(job);
}

void flw_job_finish(struct flw_job *job)
{
    for (size_t i = 0; i < job->count; i++) {
        flw_rank_finish(&job->records[i]);
    }
    flw_host_free(job->records);
    flw_host_free(job->compared);
    *job = (struct flw_job){0};
}

void flw_job_print_lines(const struct flw_job *job, FILE *out)
{
    for (size_t i = 0; i < job->count; i++) {
        fprintf(out, "%s\n", job->records[i].line);
    }
}
