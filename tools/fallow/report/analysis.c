/* SPDX-License-Identifier: Apache-2.0 */
#include "report/analysis.h"

#include <stdlib.h>

#include "base/bits.h"
#include "trace/trace/trace.h"

#include "common/tool_host.h"
#include "report/owner.h"

/* ---- freeing ---- */

/* Free the contents of the frames and count them as left out. */
static void empty_frames(struct flw_analysis_policy *policy)
{
    for (size_t i = 0; i < policy->frame_count; i++) {
        struct flw_analysis_frame *frame = &policy->frames[i];
        flw_host_free(frame->segments);
        flw_host_free(frame->blocks);
        frame->segments = NULL;
        frame->blocks = NULL;
        frame->left_out_segment_count += frame->segment_count;
        frame->left_out_count += frame->block_count;
        frame->segment_count = frame->block_count = 0;
    }
}

static void drop_pictures(struct flw_analysis_policy *policy)
{
    flw_host_free(policy->requested);
    flw_host_free(policy->block);
    flw_host_free(policy->reserved);
    policy->requested = policy->block = policy->reserved = NULL;
    policy->has_series = false;
    empty_frames(policy);
    flw_host_free(policy->holes);
    policy->holes = NULL;
    policy->hole_column_count = 0;
    flw_host_free(policy->rectangles);
    policy->rectangles = NULL;
    policy->rectangle_count = 0;
    for (size_t i = 0; i < policy->lane_count; i++) {
        flw_host_free(policy->lanes[i].byte_ops);
    }
    flw_host_free(policy->lanes);
    policy->lanes = NULL;
    policy->lane_count = 0;
}

void flw_analysis_shrink(struct flw_analysis *analysis)
{
    for (size_t i = 0; i < analysis->policy_count; i++) {
        drop_pictures(&analysis->policies[i]);
    }
    for (size_t kind = 0; kind < FLW_ANALYSIS_KIND_COUNT; kind++) {
        for (size_t i = 0; i < analysis->band_count[kind]; i++) {
            flw_host_free(analysis->bands[kind][i].held_bytes);
        }
        analysis->band_count[kind] = 0;
    }
    flw_host_free(analysis->lives);
    flw_host_free(analysis->selected);
    analysis->lives = NULL;
    analysis->selected = NULL;
    flw_host_free(analysis->columns.first_op);
    flw_host_free(analysis->columns.time_ns);
    analysis->columns = (struct flw_analysis_columns){0};
    flw_host_free(analysis->marks);
    analysis->marks = NULL;
    analysis->mark_count = 0;
    if (analysis->owners != NULL) {
        flw_owners_finish(analysis->owners);
        flw_host_free(analysis->owners);
        analysis->owners = NULL;
    }
    if (analysis->trace != NULL) {
        flw_trace_shrink(analysis->trace);
    }
    if (analysis->program != NULL) {
        flw_program_shrink(analysis->program);
    }
}

void flw_analysis_drop(struct flw_analysis_policy *policy)
{
    drop_pictures(policy);
    flw_host_free(policy->frames);
    policy->frames = NULL;
    policy->frame_count = 0;
    policy->fragmentation = policy->pytorch_fragmentation = 0; /* of the frames */
}

void flw_analysis_finish(struct flw_analysis *analysis)
{
    flw_analysis_shrink(analysis);
    for (size_t i = 0; i < analysis->policy_count; i++) {
        flw_host_free(analysis->policies[i].frames);
    }
    for (size_t i = 0; i < FLW_ANALYSIS_MOMENT_COUNT; i++) {
        flw_host_free(analysis->holdings[i].owners);
        flw_host_free(analysis->holdings[i].left);
    }
    flw_trace_destroy(analysis->trace);
    flw_program_destroy(analysis->program);
    free(analysis->owner_rule);
    flw_host_free(analysis->policies);
    flw_host_free(analysis->results);
    *analysis = (struct flw_analysis){0};
}

/* ---- looking up ---- */

uint64_t flw_analysis_hole_end(const struct flw_analysis *analysis, size_t count, size_t h)
{
    return analysis->op_count * (h + 1) / count; /* ops are fewer than 2^33 */
}

/* Return the number of ops before the moment. */
static uint64_t moment_end(const struct flw_analysis *analysis, enum flw_analysis_moment moment)
{
    switch (moment) {
    case FLW_ANALYSIS_AT_PEAK:
        return analysis->peak_op + 1;
    case FLW_ANALYSIS_AT_OOM:
        return analysis->oom.op;
    default:
        return analysis->op_count;
    }
}

void flw_analysis_tally(const struct flw_analysis *analysis, enum flw_analysis_moment moment,
                        const uint32_t *keys, uint64_t *bytes, uint64_t *counts)
{
    uint64_t end = moment_end(analysis, moment);
    size_t first = moment == FLW_ANALYSIS_SURVIVORS ? analysis->trace->initial_count : 0;
    for (size_t i = first; i < analysis->trace->block_count; i++) {
        if (analysis->lives[i].begin_op < end && end <= analysis->lives[i].end_op) {
            bytes[keys[i]] += analysis->trace->blocks[i].size_bytes;
            counts[keys[i]]++;
        }
    }
}

/* ---- invariants ---- */

static bool are_columns_valid(const struct flw_analysis *analysis)
{
    const struct flw_analysis_columns *columns = &analysis->columns;
    bool is_valid = columns->count != 0 && columns->count <= FLW_ANALYSIS_COLUMNS &&
                    columns->first_op[0] == 0 &&
                    columns->first_op[columns->count] == analysis->op_count &&
                    analysis->has_times == (columns->time_ns != NULL);
    for (size_t i = 0; is_valid && i < columns->count; i++) {
        is_valid = columns->first_op[i] < columns->first_op[i + 1] &&
                   (!analysis->has_times || columns->time_ns[i] <= columns->time_ns[i + 1]);
    }
    return is_valid;
}

/* Check the known series: each is at most the next one in every column, and has its peak in the column of the op. */
static bool are_series_valid(const struct flw_analysis *analysis,
                             const struct flw_analysis_policy *policy)
{
    const struct {
        const struct flw_analysis_range *columns;
        uint64_t peak_bytes, peak_op;
    } series[] = {
        {policy->requested, policy->result->peak_requested_bytes, policy->peak_requested_op},
        {policy->block, policy->peak_block_bytes, 0 /* unknown */},
        {policy->reserved, policy->result->statistics.peak_reserved_bytes,
         policy->peak_reserved_op}};
    const struct flw_analysis_range *lower = NULL;
    bool is_valid = true;
    for (size_t i = 0; is_valid && i < sizeof series / sizeof *series; i++) {
        const struct flw_analysis_range *columns = series[i].columns;
        uint64_t high_bytes = 0;
        for (size_t c = 0; columns != NULL && c < analysis->columns.count; c++) {
            is_valid &= columns[c].low <= columns[c].high &&
                        (lower == NULL || lower[c].high <= columns[c].high);
            high_bytes = flw_max(high_bytes, columns[c].high);
        }
        if (columns != NULL) {
            lower = columns;
            is_valid &= policy->has_series && high_bytes == series[i].peak_bytes &&
                        series[i].peak_op < analysis->op_count &&
                        (columns == policy->block ||
                         columns[flw_analysis_column(&analysis->columns, series[i].peak_op)].high ==
                             high_bytes);
        }
    }
    return is_valid;
}

static bool are_rectangles_valid(const struct flw_analysis *analysis,
                                 const struct flw_analysis_policy *policy)
{
    bool is_valid = policy->rectangle_count <= FLW_ANALYSIS_RECTANGLES &&
                    policy->lane_count <= FLW_ANALYSIS_LANES;
    for (size_t i = 0; is_valid && i < policy->rectangle_count; i++) {
        const struct flw_analysis_rectangle *rectangle = &policy->rectangles[i];
        is_valid = rectangle->block < analysis->trace->block_count && rectangle->bytes != 0 &&
                   rectangle->begin_op < rectangle->end_op &&
                   rectangle->end_op <= analysis->op_count &&
                   (i == 0 || rectangle[-1].block < rectangle->block);
    }
    for (size_t i = 0; is_valid && i < policy->lane_count; i++) {
        const struct flw_analysis_lane *lane = &policy->lanes[i];
        is_valid = lane->begin < lane->end && (i == 0 || lane[-1].end <= lane->begin);
    }
    return is_valid;
}

static bool is_frame_valid(const struct flw_analysis *analysis,
                           const struct flw_analysis_frame *frame)
{
    uint64_t segment_bytes = 0;
    bool is_valid = true;
    for (size_t i = 0; i < frame->segment_count; i++) {
        const struct flw_analysis_segment *segment = &frame->segments[i];
        segment_bytes += segment->bytes;
        is_valid &= segment->bytes != 0 &&
                    (i == 0 || segment[-1].address + segment[-1].bytes <= segment->address);
    }
    for (size_t i = 0; i < frame->block_count; i++) {
        const struct flw_analysis_block *block = &frame->blocks[i];
        is_valid &= block->block < analysis->trace->block_count &&
                    block->requested_bytes <= block->block_bytes &&
                    (i == 0 || block[-1].address <= block->address);
    }
    return is_valid && frame->op < analysis->op_count &&
           frame->block_count <= FLW_ANALYSIS_RECTANGLES &&
           frame->segment_count <= FLW_ANALYSIS_RECTANGLES &&
           segment_bytes <= frame->reserved_bytes && frame->hole_bytes <= frame->reserved_bytes &&
           frame->largest_hole_bytes <= frame->hole_bytes &&
           (frame->hole_count == 0) == (frame->largest_hole_bytes == 0);
}

static bool are_holes_valid(const struct flw_analysis_holes *holes, uint64_t peak_reserved_bytes)
{
    uint64_t total_bytes = 0, largest = holes->largest_bytes;
    size_t highest = 0;
    for (size_t bin = 0; bin < FLW_ANALYSIS_SIZE_BINS; bin++) {
        total_bytes += holes->bytes[bin];
        highest = holes->bytes[bin] != 0 ? bin : highest;
    }
    bool is_in_bin =
        largest <= 1ull << highest && (highest == 0 || largest > 1ull << (highest - 1));
    return (total_bytes == 0) == (largest == 0) && (largest == 0 || is_in_bin) &&
           (holes->count == 0) == (largest == 0) && total_bytes <= peak_reserved_bytes;
}

static bool is_policy_valid(const struct flw_analysis *analysis,
                            const struct flw_analysis_policy *policy)
{
    bool is_valid = are_series_valid(analysis, policy) && are_rectangles_valid(analysis, policy) &&
                    policy->hole_column_count <= FLW_ANALYSIS_HOLE_COLUMNS;
    for (size_t i = 0; is_valid && i < policy->frame_count; i++) {
        is_valid = is_frame_valid(analysis, &policy->frames[i]);
    }
    for (size_t i = 0; is_valid && i < policy->hole_column_count; i++) {
        is_valid =
            are_holes_valid(&policy->holes[i], policy->result->statistics.peak_reserved_bytes);
    }
    return is_valid;
}

/* Check that the categories at the peak, and the bands in the column that holds most, add up to the program's peak. */
static bool are_categories_valid(const struct flw_analysis *analysis, size_t kind)
{
    size_t count = analysis->category_count[kind];
    uint64_t at_peak_bytes = 0, most_bytes = 0;
    bool is_valid = count <= FLW_ANALYSIS_CATEGORIES;
    for (size_t i = 0; is_valid && i < count; i++) {
        at_peak_bytes += analysis->categories[kind][i].at_peak_bytes;
        is_valid = analysis->categories[kind][i].name[0] != '\0';
    }
    for (size_t c = 0; c < analysis->columns.count; c++) {
        uint64_t sum_bytes = 0;
        for (size_t i = 0; i < analysis->band_count[kind]; i++) {
            sum_bytes += analysis->bands[kind][i].held_bytes[c];
        }
        most_bytes = flw_max(most_bytes, sum_bytes);
    }
    return is_valid && (count == 0 || (at_peak_bytes == analysis->program->max_live_bytes &&
                                       most_bytes == analysis->program->max_live_bytes));
}

/* Check the sums of a moment, and of the owners with stretches. */
static bool is_holding_valid(const struct flw_analysis *analysis,
                             const struct flw_analysis_holding *holding)
{
    uint64_t bytes = holding->rest_bytes, count = holding->rest_count;
    bool is_valid = holding->owner_count <= FLW_ANALYSIS_OWNERS;
    for (size_t i = 0; is_valid && i < holding->owner_count; i++) {
        const struct flw_analysis_owner *owner = &holding->owners[i];
        struct flw_analysis_owner left = {.bytes = owner->bytes, .count = owner->count};
        bytes += owner->bytes;
        count += owner->count;
        for (size_t s = 0; holding->left != NULL && s < analysis->stretch_count; s++) {
            left.bytes -= holding->left[i].bytes[s];
            left.count -= holding->left[i].counts[s];
        }
        is_valid = (i == 0 || owner->bytes <= owner[-1].bytes) &&
                   (holding->left == NULL || (left.bytes == 0 && left.count == 0));
    }
    return is_valid && bytes == holding->bytes && count == holding->count;
}

static bool are_stretches_valid(const struct flw_analysis *analysis)
{
    const struct flw_analysis_holding *survivors = &analysis->holdings[FLW_ANALYSIS_SURVIVORS];
    uint64_t bytes = 0, count = 0;
    bool is_valid = true;
    for (size_t i = 0; i < analysis->stretch_count; i++) {
        const struct flw_analysis_stretch *stretch = &analysis->stretches[i];
        bytes += stretch->left_bytes;
        count += stretch->left_count;
        is_valid &= stretch->end_op <= analysis->op_count &&
                    (i == 0 || stretch->end_op >= stretch[-1].end_op);
    }
    return is_valid && bytes == survivors->bytes && count == survivors->count;
}

static bool are_counts_valid(const struct flw_analysis *analysis)
{
    uint64_t size_count = 0, life_count = 0, both_count = 0;
    bool is_valid = true;
    for (size_t i = 0; i < FLW_ANALYSIS_SIZE_BINS; i++) {
        size_count += analysis->size_count[i];
        for (size_t j = 0; j < FLW_ANALYSIS_LIFE_BINS; j++) {
            both_count += analysis->size_life[i][j];
            life_count += i == 0 ? analysis->life_count[j] : 0;
        }
    }
    for (size_t i = 0; i < analysis->mark_count; i++) {
        is_valid &= analysis->marks[i].begin_op <= analysis->marks[i].end_op &&
                    analysis->marks[i].end_op <= analysis->op_count;
    }
    return is_valid && life_count == both_count && life_count <= size_count &&
           analysis->temporary_count <= life_count && analysis->distinct_size_count <= size_count &&
           analysis->initial_op_count <= analysis->op_count;
}

bool flw_analysis_is_valid(const struct flw_analysis *analysis)
{
    bool is_valid =
        are_columns_valid(analysis) && are_counts_valid(analysis) && are_stretches_valid(analysis);
    for (size_t kind = 0; is_valid && kind < FLW_ANALYSIS_KIND_COUNT; kind++) {
        is_valid = are_categories_valid(analysis, kind);
    }
    for (size_t moment = 0; is_valid && moment < FLW_ANALYSIS_MOMENT_COUNT; moment++) {
        is_valid = is_holding_valid(analysis, &analysis->holdings[moment]);
    }
    for (size_t i = 0; is_valid && i < analysis->policy_count; i++) {
        is_valid = analysis->policies[i].result != NULL &&
                   is_policy_valid(analysis, &analysis->policies[i]);
    }
    return is_valid;
}
