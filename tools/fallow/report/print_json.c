/* SPDX-License-Identifier: Apache-2.0 */
#include "report/print.h"

#include "trace/io/jsonwriter.h"
#include "trace/trace/trace.h"

/* Begin a bracket on a line of its own with this indent. */
static void begin_line(struct flw_json_writer *out, const char *line, const char *key, char bracket)
{
    out->line = line;
    flw_json_begin(out, key, bracket);
}

static void print_text_or_null(struct flw_json_writer *out, const char *key, const char *text)
{
    flw_json_text(out, key, text[0] != '\0' ? text : NULL);
}

/* ---- one policy ---- */

static void print_at_peak(const struct flw_analysis_policy *policy, struct flw_json_writer *out)
{
    static const struct flw_analysis_frame unknown = {.segment_count = FLW_UNKNOWN,
                                                      .block_count = FLW_UNKNOWN,
                                                      .hole_count = FLW_UNKNOWN,
                                                      .hole_bytes = FLW_UNKNOWN,
                                                      .largest_hole_bytes = FLW_UNKNOWN};
    const struct flw_analysis_frame *known = flw_analysis_frame(policy, "peak reserved");
    const struct flw_analysis_frame *frame = known != NULL ? known : &unknown;
    uint64_t reserved = policy->result->statistics.peak_reserved_bytes;
    uint64_t requested = policy->requested_at_peak_bytes, block = policy->block_at_peak_bytes;
    begin_line(out, "    ", "at_peak_reserved", '{');
    FLW_JSON_COUNTS(out, {"requested_bytes", requested}, {"block_bytes", block},
                    {"internal_waste_bytes", flw_analysis_subtract(block, requested)},
                    {"external_waste_bytes", flw_analysis_subtract(reserved, block)},
                    {"segments", frame->segment_count + frame->left_out_segment_count},
                    {"blocks", frame->block_count + frame->left_out_count},
                    {"holes", frame->hole_count}, {"hole_bytes", frame->hole_bytes},
                    {"largest_hole_bytes", frame->largest_hole_bytes});
    flw_json_real(out, "fragmentation", known != NULL, policy->fragmentation);
    flw_json_real(out, "pytorch_fragmentation", known != NULL, policy->pytorch_fragmentation);
    flw_json_end(out, '}');
}

static void print_peaks(const struct flw_analysis_policy *policy, struct flw_json_writer *out)
{
    const struct flw_run_result *result = policy->result;
    double ratio = flw_analysis_ratio(policy);
    FLW_JSON_COUNTS(out, {"peak_requested_bytes", result->peak_requested_bytes},
                    {"peak_block_bytes", policy->peak_block_bytes},
                    {"peak_reserved_bytes", result->statistics.peak_reserved_bytes},
                    {"end_reserved_bytes", policy->end_reserved_bytes});
    flw_json_real(out, "reserved_over_requested", ratio > 0, ratio);
    flw_json_real(out, "utilisation", ratio > 0, 1 / ratio);
    flw_json_real(out, "mean_reserved_over_requested", policy->mean_ratio > 0, policy->mean_ratio);
    FLW_JSON_COUNTS(out, {"peak_requested_op", policy->peak_requested_op},
                    {"reserved_at_peak_requested_bytes", policy->reserved_at_peak_requested_bytes},
                    {"peak_reserved_op", policy->peak_reserved_op});
    if (policy->peak_reserved_op == FLW_UNKNOWN) {
        flw_json_null(out, "at_peak_reserved");
    } else {
        print_at_peak(policy, out);
    }
}

static void print_failures(const struct flw_analysis_policy *policy, struct flw_json_writer *out)
{
    flw_json_count(out, "failures", policy->result->failure_count);
    if (flw_json_begin_known(out, "first_failure", policy->first_failure_op != FLW_UNKNOWN, '{')) {
        FLW_JSON_COUNTS(out, {"op", policy->first_failure_op},
                        {"bytes", policy->first_failure_bytes},
                        {"largest_hole_bytes", policy->first_failure_largest_hole_bytes},
                        {"hole_bytes", policy->first_failure_hole_bytes});
        flw_json_end(out, '}');
    }
}

static void print_work(const struct flw_analysis *analysis, const struct flw_run_result *result,
                       struct flw_json_writer *out)
{
    const struct flw_policy_statistics *statistics = &result->statistics;
    const struct flw_device_account *account = &result->account;
    uint64_t alloc_count = analysis->program->alloc_count + analysis->program->initial_count;
    bool has_hits = statistics->hit_count != FLW_NOT_APPLICABLE && alloc_count != 0;
    FLW_JSON_COUNTS(out, {"driver_calls", statistics->driver_call_count},
                    {"driver_given_bytes", account->given_bytes},
                    {"driver_returned_bytes", account->returned_bytes});
    flw_json_real(out, "modelled_driver_seconds", account->modelled_ns != FLW_NOT_APPLICABLE,
                  (double)account->modelled_ns * 1e-9);
    FLW_JSON_COUNTS(out, {"grow_operations", statistics->grow_count},
                    {"hits", statistics->hit_count});
    flw_json_real(out, "hit_rate", has_hits, (double)statistics->hit_count / (double)alloc_count);
    FLW_JSON_COUNTS(
        out, {"splits", statistics->split_count}, {"merges", statistics->merge_count},
        {"deferred_bytes", statistics->deferred_bytes},
        {"events_recorded", statistics->event_count}, {"steals", statistics->steal_count},
        {"waits", statistics->wait_count}, {"added_stream_wait", account->stream_wait_units},
        {"remaps", statistics->remap_count}, {"remap_waits", statistics->remap_wait_count},
        {"stream_waits", account->stream_wait_count}, {"host_wait", account->host_wait_units});
    flw_plan_print_quarter(result, out);
}

static void print_calls(const struct flw_analysis_policy *policy, struct flw_json_writer *out)
{
#define X(key, symbol) key,
    static const char *const names[FLW_ANALYSIS_CALL_COUNT] = {FLW_ANALYSIS_CALLS(X)};
#undef X
    out->line = policy->has_calls ? "    " : NULL;
    if (flw_json_begin_known(out, "calls", policy->has_calls, '{')) {
        for (size_t i = 0; i < FLW_ANALYSIS_CALL_COUNT; i++) {
            flw_json_number(out, names[i], policy->calls[i]);
        }
        flw_json_end(out, '}');
    }
}

static void print_match(const struct flw_policy_statistics *statistics, struct flw_json_writer *out)
{
    bool compares = statistics->compare_count != FLW_NOT_APPLICABLE;
    if (flw_json_begin_known(out, "recorded_addresses", compares, '{')) {
        FLW_JSON_COUNTS(out, {"compared", statistics->compare_count},
                        {"equal", statistics->match_count}, {"segments", statistics->segment_count},
                        {"recorded_segments", statistics->recorded_segment_count});
        flw_json_bool(out, "segments_identical", statistics->has_same_segments);
        flw_json_bool(out, "seeded", statistics->is_seeded);
        flw_json_end(out, '}');
    }
}

static void print_quantiles(struct flw_json_writer *out, const char *key,
                            const struct flw_run_times *times)
{
    flw_json_begin(out, key, '{');
    flw_json_number(out, "timed", times->count);
    flw_json_fixed(out, "mean", 1, times->mean_ns);
    flw_json_fixed(out, "p50", 1, times->p50_ns);
    flw_json_fixed(out, "p90", 1, times->p90_ns);
    flw_json_fixed(out, "p99", 1, times->p99_ns);
    flw_json_fixed(out, "p999", 1, times->p999_ns);
    flw_json_fixed(out, "max", 1, times->max_ns);
    flw_json_end(out, '}');
}

static void print_times(const struct flw_run_result *result, struct flw_json_writer *out)
{
    out->line = result->has_times ? "    " : NULL;
    if (flw_json_begin_known(out, "ns_per_op", result->has_times, '{')) {
        print_quantiles(out, "all", &result->all_times);
        print_quantiles(out, "alloc", &result->alloc_times);
        print_quantiles(out, "free", &result->free_times);
        flw_json_end(out, '}');
    }
}

static void print_policy(const struct flw_analysis *analysis,
                         const struct flw_analysis_policy *policy, struct flw_json_writer *out)
{
    const struct flw_run_result *result = policy->result;
    begin_line(out, "   ", NULL, '{');
    flw_json_text(out, "name", result->policy->name);
    flw_json_text(out, "label", policy->label);
    flw_json_bool(out, "allocates", result->policy->allocates);
    print_peaks(policy, out);
    out->line = "    ";
    flw_json_bool(out, "reserved_from_ledger", result->is_reserved_from_ledger);
    flw_json_bool(out, "keeps_private_pools_apart", result->policy->keeps_pools_apart);
    print_failures(policy, out);
    print_work(analysis, result, out);
    print_calls(policy, out);
    print_match(&result->statistics, out);
    print_times(result, out);
    flw_json_end(out, '}');
}

/* ---- the trace ---- */

static void print_devices(const struct flw_analysis *analysis, struct flw_json_writer *out)
{
    flw_json_begin(out, "other_devices", '[');
    for (size_t i = 0; i < analysis->others.count; i++) {
        const struct flw_analysis_device *other = &analysis->others.list[i];
        bool ran_out = other->oom_event != 0;
        flw_json_begin(out, NULL, '{');
        FLW_JSON_COUNTS(out, {"device", (uint64_t)other->device}, {"events", other->event_count},
                        {"peak_requested_bytes", other->peak_requested_bytes},
                        {"recorded_peak_reserved_bytes", other->peak_reserved_bytes},
                        {"out_of_memory_event", ran_out ? other->oom_event : FLW_UNKNOWN},
                        {"asked_bytes", ran_out ? other->asked_bytes : FLW_UNKNOWN});
        flw_json_end(out, '}');
    }
    flw_json_end(out, ']');
}

static void print_trace(const struct flw_analysis *analysis, struct flw_json_writer *out)
{
    const struct flw_trace *trace = analysis->trace;
    uint64_t free_count = 0;
    for (size_t i = 0; i < FLW_ANALYSIS_LIFE_BINS; i++) {
        free_count += analysis->life_count[i];
    }
    flw_json_text(out, "title", analysis->title);
    flw_json_text(out, "format", trace->format);
    flw_json_number(out, "recorded_device", (uint64_t)trace->device);
    print_devices(analysis, out);
    flw_json_bool(out, "has_history", !analysis->is_state);
    flw_json_bool(out, "events_overwritten", analysis->is_overwritten);
    FLW_JSON_COUNTS(out, {"events", trace->event_count}, {"ops", analysis->op_count},
                    {"allocs", trace->alloc_count}, {"frees", free_count},
                    {"initial_blocks", trace->initial_count}, {"streams", trace->stream_count},
                    {"private_pools", analysis->program->lanes.pool_count},
                    {"distinct_sizes", analysis->distinct_size_count},
                    {"freed_by_the_next_op", analysis->temporary_count},
                    {"unknown_frees", trace->unknown_free_count},
                    {"peak_requested_bytes", trace->peak_requested_bytes},
                    {"recorded_peak_reserved_bytes",
                     trace->has_segments ? trace->recorded_peak_reserved_bytes : FLW_UNKNOWN},
                    {"unused_from_before_bytes", analysis->unused_bytes},
                    {"pending_at_end_bytes", analysis->pending_bytes},
                    {"pending_at_end_blocks", analysis->pending_count},
                    {"bound_bytes", analysis->program->max_live_bytes},
                    {"without_wait_bytes", analysis->without_wait_bytes},
                    {"packed_bytes", analysis->packed_bytes});
    flw_json_text(out, "device", "simulated device");
    flw_json_bool(out, "simulated", true);
    flw_json_known(out, "limit_bytes", analysis->limit_bytes != 0, analysis->limit_bytes);
    flw_json_number(out, "lag", analysis->lag_units);
    flw_json_text(out, "lag_unit", analysis->is_by_time ? "ns of trace time" : "events");
}

/* ---- owners ---- */

static void print_spread(struct flw_json_writer *out, const char *key,
                         const struct flw_analysis_spread *spread)
{
    if (flw_json_begin_known(out, key, spread->count != 0, '{')) {
        FLW_JSON_COUNTS(out, {"p50", spread->p50}, {"p90", spread->p90}, {"p99", spread->p99},
                        {"max", spread->max});
        flw_json_end(out, '}');
    }
}

/* Print the members of an owner: sizes and lives of all blocks, or what the blocks held at the peak. */
static void print_category(const struct flw_analysis_category *category, bool is_at_peak,
                           struct flw_json_writer *out)
{
    out->line = is_at_peak ? NULL : "   ";
    flw_json_begin(out, NULL, '{');
    flw_json_text(out, "owner", category->name);
    if (is_at_peak) {
        FLW_JSON_COUNTS(out, {"bytes", category->at_peak_bytes},
                        {"blocks", category->at_peak_count});
    } else {
        FLW_JSON_COUNTS(out, {"blocks", category->sizes.count},
                        {"bytes", category->requested_bytes}, {"freed", category->life_ops.count});
        print_spread(out, "size_bytes", &category->sizes);
        print_spread(out, "life_ops", &category->life_ops);
    }
    flw_json_end(out, '}');
}

static void print_owners(const struct flw_analysis *analysis, const char *key, bool is_at_peak,
                         struct flw_json_writer *out)
{
    static const char *const kinds[FLW_ANALYSIS_KIND_COUNT] = {"by_code", "by_stream", "by_size",
                                                               "by_tag", "by_pool"};
    begin_line(out, "  ", key, '{');
    for (size_t kind = 0; kind < FLW_ANALYSIS_KIND_COUNT; kind++) {
        flw_json_begin(out, kinds[kind], '[');
        for (size_t i = 0; i < analysis->category_count[kind]; i++) {
            print_category(&analysis->categories[kind][i], is_at_peak, out);
        }
        flw_json_end(out, ']');
    }
    flw_json_end(out, '}');
}

static void print_list(struct flw_json_writer *out, const char *key, const uint64_t *numbers,
                       size_t count)
{
    flw_json_begin(out, key, '[');
    for (size_t i = 0; i < count; i++) {
        flw_json_number(out, NULL, numbers[i]);
    }
    flw_json_end(out, ']');
}

static void print_holding(const struct flw_analysis *analysis, const char *key,
                          const struct flw_analysis_holding *holding, struct flw_json_writer *out)
{
    begin_line(out, "   ", key, '{');
    FLW_JSON_NUMBERS(out, {"bytes", holding->bytes}, {"blocks", holding->count},
                     {"rest_bytes", holding->rest_bytes}, {"rest_blocks", holding->rest_count});
    flw_json_begin(out, "owners", '[');
    for (size_t i = 0; i < holding->owner_count; i++) {
        begin_line(out, "    ", NULL, '{');
        flw_json_text(out, "owner", holding->owners[i].name);
        FLW_JSON_NUMBERS(out, {"bytes", holding->owners[i].bytes},
                         {"blocks", holding->owners[i].count});
        if (holding->left != NULL) {
            print_list(out, "left_bytes", holding->left[i].bytes, analysis->stretch_count);
            print_list(out, "left_blocks", holding->left[i].counts, analysis->stretch_count);
        }
        flw_json_end(out, '}');
    }
    flw_json_end(out, ']');
    flw_json_end(out, '}');
}

/* Print the owners at each moment; for the survivors also the bytes left by each stretch. */
static void print_holdings(const struct flw_analysis *analysis, struct flw_json_writer *out)
{
    begin_line(out, "  ", "holders", '{');
    flw_json_text(out, "rule", analysis->owner_rule);
    print_holding(analysis, "at_peak", &analysis->holdings[FLW_ANALYSIS_AT_PEAK], out);
    if (analysis->oom.count == 0) {
        flw_json_null(out, "at_out_of_memory");
    } else {
        print_holding(analysis, "at_out_of_memory", &analysis->holdings[FLW_ANALYSIS_AT_OOM], out);
    }
    print_holding(analysis, "at_end", &analysis->holdings[FLW_ANALYSIS_AT_END], out);
    print_holding(analysis, "survivors", &analysis->holdings[FLW_ANALYSIS_SURVIVORS], out);
    begin_line(out, "   ", "stretches", '[');
    for (size_t i = 0; i < analysis->stretch_count; i++) {
        const struct flw_analysis_stretch *stretch = &analysis->stretches[i];
        flw_json_begin(out, NULL, '{');
        flw_json_text(out, "name", stretch->name);
        FLW_JSON_NUMBERS(out, {"end_op", stretch->end_op}, {"left_bytes", stretch->left_bytes},
                         {"left_blocks", stretch->left_count});
        flw_json_end(out, '}');
    }
    flw_json_end(out, ']');
    flw_json_end(out, '}');
}

/* Print a histogram by powers of two, without empty bins. */
static void print_bins(struct flw_json_writer *out, const char *key, const char *power,
                       const uint64_t *counts, const uint64_t *bytes, size_t bin_count)
{
    begin_line(out, "  ", key, '[');
    for (size_t i = 0; i < bin_count; i++) {
        if (counts[i] != 0) {
            flw_json_begin(out, NULL, '{');
            FLW_JSON_NUMBERS(out, {power, UINT64_C(1) << i}, {"blocks", counts[i]});
            if (bytes != NULL) {
                flw_json_number(out, "bytes", bytes[i]);
            }
            flw_json_end(out, '}');
        }
    }
    flw_json_end(out, ']');
}

/* ---- out of memory ---- */

static void print_oom(const struct flw_analysis_oom *oom, struct flw_json_writer *out)
{
    static const char *const outcomes[] = {[FLW_ANALYSIS_SERVED] = "served",
                                           [FLW_ANALYSIS_REFUSED] = "refused",
                                           [FLW_ANALYSIS_REFUSED_BEFORE] = "refused before",
                                           [FLW_ANALYSIS_NOT_ASKED] = "not asked"};
    out->line = "  ";
    if (!flw_json_begin_known(out, "out_of_memory", oom->count != 0, '{')) {
        return;
    }
    FLW_JSON_COUNTS(out, {"count", oom->count}, {"event", oom->event},
                    {"asked_bytes", oom->asked_bytes}, {"live_bytes", oom->live_bytes},
                    {"device_free_bytes", oom->free_bytes}, {"idle_bytes", oom->idle_bytes},
                    {"largest_hole_bytes", oom->largest_hole_bytes});
    print_text_or_null(out, "owner", oom->owner);
    flw_json_count(out, "limit_bytes", oom->limit_bytes);
    flw_json_bool(out, "limit_given", oom->is_limit_given);
    FLW_JSON_NUMBERS(out, {"pending_bytes", oom->pending_bytes},
                     {"pending_blocks", oom->pending_count});
    begin_line(out, "   ", "replayed", '[');
    for (size_t i = 0; i < oom->answer_count; i++) {
        flw_json_begin(out, NULL, '{');
        flw_json_text(out, "name", oom->answers[i].name);
        flw_json_text(out, "outcome", outcomes[oom->answers[i].outcome]);
        flw_json_count(out, "smallest_limit_bytes", oom->answers[i].smallest_limit_bytes);
        flw_json_end(out, '}');
    }
    flw_json_end(out, ']');
    flw_json_end(out, '}');
}

/* ---- all ---- */

void flw_print_json_analysis(const struct flw_analysis *analysis, struct flw_json_writer *out)
{
    begin_line(out, " ", NULL, '{');
    print_trace(analysis, out);
    print_oom(&analysis->oom, out);
    print_owners(analysis, "at_peak_requested", true, out);
    print_owners(analysis, "owners", false, out);
    print_holdings(analysis, out);
    print_bins(out, "sizes", "up_to_bytes", analysis->size_count, analysis->size_bytes,
               FLW_ANALYSIS_SIZE_BINS);
    print_bins(out, "lives", "from_ops", analysis->life_count, NULL, FLW_ANALYSIS_LIFE_BINS);
    begin_line(out, "  ", "policies", '[');
    for (size_t i = 0; i < analysis->policy_count; i++) {
        print_policy(analysis, &analysis->policies[i], out);
    }
    flw_json_end(out, ']');
    out->line = "  ";
    flw_json_text(out, "headline", analysis->headline);
    flw_json_text(out, "verdict", analysis->verdict);
    begin_line(out, "  ", "advice", '{');
    flw_json_text(out, "text", analysis->advice.text);
    print_text_or_null(out, "type", analysis->advice.setting);
    flw_json_count(out, "saved_bytes", analysis->advice.saved_bytes);
    flw_json_end(out, '}');
    flw_json_end(out, '}');
}

void flw_print_json(const struct flw_analysis *analyses, size_t count, const struct flw_job *job,
                    FILE *file)
{
    struct flw_json_writer writer = {.file = file, .is_spaced = true}, *out = &writer;
    flw_json_begin(out, NULL, '{');
    flw_json_number(out, "schema", FLW_PRINT_SCHEMA);
    if (count != 0) {
        flw_json_begin(out, "traces", '[');
        for (size_t i = 0; i < count; i++) {
            flw_print_json_analysis(&analyses[i], out);
        }
        flw_json_end(out, ']');
    }
    if (job != NULL) {
        flw_job_print_json(job, out);
    }
    fputs("}\n", file);
}
