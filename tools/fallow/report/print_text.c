/* SPDX-License-Identifier: Apache-2.0 */
#include "report/print.h"

#include <math.h>
#include <string.h>

#include "base/bits.h"
#include "trace/trace/trace.h"

#include "common/figures.h"
#include "common/tabular.h"
#include "common/terminal.h"

#define SPARKS       60
#define MAP_WIDTH    78
#define MAP_ROWS     3
#define OWNERS_SHOWN 8

/* ---- levels, sparklines ---- */

static const char *level(uint64_t bytes, uint64_t top_bytes, bool is_ascii)
{
    static const char *const blocks[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    static const char *const letters[] = {" ", ".", ":", "-", "=", "+", "*", "#", "@"};
    double share = top_bytes == 0 ? 0 : (double)bytes / (double)top_bytes;
    size_t place = bytes == 0 ? 0 : 1 + (size_t)(7.0 * share + 0.5);
    return (is_ascii ? letters : blocks)[place];
}

static void print_spark(const struct flw_analysis *analysis, const char *name,
                        const struct flw_analysis_range *series, uint64_t top_bytes, bool is_ascii,
                        FILE *out)
{
    size_t count = flw_min(analysis->columns.count, SPARKS);
    fprintf(out, "%-19.19s ", name);
    for (size_t i = 0; i < count; i++) {
        uint64_t high_bytes = 0;
        size_t end = (i + 1) * analysis->columns.count / count;
        for (size_t c = i * analysis->columns.count / count; c < end; c++) {
            high_bytes = flw_max(high_bytes, series[c].high);
        }
        fputs(level(high_bytes, top_bytes, is_ascii), out);
    }
    fputc('\n', out);
}

static void print_sparks(const struct flw_analysis *analysis,
                         const struct flw_analysis_policy *reference,
                         const struct flw_analysis_policy *best, bool is_ascii, FILE *out)
{
    const struct flw_analysis_policy *shown = reference->has_series ? reference : best;
    if (shown == NULL || !shown->has_series) {
        return;
    }
    uint64_t top_bytes = shown->result->statistics.peak_reserved_bytes;
    bool shows_best = best != NULL && best != shown && best->has_series;
    if (shows_best) {
        top_bytes = flw_max(top_bytes, best->result->statistics.peak_reserved_bytes);
    }
    fprintf(out, "\nMemory over the recording: live, and reserved by allocator\n");
    print_spark(analysis, "live", shown->requested, top_bytes, is_ascii, out);
    print_spark(analysis, shown->label, shown->reserved, top_bytes, is_ascii, out);
    if (shows_best) {
        print_spark(analysis, best->label, best->reserved, top_bytes, is_ascii, out);
    }
}

/* ---- heap map ---- */

/* Divide the joined segments into cells and add up the allocated bytes of each. */
static void fill_map(const struct flw_analysis_frame *frame, uint64_t cell_bytes, size_t cell_count,
                     uint64_t *allocated_bytes)
{
    uint64_t offset = 0; /* offset of the segment in the joined segments */
    size_t next = 0;
    for (size_t i = 0; i < frame->segment_count; i++) {
        const struct flw_analysis_segment *segment = &frame->segments[i];
        uint64_t end = segment->address + segment->bytes;
        while (next < frame->block_count && frame->blocks[next].address < segment->address) {
            next++;
        }
        for (; next < frame->block_count && frame->blocks[next].address < end; next++) {
            const struct flw_analysis_block *block = &frame->blocks[next];
            uint64_t at = offset + (block->address - segment->address);
            uint64_t left = flw_min(block->block_bytes, end - block->address);
            while (left != 0 && at / cell_bytes < cell_count) {
                uint64_t part = flw_min(left, cell_bytes - at % cell_bytes);
                allocated_bytes[at / cell_bytes] += part;
                at += part;
                left -= part;
            }
        }
        offset += segment->bytes;
    }
}

static void print_map(const struct flw_analysis_policy *policy, const char *when, FILE *out)
{
    const struct flw_analysis_frame *frame = flw_analysis_frame(policy, "peak reserved");
    uint64_t allocated_bytes[MAP_ROWS * MAP_WIDTH] = {0};
    uint64_t total_bytes = 0;
    char cell[FLW_FIGURE_BYTES];
    for (size_t i = 0; i < frame->segment_count; i++) {
        total_bytes += frame->segments[i].bytes;
    }
    if (total_bytes == 0) {
        return;
    }
    size_t cell_count = MAP_ROWS * MAP_WIDTH;
    uint64_t cell_bytes = flw_div_up(total_bytes, cell_count);
    cell_count = (size_t)flw_div_up(total_bytes, cell_bytes);
    fill_map(frame, cell_bytes, cell_count, allocated_bytes);
    fprintf(out, "\nHeap of %s %s: a character is %s; . free, 1-9 tenths in use, # in use\n",
            policy->label, when, flw_format_size(cell_bytes, cell));
    for (size_t i = 0; i < cell_count; i++) {
        uint64_t whole = flw_min(cell_bytes, total_bytes - i * cell_bytes);
        uint64_t tenths = flw_min(9, flw_max(1, allocated_bytes[i] * 10 / whole));
        fputc(allocated_bytes[i] == 0       ? '.'
              : allocated_bytes[i] >= whole ? '#'
                                            : (char)('0' + tenths),
              out);
        if ((i + 1) % MAP_WIDTH == 0 || i + 1 == cell_count) {
            fputc('\n', out);
        }
    }
}

/* ---- owners ---- */

/* Add a row. `left` NULL: the table has no column of stretches. */
static void add_owner(struct flw_table *table, const struct flw_analysis *analysis,
                      const struct flw_analysis_holding *holding,
                      const struct flw_analysis_owner *owner, const struct flw_analysis_left *left,
                      bool is_ascii)
{
    flw_table_row(table, NULL);
    flw_table_bytes(table, "    ", owner->bytes);
    flw_table_real(table, "%", 1, 100.0 * (double)owner->bytes / (double)holding->bytes);
    flw_table_count(table, "blocks", owner->count);
    if (left != NULL) {
        char levels[FLW_ANALYSIS_STRETCHES * sizeof "█"] = "";
        uint64_t most = 0;
        for (size_t i = 0; i < analysis->stretch_count; i++) {
            most = flw_max(most, left->bytes[i]);
        }
        for (size_t i = 0; i < analysis->stretch_count; i++) {
            strcat(levels, level(left->bytes[i], most, is_ascii));
        }
        flw_table_name(
            table, strncmp(analysis->stretches[0].name, "step", 4) == 0 ? "by steps" : "by tenths",
            levels);
    }
    flw_table_name(table, "owner", owner->name);
}

/* Print the largest owners at a moment, and the rest as one row. */
static void print_holding(const struct flw_analysis *analysis, enum flw_analysis_moment moment,
                          const char *title, bool is_ascii, FILE *out)
{
    const struct flw_analysis_holding *holding = &analysis->holdings[moment];
    struct flw_analysis_owner rest = {"the rest", holding->bytes, holding->count};
    struct flw_analysis_left left = {{0}, {0}};
    struct flw_table table = {.unit = flw_unit_choose(holding->bytes)};
    bool has_left = holding->left != NULL;
    const char *part = strncmp(analysis->stretches[0].name, "step", 4) == 0 ? "step" : "tenth";
    if (holding->bytes == 0) {
        return;
    }
    for (size_t s = 0; has_left && s < analysis->stretch_count; s++) {
        left.bytes[s] = analysis->stretches[s].left_bytes;
    }
    for (size_t i = 0; i < holding->owner_count && i < OWNERS_SHOWN; i++) {
        const struct flw_analysis_left *of = has_left ? &holding->left[i] : NULL;
        add_owner(&table, analysis, holding, &holding->owners[i], of, is_ascii);
        rest.bytes -= holding->owners[i].bytes;
        rest.count -= holding->owners[i].count;
        for (size_t s = 0; has_left && s < analysis->stretch_count; s++) {
            left.bytes[s] -= of->bytes[s];
        }
    }
    if (rest.count != 0) {
        add_owner(&table, analysis, holding, &rest, has_left ? &left : NULL, is_ascii);
    }
    fprintf(out, "\n%s\n", title);
    flw_table_print(&table, out);
    if (has_left) {
        fprintf(out,
                "by %ss: when it was allocated, from the first to the last %s of the recording\n",
                part, part);
    }
}

static void print_rule(const struct flw_analysis *analysis, FILE *out)
{
    fprintf(out, "owner: %s\n", analysis->owner_rule);
}

/* Print the owners. Returns false if the recording has no call stacks. */
static bool print_owners(const struct flw_analysis *analysis, bool is_ascii, FILE *out)
{
    if (analysis->category_count[FLW_ANALYSIS_BY_OWNER] == 0) {
        return false;
    }
    if (analysis->oom.count == 0 || analysis->holdings[FLW_ANALYSIS_AT_OOM].bytes !=
                                        analysis->holdings[FLW_ANALYSIS_AT_PEAK].bytes) {
        print_holding(analysis, FLW_ANALYSIS_AT_PEAK, "Live memory at the peak, by owner", is_ascii,
                      out);
    }
    print_holding(analysis, FLW_ANALYSIS_SURVIVORS,
                  "Allocated during the recording and not freed, by owner", is_ascii, out);
    print_rule(analysis, out);
    return true;
}

/* ---- out of memory ---- */

/* Print the outcome of the failed request in each replayed policy. */
static void print_answers(const struct flw_analysis_oom *oom, FILE *out)
{
    static const char *const outcomes[] = {[FLW_ANALYSIS_SERVED] = "is served",
                                           [FLW_ANALYSIS_REFUSED] = "fails",
                                           [FLW_ANALYSIS_REFUSED_BEFORE] = "an earlier one fails",
                                           [FLW_ANALYSIS_NOT_ASKED] = "was not tried"};
    struct flw_table table = {.row_count = 0};
    if (oom->answer_count == 0) {
        return;
    }
    for (size_t i = 0; i < oom->answer_count; i++) {
        const struct flw_analysis_answer *answer = &oom->answers[i];
        flw_table_row(&table, NULL);
        flw_table_name(&table, "policy", answer->label);
        flw_table_name(&table, "the request", outcomes[answer->outcome]);
        flw_table_cell(&table, "fits from", FLW_SIZE(answer->smallest_limit_bytes));
    }
    if (oom->limit_bytes == FLW_UNKNOWN) {
        fputs("\nThe same request in each allocator (the memory available then is unknown)\n", out);
    } else {
        fprintf(out, "\nThe same request in each allocator, with %s (%s)\n",
                FLW_SIZE(oom->limit_bytes),
                oom->is_limit_given ? "--limit" : "the memory reserved or free then");
    }
    flw_table_print(&table, out);
    fprintf(out, "fits from: the smallest limit that serves the request%s\n",
            oom->is_searched ? "" : " (not searched: the program is too long)");
}

static void print_fact(const char *name, uint64_t bytes, FILE *out)
{
    if (bytes != FLW_UNKNOWN) {
        fprintf(out, "  %-22s %s\n", name, FLW_SIZE(bytes));
    }
}

static void print_oom_facts(const struct flw_analysis_oom *oom, FILE *out)
{
    print_fact("free on the device", oom->free_bytes, out);
    print_fact("reserved and unused", oom->idle_bytes, out);
    print_fact("largest hole", oom->largest_hole_bytes, out);
    if (oom->pending_count != 0) {
        fprintf(out, "  %-22s %s in %s block%s, waiting for other streams (record_stream)\n",
                "freed", FLW_SIZE(oom->pending_bytes), FLW_COUNT(oom->pending_count),
                flw_plural(oom->pending_count));
    }
    if (oom->count > 1) {
        fprintf(out, "  %-22s %s\n", "failed requests", FLW_COUNT(oom->count));
    }
}

/* Print the owners at that moment, the advice, and the same request elsewhere. */
static void print_oom(const struct flw_analysis *analysis, bool is_ascii, FILE *out)
{
    if (analysis->category_count[FLW_ANALYSIS_BY_OWNER] != 0) {
        print_holding(analysis, FLW_ANALYSIS_AT_OOM, "Live memory when it ran out, by owner",
                      is_ascii, out);
    }
    fprintf(out, "\nWhat to do: %s\n", analysis->advice.text);
    print_answers(&analysis->oom, out);
}

/* ---- policies ---- */

/* Return the difference to the reference policy in per cent. */
static double against(const struct flw_analysis *analysis, uint64_t reserved_bytes)
{
    const struct flw_analysis_policy *reference = analysis->reference;
    return reference == NULL || reserved_bytes == FLW_NOT_APPLICABLE
               ? NAN
               : 100.0 * ((double)reserved_bytes / (double)flw_analysis_held(analysis, reference) -
                          1.0);
}

static void add_policy(const struct flw_analysis *analysis,
                       const struct flw_analysis_policy *policy, bool has_times,
                       struct flw_table *table)
{
    const struct flw_run_result *result = policy->result;
    uint64_t held_bytes = result->statistics.peak_reserved_bytes;
    double ratio = flw_analysis_ratio(policy);
    bool has_frame = flw_analysis_frame(policy, "peak reserved") != NULL;
    flw_table_row(table, NULL);
    flw_table_name(table, "policy", policy->label);
    flw_table_bytes(table, "reserved\n", held_bytes);
    flw_table_real(table, "reserved\n/ live", 3, ratio > 0 ? ratio : NAN);
    flw_table_change(table, "difference\n%", 1,
                     policy == analysis->reference ? NAN : against(analysis, held_bytes));
    flw_table_real(table, "fragmented\n%", 1, has_frame ? 100.0 * policy->fragmentation : NAN);
    flw_table_count(table, "failed\nrequests", result->failure_count);
    flw_table_count(table, "driver\ncalls", result->statistics.driver_call_count);
    if (has_times) {
        flw_table_real(table, "median\nns", 0, result->has_times ? result->all_times.p50_ns : NAN);
    }
}

/* Add the row of the bound of policies that never wait. */
static void add_without_wait(const struct flw_analysis *analysis, bool has_times,
                             struct flw_table *table)
{
    const struct flw_run_result result = {
        .peak_requested_bytes = analysis->program->max_live_bytes,
        .failure_count = FLW_NOT_APPLICABLE,
        .statistics = {.peak_reserved_bytes = analysis->without_wait_bytes,
                       .driver_call_count = FLW_NOT_APPLICABLE}};
    const struct flw_analysis_policy policy = {.result = &result, .label = FLW_PLAN_WITHOUT_WAIT};
    add_policy(analysis, &policy, has_times, table);
}

static void print_setting(const struct flw_analysis *analysis, FILE *out)
{
    fprintf(out,
            "\nWhat each allocator would have reserved for the same program%s\n"
            "(replayed on the simulated device",
            analysis->oom.count != 0 ? " without the failed request" : "");
    if (analysis->limit_bytes != 0) {
        fprintf(out, ", limit %s", FLW_SIZE(analysis->limit_bytes));
    }
    if (analysis->lag_units == 0) {
        fputs(", no GPU work)\n", out);
    } else if (analysis->is_by_time) {
        fprintf(out, ", kernels %s late)\n", FLW_TIME((double)analysis->lag_units));
    } else {
        fprintf(out, ", kernels %s event%s late)\n", FLW_COUNT(analysis->lag_units),
                flw_plural(analysis->lag_units));
    }
}

static void print_table(const struct flw_analysis *analysis, bool has_times, FILE *out)
{
    const struct flw_analysis_policy *reference = analysis->reference;
    struct flw_table table = {.unit = flw_unit_choose(analysis->trace->peak_requested_bytes)};
    for (size_t i = 0; i < analysis->policy_count; i++) {
        add_policy(analysis, &analysis->policies[i], has_times, &table);
        if (analysis->policies[i].result->statistics.without_wait_bytes != FLW_NOT_APPLICABLE &&
            flw_plan_may_wait(analysis->program, analysis->lag_units)) {
            add_without_wait(analysis, has_times, &table);
        }
    }
    print_setting(analysis, out);
    flw_table_print(&table, out);
    fprintf(out, "reserved: taken from the driver at the peak; fragmented: free memory outside the "
                 "largest hole; bound: no allocator can reserve less");
    if (reference != NULL) {
        fprintf(out, "; difference: from %s", reference->label);
    }
    if (analysis->packed_bytes != FLW_UNKNOWN) {
        fprintf(out, "; an offline planner needs %s", FLW_SIZE(analysis->packed_bytes));
    }
    fputc('\n', out);
}

/* ---- the screen ---- */

static void print_head(const struct flw_analysis *analysis, FILE *out)
{
    bool uses_colour = flw_terminal_has_colour();
    const struct flw_trace *trace = analysis->trace;
    size_t stream_count = analysis->program->stream_count;
    fprintf(out, "%s%s: %s%s\n", uses_colour ? "\033[1m" : "", analysis->title, analysis->headline,
            uses_colour ? "\033[0m" : "");
    if (analysis->oom.count != 0) {
        print_oom_facts(&analysis->oom, out);
    }
    if (!analysis->is_state) {
        fprintf(out, "%s event%s, ", FLW_COUNT(trace->event_count), flw_plural(trace->event_count));
    }
    fprintf(out, "%s block%s", FLW_COUNT(trace->block_count), flw_plural(trace->block_count));
    if (analysis->is_state) {
        fprintf(out, " in %s segment%s", FLW_COUNT(trace->segment_count),
                flw_plural(trace->segment_count));
    }
    fprintf(out, ", %zu stream%s%s\n", stream_count, flw_plural(stream_count),
            analysis->is_state ? "; no history" : "");
    if (analysis->of_devices[0] != '\0') {
        fprintf(out, "%s\n", analysis->of_devices);
    }
    for (size_t i = 0; i < analysis->others.count; i++) {
        fprintf(out, "%s\n", analysis->others.list[i].text);
    }
}

/* Print a heap without a history: the owners and the holes. */
static void print_state(const struct flw_analysis *analysis, bool is_ascii, FILE *out)
{
    const struct flw_analysis_policy *recorded = flw_analysis_find(analysis, "recorded");
    print_holding(analysis, FLW_ANALYSIS_AT_END, "Live memory at the dump, by owner", is_ascii,
                  out);
    print_rule(analysis, out);
    if (recorded != NULL && flw_analysis_frame(recorded, "peak reserved") != NULL) {
        print_map(recorded, "at the dump", out);
    }
    fprintf(out, "\n%s\n", analysis->advice.text);
}

void flw_print_text(const struct flw_analysis *analysis, bool is_ascii, bool has_times, FILE *out)
{
    const struct flw_analysis_policy *reference = analysis->reference;
    const struct flw_analysis_policy *best = analysis->best;
    const struct flw_analysis_policy *mapped = reference;
    print_head(analysis, out);
    if (analysis->is_state) {
        print_state(analysis, is_ascii, out);
        return;
    }
    if (analysis->oom.count != 0) {
        print_oom(analysis, is_ascii, out);
    }
    bool has_owners = print_owners(analysis, is_ascii, out);
    print_table(analysis, has_times, out);
    if (reference != NULL) {
        print_sparks(analysis, reference, best, is_ascii, out);
    }
    if (mapped == NULL || flw_analysis_frame(mapped, "peak reserved") == NULL) {
        mapped = best;
    }
    if (!has_owners && mapped != NULL && flw_analysis_frame(mapped, "peak reserved") != NULL) {
        print_map(mapped, "at its peak", out);
    }
    fprintf(out, "%s%s\n%s\n", analysis->pools_note[0] == '\0' ? "" : "\n", analysis->pools_note,
            analysis->verdict);
    if (analysis->oom.count == 0) {
        fprintf(out, "What to do: %s\n", analysis->advice.text);
    }
}

/* ---- several traces ---- */

/* Split a label such as "fallow-memory-first" into a heading of three lines. */
static void break_label(const char *label, char *out)
{
    for (; *label != '\0'; label++) {
        *out++ = *label == ' ' ? '\n' : *label;
        if (*label == '-') {
            *out++ = '\n';
        }
    }
    *out = '\0';
}

/* Format the ratio. `policy` NULL: the analysis, a heap without a history, lacks that policy. */
static const char *format_ratio(const struct flw_analysis_policy *policy, char *out)
{
    double ratio = policy == NULL ? 0 : flw_analysis_ratio(policy);
    if (policy != NULL && policy->result->policy->allocates && policy->result->failure_count != 0) {
        return "failed";
    }
    snprintf(out, FLW_FIGURE_BYTES, ratio <= 0 ? "-" : "%.3f", ratio);
    return out;
}

void flw_print_landing(const struct flw_analysis *analyses, size_t count, FILE *out)
{
    const struct flw_analysis *widest = flw_analysis_widest(analyses, count);
    uint64_t most_bytes = 0;
    for (size_t i = 0; i < count; i++) {
        most_bytes = flw_max(most_bytes, analyses[i].trace->peak_requested_bytes);
    }
    struct flw_table table = {.unit = flw_unit_choose(most_bytes)};
    for (size_t i = 0; i < count; i++) {
        flw_table_row(&table, NULL);
        flw_table_name(&table, "trace", analyses[i].title);
        flw_table_bytes(&table, "live\n", analyses[i].trace->peak_requested_bytes);
        for (size_t p = 0; p < widest->policy_count; p++) {
            char heading[2 * FLW_ANALYSIS_NAME_BYTES], cell[FLW_FIGURE_BYTES];
            break_label(widest->policies[p].label, heading);
            flw_table_cell(&table, heading,
                           format_ratio(flw_analysis_match(&analyses[i], widest, p), cell));
        }
    }
    fputs("Reserved over live memory, each at its peak, by allocator; 1.000 is the least\n\n", out);
    flw_table_print(&table, out);
    for (size_t i = 0; i < count; i++) {
        if (analyses[i].of_devices[0] != '\0') {
            fprintf(out, "\n%s\n%s\n", analyses[i].title, analyses[i].of_devices);
        }
    }
}
