/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the text form of a trace. Each trace has exactly one text and a text that differs from it
 * in one byte is refused or another trace, so text to trace to text is byte-identical.
 *
 *   text     = magic device stream* fields [gaps] note* segment* initial* event*
 *   magic    = "#fallow-trace 1"
 *   device   = "device" N                    ordinal in the recording
 *   stream   = "stream" HANDLE               numbered from 0 in the order of these lines
 *   fields   = "fields none" | "fields" ["times"] ["addresses"] ["segments"]
 *   gaps     = "gaps" UNKNOWN LOST           frees skipped and put in; only where one is not 0
 *   note     = KEY VALUE | "# " TEXT         kept as it is; KEY of a-z, 0-9, _; not a key above
 *   segment  = "S" 0 SIZE STREAM ("large" | "small") ["expandable"] [ADDRESS]
 *   initial  = "P" 0 ID SIZE STREAM [ADDRESS]
 *   event    = "A" TIME ID SIZE STREAM [ADDRESS]                      allocated
 *            | "F" TIME ID STREAM                                     freed by the user
 *            | "C" TIME ID STREAM                                     that free is complete
 *            | "U" TIME ID STREAM                                     the stream uses the block
 *            | ("S+" | "S-" | "M+" | "M-") TIME SIZE STREAM [ADDRESS] segment alloc, free, map,
 * unmap | "O" TIME SIZE STREAM                                   out of memory | "N" TIME mark
 *
 * One line each; one space between columns; the last line ends in a newline too. Numbers are
 * decimal without leading zeros: TIME in ns, never falling, 0 without "times"; SIZE in bytes;
 * STREAM a number of a stream line; ID the block's, counted from 0 in the order of P and A lines;
 * ADDRESS is "@" and a decimal number, there exactly where "addresses" is. P lines are in address
 * order.
 */
#include "trace/text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "trace/array.h"
#include "trace/build.h"
#include "trace/line.h"
#include "trace/measure.h"
#include "trace/output.h"

enum stage {
    STAGE_LENT,
    STAGE_FREED,
    STAGE_DONE
};

struct reader {
    struct flw_line line;
    struct flw_build build;
    uint8_t *stages; /* of each block */
    size_t stage_room;
    char *notes;
    size_t notes_bytes, notes_room;
    uint64_t time_ns;
};

static bool fail_memory(struct reader *r)
{
    return flw_line_fail(&r->line, "no memory to hold the trace");
}

/* ---- header -----------------------------------------------------------------------------------
 */

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

/* All lines from "stream" to "fields". */
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

static bool is_reserved_key(const char *key, size_t bytes)
{
    static const char *const reserved[] = {"device", "stream", "fields", "gaps"};
    for (size_t i = 0; i < sizeof(reserved) / sizeof(reserved[0]); i++) {
        if (strlen(reserved[i]) == bytes && memcmp(reserved[i], key, bytes) == 0) {
            return true;
        }
    }
    return false;
}

/* "# text", or "key value" of printable characters. */
static bool is_note(const struct flw_line *line)
{
    const char *c = line->begin;
    if (*c == '#') {
        c++;
    } else {
        while (c < line->end &&
               ((*c >= 'a' && *c <= 'z') || (*c >= '0' && *c <= '9') || *c == '_')) {
            c++;
        }
        if (c == line->begin || is_reserved_key(line->begin, (size_t)(c - line->begin))) {
            return false;
        }
    }
    if (c >= line->end || *c != ' ') {
        return false;
    }
    for (; c < line->end; c++) {
        if ((unsigned char)*c < 0x20 || *c == 0x7F) {
            return false;
        }
    }
    return true;
}

static bool add_note(struct reader *r)
{
    size_t bytes = (size_t)(r->line.end - r->line.begin) + 1;
    while (r->notes_bytes + bytes >= r->notes_room) {
        char *notes = flw_array_reserve(r->notes, r->notes_room, &r->notes_room, 1);
        if (notes == NULL) {
            return fail_memory(r);
        }
        r->notes = notes;
    }
    memcpy(r->notes + r->notes_bytes, r->line.begin, bytes);
    r->notes_bytes += bytes;
    r->notes[r->notes_bytes] = '\0';
    return true;
}

/* ---- records ----------------------------------------------------------------------------------
 */

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

/* The last column of a record that can have an address. */
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
    return flw_line_take_end(&r->line);
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

/* "ID SIZE STREAM [ADDRESS]" of the next block. */
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
        !take_address(r, &block->address)) {
        return false;
    }
    uint8_t *stages = flw_array_reserve(r->stages, number, &r->stage_room, sizeof(*stages));
    if (stages == NULL) {
        return fail_memory(r);
    }
    r->stages = stages;
    stages[number] = STAGE_LENT;
    return flw_build_add_block(&r->build, block) || fail_memory(r);
}

static bool add_event(struct reader *r, const struct flw_trace_event *event)
{
    return flw_build_add_event(&r->build, event) || fail_memory(r);
}

static bool read_initial_segment(struct reader *r)
{
    struct flw_trace_segment segment = {0};
    struct flw_trace *trace = r->build.trace;
    if (trace->block_count > 0 || trace->event_count > 0) {
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
           (flw_build_add_segment(&r->build, &segment) || fail_memory(r));
}

static bool read_initial_block(struct reader *r)
{
    struct flw_trace_block block;
    struct flw_trace *trace = r->build.trace;
    if (trace->event_count > 0) {
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
    uint8_t wanted = op == FLW_TRACE_FREE_DONE ? STAGE_FREED : STAGE_LENT;
    if (r->stages[id] != wanted) {
        return flw_line_fail(&r->line, "block %" PRIu64 " is %s", id,
                             r->stages[id] == STAGE_LENT    ? "not freed yet"
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
        !take_stream(r, &event.stream) || !flw_line_take_end(&r->line)) {
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
           take_stream(r, &event.stream) && take_address(r, &event.address) && add_event(r, &event);
}

static bool read_oom(struct reader *r)
{
    struct flw_trace_event event = {.op = FLW_TRACE_OOM, .block = UINT32_MAX};
    return take_time(r, &event.time_ns) && flw_line_take_column(&r->line, &event.size_bytes) &&
           take_stream(r, &event.stream) && flw_line_take_end(&r->line) && add_event(r, &event);
}

static bool read_mark(struct reader *r)
{
    struct flw_trace_event event = {.op = FLW_TRACE_MARK, .block = UINT32_MAX};
    return take_time(r, &event.time_ns) && flw_line_take_end(&r->line) && add_event(r, &event);
}

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
    for (uint8_t op = FLW_TRACE_SEGMENT_ALLOC; op <= FLW_TRACE_SEGMENT_UNMAP; op++) {
        if (flw_line_accept(&r->line, segment_records[op])) {
            return read_segment_event(r, op);
        }
    }
    if (flw_line_accept(&r->line, "S")) {
        return read_initial_segment(r);
    }
    return flw_line_fail(&r->line, "not a record");
}

static bool read_record(struct reader *r)
{
    char op = r->line.at < r->line.end ? *r->line.at : '\0';
    if (op == 'S' || op == 'M') {
        return read_segment_record(r);
    }
    r->line.at += op != '\0';
    switch (op) {
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
    case 'O':
        return read_oom(r);
    case 'N':
        return read_mark(r);
    default:
        return flw_line_fail(&r->line, "neither a record nor a \"key value\" line");
    }
}

static bool read_lines(struct reader *r)
{
    bool is_first = true;
    bool is_header = true;
    while (flw_line_next(&r->line)) {
        bool is_gaps = is_first && flw_line_accept(&r->line, "gaps ");
        is_first = false;
        is_header = is_header && (is_gaps || is_note(&r->line));
        bool is_read = is_gaps ? read_gaps(r) : is_header ? add_note(r) : read_record(r);
        if (!is_read) {
            return false;
        }
    }
    return !r->line.input->failed;
}

static bool read_all(struct reader *r)
{
    struct flw_trace *trace = r->build.trace;
    if (!read_magic(r) || !read_device(r) || !read_fields(r) || !read_lines(r)) {
        return false;
    }
    trace->notes = r->notes;
    r->notes = NULL;
    const char *wrong = flw_measure_trace(trace);
    return wrong == NULL || flw_input_fail(r->line.input, 0, "%s", wrong);
}

bool flw_text_read(struct flw_input *input, struct flw_trace **out_trace)
{
    struct reader r = {.line = {.input = input}};
    *out_trace = NULL;
    bool is_read = flw_build_init(&r.build, input->name, "text") ? read_all(&r) : fail_memory(&r);
    if (is_read) {
        *out_trace = flw_build_take(&r.build);
    }
    flw_build_finish(&r.build);
    free(r.stages);
    free(r.notes);
    return is_read;
}

/* ---- writing ----------------------------------------------------------------------------------
 */

static void print_address(const struct flw_trace *trace, uint64_t address, FILE *file)
{
    if (trace->has_addresses) {
        fprintf(file, " @%" PRIu64, address);
    }
    putc('\n', file);
}

static void print_header(const struct flw_trace *trace, FILE *file)
{
    fprintf(file, FLW_TEXT_MAGIC "1\ndevice %d\n", trace->device);
    for (size_t i = 0; i < trace->stream_count; i++) {
        fprintf(file, "stream %" PRIu64 "\n", trace->streams[i]);
    }
    bool has_any = trace->has_times || trace->has_addresses || trace->has_segments;
    fprintf(file, "fields%s%s%s%s\n", trace->has_times ? " times" : "",
            trace->has_addresses ? " addresses" : "", trace->has_segments ? " segments" : "",
            has_any ? "" : " none");
    if (trace->unknown_free_count > 0 || trace->lost_free_count > 0) {
        fprintf(file, "gaps %" PRIu64 " %" PRIu64 "\n", trace->unknown_free_count,
                trace->lost_free_count);
    }
    if (trace->notes != NULL) {
        fputs(trace->notes, file);
    }
}

static void print_initial(const struct flw_trace *trace, FILE *file)
{
    for (size_t i = 0; i < trace->segment_count; i++) {
        const struct flw_trace_segment *segment = &trace->segments[i];
        fprintf(file, "S 0 %" PRIu64 " %u %s%s", segment->size_bytes, segment->stream,
                segment->is_large ? "large" : "small", segment->is_expandable ? " expandable" : "");
        print_address(trace, segment->address, file);
    }
    for (size_t i = 0; i < trace->initial_count; i++) {
        const struct flw_trace_block *block = &trace->blocks[i];
        fprintf(file, "P 0 %zu %" PRIu64 " %u", i, block->size_bytes, block->stream);
        print_address(trace, block->address, file);
    }
}

static void print_event(const struct flw_trace *trace, const struct flw_trace_event *event,
                        FILE *file)
{
    static const char block_records[] = {
        [FLW_TRACE_FREE] = 'F', [FLW_TRACE_FREE_DONE] = 'C', [FLW_TRACE_USE] = 'U'};
    switch (event->op) {
    case FLW_TRACE_ALLOC:
        fprintf(file, "A %" PRIu64 " %u %" PRIu64 " %u", event->time_ns, event->block,
                event->size_bytes, event->stream);
        print_address(trace, event->address, file);
        break;
    case FLW_TRACE_FREE:
    case FLW_TRACE_FREE_DONE:
    case FLW_TRACE_USE:
        fprintf(file, "%c %" PRIu64 " %u %u\n", block_records[event->op], event->time_ns,
                event->block, event->stream);
        break;
    case FLW_TRACE_OOM:
        fprintf(file, "O %" PRIu64 " %" PRIu64 " %u\n", event->time_ns, event->size_bytes,
                event->stream);
        break;
    case FLW_TRACE_MARK:
        fprintf(file, "N %" PRIu64 "\n", event->time_ns);
        break;
    default:
        fprintf(file, "%s %" PRIu64 " %" PRIu64 " %u", segment_records[event->op], event->time_ns,
                event->size_bytes, event->stream);
        print_address(trace, event->address, file);
        break;
    }
}

void flw_text_print(const struct flw_trace *trace, FILE *file)
{
    print_header(trace, file);
    print_initial(trace, file);
    for (size_t i = 0; i < trace->event_count; i++) {
        print_event(trace, &trace->events[i], file);
    }
}

bool flw_trace_write_text(const struct flw_trace *trace, const char *path, char *message)
{
    struct flw_output output;
    if (!flw_output_begin(&output, path, message)) {
        return false;
    }
    flw_text_print(trace, output.file);
    return flw_output_commit(&output, message);
}
