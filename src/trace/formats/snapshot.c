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
#include <string.h>

#include "trace/formats/formats.h"
#include "trace/formats/pytorch.h"
#include "trace/formats/pytorch_words.h"
#include "trace/io/jsonwriter.h"
#include "trace/trace/final_heap.h"

#define BATCH 1000 /* items of a list between two marks, as in Python */

/* Opcodes of protocol 4, those of pickle.c. In a dict, keys and values alternate. */
#define DICT       "}("
#define DICT_END   "u"
#define EMPTY_LIST "]"
#define LIST_MORE  "("
#define LIST       EMPTY_LIST LIST_MORE
#define LIST_END   "e"
#define MEMOIZE    "\x94"

struct writer {
    FILE *file;
    const struct flw_trace *trace;
    struct flw_final_heap heap;
    /* Numbers in the pickle's memo; 0: not written yet. */
    uint32_t word_places[WORD_COUNT], *stack_places, *frame_places;
    struct flw_addressmap text_places;
    uint32_t memo_count;
    bool lacks_memory;
    bool has_pools;
    uint32_t pool;                         /* of the present event */
    const struct flw_trace_detail *detail; /* the same; NULL = none */
    const struct flw_trace_remark *remark; /* the same */
};

/* ---- opcodes ---- */

static void put_codes(struct writer *w, const char *codes)
{
    fputs(codes, w->file);
}

static void put_bytes(struct writer *w, uint64_t value, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        putc(i < sizeof value ? (int)(value >> (8 * i) & 0xFF) : 0, w->file);
    }
}

/* Write an opcode and a number of `count` bytes. */
static void put_code(struct writer *w, char code, uint64_t value, unsigned count)
{
    putc(code, w->file);
    put_bytes(w, value, count);
}

/* Store the last value in the memo and return the number, from 1, for writing that value again. */
static uint32_t memoize(struct writer *w)
{
    put_codes(w, MEMOIZE);
    return ++w->memo_count;
}

/* Write a value of the memo. Returns false if the value is not written yet. */
static bool put_again(struct writer *w, uint32_t place)
{
    if (place != 0) {
        bool is_short = place - 1 <= UINT8_MAX;
        put_code(w, is_short ? 'h' : 'j', place - 1, is_short ? 1 : 4);
    }
    return place != 0;
}

static void put_word(struct writer *w, enum word word)
{
    if (!put_again(w, w->word_places[word])) {
        put_code(w, '\x8c', strlen(words[word]), 1);
        put_codes(w, words[word]);
        w->word_places[word] = memoize(w);
    }
}

/* Write any text; an invalid UTF-8 byte becomes a question mark. Half of a UTF-16 pair, as in Python's own pickles,
 * counts as UTF-8. */
static void put_text(struct writer *w, const char *text)
{
    const unsigned char *c = (const unsigned char *)text, *end = c + strlen(text);
    put_code(w, 'X', strlen(text), 4);
    while (c < end) {
        size_t count = flw_json_utf8_length(c, end);
        bool is_half = c[0] == 0xED && (c[1] & 0xE0) == 0xA0 && (c[2] & 0xC0) == 0x80;
        count = is_half ? 3 : count;
        fwrite(count == 0 ? "?" : (const char *)c, 1, count == 0 ? 1 : count, w->file);
        c += count == 0 ? 1 : count;
    }
}

static void put_number(struct writer *w, uint64_t number)
{
    if (number <= INT32_MAX) {
        unsigned bytes = number <= UINT8_MAX ? 1 : number <= UINT16_MAX ? 2 : 4;
        put_code(w, bytes == 1 ? 'K' : bytes == 2 ? 'M' : 'J', number, bytes);
        return;
    }
    /* The sign is the highest bit of the last byte, so a number may need one more zero byte. */
    unsigned bytes = (72 - (unsigned)__builtin_clzll(number)) / 8;
    put_code(w, '\x8a', bytes, 1);
    put_bytes(w, number, bytes);
}

static void put_number_pair(struct writer *w, enum word key, uint64_t number)
{
    put_word(w, key);
    put_number(w, number);
}

static void put_word_pair(struct writer *w, enum word key, enum word value)
{
    put_word(w, key);
    put_word(w, value);
}

/* Before each item of a list, put_item needs the item's number from 0. */
static void put_item(struct writer *w, uint64_t number)
{
    if (number > 0 && number % BATCH == 0) {
        put_codes(w, LIST_END LIST_MORE);
    }
}

static void put_pool(struct writer *w, enum word key, uint32_t pool)
{
    put_word(w, key);
    put_number(w, 0);
    put_number(w, pool);
    put_codes(w, "\x86");
}

/* ---- frames: each text, frame and stack is written once, then by memo number, as PyTorch does ---- */

static void put_stacks_text(struct writer *w, uint32_t text)
{
    uint32_t place = flw_addressmap_find(&w->text_places, text);
    if (!put_again(w, place == FLW_ADDRESSMAP_ABSENT ? 0 : place)) {
        put_text(w, flw_stacks_text(&w->trace->stacks, text));
        w->lacks_memory |= !flw_addressmap_put(&w->text_places, text, memoize(w));
    }
}

static void put_frame(struct writer *w, uint32_t number)
{
    const struct flw_frame *frame = flw_stacks_frame(&w->trace->stacks, number);
    if (put_again(w, w->frame_places[number])) {
        return;
    }
    put_codes(w, DICT);
    put_word(w, WORD_NAME);
    put_stacks_text(w, frame->function);
    put_word(w, WORD_FILENAME);
    put_stacks_text(w, frame->file);
    put_number_pair(w, WORD_LINE, frame->line);
    put_codes(w, DICT_END);
    w->frame_places[number] = memoize(w);
}

static void put_frames(struct writer *w, uint32_t stack)
{
    struct flw_stack_walk walk = flw_stacks_walk(&w->trace->stacks, stack);
    uint64_t number = 0;
    put_word(w, WORD_FRAMES);
    if (stack == 0) {
        put_codes(w, EMPTY_LIST);
    } else if (!put_again(w, w->stack_places[stack])) {
        put_codes(w, LIST);
        for (uint32_t frame; flw_stacks_next(&walk, &frame);) {
            put_item(w, number++);
            put_frame(w, frame);
        }
        put_codes(w, LIST_END);
        w->stack_places[stack] = memoize(w);
    }
}

/* ---- events ---- */

static bool is_written(const struct writer *w, uint8_t op)
{
    bool is_segment = op >= FLW_TRACE_SEGMENT_ALLOC && op <= FLW_TRACE_SEGMENT_UNMAP;
    return op <= FLW_TRACE_MARK && op != FLW_TRACE_USE &&
           (!is_segment || w->heap.has_recorded_segments);
}

/* Write the free bytes. PyTorch's own reader needs a number there; for an unknown one it prints "nan". */
static void put_device_free(struct writer *w)
{
    if (w->detail != NULL && w->detail->free_bytes != FLW_TRACE_UNKNOWN) {
        put_number_pair(w, WORD_DEVICE_FREE, w->detail->free_bytes);
    } else {
        put_word(w, WORD_DEVICE_FREE);
        put_code(w, 'G', 0xF87F, 8); /* highest byte first */
    }
}

static void put_remark(struct writer *w, enum word key, uint32_t text)
{
    if (text != 0) {
        put_word(w, key);
        put_stacks_text(w, text - 1);
    }
}

/* Write the time since 1970 if the trace has its begin. */
static void put_time(struct writer *w, const struct flw_trace_event *event)
{
    put_number_pair(w, WORD_TIME_US, w->trace->begin_ns / 1000 + event->time_ns / 1000);
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
    put_item(w, number);
    put_codes(w, DICT);
    put_word_pair(w, WORD_ACTION, (enum word)action);
    if (op == FLW_TRACE_OOM) {
        put_device_free(w);
    } else {
        put_number_pair(w, WORD_ADDR, has_block ? w->heap.addresses[event->block] : event->address);
    }
    put_number_pair(w, WORD_SIZE, event->size_bytes);
    put_number_pair(w, WORD_STREAM, handle);
    if (w->trace->has_times) {
        put_time(w, event);
    }
    if (w->has_pools) {
        put_pool(w, WORD_POOL_ID, w->pool);
    }
    put_remark(w, WORD_COMPILE_CONTEXT, w->remark->compile_context);
    put_remark(w, WORD_USER_METADATA, w->remark->user_metadata);
    put_frames(w, stack);
    put_codes(w, DICT_END);
}

static void put_events(struct writer *w)
{
    struct flw_trace_walk walk = {0};
    uint64_t number = 0;
    put_codes(w, LIST);
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
        if (event->op == FLW_TRACE_FREE && !w->heap.has_done) {
            put_event(w, event, FLW_TRACE_FREE_DONE, stack, number++);
        }
    }
    put_codes(w, LIST_END);
}

/* Write a list for each device up to this one. */
static void put_device_traces(struct writer *w)
{
    int device = 0;
    put_word(w, WORD_DEVICE_TRACES);
    put_codes(w, LIST);
    for (; device < w->trace->device; device++) {
        put_item(w, (uint64_t)device);
        put_codes(w, EMPTY_LIST);
    }
    put_item(w, (uint64_t)device);
    put_events(w);
    put_codes(w, LIST_END);
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
            put_word(w, WORD_ANNOTATIONS);
            put_codes(w, LIST);
        }
        put_item(w, number++);
        put_codes(w, DICT);
        put_word_pair(w, WORD_STAGE, event->op == FLW_TRACE_PHASE_BEGIN ? WORD_START : WORD_END);
        put_word(w, WORD_NAME);
        put_text(w, flw_trace_name(trace, &trace->details[i]));
        put_number_pair(w, WORD_DEVICE, (uint64_t)trace->device);
        put_time(w, event);
        put_codes(w, DICT_END);
    }
    if (number > 0) {
        put_codes(w, LIST_END);
    }
}

/* ---- the heap at the end ---- */

struct extent {
    uint64_t address, bytes, requested_bytes;
    enum word state;
    uint32_t stack;
};

/* Get the extent of block number `at`, rounded up as far as there is room. Returns false after the segment's end. */
static bool get_extent(const struct writer *w, size_t at, uint64_t segment_end, struct extent *out)
{
    const struct flw_final_heap *heap = &w->heap;
    if (at == heap->block_count || heap->blocks[at].address >= segment_end) {
        return false;
    }
    const struct flw_trace_block *block = &w->trace->blocks[heap->blocks[at].block];
    uint64_t address = heap->blocks[at].address;
    uint64_t next = at + 1 < heap->block_count ? heap->blocks[at + 1].address : segment_end;
    uint64_t room = (next < segment_end ? next : segment_end) - address;
    uint64_t bytes = flw_final_heap_round(block->size_bytes);
    *out = (struct extent){
        .address = address,
        .bytes = bytes < room ? bytes : room,
        .requested_bytes = block->size_bytes,
        .state = block->freed ? WORD_ACTIVE_PENDING_FREE : WORD_ACTIVE_ALLOCATED,
        .stack = heap->blocks[at].stack,
    };
    return true;
}

/* Write an extent, unless it is an empty hole. */
static void put_extent(struct writer *w, struct extent extent, uint64_t *number)
{
    if (extent.state == WORD_INACTIVE && extent.bytes == 0) {
        return;
    }
    put_item(w, (*number)++);
    put_codes(w, DICT);
    put_number_pair(w, WORD_ADDRESS, extent.address);
    put_number_pair(w, WORD_SIZE, extent.bytes);
    put_number_pair(w, WORD_REQUESTED_SIZE, extent.requested_bytes);
    put_word_pair(w, WORD_STATE, extent.state);
    put_frames(w, extent.stack);
    put_codes(w, DICT_END);
}

static void put_blocks(struct writer *w, const struct flw_trace_segment *segment)
{
    uint64_t number = 0, end = segment->address + segment->size_bytes;
    struct extent hole = {.address = segment->address, .state = WORD_INACTIVE}, extent;
    put_word(w, WORD_BLOCKS);
    put_codes(w, LIST);
    for (size_t at = flw_final_heap_find(&w->heap, segment->address);
         get_extent(w, at, end, &extent); at++) {
        hole.bytes = extent.address - hole.address;
        put_extent(w, hole, &number);
        put_extent(w, extent, &number);
        hole.address = extent.address + extent.bytes;
    }
    hole.bytes = end - hole.address;
    put_extent(w, hole, &number);
    put_codes(w, LIST_END);
}

static void put_sums(struct writer *w, const struct flw_trace_segment *segment)
{
    uint64_t end = segment->address + segment->size_bytes;
    uint64_t allocated = 0, active = 0, requested = 0;
    struct extent extent;
    for (size_t at = flw_final_heap_find(&w->heap, segment->address);
         get_extent(w, at, end, &extent); at++) {
        bool is_live = extent.state == WORD_ACTIVE_ALLOCATED;
        allocated += is_live ? extent.bytes : 0;
        requested += is_live ? extent.requested_bytes : 0;
        active += extent.bytes;
    }
    put_number_pair(w, WORD_TOTAL_SIZE, segment->size_bytes);
    put_number_pair(w, WORD_ALLOCATED_SIZE, allocated);
    put_number_pair(w, WORD_ACTIVE_SIZE, active);
    put_number_pair(w, WORD_REQUESTED_SIZE, requested);
}

static void put_segment(struct writer *w, const struct flw_trace_segment *segment, uint64_t number)
{
    put_item(w, number);
    put_codes(w, DICT);
    put_number_pair(w, WORD_DEVICE, (uint64_t)w->trace->device);
    put_number_pair(w, WORD_ADDRESS, segment->address);
    put_sums(w, segment);
    put_number_pair(w, WORD_STREAM, w->trace->streams[segment->stream]);
    put_word_pair(w, WORD_SEGMENT_TYPE, segment->is_large ? WORD_LARGE : WORD_SMALL);
    put_pool(w, WORD_SEGMENT_POOL_ID, segment->pool);
    put_word(w, WORD_IS_EXPANDABLE);
    put_codes(w, segment->is_expandable ? "\x88" : "\x89");
    put_frames(w, segment->stack);
    put_blocks(w, segment);
    put_codes(w, DICT_END);
}

static void put_snapshot(struct writer *w)
{
    put_codes(w, "\x80\x04");
    put_codes(w, DICT);
    put_word(w, WORD_SEGMENTS);
    put_codes(w, LIST);
    for (size_t i = 0; i < w->heap.segment_count; i++) {
        put_segment(w, &w->heap.segments[i], i);
    }
    put_codes(w, LIST_END);
    put_device_traces(w);
    put_annotations(w);
    put_codes(w, DICT_END);
    put_codes(w, ".");
}

const char *flw_pytorch_print(const struct flw_trace *trace, FILE *file)
{
    struct writer w = {.trace = trace, .file = file};
    const char *reason = "no memory, or no 64-bit addresses for all its blocks";
    w.stack_places = calloc(trace->stacks.lists.count + 1, sizeof *w.stack_places);
    w.frame_places = calloc(trace->stacks.frames.count + 1, sizeof *w.frame_places);
    for (size_t i = 0; i < trace->context_count; i++) {
        w.has_pools |= trace->contexts[i].pool != 0;
    }
    if (w.stack_places != NULL && w.frame_places != NULL && flw_final_heap_init(&w.heap, trace)) {
        put_snapshot(&w);
        reason = w.lacks_memory ? FLW_TRACE_NO_MEMORY : NULL;
    }
    flw_final_heap_finish(&w.heap);
    flw_addressmap_finish(&w.text_places);
    free(w.stack_places);
    free(w.frame_places);
    return reason;
}
