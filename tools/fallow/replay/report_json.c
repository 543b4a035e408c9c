/* SPDX-License-Identifier: Apache-2.0 */
#include "replay/report.h"

#include <inttypes.h>

#include "trace/trace.h"

#include "common/jsonmember.h"

static void print_bool(FILE *out, const char *key, bool applies, bool value)
{
    if (applies) {
        flw_member_bool(out, key, value);
    } else {
        flw_member_null(out, key);
    }
}

static void print_trace(const struct flw_report *report, FILE *out)
{
    const struct flw_trace *trace = report->trace;
    fprintf(out, "{\"events\": %zu, \"allocs\": %" PRIu64, trace->event_count, trace->alloc_count);
    flw_member_count(out, "peak_requested_bytes", trace->peak_requested_bytes);
    flw_member_count(out, "recorded_peak_reserved_bytes",
                     trace->recorded_peak_reserved_bytes == 0
                         ? FLW_NOT_APPLICABLE
                         : trace->recorded_peak_reserved_bytes);
    flw_member_count(out, "recorded_segment_calls",
                     trace->has_segments ? trace->recorded_segment_calls : FLW_NOT_APPLICABLE);
    flw_member_count(out, "initial_blocks", trace->initial_count);
    flw_member_count(out, "streams", report->program->stream_count);
    flw_member_count(out, "private_pools", report->program->lanes.pool_count);
    flw_member_count(out, "zero_size_requests", report->program->zero_count);
    flw_member_count(out, "unknown_frees", trace->unknown_free_count);
    flw_member_text(out, "source", trace->source);
    flw_member_text(out, "format", trace->format);
    fputc('}', out);
}

static void print_match(const struct flw_run_result *result, FILE *out)
{
    const struct flw_policy_statistics *statistics = &result->statistics;
    bool compares = result->has_run && statistics->compare_count != FLW_NOT_APPLICABLE;
    flw_member_count(out, "address_matches",
                     compares ? statistics->match_count : FLW_NOT_APPLICABLE);
    flw_member_count(out, "addresses_compared",
                     compares ? statistics->compare_count : FLW_NOT_APPLICABLE);
    flw_member_count(out, "segments", compares ? statistics->segment_count : FLW_NOT_APPLICABLE);
    flw_member_count(out, "recorded_segments",
                     compares ? statistics->recorded_segment_count : FLW_NOT_APPLICABLE);
    print_bool(out, "segments_identical", compares, statistics->has_same_segments);
    print_bool(out, "seeded", compares, statistics->is_seeded);
}

static void print_times(const struct flw_run_result *result, FILE *out)
{
    fprintf(out, ", \"ns_per_op\": ");
    if (result->has_times) {
        fprintf(out, "{\"p50\": %.1f, \"p99\": %.1f, \"p999\": %.1f}", result->all_times.p50_ns,
                result->all_times.p99_ns, result->all_times.p999_ns);
    } else {
        fprintf(out, "null");
    }
}

static void print_speed(const struct flw_report *report, const struct flw_run_result *result,
                        FILE *out)
{
    if (!result->policy->lends || result->wall_ns == 0) {
        fprintf(out, ", \"wall_seconds\": null, \"events_per_second\": null, \"threads\": null");
        return;
    }
    double seconds = (double)result->wall_ns * 1e-9;
    fprintf(out, ", \"wall_seconds\": %.6f, \"events_per_second\": %.0f, \"threads\": %u", seconds,
            (double)report->program->event_count * report->pass_count / seconds,
            result->thread_count);
}

static void print_last_pass(const struct flw_report *report, const struct flw_run_result *result,
                            FILE *out)
{
    if (report->pass_count == 1 || !result->policy->lends) {
        flw_member_null(out, "last_pass");
        return;
    }
    fprintf(out, ", \"last_pass\": {\"number\": %u", report->pass_count);
    flw_member_count(out, "driver_calls", result->last_driver_call_count);
    flw_member_count(out, "events_recorded", result->last_event_count);
    flw_member_count(out, "steals", result->last_steal_count);
    flw_member_count(out, "waits", result->last_wait_count);
    flw_member_count(out, "remap_waits", result->last_remap_wait_count);
    fputc('}', out);
}

static void print_policy(const struct flw_report *report, const struct flw_run_result *result,
                         FILE *out)
{
    fprintf(out, "{\"name\": ");
    flw_json_print_text(out, result->policy->name);
    flw_member_count(out, "peak_requested_bytes", result->peak_requested_bytes);
    flw_member_count(out, "peak_reserved_bytes", result->statistics.peak_reserved_bytes);
    flw_member_count(out, "failures", result->failure_count);
    flw_member_count(out, "driver_calls", result->statistics.driver_call_count);
    flw_member_count(out, "frame_calls", result->frame_call_count);
    flw_member_count(out, "grow_operations", result->statistics.grow_count);
    flw_member_real(out, "modelled_driver_seconds", result->modelled_ns != FLW_NOT_APPLICABLE,
                    (double)result->modelled_ns * 1e-9);
    flw_member_count(out, "events_recorded", result->statistics.event_count);
    flw_member_count(out, "steals", result->statistics.steal_count);
    flw_member_count(out, "waits", result->statistics.wait_count);
    flw_member_count(out, "remap_waits", result->statistics.remap_wait_count);
    print_match(result, out);
    flw_member_count(out, "smallest_limit_bytes", result->smallest_limit_bytes);
    print_times(result, out);
    flw_member_text(out, "label", flw_report_label(report, result->policy));
    print_bool(out, "reserved_from_ledger", result->policy->lends, result->is_reserved_from_ledger);
    flw_member_count(out, "first_failure_bytes",
                     result->first_failure_bytes == 0 ? FLW_NOT_APPLICABLE
                                                      : result->first_failure_bytes);
    flw_member_count(out, "remaps", result->statistics.remap_count);
    flw_member_count(out, "hits", result->statistics.hit_count);
    flw_member_count(out, "added_stream_wait", result->stream_wait_units);
    flw_member_count(out, "violations",
                     result->policy->lends && report->checks ? result->violation_count
                                                             : FLW_NOT_APPLICABLE);
    print_bool(out, "keeps_private_pools_apart", result->policy->lends,
               result->policy->keeps_pools_apart);
    print_last_pass(report, result, out);
    print_speed(report, result, out);
    fputc('}', out);
}

void flw_report_print_json(const struct flw_report *report, FILE *out)
{
    fprintf(out, "{\"trace\": ");
    print_trace(report, out);
    fprintf(out, ",\n \"device\": ");
    flw_json_print_text(out, report->device_name);
    flw_member_bool(out, "simulated", report->is_sim);
    flw_member_count(out, "device_bytes", report->device_bytes);
    flw_member_count(out, "limit_bytes",
                     report->limit_bytes == 0 ? FLW_NOT_APPLICABLE : report->limit_bytes);
    flw_member_count(out, "lag", report->is_sim ? report->lag_units : FLW_NOT_APPLICABLE);
    flw_member_text(out, "lag_unit", report->is_by_time ? "ns of trace time" : "events");
    flw_member_bool(out, "device_work", report->lag_units != 0);
    flw_member_bool(out, "checks", report->checks);
    fprintf(out, ",\n \"policies\": [");
    for (size_t i = 0; i < report->result_count; i++) {
        fprintf(out, "%s\n  ", i == 0 ? "" : ",");
        print_policy(report, &report->results[i], out);
    }
    fprintf(out, "]}\n");
}
