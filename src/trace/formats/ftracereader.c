/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: reading trace files: finding the next chunk and checking that the chunk is whole.
 * Does not: interpret records (ftracetaker.c).
 *
 * Damage (a wrong checksum, an early end, records that cannot follow the previous ones) ends the trace there and is
 * described; a file is rejected only if there is no readable header.
 */
#include "trace/formats/ftracereader.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "trace/trace/measure.h"

#define MUST_UNDERSTAND (UINT64_MAX << 32)

/* ---- bytes ---- */

/* Move the unread bytes to the start of an array of at least `room` bytes. */
static bool make_room(struct flw_ftracereader *r, size_t room)
{
    size_t held = r->count - r->at;
    if (held > 0) {
        memmove(r->bytes, r->bytes + r->at, held);
    }
    r->at = 0;
    r->count = held;
    if (r->room >= room) {
        return true;
    }
    unsigned char *bytes = realloc(r->bytes, room);
    if (bytes == NULL) {
        return flw_ftracereader_fail_memory(r);
    }
    r->bytes = bytes;
    r->room = room;
    return true;
}

/* Make `count` bytes available at bytes[at]. Returns false if there are fewer. */
static bool hold(struct flw_ftracereader *r, size_t count)
{
    if (r->count - r->at >= count) {
        return true;
    }
    if (!make_room(r, count)) {
        return false;
    }
    while (r->count < count) {
        struct flw_input *input = r->input;
        if (input->at == input->end && !flw_input_fill(input, 1)) {
            return input->failed ? flw_ftracereader_stop(r, "%s", flw_input_reason(input)) : false;
        }
        size_t there = (size_t)(input->end - input->at);
        size_t step = there < count - r->count ? there : count - r->count;
        memcpy(r->bytes + r->count, input->at, step);
        input->at += step;
        r->count += step;
    }
    return true;
}

static void pass(struct flw_ftracereader *r, size_t count)
{
    r->whole_crc = flw_crc32c_add(&r->crc, r->whole_crc, r->bytes + r->at, count);
    r->at += count;
    r->offset += count;
}

/* ---- chunks ---- */

static bool read_records(struct flw_ftracereader *r, struct flw_wire_in in)
{
    uint32_t count = 0;
    flw_ftracereader_begin_records(r);
    flw_record_begin(&r->state, (enum flw_record_codec)r->frame.codec,
                     r->build.trace->has_addresses, r->frame.first_block);
    r->context = (struct flw_trace_context){.thread = r->frame.thread};
    while (in.at < in.end) {
        struct flw_record record;
        enum flw_record_result result = flw_record_get(&r->state, &in, &record);
        if (result == FLW_RECORD_NO_MEMORY) {
            return flw_ftracereader_fail_memory(r);
        }
        if (result == FLW_RECORD_BAD) {
            return flw_ftracereader_stop(r, "record %u of a chunk is none", (unsigned)count);
        }
        count += record.op != FLW_RECORD_CONTEXT;
        if (!flw_ftracereader_take_record(r, &record)) {
            return false;
        }
    }
    if (count != r->frame.record_count) {
        return flw_ftracereader_stop(r, "a chunk has %u records, its header says %u",
                                     (unsigned)count, (unsigned)r->frame.record_count);
    }
    return flw_ftracereader_end_records(r);
}

/* Check that this chunk follows those read so far. */
static bool check_place(struct flw_ftracereader *r)
{
    bool is_start = r->frame.type == FLW_FTRACE_SNAPSHOT;
    if (is_start && (r->has_events || r->frame.first_event != 0)) {
        return flw_ftracereader_stop(r, "blocks of the start after events");
    }
    if (r->frame.codec >= FLW_RECORD_CODEC_COUNT) {
        return flw_ftracereader_stop(r, "codec %d of records; this reads 0 and 1", r->frame.codec);
    }
    r->has_events = !is_start;
    if (r->frame.first_event == r->event_count && r->frame.first_block == r->block_count) {
        return true;
    }
    bool is_later = r->frame.first_event >= r->event_count &&
                    r->frame.first_block >= r->block_count && r->problem[0] != '\0';
    return is_later ? flw_ftracereader_step_over_loss(r)
                    : flw_ftracereader_stop(
                          r, "a chunk begins with event %" PRIu64 " where %" PRIu64 " is next",
                          r->frame.first_event, r->event_count);
}

static bool read_drop(struct flw_ftracereader *r, struct flw_wire_in in)
{
    uint64_t lost_count;
    if (!flw_wire_get_fixed(&in, 8, &lost_count) || in.at != in.end || r->frame.record_count != 1) {
        return flw_ftracereader_stop(r, "missing events are not counted");
    }
    return flw_ftracereader_take_drop(r, lost_count);
}

static bool read_end(struct flw_ftracereader *r, struct flw_wire_in in)
{
    uint64_t events, blocks, segments, chunks, crc, zero;
    r->has_ended = true;
    if (!flw_wire_get_fixed(&in, 8, &events) || !flw_wire_get_fixed(&in, 8, &blocks) ||
        !flw_wire_get_fixed(&in, 8, &segments) || !flw_wire_get_fixed(&in, 8, &chunks) ||
        !flw_wire_get_fixed(&in, 4, &crc) || !flw_wire_get_fixed(&in, 4, &zero)) {
        return flw_ftracereader_stop(r, "the end chunk is too short");
    }
    if (events != r->event_count || blocks != r->block_count ||
        segments != r->build.trace->segment_count || chunks != r->chunk_count) {
        return flw_ftracereader_stop(r,
                                     "the end counts %" PRIu64 " events and %" PRIu64
                                     " blocks, the file has %" PRIu64 " and %" PRIu64
                                     ", or other segments or chunks",
                                     events, blocks, r->event_count, r->block_count);
    }
    return crc == r->whole_crc ||
           flw_ftracereader_stop(r, "the checksum of the whole file is wrong");
}

static bool read_payload(struct flw_ftracereader *r, const unsigned char *payload)
{
    struct flw_wire_in in = {payload, payload + r->frame.payload_bytes};
    switch (r->frame.type) {
    case FLW_FTRACE_META:
        return flw_ftracereader_take_notes(r, (const char *)in.at, (const char *)in.end);
    case FLW_FTRACE_DICT:
        return flw_ftracereader_take_dictionary(r, in);
    case FLW_FTRACE_SNAPSHOT:
    case FLW_FTRACE_EVENTS:
        return check_place(r) && read_records(r, in);
    case FLW_FTRACE_DROP:
        return check_place(r) && read_drop(r, in);
    case FLW_FTRACE_END:
        return read_end(r, in);
    case FLW_FTRACE_STACKS:
        return flw_ftracereader_take_stacks(r, in);
    case FLW_FTRACE_REMARKS:
        return flw_ftracereader_take_remarks(r, in);
    default:
        return true; /* of a later minor version */
    }
}

/* Make the next chunk available at bytes[at] and check it. */
static bool hold_chunk(struct flw_ftracereader *r)
{
    if (!hold(r, FLW_FRAME_BYTES)) {
        return flw_ftracereader_stop(r, r->count == r->at
                                            ? "the file ends without its end chunk"
                                            : "the file ends inside a chunk's header");
    }
    if (!flw_frame_get_chunk(&r->crc, r->bytes + r->at, &r->frame)) {
        return flw_ftracereader_stop(r, "no chunk begins here, or its header's checksum is wrong");
    }
    if (r->frame.payload_bytes > FLW_FTRACE_PAYLOAD_BYTES) {
        return flw_ftracereader_stop(r, "a chunk of %u bytes; at most %u are allowed",
                                     (unsigned)r->frame.payload_bytes,
                                     (unsigned)FLW_FTRACE_PAYLOAD_BYTES);
    }
    if (!hold(r, FLW_FRAME_BYTES + (size_t)r->frame.payload_bytes)) {
        return flw_ftracereader_stop(r, "the file ends inside a chunk");
    }
    return flw_crc32c_add(&r->crc, 0, r->bytes + r->at + FLW_FRAME_BYTES, r->frame.payload_bytes) ==
               r->frame.payload_crc ||
           flw_ftracereader_stop(r, "the checksum of a chunk is wrong");
}

static bool read_chunk(struct flw_ftracereader *r)
{
    if (!hold_chunk(r) || !read_payload(r, r->bytes + r->at + FLW_FRAME_BYTES)) {
        return false;
    }
    pass(r, FLW_FRAME_BYTES + (size_t)r->frame.payload_bytes);
    r->chunk_count++;
    return true;
}

/* Find the next header with the right checksum, at least one byte further. */
static bool find_chunk(struct flw_ftracereader *r)
{
    struct flw_frame_chunk frame;
    do {
        r->at++;
        r->offset++;
        if (!hold(r, FLW_FRAME_BYTES)) {
            return false;
        }
    } while (!flw_frame_get_chunk(&r->crc, r->bytes + r->at, &frame));
    return true;
}

static bool read_chunks(struct flw_ftracereader *r)
{
    while (!r->has_ended) {
        if (read_chunk(r)) {
            continue;
        }
        if (r->input->failed || r->has_ended || !r->input->reads_on || r->count == r->at ||
            !find_chunk(r)) {
            break;
        }
    }
    if (r->has_ended && hold(r, 1)) {
        flw_ftracereader_stop(r, "bytes follow the end chunk");
    }
    if (r->input->failed && !r->lacks_memory) { /* also for a truncated archive */
        r->input->failed = false;
        r->input->message[0] = '\0';
    }
    return !r->input->failed;
}

/* ---- the file ---- */

static bool read_header(struct flw_ftracereader *r)
{
    struct flw_trace *trace = r->build.trace;
    if (!hold(r, FLW_FRAME_BYTES)) {
        return flw_input_fail(r->input, 0, "the file ends inside its header: it is truncated");
    }
    if (!flw_frame_get_file(&r->crc, r->bytes, &r->file)) {
        return flw_input_fail(r->input, 0, "the checksum of the file's header is wrong");
    }
    if (r->file.major != FLW_FTRACE_MAJOR) {
        return flw_input_fail(r->input, 8, "version %d.%d of the trace file; this reads version %d",
                              r->file.major, r->file.minor, FLW_FTRACE_MAJOR);
    }
    if ((r->file.flags & MUST_UNDERSTAND) != 0 || r->file.ticks_per_second == 0 ||
        r->file.header_bytes < FLW_FRAME_BYTES || r->file.device > INT32_MAX) {
        return flw_input_fail(r->input, 8, "the file's header asks for what this version lacks");
    }
    trace->has_times = (r->file.flags & FLW_FTRACE_HAS_TIMES) != 0;
    trace->has_addresses = (r->file.flags & FLW_FTRACE_HAS_ADDRESSES) != 0;
    trace->has_segments = (r->file.flags & FLW_FTRACE_HAS_SEGMENTS) != 0;
    trace->begin_ns = trace->has_times ? r->file.wall_ns : 0;
    trace->device = (int)r->file.device;
    pass(r, FLW_FRAME_BYTES);
    for (uint64_t more = r->file.header_bytes - FLW_FRAME_BYTES; more > 0; more--) {
        if (!hold(r, 1)) {
            return flw_input_fail(r->input, 0, "the file ends inside its header: it is truncated");
        }
        pass(r, 1);
    }
    return true;
}

/* Describe the damage in the notes too, so that copies of the trace keep the description. */
static bool say_truncation(struct flw_ftracereader *r)
{
    struct flw_trace *trace = r->build.trace;
    char text[FLW_TRACE_MESSAGE_BYTES + 64];
    if (r->problem[0] == '\0') {
        return true;
    }
    int bytes = snprintf(text, sizeof(text), "truncated_after_event %" PRIu64, r->problem_event);
    if (!flw_notes_add(&r->notes, text, text + bytes)) {
        return flw_ftracereader_fail_memory(r);
    }
    snprintf(text, sizeof(text), "%s after event %" PRIu64 ": %s",
             r->input->reads_on ? "damaged" : "truncated", r->problem_event, r->problem);
    trace->truncation = strdup(text);
    return trace->truncation != NULL || flw_ftracereader_fail_memory(r);
}

static bool read_all(struct flw_ftracereader *r)
{
    if (!read_header(r) || !read_chunks(r) || !say_truncation(r)) {
        return false;
    }
    r->build.trace->notes = flw_notes_take(&r->notes);
    flw_stacks_settle(&r->build.trace->stacks);
    const char *wrong = flw_measure_trace(r->build.trace);
    return wrong == NULL || flw_input_fail(r->input, 0, "%s", wrong);
}

bool flw_ftrace_read(struct flw_input *input, int device, struct flw_trace **out_trace)
{
    (void)device; /* a file has one device */
    struct flw_ftracereader r = {.input = input};
    *out_trace = NULL;
    flw_crc32c_init(&r.crc);
    bool is_read = flw_build_init(&r.build, input->name, "ftrace")
                       ? read_all(&r)
                       : flw_ftracereader_fail_memory(&r);
    flw_build_end(&r.build, is_read, out_trace);
    flw_record_finish(&r.state);
    flw_notes_finish(&r.notes);
    free(r.bytes);
    free(r.stages);
    free(r.names);
    free(r.holes);
    flw_ftracereader_finish_stacks(&r.stacks);
    return is_read;
}
