/* SPDX-License-Identifier: Apache-2.0 */
#include "report/probe.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/bits.h"
#include "trace/trace/trace.h"

#include "common/tool_host.h"

/* ---- the start ---- */

static struct flw_sheet_range *make_series(const struct flw_sheet *sheet)
{
    struct flw_sheet_range *series = flw_host_alloc(sheet->columns.count, sizeof *series);
    for (size_t i = 0; i < sheet->columns.count; i++) {
        series[i].low = UINT64_MAX;
    }
    return series;
}

static void make_frames(const struct flw_probe *probe)
{
    static const char *const names[] = {[FLW_PROBE_RESERVED] = "peak reserved",
                                        [FLW_PROBE_LIVE] = "peak live",
                                        [FLW_PROBE_OOM] = "out of memory",
                                        [FLW_PROBE_FAILURE] = "first failure",
                                        [FLW_PROBE_END] = "end"};
    const struct flw_sheet *sheet = probe->sheet;
    struct flw_sheet_policy *policy = probe->policy;
    uint64_t oom_op = sheet->oom.count == 0 ? FLW_UNKNOWN : sheet->oom.op;
    uint64_t before_oom = flw_max(oom_op, 1) - 1;
    const uint64_t ops[] = {[FLW_PROBE_RESERVED] = policy->peak_reserved_op,
                            [FLW_PROBE_LIVE] = policy->peak_requested_op,
                            [FLW_PROBE_OOM] =
                                oom_op == 0 || oom_op == FLW_UNKNOWN ? FLW_UNKNOWN : before_oom,
                            [FLW_PROBE_FAILURE] = probe->until_ops != NULL && oom_op != FLW_UNKNOWN
                                                      ? before_oom
                                                      : policy->first_failure_op,
                            [FLW_PROBE_END] = sheet->op_count - 1};
    policy->frame_count = FLW_PROBE_FRAMES;
    policy->frames = flw_host_alloc(policy->frame_count, sizeof *policy->frames);
    for (size_t i = 0; i < policy->frame_count; i++) {
        snprintf(policy->frames[i].name, sizeof policy->frames[i].name, "%s", names[i]);
        policy->frames[i].op = ops[i];
    }
}

void flw_probe_begin(struct flw_probe *probe)
{
    const struct flw_sheet *sheet = probe->sheet;
    struct flw_sheet_policy *policy = probe->policy;
    if (!probe->is_again) {
        policy->peak_reserved_op = policy->peak_requested_op = FLW_UNKNOWN;
        policy->first_failure_op = policy->first_failure_bytes = FLW_UNKNOWN;
        policy->first_failure_largest_hole_bytes = FLW_UNKNOWN;
        policy->first_failure_hole_bytes = FLW_UNKNOWN;
    }
    policy->has_series = probe->knows_reserved;
    if (policy->has_series) {
        policy->requested = make_series(sheet);
        policy->reserved = make_series(sheet);
        policy->block = probe->knows_blocks ? make_series(sheet) : NULL;
    }
    if (probe->knows_blocks) {
        probe->view.block_bytes = probe->block_bytes =
            flw_host_alloc(sheet->trace->block_count, sizeof *probe->block_bytes);
    }
    probe->view.trace = sheet->trace;
    if (probe->list_segments != NULL) {
        probe->places = flw_host_alloc(sheet->trace->block_count, sizeof *probe->places);
        policy->hole_column_count = (size_t)flw_min(sheet->op_count, FLW_SHEET_HOLE_COLUMNS);
        policy->holes = flw_host_alloc(policy->hole_column_count, sizeof *policy->holes);
        make_frames(probe);
    }
}

/* ---- ops ---- */

void flw_probe_alloc(struct flw_probe *probe, size_t op, uint64_t address, uint64_t taken_bytes)
{
    const struct flw_op *block_op = &probe->sheet->program->ops[op];
    probe->largest_request = flw_max(probe->largest_request, block_op->size_bytes);
    if (probe->knows_blocks) {
        probe->block_bytes[block_op->block] = flw_max(taken_bytes, block_op->size_bytes);
        probe->block_total_bytes += probe->block_bytes[block_op->block];
    }
    if (probe->list_segments != NULL) {
        probe->places[block_op->block] = address;
        flw_heapview_add(&probe->view, block_op->block);
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
    if (policy->first_failure_op == FLW_UNKNOWN) {
        policy->first_failure_op = op;
        policy->first_failure_bytes = request_bytes;
        if (policy->frames != NULL) {
            policy->frames[FLW_PROBE_FAILURE].op = op;
        }
    }
    if (op == policy->first_failure_op && probe->list_segments != NULL) {
        look(probe, &holes);
        policy->first_failure_largest_hole_bytes = holes.largest_bytes;
        policy->first_failure_hole_bytes = holes.total_bytes;
    }
}

/* Record the peaks; of the ops at the peak of reserved, the first with the highest need. */
static void find_peaks(struct flw_probe *probe, size_t op)
{
    struct flw_sheet_policy *policy = probe->policy;
    bool is_tighter = probe->reserved_bytes == probe->peak_reserved_bytes &&
                      probe->requested_bytes > probe->requested_at_peak_bytes;
    if (probe->requested_bytes > probe->peak_requested_bytes ||
        policy->peak_requested_op == FLW_UNKNOWN) {
        probe->peak_requested_bytes = probe->requested_bytes;
        policy->peak_requested_op = op;
    }
    if (probe->knows_reserved &&
        (is_tighter || probe->reserved_bytes > probe->peak_reserved_bytes ||
         policy->peak_reserved_op == FLW_UNKNOWN)) {
        probe->peak_reserved_bytes = probe->reserved_bytes;
        probe->requested_at_peak_bytes = probe->requested_bytes;
        policy->peak_reserved_op = op;
    }
    if (policy->frames != NULL) {
        policy->frames[FLW_PROBE_RESERVED].op = policy->peak_reserved_op;
        policy->frames[FLW_PROBE_LIVE].op = policy->peak_requested_op;
    }
}

static void fold(struct flw_sheet_range *series, size_t column, uint64_t bytes)
{
    if (series != NULL) {
        series[column].low = flw_min(series[column].low, bytes);
        series[column].high = flw_max(series[column].high, bytes);
    }
}

void flw_probe_note(struct flw_probe *probe, size_t op, uint64_t requested_bytes,
                    uint64_t reserved_bytes)
{
    struct flw_sheet_policy *policy = probe->policy;
    probe->requested_bytes = requested_bytes;
    probe->reserved_bytes = reserved_bytes;
    if (!probe->is_again) {
        find_peaks(probe, op);
    }
    while (op >= probe->sheet->columns.first_op[probe->column + 1]) {
        probe->column++;
    }
    fold(policy->requested, probe->column, requested_bytes);
    fold(policy->reserved, probe->column, reserved_bytes);
    fold(policy->block, probe->column, probe->block_total_bytes);
}

/* Limit of kept segments: keeping a peak costs the number of segments, too much if a heap has many segments and the
 * peak rises often. */
#define KEPT_SEGMENTS (UINT64_C(1) << 20)
#define KEPT_AN_OP    8

/* Keep the segments and figures of a frame. A peak before another request is not kept, because the request usually
 * raises the peak; otherwise the frame is lost. */
static void keep_frame(struct flw_probe *probe, size_t op, size_t i)
{
    const struct flw_program *program = probe->sheet->program;
    struct flw_sheet_frame *frame = &probe->policy->frames[i];
    bool is_rising = i <= FLW_PROBE_LIVE && !probe->is_again;
    bool is_driven = op + 1 < program->op_count && program->ops[op + 1].kind == FLW_OP_ALLOC;
    probe->is_lost[i] =
        is_rising &&
        (is_driven || probe->kept_count >= KEPT_SEGMENTS + KEPT_AN_OP * program->op_count);
    if (probe->is_lost[i]) {
        return;
    }
    probe->list_segments(probe, probe->context);
    size_t count = probe->view.segment_count;
    frame->requested_bytes = probe->requested_bytes;
    frame->block_bytes = probe->knows_blocks ? probe->block_total_bytes : FLW_UNKNOWN;
    frame->reserved_bytes = probe->reserved_bytes;
    FLW_HOST_GROW(frame->segments, probe->rooms[i], count);
    frame->segment_count = count;
    if (count != 0) {
        memcpy(frame->segments, probe->view.segments, count * sizeof *frame->segments);
    }
    probe->kept_count += is_rising ? count + 1 : 0;
}

static void take_holes(struct flw_probe *probe, size_t op)
{
    struct flw_sheet_policy *policy = probe->policy;
    size_t h = probe->hole_column;
    if (op + 1 >= flw_sheet_hole_end(probe->sheet, policy->hole_column_count, h)) {
        look(probe, &policy->holes[h]);
        policy->holes[h].largest_request = probe->largest_request;
        probe->largest_request = 0;
        probe->hole_column++;
    }
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
    uint64_t reserved_bytes = probe->knows_reserved ? probe->reserved_bytes : FLW_UNKNOWN;
    uint64_t block_bytes = probe->knows_blocks ? probe->block_total_bytes : FLW_UNKNOWN;
    weigh(probe, op);
    for (size_t i = 0; i < policy->frame_count; i++) {
        if (policy->frames[i].op == op) {
            keep_frame(probe, op, i);
        }
    }
    if (probe->list_segments != NULL) {
        take_holes(probe, op);
    }
    if (op == policy->peak_reserved_op) {
        policy->requested_at_peak_bytes = probe->requested_bytes;
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
static bool is_held(const struct flw_probe *probe, size_t block, uint64_t op,
                    uint8_t *out_is_pending)
{
    const struct flw_life *life = &probe->sheet->lives[block];
    const struct flw_trace_block *of = &probe->sheet->trace->blocks[block];
    uint64_t until_op = probe->until_ops == NULL ? life->end_op : probe->until_ops[block];
    *out_is_pending = life->end_op <= op || (of->waits && !of->freed);
    return life->begin_op <= op && op < until_op && probe->places[block] != 0;
}

/* Fill a frame from the kept segments and the blocks that had memory after the op. */
static void fill_frame(struct flw_probe *probe, struct flw_sheet_frame *frame)
{
    const struct flw_sheet *sheet = probe->sheet;
    struct flw_sheet_holes holes;
    uint8_t *pending = flw_host_alloc(sheet->trace->block_count, 1);
    struct flw_heapview view = {.trace = sheet->trace,
                                .addresses = probe->places,
                                .block_bytes = probe->view.block_bytes,
                                .pending = probe->until_ops == NULL ? NULL : pending,
                                .segments = frame->segments,
                                .segment_count = frame->segment_count};
    for (size_t i = 0; i < sheet->trace->block_count; i++) {
        if (is_held(probe, i, frame->op, &pending[i])) {
            flw_heapview_add(&view, (uint32_t)i);
        }
    }
    flw_heapview_look(&view);
    flw_heapview_measure(&view, &holes);
    flw_heapview_copy(&view, frame);
    size_t column = flw_sheet_column(&sheet->columns, frame->op);
    frame->time_ns = sheet->has_times ? sheet->columns.time_ns[column] : 0;
    frame->largest_hole_bytes = holes.largest_bytes;
    frame->hole_count = holes.count;
    frame->hole_bytes = holes.total_bytes;
    if (frame == &probe->policy->frames[FLW_PROBE_RESERVED]) {
        double reserved = (double)frame->reserved_bytes;
        probe->policy->fragmentation =
            holes.total_bytes == 0 ? 0
                                   : 1 - (double)holes.largest_bytes / (double)holes.total_bytes;
        probe->policy->pytorch_fragmentation =
            reserved == 0 ? 0 : holes.square_sum / (reserved * reserved);
    }
    flw_heapview_finish(&view);
    flw_host_free(pending);
}

/* Fill the frames, and drop those of moments that did not occur. */
static void fill_frames(struct flw_probe *probe)
{
    struct flw_sheet_policy *policy = probe->policy;
    size_t kept = 0;
    for (size_t i = 0; i < policy->frame_count; i++) {
        if (policy->frames[i].op != FLW_UNKNOWN) {
            fill_frame(probe, &policy->frames[i]);
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
static void merge(struct flw_probe *probe, size_t block, uint64_t address, uint64_t bytes)
{
    const struct flw_life *life = &probe->sheet->lives[block];
    double column_ops = (double)probe->sheet->op_count / FLW_SHEET_LANE_COLUMNS;
    double life_end = (double)life->end_op;
    for (uint64_t part, end = address + bytes; address < end; address = part) {
        part = flw_min(end, (address / probe->lane_bytes + 1) * probe->lane_bytes);
        struct flw_sheet_lane *lane = find_lane(probe, address, part);
        double now = (double)life->begin_op;
        for (size_t column = (size_t)(now / column_ops);
             now < life_end && column < FLW_SHEET_LANE_COLUMNS; column++) {
            double next = fmin(life_end, (double)(column + 1) * column_ops);
            lane->byte_ops[column] += (double)(part - address) * (next - now);
            now = next;
        }
    }
}

/* Draw the blocks that were allocated: the selected ones as rectangles, the others in lanes. */
static void draw(struct flw_probe *probe)
{
    const struct flw_sheet *sheet = probe->sheet;
    const struct flw_trace *trace = sheet->trace;
    struct flw_sheet_policy *policy = probe->policy;
    bool has_lanes = sheet->unselected_count != 0 && probe->has_lanes;
    size_t next = 0;
    policy->left_out_count = sheet->unselected_count;
    policy->rectangles = flw_host_alloc(sheet->selected_count, sizeof *policy->rectangles);
    policy->lanes = has_lanes ? flw_host_alloc(FLW_SHEET_LANES, sizeof *policy->lanes) : NULL;
    probe->lane_bytes = LEAST_LANE_BYTES;
    while (probe->lane_bytes < flw_div_up(probe->sheet->program->max_live_bytes, LIVE_LANES)) {
        probe->lane_bytes *= 2;
    }
    for (size_t i = 0; i < trace->block_count; i++) {
        bool is_selected = next < sheet->selected_count && sheet->selected[next] == i;
        uint64_t address = probe->places[i];
        uint64_t bytes = probe->knows_blocks ? probe->block_bytes[i] : trace->blocks[i].size_bytes;
        bool is_placed = address != 0 || (probe->until_ops != NULL && /* not in the recording */
                                          sheet->lives[i].begin_op != UINT64_MAX);
        next += is_selected;
        if (is_placed && is_selected) {
            policy->rectangles[policy->rectangle_count++] =
                (struct flw_sheet_rectangle){.address = address,
                                             .bytes = bytes,
                                             .begin_op = sheet->lives[i].begin_op,
                                             .end_op = sheet->lives[i].end_op,
                                             .block = (uint32_t)i,
                                             .stream = trace->blocks[i].stream};
        } else if (is_placed && has_lanes) {
            merge(probe, i, address, bytes);
        }
    }
}

bool flw_probe_finish(struct flw_probe *probe)
{
    struct flw_sheet_policy *policy = probe->policy;
    bool has_clock = probe->requested_sum > 0;
    double requested = has_clock ? probe->requested_sum : probe->requested_op_sum;
    double reserved = has_clock ? probe->reserved_sum : probe->reserved_op_sum;
    policy->mean_ratio = requested > 0 && probe->knows_reserved ? reserved / requested : 0;
    bool has_all = !probe->is_lost[FLW_PROBE_RESERVED] && !probe->is_lost[FLW_PROBE_LIVE];
    if (has_all && probe->list_segments != NULL) {
        fill_frames(probe);
        draw(probe);
    }
    flw_host_free(probe->block_bytes);
    flw_host_free(probe->places);
    flw_heapview_finish(&probe->view);
    return has_all;
}
