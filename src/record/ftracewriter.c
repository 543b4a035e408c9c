/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: filling chunks and closing them.
 */
#include "record/ftracewriter.h"

#include <stdlib.h>
#include <string.h>

#include "record/frame.h"
#include "record/stackids.h"

#define NS_PER_SECOND  UINT64_C(1000000000)
#define END_BYTES      40
#define DICT_KIND      1 /* bytes of an entry's kind */
#define REMARK_BYTES   (3 * FLW_WIRE_VARINT_BYTES)
#define ENTRY_OVERHEAD (DICT_KIND + 2 * FLW_WIRE_VARINT_BYTES)

/* The open chunk; type 0: none. */
struct chunk {
    struct flw_frame_chunk frame;
    struct flw_wire_out out;
    struct flw_trace_context context;
    uint64_t last_ns;
    unsigned char payload[FLW_FTRACE_CHUNK_BYTES];
};

/* Data that precedes the open chunk: stacks added since the last one, and the stack of each of the
 * records. */
struct stacks {
    struct flw_wire_out entries, numbers, remarks;
    uint32_t entry_count, number_count;
    struct flw_stackids ids;
    uint32_t before[FLW_FTRACE_STACK_DEPTH]; /* frames of the last one in `entries` */
    size_t before_count;
    uint32_t remark_count, remarked_count; /* records in `remarks`, and those with a remark */
    unsigned char entry_payload[FLW_FTRACE_CHUNK_BYTES], number_payload[FLW_FTRACE_CHUNK_BYTES],
        remark_payload[FLW_FTRACE_CHUNK_BYTES];
};

struct flw_ftrace_writer {
    struct flw_ftrace_sink sink;
    struct flw_ftrace_settings settings;
    struct flw_crc32c crc;
    struct flw_record_state state;
    uint64_t event_count, block_count, segment_count, chunk_count;
    uint64_t stream_count, name_count;
    uint64_t text_count, frame_count, stack_count;
    struct stacks *stacks; /* NULL: none was added yet */
    uint32_t stack;        /* of the record that is added next */
    uint32_t compile_context, user_metadata;
    uint32_t whole_crc;
    bool has_failed;
    struct chunk chunk;
};

static bool write_bytes(struct flw_ftrace_writer *w, const void *bytes, size_t count)
{
    w->whole_crc = flw_crc32c_add(&w->crc, w->whole_crc, bytes, count);
    w->has_failed = w->has_failed || !w->sink.write(w->sink.context, bytes, count);
    return !w->has_failed;
}

/* ---- chunks ---- */

/* Write a chunk with a payload up to `end`. */
static bool write_chunk(struct flw_ftrace_writer *w, struct flw_frame_chunk frame,
                        const unsigned char *payload, const unsigned char *end)
{
    unsigned char header[FLW_FRAME_BYTES];
    frame.payload_bytes = (uint32_t)(end - payload);
    frame.unpacked_bytes = frame.payload_bytes;
    frame.payload_crc = flw_crc32c_add(&w->crc, 0, payload, frame.payload_bytes);
    flw_frame_put_chunk(&w->crc, &frame, header);
    w->chunk_count++;
    return write_bytes(w, header, sizeof(header)) && write_bytes(w, payload, frame.payload_bytes);
}

/* Write the stacks added since the last time. */
static bool write_entries(struct flw_ftrace_writer *w)
{
    struct stacks *stacks = w->stacks;
    if (stacks == NULL || stacks->entry_count == 0) {
        return !w->has_failed;
    }
    struct flw_frame_chunk frame = {.type = FLW_FTRACE_DICT,
                                    .record_count = stacks->entry_count,
                                    .first_event = w->event_count,
                                    .first_block = w->block_count,
                                    .base_ns = w->chunk.last_ns,
                                    .time_scale = w->settings.step_ns};
    bool is_written = write_chunk(w, frame, stacks->entry_payload, stacks->entries.at);
    stacks->entries.at = stacks->entry_payload;
    stacks->entry_count = 0;
    stacks->before_count = 0;
    return is_written;
}

/* Write the stacks of the open chunk's records. */
static bool write_numbers(struct flw_ftrace_writer *w)
{
    struct stacks *stacks = w->stacks;
    if (stacks == NULL || stacks->number_count == 0) {
        return !w->has_failed;
    }
    struct flw_frame_chunk frame = w->chunk.frame;
    frame.type = FLW_FTRACE_STACKS;
    frame.codec = 0;
    frame.record_count = stacks->number_count;
    flw_stackids_end(&stacks->ids, &stacks->numbers);
    bool is_written = write_chunk(w, frame, stacks->number_payload, stacks->numbers.at);
    stacks->numbers.at = stacks->number_payload;
    stacks->number_count = 0;
    stacks->ids = (struct flw_stackids){0};
    return is_written;
}

static bool has_records(const struct flw_ftrace_writer *w)
{
    return w->chunk.frame.type == FLW_FTRACE_SNAPSHOT || w->chunk.frame.type == FLW_FTRACE_EVENTS;
}

/* Write the remarks of the open chunk from the last item on. */
static void put_remark(struct flw_ftrace_writer *w)
{
    struct stacks *stacks = w->stacks;
    uint32_t count = w->chunk.frame.record_count - stacks->remark_count;
    if (count > 0) {
        flw_wire_put_varint(&stacks->remarks, count);
        flw_wire_put_varint(&stacks->remarks, w->compile_context);
        flw_wire_put_varint(&stacks->remarks, w->user_metadata);
        stacks->remark_count += count;
        stacks->remarked_count += w->compile_context != 0 || w->user_metadata != 0 ? count : 0;
    }
}

static bool write_remarks(struct flw_ftrace_writer *w)
{
    struct stacks *stacks = w->stacks;
    bool is_written = !w->has_failed;
    if (stacks == NULL || !has_records(w)) {
        return is_written;
    }
    put_remark(w);
    if (stacks->remarked_count > 0) {
        struct flw_frame_chunk frame = w->chunk.frame;
        frame.type = FLW_FTRACE_REMARKS;
        frame.codec = 0;
        is_written = write_chunk(w, frame, stacks->remark_payload, stacks->remarks.at);
    }
    stacks->remarks.at = stacks->remark_payload;
    stacks->remark_count = 0;
    stacks->remarked_count = 0;
    return is_written;
}

static bool close_chunk(struct flw_ftrace_writer *w)
{
    struct chunk *chunk = &w->chunk;
    bool is_written = write_entries(w);
    if (chunk->frame.type == 0) {
        return is_written;
    }
    is_written = is_written && write_numbers(w) && write_remarks(w) &&
                 write_chunk(w, chunk->frame, chunk->payload, chunk->out.at);
    chunk->frame.type = 0;
    return is_written;
}

static bool open_chunk(struct flw_ftrace_writer *w, enum flw_ftrace_type type, uint32_t thread,
                       uint64_t base_ns)
{
    struct chunk *chunk = &w->chunk;
    bool has_records = type == FLW_FTRACE_SNAPSHOT || type == FLW_FTRACE_EVENTS;
    if (!close_chunk(w)) {
        return false;
    }
    chunk->frame = (struct flw_frame_chunk){
        .type = (uint8_t)type,
        .codec = has_records ? (uint8_t)w->settings.codec : 0,
        .thread = thread,
        .first_event = w->event_count,
        .first_block = w->block_count,
        .base_ns = base_ns,
        .time_scale = w->settings.step_ns,
    };
    chunk->out.at = chunk->payload;
    chunk->context = (struct flw_trace_context){.thread = thread};
    chunk->last_ns = base_ns;
    if (has_records) {
        flw_record_begin(&w->state, w->settings.codec, w->settings.has_addresses, w->block_count);
    }
    return true;
}

/* True if there is room for the stack data of the next record, and for closing the chunk. */
static bool has_stack_room(const struct stacks *stacks)
{
    return stacks == NULL || (stacks->numbers.at + FLW_STACKIDS_BYTES_MAX <=
                                  stacks->number_payload + sizeof(stacks->number_payload) &&
                              stacks->remarks.at + 2 * REMARK_BYTES <=
                                  stacks->remark_payload + sizeof(stacks->remark_payload));
}

/* Open a chunk of that type with room for so many bytes. */
static bool take_chunk(struct flw_ftrace_writer *w, enum flw_ftrace_type type, size_t bytes,
                       uint32_t thread, uint64_t base_ns)
{
    struct chunk *chunk = &w->chunk;
    size_t used = (size_t)(chunk->out.at - chunk->payload);
    if (w->has_failed) {
        return false;
    }
    return (chunk->frame.type == type && sizeof(chunk->payload) - used >= bytes &&
            has_stack_room(w->stacks)) ||
           open_chunk(w, type, thread, base_ns);
}

/* Write the stack of the last record; records before the first with a stack have 0. */
static void put_number(struct flw_ftrace_writer *w)
{
    struct stacks *stacks = w->stacks;
    uint32_t record_count = w->chunk.frame.record_count, stack = w->stack;
    w->stack = 0;
    if (stacks == NULL || (stack == 0 && stacks->number_count == 0)) {
        return;
    }
    for (; stacks->number_count + 1 < record_count; stacks->number_count++) {
        flw_stackids_put(&stacks->ids, 0, &stacks->numbers);
    }
    flw_stackids_put(&stacks->ids, stack, &stacks->numbers);
    stacks->number_count++;
}

static bool put_record(struct flw_ftrace_writer *w, const struct flw_record *record)
{
    if (!flw_record_put(&w->state, record, &w->chunk.out)) {
        w->has_failed = true;
        return false;
    }
    if (record->op != FLW_RECORD_CONTEXT) {
        w->chunk.frame.record_count++;
        put_number(w);
    }
    return true;
}

/* Open a chunk with room for a record and a change of context before it, and write that change. */
static bool begin_record(struct flw_ftrace_writer *w, enum flw_ftrace_type type,
                         const struct flw_trace_context *context, uint64_t time_ns)
{
    if (!take_chunk(w, type, 2 * FLW_RECORD_BYTES_MAX, context->thread, time_ns)) {
        return false;
    }
    struct flw_trace_context *now = &w->chunk.context;
    if (now->thread == context->thread && now->tag == context->tag && now->pool == context->pool) {
        return true;
    }
    struct flw_record record = {.op = FLW_RECORD_CONTEXT,
                                .time = w->state.time,
                                .thread = context->thread,
                                .tag = context->tag,
                                .pool = context->pool};
    *now = *context;
    return put_record(w, &record);
}

/* ---- the public calls ---- */

static void write_header(struct flw_ftrace_writer *w)
{
    const struct flw_ftrace_settings *settings = &w->settings;
    unsigned char header[FLW_FRAME_BYTES];
    struct flw_frame_file file = {
        .major = FLW_FTRACE_MAJOR,
        .minor = settings->has_stacks || settings->has_remarks ? FLW_FTRACE_MINOR : 0,
        .header_bytes = FLW_FRAME_BYTES,
        .flags = (settings->has_times ? FLW_FTRACE_HAS_TIMES : 0) |
                 (settings->has_addresses ? FLW_FTRACE_HAS_ADDRESSES : 0) |
                 (settings->has_segments ? FLW_FTRACE_HAS_SEGMENTS : 0) |
                 (settings->has_stacks ? FLW_FTRACE_HAS_STACKS : 0) |
                 (settings->has_remarks ? FLW_FTRACE_HAS_REMARKS : 0),
        .wall_ns = settings->wall_ns,
        .mono_ns = settings->mono_ns,
        .ticks_per_second = NS_PER_SECOND,
        .process = settings->process,
        .device = settings->device,
        .device_count = settings->device_count,
    };
    flw_frame_put_file(&w->crc, &file, header);
    write_bytes(w, header, sizeof(header));
}

struct flw_ftrace_writer *flw_ftrace_writer_create(const struct flw_ftrace_sink *sink,
                                                   const struct flw_ftrace_settings *settings)
{
    struct flw_ftrace_writer *w = calloc(1, sizeof(*w));
    if (w == NULL) {
        return NULL;
    }
    w->sink = *sink;
    w->settings = *settings;
    w->chunk.out.at = w->chunk.payload;
    flw_crc32c_init(&w->crc);
    write_header(w);
    return w;
}

void flw_ftrace_writer_destroy(struct flw_ftrace_writer *writer)
{
    if (writer != NULL) {
        flw_record_finish(&writer->state);
        free(writer->stacks);
        free(writer);
    }
}

/* Line by line, so that no line is split. */
bool flw_ftrace_writer_add_notes(struct flw_ftrace_writer *writer, const char *lines)
{
    while (*lines != '\0') {
        size_t bytes = strcspn(lines, "\n");
        bytes += lines[bytes] == '\n';
        if (bytes > FLW_FTRACE_CHUNK_BYTES ||
            !take_chunk(writer, FLW_FTRACE_META, bytes, 0, writer->chunk.last_ns)) {
            writer->has_failed = true;
            return false;
        }
        memcpy(writer->chunk.out.at, lines, bytes);
        writer->chunk.out.at += bytes;
        lines += bytes;
    }
    return !writer->has_failed;
}

static bool add_entry(struct flw_ftrace_writer *w, unsigned kind, const unsigned char *body,
                      size_t bytes)
{
    if (!take_chunk(w, FLW_FTRACE_DICT, bytes + ENTRY_OVERHEAD, 0, w->chunk.last_ns)) {
        return false;
    }
    flw_wire_put_varint(&w->chunk.out, kind);
    flw_wire_put_varint(&w->chunk.out, bytes);
    memcpy(w->chunk.out.at, body, bytes);
    w->chunk.out.at += bytes;
    w->chunk.frame.record_count++;
    return true;
}

bool flw_ftrace_writer_add_stream(struct flw_ftrace_writer *writer, uint64_t handle)
{
    unsigned char body[2 * FLW_WIRE_VARINT_BYTES];
    struct flw_wire_out out = {body};
    flw_wire_put_varint(&out, writer->stream_count++);
    flw_wire_put_varint(&out, handle);
    return add_entry(writer, FLW_FTRACE_STREAM, body, (size_t)(out.at - body));
}

bool flw_ftrace_writer_add_name(struct flw_ftrace_writer *writer, const char *name)
{
    unsigned char body[FLW_TRACE_NAME_BYTES + FLW_WIRE_VARINT_BYTES];
    struct flw_wire_out out = {body};
    size_t bytes = strnlen(name, FLW_TRACE_NAME_BYTES);
    flw_wire_put_varint(&out, writer->name_count++);
    memcpy(out.at, name, bytes);
    return add_entry(writer, FLW_FTRACE_NAME, body, (size_t)(out.at - body) + bytes);
}

/* ---- stacks ---- */

/* Return the place for an entry of that size. NULL: no memory, or the sink failed. */
static struct stacks *begin_stack_entry(struct flw_ftrace_writer *w, size_t bytes)
{
    if (w->stacks == NULL) {
        w->stacks = calloc(1, sizeof(*w->stacks));
        w->has_failed = w->has_failed || w->stacks == NULL;
        if (w->stacks != NULL) {
            w->stacks->entries.at = w->stacks->entry_payload;
            w->stacks->numbers.at = w->stacks->number_payload;
            w->stacks->remarks.at = w->stacks->remark_payload;
        }
    }
    if (w->has_failed) {
        return NULL;
    }
    size_t used = (size_t)(w->stacks->entries.at - w->stacks->entry_payload);
    bool has_room = sizeof(w->stacks->entry_payload) - used >= bytes + ENTRY_OVERHEAD;
    return has_room || write_entries(w) ? w->stacks : NULL;
}

static void put_stack_entry(struct stacks *stacks, enum flw_ftrace_entry kind,
                            const unsigned char *body, size_t bytes)
{
    flw_wire_put_varint(&stacks->entries, kind);
    flw_wire_put_varint(&stacks->entries, bytes);
    memcpy(stacks->entries.at, body, bytes);
    stacks->entries.at += bytes;
    stacks->entry_count++;
}

bool flw_ftrace_writer_add_text(struct flw_ftrace_writer *writer, const char *text)
{
    unsigned char body[FLW_WIRE_VARINT_BYTES + FLW_FTRACE_TEXT_BYTES];
    struct flw_wire_out out = {body};
    size_t bytes = strnlen(text, FLW_FTRACE_TEXT_BYTES);
    struct stacks *stacks = begin_stack_entry(writer, sizeof(body));
    if (stacks == NULL) {
        return false;
    }
    flw_wire_put_varint(&out, writer->text_count++);
    memcpy(out.at, text, bytes);
    put_stack_entry(stacks, FLW_FTRACE_TEXT, body, (size_t)(out.at - body) + bytes);
    return true;
}

bool flw_ftrace_writer_add_frame(struct flw_ftrace_writer *writer, uint32_t function, uint32_t file,
                                 uint32_t line)
{
    unsigned char body[4 * FLW_WIRE_VARINT_BYTES];
    struct flw_wire_out out = {body};
    struct stacks *stacks = begin_stack_entry(writer, sizeof(body));
    if (stacks == NULL) {
        return false;
    }
    flw_wire_put_varint(&out, writer->frame_count++);
    flw_wire_put_varint(&out, function);
    flw_wire_put_varint(&out, file);
    flw_wire_put_varint(&out, line);
    put_stack_entry(stacks, FLW_FTRACE_FRAME, body, (size_t)(out.at - body));
    return true;
}

/* Return how many outermost frames it shares with the stack before. */
static size_t count_shared(const struct stacks *stacks, const uint32_t *frames, size_t count)
{
    size_t shared = 0;
    while (shared < count && shared < stacks->before_count &&
           frames[count - 1 - shared] == stacks->before[stacks->before_count - 1 - shared]) {
        shared++;
    }
    return shared;
}

bool flw_ftrace_writer_add_stack(struct flw_ftrace_writer *writer, const uint32_t *frames,
                                 size_t count)
{
    unsigned char body[(FLW_FTRACE_STACK_DEPTH + 2) * FLW_WIRE_VARINT_BYTES];
    struct flw_wire_out out = {body};
    struct stacks *stacks = begin_stack_entry(writer, sizeof(body));
    if (stacks == NULL) {
        return false;
    }
    size_t shared = count_shared(stacks, frames, count);
    flw_wire_put_varint(&out, ++writer->stack_count);
    flw_wire_put_varint(&out, shared);
    for (size_t i = 0; i < count - shared; i++) {
        flw_wire_put_varint(&out, frames[i]);
    }
    memcpy(stacks->before, frames, count * sizeof(*frames));
    stacks->before_count = count;
    put_stack_entry(stacks, FLW_FTRACE_STACK, body, (size_t)(out.at - body));
    return true;
}

void flw_ftrace_writer_set_stack(struct flw_ftrace_writer *writer, uint32_t stack)
{
    writer->stack = stack;
}

void flw_ftrace_writer_set_remark(struct flw_ftrace_writer *writer, uint32_t compile_context,
                                  uint32_t user_metadata)
{
    bool is_new =
        writer->compile_context != compile_context || writer->user_metadata != user_metadata;
    if (is_new && writer->stacks != NULL && has_records(writer)) {
        put_remark(writer);
    }
    writer->compile_context = compile_context;
    writer->user_metadata = user_metadata;
}

/* ---- records ---- */

/* Compute the steps from the chunk's base to a time. If they do not fit, close the chunk. */
static bool take_steps(struct flw_ftrace_writer *w, uint64_t time_ns, uint64_t *out)
{
    const struct flw_frame_chunk *frame = &w->chunk.frame;
    uint64_t since_ns = time_ns - frame->base_ns;
    *out = 0;
    if (frame->type != FLW_FTRACE_EVENTS) {
        return true;
    }
    *out = frame->time_scale == 1 ? since_ns : since_ns / frame->time_scale;
    if (*out * frame->time_scale == since_ns) {
        return true;
    }
    w->settings.step_ns = 1;
    return close_chunk(w);
}

/* Open the event's chunk, and set the event's time relative to the chunk's base. */
static bool begin_event(struct flw_ftrace_writer *w, const struct flw_trace_context *context,
                        struct flw_record *event)
{
    uint64_t time_ns = event->time < w->chunk.last_ns ? w->chunk.last_ns : event->time;
    uint64_t chunk_count = w->chunk_count;
    if (!take_steps(w, time_ns, &event->time) ||
        !begin_record(w, FLW_FTRACE_EVENTS, context, time_ns)) {
        return false;
    }
    if (w->chunk_count != chunk_count) {
        event->time = 0; /* the base of a new chunk is the event's time */
    }
    w->chunk.last_ns = time_ns;
    w->event_count++;
    w->block_count += event->op == FLW_TRACE_ALLOC;
    return true;
}

bool flw_ftrace_writer_add(struct flw_ftrace_writer *writer, struct flw_record record)
{
    bool is_segment = record.op == FLW_RECORD_SEGMENT;
    struct flw_trace_context context = {
        .thread = record.thread, .tag = record.tag, .pool = is_segment ? 0 : record.pool};
    if (flw_record_is_event(record.op)) {
        return begin_event(writer, &context, &record) && put_record(writer, &record);
    }
    if (!begin_record(writer, FLW_FTRACE_SNAPSHOT, &context, 0)) {
        return false;
    }
    if (is_segment) {
        writer->segment_count++;
    } else {
        record.block = writer->block_count++;
    }
    return put_record(writer, &record);
}

bool flw_ftrace_writer_flush(struct flw_ftrace_writer *writer)
{
    const struct flw_ftrace_sink *sink = &writer->sink;
    if (close_chunk(writer) && sink->flush != NULL && !sink->flush(sink->context)) {
        writer->has_failed = true;
    }
    return !writer->has_failed;
}

bool flw_ftrace_writer_end(struct flw_ftrace_writer *writer)
{
    if (!close_chunk(writer) ||
        !take_chunk(writer, FLW_FTRACE_END, END_BYTES, 0, writer->chunk.last_ns)) {
        return false;
    }
    struct flw_wire_out *out = &writer->chunk.out;
    flw_wire_put_fixed(out, writer->event_count, 8);
    flw_wire_put_fixed(out, writer->block_count, 8);
    flw_wire_put_fixed(out, writer->segment_count, 8);
    flw_wire_put_fixed(out, writer->chunk_count, 8);
    flw_wire_put_fixed(out, writer->whole_crc, 4);
    flw_wire_put_fixed(out, 0, 4);
    return flw_ftrace_writer_flush(writer);
}
