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
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trace/trace/largearray.h"

#define MUST_UNDERSTAND (UINT64_MAX << 32)
#define CHECK           FLW_FTRACEREADER_CHECK
#define TRY             FLW_FTRACEREADER_TRY

/* Make `count` bytes available at the input's next byte. Returns false if there are fewer. */
static bool hold(struct flw_ftracereader *r, size_t count)
{
    bool is_there = flw_input_fill(r->input, count);
    if (!is_there && r->input->failed) {
        flw_ftracereader_stop(r, "%s", flw_input_reason(r->input));
    }
    return is_there;
}

static void pass(struct flw_ftracereader *r, size_t count)
{
    r->whole_crc = flw_crc32c_add(&r->crc, r->whole_crc, r->input->at, count);
    r->input->at += count;
}

/* ---- chunks ---- */

/* Check that this chunk follows those read so far. */
static void check_place(struct flw_ftracereader *r)
{
    const struct flw_frame_chunk *frame = &r->frame;
    bool is_start = frame->type == FLW_FTRACE_SNAPSHOT;
    CHECK(r, !is_start || (!r->has_events && frame->first_event == 0),
          "blocks of the start after events");
    CHECK(r, frame->codec < FLW_RECORD_CODEC_COUNT, "codec %d of records; this reads 0 and 1",
          frame->codec);
    if (r->has_stopped) {
        return;
    }
    r->has_events = !is_start;
    bool is_next = frame->first_event == r->event_count && frame->first_block == r->block_count;
    bool is_later = frame->first_event >= r->event_count && frame->first_block >= r->block_count &&
                    r->problem[0] != '\0';
    CHECK(r, is_next || is_later, "a chunk begins with event %" PRIu64 " where %" PRIu64 " is next",
          frame->first_event, r->event_count);
    if (!is_next && is_later) {
        flw_ftracereader_step_over_loss(r);
    }
}

static void read_drop(struct flw_ftracereader *r, struct flw_wire_in in)
{
    uint64_t lost_count;
    bool is_counted = flw_wire_get_fixed(&in, 8, &lost_count) && in.at == in.end;
    CHECK(r, is_counted && r->frame.record_count == 1, "missing events are not counted");
    if (!r->has_stopped) {
        flw_ftracereader_take_drop(r, lost_count);
    }
}

static void read_end(struct flw_ftracereader *r, struct flw_wire_in in)
{
    enum {
        EVENTS,
        BLOCKS,
        SEGMENTS,
        CHUNKS,
        CRC,
        ZERO,
        COUNT
    };
    uint64_t values[COUNT];
    bool is_whole = true;
    for (int i = 0; i < COUNT; i++) {
        is_whole &= flw_wire_get_fixed(&in, i < CRC ? 8 : 4, &values[i]);
    }
    r->has_ended = true;
    CHECK(r, is_whole, "the end chunk is too short");
    CHECK(r,
          values[EVENTS] == r->event_count && values[BLOCKS] == r->block_count &&
              values[SEGMENTS] == r->to.build->trace->segment_count &&
              values[CHUNKS] == r->chunk_count,
          "the end counts %" PRIu64 " events and %" PRIu64 " blocks, the file has %" PRIu64
          " and %" PRIu64 ", or other segments or chunks",
          values[EVENTS], values[BLOCKS], r->event_count, r->block_count);
    CHECK(r, values[CRC] == r->whole_crc, "the checksum of the whole file is wrong");
}

static void read_payload(struct flw_ftracereader *r)
{
    const unsigned char *payload = r->input->at + FLW_FRAME_BYTES;
    struct flw_wire_in in = {payload, payload + r->frame.payload_bytes};
    switch (r->frame.type) {
    case FLW_FTRACE_META:
        flw_ftracereader_take_notes(r, (const char *)in.at, (const char *)in.end);
        break;
    case FLW_FTRACE_DICT:
        flw_ftracereader_take_dictionary(r, in);
        break;
    case FLW_FTRACE_SNAPSHOT:
    case FLW_FTRACE_EVENTS:
    case FLW_FTRACE_DROP:
        check_place(r);
        if (!r->has_stopped) {
            (r->frame.type == FLW_FTRACE_DROP ? read_drop : flw_ftracereader_take_records)(r, in);
        }
        break;
    case FLW_FTRACE_END:
        read_end(r, in);
        break;
    case FLW_FTRACE_STACKS:
        flw_ftracereader_take_stacks(r, in);
        break;
    case FLW_FTRACE_REMARKS:
        flw_ftracereader_take_remarks(r, in);
        break;
    default:
        break; /* of a later minor version */
    }
}

/* Make the next chunk available and check it. */
static void hold_chunk(struct flw_ftracereader *r)
{
    if (!hold(r, FLW_FRAME_BYTES)) {
        flw_ftracereader_stop(r, r->input->at == r->input->end
                                     ? "the file ends without its end chunk"
                                     : "the file ends inside a chunk's header");
    } else if (!flw_frame_get_chunk(&r->crc, r->input->at, &r->frame)) {
        flw_ftracereader_stop(r, "no chunk begins here, or its header's checksum is wrong");
    } else if (r->frame.payload_bytes > FLW_FTRACE_PAYLOAD_BYTES) {
        flw_ftracereader_stop(r, "a chunk of %u bytes; at most %u are allowed",
                              (unsigned)r->frame.payload_bytes, (unsigned)FLW_FTRACE_PAYLOAD_BYTES);
    } else if (!hold(r, FLW_FRAME_BYTES + (size_t)r->frame.payload_bytes)) {
        flw_ftracereader_stop(r, "the file ends inside a chunk");
    } else {
        uint32_t crc =
            flw_crc32c_add(&r->crc, 0, r->input->at + FLW_FRAME_BYTES, r->frame.payload_bytes);
        CHECK(r, crc == r->frame.payload_crc, "the checksum of a chunk is wrong");
    }
}

/* Find the next header with the right checksum, at least one byte further. */
static bool find_chunk(struct flw_ftracereader *r)
{
    struct flw_frame_chunk frame;
    do {
        r->input->at++;
        if (!hold(r, FLW_FRAME_BYTES)) {
            return false;
        }
    } while (!flw_frame_get_chunk(&r->crc, r->input->at, &frame));
    return true;
}

static void read_chunk(struct flw_ftracereader *r)
{
    r->has_stopped = false;
    hold_chunk(r);
    if (!r->has_stopped) {
        read_payload(r);
    }
    if (!r->has_stopped) {
        pass(r, FLW_FRAME_BYTES + (size_t)r->frame.payload_bytes);
        r->chunk_count++;
    }
}

/* Read to the end, or to the first damage. Returns false if memory runs out. */
static bool read_chunks(struct flw_ftracereader *r)
{
    struct flw_input *input = r->input;
    do {
        read_chunk(r);
    } while (!r->has_ended && (!r->has_stopped || (!input->failed && input->reads_on &&
                                                   input->at < input->end && find_chunk(r))));
    if (r->has_ended && hold(r, 1)) {
        flw_ftracereader_stop(r, "bytes follow the end chunk");
    }
    if (input->failed && !r->lacks_memory) { /* also for a truncated archive */
        input->failed = false;
        input->message[0] = '\0';
    }
    return !input->failed;
}

/* ---- the file ---- */

static bool fail_short(struct flw_ftracereader *r)
{
    return flw_input_fail(r->input, 0, "the file ends inside its header: it is truncated");
}

static bool read_header(struct flw_ftracereader *r)
{
    struct flw_trace *trace = r->to.build->trace;
    struct flw_frame_file *file = &r->file;
    if (!flw_input_fill(r->input, FLW_FRAME_BYTES)) {
        return fail_short(r);
    }
    if (!flw_frame_get_file(&r->crc, r->input->at, file)) {
        return flw_input_fail(r->input, 0, "the checksum of the file's header is wrong");
    }
    if (file->major != FLW_FTRACE_MAJOR) {
        return flw_input_fail(r->input, 8, "version %d.%d of the trace file; this reads version %d",
                              file->major, file->minor, FLW_FTRACE_MAJOR);
    }
    if ((file->flags & MUST_UNDERSTAND) != 0 || file->ticks_per_second == 0 ||
        file->header_bytes < FLW_FRAME_BYTES || file->device > INT32_MAX) {
        return flw_input_fail(r->input, 8, "the file's header requires a newer version");
    }
    trace->has_times = (file->flags & FLW_FTRACE_HAS_TIMES) != 0;
    trace->has_addresses = (file->flags & FLW_FTRACE_HAS_ADDRESSES) != 0;
    trace->has_segments = (file->flags & FLW_FTRACE_HAS_SEGMENTS) != 0;
    trace->begin_ns = trace->has_times ? file->wall_ns : 0;
    trace->device = (int)file->device;
    pass(r, FLW_FRAME_BYTES);
    for (uint64_t more = file->header_bytes - FLW_FRAME_BYTES; more > 0; more--) {
        if (!flw_input_fill(r->input, 1)) {
            return fail_short(r);
        }
        pass(r, 1);
    }
    return true;
}

/* Describe the damage in the notes too, so that copies of the trace keep the description. */
static bool add_truncation(struct flw_ftracereader *r)
{
    char text[FLW_TRACE_MESSAGE_BYTES + 64];
    if (r->problem[0] == '\0') {
        return true;
    }
    int bytes = snprintf(text, sizeof(text), "truncated_after_event %" PRIu64, r->problem_event);
    r->has_stopped = false;
    TRY(r, flw_notes_add(&r->to.build->notes, text, text + bytes));
    snprintf(text, sizeof(text), "%s after event %" PRIu64 ": %s",
             r->input->reads_on ? "damaged" : "truncated", r->problem_event, r->problem);
    r->to.build->trace->truncation = strdup(text);
    TRY(r, r->to.build->trace->truncation != NULL);
    return !r->lacks_memory;
}

bool flw_ftrace_read(struct flw_input *input, int device, struct flw_build *build)
{
    (void)device; /* a file has one device */
    struct flw_ftracereader r = {.input = input, .to.build = build};
    flw_crc32c_init(&r.crc);
    bool is_read = read_header(&r) && read_chunks(&r) && add_truncation(&r);
    flw_reader_end(&r.to);
    flw_record_finish(&r.state);
    free(r.names.at);
    free(r.texts.at);
    free(r.frames.at);
    free(r.stacks.at);
    free(r.holes);
    free(r.remarks);
    flw_largearray_free(r.record_stacks, r.record_room, sizeof(*r.record_stacks));
    return is_read;
}
