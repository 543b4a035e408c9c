/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: reading the text form of a trace; text.h specifies it.
 *
 * After a failure reading goes on to the end of the line; only the first failure counts (line.h).
 */
#include "trace/formats/text.h"

#include <inttypes.h>
#include <string.h>

#include "trace/formats/reader.h"
#include "trace/io/line.h"
#include "trace/trace/measure.h"

struct reader {
    struct flw_line line;
    struct flw_reader to;
    uint32_t new_stack;  /* stack of the last W line; 0: none, or a record has it already */
    uint32_t met_frames; /* frames used by stacks; later L lines belong to the next stack */
    bool has_new_remark; /* no event has the remark of the last V line yet */
};

#define CHECK(r, holds, ...) FLW_LINE_CHECK(&(r)->line, holds, __VA_ARGS__)
#define NO_MEMORY            "no memory to hold the trace"

static struct flw_trace *trace_of(const struct reader *r)
{
    return r->to.build->trace;
}

/* ---- header ---- */

static void read_magic(struct reader *r)
{
    CHECK(r, flw_line_next(&r->line) && flw_line_accept(&r->line, FLW_TEXT_MAGIC),
          "not a fallow text trace");
    uint64_t version = flw_line_take_number(&r->line);
    CHECK(r, version == 1, "version %" PRIu64 " of the text form; this reads version 1", version);
    flw_line_take_end(&r->line);
}

static void read_device(struct reader *r)
{
    CHECK(r, flw_line_next(&r->line) && flw_line_accept(&r->line, "device "),
          "\"device N\" expected");
    uint64_t device = flw_line_take_number(&r->line);
    flw_line_take_end(&r->line);
    CHECK(r, device <= INT32_MAX, "not a device number");
    trace_of(r)->device = (int)device;
}

static void read_stream(struct reader *r)
{
    size_t next = trace_of(r)->stream_count;
    uint16_t stream = 0;
    uint64_t handle = flw_line_take_number(&r->line);
    flw_line_take_end(&r->line);
    CHECK(r, next < FLW_BUILD_STREAMS_MAX, "more than %d streams", FLW_BUILD_STREAMS_MAX);
    CHECK(r, flw_build_add_stream(r->to.build, handle, &stream), NO_MEMORY);
    CHECK(r, stream == next, "the stream is listed twice");
}

/* Read all lines from "stream" to "fields". */
static void read_fields(struct reader *r)
{
    struct flw_trace *trace = trace_of(r);
    while (flw_line_next(&r->line) && flw_line_accept(&r->line, "stream ")) {
        read_stream(r);
    }
    CHECK(r, flw_line_accept(&r->line, "fields"), "\"stream HANDLE\" or \"fields ...\" expected");
    trace->has_times = flw_line_accept(&r->line, " times");
    trace->has_addresses = flw_line_accept(&r->line, " addresses");
    trace->has_segments = flw_line_accept(&r->line, " segments");
    bool has_any = trace->has_times || trace->has_addresses || trace->has_segments;
    CHECK(r, has_any || flw_line_accept(&r->line, " none"),
          "times, addresses, segments or none expected");
    flw_line_take_end(&r->line);
}

static void read_begin(struct reader *r)
{
    CHECK(r, trace_of(r)->has_times, "\"begin_ns\" without times");
    trace_of(r)->begin_ns = flw_line_take_number(&r->line);
    CHECK(r, trace_of(r)->begin_ns != 0, "\"begin_ns\" is a moment after 1970");
    flw_line_take_end(&r->line);
}

static void read_gaps(struct reader *r)
{
    struct flw_trace *trace = trace_of(r);
    trace->unknown_free_count = flw_line_take_number(&r->line);
    trace->lost_free_count = flw_line_take_column(&r->line);
    CHECK(r, trace->unknown_free_count != 0 || trace->lost_free_count != 0,
          "\"gaps\" without a gap");
    flw_line_take_end(&r->line);
}

/* ---- frames, stacks, remarks ---- */

/* Read a quoted text; return the number of the text. */
static uint32_t take_text(struct reader *r)
{
    char text[FLW_STACK_TEXT_BYTES];
    uint32_t number = 0;
    size_t bytes = flw_line_take_text(&r->line, text, sizeof text);
    CHECK(r, flw_intern_add_text(&trace_of(r)->stacks.texts, text, bytes, &number), NO_MEMORY);
    return number;
}

static void read_frame(struct reader *r)
{
    struct flw_stacks *stacks = &trace_of(r)->stacks;
    uint32_t number = 0;
    size_t next = stacks->frames.count;
    CHECK(r, r->new_stack == 0, "the record that has stack=%" PRIu32 " must follow", r->new_stack);
    uint64_t line = flw_line_take_column(&r->line);
    CHECK(r, line <= UINT32_MAX, "the line number exceeds 32 bits");
    struct flw_frame frame = {.line = (uint32_t)line};
    flw_line_take_space(&r->line);
    frame.function = take_text(r);
    flw_line_take_space(&r->line);
    frame.file = take_text(r);
    CHECK(r, flw_intern_add(&stacks->frames, &frame, sizeof frame, &number), NO_MEMORY);
    CHECK(r, number == next, "the frame is frame %" PRIu32, number);
    flw_line_take_end(&r->line);
}

/* True if each frame so far is in a stack, and each stack in a record. */
static bool are_stacks_used(const struct reader *r)
{
    return r->new_stack == 0 && r->met_frames == trace_of(r)->stacks.frames.count;
}

static void read_stack(struct reader *r)
{
    struct flw_stacks *stacks = &trace_of(r)->stacks;
    uint32_t frames[FLW_STACK_DEPTH_MOST];
    size_t count = 0, next = stacks->lists.count == 0 ? 1 : stacks->lists.count;
    do {
        uint64_t frame = flw_line_take_column(&r->line);
        CHECK(r, count < FLW_STACK_DEPTH_MOST, "a stack of more than %d frames",
              FLW_STACK_DEPTH_MOST);
        CHECK(r, frame <= r->met_frames && frame < stacks->frames.count,
              "frame %" PRIu64 " where %" PRIu32 " is the next new one", frame, r->met_frames);
        if (r->line.input->failed) {
            return;
        }
        r->met_frames += frame == r->met_frames;
        frames[count++] = (uint32_t)frame;
    } while (r->line.at < r->line.end);
    CHECK(r, are_stacks_used(r), "an earlier frame or stack is not used");
    CHECK(r, flw_stacks_add(stacks, frames, count, &r->new_stack), NO_MEMORY);
    CHECK(r, r->new_stack == next, "the stack is stack %" PRIu32, r->new_stack);
}

/* Read " stack=N" of a record, 0 if missing. If the previous line is a new stack, N must be that one. */
static void take_stack(struct reader *r)
{
    uint64_t stack = 0;
    if (flw_line_accept(&r->line, " stack=")) {
        stack = flw_line_take_number(&r->line);
        CHECK(r, stack > 0 && stack <= UINT32_MAX, "stack= is from 1 to 4294967295, or left out");
    }
    r->new_stack = r->new_stack == stack ? 0 : r->new_stack;
    CHECK(r, are_stacks_used(r), "the record after a stack does not use the stack");
    CHECK(r, stack == 0 || stack < trace_of(r)->stacks.lists.count,
          "stack %" PRIu64 " is not defined yet", stack);
    r->to.stack = (uint32_t)stack;
}

/* Read a text of a remark: the number plus 1; 0: none. */
static uint32_t take_remark_text(struct reader *r)
{
    return flw_line_take_space(&r->line) && !flw_line_accept(&r->line, "-") ? take_text(r) + 1 : 0;
}

static void read_remark(struct reader *r)
{
    struct flw_trace_remark remark = {.compile_context = take_remark_text(r)};
    remark.user_metadata = take_remark_text(r);
    CHECK(r,
          !r->has_new_remark && are_stacks_used(r) && !flw_trace_remark_is(&remark, &r->to.remark),
          "a remark repeats the previous one, or precedes no event");
    r->to.remark = remark;
    r->has_new_remark = true;
    flw_line_take_end(&r->line);
}

/* ---- records ---- */

/* Return the op of the record with the line's letters; the time is next. */
static unsigned take_letters(struct reader *r, char first)
{
    bool is_segment = first == 'S' || first == 'M';
    unsigned op = 0;
    CHECK(r, !is_segment || trace_of(r)->has_segments,
          "a segment, but the header says there are none");
    for (const char *letters; op < FLW_TEXT_FORMS; op++) {
        letters = flw_text_forms[op].letters;
        if (letters != NULL && *letters == first && flw_line_accept(&r->line, letters)) {
            break;
        }
    }
    CHECK(r, op < FLW_TEXT_FORMS,
          is_segment || first == 'G' ? "not a record"
                                     : "neither a record nor a \"key value\" line");
    return op < FLW_TEXT_FORMS ? op : 0;
}

static void take_time(struct reader *r, unsigned op)
{
    const struct flw_trace *trace = trace_of(r);
    bool has_events = trace->event_count > 0 || r->has_new_remark;
    bool is_start = op == FLW_RECORD_BLOCK || op == FLW_RECORD_SEGMENT;
    CHECK(r, op != FLW_RECORD_SEGMENT || (!has_events && trace->block_count == 0),
          "S lines come before blocks and events");
    CHECK(r, op != FLW_RECORD_BLOCK || !has_events, "P lines come before events");
    uint64_t time_ns = flw_line_take_column(&r->line);
    CHECK(r, !is_start || time_ns == 0, "a record of the start must have time 0");
    CHECK(r, time_ns >= r->to.time_ns, "time falls from %" PRIu64 " to %" PRIu64, r->to.time_ns,
          time_ns);
    CHECK(r, time_ns == 0 || trace->has_times, "a time, but the header says there are none");
    r->to.time_ns = time_ns;
}

static void take_sizes(struct reader *r, struct flw_record *record)
{
    record->is_large = flw_line_accept(&r->line, " large");
    CHECK(r, record->is_large || flw_line_accept(&r->line, " small"), "large or small expected");
    record->is_expandable = flw_line_accept(&r->line, " expandable");
}

/* Read the number of a column that is there. */
static uint64_t take_number(struct reader *r, const struct flw_text_column *column)
{
    const struct flw_trace *trace = trace_of(r);
    uint64_t number = flw_line_take_number(&r->line);
    switch (column->kind) {
    case FLW_TEXT_NEW_BLOCK:
        CHECK(r, number == trace->block_count && number < UINT32_MAX,
              "the next block's number is %zu", trace->block_count);
        break;
    case FLW_TEXT_STREAM:
        CHECK(r, number < trace->stream_count, "stream %" PRIu64 " is not in the header", number);
        break;
    case FLW_TEXT_BYTES:
        CHECK(r, number != FLW_TRACE_UNKNOWN, "the size exceeds 64 bits");
        break;
    case FLW_TEXT_CONTEXT:
        CHECK(r, number > 0 && number <= UINT32_MAX, "%s is from 1 to 4294967295, or left out",
              column->before + 1);
        break;
    default:
        break;
    }
    return number;
}

static void take_column(struct reader *r, const struct flw_text_column *column,
                        struct flw_record *record)
{
    bool can_lack = column->kind == FLW_TEXT_BYTES || column->kind == FLW_TEXT_CONTEXT;
    if (column->kind == FLW_TEXT_SIZES) {
        take_sizes(r, record);
        return;
    }
    if ((column->kind == FLW_TEXT_ADDRESS && !trace_of(r)->has_addresses) ||
        (can_lack && r->line.at == r->line.end)) {
        return;
    }
    if (!flw_line_accept(&r->line, column->before)) {
        if (can_lack) {
            return;
        }
        flw_line_take_space(&r->line);
        CHECK(r, false, "the header promises an @address");
    }
    uint64_t number = take_number(r, column);
    uint32_t short_number = (uint32_t)number;
    char *field = (char *)record + column->field;
    if (column->is_short) {
        memcpy(field, &short_number, sizeof short_number);
    } else {
        memcpy(field, &number, sizeof number);
    }
}

/* Read the quoted name at the end of a line if the record has one. */
static void take_name(struct reader *r, struct flw_record *record)
{
    uint8_t op = flw_record_trace_op(record->op);
    bool can_lack = op == FLW_TRACE_MARK && r->line.at == r->line.end;
    if (can_lack || (op != FLW_TRACE_MARK && !flw_trace_op_needs_name(op))) {
        flw_line_take_end(&r->line);
        return;
    }
    CHECK(r, flw_line_accept(&r->line, " \""), "a name in quotes expected at the end");
    const char *name = r->line.at;
    size_t bytes = (size_t)(r->line.end - name);
    if (bytes < 2 || name[bytes - 1] != '"' || !flw_trace_is_name(name, bytes - 1)) {
        flw_line_fail(&r->line, "a name is 1 to %d printable bytes in quotes",
                      FLW_TRACE_NAME_BYTES);
        return;
    }
    CHECK(r, flw_intern_add_text(&trace_of(r)->names, name, bytes - 1, &record->name), NO_MEMORY);
}

/* Check a whole record against the records before it. */
static void check_record(struct reader *r, const struct flw_record *record)
{
    const struct flw_trace *trace = trace_of(r);
    uint8_t op = flw_record_trace_op(record->op);
    if (op == FLW_TRACE_FREE || op == FLW_TRACE_FREE_DONE || op == FLW_TRACE_USE) {
        if (record->block >= trace->block_count) {
            flw_line_fail(&r->line, "block %" PRIu64 " does not exist", record->block);
            return;
        }
        const char *state = flw_reader_step(&r->to, op, record->block);
        CHECK(r, state == NULL, "block %" PRIu64 " is %s", record->block, state);
    } else if (record->op == FLW_RECORD_BLOCK && trace->block_count > 0) {
        CHECK(r, record->address >= trace->blocks[trace->block_count - 1].address,
              "P lines are in address order");
    } else if (op == FLW_TRACE_DROP) {
        CHECK(r, record->lost_count != 0, "no event is missing");
    }
}

static void read_record(struct reader *r, char first)
{
    struct flw_record record = {.op = take_letters(r, first), FLW_RECORD_UNSET};
    const char *letters = flw_text_forms[record.op].letters;
    take_time(r, record.op);
    while (!flw_line_accept(&r->line, flw_text_forms[record.op].word)) {
        record.op++;
        if (flw_text_forms[record.op].letters[0] != letters[0]) {
            flw_line_fail(&r->line, "device, stream, event or wait expected");
            return;
        }
    }
    for (const char *c = flw_text_forms[record.op].columns; *c != '\0'; c++) {
        take_column(r, &flw_text_columns[(unsigned char)*c], &record);
    }
    take_stack(r);
    take_name(r, &record);
    if (!r->line.input->failed) {
        check_record(r, &record);
    }
    if (!r->line.input->failed) {
        r->has_new_remark = r->has_new_remark && !flw_record_is_event(record.op);
        CHECK(r, flw_reader_add(&r->to, &record), NO_MEMORY);
    }
}

/* Read a record or a line that precedes one. */
static void read_record_line(struct reader *r)
{
    char first = r->line.at < r->line.end ? *r->line.at : '\0';
    r->line.at += first == 'L' || first == 'W' || first == 'V';
    switch (first) {
    case 'L':
        read_frame(r);
        break;
    case 'W':
        read_stack(r);
        break;
    case 'V':
        read_remark(r);
        break;
    default:
        read_record(r, first);
        break;
    }
}

/* ---- lines ---- */

/* Lines that may still follow. */
enum part {
    PART_GAPS,
    PART_BEGIN, /* a note to readers of 0.1, so after the gaps */
    PART_NOTES,
    PART_RECORDS
};

static void read_line(struct reader *r, enum part *part)
{
    if (*part <= PART_GAPS && flw_line_accept(&r->line, "gaps ")) {
        *part = PART_BEGIN;
        read_gaps(r);
    } else if (*part <= PART_BEGIN && flw_line_accept(&r->line, "begin_ns ")) {
        *part = PART_NOTES;
        read_begin(r);
    } else if (*part <= PART_NOTES && flw_notes_is_line(r->line.begin, r->line.end)) {
        *part = PART_NOTES;
        CHECK(r, flw_notes_add(&r->to.build->notes, r->line.begin, r->line.end), NO_MEMORY);
    } else {
        *part = PART_RECORDS;
        read_record_line(r);
    }
}

static void read_all(struct reader *r)
{
    enum part part = PART_GAPS;
    read_magic(r);
    read_device(r);
    read_fields(r);
    while (!r->line.input->failed && flw_line_next(&r->line)) {
        read_line(r, &part);
    }
    CHECK(r, are_stacks_used(r) && !r->has_new_remark, "no record has the last stack or remark");
}

bool flw_text_read(struct flw_input *input, int device, struct flw_build *build)
{
    (void)device; /* a file has one device */
    struct reader r = {.line = {.input = input}, .to.build = build};
    read_all(&r);
    flw_reader_end(&r.to);
    return !input->failed;
}
