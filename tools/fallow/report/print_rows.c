/* SPDX-License-Identifier: Apache-2.0 */
#include "report/print.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "trace/formats/chrome.h"
#include "trace/io/jsonwriter.h"
#include "trace/trace/phases.h"
#include "trace/trace/trace.h"

#include "common/tool_host.h"

/* ---- the columns of one trace ---- */

/* Print a comma, then the number if it is known. */
static void print_number(FILE *out, bool is_known, uint64_t number)
{
    fputc(',', out);
    if (is_known) {
        fprintf(out, "%" PRIu64, number);
    }
}

static void print_range(FILE *out, const struct flw_analysis_range *series, size_t column)
{
    print_number(out, series != NULL, series == NULL ? 0 : series[column].high);
}

/* Print a quoted cell: names of policies with settings contain commas. A cell that a spreadsheet would evaluate as a
 * formula begins with an apostrophe, the mark of a text cell. */
static void print_name(FILE *out, const char *name)
{
    bool is_formula = *name != '\0' && strchr("=+-@\t\r", *name) != NULL;
    fputs(is_formula ? "\"'" : "\"", out);
    for (const char *c = name; *c != '\0'; c++) {
        fputs(*c == '"' ? "\"\"" : (char[]){*c, '\0'}, out);
    }
    fputc('"', out);
}

/* Print the rows of a policy. Holes are measured less often: each row has the last measurement before the row's end, and
 * the op of that measurement. */
static void print_policy(const struct flw_analysis *analysis,
                         const struct flw_analysis_policy *policy, FILE *out)
{
    const struct flw_analysis_columns *columns = &analysis->columns;
    const struct flw_analysis_holes none = {.count = 0}, *holes = &none;
    size_t next = 0;
    uint64_t holes_end = 0;
    for (size_t i = 0; policy->has_series && i < columns->count; i++) {
        fprintf(out, "%" PRIu64, columns->first_op[i]);
        print_number(out, columns->time_ns != NULL,
                     columns->time_ns == NULL ? 0 : columns->time_ns[i]);
        fputc(',', out);
        print_name(out, policy->result->policy->name);
        print_range(out, policy->requested, i);
        print_range(out, policy->block, i);
        print_range(out, policy->reserved, i);
        for (; next < policy->hole_column_count &&
               flw_analysis_hole_end(analysis, policy->hole_column_count, next) <=
                   columns->first_op[i + 1];
             next++) {
            holes = &policy->holes[next];
            holes_end = flw_analysis_hole_end(analysis, policy->hole_column_count, next);
        }
        print_number(out, next != 0, holes->largest_bytes);
        print_number(out, next != 0, holes->count);
        print_number(out, next != 0, holes_end - 1);
        fputc('\n', out);
    }
}

void flw_print_csv(const struct flw_analysis *analysis, enum flw_analysis_moment moment, FILE *out)
{
    (void)moment;
    fputs("event,t_ns,policy,requested,block,reserved,largest_free,holes,holes_event\n", out);
    for (size_t i = 0; i < analysis->policy_count; i++) {
        print_policy(analysis, &analysis->policies[i], out);
    }
}

/* ---- the owners of one trace ---- */

void flw_print_csv_owners(const struct flw_analysis *analysis, enum flw_analysis_moment at,
                          FILE *out)
{
    enum {
        ALL = FLW_ANALYSIS_MOMENT_COUNT /* the whole recording */
    };
    size_t count = analysis->owners->count;
    const uint32_t *owners = analysis->owners->of_block;
    FLW_LOCAL uint64_t *numbers = flw_host_alloc(2 * (ALL + 1) * count, sizeof *numbers);
    uint64_t *bytes[ALL + 1], *counts[ALL + 1];
    (void)at;
    for (unsigned moment = 0; moment <= ALL; moment++) {
        bytes[moment] = numbers + 2 * moment * count;
        counts[moment] = bytes[moment] + count;
        if (moment < ALL && (moment != FLW_ANALYSIS_AT_OOM || analysis->oom.count != 0)) {
            flw_analysis_tally(analysis, moment, owners, bytes[moment], counts[moment]);
        }
    }
    for (size_t i = 0; i < analysis->program->op_count; i++) {
        const struct flw_op *op = &analysis->program->ops[i];
        if (op->kind == FLW_OP_ALLOC) {
            bytes[ALL][owners[op->block]] += op->size_bytes;
            counts[ALL][owners[op->block]]++;
        }
    }
    fputs("owner,peak_bytes,peak_blocks,oom_bytes,oom_blocks,end_bytes,end_blocks,survivor_bytes,"
          "survivor_blocks,all_bytes,all_blocks\n",
          out);
    for (size_t i = 0; i < count; i++) {
        if (counts[ALL][i] == 0) {
            continue;
        }
        print_name(out, flw_owners_name(analysis->owners, (uint32_t)i));
        for (unsigned moment = 0; moment <= ALL; moment++) {
            bool is_known = moment != FLW_ANALYSIS_AT_OOM || analysis->oom.count != 0;
            print_number(out, is_known, bytes[moment][i]);
            print_number(out, is_known, counts[moment][i]);
        }
        fputc('\n', out);
    }
}

/* ---- call stacks ---- */

/* Print a text of a frame; semicolons, percent signs and controls are escaped. */
static void print_escaped(const char *text, FILE *out)
{
    for (const char *c = text; *c != '\0'; c++) {
        if (*c == ';' || *c == '%' || (unsigned char)*c < 0x20 || *c == 0x7F) {
            fprintf(out, "%%%02X", (unsigned char)*c);
        } else {
            fputc(*c, out);
        }
    }
}

static void print_frame(const struct flw_stacks *stacks, uint32_t number, FILE *out)
{
    const struct flw_frame *frame = flw_stacks_frame(stacks, number);
    const char *function = flw_stacks_text(stacks, frame->function);
    const char *file = flw_stacks_text(stacks, frame->file);
    print_escaped(function[0] == '\0' ? "?" : function, out);
    if (file[0] != '\0' && strcmp(file, "??") != 0) {
        fputs(" (", out);
        print_escaped(file, out);
        fprintf(out, ":%" PRIu32 ")", frame->line);
    }
}

/* Print the stack, outermost frame first. */
static void print_stack(const struct flw_stacks *stacks, uint32_t stack, FILE *out)
{
    uint32_t frames[FLW_STACK_DEPTH_MOST];
    size_t count = 0;
    struct flw_stack_walk walk = flw_stacks_walk(stacks, stack);
    while (flw_stacks_next(&walk, &frames[count])) {
        count++;
    }
    for (size_t i = count; i > 0; i--) {
        print_frame(stacks, frames[i - 1], out);
        fputs(i > 1 ? ";" : "", out);
    }
}

void flw_print_folded(const struct flw_analysis *analysis, enum flw_analysis_moment moment,
                      FILE *out)
{
    const struct flw_trace *trace = analysis->trace;
    /* Rows: the stacks by their number, then the owners of blocks without a stack. */
    size_t stack_count = trace->stacks.lists.count + 1;
    size_t count = stack_count + analysis->owners->count;
    const struct flw_owners *owners = analysis->owners;
    FLW_LOCAL uint32_t *rows = flw_host_alloc(trace->block_count, sizeof *rows);
    FLW_LOCAL uint64_t *bytes = flw_host_alloc(count, sizeof *bytes);
    FLW_LOCAL uint64_t *counts = flw_host_alloc(count, sizeof *counts);
    for (size_t i = 0; i < trace->block_count; i++) {
        uint32_t stack = owners->stack_of_block[i];
        rows[i] = stack == 0 ? (uint32_t)stack_count + owners->of_block[i] : stack;
    }
    flw_analysis_tally(analysis, moment, rows, bytes, counts);
    for (size_t i = 1; i < count; i++) {
        if (bytes[i] == 0) {
            continue;
        }
        if (i < stack_count) {
            print_stack(&trace->stacks, (uint32_t)i, out);
        } else {
            print_escaped(flw_owners_name(analysis->owners, (uint32_t)(i - stack_count)), out);
        }
        fprintf(out, " %" PRIu64 "\n", bytes[i]);
    }
}

/* ---- slices and counters ---- */

struct chrome {
    struct flw_chrome events;
    const struct flw_analysis *analysis;
    const uint32_t *owners, *stacks; /* by block */
    const char **names;              /* by owner */
    uint64_t *live_bytes;            /* by owner */
    FILE *stack;                     /* the last printed stack, in `text` */
    char *text;
    size_t text_bytes;
};

/* Choose the short names, or full names if owners share a short one: viewers identify counters by name alone. */
static void name_owners(struct chrome *chrome)
{
    const struct flw_owners *owners = chrome->analysis->owners;
    FLW_LOCAL uint32_t *uses =
        flw_host_alloc(owners->names.count, sizeof *uses); /* by the name's number */
    chrome->names = flw_host_alloc(owners->count, sizeof *chrome->names);
    for (uint32_t i = 0; i < owners->count; i++) {
        uses[owners->list[i].brief]++;
    }
    for (uint32_t i = 0; i < owners->count; i++) {
        chrome->names[i] =
            (uses[owners->list[i].brief] > 1 ? flw_owners_name : flw_owners_short_name)(owners, i);
    }
}

/* Print an event with a number of bytes that is not of one block. */
static void print_sum(struct chrome *chrome, const char *phase, const char *name, uint64_t time_ns,
                      uint64_t bytes)
{
    flw_json_number(
        flw_chrome_begin_event(&chrome->events, phase, name, FLW_CHROME_NO_ID, 0, time_ns), "bytes",
        bytes);
    flw_chrome_end_event(&chrome->events);
}

static void begin_slice(struct chrome *chrome, uint32_t block, uint64_t time_ns)
{
    uint32_t owner = chrome->owners[block];
    uint64_t bytes = chrome->analysis->trace->blocks[block].size_bytes;
    struct flw_json_writer *out =
        flw_chrome_begin_event(&chrome->events, "b", chrome->names[owner], block, 0, time_ns);
    flw_json_number(out, "bytes", bytes);
    flw_json_text(out, "owner", flw_owners_name(chrome->analysis->owners, owner));
    if (chrome->stacks[block] != 0) {
        rewind(chrome->stack);
        print_stack(&chrome->analysis->trace->stacks, chrome->stacks[block], chrome->stack);
        if (fflush(chrome->stack) != 0) {
            flw_host_refuse(1, chrome->text_bytes);
        }
        flw_json_bytes(out, "stack", chrome->text, chrome->text_bytes);
    }
    flw_chrome_end_event(&chrome->events);
    chrome->live_bytes[owner] += bytes;
}

static void end_slice(struct chrome *chrome, uint32_t block, uint64_t time_ns)
{
    uint32_t owner = chrome->owners[block];
    flw_chrome_begin_event(&chrome->events, "e", chrome->names[owner], block, 0, time_ns);
    flw_chrome_end_event(&chrome->events);
    chrome->live_bytes[owner] -= chrome->analysis->trace->blocks[block].size_bytes;
}

static void print_event(struct chrome *chrome, const struct flw_trace_event *event,
                        const struct flw_trace_detail *detail, uint64_t time_ns)
{
    bool is_block = event->op == FLW_TRACE_ALLOC || event->op == FLW_TRACE_FREE;
    if (is_block && event->size_bytes != 0) {
        uint32_t owner = chrome->owners[event->block];
        (event->op == FLW_TRACE_ALLOC ? begin_slice : end_slice)(chrome, event->block, time_ns);
        print_sum(chrome, "C", chrome->names[owner], time_ns, chrome->live_bytes[owner]);
    } else if (event->op == FLW_TRACE_OOM) {
        print_sum(chrome, "i", "out of memory", time_ns, event->size_bytes);
    } else if (event->op == FLW_TRACE_PHASE_BEGIN || event->op == FLW_TRACE_PHASE_END) {
        flw_chrome_print_phase(&chrome->events, event, detail, time_ns);
    }
}

static void print_events(struct chrome *chrome)
{
    const struct flw_trace *trace = chrome->analysis->trace;
    struct flw_trace_walk walk = {0};
    for (size_t i = 0; i < trace->initial_count; i++) {
        if (trace->blocks[i].size_bytes != 0) {
            begin_slice(chrome, (uint32_t)i, 0);
        }
    }
    for (size_t i = 0; i < chrome->analysis->owners->count; i++) {
        if (chrome->live_bytes[i] != 0) {
            print_sum(chrome, "C", chrome->names[i], 0, chrome->live_bytes[i]);
        }
    }
    for (size_t i = 0; i < trace->event_count; i++) {
        const struct flw_trace_event *event = &trace->events[i];
        print_event(chrome, event, flw_trace_walk_detail(trace, &walk, i),
                    trace->has_times ? event->time_ns : 1000 * (i + 1));
    }
}

void flw_print_chrome(const struct flw_analysis *analysis, enum flw_analysis_moment moment,
                      FILE *out)
{
    struct chrome chrome = {.events = {.trace = analysis->trace,
                                       .out = {.file = out, .is_utf8 = true},
                                       .category = "memory"},
                            .analysis = analysis,
                            .owners = analysis->owners->of_block,
                            .stacks = analysis->owners->stack_of_block};
    struct flw_json_writer *json = &chrome.events.out;
    char blocks[sizeof analysis->title + sizeof ": blocks"];
    (void)moment;
    chrome.stack = open_memstream(&chrome.text, &chrome.text_bytes);
    if (!flw_phases_find_rows(analysis->trace, &chrome.events.phases) || chrome.stack == NULL) {
        flw_host_refuse(1, BUFSIZ);
    }
    name_owners(&chrome);
    chrome.live_bytes = flw_host_alloc(analysis->owners->count, sizeof *chrome.live_bytes);
    flw_json_begin(json, NULL, '{');
    flw_json_text(json, "displayTimeUnit", "ms");
    flw_json_begin(json, "otherData", '{');
    flw_json_text(json, "source", analysis->title);
    flw_json_text(json, "whose", analysis->owner_rule);
    flw_json_end(json, '}');
    flw_json_begin(json, "traceEvents", '[');
    flw_chrome_print_names(&chrome.events, analysis->title, "phases");
    snprintf(blocks, sizeof blocks, "%s: blocks", analysis->title);
    flw_chrome_print_name(json, "process_name", 1, 0, blocks);
    print_events(&chrome);
    fputs("\n]}\n", out);
    fclose(chrome.stack);
    free(chrome.text);
    flw_phases_finish(&chrome.events.phases);
    flw_host_free(chrome.names);
    flw_host_free(chrome.live_bytes);
}
