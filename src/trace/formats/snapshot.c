/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: writing a trace as PyTorch's memory snapshot, which PyTorch's memory_viz opens and our reader reads back as the
 * same events.
 * Does not: write facts that a snapshot cannot express: uses of blocks by other streams, waits, captures, settings,
 * missing events, names of moments, threads, tags, the largest hole of an out-of-memory; phases if there are no times;
 * segment events if the segments do not contain the blocks (then each block of the end is a segment of its own).
 *
 * Times are microseconds. A free without a separate completion is written as both, with the same stack. Pool N is
 * (0, N), written if there is any. Blocks of the end are rounded up as PyTorch rounds them, as far as there is room.
 */
#include <stdlib.h>

#include "trace/formats/formats.h"
#include "trace/formats/pytorch_words.h"
#include "trace/io/encoder.h"
#include "trace/io/input.h"
#include "trace/io/output.h"
#include "trace/trace/remains.h"

#define DEVICES_MAX 1024

struct writer {
    const struct flw_trace *trace;
    struct flw_remains remains;
    struct flw_encoder encoder;
    uint32_t *stack_places, *frame_places; /* numbers in the encoder's memo; 0: not written yet */
    struct flw_addressmap text_places;
    bool lacks_memory;
    bool has_pools;
    uint32_t pool;                         /* of the event at hand */
    const struct flw_trace_detail *detail; /* of the present event; NULL = none */
    const struct flw_trace_remark *remark; /* the same */
};

static void put_pair(struct writer *w, enum word key, uint64_t number)
{
    flw_encoder_put_word(&w->encoder, key);
    flw_encoder_put_number(&w->encoder, number);
}

static void put_word_pair(struct writer *w, enum word key, enum word value)
{
    flw_encoder_put_word(&w->encoder, key);
    flw_encoder_put_word(&w->encoder, value);
}

/* ---- frames: each text, frame and stack is written once, then by memo number, as PyTorch does ---- */

static void put_text(struct writer *w, uint32_t text)
{
    uint32_t place = flw_addressmap_find(&w->text_places, text);
    if (place != FLW_ADDRESSMAP_ABSENT) {
        flw_encoder_put_again(&w->encoder, place);
        return;
    }
    flw_encoder_put_text(&w->encoder, flw_stacks_text(&w->trace->stacks, text));
    place = flw_encoder_memoize(&w->encoder);
    w->lacks_memory |= !flw_addressmap_put(&w->text_places, text, place);
}

static void put_frame(struct writer *w, uint32_t number)
{
    const struct flw_frame *frame = &w->trace->stacks.frames[number];
    if (w->frame_places[number] != 0) {
        flw_encoder_put_again(&w->encoder, w->frame_places[number]);
        return;
    }
    flw_encoder_open_dict(&w->encoder);
    flw_encoder_put_word(&w->encoder, WORD_NAME);
    put_text(w, frame->function);
    flw_encoder_put_word(&w->encoder, WORD_FILENAME);
    put_text(w, frame->file);
    put_pair(w, WORD_LINE, frame->line);
    flw_encoder_close_dict(&w->encoder);
    w->frame_places[number] = flw_encoder_memoize(&w->encoder);
}

static void put_frames(struct writer *w, uint32_t stack)
{
    struct flw_stack_walk walk = flw_stacks_walk(&w->trace->stacks, stack);
    uint64_t number = 0;
    flw_encoder_put_word(&w->encoder, WORD_FRAMES);
    if (stack == 0) {
        flw_encoder_put_empty_list(&w->encoder);
    } else if (w->stack_places[stack] != 0) {
        flw_encoder_put_again(&w->encoder, w->stack_places[stack]);
    } else {
        flw_encoder_open_list(&w->encoder);
        for (uint32_t frame; flw_stacks_next(&walk, &frame);) {
            flw_encoder_next_item(&w->encoder, number++);
            put_frame(w, frame);
        }
        flw_encoder_close_list(&w->encoder);
        w->stack_places[stack] = flw_encoder_memoize(&w->encoder);
    }
}

/* ---- events ---- */

static bool is_written(const struct writer *w, uint8_t op)
{
    bool is_segment = op >= FLW_TRACE_SEGMENT_ALLOC && op <= FLW_TRACE_SEGMENT_UNMAP;
    return op <= FLW_TRACE_MARK && op != FLW_TRACE_USE &&
           (!is_segment || w->remains.has_recorded_segments);
}

/* Write the free bytes. PyTorch's own reader needs a number there; for an unknown one it prints "nan". */
static void put_device_free(struct writer *w)
{
    if (w->detail != NULL && w->detail->free_bytes != FLW_TRACE_UNKNOWN) {
        put_pair(w, WORD_DEVICE_FREE, w->detail->free_bytes);
    } else {
        flw_encoder_put_word(&w->encoder, WORD_DEVICE_FREE);
        flw_encoder_put_unknown(&w->encoder);
    }
}

static void put_remark(struct writer *w, enum word key, uint32_t text)
{
    if (text != 0) {
        flw_encoder_put_word(&w->encoder, key);
        put_text(w, text - 1);
    }
}

/* Write the time since 1970 if the trace has its begin. */
static void put_time(struct writer *w, const struct flw_trace_event *event)
{
    put_pair(w, WORD_TIME_US, w->trace->begin_ns / 1000 + event->time_ns / 1000);
}

static void put_event(struct writer *w, const struct flw_trace_event *event, uint8_t op,
                      uint32_t stack, uint64_t number)
{
    bool has_block = event->block != UINT32_MAX;
    uint64_t handle = op == FLW_TRACE_MARK ? 0 : w->trace->streams[event->stream];
    unsigned action = 0;
    while (operations[action] != op) {
        action++;
    }
    flw_encoder_next_item(&w->encoder, number);
    flw_encoder_open_dict(&w->encoder);
    put_word_pair(w, WORD_ACTION, (enum word)action);
    if (op == FLW_TRACE_OOM) {
        put_device_free(w);
    } else {
        put_pair(w, WORD_ADDR, has_block ? w->remains.addresses[event->block] : event->address);
    }
    put_pair(w, WORD_SIZE, event->size_bytes);
    put_pair(w, WORD_STREAM, handle);
    if (w->trace->has_times) {
        put_time(w, event);
    }
    if (w->has_pools) {
        flw_encoder_put_word(&w->encoder, WORD_POOL_ID);
        flw_encoder_put_pair(&w->encoder, 0, w->pool);
    }
    put_remark(w, WORD_COMPILE_CONTEXT, w->remark->compile_context);
    put_remark(w, WORD_USER_METADATA, w->remark->user_metadata);
    put_frames(w, stack);
    flw_encoder_close_dict(&w->encoder);
}

static void put_events(struct writer *w)
{
    struct flw_trace_walk walk = {0};
    uint64_t number = 0;
    flw_encoder_open_list(&w->encoder);
    for (size_t i = 0; i < w->trace->event_count; i++) {
        const struct flw_trace_event *event = &w->trace->events[i];
        if (!is_written(w, event->op)) {
            continue;
        }
        w->detail = flw_trace_walk_detail(w->trace, &walk, i);
        size_t record = w->trace->initial_count + i;
        uint32_t stack = flw_trace_stack(w->trace, record);
        w->pool = flw_trace_walk_context(w->trace, &walk, record)->pool;
        w->remark = flw_trace_walk_remark(w->trace, &walk, record);
        put_event(w, event, event->op, stack, number++);
        if (event->op == FLW_TRACE_FREE && !w->remains.has_done) {
            put_event(w, event, FLW_TRACE_FREE_DONE, stack, number++);
        }
    }
    flw_encoder_close_list(&w->encoder);
}

/* Write a list for each device up to this one. */
static void put_device_traces(struct writer *w)
{
    flw_encoder_put_word(&w->encoder, WORD_DEVICE_TRACES);
    flw_encoder_open_list(&w->encoder);
    for (int device = 0; device < w->trace->device; device++) {
        flw_encoder_next_item(&w->encoder, (uint64_t)device);
        flw_encoder_put_empty_list(&w->encoder);
    }
    flw_encoder_next_item(&w->encoder, (uint64_t)w->trace->device);
    put_events(w);
    flw_encoder_close_list(&w->encoder);
}

/* Write the annotations, unless the events have no times: then phases cannot be placed. */
static void put_annotations(struct writer *w)
{
    const struct flw_trace *trace = w->trace;
    uint64_t number = 0;
    for (size_t i = 0; trace->has_times && i < trace->detail_count; i++) {
        const struct flw_trace_event *event = &trace->events[trace->details[i].event];
        if (event->op != FLW_TRACE_PHASE_BEGIN && event->op != FLW_TRACE_PHASE_END) {
            continue;
        }
        if (number == 0) {
            flw_encoder_put_word(&w->encoder, WORD_ANNOTATIONS);
            flw_encoder_open_list(&w->encoder);
        }
        flw_encoder_next_item(&w->encoder, number++);
        flw_encoder_open_dict(&w->encoder);
        put_word_pair(w, WORD_STAGE, event->op == FLW_TRACE_PHASE_BEGIN ? WORD_START : WORD_END);
        flw_encoder_put_word(&w->encoder, WORD_NAME);
        flw_encoder_put_text(&w->encoder, flw_trace_name(trace, &trace->details[i]));
        put_pair(w, WORD_DEVICE, (uint64_t)trace->device);
        put_time(w, event);
        flw_encoder_close_dict(&w->encoder);
    }
    if (number > 0) {
        flw_encoder_close_list(&w->encoder);
    }
}

/* ---- the heap at the end ---- */

struct extent {
    uint64_t address, bytes, requested_bytes;
    enum word state;
    uint32_t stack;
};

/* Return the extent of block number `at`, rounded up as far as there is room. */
static struct extent extent_of(const struct writer *w, size_t at, uint64_t segment_end)
{
    const struct flw_remains *remains = &w->remains;
    const struct flw_trace_block *block = &w->trace->blocks[remains->blocks[at].block];
    uint64_t address = remains->blocks[at].address;
    uint64_t next = at + 1 < remains->block_count ? remains->blocks[at + 1].address : segment_end;
    uint64_t room = (next < segment_end ? next : segment_end) - address;
    uint64_t bytes = flw_remains_round(block->size_bytes);
    return (struct extent){
        .address = address,
        .bytes = bytes < room ? bytes : room,
        .requested_bytes = block->size_bytes,
        .state = block->freed ? WORD_ACTIVE_PENDING_FREE : WORD_ACTIVE_ALLOCATED,
        .stack = remains->stacks[remains->blocks[at].block],
    };
}

static void put_extent(struct writer *w, const struct extent *extent, uint64_t number)
{
    flw_encoder_next_item(&w->encoder, number);
    flw_encoder_open_dict(&w->encoder);
    put_pair(w, WORD_ADDRESS, extent->address);
    put_pair(w, WORD_SIZE, extent->bytes);
    put_pair(w, WORD_REQUESTED_SIZE, extent->requested_bytes);
    put_word_pair(w, WORD_STATE, extent->state);
    put_frames(w, extent->stack);
    flw_encoder_close_dict(&w->encoder);
}

static uint64_t put_hole(struct writer *w, uint64_t begin, uint64_t end, uint64_t number)
{
    struct extent hole = {.address = begin, .bytes = end - begin, .state = WORD_INACTIVE};
    if (begin >= end) {
        return number;
    }
    put_extent(w, &hole, number);
    return number + 1;
}

static void put_blocks(struct writer *w, const struct flw_trace_segment *segment)
{
    uint64_t end = segment->address + segment->size_bytes;
    uint64_t begin = segment->address;
    uint64_t number = 0;
    flw_encoder_put_word(&w->encoder, WORD_BLOCKS);
    flw_encoder_open_list(&w->encoder);
    for (size_t at = flw_remains_find(&w->remains, begin);
         at < w->remains.block_count && w->remains.blocks[at].address < end; at++) {
        struct extent extent = extent_of(w, at, end);
        number = put_hole(w, begin, extent.address, number);
        put_extent(w, &extent, number++);
        begin = extent.address + extent.bytes;
    }
    put_hole(w, begin, end, number);
    flw_encoder_close_list(&w->encoder);
}

static void put_sums(struct writer *w, const struct flw_trace_segment *segment)
{
    uint64_t end = segment->address + segment->size_bytes;
    uint64_t allocated = 0, active = 0, requested = 0;
    for (size_t at = flw_remains_find(&w->remains, segment->address);
         at < w->remains.block_count && w->remains.blocks[at].address < end; at++) {
        struct extent extent = extent_of(w, at, end);
        bool is_live = extent.state == WORD_ACTIVE_ALLOCATED;
        allocated += is_live ? extent.bytes : 0;
        requested += is_live ? extent.requested_bytes : 0;
        active += extent.bytes;
    }
    put_pair(w, WORD_TOTAL_SIZE, segment->size_bytes);
    put_pair(w, WORD_ALLOCATED_SIZE, allocated);
    put_pair(w, WORD_ACTIVE_SIZE, active);
    put_pair(w, WORD_REQUESTED_SIZE, requested);
}

static void put_segment(struct writer *w, const struct flw_trace_segment *segment, uint64_t number)
{
    flw_encoder_next_item(&w->encoder, number);
    flw_encoder_open_dict(&w->encoder);
    put_pair(w, WORD_DEVICE, (uint64_t)w->trace->device);
    put_pair(w, WORD_ADDRESS, segment->address);
    put_sums(w, segment);
    put_pair(w, WORD_STREAM, w->trace->streams[segment->stream]);
    put_word_pair(w, WORD_SEGMENT_TYPE, segment->is_large ? WORD_LARGE : WORD_SMALL);
    flw_encoder_put_word(&w->encoder, WORD_SEGMENT_POOL_ID);
    flw_encoder_put_pair(&w->encoder, 0, segment->pool);
    flw_encoder_put_word(&w->encoder, WORD_IS_EXPANDABLE);
    flw_encoder_put_bool(&w->encoder, segment->is_expandable);
    put_frames(w, segment->stack);
    put_blocks(w, segment);
    flw_encoder_close_dict(&w->encoder);
}

static void put_snapshot(struct writer *w, FILE *file)
{
    flw_encoder_begin(&w->encoder, file, words);
    flw_encoder_open_dict(&w->encoder);
    flw_encoder_put_word(&w->encoder, WORD_SEGMENTS);
    flw_encoder_open_list(&w->encoder);
    for (size_t i = 0; i < w->remains.segment_count; i++) {
        put_segment(w, &w->remains.segments[i], i);
    }
    flw_encoder_close_list(&w->encoder);
    put_device_traces(w);
    put_annotations(w);
    flw_encoder_close_dict(&w->encoder);
    flw_encoder_end(&w->encoder);
}

bool flw_trace_write_pytorch(const struct flw_trace *trace, const char *path, char *message)
{
    struct writer w = {.trace = trace};
    struct flw_output output;
    if (trace->device >= DEVICES_MAX) {
        flw_input_message(message, path, "device %d: a snapshot holds devices 0 to %d",
                          trace->device, DEVICES_MAX - 1);
        return false;
    }
    w.stack_places = calloc(trace->stacks.stack_count + 1, sizeof *w.stack_places);
    w.frame_places = calloc(trace->stacks.frame_count + 1, sizeof *w.frame_places);
    bool has_memory =
        w.stack_places != NULL && w.frame_places != NULL && flw_remains_init(&w.remains, trace);
    if (!has_memory) {
        flw_input_message(message, path, "no memory, or no 64-bit addresses for all its blocks");
    }
    for (size_t i = 0; i < trace->context_count; i++) {
        w.has_pools |= trace->contexts[i].pool != 0;
    }
    bool is_begun = has_memory && flw_output_begin(&output, path, message);
    if (is_begun) {
        put_snapshot(&w, output.file);
    }
    flw_remains_finish(&w.remains);
    flw_addressmap_finish(&w.text_places);
    free(w.stack_places);
    free(w.frame_places);
    if (is_begun && w.lacks_memory) {
        flw_output_abandon(&output);
        flw_input_message(message, path, "no memory to write it");
        return false;
    }
    return is_begun && flw_output_commit(&output, message);
}
