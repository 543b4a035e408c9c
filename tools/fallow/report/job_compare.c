/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the comparison of a job's ranks, as text and as JSON.
 */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/compare.h"

#include "common/command.h"
#include "common/tabular.h"
#include "common/tool_host.h"
#include "report/job.h"

#define ROWS      8   /* of a text table */
#define JSON_ROWS 200 /* of a list in JSON */

/* A compared record. */
struct place {
    const struct flw_rank *record;
    size_t number;        /* in the order of the records */
    bool is_comparable;   /* by owner: the same rule, and code or sizes alike */
    uint64_t oom_ns;      /* flw_job_oom_time */
    uint64_t limit_bytes; /* its own, or that of ranks without one; FLW_UNKNOWN */
    double share, now;    /* of the limit: at the peak, and where the sweep is; -1: not recorded */
    uint64_t led_ns;      /* time in which the rank was nearest to its limit */
};

struct reading {
    const struct flw_job *job;
    struct place *places;
    size_t count, comparable_count, oom_count;
    const char *rule;                   /* of the comparable records */
    const struct place *first, *second; /* to run out of memory; NULL */
    bool has_order;                     /* all have a time, so the order is certain */
    bool has_limit, has_timeline;
    uint64_t span_ns; /* time in which any rank was recorded */
};

/* Return the first place that ran out of memory, without `except`; NULL if there is none. */
static const struct place *find_oom(const struct reading *reading, const struct place *except)
{
    const struct place *first = NULL;
    for (size_t i = 0; i < reading->count; i++) {
        const struct place *place = &reading->places[i];
        if (place != except && place->record->oom_count != 0 &&
            (first == NULL || place->oom_ns < first->oom_ns)) {
            first = place;
        }
    }
    return first;
}

/* ---- owners ---- */

/* An owner on several ranks. `bytes` belong to `place`: the rank with the most, or the rank that the caller chose. */
struct owner {
    const char *name;
    const struct place *place;
    uint64_t bytes, others_bytes, others_most_bytes;
    uint64_t mean_bytes, excess_bytes; /* mean of all ranks, or of the others; bytes beyond it */
};

static int compare_names(const void *left, const void *right)
{
    const struct owner *a = left, *b = right;
    int names = strcmp(a->name, b->name);
    return names != 0 ? names : (a->place > b->place) - (a->place < b->place);
}

static int compare_excess(const void *left, const void *right)
{
    const struct owner *a = left, *b = right;
    return a->excess_bytes != b->excess_bytes ? (a->excess_bytes > b->excess_bytes ? -1 : 1)
                                              : strcmp(a->name, b->name);
}

/* List the bytes of each owner on each comparable rank, ordered by owner: at the rank's peak, for `asked` at the
 * out-of-memory. */
static struct owner *list_holdings(const struct reading *reading, const struct place *asked,
                                   size_t *out_count)
{
    struct owner *list = NULL;
    size_t count = 0, capacity = 0;
    for (size_t i = 0; i < reading->count; i++) {
        const struct place *place = &reading->places[i];
        const struct flw_analysis_holding *moment =
            place == asked ? &place->record->at_oom : &place->record->at_peak;
        for (size_t o = 0; place->is_comparable && o < moment->owner_count; o++) {
            FLW_HOST_ADD(list, count, capacity,
                         (struct owner){.name = moment->owners[o].name,
                                        .place = place,
                                        .bytes = moment->owners[o].bytes});
        }
    }
    FLW_SORT(list, count, compare_names);
    *out_count = count;
    return list;
}

/* Compare one owner's holdings. */
static struct owner compare_owner(const struct reading *reading, const struct owner *holdings,
                                  size_t count, const struct place *asked)
{
    struct owner owner = {.name = holdings[0].name, .place = asked};
    uint64_t all_bytes = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t bytes = holdings[i].bytes;
        bool is_chosen = asked != NULL ? holdings[i].place == asked : bytes > owner.bytes;
        owner.others_most_bytes = flw_max(owner.others_most_bytes, is_chosen ? owner.bytes : bytes);
        owner.bytes = is_chosen ? bytes : owner.bytes;
        owner.place = is_chosen ? holdings[i].place : owner.place;
        all_bytes += bytes;
    }
    owner.others_bytes = all_bytes - owner.bytes;
    owner.mean_bytes = asked == NULL ? all_bytes / reading->comparable_count
                                     : owner.others_bytes / (reading->comparable_count - 1);
    owner.excess_bytes = owner.bytes - flw_min(owner.bytes, owner.mean_bytes);
    return owner;
}

/* List the owners of which one rank has more than the mean, largest excess first. `asked` NULL: for each owner, use the
 * rank where that owner has most. Else compare that rank, at the out-of-memory, with the others at their peaks. The
 * list is empty if fewer than two ranks can be compared. The caller frees the list. */
static struct owner *list_owners(const struct reading *reading, const struct place *asked,
                                 size_t *out_count)
{
    size_t holding_count = 0, count = 0;
    *out_count = 0;
    if (reading->comparable_count < 2 || (asked != NULL && !asked->is_comparable)) {
        return NULL;
    }
    /* The owners replace their holdings. */
    struct owner *list = list_holdings(reading, asked, &holding_count);
    for (size_t begin = 0, end; begin < holding_count; begin = end) {
        end = begin + 1;
        while (end < holding_count && strcmp(list[begin].name, list[end].name) == 0) {
            end++;
        }
        list[count] = compare_owner(reading, list + begin, end - begin, asked);
        count += list[count].excess_bytes != 0;
    }
    FLW_SORT(list, count, compare_excess);
    *out_count = count;
    return list;
}

/* ---- the rank nearest to its limit ---- */

/* The bytes that a rank holds from now on; FLW_UNKNOWN: the recording ends. */
struct point {
    uint64_t time_ns, bytes;
    struct place *place;
};

static int compare_points(const void *left, const void *right)
{
    const struct point *a = left, *b = right;
    int order = flw_compare_u64(&a->time_ns, &b->time_ns);
    order = order != 0 ? order : (a->place > b->place) - (a->place < b->place);
    return order != 0 ? order : flw_compare_u64(&a->bytes, &b->bytes);
}

static struct point *list_points(const struct reading *reading, size_t *out_count)
{
    struct point *points = NULL;
    size_t count = 0, capacity = 0;
    for (size_t p = 0; p < reading->count; p++) {
        struct place *place = &reading->places[p];
        const struct flw_rank *record = place->record;
        points = flw_host_grow(points, &capacity, count + record->step_count + 1, sizeof *points);
        for (size_t i = 0; i < record->step_count; i++) {
            points[count++] = (struct point){record->begin_ns + record->steps[i].time_ns,
                                             record->steps[i].bytes, place};
        }
        points[count++] = (struct point){record->begin_ns + record->span_ns, FLW_UNKNOWN, place};
    }
    FLW_SORT(points, count, compare_points);
    *out_count = count;
    return points;
}

/* Return the place with the largest present share; NULL if no rank is recorded now. */
static struct place *find_leader(const struct reading *reading)
{
    struct place *leader = NULL;
    for (size_t i = 0; i < reading->count; i++) {
        struct place *place = &reading->places[i];
        if (place->now >= 0 && (leader == NULL || place->now > leader->now)) {
            leader = place;
        }
    }
    return leader;
}

/* Add up for how long each rank led. The rank with the largest share of its limit leads until the next point. */
static void sweep(struct reading *reading)
{
    size_t count = 0;
    FLW_LOCAL struct point *points = list_points(reading, &count);
    struct place *leader = NULL;
    for (size_t i = 0; i < count; i++) {
        struct place *place = points[i].place;
        if (leader != NULL) {
            leader->led_ns += points[i].time_ns - points[i - 1].time_ns;
            reading->span_ns += points[i].time_ns - points[i - 1].time_ns;
        }
        double before = place->now;
        place->now = points[i].bytes == FLW_UNKNOWN
                         ? -1
                         : (double)points[i].bytes / (double)place->limit_bytes;
        if (leader == NULL ||
            (place == leader
                 ? place->now < before
                 : place->now > leader->now || (place->now == leader->now && place < leader))) {
            leader = find_leader(reading);
        }
    }
}

static int compare_shares(const void *left, const void *right)
{
    const struct place *a = left, *b = right;
    return a->share != b->share ? (a->share > b->share ? -1 : 1)
                                : (a->number > b->number) - (a->number < b->number);
}

/* Return the places by share, highest first; in order if no limit is known. The caller frees the list. */
static struct place *list_places(const struct reading *reading)
{
    struct place *places = flw_host_alloc(reading->count, sizeof *places);
    memcpy(places, reading->places, reading->count * sizeof *places);
    if (reading->has_limit) {
        qsort(places, reading->count, sizeof *places, compare_shares);
    }
    return places;
}

/* ---- the whole comparison ---- */

static struct reading read_job(const struct flw_job *job)
{
    struct reading reading = {.job = job, .has_order = true, .count = job->compared_count};
    const struct flw_rank *like = &job->records[job->compared[0]];
    uint64_t limit_bytes = job->limit_bytes == 0 ? FLW_UNKNOWN : job->limit_bytes;
    bool has_clock = true;
    reading.places = flw_host_alloc(reading.count, sizeof *reading.places);
    for (size_t i = 0; i < reading.count; i++) {
        const struct flw_rank *record = &job->records[job->compared[i]];
        like = like->has_code ? like : record;
        limit_bytes =
            job->limit_bytes == 0 ? flw_min(limit_bytes, record->limit_bytes) : limit_bytes;
    }
    for (size_t i = 0; i < reading.count; i++) {
        const struct flw_rank *record = &job->records[job->compared[i]];
        struct place *place = &reading.places[i];
        uint64_t end_ns = 0;
        *place = (struct place){
            .record = record, .number = i, .now = -1, .oom_ns = flw_job_oom_time(record)};
        place->is_comparable =
            record->has_code == like->has_code && strcmp(record->rule, like->rule) == 0;
        place->limit_bytes = record->limit_bytes != FLW_UNKNOWN ? record->limit_bytes : limit_bytes;
        place->share = (double)record->peak_held_bytes / (double)place->limit_bytes;
        reading.comparable_count += place->is_comparable;
        reading.oom_count += record->oom_count != 0;
        reading.has_order &= record->oom_count == 0 || place->oom_ns != FLW_UNKNOWN;
        has_clock &= record->begin_ns != FLW_UNKNOWN &&
                     !__builtin_add_overflow(record->begin_ns, record->span_ns, &end_ns);
    }
    reading.rule = like->rule;
    reading.first = find_oom(&reading, NULL);
    reading.second = find_oom(&reading, reading.first);
    reading.has_limit = limit_bytes != FLW_UNKNOWN;
    reading.has_timeline = has_clock && reading.has_limit;
    if (reading.has_timeline) {
        sweep(&reading);
    }
    return reading;
}

/* ---- text ---- */

/* Copy a text without control characters, and return the copy. */
static const char *make_plain(const char *text, char *room)
{
    strcpy(room, text);
    flw_make_plain(room);
    return room;
}

/* "rank 3", or the file's name without control characters. */
static const char *name_rank(const struct flw_rank *record, char room[FLW_RANK_NAME_BYTES])
{
    if (record->rank == FLW_UNKNOWN) {
        return make_plain(record->title, room);
    }
    snprintf(room, FLW_RANK_NAME_BYTES, "rank %" PRIu64, record->rank);
    return room;
}

static void print_head(const struct reading *reading, FILE *out)
{
    char rule[FLW_RANK_RULE_BYTES];
    size_t again_count = reading->job->count - reading->count;
    size_t apart_count = reading->count - reading->comparable_count;
    fprintf(out, "a job of %zu rank%s; %s ran out of memory\n", reading->count,
            flw_plural(reading->count),
            reading->oom_count == 0 ? "none" : FLW_COUNT(reading->oom_count));
    if (again_count != 0) {
        fprintf(out, "%zu record%s left out: the rank has another record\n", again_count,
                again_count == 1 ? " is" : "s are");
    }
    fprintf(out, "owners: %s\n", make_plain(reading->rule, rule));
    if (apart_count != 0) {
        fprintf(out, "%zu rank%s not compared by owner: no call stacks, or another rule\n",
                apart_count, apart_count == 1 ? " is" : "s are");
    }
}

/* Print the owners of which the first rank out of memory held more than the others. */
static void print_more_than_others(const struct reading *reading, FILE *out)
{
    size_t count = 0;
    FLW_LOCAL struct owner *owners = list_owners(reading, reading->first, &count);
    if (count != 0) {
        struct flw_table table = {.unit = flw_unit_choose(owners[0].bytes)};
        for (size_t i = 0; i < count && i < ROWS; i++) {
            flw_table_row(&table, NULL);
            flw_table_bytes(&table, "held", owners[i].bytes);
            flw_table_bytes(&table, "others' mean", owners[i].mean_bytes);
            flw_table_bytes(&table, "others' most", owners[i].others_most_bytes);
            flw_table_name(&table, "owner", owners[i].name);
        }
        fprintf(out, "it held more then than the other %zu at their peaks:\n",
                reading->comparable_count - 1);
        flw_table_print(&table, out);
    }
}

static void print_oom(const struct reading *reading, FILE *out)
{
    char first_name[FLW_RANK_NAME_BYTES], second_name[FLW_RANK_NAME_BYTES];
    char owner[FLW_RANK_NAME_BYTES];
    if (reading->oom_count == 0) {
        return;
    }
    const struct flw_rank *first = reading->first->record;
    fprintf(out, "\n%s ran out of memory", name_rank(first, first_name));
    if (reading->oom_count > 1 && !reading->has_order) {
        fputs("; which rank was first is unknown, since recordings lack a clock", out);
    } else if (reading->oom_count > 1) {
        fprintf(out, " first by the recordings' clocks, %.6f s before %s",
                (double)(reading->second->oom_ns - reading->first->oom_ns) * 1e-9,
                name_rank(reading->second->record, second_name));
    }
    fprintf(out, "\nit requested %s", FLW_SIZE(first->asked_bytes));
    if (first->asked_by[0] != '\0') {
        fprintf(out, " (%s)", make_plain(first->asked_by, owner));
    }
    fprintf(out, " and held %s; free on the device: %s\n", FLW_SIZE(first->oom_held_bytes),
            FLW_SIZE(first->free_bytes));
    print_more_than_others(reading, out);
}

/* Print the owners of which one rank has more than the mean, largest excess first, from 1 MiB. */
static void print_imbalance(const struct reading *reading, FILE *out)
{
    size_t count = 0;
    FLW_LOCAL struct owner *owners = list_owners(reading, NULL, &count);
    while (count != 0 && owners[count - 1].excess_bytes < FLW_MIB) {
        count--;
    }
    if (count == 0 && reading->comparable_count >= 2) {
        fprintf(out, "\nno owner has on one rank 1 MiB more at its peak than the mean of %zu\n",
                reading->comparable_count);
    } else if (count != 0) {
        struct flw_table table = {.unit = flw_unit_choose(owners[0].bytes)};
        for (size_t i = 0; i < count && i < ROWS; i++) {
            const struct owner *owner = &owners[i];
            flw_table_row(&table, NULL);
            flw_table_real(&table, "most / mean", 3,
                           (double)owner->bytes * (double)reading->comparable_count /
                               (double)(owner->bytes + owner->others_bytes));
            flw_table_bytes(&table, "most", owner->bytes);
            flw_table_bytes(&table, "mean", owner->mean_bytes);
            flw_table_count(&table, "rank", owner->place->record->rank);
            flw_table_name(&table, "owner", owner->name);
        }
        fprintf(out, "\nimbalance, each rank at its peak: the most of one and the mean of %zu\n",
                reading->comparable_count);
        flw_table_print(&table, out);
    }
}

static void print_limits(const struct reading *reading, FILE *out)
{
    if (!reading->has_limit) {
        fputs("\nno limit: set --limit, or record a run that runs out of memory\n", out);
        return;
    }
    FLW_LOCAL struct place *places = list_places(reading);
    struct flw_table table = {.unit = flw_unit_choose(places[0].record->peak_held_bytes)};
    bool has_borrowed = false;
    for (size_t i = 0; i < reading->count && i < ROWS; i++) {
        const struct flw_rank *record = places[i].record;
        bool is_own = record->limit_bytes != FLW_UNKNOWN;
        double led = 100.0 * (double)places[i].led_ns / (double)reading->span_ns;
        flw_table_row(&table, NULL);
        flw_table_count(&table, "rank", record->rank);
        flw_table_bytes(&table, "held", record->peak_held_bytes);
        flw_table_bytes(&table, "limit", places[i].limit_bytes);
        flw_table_name(&table, "", is_own ? "" : "*");
        flw_table_real(&table, "share %", 1, 100.0 * places[i].share);
        flw_table_real(&table, "nearest for %", 1, reading->span_ns == 0 ? NAN : led);
        flw_table_name(&table, "trace", record->title);
        has_borrowed |= !is_own;
    }
    fputs("\nnearest to the limit\n", out);
    flw_table_print(&table, out);
    fputs("nearest for: the share of the time in which the rank was nearest to its limit\n", out);
    if (has_borrowed) {
        fputs(reading->job->limit_bytes != 0 ? "* from --limit\n"
                                             : "* not recorded: the least of another rank\n",
              out);
    }
}

void flw_job_print_text(const struct flw_job *job, FILE *out)
{
    struct reading reading = read_job(job);
    print_head(&reading, out);
    print_oom(&reading, out);
    print_imbalance(&reading, out);
    print_limits(&reading, out);
    flw_host_free(reading.places);
}

/* ---- JSON ---- */

static void write_rank(struct flw_json_writer *out, const struct flw_rank *record)
{
    flw_json_count(out, "rank", record->rank);
    flw_json_text(out, "title", record->title);
}

static void write_owners(struct flw_json_writer *out, const struct reading *reading,
                         const struct place *asked, const char *key)
{
    size_t count = 0;
    FLW_LOCAL struct owner *owners = list_owners(reading, asked, &count);
    out->line = "  ";
    flw_json_begin(out, key, '[');
    for (size_t i = 0; i < count && i < JSON_ROWS; i++) {
        flw_json_begin(out, NULL, '{');
        flw_json_text(out, "owner", owners[i].name);
        flw_json_number(out, "bytes", owners[i].bytes);
        if (asked == NULL) {
            write_rank(out, owners[i].place->record);
        }
        FLW_JSON_NUMBERS(out,
                         {asked != NULL ? "others_mean_bytes" : "mean_bytes", owners[i].mean_bytes},
                         {"others_most_bytes", owners[i].others_most_bytes});
        flw_json_end(out, '}');
    }
    flw_json_end(out, ']');
}

static void write_oom(struct flw_json_writer *out, const struct reading *reading)
{
    out->line = "  ";
    if (flw_json_begin_known(out, "first_out_of_memory", reading->oom_count != 0, '{')) {
        const struct flw_rank *first = reading->first->record;
        write_rank(out, first);
        flw_json_bool(out, "by_clock", reading->has_order);
        FLW_JSON_COUNTS(out, {"time_ns", reading->first->oom_ns},
                        {"asked_bytes", first->asked_bytes}, {"held_bytes", first->oom_held_bytes},
                        {"device_free_bytes", first->free_bytes});
        flw_json_text(out, "owner", first->asked_by[0] == '\0' ? NULL : first->asked_by);
        write_owners(out, reading, reading->first, "more_than_others");
        flw_json_end(out, '}');
    }
}

static void write_limits(struct flw_json_writer *out, const struct reading *reading)
{
    FLW_LOCAL struct place *places = list_places(reading);
    out->line = "  ";
    flw_json_begin(out, "by_nearness_to_the_limit", '[');
    for (size_t i = 0; i < reading->count; i++) {
        const struct flw_rank *record = places[i].record;
        out->line = "   ";
        flw_json_begin(out, NULL, '{');
        write_rank(out, record);
        FLW_JSON_COUNTS(out, {"peak_held_bytes", record->peak_held_bytes},
                        {"peak_requested_bytes", record->peak_requested_bytes},
                        {"limit_bytes", places[i].limit_bytes});
        flw_json_bool(out, "limit_is_its_own", record->limit_bytes != FLW_UNKNOWN);
        flw_json_real(out, "share", reading->has_limit, places[i].share);
        flw_json_known(out, "nearest_for_ns", reading->has_timeline, places[i].led_ns);
        FLW_JSON_COUNTS(out, {"ran_out_ns", places[i].oom_ns},
                        {"out_of_memory_count", record->oom_count});
        flw_json_end(out, '}');
    }
    flw_json_end(out, ']');
}

void flw_job_print_json(const struct flw_job *job, struct flw_json_writer *out)
{
    struct reading reading = read_job(job);
    out->line = " ";
    flw_json_begin(out, "job", '{');
    FLW_JSON_NUMBERS(out, {"ranks", reading.count}, {"records", job->count},
                     {"out_of_memory", reading.oom_count},
                     {"compared_by_owner", reading.comparable_count});
    flw_json_text(out, "owner_rule", reading.rule);
    write_oom(out, &reading);
    write_owners(out, &reading, NULL, "imbalance");
    write_limits(out, &reading);
    flw_json_end(out, '}');
    flw_host_free(reading.places);
}
