/* SPDX-License-Identifier: Apache-2.0 */
#include "report/facts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/check.h"
#include "base/compare.h"
#include "report/heapview.h"
#include "report/packing.h"
#include "trace/trace/trace.h"

#include "common/tool_host.h"

/* ---- columns ---- */

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

static void cut_name(char *out, const char *name)
{
    snprintf(out, FLW_SHEET_NAME_BYTES, "%.*s", FLW_SHEET_NAME_BYTES - 1, name);
}

/* End the innermost open phase of that name. */
static void end_mark(struct flw_sheet *sheet, bool *is_open, const char *name, uint64_t op)
{
    char cut[FLW_SHEET_NAME_BYTES];
    cut_name(cut, name);
    for (size_t i = sheet->mark_count; i > 0; i--) {
        if (is_open[i - 1] && strcmp(sheet->marks[i - 1].name, cut) == 0) {
            sheet->marks[i - 1].end_op = op;
            is_open[i - 1] = false;
            return;
        }
    }
}

static void note_mark(struct flw_sheet *sheet, bool *is_open, const struct flw_trace_event *event,
                      const char *name, uint64_t op)
{
    const char *said = name == NULL ? "mark" : name;
    if (event->op == FLW_TRACE_PHASE_END) {
        end_mark(sheet, is_open, said, op);
        return;
    }
    if (sheet->mark_count == FLW_SHEET_MARKS) {
        return;
    }
    is_open[sheet->mark_count] = event->op == FLW_TRACE_PHASE_BEGIN;
    struct flw_sheet_mark *mark = &sheet->marks[sheet->mark_count++];
    mark->begin_op = op;
    mark->end_op = is_open[sheet->mark_count - 1] ? sheet->op_count : op;
    cut_name(mark->name, said);
}

static bool is_mark(const struct flw_trace_event *event)
{
    return event->op == FLW_TRACE_MARK || event->op == FLW_TRACE_PHASE_BEGIN;
}

/* Record the columns' times and the marks in one walk over the events. `is_open` has room for a flag per mark. */
static void walk_events(struct flw_sheet *sheet, bool *is_open)
{
    const struct flw_trace *trace = sheet->trace;
    struct flw_sheet_columns *columns = &sheet->columns;
    struct flw_trace_walk walk = {0};
    uint64_t op = sheet->initial_op_count;
    size_t next_column = 0; /* first column without a time */
    for (size_t i = 0; i < trace->event_count; i++) {
        const struct flw_trace_event *event = &trace->events[i];
        if (is_mark(event) || event->op == FLW_TRACE_PHASE_END) {
            const struct flw_trace_detail *detail = flw_trace_walk_detail(trace, &walk, i);
            note_mark(sheet, is_open, event, flw_trace_name(trace, detail), op);
        }
        if (!flw_program_has_op(sheet->program, i)) {
            continue;
        }
        while (columns->time_ns != NULL && next_column < columns->count &&
               columns->first_op[next_column] <= op) {
            bool is_initial = columns->first_op[next_column] < sheet->initial_op_count;
            columns->time_ns[next_column++] = is_initial ? 0 : event->time_ns;
        }
        op++;
    }
    uint64_t end_ns = trace->event_count == 0 ? 0 : trace->events[trace->event_count - 1].time_ns;
    while (columns->time_ns != NULL && next_column <= columns->count) {
        columns->time_ns[next_column++] = end_ns;
    }
}

static void make_marks(struct flw_sheet *sheet)
{
    const struct flw_trace *trace = sheet->trace;
    size_t count = 0;
    for (size_t i = 0; i < trace->event_count; i++) {
        count += is_mark(&trace->events[i]);
    }
    count = flw_min(count, FLW_SHEET_MARKS);
    bool *is_open = flw_host_alloc(count, sizeof *is_open);
    sheet->marks = flw_host_alloc(count, sizeof *sheet->marks);
    walk_events(sheet, is_open);
    FLW_ASSERT(sheet->mark_count == count);
    flw_host_free(is_open);
}

/* ---- sizes and lives ---- */

/* Find the op that ends each block's life; op_count if there is none. */
static void find_ends(const struct flw_sheet *sheet, uint64_t *end_ops)
{
    const struct flw_program *program = sheet->program;
    for (size_t i = 0; i < program->block_count; i++) {
        end_ops[i] = sheet->op_count;
    }
    for (size_t i = 0; i < program->op_count; i++) {
        const struct flw_op *op = &program->ops[i];
        if (op->kind == FLW_OP_FREE || op->kind == FLW_OP_FREE_ELSEWHERE) {
            end_ops[op->block] = i;
        }
    }
}

static void count_block(struct flw_sheet *sheet, const struct flw_op *op, uint64_t life_ops)
{
    size_t bin = flw_sheet_size_bin(op->size_bytes);
    sheet->size_count[bin]++;
    sheet->size_bytes[bin] += op->size_bytes;
    if (life_ops == 0) {
        return; /* never freed: the life is unknown */
    }
    size_t life = flw_min(flw_log2_floor(life_ops), FLW_SHEET_LIFE_BINS - 1);
    sheet->life_count[life]++;
    sheet->size_life[bin][life]++;
    sheet->temporary_count += life_ops == 1;
}

/* Count the distinct sizes. `sizes` has room for one per block. */
static void count_distinct(struct flw_sheet *sheet, uint64_t *sizes)
{
    const struct flw_program *program = sheet->program;
    size_t count = 0;
    for (size_t i = 0; i < program->op_count; i++) {
        if (program->ops[i].kind == FLW_OP_ALLOC) {
            sizes[count++] = program->ops[i].size_bytes;
        }
    }
    qsort(sizes, count, sizeof *sizes, flw_compare_u64);
    for (size_t i = 0; i < count; i++) {
        sheet->distinct_size_count += i == 0 || sizes[i] != sizes[i - 1];
    }
}

static uint64_t weigh(const struct flw_op *op, uint64_t begin_op, uint64_t end_op)
{
    uint64_t weight = 0;
    bool overflows = __builtin_mul_overflow(op->size_bytes, end_op - begin_op, &weight);
    return overflows ? UINT64_MAX : weight;
}

/* Select the blocks with the largest size * life; of equals, the first. `weights` has room for one per block. */
static void select_blocks(const struct flw_sheet *sheet, uint64_t *weights, struct flw_facts *facts)
{
    const uint64_t *end_ops = facts->end_ops;
    const struct flw_program *program = sheet->program;
    size_t count = 0;
    for (size_t i = 0; i < program->op_count; i++) {
        const struct flw_op *op = &program->ops[i];
        if (op->kind == FLW_OP_ALLOC) {
            weights[count++] = weigh(op, i, end_ops[op->block]);
        }
    }
    size_t kept_count = flw_min(count, FLW_SHEET_RECTANGLES);
    qsort(weights, count, sizeof *weights, flw_compare_u64);
    uint64_t least = count > kept_count ? weights[count - kept_count] : 0;
    size_t tie_count = kept_count;
    for (size_t i = 0; i < count; i++) {
        tie_count -= weights[i] > least;
    }
    facts->selected = flw_host_alloc(kept_count, sizeof *facts->selected);
    facts->left_out_count = count - kept_count;
    for (size_t i = 0; i < program->op_count; i++) {
        const struct flw_op *op = &program->ops[i];
        uint64_t weight = op->kind == FLW_OP_ALLOC ? weigh(op, i, end_ops[op->block]) : 0;
        if (op->kind != FLW_OP_ALLOC || weight < least || (weight == least && tie_count == 0)) {
            continue;
        }
        tie_count -= weight == least;
        facts->selected[facts->selected_count++] = (struct flw_fact_block){
            .begin_op = i, .end_op = end_ops[op->block], .block = op->block};
    }
}

static void count_blocks(struct flw_sheet *sheet, const struct flw_facts *facts)
{
    const uint64_t *end_ops = facts->end_ops;
    const struct flw_program *program = sheet->program;
    uint64_t live_bytes = 0;
    uint64_t peak_bytes = 0;
    for (size_t i = 0; i < program->op_count; i++) {
        const struct flw_op *op = &program->ops[i];
        if (op->kind == FLW_OP_ALLOC) {
            uint64_t end_op = end_ops[op->block];
            count_block(sheet, op, end_op == sheet->op_count ? 0 : end_op - i);
            live_bytes += op->size_bytes;
            if (live_bytes > peak_bytes) {
                peak_bytes = live_bytes;
                sheet->peak_op = i;
            }
        } else if (op->kind == FLW_OP_FREE || op->kind == FLW_OP_FREE_ELSEWHERE) {
            live_bytes -= op->size_bytes;
        }
    }
}

/* ---- the out-of-memory */

static void note_oom(struct flw_sheet *sheet, const struct flw_owners *code, size_t event,
                     uint64_t live_bytes)
{
    const struct flw_trace *trace = sheet->trace;
    struct flw_trace_walk walk = {0};
    struct flw_sheet_oom *oom = &sheet->oom;
    if (oom->count++ > 0) {
        return;
    }
    const struct flw_trace_detail *detail = flw_trace_walk_detail(trace, &walk, event);
    oom->event = event + 1;
    oom->asked_bytes = trace->events[event].size_bytes;
    oom->live_bytes = live_bytes;
    oom->free_bytes = detail == NULL ? FLW_UNKNOWN : detail->free_bytes;
    oom->largest_hole_bytes = detail == NULL ? FLW_UNKNOWN : detail->largest_bytes;
    oom->op = sheet->initial_op_count;
    for (size_t i = 0; i < event; i++) {
        oom->op += flw_program_has_op(sheet->program, i);
    }
    uint32_t owner = code->of_record[trace->initial_count + event];
    if (code->has_code && owner != FLW_OWNER_UNKNOWN) {
        flw_owners_cut_name(code, owner, oom->owner);
    }
}

static void gather_oom(struct flw_sheet *sheet, const struct flw_owners *code)
{
    const struct flw_trace *trace = sheet->trace;
    uint64_t live_bytes = 0;
    for (size_t i = 0; i < trace->initial_count; i++) {
        live_bytes += trace->blocks[i].size_bytes;
    }
    for (size_t i = 0; i < trace->event_count; i++) {
        const struct flw_trace_event *event = &trace->events[i];
        if (event->op == FLW_TRACE_ALLOC) {
            live_bytes += event->size_bytes;
        } else if (event->op == FLW_TRACE_FREE) {
            live_bytes -= event->size_bytes;
        } else if (event->op == FLW_TRACE_OOM) {
            note_oom(sheet, code, i, live_bytes);
        }
    }
}

void flw_facts_gather(struct flw_sheet *sheet, const struct flw_owner_rule *rule,
                      struct flw_facts *out)
{
    size_t block_count = sheet->program->block_count;
    uint64_t *room = flw_host_alloc(block_count, sizeof *room);
    *out = (struct flw_facts){.end_ops = flw_host_alloc(block_count, sizeof *out->end_ops)};
    make_columns(sheet);
    make_marks(sheet);
    find_ends(sheet, out->end_ops);
    count_blocks(sheet, out);
    count_distinct(sheet, room);
    select_blocks(sheet, room, out);
    sheet->owner_rule = flw_owner_rule_say(rule, sheet->trace);
    sheet->owners = flw_host_alloc(1, sizeof *sheet->owners);
    flw_owners_find(sheet->owners, sheet->trace, rule);
    sheet->has_code = sheet->owners->has_code;
    flw_facts_gather_owners(sheet, out, sheet->owners);
    gather_oom(sheet, sheet->owners);
    flw_facts_gather_holdings(sheet, out, sheet->owners);
    sheet->packed_bytes = sheet->policy_count == 0 /* nothing is replayed */
                              ? FLW_UNKNOWN
                              : flw_packing_measure(sheet->program, out->end_ops);
    flw_host_free(room);
}

void flw_facts_finish(struct flw_facts *facts)
{
    flw_host_free(facts->end_ops);
    flw_host_free(facts->selected);
    *facts = (struct flw_facts){0};
}
