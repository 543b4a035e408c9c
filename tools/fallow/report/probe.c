/* SPDX-License-Identifier: Apache-2.0 */
#include "report/probe.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/bits.h"
#include "trace/trace/trace.h"

#include "common/tool_host.h"

/* ---- making room ---- */

static struct flw_sheet_range *make_series(const struct flw_sheet *sheet)
{
    struct flw_sheet_range *series = flw_host_alloc(sheet->columns.count, sizeof *series);
    for (size_t i = 0; i < sheet->columns.count; i++) {
        series[i].low = UINT64_MAX;
    }
    return series;
}

/* Frames in order. The ops of the first ones are known from the scout, or after the run. */
enum {
    FRAME_RESERVED,
    FRAME_REQUESTED,
    FRAME_OOM,
    FRAME_FAILURE,
    FRAME_END,
    FRAME_COUNT
};

static void make_frames(const struct flw_sheet *sheet, struct flw_sheet_policy *policy)
{
    static const char *const names[] = {[FRAME_RESERVED] = "peak reserved",
                                        [FRAME_REQUESTED] = "peak live",
                                        [FRAME_OOM] = "out of memory",
                                        [FRAME_FAILURE] = "first failure",
                                        [FRAME_END] = "end"};
    const uint64_t ops[] = {
        [FRAME_RESERVED] = policy->peak_reserved_op,
        [FRAME_REQUESTED] = policy->peak_requested_op,
        [FRAME_OOM] = sheet->oom.count == 0 || sheet->oom.op == 0 ? FLW_UNKNOWN : sheet->oom.op - 1,
        [FRAME_FAILURE] = policy->first_failure_op,
        [FRAME_END] = sheet->op_count - 1};
    policy->frame_count = FRAME_COUNT;
    policy->frames = flw_host_alloc(policy->frame_count, sizeof *policy->frames);
    for (size_t i = 0; i < policy->frame_count; i++) {
        struct flw_sheet_frame *frame = &policy->frames[i];
        snprintf(frame->name, sizeof frame->name, "%s", names[i]);
        frame->op = ops[i];
    }
}

/* Drop the frames of moments that did not occur. */
static void cut_frames(struct flw_sheet_policy *policy)
{
    size_t kept = 0;
    for (size_t i = 0; i < policy->frame_count; i++) {
        if (policy->frames[i].op != FLW_UNKNOWN) {
            policy->frames[kept++] = policy->frames[i];
        }
    }
    policy->frame_count = kept;
}

/* Bytes of a lane: a power of two such that the blocks at the peak take LIVE_LANES lanes, or half as many. */
#define LIVE_LANES       256
#define LEAST_LANE_BYTES 4096

static void make_pictures(struct flw_probe *probe)
{
    const struct flw_sheet *sheet = probe->sheet;
    struct flw_sheet_policy *policy = probe->policy;
    policy->has_series = probe->knows_reserved;
    if (policy->has_series) {
        policy->requested = make_series(sheet);
        policy->reserved = make_series(sheet);
        policy->block = probe->knows_blocks ? make_series(sheet) : NULL;
    }
    if (probe->list_segments == NULL) {
        return;
    }
    size_t count = probe->facts->selected_count;
    policy->rectangles = flw_host_alloc(count, sizeof *policy->rectangles);
    policy->rectangle_count = count; /* cut at the end to blocks that were allocated */
    policy->left_out_count = probe->facts->left_out_count;
    if (policy->left_out_count != 0 && probe->has_lanes) {
        policy->lanes = flw_host_alloc(FLW_SHEET_LANES, sizeof *policy->lanes);
        probe->lane_bytes = LEAST_LANE_BYTES;
        while (probe->lane_bytes < flw_div_up(sheet->program->max_live_bytes, LIVE_LANES)) {
            probe->lane_bytes *= 2;
        }
    }
    policy->hole_column_count = (size_t)flw_min(sheet->op_count, FLW_SHEET_HOLE_COLUMNS);
    policy->holes = flw_host_alloc(policy->hole_column_count, sizeof *policy->holes);
    make_frames(sheet, policy);
}

void flw_probe_init(struct flw_probe *probe)
{
    struct flw_sheet_policy *policy = probe->policy;
    size_t block_count = probe->sheet->trace->block_count;
    if (probe->is_scout || probe->finds_peaks) {
        policy->peak_reserved_op = policy->peak_requested_op = FLW_UNKNOWN;
        policy->first_failure_op = policy->first_failure_bytes = FLW_UNKNOWN;
        policy->first_failure_largest_hole_bytes = FLW_UNKNOWN;
        policy->first_failure_hole_bytes = FLW_UNKNOWN;
    }
    if (probe->is_scout) {
        return;
    }
    if (probe->finds_peaks) {
        probe->places = flw_host_alloc(block_count, sizeof *probe->places);
        probe->at_reserved.op = probe->at_requested.op = FLW_UNKNOWN;
    }
    if (probe->knows_blocks) {
        probe->block_bytes = flw_host_alloc(block_count, sizeof *probe->block_bytes);
        probe->view.block_bytes = probe->block_bytes;
    }
    probe->view.trace = probe->sheet->trace;
    make_pictures(probe);
}

/* Drop the rectangles of blocks that were never allocated. */
static void cut_rectangles(struct flw_sheet_policy *policy)
{
    size_t kept = 0;
    for (size_t i = 0; i < policy->rectangle_count; i++) {
        if (policy->rectangles[i].bytes != 0) {
            policy->rectangles[kept++] = policy->rectangles[i];
        }
    }
    policy->rectangle_count = kept;
}

/* ---- blocks ---- */

/* Find the lane of an address below `end`, or add one. If there is no room, extend the neighbour in the same stretch of
 * lane_bytes; no other lane is in between. */
static struct flw_sheet_lane *find_lane(struct flw_probe *probe, uint64_t address, uint64_t end)
{
    struct flw_sheet_policy *policy = probe->policy;
    unsigned shift =
        flw_log2_floor(probe->lane_bytes); /* a shift, because a division per address costs time */
    uint64_t stretch = address >> shift;
    size_t low = 0;
    size_t high = policy->lane_count; /* lanes below `low` begin in an earlier stretch */
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (policy->lanes[middle].begin >> shift < stretch) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    struct flw_sheet_lane *lane = &policy->lanes[low];
    bool is_known = low < policy->lane_count && lane->begin >> shift == stretch;
    if (low > 0 && lane[-1].end > address) {
        is_known = true; /* the lane was extended over the address */
        lane--;
    }
    if (!is_known && policy->lane_count == FLW_SHEET_LANES) {
        lane -= low > 0;
        is_known = true;
    }
    if (!is_known) {
        memmove(lane + 1, lane, (policy->lane_count++ - low) * sizeof *lane);
        *lane = (struct flw_sheet_lane){
            .begin = address,
            .end = end,
            .byte_ops = flw_host_alloc(FLW_SHEET_LANE_COLUMNS, sizeof *lane->byte_ops)};
    }
    lane->begin = flw_min(lane->begin, address);
    lane->end = flw_max(lane->end, end);
    return lane;
}

/* Add a block without a rectangle to the block's lanes, column by column. */
static void merge(struct flw_probe *probe, size_t begin_op, uint32_t block, uint64_t address,
                  uint64_t bytes)
{
    double column_ops = (double)probe->sheet->op_count / FLW_SHEET_LANE_COLUMNS;
    double life_end = (double)probe->facts->lives[block].end_op;
    for (uint64_t part, end = address + bytes; address < end; address = part) {
        part = flw_min(end, (address / probe->lane_bytes + 1) * probe->lane_bytes);
        struct flw_sheet_lane *lane = find_lane(probe, address, part);
        double now = (double)begin_op;
        for (size_t column = (size_t)(now / column_ops);
             now < life_end && column < FLW_SHEET_LANE_COLUMNS; column++) {
            double next = fmin(life_end, (double)(column + 1) * column_ops);
            lane->byte_ops[column] += (double)(part - address) * (next - now);
            now = next;
        }
    }
}

static void draw(struct flw_probe *probe, size_t op, uint32_t block, uint64_t address,
                 uint64_t bytes)
{
    const struct flw_facts *facts = probe->facts;
    struct flw_sheet_policy *policy = probe->policy;
    while (probe->next_selected < facts->selected_count &&
           facts->selected[probe->next_selected] < block) {
        probe->next_selected++; /* never allocated */
    }
    if (probe->next_selected == facts->selected_count ||
        facts->selected[probe->next_selected] != block) {
        if (policy->lanes != NULL) {
            merge(probe, op, block, address, bytes);
        }
        return;
    }
    policy->rectangles[probe->next_selected++] =
        (struct flw_sheet_rectangle){.address = address,
                                     .bytes = bytes,
                                     .begin_op = op,
                                     .end_op = facts->lives[block].end_op,
                                     .block = block,
                                     .stream = probe->sheet->trace->blocks[block].stream};
}

void flw_probe_alloc(struct flw_probe *probe, size_t op, uint64_t address, uint64_t taken_bytes)
{
    const struct flw_op *block_op = &probe->sheet->program->ops[op];
    probe->largest_request = flw_max(probe->largest_request, block_op->size_bytes);
    if (probe->is_scout) {
        return;
    }
    uint64_t bytes = flw_max(taken_bytes, block_op->size_bytes);
    if (probe->knows_blocks) {
        probe->block_bytes[block_op->block] = bytes;
        probe->block_total_bytes += bytes;
    }
    if (probe->finds_peaks) {
        probe->places[block_op->block] = address;
    }
    if (probe->list_segments != NULL) {
        flw_heapview_add(&probe->view, block_op->block);
        draw(probe, op, block_op->block, address, bytes);
    }
}

void flw_probe_take_back(struct flw_probe *probe, uint32_t block)
{
    if (probe->knows_blocks && !probe->is_scout) {
        probe->block_total_bytes -= probe->block_bytes[block];
    }
}

static void look(struct flw_probe *probe, struct flw_sheet_holes *out_holes)
{
    flw_heapview_look(&probe->view);
    probe->list_segments(probe, probe->context);
    flw_heapview_measure(&probe->view, out_holes);
}

void flw_probe_fail(struct flw_probe *probe, size_t op, uint64_t request_bytes)
{
    struct flw_sheet_policy *policy = probe->policy;
    struct flw_sheet_holes holes;
    probe->largest_request = flw_max(probe->largest_request, request_bytes);
    if ((probe->is_scout || probe->finds_peaks) && policy->first_failure_op == FLW_UNKNOWN) {
        policy->first_failure_op = op;
        policy->first_failure_bytes = request_bytes;
        if (policy->frames != NULL) {
            policy->frames[FRAME_FAILURE].op = op;
        }
    }
    if (!probe->is_scout && op == policy->first_failure_op && probe->list_segments != NULL) {
        look(probe, &holes);
        policy->first_failure_largest_hole_bytes = holes.largest_bytes;
        policy->first_failure_hole_bytes = holes.total_bytes;
    }
}

/* ---- held bytes ---- */

static void fold(struct flw_sheet_range *series, size_t column, uint64_t bytes)
{
    if (series != NULL) {
        series[column].low = flw_min(series[column].low, bytes);
        series[column].high = flw_max(series[column].high, bytes);
    }
}

/* Find the op with the highest need among those at the peak of reserved. */
static void find_peak(struct flw_probe *probe, size_t op)
{
    struct flw_sheet_policy *policy = probe->policy;
    bool is_higher = probe->reserved_bytes > probe->peak_reserved_bytes;
    bool is_tighter = probe->reserved_bytes == probe->peak_reserved_bytes &&
                      probe->requested_bytes > probe->requested_at_peak_bytes;
    if (is_higher || is_tighter || policy->peak_reserved_op == FLW_UNKNOWN) {
        probe->peak_reserved_bytes = probe->reserved_bytes;
        probe->requested_at_peak_bytes = probe->requested_bytes;
        policy->peak_reserved_op = op;
    }
}

void flw_probe_note(struct flw_probe *probe, size_t op, uint64_t requested_bytes,
                    uint64_t reserved_bytes)
{
    const struct flw_sheet *sheet = probe->sheet;
    struct flw_sheet_policy *policy = probe->policy;
    probe->requested_bytes = requested_bytes;
    probe->reserved_bytes = reserved_bytes;
    if (probe->is_scout || probe->finds_peaks) {
        if (requested_bytes > probe->peak_requested_bytes ||
            policy->peak_requested_op == FLW_UNKNOWN) {
            probe->peak_requested_bytes = requested_bytes;
            policy->peak_requested_op = op;
        }
        if (probe->knows_reserved) {
            find_peak(probe, op);
        }
    }
    if (probe->is_scout) {
        return;
    }
    while (op >= sheet->columns.first_op[probe->column + 1]) {
        probe->column++;
    }
    fold(policy->requested, probe->column, requested_bytes);
    fold(policy->reserved, probe->column, reserved_bytes);
    fold(policy->block, probe->column, probe->block_total_bytes);
}

/* ---- moments ---- */

/* Fill a frame from a view that is up to date. */
static void finish_frame(struct flw_probe *probe, struct flw_heapview *view,
                         const struct flw_probe_moment *moment, struct flw_sheet_frame *frame)
{
    const struct flw_sheet *sheet = probe->sheet;
    struct flw_sheet_policy *policy = probe->policy;
    struct flw_sheet_holes holes;
    size_t column = flw_sheet_column(&sheet->columns, moment->op);
    flw_heapview_measure(view, &holes);
    frame->time_ns = sheet->has_times ? sheet->columns.time_ns[column] : 0;
    frame->requested_bytes = moment->requested_bytes;
    frame->block_bytes = probe->knows_blocks ? moment->block_total_bytes : FLW_UNKNOWN;
    frame->reserved_bytes = moment->reserved_bytes;
    frame->largest_hole_bytes = holes.largest_bytes;
    frame->hole_count = holes.count;
    frame->hole_bytes = holes.total_bytes;
    flw_heapview_copy(view, frame);
    if (moment->op == policy->peak_reserved_op) {
        double reserved = (double)moment->reserved_bytes;
        policy->fragmentation = holes.total_bytes == 0
                                    ? 0
                                    : 1 - (double)holes.largest_bytes / (double)holes.total_bytes;
        policy->pytorch_fragmentation =
            reserved == 0 ? 0 : holes.square_sum / (reserved * reserved);
    }
}

/* Set the moment to the present op and totals. */
static void set_moment(const struct flw_probe *probe, size_t op, struct flw_probe_moment *moment)
{
    moment->op = op;
    moment->requested_bytes = probe->requested_bytes;
    moment->block_total_bytes = probe->block_total_bytes;
    moment->reserved_bytes = probe->reserved_bytes;
}

/* Find the next op with a frame. */
static void find_next_frame(struct flw_probe *probe, size_t op)
{
    probe->next_frame_op = FLW_UNKNOWN;
    for (size_t i = 0; i < probe->policy->frame_count; i++) {
        uint64_t next = probe->policy->frames[i].op;
        probe->next_frame_op =
            next > op ? flw_min(probe->next_frame_op, next) : probe->next_frame_op;
    }
}

static void take_frames(struct flw_probe *probe, size_t op)
{
    struct flw_sheet_policy *policy = probe->policy;
    struct flw_probe_moment moment;
    bool has_looked = false;
    if (op < probe->next_frame_op && op != policy->first_failure_op) {
        return;
    }
    for (size_t i = 0; i < policy->frame_count; i++) {
        struct flw_sheet_frame *frame = &policy->frames[i];
        if (frame->op != op) {
            continue;
        }
        if (!has_looked) {
            flw_heapview_look(&probe->view);
            probe->list_segments(probe, probe->context);
            set_moment(probe, op, &moment);
        }
        has_looked = true;
        finish_frame(probe, &probe->view, &moment, frame);
    }
    find_next_frame(probe, op);
}

/* Limit of kept segments: keeping a moment costs the number of segments, too much if a heap has many segments and the
 * peak rises often. */
#define KEPT_SEGMENTS (UINT64_C(1) << 20)
#define KEPT_AN_OP    8

/* Keep the segments of a peak. A peak before another request is not kept, because the request usually raises the peak;
 * otherwise the moment is lost. */
static void keep_moment(struct flw_probe *probe, size_t op, uint64_t peak_op,
                        struct flw_probe_moment *moment)
{
    const struct flw_program *program = probe->sheet->program;
    if (op != peak_op) {
        return;
    }
    set_moment(probe, op, moment);
    moment->is_kept = false;
    bool is_driven = op + 1 < program->op_count && program->ops[op + 1].kind == FLW_OP_ALLOC;
    if (is_driven || probe->kept_count >= KEPT_SEGMENTS + KEPT_AN_OP * program->op_count) {
        return;
    }
    probe->list_segments(probe, probe->context);
    size_t count = probe->view.segment_count;
    moment->segments =
        flw_host_grow(moment->segments, &moment->segment_capacity, count, sizeof *moment->segments);
    if (count > 0) {
        memcpy(moment->segments, probe->view.segments, count * sizeof *moment->segments);
    }
    moment->segment_count = count;
    moment->is_kept = true;
    probe->kept_count += count + 1;
}

static void take_holes(struct flw_probe *probe, size_t op)
{
    struct flw_sheet_policy *policy = probe->policy;
    size_t h = probe->hole_column;
    if (op + 1 < flw_sheet_hole_end(probe->sheet, policy->hole_column_count, h)) {
        return;
    }
    look(probe, &policy->holes[h]);
    policy->holes[h].largest_request = probe->largest_request;
    probe->largest_request = 0;
    probe->hole_column++;
}

/* Add the state to the integrals until the clock of the next op. */
static void weigh(struct flw_probe *probe, size_t op)
{
    const struct flw_program *program = probe->sheet->program;
    if (op + 1 < program->initial_count) {
        return;
    }
    double units = op + 1 < program->op_count ? (double)program->ops[op + 1].advance_units : 0;
    double requested = (double)probe->requested_bytes;
    double reserved = (double)probe->reserved_bytes;
    probe->requested_sum += requested * units;
    probe->reserved_sum += reserved * units;
    probe->requested_op_sum += requested;
    probe->reserved_op_sum += reserved;
}

void flw_probe_end_op(struct flw_probe *probe, size_t op)
{
    struct flw_sheet_policy *policy = probe->policy;
    if (probe->is_scout) {
        return;
    }
    weigh(probe, op);
    if (probe->list_segments != NULL) {
        take_frames(probe, op);
        take_holes(probe, op);
    }
    if (probe->finds_peaks && probe->list_segments != NULL) {
        keep_moment(probe, op, policy->peak_reserved_op, &probe->at_reserved);
        keep_moment(probe, op, policy->peak_requested_op, &probe->at_requested);
    }
    if (op == policy->peak_reserved_op) {
        policy->requested_at_peak_bytes = probe->requested_bytes;
        policy->block_at_peak_bytes = probe->knows_blocks ? probe->block_total_bytes : FLW_UNKNOWN;
    }
    if (op == policy->peak_requested_op) {
        policy->reserved_at_peak_requested_bytes =
            probe->knows_reserved ? probe->reserved_bytes : FLW_UNKNOWN;
    }
    policy->end_reserved_bytes = probe->knows_reserved ? probe->reserved_bytes : FLW_UNKNOWN;
    policy->peak_block_bytes = probe->knows_blocks
                                   ? flw_max(policy->peak_block_bytes, probe->block_total_bytes)
                                   : FLW_UNKNOWN;
}

/* ---- the end ---- */

/* Fill a frame from a moment: the segments, and the blocks that were live after the op. */
static void fill_moment(struct flw_probe *probe, struct flw_probe_moment *moment,
                        struct flw_sheet_frame *frame)
{
    const struct flw_program *program = probe->sheet->program;
    struct flw_heapview view = {.trace = probe->sheet->trace,
                                .addresses = probe->places,
                                .block_bytes = probe->view.block_bytes,
                                .segments = moment->segments,
                                .segment_count = moment->segment_count};
    for (size_t i = 0; i <= moment->op; i++) {
        const struct flw_op *op = &program->ops[i];
        if (op->kind == FLW_OP_ALLOC && probe->places[op->block] != 0 &&
            probe->facts->lives[op->block].end_op > moment->op) {
            flw_heapview_add(&view, op->block);
        }
    }
    moment->segments = NULL;
    frame->op = moment->op;
    flw_heapview_look(&view);
    finish_frame(probe, &view, moment, frame);
    flw_heapview_finish(&view);
}

static bool is_lost(const struct flw_probe *probe, const struct flw_probe_moment *moment)
{
    return probe->finds_peaks && moment->op != FLW_UNKNOWN && !moment->is_kept;
}

bool flw_probe_finish(struct flw_probe *probe)
{
    struct flw_sheet_policy *policy = probe->policy;
    bool has_all = !is_lost(probe, &probe->at_reserved) && !is_lost(probe, &probe->at_requested);
    if (!probe->is_scout) {
        bool has_clock = probe->requested_sum > 0;
        double requested = has_clock ? probe->requested_sum : probe->requested_op_sum;
        double reserved = has_clock ? probe->reserved_sum : probe->reserved_op_sum;
        policy->mean_ratio = requested > 0 && probe->knows_reserved ? reserved / requested : 0;
        cut_rectangles(policy);
    }
    if (probe->finds_peaks && has_all && policy->frames != NULL) {
        fill_moment(probe, &probe->at_reserved, &policy->frames[FRAME_RESERVED]);
        fill_moment(probe, &probe->at_requested, &policy->frames[FRAME_REQUESTED]);
    }
    if (policy->frames != NULL) {
        cut_frames(policy);
    }
    flw_host_free(probe->block_bytes);
    flw_host_free(probe->places);
    flw_host_free(probe->at_reserved.segments);
    flw_host_free(probe->at_requested.segments);
    probe->block_bytes = probe->places = NULL;
    flw_heapview_finish(&probe->view);
    return has_all;
}
