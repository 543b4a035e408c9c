/* SPDX-License-Identifier: Apache-2.0 */
#include "replay/report.h"

#include "trace/io/jsonwriter.h"
#include "trace/trace/trace.h"

#include "policies/plan.h"

static void print_bool(struct flw_json_writer *out, const char *key, bool applies, bool value)
{
    if (applies) {
        flw_json_bool(out, key, value);
    } else {
        flw_json_null(out, key);
    }
}

static void print_trace(const struct flw_report *report, struct flw_json_writer *out)
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

static void print_match(const struct flw_run_result *result, struct flw_json_writer *out)
{
    const struct flw_policy_statistics *statistics = &result->statistics;
    bool compares = result->has_run && statistics->compare_count != FLW_NOT_APPLICABLE;
    FLW_JSON_COUNTS(
        out, {"address_matches", compares ? statistics->match_count : FLW_NOT_APPLICABLE},
        {"addresses_compared", compares ? statistics->compare_count : FLW_NOT_APPLICABLE},
        {"segments", compares ? statistics->segment_count : FLW_NOT_APPLICABLE},
        {"recorded_segments", compares ? statistics->recorded_segment_count : FLW_NOT_APPLICABLE});
    print_bool(out, "segments_identical", compares, statistics->has_same_segments);
    print_bool(out, "seeded", compares, statistics->is_seeded);
}

static void print_times(const struct flw_run_result *result, struct flw_json_writer *out)
{
    if (!result->has_times) {
        flw_json_null(out, "ns_per_op");
        return;
    }
    flw_json_begin(out, "ns_per_op", '{');
    flw_json_fixed(out, "p50", 1, result->all_times.p50_ns);
    flw_json_fixed(out, "p99", 1, result->all_times.p99_ns);
    flw_json_fixed(out, "p999", 1, result->all_times.p999_ns);
    flw_json_end(out, '}');
}

static void print_speed(const struct flw_report *report, const struct flw_run_result *result,
                        struct flw_json_writer *out)
{
    if (!result->policy->allocates || result->wall_ns == 0) {
        flw_json_null(out, "wall_seconds");
        flw_json_null(out, "events_per_second");
        flw_json_null(out, "threads");
        return;
    }
    double seconds = (double)result->wall_ns * 1e-9;
    double event_count = (double)report->setup->program->event_count * report->setup->pass_count;
    flw_json_fixed(out, "wall_seconds", 6, seconds);
    flw_json_fixed(out, "events_per_second", 0, event_count / seconds);
    flw_json_number(out, "threads", result->thread_count);
}

static void print_last_pass(const struct flw_report *report, const struct flw_run_result *result,
                            struct flw_json_writer *out)
{
    if (report->setup->pass_count == 1 || !result->policy->allocates) {
        flw_json_null(out, "last_pass");
        return;
    }
    flw_json_begin(out, "last_pass", '{');
    flw_json_number(out, "number", report->setup->pass_count);
    flw_plan_print_counts(&result->last_pass, out);
    flw_json_end(out, '}');
}

static void print_policy(const struct flw_report *report, const struct flw_run_result *result,
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
    print_match(result, out);
    flw_json_count(out, "smallest_limit_bytes", result->smallest_limit_bytes);
    flw_json_count(out, "without_wait_bytes",
                   report->is_sim ? result->statistics.without_wait_bytes : FLW_NOT_APPLICABLE);
    print_times(result, out);
    flw_json_text(out, "label", flw_report_label(report, result->policy));
    print_bool(out, "reserved_from_ledger", result->policy->allocates,
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
    print_bool(out, "keeps_private_pools_apart", result->policy->allocates,
               result->policy->keeps_pools_apart);
    print_last_pass(report, result, out);
    flw_plan_print_quarter(result, out);
    print_speed(report, result, out);
    flw_json_end(out, '}');
}

void flw_report_print_json(const struct flw_report *report, FILE *file)
{
    struct flw_json_writer writer = {.file = file, .is_spaced = true}, *out = &writer;
    flw_json_begin(out, NULL, '{');
    print_trace(report, out);
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
        print_policy(report, &report->results[i], out);
    }
    fputs("]}\n", file);
}
