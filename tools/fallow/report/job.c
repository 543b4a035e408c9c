/* SPDX-License-Identifier: Apache-2.0 */
#include "report/job_reading.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/bits.h"

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
    static const char *const packed[] = {".xz", ".gz", ".zst"};
    const char *end = base + strlen(base);
    for (size_t i = 0; i < sizeof packed / sizeof *packed; i++) {
        size_t bytes = strlen(packed[i]);
        if ((size_t)(end - base) > bytes && strcmp(end - bytes, packed[i]) == 0) {
            end -= bytes;
            break;
        }
    }
    for (const char *at = end; at > base; at--) {
        if (at[-1] == '.') {
            return at - 1 == base ? end : at - 1;
        }
    }
    return end;
}

uint64_t flw_job_rank_of_path(const char *path, bool *says_rank)
{
    const char *slash = strrchr(path, '/');
    const char *base = slash == NULL ? path : slash + 1;
    uint64_t rank = find_word(base, base + strlen(base));
    if (rank == FLW_UNKNOWN && slash != NULL) {
        const char *folder = slash;
        while (folder > path && folder[-1] != '/') {
            folder--;
        }
        rank = find_word(folder, slash);
    }
    if (says_rank != NULL) {
        *says_rank = rank != FLW_UNKNOWN;
    }
    if (rank == FLW_UNKNOWN) {
        const char *stem = find_stem_end(base);
        const char *digits = stem;
        while (digits > base && isdigit((unsigned char)digits[-1])) {
            digits--;
        }
        if (digits < stem && digits > base && digits[-1] == '_') {
            rank = number_at(digits);
        }
    }
    return rank;
}

bool flw_job_is_told(const char *const *paths, size_t count, uint64_t *out_twice)
{
    bool says_rank = false;
    bool all_say = true;
    bool is_from_0 = true;
    uint64_t *ranks = flw_host_alloc(count, sizeof *ranks);
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
    flw_host_free(ranks);
    *out_twice = is_told && all_say ? twice : FLW_UNKNOWN;
    return is_told && twice == FLW_UNKNOWN && (all_say || is_from_0);
}

/* ---- the set ---- */

void flw_job_add(struct flw_job *job, const struct flw_rank *record)
{
    job->records =
        flw_host_grow(job->records, &job->capacity, job->count + 1, sizeof *job->records);
    job->records[job->count++] = *record;
}

static int compare_records(const void *left, const void *right)
{
    const struct flw_rank *a = left;
    const struct flw_rank *b = right;
    if (a->rank != b->rank) {
        return a->rank < b->rank ? -1 : 1;
    }
    int titles = strcmp(a->title, b->title);
    return titles != 0 ? titles : strcmp(a->line, b->line);
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

void flw_job_settle(struct flw_job *job)
{
    size_t kept = 0;
    if (job->count != 0) {
        qsort(job->records, job->count, sizeof *job->records, compare_records);
    }
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

/* ---- comparing ---- */

static bool is_comparable(const struct flw_job_reading *reading, const struct flw_rank *record)
{
    return record->has_code == reading->like->has_code &&
           strcmp(record->rule, reading->like->rule) == 0;
}

struct entry {
    const char *name;
    uint64_t bytes;
    size_t place;
};

static int compare_entries(const void *left, const void *right)
{
    const struct entry *a = left;
    const struct entry *b = right;
    int names = strcmp(a->name, b->name);
    return names != 0 ? names : (a->place > b->place) - (a->place < b->place);
}

static int compare_lines(const void *left, const void *right)
{
    const struct flw_job_owner *a = left;
    const struct flw_job_owner *b = right;
    return a->excess_bytes != b->excess_bytes ? (a->excess_bytes > b->excess_bytes ? -1 : 1)
                                              : strcmp(a->name, b->name);
}

/* List the bytes of each owner on each comparable rank, ordered by owner: at the rank's peak, for `oom_place` at the
 * out-of-memory. The caller frees the list. */
static struct entry *list_entries(const struct flw_job_reading *reading, size_t oom_place,
                                  size_t *out)
{
    const struct flw_job *job = reading->job;
    struct entry *entries = NULL;
    size_t count = 0;
    size_t capacity = 0;
    for (size_t place = 0; place < job->compared_count; place++) {
        const struct flw_rank *record = flw_job_at(reading, place);
        const struct flw_sheet_holding *moment =
            place == oom_place ? &record->at_oom : &record->at_peak;
        for (size_t i = 0; is_comparable(reading, record) && i < moment->owner_count; i++) {
            entries = flw_host_grow(entries, &capacity, count + 1, sizeof *entries);
            entries[count++] =
                (struct entry){moment->owners[i].name, moment->owners[i].bytes, place};
        }
    }
    if (count != 0) {
        qsort(entries, count, sizeof *entries, compare_entries);
    }
    *out = count;
    return entries;
}

/* Compare one owner's entries. */
static struct flw_job_owner read_owner(const struct flw_job_reading *reading,
                                       const struct entry *entries, size_t count,
                                       size_t asked_place)
{
    struct flw_job_owner line = {.name = entries[0].name, .place = asked_place};
    bool is_asked = asked_place != SIZE_MAX;
    uint64_t all_bytes = 0;
    for (size_t i = 0; i < count; i++) {
        all_bytes += entries[i].bytes;
        if (is_asked ? entries[i].place == asked_place : entries[i].bytes > line.bytes) {
            line.bytes = entries[i].bytes;
            line.place = entries[i].place;
        }
    }
    for (size_t i = 0; i < count; i++) {
        if (entries[i].place != line.place) {
            line.others_most_bytes = flw_max(line.others_most_bytes, entries[i].bytes);
        }
    }
    line.others_bytes = all_bytes - line.bytes;
    line.mean_bytes = is_asked ? line.others_bytes / (reading->comparable_count - 1)
                               : all_bytes / reading->comparable_count;
    line.excess_bytes = line.bytes > line.mean_bytes ? line.bytes - line.mean_bytes : 0;
    return line;
}

struct flw_job_owner *flw_job_list_owners(const struct flw_job_reading *reading, size_t asked_place,
                                          size_t *out)
{
    size_t entry_count = 0;
    bool is_asked = asked_place != SIZE_MAX;
    *out = 0;
    if (reading->comparable_count < 2 ||
        (is_asked && !is_comparable(reading, flw_job_at(reading, asked_place)))) {
        return NULL;
    }
    struct entry *entries = list_entries(reading, asked_place, &entry_count);
    struct flw_job_owner *lines = flw_host_alloc(entry_count, sizeof *lines);
    size_t count = 0;
    for (size_t begin = 0, end; begin < entry_count; begin = end) {
        end = begin + 1;
        while (end < entry_count && strcmp(entries[begin].name, entries[end].name) == 0) {
            end++;
        }
        lines[count] = read_owner(reading, entries + begin, end - begin, asked_place);
        count += lines[count].excess_bytes != 0;
    }
    flw_host_free(entries);
    if (count != 0) {
        qsort(lines, count, sizeof *lines, compare_lines);
    }
    *out = count;
    return lines;
}

static void find_first_oom(struct flw_job_reading *reading)
{
    const struct flw_job *job = reading->job;
    uint64_t first_ns = FLW_UNKNOWN;
    uint64_t second_ns = FLW_UNKNOWN;
    reading->has_order = true;
    reading->first = reading->second = SIZE_MAX;
    for (size_t place = 0; place < job->compared_count; place++) {
        uint64_t time_ns = flw_job_oom_time(flw_job_at(reading, place));
        if (flw_job_at(reading, place)->oom_count == 0) {
            continue;
        }
        reading->oom_count++;
        reading->has_order &= time_ns != FLW_UNKNOWN;
        if (reading->first == SIZE_MAX || time_ns < first_ns) {
            reading->second = reading->first;
            second_ns = first_ns;
            reading->first = place;
            first_ns = time_ns;
        } else if (reading->second == SIZE_MAX || time_ns < second_ns) {
            reading->second = place;
            second_ns = time_ns;
        }
    }
}

/* ---- the rank nearest to its limit ---- */

static void find_limits(struct flw_job_reading *reading)
{
    const struct flw_job *job = reading->job;
    reading->fallback_bytes = job->limit_bytes == 0 ? FLW_UNKNOWN : job->limit_bytes;
    for (size_t i = 0; job->limit_bytes == 0 && i < job->compared_count; i++) {
        reading->fallback_bytes =
            flw_min(reading->fallback_bytes, flw_job_at(reading, i)->limit_bytes);
    }
}

/* The bytes that a rank holds from now on; FLW_UNKNOWN: the recording ends. */
struct point {
    uint64_t time_ns, bytes;
    size_t place;
};

static int compare_points(const void *left, const void *right)
{
    const struct point *a = left;
    const struct point *b = right;
    if (a->time_ns != b->time_ns) {
        return a->time_ns < b->time_ns ? -1 : 1;
    }
    return a->place != b->place ? (a->place < b->place ? -1 : 1)
                                : (a->bytes > b->bytes) - (a->bytes < b->bytes);
}

static struct point *list_points(const struct flw_job_reading *reading, size_t *out_count)
{
    const struct flw_job *job = reading->job;
    struct point *points = NULL;
    size_t count = 0;
    size_t capacity = 0;
    for (size_t place = 0; place < job->compared_count; place++) {
        const struct flw_rank *record = flw_job_at(reading, place);
        points = flw_host_grow(points, &capacity, count + record->step_count + 1, sizeof *points);
        for (size_t i = 0; i < record->step_count; i++) {
            points[count++] = (struct point){record->begin_ns + record->steps[i].time_ns,
                                             record->steps[i].bytes, place};
        }
        points[count++] = (struct point){record->begin_ns + record->span_ns, FLW_UNKNOWN, place};
    }
    if (count > 1) {
        qsort(points, count, sizeof *points, compare_points);
    }
    *out_count = count;
    return points;
}

static size_t find_leader(const double *shares, size_t count)
{
    size_t leader = SIZE_MAX;
    for (size_t i = 0; i < count; i++) {
        if (shares[i] >= 0 && (leader == SIZE_MAX || shares[i] > shares[leader])) {
            leader = i;
        }
    }
    return leader;
}

/* Add up for how long each rank led. The rank with the largest share of its limit leads until the next point. */
static void sweep(struct flw_job_reading *reading)
{
    const struct flw_job *job = reading->job;
    size_t count = 0;
    size_t leader = SIZE_MAX;
    struct point *points = list_points(reading, &count);
    double *shares = flw_host_alloc(job->compared_count, sizeof *shares); /* -1: not recorded */
    for (size_t i = 0; i < job->compared_count; i++) {
        shares[i] = -1;
    }
    for (size_t i = 0; i < count; i++) {
        const struct point *point = &points[i];
        if (i != 0 && leader != SIZE_MAX) {
            uint64_t lasted_ns = point->time_ns - points[i - 1].time_ns;
            reading->led_ns[leader] += lasted_ns;
            reading->span_ns += lasted_ns;
        }
        double before = shares[point->place];
        double now =
            point->bytes == FLW_UNKNOWN
                ? -1
                : flw_job_share_of(reading, flw_job_at(reading, point->place), point->bytes);
        shares[point->place] = now;
        if (leader == SIZE_MAX || (point->place == leader && now < before) ||
            now > shares[leader] || (now == shares[leader] && point->place < leader)) {
            leader = find_leader(shares, job->compared_count);
        }
    }
    flw_host_free(points);
    flw_host_free(shares);
}

/* ---- the whole comparison ---- */

void flw_job_read(struct flw_job_reading *reading, const struct flw_job *job)
{
    *reading = (struct flw_job_reading){.job = job};
    reading->like = flw_job_at(reading, 0);
    for (size_t i = 0; i < job->compared_count && !reading->like->has_code; i++) {
        reading->like = flw_job_at(reading, i);
    }
    bool has_clock = true;
    for (size_t i = 0; i < job->compared_count; i++) {
        const struct flw_rank *record = flw_job_at(reading, i);
        uint64_t end_ns = 0;
        reading->comparable_count += is_comparable(reading, record);
        has_clock &= record->begin_ns != FLW_UNKNOWN &&
                     !__builtin_add_overflow(record->begin_ns, record->span_ns, &end_ns);
    }
    find_first_oom(reading);
    find_limits(reading);
    reading->led_ns = flw_host_alloc(job->compared_count, sizeof *reading->led_ns);
    reading->has_timeline = has_clock && reading->fallback_bytes != FLW_UNKNOWN;
    if (reading->has_timeline) {
        sweep(reading);
    }
}

static int compare_places(const void *left, const void *right, void *context)
{
    const struct flw_job_reading *reading = context;
    size_t a = *(const size_t *)left;
    size_t b = *(const size_t *)right;
    const struct flw_rank *first = flw_job_at(reading, a);
    const struct flw_rank *second = flw_job_at(reading, b);
    double shares[] = {flw_job_share_of(reading, first, first->peak_held_bytes),
                       flw_job_share_of(reading, second, second->peak_held_bytes)};
    if (shares[0] != shares[1]) {
        return shares[0] > shares[1] ? -1 : 1;
    }
    return (a > b) - (a < b);
}

size_t *flw_job_list_places(const struct flw_job_reading *reading)
{
    size_t count = reading->job->compared_count;
    size_t *places = flw_host_alloc(count, sizeof *places);
    for (size_t i = 0; i < count; i++) {
        places[i] = i;
    }
    if (reading->fallback_bytes != FLW_UNKNOWN) {
        qsort_r(places, count, sizeof *places, compare_places, (void *)reading);
    }
    return places;
}

void flw_job_reading_finish(struct flw_job_reading *reading)
{
    flw_host_free(reading->led_ns);
}
