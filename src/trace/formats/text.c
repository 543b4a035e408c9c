/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: reading the text form of a trace; text.h specifies it.
 */
#include "trace/formats/text.h"

#include <inttypes.h>
#include <stdlib.h>

#include "record/array.h"
#include "trace/formats/textstacks.h"
#include "trace/io/line.h"
#include "trace/trace/build.h"
#include "trace/trace/measure.h"
#include "trace/trace/notes.h"

enum stage {
    STAGE_LIVE,
    STAGE_FREED,
    STAGE_DONE
};

struct reader {
    struct flw_line line;
    struct flw_build build;
    uint8_t *stages; /* of each block */
    size_t stage_room;
    struct flw_notes notes;
    uint64_t time_ns;
    struct flw_textstacks stacks;
};

static bool fail_memory(struct reader *r)
{
    return flw_line_fail(&r->line, "no memory to hold the trace");
}

/* ---- header ---- */

static bool read_magic(struct reader *r)
{
    if (!flw_line_next(&r->line) || !flw_line_accept(&r->line, FLW_TEXT_MAGIC)) {
        return flw_line_fail(&r->line, "not a fallow text trace");
    }
    uint64_t version;
    if (!flw_line_take_number(&r->line, &version)) {
        return false;
    }
    if (version != 1) {
        return flw_line_fail(&r->line, "version %" PRIu64 " of the text form; this reads version 1",
                             version);
    }
    return flw_line_take_end(&r->line);
}

static bool read_device(struct reader *r)
{
    uint64_t device;
    if (!flw_line_next(&r->line) || !flw_line_accept(&r->line, "device ")) {
        return flw_line_fail(&r->line, "\"device N\" expected");
    }
    if (!flw_line_take_number(&r->line, &device) || !flw_line_take_end(&r->line)) {
        return false;
    }
    r->build.trace->device = (int)device;
    return device <= INT32_MAX || flw_line_fail(&r->line, "not a device number");
}

static bool read_stream(struct reader *r)
{
    uint64_t handle;
    uint16_t stream;
    size_t next = r->build.trace->stream_count;
    if (!flw_line_take_number(&r->line, &handle) || !flw_line_take_end(&r->line)) {
        return false;
    }
    if (next == FLW_BUILD_STREAMS_MAX) {
        return flw_line_fail(&r->line, "more than %d streams", FLW_BUILD_STREAMS_MAX);
    }
    if (!flw_build_add_stream(&r->build, handle, &stream)) {
        return fail_memory(r);
    }
    return stream == next || flw_line_fail(&r->line, "the stream is listed twice");
}

/* Read all lines from "stream" to "fields". */
static bool read_fields(struct reader *r)
{
    struct flw_trace *trace = r->build.trace;
    while (flw_line_next(&r->line) && flw_line_accept(&r->line, "stream ")) {
        if (!read_stream(r)) {
            return false;
        }
    }
    if (r->line.input->failed || !flw_line_accept(&r->line, "fields")) {
        return flw_line_fail(&r->line, "\"stream HANDLE\" or \"fields ...\" expected");
    }
    trace->has_times = flw_line_accept(&r->line, " times");
    trace->has_addresses = flw_line_accept(&r->line, " addresses");
    trace->has_segments = flw_line_accept(&r->line, " segments");
    if (!trace->has_times && !trace->has_addresses && !trace->has_segments &&
        !flw_line_accept(&r->line, " none")) {
        return flw_line_fail(&r->line, "times, addresses, segments or none expected");
    }
    return flw_line_take_end(&r->line);
}

static bool read_begin(struct reader *r)
{
    struct flw_trace *trace = r->build.trace;
    if (!trace->has_times) {
        return flw_line_fail(&r->line, "\"begin_ns\" without times");
    }
    if (!flw_line_take_number(&r->line, &trace->begin_ns)) {
        return false;
    }
    return trace->begin_ns == 0 ? flw_line_fail(&r->line, "\"begin_ns\" is a moment after 1970")
                                : flw_line_take_end(&r->line);
}

static bool read_gaps(struct reader *r)
{
    struct flw_trace *trace = r->build.trace;
    if (!flw_line_take_number(&r->line, &trace->unknown_free_count) ||
        !flw_line_take_column(&r->line, &trace->lost_free_count)) {
        return false;
    }
    if (trace->unknown_free_count == 0 && trace->lost_free_count == 0) {
        return flw_line_fail(&r->line, "\"gaps\" without a gap");
    }
    return flw_line_take_end(&r->line);
}

static bool add_note(struct reader *r)
{
    return flw_notes_add(&r->notes, r->line.begin, r->line.end) || fail_memory(r);
}

/* ---- records ---- */

static bool take_stream(struct reader *r, uint16_t *out)
{
    uint64_t stream;
    if (!flw_line_take_column(&r->line, &stream)) {
        return false;
    }
    if (stream >= r->build.trace->stream_count) {
        return flw_line_fail(&r->line, "stream %" PRIu64 " is not in the header", stream);
    }
    *out = (uint16_t)stream;
    return true;
}

/* Read the context of the next record, after the columns. */
static bool take_context(struct reader *r, size_t record)
{
    struct flw_trace_context context = {.record = record};
    uint32_t stack;
    return flw_line_take_keyed(&r->line, " thread=", &context.thread) &&
           flw_line_take_keyed(&r->line, " tag=", &context.tag) &&
           flw_line_take_keyed(&r->line, " pool=", &context.pool) &&
           flw_textstacks_take_stack(&r->stacks, &stack) &&
           ((flw_build_add_context(&r->build, &context) &&
             flw_build_set_stack(&r->build, record, stack)) ||
            fail_memory(r));
}

static size_t next_record(const struct reader *r)
{
    return r->build.trace->initial_count + r->build.trace->event_count;
}

static bool take_context_and_end(struct reader *r)
{
    return take_context(r, next_record(r)) && flw_line_take_end(&r->line);
}

static bool take_address(struct reader *r, uint64_t *out)
{
    *out = 0;
    if (r->build.trace->has_addresses) {
        if (!flw_line_take_space(&r->line)) {
            return false;
        }
        if (!flw_line_accept(&r->line, "@")) {
            return flw_line_fail(&r->line, "the header promises an @address");
        }
        if (!flw_line_take_number(&r->line, out)) {
            return false;
        }
    }
    return true;
}

static bool take_zero_time(struct reader *r)
{
    uint64_t time_ns;
    if (!flw_line_take_column(&r->line, &time_ns)) {
        return false;
    }
    return time_ns == 0 ||
           flw_line_fail(&r->line, "what was there before the first event has time 0");
}

static bool take_time(struct reader *r, uint64_t *out_ns)
{
    if (!flw_line_take_column(&r->line, out_ns)) {
        return false;
    }
    if (*out_ns < r->time_ns) {
        return flw_line_fail(&r->line, "time falls from %" PRIu64 " to %" PRIu64, r->time_ns,
                             *out_ns);
    }
    if (*out_ns != 0 && !r->build.trace->has_times) {
        return flw_line_fail(&r->line, "a time, but the header says there are none");
    }
    r->time_ns = *out_ns;
    return true;
}

/* Read "ID SIZE STREAM [ADDRESS]" of the next block. */
static bool take_block(struct reader *r, struct flw_trace_block *block)
{
    uint64_t id;
    size_t number = r->build.trace->block_count;
    *block = (struct flw_trace_block){0};
    if (!flw_line_take_column(&r->line, &id)) {
        return false;
    }
    if (id != number || number >= UINT32_MAX) {
        return flw_line_fail(&r->line, "the next block's number is %zu", number);
    }
    if (!flw_line_take_column(&r->line, &block->size_bytes) || !take_stream(r, &block->stream) ||
        !take_address(r, &block->address) || !take_context_and_end(r)) {
        return false;
    }
    if (!FLW_ARRAY_FITS(r->stages, number, r->stage_room)) {
        return fail_memory(r);
    }
    r->stages[number] = STAGE_LIVE;
    return flw_build_add_block(&r->build, block) || fail_memory(r);
}

static bool add_event(struct reader *r, const struct flw_trace_event *event)
{
    return flw_textstacks_add_remark(&r->stacks, next_record(r)) &&
           (flw_build_add_event(&r->build, event) || fail_memory(r));
}

static bool read_initial_segment(struct reader *r)
{
    struct flw_trace_segment segment = {0};
    struct flw_trace *trace = r->build.trace;
    if (trace->block_count > 0 || trace->event_count > 0 || r->stacks.has_new_remark) {
        return flw_line_fail(&r->line, "S lines come before blocks and events");
    }
    if (!take_zero_time(r) || !flw_line_take_column(&r->line, &segment.size_bytes) ||
        !take_stream(r, &segment.stream)) {
        return false;
    }
    segment.is_large = flw_line_accept(&r->line, " large");
    if (!segment.is_large && !flw_line_accept(&r->line, " small")) {
        return flw_line_fail(&r->line, "large or small expected");
    }
    segment.is_expandable = flw_line_accept(&r->line, " expandable");
    return take_address(r, &segment.address) &&
           flw_line_take_keyed(&r->line, " pool=", &segment.pool) &&
           flw_textstacks_take_stack(&r->stacks, &segment.stack) && flw_line_take_end(&r->line) &&
           (flw_build_add_segment(&r->build, &segment) || fail_memory(r));
}

static bool read_initial_block(struct reader *r)
{
    struct flw_trace_block block;
    struct flw_trace *trace = r->build.trace;
    if (trace->event_count > 0 || r->stacks.has_new_remark) {
        return flw_line_fail(&r->line, "P lines come before events");
    }
    uint64_t previous = trace->block_count > 0 ? trace->blocks[trace->block_count - 1].address : 0;
    if (!take_zero_time(r) || !take_block(r, &block)) {
        return false;
    }
    trace->initial_count++;
    return block.address >= previous || flw_line_fail(&r->line, "P lines are in address order");
}

static bool read_alloc(struct reader *r)
{
    struct flw_trace_block block;
    struct flw_trace_event event = {.op = FLW_TRACE_ALLOC};
    event.block = (uint32_t)r->build.trace->block_count;
    if (!take_time(r, &event.time_ns) || !take_block(r, &block)) {
        return false;
    }
    event.address = block.address;
    event.size_bytes = block.size_bytes;
    event.stream = block.stream;
    return add_event(r, &event);
}

static bool step_stage(struct reader *r, uint64_t id, uint8_t op)
{
    uint8_t wanted = op == FLW_TRACE_FREE_DONE ? STAGE_FREED : STAGE_LIVE;
    if (r->stages[id] != wanted) {
        return flw_line_fail(&r->line, "block %" PRIu64 " is %s", id,
                             r->stages[id] == STAGE_LIVE    ? "not freed yet"
                             : r->stages[id] == STAGE_FREED ? "already freed"
                                                            : "already freed and reused");
    }
    if (op == FLW_TRACE_FREE) {
        r->stages[id] = STAGE_FREED;
    } else if (op == FLW_TRACE_FREE_DONE) {
        r->stages[id] = STAGE_DONE;
    }
    return true;
}

static bool read_block_event(struct reader *r, uint8_t op)
{
    uint64_t id;
    struct flw_trace_event event = {.op = op};
    if (!take_time(r, &event.time_ns) || !flw_line_take_column(&r->line, &id) ||
        !take_stream(r, &event.stream) || !take_context_and_end(r)) {
        return false;
    }
    if (id >= r->build.trace->block_count) {
        return flw_line_fail(&r->line, "block %" PRIu64 " does not exist", id);
    }
    if (!step_stage(r, id, op)) {
        return false;
    }
    event.block = (uint32_t)id;
    event.address = r->build.trace->blocks[id].address;
    event.size_bytes = r->build.trace->blocks[id].size_bytes;
    return add_event(r, &event);
}

static bool read_segment_event(struct reader *r, uint8_t op)
{
    struct flw_trace_event event = {.op = op, .block = UINT32_MAX};
    return take_time(r, &event.time_ns) && flw_line_take_column(&r->line, &event.size_bytes) &&
           take_stream(r, &event.stream) && take_address(r, &event.address) &&
           take_context_and_end(r) && add_event(r, &event);
}

/* ---- records with a detail ---- */

static bool add_detail(struct reader *r, const struct flw_trace_detail *detail)
{
    return flw_build_add_detail(&r->build, *detail) || fail_memory(r);
}

/* Read " KEY=N"; FLW_TRACE_UNKNOWN if missing. */
static bool take_known(struct reader *r, const char *key, uint64_t *out)
{
    *out = FLW_TRACE_UNKNOWN;
    if (!flw_line_accept(&r->line, key)) {
        return true;
    }
    return flw_line_take_number(&r->line, out) &&
           (*out != FLW_TRACE_UNKNOWN || flw_line_fail(&r->line, "more bytes than there are"));
}

static bool read_oom(struct reader *r)
{
    struct flw_trace_event event = {.op = FLW_TRACE_OOM, .block = UINT32_MAX};
    struct flw_trace_detail detail = flw_build_no_detail();
    if (!take_time(r, &event.time_ns) || !flw_line_take_column(&r->line, &event.size_bytes) ||
        !take_stream(r, &event.stream) || !take_known(r, " free=", &detail.free_bytes) ||
        !take_known(r, " largest=", &detail.largest_bytes) || !take_context_and_end(r) ||
        !add_event(r, &event)) {
        return false;
    }
    bool is_known =
        detail.free_bytes != FLW_TRACE_UNKNOWN || detail.largest_bytes != FLW_TRACE_UNKNOWN;
    return !is_known || add_detail(r, &detail);
}

/* Read a quoted name up to the end of the line. */
static bool take_name(struct reader *r, uint32_t *out)
{
    if (!flw_line_accept(&r->line, " \"")) {
        return flw_line_fail(&r->line, "a name in quotes expected at the end");
    }
    const char *name = r->line.at;
    size_t bytes = (size_t)(r->line.end - name);
    if (bytes < 2 || name[bytes - 1] != '"' || !flw_trace_is_name(name, bytes - 1)) {
        return flw_line_fail(&r->line, "a name is 1 to %d printable bytes in quotes",
                             FLW_TRACE_NAME_BYTES);
    }
    return flw_build_add_name(&r->build, name, bytes - 1, out) || fail_memory(r);
}

static bool read_named(struct reader *r, uint8_t op)
{
    struct flw_trace_event event = {.op = op, .block = UINT32_MAX};
    struct flw_trace_detail detail = flw_build_no_detail();
    if (!take_time(r, &event.time_ns) || !take_context(r, next_record(r))) {
        return false;
    }
    if (r->line.at == r->line.end && !flw_trace_op_needs_name(op)) {
        return add_event(r, &event);
    }
    return take_name(r, &detail.name) && add_event(r, &event) && add_detail(r, &detail);
}

static bool read_drop(struct reader *r)
{
    struct flw_trace_event event = {.op = FLW_TRACE_DROP, .block = UINT32_MAX};
    struct flw_trace_detail detail = flw_build_no_detail();
    if (!take_time(r, &event.time_ns) || !flw_line_take_column(&r->line, &detail.lost_count) ||
        !take_context_and_end(r)) {
        return false;
    }
    if (detail.lost_count == 0) {
        return flw_line_fail(&r->line, "no event is missing");
    }
    return add_event(r, &event) && add_detail(r, &detail);
}

static bool read_sync(struct reader *r)
{
    struct flw_trace_event event = {.block = UINT32_MAX};
    struct flw_trace_detail detail = flw_build_no_detail();
    if (!take_time(r, &event.time_ns)) {
        return false;
    }
    if (flw_line_accept(&r->line, " device")) {
        event.op = FLW_TRACE_SYNC_DEVICE;
        return take_context_and_end(r) && add_event(r, &event);
    }
    event.op = flw_line_accept(&r->line, " stream")  ? FLW_TRACE_SYNC_STREAM
               : flw_line_accept(&r->line, " event") ? FLW_TRACE_SYNC_EVENT
               : flw_line_accept(&r->line, " wait")  ? FLW_TRACE_SYNC_WAIT
                                                     : FLW_TRACE_OP_COUNT;
    if (event.op == FLW_TRACE_OP_COUNT) {
        return flw_line_fail(&r->line, "device, stream, event or wait expected");
    }
    bool is_wait = event.op == FLW_TRACE_SYNC_WAIT;
    return take_stream(r, &event.stream) && (!is_wait || take_stream(r, &detail.other_stream)) &&
           take_context_and_end(r) && add_event(r, &event) && (!is_wait || add_detail(r, &detail));
}

static bool read_pool(struct reader *r)
{
    struct flw_trace_event event = {.block = UINT32_MAX};
    event.op = flw_line_accept(&r->line, "+") ? FLW_TRACE_POOL_BEGIN : FLW_TRACE_POOL_END;
    if (event.op == FLW_TRACE_POOL_END && !flw_line_accept(&r->line, "-")) {
        return flw_line_fail(&r->line, "not a record");
    }
    return take_time(r, &event.time_ns) && take_stream(r, &event.stream) &&
           take_context_and_end(r) && add_event(r, &event);
}

static bool read_empty_cache(struct reader *r)
{
    struct flw_trace_event event = {.op = FLW_TRACE_EMPTY_CACHE, .block = UINT32_MAX};
    return take_time(r, &event.time_ns) && take_context_and_end(r) && add_event(r, &event);
}

/* ---- which record ---- */

static const char *const segment_records[] = {
    [FLW_TRACE_SEGMENT_ALLOC] = "S+",
    [FLW_TRACE_SEGMENT_FREE] = "S-",
    [FLW_TRACE_SEGMENT_MAP] = "M+",
    [FLW_TRACE_SEGMENT_UNMAP] = "M-",
};

static bool read_segment_record(struct reader *r)
{
    if (!r->build.trace->has_segments) {
        return flw_line_fail(&r->line, "a segment, but the header says there are none");
    }
    for (int op = FLW_TRACE_SEGMENT_ALLOC; op <= FLW_TRACE_SEGMENT_UNMAP; op++) {
        if (flw_line_accept(&r->line, segment_records[op])) {
            return read_segment_event(r, (uint8_t)op);
        }
    }
    if (flw_line_accept(&r->line, "S")) {
        return read_initial_segment(r);
    }
    return flw_line_fail(&r->line, "not a record");
}

static bool read_rare_record(struct reader *r, char op)
{
    switch (op) {
    case 'O':
        return read_oom(r);
    case 'N':
        return read_named(r, FLW_TRACE_MARK);
    case 'B':
        return read_named(r, FLW_TRACE_PHASE_BEGIN);
    case 'E':
        return read_named(r, FLW_TRACE_PHASE_END);
    case 'K':
        return read_named(r, FLW_TRACE_CONFIG);
    case 'Y':
        return read_sync(r);
    case 'G':
        return read_pool(r);
    case 'X':
        return read_empty_cache(r);
    case 'D':
        return read_drop(r);
    default:
        return flw_line_fail(&r->line, "neither a record nor a \"key value\" line");
    }
}

static bool read_record(struct reader *r)
{
    char op = r->line.at < r->line.end ? *r->line.at : '\0';
    if (op == 'S' || op == 'M') {
        return read_segment_record(r);
    }
    r->line.at += op != '\0';
    switch (op) {
    case 'L':
        return flw_textstacks_read_frame(&r->stacks);
    case 'W':
        return flw_textstacks_read_stack(&r->stacks);
    case 'V':
        return flw_textstacks_read_remark(&r->stacks);
    case 'P':
        return read_initial_block(r);
    case 'A':
        return read_alloc(r);
    case 'F':
        return read_block_event(r, FLW_TRACE_FREE);
    case 'C':
        return read_block_event(r, FLW_TRACE_FREE_DONE);
    case 'U':
        return read_block_event(r, FLW_TRACE_USE);
    default:
        return read_rare_record(r, op);
    }
}

/* Lines that may still follow. */
enum part {
    PART_GAPS,
    PART_BEGIN, /* a note to readers of 0.1, so after the gaps */
    PART_NOTES,
    PART_RECORDS
};

static bool read_line(struct reader *r, enum part *part)
{
    if (*part <= PART_GAPS && flw_line_accept(&r->line, "gaps ")) {
        *part = PART_BEGIN;
        return read_gaps(r);
    }
    if (*part <= PART_BEGIN && flw_line_accept(&r->line, "begin_ns ")) {
        *part = PART_NOTES;
        return read_begin(r);
    }
    bool is_note = *part <= PART_NOTES && flw_notes_is_line(r->line.begin, r->line.end);
    *part = is_note ? PART_NOTES : PART_RECORDS;
    return is_note ? add_note(r) : read_record(r);
}

static bool read_lines(struct reader *r)
{
    enum part part = PART_GAPS;
    while (flw_line_next(&r->line)) {
        if (!read_line(r, &part)) {
            return false;
        }
    }
    return !r->line.input->failed && flw_textstacks_check_end(&r->stacks);
}

static bool read_all(struct reader *r)
{
    struct flw_trace *trace = r->build.trace;
    if (!read_magic(r) || !read_device(r) || !read_fields(r) || !read_lines(r)) {
        return false;
    }
    trace->notes = flw_notes_take(&r->notes);
    flw_stacks_settle(&trace->stacks);
    const char *wrong = flw_measure_trace(trace);
    return wrong == NULL || flw_input_fail(r->line.input, 0, "%s", wrong);
}

bool flw_text_read(struct flw_input *input, int device, struct flw_trace **out_trace)
{
    (void)device; /* a file has one device */
    struct reader r = {.line = {.input = input}};
    r.stacks = (struct flw_textstacks){.line = &r.line, .build = &r.build};
    bool is_read = flw_build_init(&r.build, input->name, "text") ? read_all(&r) : fail_memory(&r);
    flw_build_end(&r.build, is_read, out_trace);
    free(r.stages);
    flw_notes_finish(&r.notes);
    return is_read;
}
