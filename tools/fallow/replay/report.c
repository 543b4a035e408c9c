/* SPDX-License-Identifier: Apache-2.0 */
#include "replay/report.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/bits.h"
#include "trace/io/jsonwriter.h"
#include "trace/trace/trace.h"

#include "common/figures.h"
#include "common/tabular.h"
#include "common/terminal.h"
#include "policies/plan.h"

static struct flw_table begin_table(const struct flw_report *report)
{
    return (struct flw_table){.unit = flw_unit_choose(report->setup->trace->peak_requested_bytes)};
}

/* Return the label of a policy: "async (model)" on the simulated device. */
static const char *label_of(const struct flw_report *report, const struct flw_policy *policy)
{
    return report->is_sim && policy->sim_label != NULL ? policy->sim_label : policy->name;
}

/* Return red if requests failed, bold for policies of the library. */
static const char *style_of(const struct flw_run_result *result)
{
    bool is_bad = result->failure_count != 0 && result->failure_count != FLW_NOT_APPLICABLE;
    bool is_ours = strncmp(result->policy->name, "fallow", 6) == 0;
    return !flw_terminal_has_colour() ? NULL : is_bad ? "\033[31m" : is_ours ? "\033[1m" : NULL;
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
    bool has_times = result->has_times, is_by_time = report->is_by_time;
    flw_table_row(table, style);
    flw_table_name(table, "policy", name);
    flw_table_bytes(table, "live\n", result->peak_requested_bytes);
    flw_table_bytes(table, "reserved\n", statistics->peak_reserved_bytes);
    flw_table_real(table, "reserved\n/ live", 3, ratio_of(result));
    flw_table_count(table, "failed", result->failure_count);
    flw_table_count(table, "growths", statistics->grow_count);
    flw_table_count(table, "driver\ncalls", statistics->driver_call_count);
    flw_table_real(table, "driver\nms", 1, scaled(result->account.modelled_ns, 1e6));
    flw_table_count(table, "events", statistics->event_count);
    flw_table_count(table, "steals", statistics->steal_count);
    flw_table_count(table, "waits", statistics->wait_count);
    flw_table_real(table, is_by_time ? "stream\nwait ms" : "stream\nwait", is_by_time,
                   scaled(result->account.stream_wait_units, is_by_time ? 1e6 : 1));
    flw_table_count(table, "remap\nwaits", statistics->remap_wait_count);
    flw_table_real(table, "p50\nns", 0, has_times ? times->p50_ns : NAN);
    flw_table_real(table, "p99\nns", 0, has_times ? times->p99_ns : NAN);
    flw_table_real(table, "p99.9\nns", 0, has_times ? times->p999_ns : NAN);
    if (report->finds_limit) {
        flw_table_bytes(table, "smallest\nlimit", result->smallest_limit_bytes);
    }
}

static void print_rows(const struct flw_report *report, FILE *out)
{
    struct flw_table table = begin_table(report);
    for (size_t i = 0; i < report->result_count; i++) {
        struct flw_run_result result = report->results[i];
        const char *colour = style_of(&result);
        add_row(report, &result, label_of(report, result.policy), colour, &table);
        if (has_without_wait(report, &result)) {
            result.statistics.peak_reserved_bytes = result.statistics.without_wait_bytes;
            result.smallest_limit_bytes = FLW_NOT_APPLICABLE;
            add_row(report, &result, FLW_PLAN_WITHOUT_WAIT, colour, &table);
        }
    }
    flw_table_print(&table, out);
    fputs(
        "live, reserved: at the peak; growths: times that memory was taken from the driver; steals, "
        "waits: reuse of memory that another stream freed, and waits for it\n",
        out);
}

static bool is_some(uint64_t count)
{
    return count != FLW_NOT_APPLICABLE && count != 0;
}

static bool has_waits(const struct flw_report *report)
{
    bool has = false;
    for (size_t i = 0; i < report->result_count; i++) {
        const struct flw_run_counts *all = &report->results[i].all;
        has |= report->results[i].policy->allocates &&
               (is_some(all->wait_count) || is_some(all->stream_wait_count));
    }
    return has;
}

static void add_rate(struct flw_table *table, const char *heading, uint64_t count,
                     uint64_t alloc_count)
{
    double rate = 1000.0 * scaled(count, 1) / (double)alloc_count;
    flw_table_real(table, heading, 1, is_some(alloc_count) ? rate : NAN);
}

/* Print how often policies wait, in all of the trace and in its last quarter. */
static void print_waits(const struct flw_report *report, FILE *out)
{
    struct flw_table table = begin_table(report);
    if (!has_waits(report)) {
        return;
    }
    for (size_t i = 0; i < report->result_count; i++) {
        const struct flw_run_result *result = &report->results[i];
        const struct flw_run_counts *all = &result->all, *last = &result->last_quarter;
        if (!result->policy->allocates) {
            continue;
        }
        flw_table_row(&table, NULL);
        flw_table_name(&table, "policy", label_of(report, result->policy));
        add_rate(&table, "host\nwaits", all->wait_count, all->alloc_count);
        add_rate(&table, "stream\nwaits", all->stream_wait_count, all->alloc_count);
        add_rate(&table, "driver\ncalls", all->driver_call_count, all->alloc_count);
        add_rate(&table, "last quarter:\nhost waits", last->wait_count, last->alloc_count);
        add_rate(&table, "stream\nwaits", last->stream_wait_count, last->alloc_count);
        add_rate(&table, "driver\ncalls", last->driver_call_count, last->alloc_count);
    }
    fputs("\nper 1,000 allocations\n", out);
    flw_table_print(&table, out);
}

/* Print the reserved memory of each policy, and how to read it. */
static void print_brief(const struct flw_report *report, FILE *out)
{
    struct flw_table table = begin_table(report);
    for (size_t i = 0; i < report->result_count; i++) {
        const struct flw_run_result *result = &report->results[i];
        const char *label = label_of(report, result->policy);
        flw_table_row(&table, style_of(result));
        flw_table_name(&table, "at the peak", strcmp(label, "bound") == 0 ? "live bytes" : label);
        flw_table_bytes(&table, "reserved", result->statistics.peak_reserved_bytes);
        flw_table_real(&table, "reserved / live", 3, ratio_of(result));
    }
    flw_table_print(&table, out);
    fputs("\nLower is better: no allocator can reserve less than the live bytes.\n", out);
}

/* ---- header, match and verdict ---- */

static void print_header(const struct flw_report *report, FILE *out)
{
    const struct flw_trace *trace = report->setup->trace;
    size_t stream_count = report->setup->program->stream_count;
    fprintf(out, "trace   %s: %s event%s, %s allocation%s, %zu stream%s",
            trace->source == NULL ? "?" : trace->source, FLW_COUNT(trace->event_count),
            flw_plural(trace->event_count), FLW_COUNT(trace->alloc_count),
            flw_plural(trace->alloc_count), stream_count, flw_plural(stream_count));
    if (trace->initial_count != 0) {
        fprintf(out, ", %s block%s live at the start", FLW_COUNT(trace->initial_count),
                flw_plural(trace->initial_count));
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
    fprintf(out, "device  %s, %s, ", report->device_name, FLW_SIZE(setup->device_bytes));
    if (setup->limit_bytes != 0) {
        fprintf(out, "limit %s, ", FLW_SIZE(setup->limit_bytes));
    }
    if (setup->lag_units == 0) {
        fputs("no GPU work", out);
    } else if (!report->is_sim) {
        fputs("one small memset a block and use, reserved as each policy counts it", out);
    } else if (report->is_by_time) {
        fprintf(out, "kernels %s late", FLW_TIME((double)setup->lag_units));
    } else {
        fprintf(out, "kernels %s event%s late", FLW_COUNT(setup->lag_units),
                flw_plural(setup->lag_units));
    }
    fprintf(out, "%s\n",
            !report->is_sim ? ""
            : setup->checks ? ", rule checker on"
                            : ", rule checker off");
}

/* Print how well a model of the recorded allocator repeats the recorded addresses. */
static void print_match(const struct flw_run_result *result, FILE *out)
{
    const struct flw_policy_statistics *statistics = &result->statistics;
    uint64_t compare_count = statistics->compare_count;
    if (result->policy->allocates && is_some(compare_count)) {
        fprintf(out,
                "%s model: %s of %s addresses as recorded (%.1f %%), %" PRIu64
                " segments against %" PRIu64 " recorded, %s%s\n",
                result->policy->name, FLW_COUNT(statistics->match_count), FLW_COUNT(compare_count),
                100.0 * (double)statistics->match_count / (double)compare_count,
                statistics->segment_count, statistics->recorded_segment_count,
                statistics->has_same_segments ? "identical" : "not identical",
                statistics->is_seeded ? ", started from the recorded heap" : "");
    }
}

/* Print the cost of a repeated step. */
static void print_last_pass(const struct flw_report *report, const struct flw_run_result *result,
                            FILE *out)
{
    const struct flw_run_counts *last = &result->last_pass;
    if (report->setup->pass_count > 1 && result->policy->allocates) {
        fprintf(out, "pass %u of %s: %s driver calls, %s events, %s remap waits\n",
                report->setup->pass_count, label_of(report, result->policy),
                FLW_COUNT(last->driver_call_count), FLW_COUNT(last->event_count),
                FLW_COUNT(last->remap_wait_count));
    }
}

/* Return the policy of the verdict: the library's, else the first real allocator. */
static const struct flw_run_result *find_subject(const struct flw_report *report)
{
    const struct flw_run_result *subject = NULL;
    for (size_t i = 0; i < report->result_count; i++) {
        const struct flw_run_result *result = &report->results[i];
        const char *name = result->policy->name;
        bool is_first =
            subject == NULL && result->policy->allocates && strcmp(name, "pytorch") != 0;
        if (is_first || strcmp(name, "fallow") == 0) {
            subject = result;
        }
    }
    return subject;
}

/* Print ", 9.0 % less than NAME (15.0 GiB)"; nothing if `other_bytes` is unknown. */
static void print_comparison(const struct flw_run_result *subject, const char *name,
                             uint64_t other_bytes, FILE *out)
{
    double share =
        100.0 * ((double)subject->statistics.peak_reserved_bytes / (double)other_bytes - 1.0);
    if (is_some(other_bytes)) {
        fprintf(out, ", %.1f %% %s than %s (%s)", fabs(share), share < 0 ? "less" : "more", name,
                FLW_SIZE(other_bytes));
    }
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
    const struct flw_trace *trace = report->setup->trace;
    const struct flw_run_result *subject = find_subject(report);
    if (subject == NULL || subject->statistics.peak_reserved_bytes == FLW_NOT_APPLICABLE) {
        return;
    }
    fprintf(out, "%s reserves %s", label_of(report, subject->policy),
            FLW_SIZE(subject->statistics.peak_reserved_bytes));
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
        fprintf(out, "; %s request%s failed", FLW_COUNT(subject->failure_count),
                flw_plural(subject->failure_count));
    }
    fputc('\n', out);
}

void flw_report_print_table(const struct flw_report *report, FILE *out)
{
    char note[FLW_PLAN_NOTE_BYTES];
    print_header(report, out);
    bool is_of_device = report->has_device;
    for (size_t i = 0; i < report->result_count; i++) {
        is_of_device |= has_without_wait(report, &report->results[i]); /* with its lag */
    }
    if (is_of_device) {
        print_device(report, out);
    }
    fputc('\n', out);
    if (report->is_brief) {
        print_brief(report, out);
    } else {
        print_rows(report, out);
        print_waits(report, out);
        fputc('\n', out);
    }
    for (size_t i = 0; i < report->result_count; i++) {
        print_match(&report->results[i], out);
    }
    flw_plan_say_pools(report->setup->program, report->results, report->result_count, note);
    fprintf(out, "%s%s", note, note[0] == '\0' ? "" : "\n");
    for (size_t i = 0; i < report->result_count; i++) {
        print_last_pass(report, &report->results[i], out);
    }
    print_verdict(report, out);
}

/* ---- JSON ---- */

static void write_bool(struct flw_json_writer *out, const char *key, bool applies, bool value)
{
    if (applies) {
        flw_json_bool(out, key, value);
    } else {
        flw_json_null(out, key);
    }
}

static void write_trace(const struct flw_report *report, struct flw_json_writer *out)
{
    const struct flw_trace *trace = report->setup->trace;
    flw_json_begin(out, "trace", '{');
    FLW_JSON_COUNTS(out, {"events", trace->event_count}, {"allocs", trace->alloc_count},
                    {"peak_requested_bytes", trace->peak_requested_bytes},
                    {"recorded_peak_reserved_bytes", trace->recorded_peak_reserved_bytes == 0
                                                         ? FLW_NOT_APPLICABLE
                                                         : trace->recorded_peak_reserved_bytes},
                    {"recorded_segment_calls",
                     trace->has_segments ? trace->recorded_segment_calls : FLW_NOT_APPLICABLE},
                    {"initial_blocks", trace->initial_count},
                    {"streams", report->setup->program->stream_count},
                    {"private_pools", report->setup->program->lanes.pool_count},
                    {"zero_size_requests", report->setup->program->zero_count},
                    {"unknown_frees", trace->unknown_free_count});
    flw_json_text(out, "source", trace->source);
    flw_json_text(out, "format", trace->format);
    flw_json_end(out, '}');
}

static void write_match(const struct flw_run_result *result, struct flw_json_writer *out)
{
    const struct flw_policy_statistics *statistics = &result->statistics;
    bool compares = result->has_run && statistics->compare_count != FLW_NOT_APPLICABLE;
    FLW_JSON_COUNTS(
        out, {"address_matches", compares ? statistics->match_count : FLW_NOT_APPLICABLE},
        {"addresses_compared", compares ? statistics->compare_count : FLW_NOT_APPLICABLE},
        {"segments", compares ? statistics->segment_count : FLW_NOT_APPLICABLE},
        {"recorded_segments", compares ? statistics->recorded_segment_count : FLW_NOT_APPLICABLE});
    write_bool(out, "segments_identical", compares, statistics->has_same_segments);
    write_bool(out, "seeded", compares, statistics->is_seeded);
}

static void write_times(const struct flw_run_result *result, struct flw_json_writer *out)
{
    if (flw_json_begin_known(out, "ns_per_op", result->has_times, '{')) {
        flw_json_fixed(out, "p50", 1, result->all_times.p50_ns);
        flw_json_fixed(out, "p99", 1, result->all_times.p99_ns);
        flw_json_fixed(out, "p999", 1, result->all_times.p999_ns);
        flw_json_end(out, '}');
    }
}

static void write_speed(const struct flw_report *report, const struct flw_run_result *result,
                        struct flw_json_writer *out)
{
    bool is_known = result->policy->allocates && result->wall_ns != 0;
    double seconds = is_known ? (double)result->wall_ns * 1e-9 : (double)NAN;
    double event_count = (double)report->setup->program->event_count * report->setup->pass_count;
    flw_json_fixed(out, "wall_seconds", 6, seconds);
    flw_json_fixed(out, "events_per_second", 0, event_count / seconds);
    flw_json_known(out, "threads", is_known, result->thread_count);
}

static void write_last_pass(const struct flw_report *report, const struct flw_run_result *result,
                            struct flw_json_writer *out)
{
    bool is_known = report->setup->pass_count != 1 && result->policy->allocates;
    if (flw_json_begin_known(out, "last_pass", is_known, '{')) {
        flw_json_number(out, "number", report->setup->pass_count);
        flw_plan_print_counts(&result->last_pass, out);
        flw_json_end(out, '}');
    }
}

static void write_policy(const struct flw_report *report, const struct flw_run_result *result,
                         struct flw_json_writer *out)
{
    out->line = "  ";
    flw_json_begin(out, NULL, '{');
    flw_json_text(out, "name", result->policy->name);
    FLW_JSON_COUNTS(out, {"peak_requested_bytes", result->peak_requested_bytes},
                    {"peak_reserved_bytes", result->statistics.peak_reserved_bytes},
                    {"failures", result->failure_count},
                    {"driver_calls", result->statistics.driver_call_count},
                    {"frame_calls", result->account.frame_call_count},
                    {"grow_operations", result->statistics.grow_count});
    flw_json_real(out, "modelled_driver_seconds", result->account.modelled_ns != FLW_NOT_APPLICABLE,
                  (double)result->account.modelled_ns * 1e-9);
    FLW_JSON_COUNTS(out, {"events_recorded", result->statistics.event_count},
                    {"steals", result->statistics.steal_count},
                    {"waits", result->statistics.wait_count},
                    {"remap_waits", result->statistics.remap_wait_count});
    write_match(result, out);
    flw_json_count(out, "smallest_limit_bytes", result->smallest_limit_bytes);
    flw_json_count(out, "without_wait_bytes",
                   report->is_sim ? result->statistics.without_wait_bytes : FLW_NOT_APPLICABLE);
    write_times(result, out);
    flw_json_text(out, "label", label_of(report, result->policy));
    write_bool(out, "reserved_from_ledger", result->policy->allocates,
               result->is_reserved_from_ledger);
    FLW_JSON_COUNTS(
        out,
        {"first_failure_bytes",
         result->first_failure_bytes == 0 ? FLW_NOT_APPLICABLE : result->first_failure_bytes},
        {"remaps", result->statistics.remap_count}, {"hits", result->statistics.hit_count},
        {"added_stream_wait", result->account.stream_wait_units},
        {"stream_waits", result->account.stream_wait_count},
        {"host_wait", result->account.host_wait_units}, {"queries", result->account.query_count},
        {"synchronising_calls", result->account.sync_call_count},
        {"allocations", result->all.alloc_count},
        {"violations", result->policy->allocates && report->setup->checks ? result->violation_count
                                                                          : FLW_NOT_APPLICABLE});
    write_bool(out, "keeps_private_pools_apart", result->policy->allocates,
               result->policy->keeps_pools_apart);
    write_last_pass(report, result, out);
    flw_plan_print_quarter(result, out);
    write_speed(report, result, out);
    flw_json_end(out, '}');
}

void flw_report_print_json(const struct flw_report *report, FILE *file)
{
    struct flw_json_writer writer = {.file = file, .is_spaced = true}, *out = &writer;
    flw_json_begin(out, NULL, '{');
    write_trace(report, out);
    out->line = " ";
    flw_json_text(out, "device", report->device_name);
    flw_json_bool(out, "simulated", report->is_sim);
    FLW_JSON_COUNTS(out, {"device_bytes", report->setup->device_bytes},
                    {"limit_bytes", report->setup->limit_bytes == 0 ? FLW_NOT_APPLICABLE
                                                                    : report->setup->limit_bytes},
                    {"lag", report->is_sim ? report->setup->lag_units : FLW_NOT_APPLICABLE});
    flw_json_text(out, "lag_unit", report->is_by_time ? "ns of trace time" : "events");
    flw_json_bool(out, "device_work", report->setup->lag_units != 0);
    flw_json_bool(out, "checks", report->setup->checks);
    out->line = " ";
    flw_json_begin(out, "policies", '[');
    for (size_t i = 0; i < report->result_count; i++) {
        write_policy(report, &report->results[i], out);
    }
    fputs("]}\n", file);
}
