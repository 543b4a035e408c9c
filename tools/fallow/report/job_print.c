/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <string.h>

#include "report/job_reading.h"

#include "base/bits.h"
#include "common/figures.h"
#include "common/tool_host.h"

#define WIDTH     80
#define ROWS      8   /* of a table in text */
#define JSON_ROWS 200 /* of a list in JSON */

/* ---- text ---- */

static const struct flw_unit mib = {"MiB", UINT64_C(1) << 20};

/* What a record says may hold anything: it ends no line and has no colour. The rest is the terminal's to show. */
static void print_letters(const char *text, size_t count, FILE *out)
{
    for (size_t i = 0; i < count; i++) {
        putc((unsigned char)text[i] < 0x20 || text[i] == 0x7F ? '?' : text[i], out);
    }
}

static void print_name(const char *name, FILE *out)
{
    print_letters(name, strlen(name), out);
}

/* In lines of at most WIDTH columns where words allow it; `column` is taken already. */
static void print_folded(const char *text, size_t column, FILE *out)
{
    for (size_t word; *text != '\0'; text += word) {
        bool follows = *text == ' ';
        text += follows;
        word = strcspn(text, " ");
        if (follows && column + 1 + word > WIDTH) {
            fputs("\n  ", out);
            column = 2;
        } else if (follows) {
            putc(' ', out);
            column++;
        }
        print_letters(text, word, out);
        column += word;
    }
    putc('\n', out);
}

static void print_bytes(uint64_t bytes, int width, FILE *out)
{
    char text[FLW_FIGURE_BYTES] = "-";
    if (bytes != FLW_UNKNOWN) {
        flw_format_bytes(bytes, mib, text);
    }
    fprintf(out, "%*s", width, text);
}

/* "rank 3", or the file's name. */
static void print_rank(const struct flw_rank *record, FILE *out)
{
    if (record->rank == FLW_UNKNOWN) {
        print_name(record->title, out);
    } else {
        fprintf(out, "rank %" PRIu64, record->rank);
    }
}

static void print_rank_cell(const struct flw_rank *record, FILE *out)
{
    if (record->rank == FLW_UNKNOWN) {
        fprintf(out, " %6s", "-");
    } else {
        fprintf(out, " %6" PRIu64, record->rank);
    }
}

static void print_head(const struct flw_job_reading *reading, FILE *out)
{
    const struct flw_job *job = reading->job;
    char oom_count[FLW_FIGURE_BYTES] = "none";
    if (reading->oom_count != 0) {
        snprintf(oom_count, sizeof oom_count, "%zu", reading->oom_count);
    }
    size_t again_count = job->count - job->compared_count;
    size_t apart_count = job->compared_count - reading->comparable_count;
    fprintf(out, "a job of %zu rank%s; %s ran out of memory\n", job->compared_count,
            flw_plural(job->compared_count), oom_count);
    if (again_count != 0) {
        fprintf(out, "%zu record%s of a rank that has another, which is compared\n", again_count,
                again_count == 1 ? " is" : "s are each");
    }
    print_folded(reading->like->rule, (size_t)fprintf(out, "owners: "), out);
    if (apart_count != 0) {
        fprintf(out, "%zu rank%s left out by owner: no stacks were recorded, or other rules hold\n",
                apart_count, apart_count == 1 ? " is" : "s are");
    }
}

static void print_more_than_others(const struct flw_job_reading *reading, FILE *out)
{
    size_t count = 0;
    struct flw_job_owner *lines = flw_job_list_owners(reading, reading->first, &count);
    if (count != 0) {
        fprintf(out, "it held more then than the other %zu at their peaks:\n%10s%14s%14s  owner\n",
                reading->comparable_count - 1, "MiB", "others' mean", "others' most");
    }
    for (size_t i = 0; i < count && i < ROWS; i++) {
        print_bytes(lines[i].bytes, 10, out);
        print_bytes(lines[i].mean_bytes, 14, out);
        print_bytes(lines[i].others_most_bytes, 14, out);
        fputs("  ", out);
        print_name(lines[i].name, out);
        fputc('\n', out);
    }
    flw_host_free(lines);
}

static void print_oom(const struct flw_job_reading *reading, FILE *out)
{
    if (reading->oom_count == 0) {
        return;
    }
    const struct flw_rank *first = flw_job_at(reading, reading->first);
    fputc('\n', out);
    print_rank(first, out);
    if (reading->oom_count == 1) {
        fputs(" ran out of memory", out);
    } else if (!reading->has_order) {
        fputs(" ran out of memory; which was first is not known, for recordings lack a clock", out);
    } else {
        const struct flw_rank *second = flw_job_at(reading, reading->second);
        fprintf(out, " ran out of memory first by the recordings' clocks, %.6f s before ",
                (double)(flw_job_oom_time(second) - flw_job_oom_time(first)) * 1e-9);
        print_rank(second, out);
    }
    fputs("\nit asked for ", out);
    print_bytes(first->asked_bytes, 0, out);
    fputs(" MiB", out);
    if (first->asked_by[0] != '\0') {
        fputs(" (", out);
        print_name(first->asked_by, out);
        fputc(')', out);
    }
    fputs(", held ", out);
    print_bytes(first->oom_held_bytes, 0, out);
    fputs(" MiB; free on the device, MiB: ", out);
    print_bytes(first->free_bytes, 0, out);
    fputc('\n', out);
    print_more_than_others(reading, out);
}

/* What would be 0 MiB in its line is left out: lines come by what the most has above the mean. */
static void print_imbalance(const struct flw_job_reading *reading, FILE *out)
{
    size_t count = 0;
    struct flw_job_owner *lines = flw_job_list_owners(reading, SIZE_MAX, &count);
    while (count != 0 && lines[count - 1].excess_bytes < FLW_MIB) {
        count--;
    }
    if (count == 0 && reading->comparable_count >= 2) {
        fprintf(out, "\nno owner has on one rank 1 MiB more at its peak than the mean of %zu\n",
                reading->comparable_count);
    } else if (count != 0) {
        fprintf(out,
                "\nimbalance, each rank at its peak: the most of one over the mean of %zu\n"
                "%10s%10s%10s %6s  owner\n",
                reading->comparable_count, "max/mean", "MiB", "mean MiB", "rank");
    }
    for (size_t i = 0; i < count && i < ROWS; i++) {
        fprintf(out, "%10.3f",
                (double)lines[i].bytes * (double)reading->comparable_count /
                    (double)(lines[i].bytes + lines[i].others_bytes));
        print_bytes(lines[i].bytes, 10, out);
        print_bytes(lines[i].mean_bytes, 10, out);
        print_rank_cell(flw_job_at(reading, lines[i].place), out);
        fputs("  ", out);
        print_name(lines[i].name, out);
        fputc('\n', out);
    }
    flw_host_free(lines);
}

static void print_limits(struct flw_job_reading *reading, FILE *out)
{
    const struct flw_job *job = reading->job;
    if (reading->fallback_bytes == FLW_UNKNOWN) {
        fputs("\nno limit is known: a recording tells it when memory runs out; --limit names it\n",
              out);
        return;
    }
    size_t *places = flw_job_list_places(reading);
    bool has_borrowed = false;
    fprintf(out, "\nnearest to the limit\n %6s%10s%11s%9s%15s  trace\n", "rank", "held MiB",
            "limit MiB", "share %", "nearest for %");
    for (size_t i = 0; i < job->compared_count && i < ROWS; i++) {
        const struct flw_rank *record = flw_job_at(reading, places[i]);
        bool is_own = record->limit_bytes != FLW_UNKNOWN;
        char led[FLW_FIGURE_BYTES] = "-";
        if (reading->span_ns != 0) {
            snprintf(led, sizeof led, "%.1f",
                     100.0 * (double)reading->led_ns[places[i]] / (double)reading->span_ns);
        }
        has_borrowed |= !is_own;
        print_rank_cell(record, out);
        print_bytes(record->peak_held_bytes, 10, out);
        print_bytes(flw_job_limit_of(reading, record), 10, out);
        fprintf(out, "%s%9.1f%15s  ", is_own ? " " : "*",
                100.0 * flw_job_share_of(reading, record, record->peak_held_bytes), led);
        print_name(record->title, out);
        fputc('\n', out);
    }
    if (has_borrowed) {
        fputs(job->limit_bytes != 0 ? "* as --limit says\n"
                                    : "* of its own none is known: the least of another rank\n",
              out);
    }
    flw_host_free(places);
}

void flw_job_print_text(const struct flw_job *job, FILE *out)
{
    struct flw_job_reading reading;
    flw_job_read(&reading, job);
    print_head(&reading, out);
    print_oom(&reading, out);
    print_imbalance(&reading, out);
    print_limits(&reading, out);
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
