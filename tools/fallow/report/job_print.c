/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "report/job_reading.h"

#include "base/bits.h"
#include "common/command.h"
#include "common/tabular.h"
#include "common/tool_host.h"

#define ROWS      8   /* of a text table */
#define JSON_ROWS 200 /* of a list in JSON */

/* ---- text ---- */

/* "rank 3", or the file's name without control characters. */
static const char *name_rank(const struct flw_rank *record, char out[FLW_RANK_NAME_BYTES])
{
    if (record->rank != FLW_UNKNOWN) {
        snprintf(out, FLW_RANK_NAME_BYTES, "rank %" PRIu64, record->rank);
    } else {
        strcpy(out, record->title);
        flw_make_plain(out);
    }
    return out;
}

static void print_head(const struct flw_job_reading *reading, FILE *out)
{
    const struct flw_job *job = reading->job;
    char oom_count[FLW_FIGURE_BYTES] = "none", rule[FLW_RANK_RULE_BYTES];
    if (reading->oom_count != 0) {
        flw_format_count(reading->oom_count, oom_count);
    }
    size_t again_count = job->count - job->compared_count;
    size_t apart_count = job->compared_count - reading->comparable_count;
    fprintf(out, "a job of %zu rank%s; %s ran out of memory\n", job->compared_count,
            flw_plural(job->compared_count), oom_count);
    if (again_count != 0) {
        fprintf(out, "%zu record%s left out: the rank has another record\n", again_count,
                again_count == 1 ? " is" : "s are");
    }
    strcpy(rule, reading->like->rule);
    flw_make_plain(rule);
    fprintf(out, "owners: %s\n", rule);
    if (apart_count != 0) {
        fprintf(out, "%zu rank%s not compared by owner: no call stacks, or another rule\n",
                apart_count, apart_count == 1 ? " is" : "s are");
    }
}

/* Print the owners of which the first rank out of memory held more than the others. */
static void print_more_than_others(const struct flw_job_reading *reading, size_t width, FILE *out)
{
    static const struct flw_column columns[] = {{"held", FLW_COLUMN_BYTES, 0, false},
                                                {"others' mean", FLW_COLUMN_BYTES, 0, false},
                                                {"others' most", FLW_COLUMN_BYTES, 0, false},
                                                {"owner", FLW_COLUMN_TEXT, 0, false}};
    size_t count = 0;
    struct flw_job_owner *lines = flw_job_list_owners(reading, reading->first, &count);
    struct flw_table table;
    if (count != 0) {
        flw_table_begin(&table, columns, 4, flw_unit_choose(lines[0].bytes));
        for (size_t i = 0; i < count && i < ROWS; i++) {
            const union flw_value values[] = {{.count = lines[i].bytes},
                                              {.count = lines[i].mean_bytes},
                                              {.count = lines[i].others_most_bytes},
                                              {.text = lines[i].name}};
            flw_table_row(&table, NULL, values);
        }
        fprintf(out, "it held more then than the other %zu at their peaks:\n",
                reading->comparable_count - 1);
        flw_table_print(&table, width, out);
        flw_table_finish(&table);
    }
    flw_host_free(lines);
}

static void print_oom(const struct flw_job_reading *reading, size_t width, FILE *out)
{
    char first_name[FLW_RANK_NAME_BYTES], second_name[FLW_RANK_NAME_BYTES];
    char asked[FLW_FIGURE_BYTES], held[FLW_FIGURE_BYTES], size[FLW_FIGURE_BYTES];
    if (reading->oom_count == 0) {
        return;
    }
    const struct flw_rank *first = flw_job_at(reading, reading->first);
    fprintf(out, "\n%s ran out of memory", name_rank(first, first_name));
    if (reading->oom_count > 1 && !reading->has_order) {
        fputs("; which rank was first is unknown, since recordings lack a clock", out);
    } else if (reading->oom_count > 1) {
        const struct flw_rank *second = flw_job_at(reading, reading->second);
        fprintf(out, " first by the recordings' clocks, %.6f s before %s",
                (double)(flw_job_oom_time(second) - flw_job_oom_time(first)) * 1e-9,
                name_rank(second, second_name));
    }
    fprintf(out, "\nit requested %s", flw_format_size(first->asked_bytes, asked));
    if (first->asked_by[0] != '\0') {
        char owner[FLW_RANK_NAME_BYTES];
        strcpy(owner, first->asked_by);
        flw_make_plain(owner);
        fprintf(out, " (%s)", owner);
    }
    fprintf(out, " and held %s; free on the device: %s\n",
            flw_format_size(first->oom_held_bytes, held), flw_format_size(first->free_bytes, size));
    print_more_than_others(reading, width, out);
}

/* Print the owners of which one rank has more than the mean, largest excess first, from 1 MiB. */
static void print_imbalance(const struct flw_job_reading *reading, size_t width, FILE *out)
{
    static const struct flw_column columns[] = {{"most / mean", FLW_COLUMN_REAL, 3, false},
                                                {"most", FLW_COLUMN_BYTES, 0, false},
                                                {"mean", FLW_COLUMN_BYTES, 0, false},
                                                {"rank", FLW_COLUMN_COUNT, 0, false},
                                                {"owner", FLW_COLUMN_TEXT, 0, false}};
    size_t count = 0;
    struct flw_job_owner *lines = flw_job_list_owners(reading, SIZE_MAX, &count);
    struct flw_table table;
    while (count != 0 && lines[count - 1].excess_bytes < FLW_MIB) {
        count--;
    }
    if (count == 0 && reading->comparable_count >= 2) {
        fprintf(out, "\nno owner has on one rank 1 MiB more at its peak than the mean of %zu\n",
                reading->comparable_count);
    } else if (count != 0) {
        flw_table_begin(&table, columns, 5, flw_unit_choose(lines[0].bytes));
        for (size_t i = 0; i < count && i < ROWS; i++) {
            const union flw_value values[] = {
                {.real = (double)lines[i].bytes * (double)reading->comparable_count /
                         (double)(lines[i].bytes + lines[i].others_bytes)},
                {.count = lines[i].bytes},
                {.count = lines[i].mean_bytes},
                {.count = flw_job_at(reading, lines[i].place)->rank},
                {.text = lines[i].name}};
            flw_table_row(&table, NULL, values);
        }
        fprintf(out, "\nimbalance, each rank at its peak: the most of one and the mean of %zu\n",
                reading->comparable_count);
        flw_table_print(&table, width, out);
        flw_table_finish(&table);
    }
    flw_host_free(lines);
}

static void print_limits(struct flw_job_reading *reading, size_t width, FILE *out)
{
    static const struct flw_column columns[] = {
        {"rank", FLW_COLUMN_COUNT, 0, false},   {"held", FLW_COLUMN_BYTES, 0, false},
        {"limit", FLW_COLUMN_BYTES, 0, false},  {"", FLW_COLUMN_TEXT, 0, false},
        {"share %", FLW_COLUMN_REAL, 1, false}, {"nearest for %", FLW_COLUMN_REAL, 1, false},
        {"trace", FLW_COLUMN_TEXT, 0, false}};
    const struct flw_job *job = reading->job;
    struct flw_table table;
    if (reading->fallback_bytes == FLW_UNKNOWN) {
        fputs("\nno limit is known: set --limit, or record a run that runs out of memory\n", out);
        return;
    }
    size_t *places = flw_job_list_places(reading);
    bool has_borrowed = false;
    flw_table_begin(&table, columns, 7,
                    flw_unit_choose(flw_job_at(reading, places[0])->peak_held_bytes));
    for (size_t i = 0; i < job->compared_count && i < ROWS; i++) {
        const struct flw_rank *record = flw_job_at(reading, places[i]);
        bool is_own = record->limit_bytes != FLW_UNKNOWN;
        double led = (double)reading->led_ns[places[i]] / (double)reading->span_ns;
        const union flw_value values[] = {
            {.count = record->rank},
            {.count = record->peak_held_bytes},
            {.count = flw_job_limit_of(reading, record)},
            {.text = is_own ? "" : "*"},
            {.real = 100.0 * flw_job_share_of(reading, record, record->peak_held_bytes)},
            {.real = reading->span_ns == 0 ? NAN : 100.0 * led},
            {.text = record->title}};
        flw_table_row(&table, NULL, values);
        has_borrowed |= !is_own;
    }
    fputs("\nnearest to the limit\n", out);
    flw_table_print(&table, width, out);
    flw_table_finish(&table);
    fputs("nearest for: the share of the time in which the rank was nearest to its limit\n", out);
    if (has_borrowed) {
        fputs(job->limit_bytes != 0 ? "* as --limit says\n"
                                    : "* of its own none is known: the least of another rank\n",
              out);
    }
    flw_host_free(places);
}

void flw_job_print_text(const struct flw_job *job, size_t columns, FILE *out)
{
    struct flw_job_reading reading;
    flw_job_read(&reading, job);
    print_head(&reading, out);
    print_oom(&reading, columns, out);
    print_imbalance(&reading, columns, out);
    print_limits(&reading, columns, out);
    flw_job_reading_finish(&reading);
}

/* ---- JSON ---- */

static void write_rank(struct flw_json_writer *out, const struct flw_rank *record)
{
    flw_json_count(out, "rank", record->rank);
    flw_json_text(out, "title", record->title);
}

static void write_owners(struct flw_json_writer *out, const struct flw_job_reading *reading,
                         size_t place, const char *key)
{
    size_t count = 0;
    struct flw_job_owner *lines = flw_job_list_owners(reading, place, &count);
    bool is_asked = place != SIZE_MAX;
    out->line = "  ";
    flw_json_begin(out, key, '[');
    for (size_t i = 0; i < count && i < JSON_ROWS; i++) {
        const struct flw_job_owner *line = &lines[i];
        flw_json_begin(out, NULL, '{');
        flw_json_text(out, "owner", line->name);
        flw_json_number(out, "bytes", line->bytes);
        if (!is_asked) {
            write_rank(out, flw_job_at(reading, line->place));
        }
        flw_json_number(out, is_asked ? "others_mean_bytes" : "mean_bytes", line->mean_bytes);
        flw_json_number(out, "others_most_bytes", line->others_most_bytes);
        flw_json_end(out, '}');
    }
    flw_json_end(out, ']');
    flw_host_free(lines);
}

static void write_oom(struct flw_json_writer *out, const struct flw_job_reading *reading)
{
    out->line = "  ";
    if (reading->oom_count == 0) {
        flw_json_null(out, "first_out_of_memory");
        return;
    }
    const struct flw_rank *first = flw_job_at(reading, reading->first);
    flw_json_begin(out, "first_out_of_memory", '{');
    write_rank(out, first);
    flw_json_bool(out, "by_clock", reading->has_order);
    FLW_JSON_COUNTS(out, {"time_ns", flw_job_oom_time(first)}, {"asked_bytes", first->asked_bytes},
                    {"held_bytes", first->oom_held_bytes},
                    {"device_free_bytes", first->free_bytes});
    flw_json_text(out, "owner", first->asked_by[0] == '\0' ? NULL : first->asked_by);
    write_owners(out, reading, reading->first, "more_than_others");
    flw_json_end(out, '}');
}

static void write_limits(struct flw_json_writer *out, struct flw_job_reading *reading)
{
    size_t *places = flw_job_list_places(reading);
    bool is_known = reading->fallback_bytes != FLW_UNKNOWN;
    out->line = "  ";
    flw_json_begin(out, "by_nearness_to_the_limit", '[');
    for (size_t i = 0; i < reading->job->compared_count; i++) {
        const struct flw_rank *record = flw_job_at(reading, places[i]);
        out->line = "   ";
        flw_json_begin(out, NULL, '{');
        write_rank(out, record);
        FLW_JSON_COUNTS(out, {"peak_held_bytes", record->peak_held_bytes},
                        {"peak_requested_bytes", record->peak_requested_bytes},
                        {"limit_bytes", flw_job_limit_of(reading, record)});
        flw_json_bool(out, "limit_is_its_own", record->limit_bytes != FLW_UNKNOWN);
        flw_json_real(out, "share", is_known,
                      is_known ? flw_job_share_of(reading, record, record->peak_held_bytes) : 0);
        flw_json_known(out, "nearest_for_ns", reading->has_timeline, reading->led_ns[places[i]]);
        flw_json_count(out, "ran_out_ns", flw_job_oom_time(record));
        flw_json_number(out, "out_of_memory_count", record->oom_count);
        flw_json_end(out, '}');
    }
    flw_json_end(out, ']');
    flw_host_free(places);
}

void flw_job_print_json(const struct flw_job *job, struct flw_json_writer *out)
{
    struct flw_job_reading reading;
    flw_job_read(&reading, job);
    out->line = " ";
    flw_json_begin(out, "job", '{');
    FLW_JSON_COUNTS(out, {"ranks", job->compared_count}, {"records", job->count},
                    {"out_of_memory", reading.oom_count},
                    {"compared_by_owner", reading.comparable_count});
    flw_json_text(out, "owner_rule", reading.like->rule);
    write_oom(out, &reading);
    write_owners(out, &reading, SIZE_MAX, "imbalance");
    write_limits(out, &reading);
    flw_json_end(out, '}');
    flw_job_reading_finish(&reading);
}

void flw_job_print_lines(const struct flw_job *job, FILE *out)
{
    for (size_t i = 0; i < job->count; i++) {
        fprintf(out, "%s\n", job->records[i].line);
    }
}
