/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: interpreting the notes, dictionaries and records of a trace file.
 * Does not: trust the contents because a checksum is right.
 */
#include "trace/formats/ftracereader.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "record/array.h"
#include "trace/trace/measure.h"

#define NS_PER_SECOND UINT64_C(1000000000)

enum stage {
    STAGE_LIVE,
    STAGE_FREED,
    STAGE_DONE
};

/* ---- notes, streams, names ---- */

static bool take_gaps(struct flw_ftracereader *r, const char *line)
{
    struct flw_trace *trace = r->build.trace;
    char *end = NULL;
    trace->unknown_free_count = strtoull(line + 5, &end, 10);
    trace->lost_free_count = strtoull(end, &end, 10);
    return *end == '\0' || flw_ftracereader_stop(r, "\"gaps\" without two numbers");
}

/* Read "begin_ns" from a note: a program that did not support this line of the text form kept the line as a note. */
static void take_begin(struct flw_ftracereader *r, const char *line)
{
    char *end = NULL;
    uint64_t begin_ns = strtoull(line + 9, &end, 10);
    if (r->build.trace->has_times && r->build.trace->begin_ns == 0 && *end == '\0') {
        r->build.trace->begin_ns = begin_ns;
    }
}

bool flw_ftracereader_take_notes(struct flw_ftracereader *r, const char *at, const char *end)
{
    while (at < end) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        char line[FLW_INPUT_FILL_BYTES];
        if (newline == NULL || newline - at >= (ptrdiff_t)sizeof(line)) {
            return flw_ftracereader_stop(r, "a note's line does not end");
        }
        size_t bytes = (size_t)(newline - at);
        memcpy(line, at, bytes);
        line[bytes] = '\0';
        if (strncmp(line, "gaps ", 5) == 0) {
            if (!take_gaps(r, line)) {
                return false;
            }
        } else if (strncmp(line, "begin_ns ", 9) == 0) {
            take_begin(r, line);
        } else if (!flw_notes_is_line(at, newline)) {
            return flw_ftracereader_stop(r, "a note is not \"key value\" or \"# text\"");
        } else if (!flw_notes_add(&r->notes, at, newline)) {
            return flw_ftracereader_fail_memory(r);
        }
        at = newline + 1;
    }
    return true;
}

static bool read_stream(struct flw_ftracereader *r, struct flw_wire_in body)
{
    size_t next = r->build.trace->stream_count;
    uint64_t number, handle;
    uint16_t stream;
    if (!flw_wire_get_varint(&body, &number) || !flw_wire_get_varint(&body, &handle)) {
        return flw_ftracereader_stop(r, "a stream without a handle");
    }
    if (number != next) {
        return number < next && r->build.trace->streams[number] == handle
                   ? true
                   : flw_ftracereader_stop(r, "stream %" PRIu64 " where %zu is next", number, next);
    }
    if (next >= FLW_BUILD_STREAMS_MAX) {
        return flw_ftracereader_stop(r, "more than %d streams", FLW_BUILD_STREAMS_MAX);
    }
    if (!flw_build_add_stream(&r->build, handle, &stream)) {
        return flw_ftracereader_fail_memory(r);
    }
    return stream == next || flw_ftracereader_stop(r, "stream %zu has the handle of another", next);
}

static bool read_name(struct flw_ftracereader *r, struct flw_wire_in body)
{
    uint64_t number;
    if (!flw_wire_get_varint(&body, &number) || number > r->name_count) {
        return flw_ftracereader_stop(r, "a name is not numbered %zu", r->name_count);
    }
    size_t bytes = (size_t)(body.end - body.at);
    if (!flw_trace_is_name((const char *)body.at, bytes)) {
        return flw_ftracereader_stop(r, "a name is empty, too long or not printable");
    }
    if (!FLW_ARRAY_FITS(r->names, r->name_count, r->name_room)) {
        return flw_ftracereader_fail_memory(r);
    }
    if (!flw_build_add_name(&r->build, (const char *)body.at, bytes, &r->names[number])) {
        return flw_ftracereader_fail_memory(r);
    }
    r->name_count += number == r->name_count;
    return true;
}

static bool set_stack(struct flw_ftracereader *r, size_t record)
{
    return flw_build_set_stack(&r->build, record, r->stack) || flw_ftracereader_fail_memory(r);
}

/* ---- dictionaries ---- */

static bool read_entry(struct flw_ftracereader *r, uint64_t kind, struct flw_wire_in body)
{
    switch (kind) {
    case FLW_FTRACE_STREAM:
        return read_stream(r, body);
    case FLW_FTRACE_NAME:
        return read_name(r, body);
    case FLW_FTRACE_TEXT:
        return flw_ftracereader_take_text(r, body);
    case FLW_FTRACE_FRAME:
        return flw_ftracereader_take_frame(r, body);
    case FLW_FTRACE_STACK:
        return flw_ftracereader_take_stack(r, body);
    default:
        return true; /* of a later minor version */
    }
}

bool flw_ftracereader_take_dictionary(struct flw_ftracereader *r, struct flw_wire_in in)
{
    r->stacks.before_count = 0;
    for (uint32_t i = 0; i < r->frame.record_count; i++) {
        uint64_t kind, bytes;
        if (!flw_wire_get_varint(&in, &kind) || !flw_wire_get_varint(&in, &bytes) ||
            bytes > (uint64_t)(in.end - in.at)) {
            return flw_ftracereader_stop(r, "entry %u of a dictionary goes beyond it", (unsigned)i);
        }
        struct flw_wire_in body = {in.at, in.at + bytes};
        in.at = body.end;
        if (!read_entry(r, kind, body)) {
            return false;
        }
    }
    return in.at == in.end ||
           flw_ftracereader_stop(r, "a dictionary has more entries than its header says");
}

/* ---- blocks ---- */

/* Find the number of a block in the trace. Returns false if the block was lost. */
static bool find_block(const struct flw_ftracereader *r, uint64_t number, uint32_t *out)
{
    uint64_t lost = 0;
    for (size_t i = r->hole_count; i-- > 0;) {
        const struct flw_ftracereader_hole *hole = &r->holes[i];
        if (number >= hole->end) {
            lost = hole->lost_before + (hole->end - hole->begin);
            break;
        }
        if (number >= hole->begin) {
            return false;
        }
    }
    *out = (uint32_t)(number - lost);
    return true;
}

static bool add_block(struct flw_ftracereader *r, const struct flw_record *record)
{
    struct flw_trace *trace = r->build.trace;
    struct flw_trace_block block = {.address = record->address,
                                    .size_bytes = record->size_bytes,
                                    .stream = (uint16_t)record->stream};
    size_t number = trace->block_count;
    if (number >= UINT32_MAX) {
        return flw_ftracereader_stop(r, "more than 2^32 blocks");
    }
    if (!trace->has_addresses && block.address != 0) {
        return flw_ftracereader_stop(r, "an address, but the header says there are none");
    }
    if (!FLW_ARRAY_FITS(r->stages, number, r->stage_room)) {
        return flw_ftracereader_fail_memory(r);
    }
    r->stages[number] = STAGE_LIVE;
    r->block_count++;
    return flw_build_add_block(&r->build, &block) || flw_ftracereader_fail_memory(r);
}

/* Find the event that a free of a block becomes. *out_op FLW_TRACE_OP_COUNT: leave out the free. */
static bool step_block(struct flw_ftracereader *r, const struct flw_record *record,
                       uint32_t *out_block, uint8_t *out_op)
{
    uint8_t op = (uint8_t)record->op;
    *out_op = FLW_TRACE_OP_COUNT;
    if (!find_block(r, record->block, out_block)) {
        r->build.trace->unknown_free_count += op != FLW_TRACE_USE && op != FLW_TRACE_FREE_DONE;
        return true;
    }
    uint8_t *stage = &r->stages[*out_block];
    if (op == FLW_TRACE_FREE_DONE && *stage == STAGE_LIVE && r->hole_count > 0) {
        op = FLW_TRACE_FREE; /* the request was lost with a chunk, so this event counts as both */
    }
    if (*stage != (op == FLW_TRACE_FREE_DONE ? STAGE_FREED : STAGE_LIVE)) {
        return flw_ftracereader_stop(r, "event %" PRIu64 ": block %" PRIu64 " is %s",
                                     r->event_count, record->block,
                                     *stage == STAGE_LIVE ? "not freed yet" : "already freed");
    }
    *stage = op == FLW_TRACE_FREE_DONE           ? STAGE_DONE
             : record->op == FLW_TRACE_FREE_DONE ? STAGE_DONE
             : op == FLW_TRACE_FREE              ? STAGE_FREED
                                                 : *stage;
    *out_op = op;
    return true;
}

/* ---- events ---- */

static bool get_time(struct flw_ftracereader *r, uint64_t steps, uint64_t *out_ns)
{
    uint64_t ticks;
    if (__builtin_mul_overflow(steps, (uint64_t)r->frame.time_scale, &ticks)) {
        return flw_ftracereader_stop(r, "event %" PRIu64 " is centuries after the first",
                                     r->event_count);
    }
    if (r->file.ticks_per_second != NS_PER_SECOND) {
        __extension__ unsigned __int128 wide =
            (unsigned __int128)ticks * NS_PER_SECOND / r->file.ticks_per_second;
        ticks = wide > UINT64_MAX ? UINT64_MAX : (uint64_t)wide;
    }
    if (__builtin_add_overflow(r->frame.base_ns, ticks, out_ns)) {
        return flw_ftracereader_stop(r, "event %" PRIu64 " is centuries after the first",
                                     r->event_count);
    }
    if (*out_ns < r->time_ns && r->file.ticks_per_second != NS_PER_SECOND) {
        *out_ns = r->time_ns; /* clocks restart in each chunk */
    }
    if (*out_ns < r->time_ns || (*out_ns != 0 && !r->build.trace->has_times)) {
        return flw_ftracereader_stop(
            r, "event %" PRIu64 ": time falls, or is given in a trace without", r->event_count);
    }
    r->time_ns = *out_ns;
    return true;
}

static bool add_context(struct flw_ftracereader *r)
{
    struct flw_trace *trace = r->build.trace;
    r->context.record = trace->initial_count + trace->event_count;
    return flw_build_add_context(&r->build, &r->context) || flw_ftracereader_fail_memory(r);
}

static bool has_detail(const struct flw_record *record)
{
    return record->name != FLW_TRACE_NO_NAME || record->free_bytes != FLW_TRACE_UNKNOWN ||
           record->largest_bytes != FLW_TRACE_UNKNOWN || record->lost_count != 0 ||
           flw_record_trace_op(record->op) == FLW_TRACE_SYNC_WAIT;
}

static bool add_detail(struct flw_ftracereader *r, const struct flw_record *record)
{
    struct flw_trace_detail detail = {
        .free_bytes = record->free_bytes,
        .largest_bytes = record->largest_bytes,
        .lost_count = record->lost_count,
        .name = record->name == FLW_TRACE_NO_NAME ? FLW_TRACE_NO_NAME : r->names[record->name],
        .other_stream = (uint16_t)record->other_stream};
    return flw_build_add_detail(&r->build, detail) || flw_ftracereader_fail_memory(r);
}

/* Check conditions that the codec does not. */
static bool check_event(struct flw_ftracereader *r, const struct flw_record *record, uint8_t op)
{
    const struct flw_trace *trace = r->build.trace;
    bool is_segment = op >= FLW_TRACE_SEGMENT_ALLOC && op <= FLW_TRACE_SEGMENT_UNMAP;
    if ((flw_trace_op_has_stream(op) && record->stream >= trace->stream_count) ||
        (op == FLW_TRACE_SYNC_WAIT && record->other_stream >= trace->stream_count)) {
        return flw_ftracereader_stop(
            r, "event %" PRIu64 " names a stream that is not in the dictionary", r->event_count);
    }
    if (record->name != FLW_TRACE_NO_NAME ? record->name >= r->name_count
                                          : flw_trace_op_needs_name(op)) {
        return flw_ftracereader_stop(
            r, "event %" PRIu64 " has a name that is not in the dictionary", r->event_count);
    }
    if (is_segment && !trace->has_segments) {
        return flw_ftracereader_stop(r, "a segment, but the header says there are none");
    }
    if (is_segment && !trace->has_addresses && record->address != 0) {
        return flw_ftracereader_stop(r, "an address, but the header says there are none");
    }
    return op != FLW_TRACE_DROP || record->lost_count > 0 ||
           flw_ftracereader_stop(r, "event %" PRIu64 ": no event is missing", r->event_count);
}

/* Make the trace's event of a record. Returns false also if there is none; then *out_is_left_out. */
static bool make_event(struct flw_ftracereader *r, const struct flw_record *record,
                       struct flw_trace_event *event, bool *out_is_left_out)
{
    uint8_t op = flw_record_trace_op(record->op);
    *event = (struct flw_trace_event){.op = op, .block = UINT32_MAX};
    *out_is_left_out = op == FLW_TRACE_OP_COUNT;
    if (!get_time(r, record->time, &event->time_ns) || *out_is_left_out) {
        return *out_is_left_out;
    }
    if (!check_event(r, record, op)) {
        return false;
    }
    if (flw_trace_op_has_stream(op)) {
        event->stream = (uint16_t)record->stream;
    }
    if (!flw_trace_op_has_block(op)) {
        event->size_bytes = record->size_bytes;
        event->address = op <= FLW_TRACE_SEGMENT_UNMAP ? record->address : 0;
        return true;
    }
    if (op == FLW_TRACE_ALLOC) {
        event->block = (uint32_t)r->build.trace->block_count;
        if (!add_block(r, record)) {
            return false;
        }
    } else {
        if (!step_block(r, record, &event->block, &event->op)) {
            return false;
        }
        *out_is_left_out = event->op == FLW_TRACE_OP_COUNT;
        if (*out_is_left_out) {
            return true;
        }
    }
    event->address = r->build.trace->blocks[event->block].address;
    event->size_bytes = r->build.trace->blocks[event->block].size_bytes;
    return true;
}

static bool add_event(struct flw_ftracereader *r, const struct flw_record *record)
{
    struct flw_trace_event event;
    bool is_left_out;
    if (!make_event(r, record, &event, &is_left_out)) {
        return false;
    }
    r->event_count++;
    if (is_left_out) {
        return true;
    }
    if (!add_context(r)) {
        return false;
    }
    size_t number = r->build.trace->initial_count + r->build.trace->event_count;
    if (!flw_build_add_event(&r->build, &event)) {
        return flw_ftracereader_fail_memory(r);
    }
    r->remark.record = number;
    if (!flw_build_add_remark(&r->build, &r->remark)) {
        return flw_ftracereader_fail_memory(r);
    }
    if (!set_stack(r, number)) {
        return false;
    }
    return !has_detail(record) || add_detail(r, record);
}

/* ---- the start ---- */

static bool add_initial_segment(struct flw_ftracereader *r, const struct flw_record *record)
{
    struct flw_trace_segment segment = {
        .address = record->address,
        .size_bytes = record->size_bytes,
        .stream = (uint16_t)record->stream,
        .is_large = record->is_large,
        .is_expandable = record->is_expandable,
        .pool = record->pool,
        .stack = r->stack,
    };
    if (!r->build.trace->has_segments || (!r->build.trace->has_addresses && segment.address != 0)) {
        return flw_ftracereader_stop(r,
                                     "a segment or an address, but the header says there are none");
    }
    return flw_build_add_segment(&r->build, &segment) || flw_ftracereader_fail_memory(r);
}

static bool add_initial(struct flw_ftracereader *r, const struct flw_record *record)
{
    struct flw_trace *trace = r->build.trace;
    if (record->stream >= trace->stream_count) {
        return flw_ftracereader_stop(
            r, "what was there at the start is on a stream that is not in the dictionary");
    }
    if (record->op == FLW_RECORD_SEGMENT) {
        return add_initial_segment(r, record);
    }
    if (trace->block_count > 0 && record->address < trace->blocks[trace->block_count - 1].address) {
        return flw_ftracereader_stop(r, "the blocks of the start are not in address order");
    }
    if (!add_context(r) || !add_block(r, record)) {
        return false;
    }
    trace->initial_count++;
    return set_stack(r, trace->initial_count - 1);
}

bool flw_ftracereader_take_record(struct flw_ftracereader *r, const struct flw_record *record)
{
    bool is_start = r->frame.type == FLW_FTRACE_SNAPSHOT;
    if (record->op == FLW_RECORD_CONTEXT) {
        r->context.thread = record->thread;
        r->context.tag = record->tag;
        r->context.pool = record->pool;
        return true;
    }
    if (is_start == flw_record_is_event(record->op)) {
        return flw_ftracereader_stop(r, "a record of the other kind: of the start, or an event");
    }
    if (!flw_ftracereader_next_stack(r)) {
        return false;
    }
    return is_start ? add_initial(r, record) : add_event(r, record);
}

bool flw_ftracereader_take_drop(struct flw_ftracereader *r, uint64_t lost_count)
{
    struct flw_record record = {.op = flw_record_op_of(FLW_TRACE_DROP),
                                .name = FLW_TRACE_NO_NAME,
                                .free_bytes = FLW_TRACE_UNKNOWN,
                                .largest_bytes = FLW_TRACE_UNKNOWN,
                                .lost_count = lost_count};
    r->context = (struct flw_trace_context){.thread = r->frame.thread};
    r->stack = 0;
    r->remark = (struct flw_trace_remark){0};
    return add_event(r, &record);
}

bool flw_ftracereader_step_over_loss(struct flw_ftracereader *r)
{
    uint64_t lost_events = r->frame.first_event - r->event_count;
    if (r->frame.first_block > r->block_count) {
        if (!FLW_ARRAY_FITS(r->holes, r->hole_count, r->hole_room)) {
            return flw_ftracereader_fail_memory(r);
        }
        r->holes[r->hole_count++] = (struct flw_ftracereader_hole){
            r->block_count, r->frame.first_block, r->block_count - r->build.trace->block_count};
        r->block_count = r->frame.first_block;
    }
    if (lost_events > 0) {
        if (!flw_ftracereader_take_drop(r, lost_events)) {
            return false;
        }
        r->event_count = r->frame.first_event;
    }
    return true;
}
