/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: recomputing a trace's totals and invariants.
 * Does not: repair anything.
 */
#include "trace/trace/measure.h"

#include <stdlib.h>
#include <string.h>

/* Each check returns NULL or the violated rule. */

/* ---- names, details, contexts ---- */

bool flw_trace_op_needs_name(uint8_t op)
{
    return op == FLW_TRACE_PHASE_BEGIN || op == FLW_TRACE_PHASE_END || op == FLW_TRACE_CONFIG;
}

static bool takes_name(uint8_t op)
{
    return op == FLW_TRACE_MARK || flw_trace_op_needs_name(op);
}

static bool needs_detail(uint8_t op)
{
    return flw_trace_op_needs_name(op) || op == FLW_TRACE_SYNC_WAIT || op == FLW_TRACE_DROP;
}

static const char *check_detail(const struct flw_trace *trace,
                                const struct flw_trace_detail *detail)
{
    uint8_t op = trace->events[detail->event].op;
    bool has_name = detail->name != FLW_TRACE_NO_NAME;
    bool has_bytes =
        detail->free_bytes != FLW_TRACE_UNKNOWN || detail->largest_bytes != FLW_TRACE_UNKNOWN;
    bool has_stream = detail->other_stream != 0;
    if (has_name && (detail->name >= trace->names.count || !takes_name(op))) {
        return "an event has a name that is not in the list, or that it cannot have";
    }
    if (!has_name && flw_trace_op_needs_name(op)) {
        return "a phase or a setting has no name";
    }
    if (has_bytes && op != FLW_TRACE_OOM) {
        return "an event that is not an out-of-memory has free bytes";
    }
    if ((detail->lost_count > 0) != (op == FLW_TRACE_DROP)) {
        return "an event must count missing events and does not, or must not and does";
    }
    if (op == FLW_TRACE_SYNC_WAIT ? detail->other_stream >= trace->stream_count : has_stream) {
        return "an event names another stream that is not in the list, or that it cannot have";
    }
    return has_name || has_bytes || needs_detail(op) ? NULL : "a detail is empty";
}

static const char *check_details(const struct flw_trace *trace)
{
    size_t next = 0;
    const char *wrong = NULL;
    for (size_t i = 0; wrong == NULL && i < trace->event_count; i++) {
        if (next < trace->detail_count && trace->details[next].event == i) {
            wrong = check_detail(trace, &trace->details[next++]);
        } else if (needs_detail(trace->events[i].op)) {
            wrong = "an event lacks its detail";
        }
    }
    return wrong != NULL                 ? wrong
           : next == trace->detail_count ? NULL
                                         : "the details are not in the order of events";
}

static const char *check_contexts(const struct flw_trace *trace)
{
    struct flw_trace_context last = {0};
    for (size_t i = 0; i < trace->context_count; i++) {
        const struct flw_trace_context *context = &trace->contexts[i];
        if ((i > 0 && context->record <= last.record) ||
            context->record >= trace->initial_count + trace->event_count) {
            return "the contexts are not in the order of records";
        }
        if (flw_trace_context_is(context, &last)) {
            return "a context repeats the previous one";
        }
        last = *context;
    }
    return NULL;
}

static bool has_text(const struct flw_trace *trace, uint32_t text)
{
    return text <= trace->stacks.texts.count;
}

static const char *check_remarks(const struct flw_trace *trace)
{
    struct flw_trace_remark last = {.record = trace->initial_count};
    for (size_t i = 0; i < trace->remark_count; i++) {
        const struct flw_trace_remark *remark = &trace->remarks[i];
        if (remark->record < last.record || (i > 0 && remark->record == last.record) ||
            remark->record >= trace->initial_count + trace->event_count) {
            return "the remarks are not in the order of events";
        }
        if (flw_trace_remark_is(remark, &last)) {
            return "a remark repeats the previous one";
        }
        if (!has_text(trace, remark->compile_context) || !has_text(trace, remark->user_metadata)) {
            return "a remark names a text that does not exist";
        }
        last = *remark;
    }
    return NULL;
}

/* Check names, details, contexts and remarks. Requires valid events. */
static const char *check_sides(const struct flw_trace *trace)
{
    for (uint32_t i = 0; i < trace->names.count; i++) {
        const char *name = flw_intern_text(&trace->names, i);
        if (!flw_trace_is_name(name, strlen(name))) {
            return "a name is empty, too long or not printable";
        }
    }
    const char *wrong = check_details(trace);
    if (wrong == NULL) {
        wrong = check_contexts(trace);
    }
    return wrong != NULL ? wrong : check_remarks(trace);
}

/* ---- events ---- */

/* The stage of a block's life. */
enum stage {
    STAGE_UNBORN,
    STAGE_LIVE,
    STAGE_FREED,
    STAGE_DONE
};

static const char *check_event(const struct flw_trace *trace, const struct flw_trace_event *event)
{
    if (event->op >= FLW_TRACE_OP_COUNT) {
        return "an event has an unknown kind";
    }
    if (!flw_trace_op_has_stream(event->op)) {
        return event->stream == 0 && event->size_bytes == 0 && event->address == 0 &&
                       event->block == UINT32_MAX
                   ? NULL
                   : "an event has a stream, a size, an address or a block that it cannot have";
    }
    if (event->stream >= trace->stream_count) {
        return "an event names a stream that is not in the list";
    }
    if (!trace->has_addresses && event->address != 0) {
        return "an event has an address in a trace without";
    }
    if (!flw_trace_op_has_block(event->op)) {
        return event->block == UINT32_MAX ? NULL : "an event names a block that it cannot concern";
    }
    if (event->block >= trace->block_count) {
        return "an event names a block that does not exist";
    }
    const struct flw_trace_block *block = &trace->blocks[event->block];
    if (event->address != block->address || event->size_bytes != block->size_bytes) {
        return "an event has another address or size than its block";
    }
    return NULL;
}

/* Move a block to the next stage. After a violation the check ends, so the stage is meaningless. */
static const char *step_life(uint8_t *stage, uint8_t op)
{
    switch (op) {
    case FLW_TRACE_ALLOC:
        return (*stage)++ == STAGE_UNBORN ? NULL : "a block is allocated twice";
    case FLW_TRACE_FREE:
        return (*stage)++ == STAGE_LIVE ? NULL : "a block is freed that is not allocated";
    case FLW_TRACE_FREE_DONE:
        return (*stage)++ == STAGE_FREED ? NULL : "a free is completed that was not requested";
    default:
        return *stage == STAGE_LIVE ? NULL : "a stream uses a block that is not allocated";
    }
}

/* Check the rules about single events and about the order of a block's events. */
static const char *check_order(const struct flw_trace *trace, uint8_t *stages)
{
    uint64_t time_ns = 0;
    size_t next_block = trace->initial_count;
    for (size_t i = 0; i < trace->event_count; i++) {
        const struct flw_trace_event *event = &trace->events[i];
        const char *wrong = check_event(trace, event);
        if (wrong == NULL && flw_trace_op_has_block(event->op)) {
            wrong = step_life(&stages[event->block], event->op);
        }
        if (wrong != NULL) {
            return wrong;
        }
        if (event->op == FLW_TRACE_ALLOC && event->block != next_block++) {
            return "blocks are not numbered in order";
        }
        if (event->time_ns < time_ns || (!trace->has_times && event->time_ns != 0)) {
            return "times fall, or are given in a trace without";
        }
        time_ns = event->time_ns;
    }
    return next_block == trace->block_count ? NULL : "a block is never allocated";
}

static bool add(uint64_t *total, uint64_t *peak, uint64_t bytes)
{
    if (__builtin_add_overflow(*total, bytes, total)) {
        return false;
    }
    *peak = *total > *peak ? *total : *peak;
    return true;
}

/* Add up the totals of a trace, of which all totals are 0. Recordings that lost their first events may release more
 * than they reserve: 0 is the least reserved. */
static const char *add_up(struct flw_trace *trace, const uint8_t *stages)
{
    uint64_t live_bytes = 0, reserved_bytes = 0;
    uint64_t *peak_live = &trace->peak_requested_bytes;
    uint64_t *peak_reserved = &trace->recorded_peak_reserved_bytes;
    bool fits = true;
    for (size_t i = 0; fits && i < trace->initial_count; i++) {
        fits = add(&live_bytes, peak_live, trace->blocks[i].size_bytes);
    }
    for (size_t i = 0; fits && i < trace->segment_count; i++) {
        fits = add(&reserved_bytes, peak_reserved, trace->segments[i].size_bytes);
    }
    trace->recorded_initial_reserved_bytes = reserved_bytes;
    for (size_t i = 0; fits && i < trace->event_count; i++) {
        const struct flw_trace_event *event = &trace->events[i];
        uint64_t bytes = event->size_bytes;
        switch (event->op) {
        case FLW_TRACE_ALLOC:
            trace->alloc_count++;
            fits = add(&live_bytes, peak_live, bytes);
            break;
        case FLW_TRACE_FREE:
            live_bytes -= stages[event->block] == STAGE_DONE ? 0 : bytes;
            break;
        case FLW_TRACE_FREE_DONE:
            live_bytes -= bytes;
            break;
        case FLW_TRACE_SEGMENT_ALLOC:
        case FLW_TRACE_SEGMENT_MAP:
            trace->recorded_segment_calls++;
            fits = add(&reserved_bytes, peak_reserved, bytes);
            break;
        case FLW_TRACE_SEGMENT_FREE:
        case FLW_TRACE_SEGMENT_UNMAP:
            trace->recorded_segment_calls++;
            reserved_bytes -= bytes < reserved_bytes ? bytes : reserved_bytes;
            break;
        default:
            break;
        }
    }
    return fits ? NULL : "its sizes add up to more than 64 bits hold";
}

static const char *check_initial(const struct flw_trace *trace)
{
    if (trace->initial_count > trace->block_count) {
        return "there are fewer blocks than initial ones";
    }
    for (size_t i = 0; i < trace->block_count; i++) {
        const struct flw_trace_block *block = &trace->blocks[i];
        if (block->stream >= trace->stream_count) {
            return "a block names a stream that is not in the list";
        }
        if (!trace->has_addresses && block->address != 0) {
            return "a block has an address in a trace without";
        }
        if (i > 0 && i < trace->initial_count && block->address < block[-1].address) {
            return "the initial blocks are not in address order";
        }
    }
    for (size_t i = 0; i < trace->segment_count; i++) {
        if (trace->segments[i].stream >= trace->stream_count) {
            return "a segment names a stream that is not in the list";
        }
    }
    return NULL;
}

/* Check the rules, and compute the totals of `trace` in *out. The caller frees *out_stages, which is NULL if memory runs
 * out. */
static const char *compute(const struct flw_trace *trace, struct flw_trace *out,
                           uint8_t **out_stages)
{
    uint8_t *stages = calloc(trace->block_count + 1, 1);
    *out_stages = stages;
    if (stages == NULL) {
        return "there is no memory to check it";
    }
    memcpy(out, trace, sizeof *out);
    out->alloc_count = out->peak_requested_bytes = out->recorded_peak_reserved_bytes = 0;
    out->recorded_segment_calls = 0;
    const char *wrong = check_initial(trace);
    for (size_t i = 0; wrong == NULL && i < trace->initial_count; i++) {
        stages[i] = STAGE_LIVE;
    }
    wrong = wrong != NULL ? wrong : check_order(trace, stages);
    wrong = wrong != NULL ? wrong : check_sides(trace);
    wrong = wrong != NULL ? wrong : add_up(out, stages);
    if (!trace->has_segments) {
        out->recorded_peak_reserved_bytes = 0;
    }
    return wrong;
}

const char *flw_measure_trace(struct flw_trace *trace)
{
    uint8_t *stages;
    struct flw_trace measured;
    const char *wrong = compute(trace, &measured, &stages);
    if (wrong == NULL) {
        *trace = measured;
        for (size_t i = 0; i < trace->block_count; i++) {
            trace->blocks[i].freed = stages[i] >= STAGE_FREED;
        }
    }
    free(stages);
    return wrong;
}

static bool stack_exists(const struct flw_trace *trace, uint32_t stack)
{
    return stack == 0 || stack < trace->stacks.lists.count;
}

static bool stacks_exist(const struct flw_trace *trace)
{
    bool exist = flw_stacks_are_valid(&trace->stacks) &&
                 trace->record_stack_count <= trace->initial_count + trace->event_count;
    for (size_t i = 0; exist && i < trace->segment_count; i++) {
        exist = stack_exists(trace, trace->segments[i].stack);
    }
    for (size_t i = 0; exist && i < trace->record_stack_count; i++) {
        exist = stack_exists(trace, trace->record_stacks[i]);
    }
    return exist;
}

bool flw_trace_is_valid(const struct flw_trace *trace)
{
    uint8_t *stages = NULL;
    struct flw_trace measured;
    bool is_valid = trace != NULL && trace->source != NULL && trace->format != NULL &&
                    compute(trace, &measured, &stages) == NULL;
    for (size_t i = 0; is_valid && i < trace->block_count; i++) {
        is_valid = trace->blocks[i].freed == (stages[i] >= STAGE_FREED);
    }
    free(stages);
    return is_valid && stacks_exist(trace) && memcmp(trace, &measured, sizeof measured) == 0 &&
           (trace->has_segments ||
            (trace->recorded_segment_calls == 0 && trace->segment_count == 0));
}
