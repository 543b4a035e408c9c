/* SPDX-License-Identifier: Apache-2.0 */
#include "replay/report.h"

#include <inttypes.h>
#include <string.h>

#include "base/bits.h"
#include "trace/trace/trace.h"

#include "common/figures.h"
#include "common/tabular.h"
#include "policies/plan.h"

#define CELL_BYTES 96

enum column {
    NAME,
    REQUESTED,
    RESERVED,
    RATIO,
    FAILED,
    GROW,
    CALLS,
    DRIVER_TIME,
    EVENTS,
    STEALS,
    WAITS,
    STREAM_WAIT,
    REMAP_WAITS,
    P50,
    P99,
    P999,
    LIMIT,
    COLUMN_COUNT
};

/* Two lines of heading a column. */
static const char *const headings[COLUMN_COUNT][2] = {
    [NAME] = {"", "policy"},
    [REQUESTED] = {"requested", ""}, /* the unit goes below */
    [RESERVED] = {"reserved", ""},
    [RATIO] = {"reserved/", "requested"},
    [FAILED] = {"failed", ""},
    [GROW] = {"grow", "ops"},
    [CALLS] = {"driver", "calls"},
    [DRIVER_TIME] = {"driver", "ms"},
    [EVENTS] = {"events", ""},
    [STEALS] = {"steals", ""},
    [WAITS] = {"waits", ""},
    [STREAM_WAIT] = {"stream", "wait"},
    [REMAP_WAITS] = {"remap", "waits"},
    [P50] = {"p50", "ns"},
    [P99] = {"p99", "ns"},
    [P999] = {"p99.9", "ns"},
    [LIMIT] = {"smallest", "limit"},
};

static struct flw_unit choose_unit(const struct flw_report *report)
{
    return flw_unit_choose(report->setup->trace->peak_requested_bytes);
}

const char *flw_report_label(const struct flw_report *report, const struct flw_policy *policy)
{
    return report->is_sim && policy->sim_label != NULL ? policy->sim_label : policy->name;
}

/* Red where requests failed, bold where the policy is the library's. */
static const char *style_of(const struct flw_run_result *result, bool uses_colour)
{
    bool is_bad = result->failure_count != 0 && result->failure_count != FLW_NOT_APPLICABLE;
    bool is_ours = strncmp(result->policy->name, "fallow", 6) == 0;
    return !uses_colour ? NULL : is_bad ? "\033[31m" : is_ours ? "\033[1m" : NULL;
}

static void fill_row(const struct flw_report *report, const struct flw_run_result *result,
                     struct flw_unit unit, flw_table_cell *cells)
{
    snprintf(cells[NAME], FLW_TABLE_CELL_BYTES, "%s", flw_report_label(report, result->policy));
    flw_format_bytes(result->peak_requested_bytes, unit, cells[REQUESTED]);
    flw_format_bytes(result->statistics.peak_reserved_bytes, unit, cells[RESERVED]);
    strcpy(cells[RATIO], "-");
    if (result->statistics.peak_reserved_bytes != FLW_NOT_APPLICABLE &&
        result->peak_requested_bytes != 0) {
        snprintf(cells[RATIO], FLW_TABLE_CELL_BYTES, "%.3f",
                 (double)result->statistics.peak_reserved_bytes /
                     (double)result->peak_requested_bytes);
    }
    flw_format_optional(result->failure_count, cells[FAILED]);
    flw_format_optional(result->statistics.grow_count, cells[GROW]);
    flw_format_optional(result->statistics.driver_call_count, cells[CALLS]);
    strcpy(cells[DRIVER_TIME], "-");
    if (result->account.modelled_ns != FLW_NOT_APPLICABLE) {
        snprintf(cells[DRIVER_TIME], FLW_TABLE_CELL_BYTES, "%.1f",
                 (double)result->account.modelled_ns * 1e-6);
    }
    flw_format_optional(result->statistics.event_count, cells[EVENTS]);
    flw_format_optional(result->statistics.steal_count, cells[STEALS]);
    flw_format_optional(result->statistics.wait_count, cells[WAITS]);
    flw_format_optional(result->account.stream_wait_units, cells[STREAM_WAIT]);
    if (report->is_by_time && result->account.stream_wait_units != FLW_NOT_APPLICABLE) {
        snprintf(cells[STREAM_WAIT], FLW_TABLE_CELL_BYTES, "%.1f ms",
                 (double)result->account.stream_wait_units * 1e-6);
    }
    flw_format_optional(result->statistics.remap_wait_count, cells[REMAP_WAITS]);
    const double times[] = {result->all_times.p50_ns, result->all_times.p99_ns,
                            result->all_times.p999_ns};
    for (int i = 0; i < 3; i++) {
        strcpy(cells[P50 + i], "-");
        if (result->has_times) {
            flw_format_count((uint64_t)(times[i] + 0.5), cells[P50 + i]);
        }
    }
    if (report->finds_limit) {
        flw_format_bytes(result->smallest_limit_bytes, unit, cells[LIMIT]);
    }
}

/* The bound of those that make no one wait is a line below the bound, where the two may differ. */
static bool has_without_wait(const struct flw_report *report, const struct flw_run_result *result)
{
    return report->is_sim && result->statistics.without_wait_bytes != FLW_NOT_APPLICABLE &&
           flw_plan_may_wait(report->setup->program, report->setup->lag_units);
}

static void fill_headings(struct flw_unit unit, struct flw_table *table)
{
    for (int line = 0; line < 2; line++) {
        flw_table_cell *cells = flw_table_add(table, NULL);
        for (size_t c = 0; c < table->column_count; c++) {
            strcpy(cells[c], headings[c][line]);
        }
        if (line == 1) {
            strcpy(cells[REQUESTED], unit.name);
            strcpy(cells[RESERVED], unit.name);
        }
    }
}

static void print_rows(const struct flw_report *report, FILE *out,
                       const struct flw_report_style *style)
{
    struct flw_unit unit = choose_unit(report);
    struct flw_table table = {.column_count = report->finds_limit ? COLUMN_COUNT : COLUMN_COUNT - 1,
                              .head_count = 2};
    fill_headings(unit, &table);
    for (size_t i = 0; i < report->result_count; i++) {
        struct flw_run_result result = report->results[i];
        const char *colour = style_of(&result, style->uses_colour);
        fill_row(report, &result, unit, flw_table_add(&table, colour));
        if (has_without_wait(report, &result)) {
            result.statistics.peak_reserved_bytes = result.statistics.without_wait_bytes;
            result.smallest_limit_bytes = FLW_NOT_APPLICABLE;
            flw_table_cell *cells = flw_table_add(&table, colour);
            fill_row(report, &result, unit, cells);
            strcpy(cells[NAME], FLW_PLAN_WITHOUT_WAIT);
        }
    }
    flw_table_print(&table, style->columns, out);
    flw_table_finish(&table);
}

/* ---- waits ---- */

static bool is_some(uint64_t count)
{
    return count != FLW_NOT_APPLICABLE && count != 0;
}

static void format_rate(uint64_t count, uint64_t alloc_count, flw_table_cell out)
{
    strcpy(out, "-");
    if (count != FLW_NOT_APPLICABLE && is_some(alloc_count)) {
        double rate = 1000.0 * (double)count / (double)alloc_count;
        if (rate < 1000) {
            snprintf(out, FLW_TABLE_CELL_BYTES, "%.1f", rate);
        } else {
            flw_format_count((uint64_t)(rate + 0.5), out);
        }
    }
}

static void fill_rates(const struct flw_run_counts *counts, flw_table_cell *cells)
{
    format_rate(counts->wait_count, counts->alloc_count, cells[0]);
    format_rate(counts->stream_wait_count, counts->alloc_count, cells[1]);
    format_rate(counts->driver_call_count, counts->alloc_count, cells[2]);
}

static bool has_waits(const struct flw_report *report)
{
    for (size_t i = 0; i < report->result_count; i++) {
        const struct flw_run_result *result = &report->results[i];
        if (result->policy->allocates &&
            (is_some(result->all.wait_count) || is_some(result->all.stream_wait_count))) {
            return true;
        }
    }
    return false;
}

/* Where some policy waits: how often for what it serves, and whether it goes on once it has settled. */
static void print_waits(const struct flw_report *report, FILE *out,
                        const struct flw_report_style *style)
{
    static const char *const heads[][7] = {
        {"", "host", "stream", "driver", "last quarter:", "stream", "driver"},
        {"policy", "waits", "waits", "calls", "host waits", "waits", "calls"}};
    struct flw_table table = {.column_count = 7, .head_count = 2};
    if (!has_waits(report)) {
        return;
    }
    for (size_t line = 0; line < 2; line++) {
        flw_table_cell *cells = flw_table_add(&table, NULL);
        for (size_t c = 0; c < table.column_count; c++) {
            strcpy(cells[c], heads[line][c]);
        }
    }
    for (size_t i = 0; i < report->result_count; i++) {
        const struct flw_run_result *result = &report->results[i];
        if (result->policy->allocates) {
            flw_table_cell *cells = flw_table_add(&table, NULL);
            snprintf(cells[0], FLW_TABLE_CELL_BYTES, "%s",
                     flw_report_label(report, result->policy));
            fill_rates(&result->all, cells + 1);
            fill_rates(&result->last_quarter, cells + 4);
        }
    }
    fputs("per 1,000 allocations\n", out);
    flw_table_print(&table, style->columns, out);
    flw_table_finish(&table);
    fputc('\n', out);
}

/* ---- header, match and verdict ---- */

static void print_header(const struct flw_report *report, FILE *out)
{
    char events[CELL_BYTES];
    char allocs[CELL_BYTES];
    char initial[CELL_BYTES];
    const struct flw_trace *trace = report->setup->trace;
    size_t stream_count = report->setup->program->stream_count;
    flw_format_count(trace->event_count, events);
    flw_format_count(trace->alloc_count, allocs);
    fprintf(out, "trace   %s: %s event%s, %s allocation%s, %zu stream%s",
            trace->source == NULL ? "?" : trace->source, events, flw_plural(trace->event_count),
            allocs, flw_plural(trace->alloc_count), stream_count, flw_plural(stream_count));
    if (trace->initial_count != 0) {
        flw_format_count(trace->initial_count, initial);
        fprintf(out, ", %s block%s alive at the start", initial, flw_plural(trace->initial_count));
    }
    if (trace->unknown_free_count != 0) {
        fprintf(out, ", %" PRIu64 " free%s of unknown blocks left out", trace->unknown_free_count,
                flw_plural(trace->unknown_free_count));
    }
    fputc('\n', out);
}

static void print_device(const struct flw_report *report, FILE *out)
{
    char text[CELL_BYTES];
    uint64_t device_bytes = report->setup->device_bytes;
    bool is_odd = report->is_sim && device_bytes % FLW_GIB != 0; /* somebody chose it */
    flw_format_count(device_bytes / (is_odd ? FLW_MIB : FLW_GIB), text);
    fprintf(out, "device  %s, %s %s, ", report->device_name, text, is_odd ? "MiB" : "GiB");
    if (report->setup->limit_bytes != 0) {
        flw_format_count(flw_div_up(report->setup->limit_bytes, FLW_MIB), text);
        fprintf(out, "limit %s MiB, ", text);
    }
    flw_format_count(
        report->is_by_time ? report->setup->lag_units / 1000 : report->setup->lag_units, text);
    if (report->setup->lag_units == 0) {
        fprintf(out, "no device work");
    } else if (!report->is_sim) {
        fprintf(out, "one small memset a block and use, reserved as each policy counts it");
    } else {
        fprintf(out, "work done %s %s%s late", text,
                report->is_by_time ? "us of trace time" : "event",
                report->is_by_time ? "" : flw_plural(report->setup->lag_units));
    }
    fprintf(out, "%s\n",
            !report->is_sim         ? ""
            : report->setup->checks ? ", rule checker on"
                                    : ", rule checker off");
}

static void print_matches(const struct flw_report *report, FILE *out)
{
    char match[CELL_BYTES];
    char of[CELL_BYTES];
    for (size_t i = 0; i < report->result_count; i++) {
        const struct flw_policy_statistics *statistics = &report->results[i].statistics;
        uint64_t compare_count = statistics->compare_count;
        if (!report->results[i].policy->allocates || compare_count == FLW_NOT_APPLICABLE ||
            compare_count == 0) {
            continue;
        }
        flw_format_count(statistics->match_count, match);
        flw_format_count(statistics->compare_count, of);
        double share = 100.0 * (double)statistics->match_count / (double)compare_count;
        fprintf(out,
                "%s model: %s of %s addresses as recorded (%.1f %%), %" PRIu64
                " segments against %" PRIu64 " recorded, %s%s\n",
                report->results[i].policy->name, match, of, share, statistics->segment_count,
                statistics->recorded_segment_count,
                statistics->has_same_segments ? "identical" : "not identical",
                statistics->is_seeded ? ", started from the recorded heap" : "");
    }
}

static void print_pools(const struct flw_report *report, FILE *out)
{
    char note[FLW_PLAN_NOTE_BYTES];
    flw_plan_say_pools(report->setup->program, report->results, report->result_count, note);
    if (note[0] != '\0') {
        fprintf(out, "%s\n", note);
    }
}

/* What a repeating step still costs. */
static void print_last_passes(const struct flw_report *report, FILE *out)
{
    char calls[CELL_BYTES];
    char events[CELL_BYTES];
    char waits[CELL_BYTES];
    for (size_t i = 0; report->setup->pass_count > 1 && i < report->result_count; i++) {
        const struct flw_run_result *result = &report->results[i];
        if (!result->policy->allocates) {
            continue;
        }
        flw_format_optional(result->last_pass.driver_call_count, calls);
        flw_format_optional(result->last_pass.event_count, events);
        flw_format_optional(result->last_pass.remap_wait_count, waits);
        fprintf(out, "pass %u of %s: %s driver calls, %s events, %s remap waits\n",
                report->setup->pass_count, flw_report_label(report, result->policy), calls, events,
                waits);
    }
}

static const struct flw_run_result *find(const struct flw_report *report, const char *name)
{
    for (size_t i = 0; i < report->result_count; i++) {
        if (strcmp(report->results[i].policy->name, name) == 0) {
            return &report->results[i];
        }
    }
    return NULL;
}

/* Whose verdict it is: the library's, else the first policy that is no yardstick. */
static const struct flw_run_result *find_subject(const struct flw_report *report)
{
    const struct flw_run_result *subject = find(report, "fallow");
    for (size_t i = 0; subject == NULL && i < report->result_count; i++) {
        const char *name = report->results[i].policy->name;
        if (report->results[i].policy->allocates && strcmp(name, "pytorch") != 0) {
            subject = &report->results[i];
        }
    }
    return subject;
}

/* Print ", 9.0 % less than NAME (15,362 MiB)"; nothing if `other_bytes` is unknown. */
static void print_comparison(const struct flw_run_result *subject, const char *name,
                             uint64_t other_bytes, struct flw_unit unit, FILE *out)
{
    char text[CELL_BYTES];
    if (other_bytes == FLW_NOT_APPLICABLE || other_bytes == 0) {
        return;
    }
    double share =
        100.0 * ((double)subject->statistics.peak_reserved_bytes / (double)other_bytes - 1.0);
    flw_format_bytes(other_bytes, unit, text);
    fprintf(out, ", %.1f %% %s than %s (%s %s)", share < 0 ? -share : share,
            share < 0 ? "less" : "more", name, text, unit.name);
}

/* Return the name of a policy in the verdict; NULL if the verdict does not compare with it. */
static const char *compared_name(const struct flw_report *report, const struct flw_policy *policy)
{
    return strcmp(policy->name, "pytorch") == 0              ? "the model of PyTorch"
           : strcmp(policy->name, "pytorch-expandable") == 0 ? "that with expandable segments"
           : report->is_sim || !policy->allocates            ? NULL
                                                             : policy->name;
}

static void print_verdict(const struct flw_report *report, FILE *out)
{
    char text[CELL_BYTES];
    struct flw_unit unit = choose_unit(report);
    const struct flw_trace *trace = report->setup->trace;
    const struct flw_run_result *subject = find_subject(report);
    if (subject == NULL || subject->statistics.peak_reserved_bytes == FLW_NOT_APPLICABLE) {
        return;
    }
    flw_format_bytes(subject->statistics.peak_reserved_bytes, unit, text);
    fprintf(out, "%s holds %s %s", flw_report_label(report, subject->policy), text, unit.name);
    bool is_pytorch = trace->format != NULL && strstr(trace->format, "pytorch") != NULL;
    print_comparison(subject, is_pytorch ? "PyTorch held" : "the recorded allocator held",
                     trace->recorded_peak_reserved_bytes, unit, out);
    for (size_t i = 0; i < report->result_count; i++) {
        const struct flw_run_result *other = &report->results[i];
        const char *name = compared_name(report, other->policy);
        if (other != subject && name != NULL) {
            print_comparison(subject, name, other->statistics.peak_reserved_bytes, unit, out);
        }
    }
    if (subject->failure_count != 0) {
        flw_format_count(subject->failure_count, text);
        fprintf(out, "; %s request%s failed", text, flw_plural(subject->failure_count));
    }
    fputc('\n', out);
}

/* Print what each policy held at its peak, and how to read that. */
static void print_brief(const struct flw_report *report, const struct flw_report_style *style,
                        FILE *out)
{
    struct flw_unit unit = choose_unit(report);
    struct flw_table table = {.column_count = 3, .head_count = 1};
    flw_table_cell *cells = flw_table_add(&table, NULL);
    strcpy(cells[0], "at the peak");
    snprintf(cells[1], FLW_TABLE_CELL_BYTES, "held %s", unit.name);
    strcpy(cells[2], "held/live");
    for (size_t i = 0; i < report->result_count; i++) {
        const struct flw_run_result *result = &report->results[i];
        flw_table_cell row[COLUMN_COUNT];
        fill_row(report, result, unit, row);
        cells = flw_table_add(&table, style_of(result, style->uses_colour));
        strcpy(cells[0], strcmp(row[NAME], "bound") == 0 ? "live bytes" : row[NAME]);
        strcpy(cells[1], row[RESERVED]);
        strcpy(cells[2], row[RATIO]);
    }
    flw_table_print(&table, style->columns, out);
    flw_table_finish(&table);
    fputs("\nLower is better: no allocator can hold less than the live bytes.\n", out);
}

void flw_report_print_table(const struct flw_report *report, const struct flw_report_style *style,
                            FILE *out)
{
    print_header(report, out);
    bool is_of_device = report->has_device;
    for (size_t i = 0; i < report->result_count; i++) {
        is_of_device |= has_without_wait(report, &report->results[i]); /* with its lag */
    }
    if (is_of_device) {
        print_device(report, out);
    }
    fputc('\n', out);
    if (style->is_brief) {
        print_brief(report, style, out);
    } else {
        print_rows(report, out, style);
        fputc('\n', out);
        print_waits(report, out, style);
    }
    print_matches(report, out);
    print_pools(report, out);
    print_last_passes(report, out);
    print_verdict(report, out);
}
