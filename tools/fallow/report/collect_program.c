/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the part of an analysis that describes the program and is the same for every policy.
 * Does not: rank owners (collect_owners.c).
 */
#include "report/collect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/compare.h"
#include "report/heapview.h"
#include "report/packing.h"
#include "trace/trace/trace.h"

#include "common/tool_host.h"

/* ---- events ---- */

static void make_columns(struct flw_analysis *analysis)
{
    struct flw_analysis_columns *columns = &analysis->columns;
    size_t count = (size_t)flw_min(analysis->op_count, FLW_ANALYSIS_COLUMNS);
    columns->first_op = flw_host_alloc(count + 1, sizeof *columns->first_op);
    columns->count = count;
    for (size_t i = 0; i <= count; i++) {
        columns->first_op[i] = analysis->op_count * i / count; /* ops are fewer than 2^33 */
    }
    if (analysis->has_times) {
        columns->time_ns = flw_host_alloc(count + 1, sizeof *columns->time_ns);
    }
}

/* Record a mark, the begin of a phase, or the end of the innermost open phase of that name. A phase ends at FLW_UNKNOWN
 * while it is open. */
static void note_mark(struct flw_analysis *analysis, const struct flw_trace_event *event,
                      const char *name, uint64_t op)
{
    struct flw_analysis_mark mark = {
        .begin_op = op, .end_op = event->op == FLW_TRACE_PHASE_BEGIN ? FLW_UNKNOWN : op};
    size_t i = analysis->mark_count;
    snprintf(mark.name, sizeof mark.name, "%.*s", FLW_ANALYSIS_NAME_BYTES - 1,
             name == NULL ? "mark" : name);
    if (event->op != FLW_TRACE_PHASE_END) {
        if (i < FLW_ANALYSIS_MARKS) {
            analysis->marks[analysis->mark_count++] = mark;
        }
        return;
    }
    while (i > 0 && (analysis->marks[i - 1].end_op != FLW_UNKNOWN ||
                     strcmp(analysis->marks[i - 1].name, mark.name) != 0)) {
        i--;
    }
    if (i > 0) {
        analysis->marks[i - 1].end_op = op;
    }
}

static void note_oom(struct flw_analysis *analysis, size_t event,
                     const struct flw_trace_detail *detail, uint64_t op, uint64_t live_bytes)
{
    const struct flw_owners *code = analysis->owners;
    struct flw_analysis_oom *oom = &analysis->oom;
    if (oom->count++ > 0) {
        return;
    }
    oom->event = event + 1;
    oom->op = op;
    oom->asked_bytes = analysis->trace->events[event].size_bytes;
    oom->live_bytes = live_bytes;
    oom->free_bytes = detail == NULL ? FLW_UNKNOWN : detail->free_bytes;
    oom->largest_hole_bytes = detail == NULL ? FLW_UNKNOWN : detail->largest_bytes;
    if (code->has_code && code->of_oom != FLW_OWNER_UNKNOWN) {
        flw_owners_cut_name(code, code->of_oom, oom->owner);
    }
}

/* Record the columns' times, the marks and the first out-of-memory in one walk over the events. */
static void walk_events(struct flw_analysis *analysis)
{
    const struct flw_trace *trace = analysis->trace;
    struct flw_analysis_columns *columns = &analysis->columns;
    struct flw_trace_walk walk = {0};
    uint64_t op = analysis->initial_op_count, live_bytes = 0, time_ns = 0;
    size_t column = 0; /* first column without a time */
    for (size_t i = 0; i < trace->initial_count; i++) {
        live_bytes += trace->blocks[i].size_bytes;
    }
    for (size_t i = 0; i < trace->event_count; i++) {
        const struct flw_trace_event *event = &trace->events[i];
        const struct flw_trace_detail *detail = flw_trace_walk_detail(trace, &walk, i);
        time_ns = event->time_ns;
        if (event->op == FLW_TRACE_ALLOC) {
            live_bytes += event->size_bytes;
        } else if (event->op == FLW_TRACE_FREE) {
            live_bytes -= event->size_bytes;
        } else if (event->op == FLW_TRACE_OOM) {
            note_oom(analysis, i, detail, op, live_bytes);
        } else if (event->op == FLW_TRACE_MARK || event->op == FLW_TRACE_PHASE_BEGIN ||
                   event->op == FLW_TRACE_PHASE_END) {
            note_mark(analysis, event, flw_trace_name(trace, detail), op);
        }
        bool has_op = flw_program_has_op(analysis->program, i);
        for (; has_op && analysis->has_times && column < columns->count &&
               columns->first_op[column] <= op;
             column++) {
            bool is_initial = columns->first_op[column] < analysis->initial_op_count;
            columns->time_ns[column] = is_initial ? 0 : time_ns;
        }
        op += has_op;
    }
    for (; analysis->has_times && column <= columns->count; column++) {
        columns->time_ns[column] = time_ns;
    }
    for (size_t i = 0; i < analysis->mark_count; i++) {
        analysis->marks[i].end_op = flw_min(analysis->marks[i].end_op, analysis->op_count);
    }
}

/* ---- blocks ---- */

static void find_lives(struct flw_analysis *analysis)
{
    struct flw_life *lives = analysis->lives;
    const struct flw_program *program = analysis->program;
    uint64_t live_bytes = 0, peak_bytes = 0;
    for (size_t i = 0; i < program->block_count; i++) {
        lives[i] = (struct flw_life){.begin_op = UINT64_MAX, .end_op = analysis->op_count};
    }
    for (size_t i = 0; i < program->op_count; i++) {
        const struct flw_op *op = &program->ops[i];
        if (op->kind == FLW_OP_ALLOC) {
            lives[op->block].begin_op = i;
        } else if (flw_op_change(op) != 0) {
            lives[op->block].end_op = i;
        }
        live_bytes += flw_op_change(op);
        if (live_bytes > peak_bytes) {
            peak_bytes = live_bytes;
            analysis->peak_op = i;
        }
    }
}

static void count_block(struct flw_analysis *analysis, uint64_t size_bytes,
                        const struct flw_life *life)
{
    size_t bin = flw_analysis_size_bin(size_bytes);
    analysis->size_count[bin]++;
    analysis->size_bytes[bin] += size_bytes;
    if (life->end_op == analysis->op_count) {
        return; /* never freed */
    }
    uint64_t ops = life->end_op - life->begin_op;
    size_t life_bin = flw_min(flw_log2_floor(ops), FLW_ANALYSIS_LIFE_BINS - 1);
    analysis->life_count[life_bin]++;
    analysis->size_life[bin][life_bin]++;
    analysis->temporary_count += ops == 1;
}

/* Count the blocks by size and life, and the distinct sizes. `sizes` has room for one per block. */
static void count_blocks(struct flw_analysis *analysis, uint64_t *sizes)
{
    size_t count = 0;
    for (size_t i = 0; i < analysis->program->block_count; i++) {
        if (analysis->lives[i].begin_op != UINT64_MAX) {
            sizes[count++] = analysis->trace->blocks[i].size_bytes;
            count_block(analysis, sizes[count - 1], &analysis->lives[i]);
        }
    }
    qsort(sizes, count, sizeof *sizes, flw_compare_u64);
    for (size_t i = 0; i < count; i++) {
        analysis->distinct_size_count += i == 0 || sizes[i] != sizes[i - 1];
    }
}

/* Return size * life; 0 for a block without ops. */
static uint64_t weigh(const struct flw_analysis *analysis, size_t block)
{
    const struct flw_life *life = &analysis->lives[block];
    uint64_t weight = 0;
    bool overflows = life->begin_op != UINT64_MAX &&
                     __builtin_mul_overflow(analysis->trace->blocks[block].size_bytes,
                                            life->end_op - life->begin_op, &weight);
    return overflows ? UINT64_MAX : weight;
}

/* Select the blocks with the largest weights; of equals, the first. `weights` has room for one per block. */
static void select_blocks(struct flw_analysis *analysis, uint64_t *weights)
{
    size_t count = 0;
    for (size_t i = 0; i < analysis->program->block_count; i++) {
        weights[count] = weigh(analysis, i);
        count += weights[count] != 0;
    }
    struct flw_analysis_cut cut = flw_analysis_cut(weights, count, FLW_ANALYSIS_RECTANGLES);
    analysis->selected =
        flw_host_alloc(flw_min(count, FLW_ANALYSIS_RECTANGLES), sizeof *analysis->selected);
    for (size_t i = 0; i < analysis->program->block_count; i++) {
        uint64_t weight = weigh(analysis, i);
        if (weight != 0 && flw_analysis_cut_keeps(&cut, weight)) {
            analysis->selected[analysis->selected_count++] = (uint32_t)i;
        }
    }
    analysis->unselected_count = count - analysis->selected_count;
}

void flw_collect_program(struct flw_analysis *analysis, const struct flw_owner_rule *rule)
{
    size_t block_count = analysis->program->block_count;
    uint64_t *room = flw_host_alloc(block_count, sizeof *room);
    analysis->owner_rule = flw_owner_rule_say(rule, analysis->trace);
    analysis->owners = flw_host_alloc(1, sizeof *analysis->owners);
    flw_owners_find(analysis->owners, analysis->trace, rule);
    analysis->has_code = analysis->owners->has_code;
    analysis->marks = flw_host_alloc(FLW_ANALYSIS_MARKS, sizeof *analysis->marks);
    make_columns(analysis);
    walk_events(analysis);
    analysis->lives = flw_host_alloc(block_count, sizeof *analysis->lives);
    find_lives(analysis);
    count_blocks(analysis, room);
    select_blocks(analysis, room);
    flw_host_free(room);
    flw_collect_program_owners(analysis);
    analysis->packed_bytes = analysis->policy_count == 0 /* nothing is replayed */
                                 ? FLW_UNKNOWN
                                 : flw_packing_measure(analysis->program, analysis->lives);
}
