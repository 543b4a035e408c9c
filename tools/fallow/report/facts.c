/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the part of a sheet that describes the program and is the same for every policy.
 * Does not: rank owners (facts_owner.c).
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

static void make_columns(struct flw_sheet *sheet)
{
    struct flw_sheet_columns *columns = &sheet->columns;
    size_t count = (size_t)flw_min(sheet->op_count, FLW_SHEET_COLUMNS);
    columns->first_op = flw_host_alloc(count + 1, sizeof *columns->first_op);
    columns->count = count;
    for (size_t i = 0; i <= count; i++) {
        columns->first_op[i] = sheet->op_count * i / count; /* ops are fewer than 2^33 */
    }
    if (sheet->has_times) {
        columns->time_ns = flw_host_alloc(count + 1, sizeof *columns->time_ns);
    }
}

/* Record a mark, the begin of a phase, or the end of the innermost open phase of that name. A phase ends at FLW_UNKNOWN
 * while it is open. */
static void note_mark(struct flw_sheet *sheet, const struct flw_trace_event *event,
                      const char *name, uint64_t op)
{
    struct flw_sheet_mark mark = {.begin_op = op,
                                  .end_op = event->op == FLW_TRACE_PHASE_BEGIN ? FLW_UNKNOWN : op};
    size_t i = sheet->mark_count;
    snprintf(mark.name, sizeof mark.name, "%.*s", FLW_SHEET_NAME_BYTES - 1,
             name == NULL ? "mark" : name);
    if (event->op != FLW_TRACE_PHASE_END) {
        if (i < FLW_SHEET_MARKS) {
            sheet->marks[sheet->mark_count++] = mark;
        }
        return;
    }
    while (i > 0 && (sheet->marks[i - 1].end_op != FLW_UNKNOWN ||
                     strcmp(sheet->marks[i - 1].name, mark.name) != 0)) {
        i--;
    }
    if (i > 0) {
        sheet->marks[i - 1].end_op = op;
    }
}

static void note_oom(struct flw_sheet *sheet, size_t event, const struct flw_trace_detail *detail,
                     uint64_t op, uint64_t live_bytes)
{
    const struct flw_owners *code = sheet->owners;
    struct flw_sheet_oom *oom = &sheet->oom;
    if (oom->count++ > 0) {
        return;
    }
    oom->event = event + 1;
    oom->op = op;
    oom->asked_bytes = sheet->trace->events[event].size_bytes;
    oom->live_bytes = live_bytes;
    oom->free_bytes = detail == NULL ? FLW_UNKNOWN : detail->free_bytes;
    oom->largest_hole_bytes = detail == NULL ? FLW_UNKNOWN : detail->largest_bytes;
    if (code->has_code && code->of_oom != FLW_OWNER_UNKNOWN) {
        flw_owners_cut_name(code, code->of_oom, oom->owner);
    }
}

/* Record the columns' times, the marks and the first out-of-memory in one walk over the events. */
static void walk_events(struct flw_sheet *sheet)
{
    const struct flw_trace *trace = sheet->trace;
    struct flw_sheet_columns *columns = &sheet->columns;
    struct flw_trace_walk walk = {0};
    uint64_t op = sheet->initial_op_count, live_bytes = 0, time_ns = 0;
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
            note_oom(sheet, i, detail, op, live_bytes);
        } else if (event->op == FLW_TRACE_MARK || event->op == FLW_TRACE_PHASE_BEGIN ||
                   event->op == FLW_TRACE_PHASE_END) {
            note_mark(sheet, event, flw_trace_name(trace, detail), op);
        }
        bool has_op = flw_program_has_op(sheet->program, i);
        for (; has_op && sheet->has_times && column < columns->count &&
               columns->first_op[column] <= op;
             column++) {
            bool is_initial = columns->first_op[column] < sheet->initial_op_count;
            columns->time_ns[column] = is_initial ? 0 : time_ns;
        }
        op += has_op;
    }
    for (; sheet->has_times && column <= columns->count; column++) {
        columns->time_ns[column] = time_ns;
    }
    for (size_t i = 0; i < sheet->mark_count; i++) {
        sheet->marks[i].end_op = flw_min(sheet->marks[i].end_op, sheet->op_count);
    }
}

/* ---- blocks ---- */

static void find_lives(struct flw_sheet *sheet)
{
    struct flw_life *lives = sheet->lives;
    const struct flw_program *program = sheet->program;
    uint64_t live_bytes = 0, peak_bytes = 0;
    for (size_t i = 0; i < program->block_count; i++) {
        lives[i] = (struct flw_life){.begin_op = UINT64_MAX, .end_op = sheet->op_count};
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
            sheet->peak_op = i;
        }
    }
}

static void count_block(struct flw_sheet *sheet, uint64_t size_bytes, const struct flw_life *life)
{
    size_t bin = flw_sheet_size_bin(size_bytes);
    sheet->size_count[bin]++;
    sheet->size_bytes[bin] += size_bytes;
    if (life->end_op == sheet->op_count) {
        return; /* never freed */
    }
    uint64_t ops = life->end_op - life->begin_op;
    size_t life_bin = flw_min(flw_log2_floor(ops), FLW_SHEET_LIFE_BINS - 1);
    sheet->life_count[life_bin]++;
    sheet->size_life[bin][life_bin]++;
    sheet->temporary_count += ops == 1;
}

/* Count the blocks by size and life, and the distinct sizes. `sizes` has room for one per block. */
static void count_blocks(struct flw_sheet *sheet, uint64_t *sizes)
{
    size_t count = 0;
    for (size_t i = 0; i < sheet->program->block_count; i++) {
        if (sheet->lives[i].begin_op != UINT64_MAX) {
            sizes[count++] = sheet->trace->blocks[i].size_bytes;
            count_block(sheet, sizes[count - 1], &sheet->lives[i]);
        }
    }
    qsort(sizes, count, sizeof *sizes, flw_compare_u64);
    for (size_t i = 0; i < count; i++) {
        sheet->distinct_size_count += i == 0 || sizes[i] != sizes[i - 1];
    }
}

/* Return size * life; 0 for a block without ops. */
static uint64_t weigh(const struct flw_sheet *sheet, size_t block)
{
    const struct flw_life *life = &sheet->lives[block];
    uint64_t weight = 0;
    bool overflows = life->begin_op != UINT64_MAX &&
                     __builtin_mul_overflow(sheet->trace->blocks[block].size_bytes,
                                            life->end_op - life->begin_op, &weight);
    return overflows ? UINT64_MAX : weight;
}

/* Select the blocks with the largest weights; of equals, the first. `weights` has room for one per block. */
static void select_blocks(struct flw_sheet *sheet, uint64_t *weights)
{
    size_t count = 0;
    for (size_t i = 0; i < sheet->program->block_count; i++) {
        weights[count] = weigh(sheet, i);
        count += weights[count] != 0;
    }
    struct flw_sheet_cut cut = flw_sheet_cut(weights, count, FLW_SHEET_RECTANGLES);
    sheet->selected = flw_host_alloc(flw_min(count, FLW_SHEET_RECTANGLES), sizeof *sheet->selected);
    for (size_t i = 0; i < sheet->program->block_count; i++) {
        uint64_t weight = weigh(sheet, i);
        if (weight != 0 && flw_sheet_cut_keeps(&cut, weight)) {
            sheet->selected[sheet->selected_count++] = (uint32_t)i;
        }
    }
    sheet->unselected_count = count - sheet->selected_count;
}

void flw_facts_gather(struct flw_sheet *sheet, const struct flw_owner_rule *rule)
{
    size_t block_count = sheet->program->block_count;
    uint64_t *room = flw_host_alloc(block_count, sizeof *room);
    sheet->owner_rule = flw_owner_rule_say(rule, sheet->trace);
    sheet->owners = flw_host_alloc(1, sizeof *sheet->owners);
    flw_owners_find(sheet->owners, sheet->trace, rule);
    sheet->has_code = sheet->owners->has_code;
    sheet->marks = flw_host_alloc(FLW_SHEET_MARKS, sizeof *sheet->marks);
    make_columns(sheet);
    walk_events(sheet);
    sheet->lives = flw_host_alloc(block_count, sizeof *sheet->lives);
    find_lives(sheet);
    count_blocks(sheet, room);
    select_blocks(sheet, room);
    flw_host_free(room);
    flw_facts_gather_owners(sheet);
    sheet->packed_bytes = sheet->policy_count == 0 /* nothing is replayed */
                              ? FLW_UNKNOWN
                              : flw_packing_measure(sheet->program, sheet->lives);
}
