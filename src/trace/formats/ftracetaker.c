/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: interpreting the notes, dictionaries and records of a trace file, and the first damage.
 * Does not: trust the contents because a checksum is right; drop records with stacks that were lost in a damaged chunk:
 * these stacks are unknown.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "record/array.h"
#include "record/stackids.h"
#include "trace/formats/ftracereader.h"
#include "trace/trace/largearray.h"
#include "trace/trace/measure.h"

#define NS_PER_SECOND UINT64_C(1000000000)
#define CHECK         FLW_FTRACEREADER_CHECK
#define TRY           FLW_FTRACEREADER_TRY
#define LOST          FLW_FTRACEREADER_LOST

/* ---- damage ---- */

void flw_ftracereader_stop(struct flw_ftracereader *r, const char *format, ...)
{
    r->has_stopped = true;
    if (r->problem[0] == '\0') {
        char text[FLW_TRACE_MESSAGE_BYTES / 2];
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(text, sizeof(text), format, arguments);
        va_end(arguments);
        snprintf(r->problem, sizeof(r->problem), "byte %" PRIu64 ": %s", flw_input_offset(r->input),
                 text);
        r->problem_event = r->event_count;
    }
}

void flw_ftracereader_stop_memory(struct flw_ftracereader *r)
{
    r->has_stopped = true;
    r->lacks_memory = true;
    flw_input_fail(r->input, flw_input_offset(r->input), "no memory to hold the trace");
}

/* ---- notes ---- */

static void take_gaps(struct flw_ftracereader *r, const char *numbers)
{
    struct flw_trace *trace = r->to.build->trace;
    char *end = NULL;
    trace->unknown_free_count = strtoull(numbers, &end, 10);
    trace->lost_free_count = strtoull(end, &end, 10);
    CHECK(r, *end == '\0', "\"gaps\" without two numbers");
}

/* Read "begin_ns" from a note: a program that did not support this line of the text form kept the line as a note. */
static void take_begin(struct flw_ftracereader *r, const char *number)
{
    struct flw_trace *trace = r->to.build->trace;
    char *end = NULL;
    uint64_t begin_ns = strtoull(number, &end, 10);
    if (trace->has_times && trace->begin_ns == 0 && *end == '\0') {
        trace->begin_ns = begin_ns;
    }
}

void flw_ftracereader_take_notes(struct flw_ftracereader *r, const char *at, const char *end)
{
    for (const char *newline; at < end && !r->has_stopped; at = newline + 1) {
        char line[FLW_INPUT_FILL_BYTES];
        newline = memchr(at, '\n', (size_t)(end - at));
        if (newline == NULL || newline - at >= (ptrdiff_t)sizeof(line)) {
            flw_ftracereader_stop(r, "a note's line does not end");
            return;
        }
        size_t bytes = (size_t)(newline - at);
        memcpy(line, at, bytes);
        line[bytes] = '\0';
        if (strncmp(line, "gaps ", 5) == 0) {
            take_gaps(r, line + 5);
        } else if (strncmp(line, "begin_ns ", 9) == 0) {
            take_begin(r, line + 9);
        } else if (!flw_notes_is_line(at, newline)) {
            flw_ftracereader_stop(r, "a note is not \"key value\" or \"# text\"");
        } else {
            TRY(r, flw_notes_add(&r->to.build->notes, at, newline));
        }
    }
}

/* ---- dictionaries ---- */

static bool get_varints(struct flw_wire_in *in, uint64_t *out, size_t count)
{
    bool are_whole = true;
    for (size_t i = 0; i < count; i++) {
        are_whole = are_whole && flw_wire_get_varint(in, &out[i]);
    }
    return are_whole;
}

/* Add a number, the next one or, after damage, a later one: the numbers between are lost. */
static void add_number(struct flw_ftracereader *r, struct flw_ftracereader_numbers *numbers,
                       uint64_t number, uint32_t value, const char *what)
{
    bool is_after_loss =
        r->problem[0] != '\0' && number > numbers->count && number <= flw_input_offset(r->input);
    CHECK(r, number == numbers->count || is_after_loss, "%s %" PRIu64 " where %zu is next", what,
          number, numbers->count);
    while (!r->has_stopped && numbers->count <= number) {
        TRY(r, FLW_ARRAY_FITS(numbers->at, numbers->count, numbers->room));
        if (!r->has_stopped) {
            numbers->at[numbers->count] = numbers->count < number ? LOST : value;
            numbers->count++;
        }
    }
}

/* Return the number in the trace, or LOST. */
static uint32_t find_number(struct flw_ftracereader *r,
                            const struct flw_ftracereader_numbers *numbers, uint64_t number,
                            const char *what)
{
    bool is_there = number < numbers->count;
    CHECK(r, is_there || r->problem[0] != '\0', "%s %" PRIu64 " is not in the dictionary", what,
          number);
    return is_there ? numbers->at[number] : LOST;
}

static void read_stream(struct flw_ftracereader *r, struct flw_wire_in body)
{
    const struct flw_trace *trace = r->to.build->trace;
    size_t next = trace->stream_count;
    uint64_t values[2] = {0}; /* number, handle */
    uint16_t stream = 0;
    CHECK(r, get_varints(&body, values, 2), "a stream without a handle");
    if (values[0] < next && trace->streams[values[0]] == values[1]) {
        return;
    }
    CHECK(r, values[0] == next, "stream %" PRIu64 " where %zu is next", values[0], next);
    CHECK(r, next < FLW_BUILD_STREAMS_MAX, "more than %d streams", FLW_BUILD_STREAMS_MAX);
    TRY(r, flw_build_add_stream(r->to.build, values[1], &stream));
    CHECK(r, stream == next, "stream %zu has the handle of another", next);
}

static void read_name(struct flw_ftracereader *r, struct flw_wire_in body)
{
    struct flw_ftracereader_numbers *names = &r->names;
    uint64_t number = 0;
    CHECK(r, flw_wire_get_varint(&body, &number) && number <= names->count,
          "a name is not numbered %zu", names->count);
    size_t bytes = (size_t)(body.end - body.at);
    CHECK(r, flw_trace_is_name((const char *)body.at, bytes),
          "a name is empty, too long or not printable");
    TRY(r, FLW_ARRAY_FITS(names->at, names->count, names->room));
    TRY(r, flw_intern_add_text(&r->to.build->trace->names, body.at, bytes, &names->at[number]));
    names->count += !r->has_stopped && number == names->count;
}

static void read_text(struct flw_ftracereader *r, struct flw_wire_in body)
{
    uint64_t number;
    uint32_t text = LOST;
    bool is_numbered = flw_wire_get_varint(&body, &number);
    size_t bytes = (size_t)(body.end - body.at);
    CHECK(r, is_numbered && bytes <= FLW_STACK_TEXT_BYTES && memchr(body.at, '\0', bytes) == NULL,
          "a text of a frame has no number, a zero byte or over %d", FLW_STACK_TEXT_BYTES);
    TRY(r, flw_intern_add_text(&r->to.build->trace->stacks.texts, body.at, bytes, &text));
    add_number(r, &r->texts, number, text, "text");
}

static void read_frame(struct flw_ftracereader *r, struct flw_wire_in body)
{
    uint64_t values[4] = {0}; /* number, function, file, line */
    uint32_t number = LOST;
    CHECK(r, get_varints(&body, values, 4) && values[3] <= UINT32_MAX,
          "a frame lacks a number, a text or a line");
    struct flw_frame frame = {.function = find_number(r, &r->texts, values[1], "text"),
                              .file = find_number(r, &r->texts, values[2], "text"),
                              .line = (uint32_t)values[3]};
    if (frame.function != LOST && frame.file != LOST) {
        TRY(r, flw_intern_add(&r->to.build->trace->stacks.frames, &frame, sizeof frame, &number));
    }
    add_number(r, &r->frames, values[0], number, "frame");
}

/* Read the frames of a stack as numbers in the file: new inner frames, then outermost frames of the previous stack. */
static void take_frames(struct flw_ftracereader *r, struct flw_wire_in body)
{
    uint32_t frames[FLW_STACK_DEPTH_MOST];
    uint64_t shared, frame = 0;
    size_t count = 0;
    bool is_whole = flw_wire_get_varint(&body, &shared) && shared <= r->last_frame_count;
    while (is_whole && body.at < body.end) {
        is_whole = flw_wire_get_varint(&body, &frame) && frame < UINT32_MAX &&
                   count + shared < FLW_STACK_DEPTH_MOST;
        if (is_whole) {
            frames[count++] = (uint32_t)frame;
        }
    }
    CHECK(r, is_whole && count + shared > 0, "a stack is not 1 to %d frames", FLW_STACK_DEPTH_MOST);
    if (!r->has_stopped) {
        memmove(r->last_frames + count, r->last_frames + r->last_frame_count - shared,
                shared * sizeof(*frames));
        memcpy(r->last_frames, frames, count * sizeof(*frames));
        r->last_frame_count = count + shared;
    }
}

static void read_stack(struct flw_ftracereader *r, struct flw_wire_in body)
{
    uint32_t frames[FLW_STACK_DEPTH_MOST], stack = LOST;
    uint64_t number = 0;
    bool is_whole = true;
    CHECK(r, flw_wire_get_varint(&body, &number) && number != 0, "a stack has no number");
    take_frames(r, body);
    for (size_t i = 0; i < r->last_frame_count; i++) {
        frames[i] = find_number(r, &r->frames, r->last_frames[i], "frame");
        is_whole &= frames[i] != LOST;
    }
    if (is_whole) {
        TRY(r, flw_stacks_add(&r->to.build->trace->stacks, frames, r->last_frame_count, &stack));
    }
    add_number(r, &r->stacks, number - 1, stack, "stack");
}

void flw_ftracereader_take_dictionary(struct flw_ftracereader *r, struct flw_wire_in in)
{
    static void (*const reads[])(struct flw_ftracereader * r, struct flw_wire_in body) = {
        [FLW_FTRACE_STREAM] = read_stream, [FLW_FTRACE_NAME] = read_name,
        [FLW_FTRACE_TEXT] = read_text,     [FLW_FTRACE_FRAME] = read_frame,
        [FLW_FTRACE_STACK] = read_stack,
    };
    r->last_frame_count = 0;
    for (uint32_t i = 0; i < r->frame.record_count && !r->has_stopped; i++) {
        uint64_t values[2]; /* kind, bytes */
        if (!get_varints(&in, values, 2) || values[1] > (uint64_t)(in.end - in.at)) {
            flw_ftracereader_stop(r, "entry %u of a dictionary exceeds it", (unsigned)i);
            return;
        }
        struct flw_wire_in body = {in.at, in.at + values[1]};
        in.at = body.end;
        if (values[0] < sizeof reads / sizeof *reads && reads[values[0]] != NULL) {
            reads[values[0]](r, body); /* others are of a later minor version */
        }
    }
    CHECK(r, in.at == in.end, "a dictionary has more entries than in its header");
}

/* ---- the stacks and remarks of a chunk's records ---- */

void flw_ftracereader_take_stacks(struct flw_ftracereader *r, struct flw_wire_in in)
{
    struct flw_stackids ids = {{0}, 0, {0}};
    uint32_t count = r->frame.record_count;
    CHECK(r, count <= FLW_FTRACE_PAYLOAD_BYTES, "stacks of more records than a chunk can have");
    TRY(r, FLW_LARGEARRAY_HOLDS(r->record_stacks, count, r->record_room));
    CHECK(r, flw_stackids_get(&ids, in, r->record_stacks, count),
          "the number of stacks differs from the chunk's header");
    r->record_count = r->has_stopped ? 0 : count;
    r->stacks_event = r->frame.first_event;
    r->stacks_block = r->frame.first_block;
}

#define REMARKS_DIFFER "the number of records with remarks is wrong"
void flw_ftracereader_take_remarks(struct flw_ftracereader *r, struct flw_wire_in in)
{
    uint64_t left = r->frame.record_count, values[3]; /* count, two texts */
    r->remark_count = 0;
    while (in.at < in.end && !r->has_stopped) {
        CHECK(r,
              get_varints(&in, values, 3) && values[0] > 0 && values[0] <= left &&
                  values[1] <= UINT32_MAX && values[2] <= UINT32_MAX,
              REMARKS_DIFFER);
        TRY(r, FLW_ARRAY_FITS(r->remarks, r->remark_count, r->remark_room));
        if (!r->has_stopped) {
            r->remarks[r->remark_count++] = (struct flw_ftracereader_remarks){
                (uint32_t)values[0], (uint32_t)values[1], (uint32_t)values[2]};
            left -= values[0];
        }
    }
    CHECK(r, left == 0, REMARKS_DIFFER);
    r->remark_count = r->has_stopped ? 0 : r->remark_count;
    r->remarks_event = r->frame.first_event;
    r->remarks_block = r->frame.first_block;
}

static uint32_t find_remark(struct flw_ftracereader *r, uint32_t number)
{
    uint32_t text = number == 0 ? LOST : find_number(r, &r->texts, number - 1, "text");
    return text == LOST ? 0 : text + 1;
}

/* Set the stack and the remark of the next record. */
static void begin_record(struct flw_ftracereader *r)
{
    struct flw_ftracereader_remarks none = {0}, *remark = &none;
    uint32_t number = r->next_record < r->record_count ? r->record_stacks[r->next_record++] : 0;
    if (r->next_remark < r->remark_count) {
        remark = &r->remarks[r->next_remark];
        r->next_remark += --remark->record_count == 0;
    }
    r->to.remark.compile_context = find_remark(r, remark->compile_context);
    r->to.remark.user_metadata = find_remark(r, remark->user_metadata);
    uint32_t stack = number == 0 ? LOST : find_number(r, &r->stacks, number - 1, "stack");
    r->to.stack = stack == LOST ? 0 : stack;
}

/* ---- blocks ---- */

/* Find the number of a block in the trace. Returns false if the block was lost. */
static bool find_block(const struct flw_ftracereader *r, uint64_t number, uint64_t *out)
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
    *out = number - lost;
    return true;
}

static void check_block(struct flw_ftracereader *r, const struct flw_record *record)
{
    const struct flw_trace *trace = r->to.build->trace;
    CHECK(r, trace->block_count < UINT32_MAX, "more than 2^32 blocks");
    CHECK(r, trace->has_addresses || record->address == 0,
          "an address, but the header says there are none");
    r->block_count += !r->has_stopped;
}

/* Take a FREE, FREE_DONE or USE. Returns false if the block was lost. */
static bool step_block(struct flw_ftracereader *r, struct flw_record *record)
{
    uint64_t number = record->block;
    if (!find_block(r, number, &record->block)) {
        r->to.build->trace->unknown_free_count += record->op == FLW_TRACE_FREE;
        return false;
    }
    /* If the FREE was lost with a chunk, the FREE_DONE counts as both. */
    bool is_both = record->op == FLW_TRACE_FREE_DONE && r->hole_count > 0 &&
                   flw_reader_step(&r->to, FLW_TRACE_FREE, record->block) == NULL;
    const char *state = flw_reader_step(&r->to, (uint8_t)record->op, record->block);
    CHECK(r, state == NULL, "event %" PRIu64 ": block %" PRIu64 " is %s", r->event_count, number,
          state);
    record->op = is_both ? FLW_TRACE_FREE : record->op;
    return true;
}

/* ---- events ---- */

static void take_time(struct flw_ftracereader *r, uint64_t steps)
{
    uint64_t ticks, time_ns = 0;
    bool has_ns = r->file.ticks_per_second == NS_PER_SECOND;
    bool fits = !__builtin_mul_overflow(steps, (uint64_t)r->frame.time_scale, &ticks);
    if (!has_ns) {
        __extension__ unsigned __int128 wide =
            (unsigned __int128)ticks * NS_PER_SECOND / r->file.ticks_per_second;
        ticks = wide > UINT64_MAX ? UINT64_MAX : (uint64_t)wide;
    }
    fits = fits && !__builtin_add_overflow(r->frame.base_ns, ticks, &time_ns);
    CHECK(r, fits, "event %" PRIu64 " is centuries after the first", r->event_count);
    if (time_ns < r->to.time_ns && !has_ns) {
        time_ns = r->to.time_ns; /* clocks restart in each chunk */
    }
    CHECK(r, time_ns >= r->to.time_ns && (time_ns == 0 || r->to.build->trace->has_times),
          "event %" PRIu64 ": time falls, or is given in a trace without", r->event_count);
    r->to.time_ns = r->has_stopped ? r->to.time_ns : time_ns;
}

/* Check conditions that the codec does not, and find the name. */
static void check_event(struct flw_ftracereader *r, struct flw_record *record, uint8_t op)
{
    const struct flw_trace *trace = r->to.build->trace;
    bool is_segment = op >= FLW_TRACE_SEGMENT_ALLOC && op <= FLW_TRACE_SEGMENT_UNMAP;
    bool has_name = record->name != FLW_TRACE_NO_NAME;
    CHECK(r,
          (!flw_trace_op_has_stream(op) || record->stream < trace->stream_count) &&
              (op != FLW_TRACE_SYNC_WAIT || record->other_stream < trace->stream_count),
          "event %" PRIu64 " names a stream that is not in the dictionary", r->event_count);
    CHECK(r, has_name ? record->name < r->names.count : !flw_trace_op_needs_name(op),
          "event %" PRIu64 " has a name that is not in the dictionary", r->event_count);
    CHECK(r, !is_segment || trace->has_segments, "a segment, but the header says there are none");
    CHECK(r, !is_segment || trace->has_addresses || record->address == 0,
          "an address, but the header says there are none");
    CHECK(r, op != FLW_TRACE_DROP || record->lost_count > 0,
          "event %" PRIu64 ": no event is missing", r->event_count);
    if (has_name && !r->has_stopped) {
        record->name = r->names.at[record->name];
    }
}

static void add(struct flw_ftracereader *r, struct flw_record *record)
{
    if (record->op != FLW_RECORD_SEGMENT) {
        record->thread = r->context.thread;
        record->tag = r->context.tag;
        record->pool = r->context.pool;
    }
    TRY(r, flw_reader_add(&r->to, record));
}

/* Add an event, except a free of a lost block, or an event of a later minor version. */
static void add_event(struct flw_ftracereader *r, struct flw_record *record)
{
    uint8_t op = flw_record_trace_op(record->op);
    bool is_left_out = op == FLW_TRACE_OP_COUNT;
    take_time(r, record->time);
    if (!r->has_stopped && !is_left_out) {
        check_event(r, record, op);
    }
    if (!r->has_stopped && op == FLW_TRACE_ALLOC) {
        check_block(r, record);
    } else if (!r->has_stopped && flw_trace_op_has_block(op)) {
        is_left_out = !step_block(r, record);
    }
    if (!r->has_stopped) {
        r->event_count++;
        if (!is_left_out) {
            add(r, record);
        }
    }
}

/* Add a block or segment of the start. */
static void add_initial(struct flw_ftracereader *r, struct flw_record *record)
{
    const struct flw_trace *trace = r->to.build->trace;
    CHECK(r, record->stream < trace->stream_count,
          "a block or segment of the start names a stream that is not in the "
          "dictionary");
    if (record->op == FLW_RECORD_SEGMENT) {
        CHECK(r, trace->has_segments && (trace->has_addresses || record->address == 0),
              "a segment or an address, but the header says there are none");
    } else {
        CHECK(r,
              trace->block_count == 0 ||
                  record->address >= trace->blocks[trace->block_count - 1].address,
              "the blocks of the start are not in address order");
        check_block(r, record);
    }
    add(r, record);
}

static void take_record(struct flw_ftracereader *r, struct flw_record *record)
{
    bool is_start = r->frame.type == FLW_FTRACE_SNAPSHOT;
    if (record->op == FLW_RECORD_CONTEXT) {
        r->context = (struct flw_trace_context){0, record->thread, record->tag, record->pool};
        return;
    }
    if (is_start == flw_record_is_event(record->op)) {
        flw_ftracereader_stop(
            r, "a record of the start is among events, or an event among records of the "
               "start");
        return;
    }
    begin_record(r);
    if (!r->has_stopped) {
        (is_start ? add_initial : add_event)(r, record);
    }
}

void flw_ftracereader_take_records(struct flw_ftracereader *r, struct flw_wire_in in)
{
    const struct flw_frame_chunk *frame = &r->frame;
    uint32_t count = 0;
    r->next_record = 0;
    r->next_remark = 0;
    if (r->stacks_event != frame->first_event || r->stacks_block != frame->first_block) {
        r->record_count = 0;
    }
    if (r->remarks_event != frame->first_event || r->remarks_block != frame->first_block) {
        r->remark_count = 0;
    }
    flw_record_begin(&r->state, (enum flw_record_codec)frame->codec,
                     r->to.build->trace->has_addresses, frame->first_block);
    r->context = (struct flw_trace_context){.thread = frame->thread};
    while (in.at < in.end && !r->has_stopped) {
        struct flw_record record;
        enum flw_record_result result = flw_record_get(&r->state, &in, &record);
        TRY(r, result != FLW_RECORD_NO_MEMORY);
        CHECK(r, result != FLW_RECORD_BAD, "record %u of a chunk is none", (unsigned)count);
        if (!r->has_stopped) {
            count += record.op != FLW_RECORD_CONTEXT;
            take_record(r, &record);
        }
    }
    CHECK(r, count == frame->record_count, "a chunk has %u records, %u in its header",
          (unsigned)count, (unsigned)frame->record_count);
    if (!r->has_stopped) {
        CHECK(r, r->next_record == r->record_count && r->next_remark == r->remark_count,
              "a chunk has more stacks or remarks than records");
        r->record_count = 0;
        r->remark_count = 0;
    }
}

void flw_ftracereader_take_drop(struct flw_ftracereader *r, uint64_t lost_count)
{
    struct flw_record record = {
        .op = flw_record_op_of(FLW_TRACE_DROP), .lost_count = lost_count, FLW_RECORD_UNSET};
    r->context = (struct flw_trace_context){.thread = r->frame.thread};
    r->to.stack = 0;
    r->to.remark = (struct flw_trace_remark){0};
    add_event(r, &record);
}

void flw_ftracereader_step_over_loss(struct flw_ftracereader *r)
{
    uint64_t lost_events = r->frame.first_event - r->event_count;
    if (r->frame.first_block > r->block_count) {
        if (!FLW_ARRAY_FITS(r->holes, r->hole_count, r->hole_room)) {
            flw_ftracereader_stop_memory(r);
            return;
        }
        r->holes[r->hole_count++] = (struct flw_ftracereader_hole){
            r->block_count, r->frame.first_block, r->block_count - r->to.build->trace->block_count};
        r->block_count = r->frame.first_block;
    }
    if (lost_events > 0) {
        flw_ftracereader_take_drop(r, lost_events);
        r->event_count = r->has_stopped ? r->event_count : r->frame.first_event;
    }
}
