/* SPDX-License-Identifier: Apache-2.0 */
#include "report/observer.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/bits.h"
#include "trace/trace/trace.h"

#include "common/tool_host.h"

/* ---- the start ---- */

static struct flw_analysis_range *make_series(const struct flw_analysis *analysis)
{
    struct flw_analysis_range *series = flw_host_alloc(analysis->columns.count, sizeof *series);
    for (size_t i = 0; i < analysis->columns.count; i++) {
        series[i].low = UINT64_MAX;
    }
    return series;
}

static void make_frames(const struct flw_observer *observer)
{
    static const char *const names[] = {[FLW_OBSERVER_RESERVED] = "peak reserved",
                                        [FLW_OBSERVER_LIVE] = "peak live",
                                        [FLW_OBSERVER_OOM] = "out of memory",
                                        [FLW_OBSERVER_FAILURE] = "first failure",
                                        [FLW_OBSERVER_END] = "end"};
    const struct flw_analysis *analysis = observer->analysis;
    struct flw_analysis_policy *policy = observer->policy;
    uint64_t oom_op = analysis->oom.count == 0 ? FLW_UNKNOWN : analysis->oom.op;
    uint64_t before_oom = flw_max(oom_op, 1) - 1;
    const uint64_t ops[] = {
        [FLW_OBSERVER_RESERVED] = policy->peak_reserved_op,
        [FLW_OBSERVER_LIVE] = policy->peak_requested_op,
        [FLW_OBSERVER_OOM] = oom_op == 0 || oom_op == FLW_UNKNOWN ? FLW_UNKNOWN : before_oom,
        [FLW_OBSERVER_FAILURE] = observer->until_ops != NULL && oom_op != FLW_UNKNOWN
                                     ? before_oom
                                     : policy->first_failure_op,
        [FLW_OBSERVER_END] = analysis->op_count - 1};
    policy->frame_count = FLW_OBSERVER_FRAMES;
    policy->frames = flw_host_alloc(policy->frame_count, sizeof *policy->frames);
    for (size_t i = 0; i < policy->frame_count; i++) {
        snprintf(policy->frames[i].name, sizeof policy->frames[i].name, "%s", names[i]);
        policy->frames[i].op = ops[i];
    }
}

void flw_observer_begin(struct flw_observer *observer)
{
    const struct flw_analysis *analysis = observer->analysis;
    struct flw_analysis_policy *policy = observer->policy;
    if (!observer->is_again) {
        policy->peak_reserved_op = policy->peak_requested_op = FLW_UNKNOWN;
        policy->first_failure_op = policy->first_failure_bytes = FLW_UNKNOWN;
        policy->first_failure_largest_hole_bytes = FLW_UNKNOWN;
        policy->first_failure_hole_bytes = FLW_UNKNOWN;
    }
    policy->has_series = observer->knows_reserved;
    if (policy->has_series) {
        policy->requested = make_series(analysis);
        policy->reserved = make_series(analysis);
        policy->block = observer->knows_blocks ? make_series(analysis) : NULL;
    }
    if (observer->knows_blocks) {
        observer->view.block_bytes = observer->block_bytes =
            flw_host_alloc(analysis->trace->block_count, sizeof *observer->block_bytes);
    }
    observer->view.trace = analysis->trace;
    if (observer->list_segments != NULL) {
        observer->places = flw_host_alloc(analysis->trace->block_count, sizeof *observer->places);
        policy->hole_column_count = (size_t)flw_min(analysis->op_count, FLW_ANALYSIS_HOLE_COLUMNS);
        policy->holes = flw_host_alloc(policy->hole_column_count, sizeof *policy->holes);
        make_frames(observer);
    }
}

/* ---- ops ---- */

void flw_observer_alloc(struct flw_observer *observer, size_t op, uint64_t address,
                        uint64_t taken_bytes)
{
    const struct flw_op *block_op = &observer->analysis->program->ops[op];
    observer->largest_request = flw_max(observer->largest_request, block_op->size_bytes);
    if (observer->knows_blocks) {
        observer->block_bytes[block_op->block] = flw_max(taken_bytes, block_op->size_bytes);
        observer->block_total_bytes += observer->block_bytes[block_op->block];
    }
    if (observer->list_segments != NULL) {
        observer->places[block_op->block] = address;
        flw_heapview_add(&observer->view, block_op->block);
    }
}

static void look(struct flw_observer *observer, struct flw_analysis_holes *out_holes)
{
    flw_heapview_look(&observer->view);
    observer->list_segments(observer, observer->context);
    flw_heapview_measure(&observer->view, out_holes);
}

void flw_observer_fail(struct flw_observer *observer, size_t op, uint64_t request_bytes)
{
    struct flw_analysis_policy *policy = observer->policy;
    struct flw_analysis_holes holes;
    observer->largest_request = flw_max(observer->largest_request, request_bytes);
    if (policy->first_failure_op == FLW_UNKNOWN) {
        policy->first_failure_op = op;
        policy->first_failure_bytes = request_bytes;
        if (policy->frames != NULL) {
            policy->frames[FLW_OBSERVER_FAILURE].op = op;
        }
    }
    if (op == policy->first_failure_op && observer->list_segments != NULL) {
        look(observer, &holes);
        policy->first_failure_largest_hole_bytes = holes.largest_bytes;
        policy->first_failure_hole_bytes = holes.total_bytes;
    }
}

/* Record the peaks; of the ops at the peak of reserved, the first with the highest need. */
static void find_peaks(struct flw_observer *observer, size_t op)
{
    struct flw_analysis_policy *policy = observer->policy;
    bool is_tighter = observer->reserved_bytes == observer->peak_reserved_bytes &&
                      observer->requested_bytes > observer->requested_at_peak_bytes;
    if (observer->requested_bytes > observer->peak_requested_bytes ||
        policy->peak_requested_op == FLW_UNKNOWN) {
        observer->peak_requested_bytes = observer->requested_bytes;
        policy->peak_requested_op = op;
    }
    if (observer->knows_reserved &&
        (is_tighter || observer->reserved_bytes > observer->peak_reserved_bytes ||
         policy->peak_reserved_op == FLW_UNKNOWN)) {
        observer->peak_reserved_bytes = observer->reserved_bytes;
        observer->requested_at_peak_bytes = observer->requested_bytes;
        policy->peak_reserved_op = op;
    }
    if (policy->frames != NULL) {
        policy->frames[FLW_OBSERVER_RESERVED].op = policy->peak_reserved_op;
        policy->frames[FLW_OBSERVER_LIVE].op = policy->peak_requested_op;
    }
}

static void fold(struct flw_analysis_range *series, size_t column, uint64_t bytes)
{
    if (series != NULL) {
        series[column].low = flw_min(series[column].low, bytes);
        series[column].high = flw_max(series[column].high, bytes);
    }
}

void flw_observer_note(struct flw_observer *observer, size_t op, uint64_t requested_bytes,
                       uint64_t reserved_bytes)
{
    struct flw_analysis_policy *policy = observer->policy;
    observer->requested_bytes = requested_bytes;
    observer->reserved_bytes = reserved_bytes;
    if (!observer->is_again) {
        find_peaks(observer, op);
    }
    while (op >= observer->analysis->columns.first_op[observer->column + 1]) {
        observer->column++;
    }
    fold(policy->requested, observer->column, requested_bytes);
    fold(policy->reserved, observer->column, reserved_bytes);
    fold(policy->block, observer->column, observer->block_total_bytes);
}

/* Limit of kept segments: keeping a peak costs the number of segments, too much if a heap has many segments and the
 * peak rises often. */
#define KEPT_SEGMENTS (UINT64_C(1) << 20)
#define KEPT_AN_OP    8

/* Keep the segments and figures of a frame. A peak before another request is not kept, because the request usually
 * raises the peak; otherwise the frame is lost. */
static void keep_frame(struct flw_observer *observer, size_t op, size_t i)
{
    const struct flw_program *program = observer->analysis->program;
    struct flw_analysis_frame *frame = &observer->policy->frames[i];
    bool is_rising = i <= FLW_OBSERVER_LIVE && !observer->is_again;
    bool is_driven = op + 1 < program->op_count && program->ops[op + 1].kind == FLW_OP_ALLOC;
    observer->is_lost[i] =
        is_rising &&
        (is_driven || observer->kept_count >= KEPT_SEGMENTS + KEPT_AN_OP * program->op_count);
    if (observer->is_lost[i]) {
        return;
    }
    observer->list_segments(observer, observer->context);
    size_t count = observer->view.segment_count;
    frame->requested_bytes = observer->requested_bytes;
    frame->block_bytes = observer->knows_blocks ? observer->block_total_bytes : FLW_UNKNOWN;
    frame->reserved_bytes = observer->reserved_bytes;
    FLW_HOST_GROW(frame->segments, observer->rooms[i], count);
    frame->segment_count = count;
    if (count != 0) {
        memcpy(frame->segments, observer->view.segments, count * sizeof *frame->segments);
    }
    observer->kept_count += is_rising ? count + 1 : 0;
}

static void take_holes(struct flw_observer *observer, size_t op)
{
    struct flw_analysis_policy *policy = observer->policy;
    size_t h = observer->hole_column;
    if (op + 1 >= flw_analysis_hole_end(observer->analysis, policy->hole_column_count, h)) {
        look(observer, &policy->holes[h]);
        policy->holes[h].largest_request = observer->largest_request;
        observer->largest_request = 0;
        observer->hole_column++;
    }
}

/* Add the state to the integrals until the clock of the next op. */
static void weigh(struct flw_observer *observer, size_t op)
{
    const struct flw_program *program = observer->analysis->program;
    if (op + 1 < program->initial_count) {
        return;
    }
    double units = op + 1 < program->op_count ? (double)program->ops[op + 1].advance_units : 0;
    double requested = (double)observer->requested_bytes;
    double reserved = (double)observer->reserved_bytes;
    observer->requested_sum += requested * units;
    observer->reserved_sum += reserved * units;
    observer->requested_op_sum += requested;
    observer->reserved_op_sum += reserved;
}

void flw_observer_end_op(struct flw_observer *observer, size_t op)
{
    struct flw_analysis_policy *policy = observer->policy;
    uint64_t reserved_bytes = observer->knows_reserved ? observer->reserved_bytes : FLW_UNKNOWN;
    uint64_t block_bytes = observer->knows_blocks ? observer->block_total_bytes : FLW_UNKNOWN;
    weigh(observer, op);
    for (size_t i = 0; i < policy->frame_count; i++) {
        if (policy->frames[i].op == op) {
            keep_frame(observer, op, i);
        }
    }
    if (observer->list_segments != NULL) {
        take_holes(observer, op);
    }
    if (op == policy->peak_reserved_op) {
        policy->requested_at_peak_bytes = observer->requested_bytes;
        policy->block_at_peak_bytes = block_bytes;
    }
    if (op == policy->peak_requested_op) {
        policy->reserved_at_peak_requested_bytes = reserved_bytes;
    }
    policy->end_reserved_bytes = reserved_bytes;
    policy->peak_block_bytes = flw_max(policy->peak_block_bytes, block_bytes);
}

/* ---- the end: frames ---- */

/* True if the block has memory after the op; *out_is_pending: it is freed already. */
static bool is_held(const struct flw_observer *observer, size_t block, uint64_t op,
                    uint8_t *out_is_pending)
{
    const struct flw_life *life = &observer->analysis->lives[block];
    const struct flw_trace_block *of = &observer->analysis->trace->blocks[block];
    uint64_t until_op = observer->until_ops == NULL ? life->end_op : observer->until_ops[block];
    *out_is_pending = life->end_op <= op || (of->waits && !of->freed);
    return life->begin_op <= op && op < until_op && observer->places[block] != 0;
}

/* Fill a frame from the kept segments and the blocks that had memory after the op. */
static void fill_frame(struct flw_observer *observer, struct flw_analysis_frame *frame)
{
    const struct flw_analysis *analysis = observer->analysis;
    struct flw_analysis_holes holes;
    FLW_LOCAL uint8_t *pending = flw_host_alloc(analysis->trace->block_count, 1);
    struct flw_heapview view = {.trace = analysis->trace,
                                .addresses = observer->places,
                                .block_bytes = observer->view.block_bytes,
                                .pending = observer->until_ops == NULL ? NULL : pending,
                                .segments = frame->segments,
                                .segment_count = frame->segment_count};
    for (size_t i = 0; i < analysis->trace->block_count; i++) {
        if (is_held(observer, i, frame->op, &pending[i])) {
            flw_heapview_add(&view, (uint32_t)i);
        }
    }
    flw_heapview_look(&view);
    flw_heapview_measure(&view, &holes);
    flw_heapview_copy(&view, frame);
    size_t column = flw_analysis_column(&analysis->columns, frame->op);
    frame->time_ns = analysis->has_times ? analysis->columns.time_ns[column] : 0;
    frame->largest_hole_bytes = holes.largest_bytes;
    frame->hole_count = holes.count;
    frame->hole_bytes = holes.total_bytes;
    if (frame == &observer->policy->frames[FLW_OBSERVER_RESERVED]) {
        double reserved = (double)frame->reserved_bytes;
        observer->policy->fragmentation =
            holes.total_bytes == 0 ? 0
                                   : 1 - (double)holes.largest_bytes / (double)holes.total_bytes;
        observer->policy->pytorch_fragmentation =
            reserved == 0 ? 0 : holes.square_sum / (reserved * reserved);
    }
    flw_heapview_finish(&view);
}

/* Fill the frames, and drop those of moments that did not occur. */
static void fill_frames(struct flw_observer *observer)
{
    struct flw_analysis_policy *policy = observer->policy;
    size_t kept = 0;
    for (size_t i = 0; i < policy->frame_count; i++) {
        if (policy->frames[i].op != FLW_UNKNOWN) {
            fill_frame(observer, &policy->frames[i]);
            policy->frames[kept++] = policy->frames[i];
        }
    }
    policy->frame_count = kept;
}

/* ---- the end: rectangles and lanes ---- */

/* Bytes of a lane: a power of two such that the blocks at the peak take LIVE_LANES lanes, or half as many. */
#define LIVE_LANES       256
#define LEAST_LANE_BYTES 4096

/* Find the lane of an address below `end`, or add one. If there is no room, extend the neighbour in the same stretch of
 * lane_bytes; no other lane is in between. */
static struct flw_analysis_lane *find_lane(struct flw_observer *observer, uint64_t address,
                                           uint64_t end)
{
    struct flw_analysis_policy *policy = observer->policy;
    unsigned shift = flw_log2_floor(
        observer->lane_bytes); /* a shift, because a division per address costs time */
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
    struct flw_analysis_lane *lane = &policy->lanes[low];
    bool is_known = low < policy->lane_count && lane->begin >> shift == stretch;
    if (low > 0 && lane[-1].end > address) {
        is_known = true; /* the lane was extended over the address */
        lane--;
    }
    if (!is_known && policy->lane_count == FLW_ANALYSIS_LANES) {
        lane -= low > 0;
        is_known = true;
    }
    if (!is_known) {
        memmove(lane + 1, lane, (policy->lane_count++ - low) * sizeof *lane);
        *lane = (struct flw_analysis_lane){
            .begin = address,
            .end = end,
            .byte_ops = flw_host_alloc(FLW_ANALYSIS_LANE_COLUMNS, sizeof *lane->byte_ops)};
    }
    lane->begin = flw_min(lane->begin, address);
    lane->end = flw_max(lane->end, end);
    return lane;
}

/* Add a block without a rectangle to the block's lanes, column by column. */
static void merge(struct flw_observer *observer, size_t block, uint64_t address, uint64_t bytes)
{
    const struct flw_life *life = &observer->analysis->lives[block];
    double column_ops = (double)observer->analysis->op_count / FLW_ANALYSIS_LANE_COLUMNS;
    double life_end = (double)life->end_op;
    for (uint64_t part, end = address + bytes; address < end; address = part) {
        part = flw_min(end, (address / observer->lane_bytes + 1) * observer->lane_bytes);
        struct flw_analysis_lane *lane = find_lane(observer, address, part);
        double now = (double)life->begin_op;
        for (size_t column = (size_t)(now / column_ops);
             now < life_end && column < FLW_ANALYSIS_LANE_COLUMNS; column++) {
            double next = fmin(life_end, (double)(column + 1) * column_ops);
            lane->byte_ops[column] += (double)(part - address) * (next - now);
            now = next;
        }
    }
}

/* Draw the blocks that were allocated: the selected ones as rectangles, the others in lanes. */
static void draw(struct flw_observer *observer)
{
    const struct flw_analysis *analysis = observer->analysis;
    const struct flw_trace *trace = analysis->trace;
    struct flw_analysis_policy *policy = observer->policy;
    bool has_lanes = analysis->unselected_count != 0 && observer->has_lanes;
    size_t next = 0;
    policy->left_out_count = analysis->unselected_count;
    policy->rectangles = flw_host_alloc(analysis->selected_count, sizeof *policy->rectangles);
    policy->lanes = has_lanes ? flw_host_alloc(FLW_ANALYSIS_LANES, sizeof *policy->lanes) : NULL;
    observer->lane_bytes = LEAST_LANE_BYTES;
    while (observer->lane_bytes <
           flw_div_up(observer->analysis->program->max_live_bytes, LIVE_LANES)) {
        observer->lane_bytes *= 2;
    }
    for (size_t i = 0; i < trace->block_count; i++) {
        bool is_selected = next < analysis->selected_count && analysis->selected[next] == i;
        uint64_t address = observer->places[i];
        uint64_t bytes =
            observer->knows_blocks ? observer->block_bytes[i] : trace->blocks[i].size_bytes;
        bool is_placed = address != 0 || (observer->until_ops != NULL && /* not in the recording */
                                          analysis->lives[i].begin_op != UINT64_MAX);
        next += is_selected;
        if (is_placed && is_selected) {
            policy->rectangles[policy->rectangle_count++] =
                (struct flw_analysis_rectangle){.address = address,
                                                .bytes = bytes,
                                                .begin_op = analysis->lives[i].begin_op,
                                                .end_op = analysis->lives[i].end_op,
                                                .block = (uint32_t)i,
                                                .stream = trace->blocks[i].stream};
        } else if (is_placed && has_lanes) {
            merge(observer, i, address, bytes);
        }
    }
}

bool flw_observer_finish(struct flw_observer *observer)
{
    struct flw_analysis_policy *policy = observer->policy;
    bool has_clock = observer->requested_sum > 0;
    double requested = has_clock ? observer->requested_sum : observer->requested_op_sum;
    double reserved = has_clock ? observer->reserved_sum : observer->reserved_op_sum;
    policy->mean_ratio = requested > 0 && observer->knows_reserved ? reserved / requested : 0;
    bool has_all =
        !observer->is_lost[FLW_OBSERVER_RESERVED] && !observer->is_lost[FLW_OBSERVER_LIVE];
    if (has_all && observer->list_segments != NULL) {
        fill_frames(observer);
        draw(observer);
    }
    flw_host_free(observer->block_bytes);
    flw_host_free(observer->places);
    flw_heapview_finish(&observer->view);
    return has_all;
}
