/* SPDX-License-Identifier: Apache-2.0 */
#include "replay/report.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/bits.h"
#include "trace/trace/trace.h"

#include "common/figures.h"
#include "common/tabular.h"
#include "policies/plan.h"

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

static struct flw_unit choose_unit(const struct flw_report *report)
{
    return flw_unit_choose(report->setup->trace->peak_requested_bytes);
}

const char *flw_report_label(const struct flw_report *report, const struct flw_policy *policy)
{
    return report->is_sim && policy->sim_label != NULL ? policy->sim_label : policy->name;
}

/* Return red if requests failed, bold for policies of the library. */
static const char *style_of(const struct flw_run_result *result, bool uses_colour)
{
    bool is_bad = result->failure_count != 0 && result->failure_count != FLW_NOT_APPLICABLE;
    bool is_ours = strncmp(result->policy->name, "fallow", 6) == 0;
    return !uses_colour ? NULL : is_bad ? "\033[31m" : is_ours ? "\033[1m" : NULL;
}

/* True if the bound of policies that never wait has a row of its own below the bound. */
static bool has_without_wait(const struct flw_report *report, const struct flw_run_result *result)
{
    return report->is_sim && result->statistics.without_wait_bytes != FLW_NOT_APPLICABLE &&
           flw_plan_may_wait(report->setup->program, report->setup->lag_units);
}

/* ---- tables ---- */

static double ratio_of(const struct flw_run_result *result)
{
    return result->statistics.peak_reserved_bytes == FLW_NOT_APPLICABLE ||
                   result->peak_requested_bytes == 0
               ? NAN
               : (double)result->statistics.peak_reserved_bytes /
                     (double)result->peak_requested_bytes;
}

static double scaled(uint64_t value, double unit)
{
    return value == FLW_NOT_APPLICABLE ? NAN : (double)value / unit;
}

static void add_row(const struct flw_report *report, const struct flw_run_result *result,
                    const char *name, const char *style, struct flw_table *table)
{
    const struct flw_policy_statistics *statistics = &result->statistics;
    const struct flw_run_times *times = &result->all_times;
    const union flw_value values[COLUMN_COUNT] = {
        [NAME] = {.text = name},
        [REQUESTED] = {.count = result->peak_requested_bytes},
        [RESERVED] = {.count = statistics->peak_reserved_bytes},
        [RATIO] = {.real = ratio_of(result)},
        [FAILED] = {.count = result->failure_count},
        [GROW] = {.count = statistics->grow_count},
        [CALLS] = {.count = statistics->driver_call_count},
        [DRIVER_TIME] = {.real = scaled(result->account.modelled_ns, 1e6)},
        [EVENTS] = {.count = statistics->event_count},
        [STEALS] = {.count = statistics->steal_count},
        [WAITS] = {.count = statistics->wait_count},
        [STREAM_WAIT] = {.real = scaled(result->account.stream_wait_units,
                                        report->is_by_time ? 1e6 : 1)},
        [REMAP_WAITS] = {.count = statistics->remap_wait_count},
        [P50] = {.real = result->has_times ? times->p50_ns : NAN},
        [P99] = {.real = result->has_times ? times->p99_ns : NAN},
        [P999] = {.real = result->has_times ? times->p999_ns : NAN},
        [LIMIT] = {.count = result->smallest_limit_bytes}};
    flw_table_row(table, style, values);
}

static void print_rows(const struct flw_report *report, const struct flw_report_style *style,
                       FILE *out)
{
    const struct flw_column columns[COLUMN_COUNT] = {
        [NAME] = {"policy", FLW_COLUMN_TEXT, 0, false},
        [REQUESTED] = {"live\n", FLW_COLUMN_BYTES, 0, false},
        [RESERVED] = {"reserved\n", FLW_COLUMN_BYTES, 0, false},
        [RATIO] = {"reserved\n/ live", FLW_COLUMN_REAL, 3, false},
        [FAILED] = {"failed", FLW_COLUMN_COUNT, 0, false},
        [GROW] = {"growths", FLW_COLUMN_COUNT, 0, false},
        [CALLS] = {"driver\ncalls", FLW_COLUMN_COUNT, 0, false},
        [DRIVER_TIME] = {"driver\nms", FLW_COLUMN_REAL, 1, false},
        [EVENTS] = {"events", FLW_COLUMN_COUNT, 0, false},
        [STEALS] = {"steals", FLW_COLUMN_COUNT, 0, false},
        [WAITS] = {"waits", FLW_COLUMN_COUNT, 0, false},
        [STREAM_WAIT] = {report->is_by_time ? "stream\nwait ms" : "stream\nwait", FLW_COLUMN_REAL,
                         report->is_by_time, false},
        [REMAP_WAITS] = {"remap\nwaits", FLW_COLUMN_COUNT, 0, false},
        [P50] = {"p50\nns", FLW_COLUMN_REAL, 0, false},
        [P99] = {"p99\nns", FLW_COLUMN_REAL, 0, false},
        [P999] = {"p99.9\nns", FLW_COLUMN_REAL, 0, false},
        [LIMIT] = {"smallest\nlimit", FLW_COLUMN_BYTES, 0, false}};
    struct flw_table table;
    flw_table_begin(&table, columns, report->finds_limit ? COLUMN_COUNT : LIMIT,
                    choose_unit(report));
    for (size_t i = 0; i < report->result_count; i++) {
        struct flw_run_result result = report->results[i];
        const char *colour = style_of(&result, style->uses_colour);
        add_row(report, &result, flw_report_label(report, result.policy), colour, &table);
        if (has_without_wait(report, &result)) {
            result.statistics.peak_reserved_bytes = result.statistics.without_wait_bytes;
            result.smallest_limit_bytes = FLW_NOT_APPLICABLE;
            add_row(report, &result, FLW_PLAN_WITHOUT_WAIT, colour, &table);
        }
    }
    flw_table_print(&table, style->columns, out);
    flw_table_finish(&table);
    fputs(
        "live, reserved: at the peak; growths: times that memory was taken from the driver; steals, "
        "waits: reuse of memory that another stream freed, and waits for it\n",
        out);
}

static bool is_some(uint64_t count)
{
    return count != FLW_NOT_APPLICABLE && count != 0;
}

static double rate_of(uint64_t count, uint64_t alloc_count)
{
    return is_some(alloc_count) ? 1000.0 * scaled(count, 1) / (double)alloc_count : NAN;
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

/* Print how often policies wait, in all of the trace and in its last quarter. */
static void print_waits(const struct flw_report *report, const struct flw_report_style *style,
                        FILE *out)
{
    static const struct flw_column columns[] = {
        {"policy", FLW_COLUMN_TEXT, 0, false},
        {"host\nwaits", FLW_COLUMN_REAL, 1, false},
        {"stream\nwaits", FLW_COLUMN_REAL, 1, false},
        {"driver\ncalls", FLW_COLUMN_REAL, 1, false},
        {"last quarter:\nhost waits", FLW_COLUMN_REAL, 1, false},
        {"stream\nwaits", FLW_COLUMN_REAL, 1, false},
        {"driver\ncalls", FLW_COLUMN_REAL, 1, false}};
    struct flw_table table;
    if (!has_waits(report)) {
        return;
    }
    flw_table_begin(&table, columns, 7, choose_unit(report));
    for (size_t i = 0; i < report->result_count; i++) {
        const struct flw_run_result *result = &report->results[i];
        const struct flw_run_counts *all = &result->all, *last = &result->last_quarter;
        const union flw_value values[] = {
            {.text = flw_report_label(report, result->policy)},
            {.real = rate_of(all->wait_count, all->alloc_count)},
            {.real = rate_of(all->stream_wait_count, all->alloc_count)},
            {.real = rate_of(all->driver_call_count, all->alloc_count)},
            {.real = rate_of(last->wait_count, last->alloc_count)},
            {.real = rate_of(last->stream_wait_count, last->alloc_count)},
            {.real = rate_of(last->driver_call_count, last->alloc_count)}};
        if (result->policy->allocates) {
            flw_table_row(&table, NULL, values);
        }
    }
    fputs("\nper 1,000 allocations\n", out);
    flw_table_print(&table, style->columns, out);
    flw_table_finish(&table);
}

/* Print the reserved memory of each policy, and how to read it. */
static void print_brief(const struct flw_report *report, const struct flw_report_style *style,
                        FILE *out)
{
    static const struct flw_column columns[] = {{"at the peak", FLW_COLUMN_TEXT, 0, false},
                                                {"reserved", FLW_COLUMN_BYTES, 0, false},
                                                {"reserved / live", FLW_COLUMN_REAL, 3, false}};
    struct flw_table table;
    flw_table_begin(&table, columns, 3, choose_unit(report));
    for (size_t i = 0; i < report->result_count; i++) {
        const struct flw_run_result *result = &report->results[i];
        const char *label = flw_report_label(report, result->policy);
        const union flw_value values[] = {
            {.text = strcmp(label, "bound") == 0 ? "live bytes" : label},
            {.count = result->statistics.peak_reserved_bytes},
            {.real = ratio_of(result)}};
        flw_table_row(&table, style_of(result, style->uses_colour), values);
    }
    flw_table_print(&table, style->columns, out);
    flw_table_finish(&table);
    fputs("\nLower is better: no allocator can reserve less than the live bytes.\n", out);
}

/* ---- header, match and verdict ---- */

static void print_header(const struct flw_report *report, FILE *out)
{
    char count[FLW_FIGURE_BYTES], allocs[FLW_FIGURE_BYTES];
    const struct flw_trace *trace = report->setup->trace;
    size_t stream_count = report->setup->program->stream_count;
    fprintf(out, "trace   %s: %s event%s, %s allocation%s, %zu stream%s",
            trace->source == NULL ? "?" : trace->source,
            flw_format_count(trace->event_count, count), flw_plural(trace->event_count),
            flw_format_count(trace->alloc_count, allocs), flw_plural(trace->alloc_count),
            stream_count, flw_plural(stream_count));
    if (trace->initial_count != 0) {
        fprintf(out, ", %s block%s live at the start",
                flw_format_count(trace->initial_count, count), flw_plural(trace->initial_count));
    }
    if (trace->unknown_free_count != 0) {
        fprintf(out, ", %" PRIu64 " free%s of unknown blocks left out", trace->unknown_free_count,
                flw_plural(trace->unknown_free_count));
    }
    fputc('\n', out);
}

static void print_device(const struct flw_report *report, FILE *out)
{
    const struct flw_run_setup *setup = report->setup;
    char text[FLW_FIGURE_BYTES];
    fprintf(out, "device  %s, %s, ", report->device_name,
            flw_format_size(setup->device_bytes, text));
    if (setup->limit_bytes != 0) {
        fprintf(out, "limit %s, ", flw_format_size(setup->limit_bytes, text));
    }
    if (setup->lag_units == 0) {
        fputs("no GPU work", out);
    } else if (!report->is_sim) {
        fputs("one small memset a block and use, reserved as each policy counts it", out);
    } else if (report->is_by_time) {
        fprintf(out, "kernels %s late", flw_format_time((double)setup->lag_units, text));
    } else {
        fprintf(out, "kernels %s event%s late", flw_format_count(setup->lag_units, text),
                flw_plural(setup->lag_units));
    }
    fprintf(out, "%s\n",
            !report->is_sim ? ""
            : setup->checks ? ", rule checker on"
                            : ", rule checker off");
}

static void print_matches(const struct flw_report *report, FILE *out)
{
    char match[FLW_FIGURE_BYTES], of[FLW_FIGURE_BYTES];
    for (size_t i = 0; i < report->result_count; i++) {
        const struct flw_policy_statistics *statistics = &report->results[i].statistics;
        uint64_t compare_count = statistics->compare_count;
        if (!report->results[i].policy->allocates || !is_some(compare_count)) {
            continue;
        }
        fprintf(out,
                "%s model: %s of %s addresses as recorded (%.1f %%), %" PRIu64
                " segments against %" PRIu64 " recorded, %s%s\n",
                report->results[i].policy->name, flw_format_count(statistics->match_count, match),
                flw_format_count(compare_count, of),
                100.0 * (double)statistics->match_count / (double)compare_count,
                statistics->segment_count, statistics->recorded_segment_count,
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

/* Print the cost of a repeated step. */
static void print_last_passes(const struct flw_report *report, FILE *out)
{
    char calls[FLW_FIGURE_BYTES], events[FLW_FIGURE_BYTES], waits[FLW_FIGURE_BYTES];
    for (size_t i = 0; report->setup->pass_count > 1 && i < report->result_count; i++) {
        const struct flw_run_result *result = &report->results[i];
        if (result->policy->allocates) {
            fprintf(out, "pass %u of %s: %s driver calls, %s events, %s remap waits\n",
                    report->setup->pass_count, flw_report_label(report, result->policy),
                    flw_format_count(result->last_pass.driver_call_count, calls),
                    flw_format_count(result->last_pass.event_count, events),
                    flw_format_count(result->last_pass.remap_wait_count, waits));
        }
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

/* Return the policy of the verdict: the library's, else the first real allocator. */
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

/* Print ", 9.0 % less than NAME (15.0 GiB)"; nothing if `other_bytes` is unknown. */
static void print_comparison(const struct flw_run_result *subject, const char *name,
                             uint64_t other_bytes, FILE *out)
{
    char text[FLW_FIGURE_BYTES];
    if (!is_some(other_bytes)) {
        return;
    }
    double share =
        100.0 * ((double)subject->statistics.peak_reserved_bytes / (double)other_bytes - 1.0);
    fprintf(out, ", %.1f %% %s than %s (%s)", fabs(share), share < 0 ? "less" : "more", name,
            flw_format_size(other_bytes, text));
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
    char text[FLW_FIGURE_BYTES];
    const struct flw_trace *trace = report->setup->trace;
    const struct flw_run_result *subject = find_subject(report);
    if (subject == NULL || subject->statistics.peak_reserved_bytes == FLW_NOT_APPLICABLE) {
        return;
    }
    fprintf(out, "%s reserves %s", flw_report_label(report, subject->policy),
            flw_format_size(subject->statistics.peak_reserved_bytes, text));
    bool is_pytorch = trace->format != NULL && strstr(trace->format, "pytorch") != NULL;
    print_comparison(subject, is_pytorch ? "PyTorch reserved" : "the recorded allocator reserved",
                     trace->recorded_peak_reserved_bytes, out);
    for (size_t i = 0; i < report->result_count; i++) {
        const struct flw_run_result *other = &report->results[i];
        const char *name = compared_name(report, other->policy);
        if (other != subject && name != NULL) {
            print_comparison(subject, name, other->statistics.peak_reserved_bytes, out);
        }
    }
    if (subject->failure_count != 0) {
        fprintf(out, "; %s request%s failed", flw_format_count(subject->failure_count, text),
                flw_plural(subject->failure_count));
    }
    fputc('\n', out);
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
        print_rows(report, style, out);
        print_waits(report, style, out);
        fputc('\n', out);
    }
    print_matches(report, out);
    print_pools(report, out);
    print_last_passes(report, out);
    print_verdict(report, out);
}
