/* SPDX-License-Identifier: Apache-2.0 */
#include "report/print.h"

#include <inttypes.h>

#include "trace/trace.h"

#include "common/jsonmember.h"
#include "report/verdict.h"

/* --- one policy ----------------------------------------------------------------------------------
 */

static void print_peaks(const struct flw_sheet_policy *policy, FILE *out)
{
    const struct flw_run_result *result = policy->result;
    double ratio = flw_verdict_ratio(policy);
    bool has_series = policy->peak_reserved_op != FLW_UNKNOWN;
    flw_member_count(out, "peak_requested_bytes", result->peak_requested_bytes);
    flw_member_count(out, "peak_block_bytes", policy->peak_block_bytes);
    flw_member_count(out, "peak_reserved_bytes", result->statistics.peak_reserved_bytes);
    flw_member_count(out, "end_reserved_bytes", policy->end_reserved_bytes);
    flw_member_real(out, "reserved_over_requested", ratio > 0, ratio);
    flw_member_real(out, "utilisation", ratio > 0, ratio > 0 ? 1 / ratio : 0);
    flw_member_real(out, "mean_reserved_over_requested", policy->mean_ratio > 0,
                    policy->mean_ratio);
    flw_member_count(out, "peak_requested_op", policy->peak_requested_op);
    flw_member_count(out, "reserved_at_peak_requested_bytes",
                     policy->reserved_at_peak_requested_bytes);
    flw_member_count(out, "peak_reserved_op", policy->peak_reserved_op);
    if (!has_series) {
        flw_member_null(out, "at_peak_reserved");
        return;
    }
    const struct flw_sheet_frame *frame = flw_sheet_frame(policy, "peak reserved");
    uint64_t requested = policy->requested_at_peak_bytes;
    uint64_t block = policy->block_at_peak_bytes;
    fprintf(out, ",\n    \"at_peak_reserved\": {\"requested_bytes\": %" PRIu64, requested);
    flw_member_count(out, "block_bytes", block);
    flw_member_count(out, "internal_waste_bytes", flw_sheet_subtract(block, requested));
    flw_member_count(out, "external_waste_bytes",
                     flw_sheet_subtract(result->statistics.peak_reserved_bytes, block));
    flw_member_count(out, "segments",
                     frame == NULL ? FLW_UNKNOWN
                                   : frame->segment_count + frame->left_out_segment_count);
    flw_member_count(out, "blocks",
                     frame == NULL ? FLW_UNKNOWN : frame->block_count + frame->left_out_count);
    flw_member_count(out, "holes", frame == NULL ? FLW_UNKNOWN : frame->hole_count);
    flw_member_count(out, "hole_bytes", frame == NULL ? FLW_UNKNOWN : frame->hole_bytes);
    flw_member_count(out, "largest_hole_bytes",
                     frame == NULL ? FLW_UNKNOWN : frame->largest_hole_bytes);
    flw_member_real(out, "fragmentation", frame != NULL, policy->fragmentation);
    flw_member_real(out, "pytorch_fragmentation", frame != NULL, policy->pytorch_fragmentation);
    fputc('}', out);
}

static void print_failures(const struct flw_sheet_policy *policy, FILE *out)
{
    flw_member_count(out, "failures", policy->result->failure_count);
    if (policy->first_failure_op == FLW_UNKNOWN) {
        flw_member_null(out, "first_failure");
        return;
    }
    fprintf(out, ", \"first_failure\": {\"op\": %" PRIu64, policy->first_failure_op);
    flw_member_count(out, "bytes", policy->first_failure_bytes);
    flw_member_count(out, "largest_hole_bytes", policy->first_failure_largest_hole_bytes);
    flw_member_count(out, "hole_bytes", policy->first_failure_hole_bytes);
    fputc('}', out);
}

static void print_work(const struct flw_sheet *sheet, const struct flw_run_result *result,
                       FILE *out)
{
    const struct flw_policy_statistics *statistics = &result->statistics;
    uint64_t alloc_count = sheet->program->alloc_count + sheet->program->initial_count;
    bool has_hits = statistics->hit_count != FLW_NOT_APPLICABLE && alloc_count != 0;
    bool has_modelled = result->modelled_ns != FLW_NOT_APPLICABLE;
    flw_member_count(out, "driver_calls", statistics->driver_call_count);
    flw_member_count(out, "driver_given_bytes", result->given_bytes);
    flw_member_count(out, "driver_returned_bytes", result->returned_bytes);
    flw_member_real(out, "modelled_driver_seconds", has_modelled,
                    has_modelled ? (double)result->modelled_ns * 1e-9 : 0);
    flw_member_count(out, "grow_operations", statistics->grow_count);
    flw_member_count(out, "hits", statistics->hit_count);
    flw_member_real(out, "hit_rate", has_hits,
                    has_hits ? (double)statistics->hit_count / (double)alloc_count : 0);
    flw_member_count(out, "splits", statistics->split_count);
    flw_member_count(out, "merges", statistics->merge_count);
    flw_member_count(out, "deferred_bytes", statistics->deferred_bytes);
    flw_member_count(out, "events_recorded", statistics->event_count);
    flw_member_count(out, "steals", statistics->steal_count);
    flw_member_count(out, "waits", statistics->wait_count);
    flw_member_count(out, "added_stream_wait", result->stream_wait_units);
    flw_member_count(out, "remaps", statistics->remap_count);
    flw_member_count(out, "remap_waits", statistics->remap_wait_count);
}

static void print_calls(const struct flw_sheet_policy *policy, FILE *out)
{
    static const char *const names[FLW_SHEET_CALL_COUNT] = {[FLW_SHEET_ALLOCS] = "alloc",
                                                            [FLW_SHEET_FREES] = "free",
                                                            [FLW_SHEET_CREATES] = "create",
                                                            [FLW_SHEET_MAPS] = "map",
                                                            [FLW_SHEET_UNMAPS] = "unmap",
                                                            [FLW_SHEET_RELEASES] = "release",
                                                            [FLW_SHEET_ASYNC_ALLOCS] =
                                                                "alloc_async",
                                                            [FLW_SHEET_ASYNC_FREES] = "free_async",
                                                            [FLW_SHEET_QUERIES] = "event_query"};
    if (!policy->has_calls) {
        flw_member_null(out, "calls");
        return;
    }
    fputs(",\n    \"calls\": {", out);
    for (size_t i = 0; i < FLW_SHEET_CALL_COUNT; i++) {
        fprintf(out, "%s\"%s\": %" PRIu64, i == 0 ? "" : ", ", names[i], policy->calls[i]);
    }
    fputc('}', out);
}

static void print_match(const struct flw_policy_statistics *statistics, FILE *out)
{
    if (statistics->compare_count == FLW_NOT_APPLICABLE) {
        flw_member_null(out, "recorded_addresses");
        return;
    }
    fprintf(out, ", \"recorded_addresses\": {\"compared\": %" PRIu64, statistics->compare_count);
    flw_member_count(out, "equal", statistics->match_count);
    flw_member_count(out, "segments", statistics->segment_count);
    flw_member_count(out, "recorded_segments", statistics->recorded_segment_count);
    flw_member_bool(out, "segments_identical", statistics->has_same_segments);
    flw_member_bool(out, "seeded", statistics->is_seeded);
    fputc('}', out);
}

static void print_quantiles(const char *key, const struct flw_run_times *times, FILE *out)
{
    fprintf(out,
            "\"%s\": {\"timed\": %zu, \"mean\": %.1f, \"p50\": %.1f, \"p90\": %.1f, \"p99\": %.1f, "
            "\"p999\": %.1f, \"max\": %.1f}",
            key, times->count, times->mean_ns, times->p50_ns, times->p90_ns, times->p99_ns,
            times->p999_ns, times->max_ns);
}

static void print_times(const struct flw_sheet_policy *policy, FILE *out)
{
    const struct flw_run_result *result = policy->result;
    if (!result->has_times) {
        flw_member_null(out, "ns_per_op");
        return;
    }
    fputs(",\n    \"ns_per_op\": {", out);
    print_quantiles("all", &result->all_times, out);
    fputs(", ", out);
    print_quantiles("alloc", &result->alloc_times, out);
    fputs(", ", out);
    print_quantiles("free", &result->free_times, out);
    fputc('}', out);
}

static void print_policy(const struct flw_sheet *sheet, const struct flw_sheet_policy *policy,
                         FILE *out)
{
    const struct flw_run_result *result = policy->result;
    fputs("\n   {\"name\": ", out);
    flw_json_print_text(out, result->policy->name);
    flw_member_text(out, "label", policy->label);
    flw_member_bool(out, "lends", result->policy->lends);
    print_peaks(policy, out);
    fputs(",\n    \"reserved_from_ledger\": ", out);
    fputs(result->is_reserved_from_ledger ? "true" : "false", out);
    flw_member_bool(out, "keeps_private_pools_apart", result->policy->keeps_pools_apart);
    print_failures(policy, out);
    print_work(sheet, result, out);
    print_calls(policy, out);
    print_match(&result->statistics, out);
    print_times(policy, out);
    fputc('}', out);
}

/* --- one trace -----------------------------------------------------------------------------------
 */

static void print_trace(const struct flw_sheet *sheet, FILE *out)
{
    const struct flw_trace *trace = sheet->trace;
    uint64_t free_count = 0;
    for (size_t i = 0; i < FLW_SHEET_LIFE_BINS; i++) {
        free_count += sheet->life_count[i];
    }
    flw_member_text(out, "format", trace->format);
    flw_member_count(out, "events", trace->event_count);
    flw_member_count(out, "ops", sheet->op_count);
    flw_member_count(out, "allocs", trace->alloc_count);
    flw_member_count(out, "frees", free_count);
    flw_member_count(out, "initial_blocks", trace->initial_count);
    flw_member_count(out, "streams", trace->stream_count);
    flw_member_count(out, "private_pools", sheet->program->lanes.pool_count);
    flw_member_count(out, "distinct_sizes", sheet->distinct_size_count);
    flw_member_count(out, "freed_by_the_next_op", sheet->temporary_count);
    flw_member_count(out, "unknown_frees", trace->unknown_free_count);
    flw_member_count(out, "peak_requested_bytes", trace->peak_requested_bytes);
    flw_member_count(out, "recorded_peak_reserved_bytes",
                     trace->has_segments ? trace->recorded_peak_reserved_bytes : FLW_UNKNOWN);
    flw_member_count(out, "bound_bytes", sheet->program->max_live_bytes);
    flw_member_count(out, "packed_bytes", sheet->packed_bytes);
}

static void print_setting(const struct flw_sheet *sheet, FILE *out)
{
    flw_member_text(out, "device", sheet->device_name);
    flw_member_bool(out, "simulated", sheet->is_sim);
    flw_member_count(out, "limit_bytes",
                     sheet->limit_bytes == 0 ? FLW_UNKNOWN : sheet->limit_bytes);
    flw_member_count(out, "lag", sheet->lag_units);
    flw_member_text(out, "lag_unit", sheet->is_by_time ? "ns of trace time" : "events");
}

static void print_spread(FILE *out, const char *key, const struct flw_sheet_spread *spread)
{
    if (spread->count == 0) {
        flw_member_null(out, key);
        return;
    }
    fprintf(out,
            ", \"%s\": {\"p50\": %" PRIu64 ", \"p90\": %" PRIu64 ", \"p99\": %" PRIu64
            ", \"max\": %" PRIu64 "}",
            key, spread->p50, spread->p90, spread->p99, spread->max);
}

/* The largest at the peak, as in at_peak_requested; their blocks of the whole trace. */
static void print_owner(const struct flw_sheet_category *category, FILE *out)
{
    fputs("\n   {\"owner\": ", out);
    flw_json_print_text(out, category->name);
    flw_member_count(out, "blocks", category->sizes.count);
    flw_member_count(out, "bytes", category->requested_bytes);
    flw_member_count(out, "freed", category->life_ops.count);
    print_spread(out, "size_bytes", &category->sizes);
    print_spread(out, "life_ops", &category->life_ops);
    fputc('}', out);
}

static const char *const kind_keys[FLW_SHEET_KIND_COUNT] = {"by_stream", "by_size", "by_tag",
                                                            "by_pool"};

static void print_spreads(const struct flw_sheet *sheet, FILE *out)
{
    fputs(",\n  \"owners\": {", out);
    for (size_t kind = 0; kind < FLW_SHEET_KIND_COUNT; kind++) {
        fprintf(out, "%s\"%s\": [", kind == 0 ? "" : ", ", kind_keys[kind]);
        for (size_t i = 0; i < sheet->category_count[kind]; i++) {
            fputs(i == 0 ? "" : ",", out);
            print_owner(&sheet->categories[kind][i], out);
        }
        fputc(']', out);
    }
    fputc('}', out);
}

static void print_owners(const struct flw_sheet *sheet, FILE *out)
{
    fputs(",\n  \"at_peak_requested\": {", out);
    for (size_t kind = 0; kind < FLW_SHEET_KIND_COUNT; kind++) {
        fprintf(out, "%s\"%s\": [", kind == 0 ? "" : ", ", kind_keys[kind]);
        for (size_t i = 0; i < sheet->category_count[kind]; i++) {
            const struct flw_sheet_category *category = &sheet->categories[kind][i];
            fprintf(out, "%s{\"owner\": ", i == 0 ? "" : ", ");
            flw_json_print_text(out, category->name);
            flw_member_count(out, "bytes", category->at_peak_bytes);
            flw_member_count(out, "blocks", category->at_peak_count);
            fputc('}', out);
        }
        fputc(']', out);
    }
    fputc('}', out);
}

/* Sizes by powers of two, without the empty ones. */
static void print_sizes(const struct flw_sheet *sheet, FILE *out)
{
    bool is_first = true;
    fputs(",\n  \"sizes\": [", out);
    for (size_t i = 0; i < FLW_SHEET_SIZE_BINS; i++) {
        if (sheet->size_count[i] != 0) {
            fprintf(
                out,
                "%s{\"up_to_bytes\": %" PRIu64 ", \"blocks\": %" PRIu64 ", \"bytes\": %" PRIu64 "}",
                is_first ? "" : ", ", UINT64_C(1) << i, sheet->size_count[i], sheet->size_bytes[i]);
            is_first = false;
        }
    }
    is_first = true;
    fputs("],\n  \"lives\": [", out);
    for (size_t i = 0; i < FLW_SHEET_LIFE_BINS; i++) {
        if (sheet->life_count[i] != 0) {
            fprintf(out, "%s{\"from_ops\": %" PRIu64 ", \"blocks\": %" PRIu64 "}",
                    is_first ? "" : ", ", UINT64_C(1) << i, sheet->life_count[i]);
            is_first = false;
        }
    }
    fputc(']', out);
}

static void print_sheet(const struct flw_sheet *sheet, FILE *out)
{
    fputs("\n {\"title\": ", out);
    flw_json_print_text(out, sheet->title);
    print_trace(sheet, out);
    print_setting(sheet, out);
    print_owners(sheet, out);
    print_spreads(sheet, out);
    print_sizes(sheet, out);
    fputs(",\n  \"policies\": [", out);
    for (size_t i = 0; i < sheet->policy_count; i++) {
        fputs(i == 0 ? "" : ",", out);
        print_policy(sheet, &sheet->policies[i], out);
    }
    fputs("],\n  \"verdict\": ", out);
    flw_json_print_text(out, sheet->verdict);
    fputc('}', out);
}

void flw_print_json(const struct flw_sheet *sheets, size_t count, FILE *out)
{
    fprintf(out, "{\"schema\": %d, \"traces\": [", FLW_PRINT_SCHEMA);
    for (size_t i = 0; i < count; i++) {
        fputs(i == 0 ? "" : ",", out);
        print_sheet(&sheets[i], out);
    }
    fputs("]}\n", out);
}
