/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: walking a trace to the end.
 */
#include "trace/trace/final_heap.h"

#include <stdlib.h>

#include "base/compare.h"
#include "trace/trace/history.h"

#define ROUND_BYTES       UINT64_C(512)
#define LARGE_BYTES       (UINT64_C(1) << 20) /* PyTorch's small pool allocates up to this */
#define FIRST_ADDRESS     (UINT64_C(2) << 20)
#define ADDRESS_LAST_ROOM (UINT64_C(1) << 63)

uint64_t flw_final_heap_round(uint64_t bytes)
{
    if (bytes > UINT64_MAX - ROUND_BYTES) {
        return bytes;
    }
    return bytes == 0 ? ROUND_BYTES : (bytes + ROUND_BYTES - 1) / ROUND_BYTES * ROUND_BYTES;
}

/* Set the addresses: the recorded ones, else consecutive ones that are never reused. */
static bool place_blocks(struct flw_final_heap *heap, const struct flw_trace *trace)
{
    uint64_t next = FIRST_ADDRESS;
    for (size_t i = 0; i < trace->block_count; i++) {
        heap->addresses[i] = trace->has_addresses ? trace->blocks[i].address : next;
        uint64_t bytes = flw_final_heap_round(trace->blocks[i].size_bytes);
        if (!trace->has_addresses &&
            (__builtin_add_overflow(next, bytes, &next) || next > ADDRESS_LAST_ROOM)) {
            return false;
        }
    }
    return true;
}

/* ---- the walk to the end ---- */

/* At each address, the record that allocates the block there, and the number of the segment of the start or, beyond
 * those, of the event that allocates the segment. */
struct places {
    struct flw_addressmap blocks, segments;
};

static uint32_t block_of(const struct flw_trace *trace, size_t record)
{
    return record < trace->initial_count ? (uint32_t)record
                                         : trace->events[record - trace->initial_count].block;
}

static void leave_place(const struct flw_trace *trace, struct flw_addressmap *places,
                        uint64_t address, uint32_t block)
{
    uint32_t record = flw_addressmap_find(places, address);
    if (record != FLW_ADDRESSMAP_ABSENT && block_of(trace, record) == block) {
        flw_addressmap_remove(places, address);
    }
}

static bool walk_event(const struct flw_final_heap *heap, const struct flw_trace *trace, size_t i,
                       struct places *places)
{
    const struct flw_trace_event *event = &trace->events[i];
    switch (event->op) {
    case FLW_TRACE_ALLOC:
        return flw_addressmap_put(&places->blocks, heap->addresses[event->block],
                                  (uint32_t)(trace->initial_count + i));
    case FLW_TRACE_FREE:
    case FLW_TRACE_FREE_DONE:
        if (event->op == FLW_TRACE_FREE_DONE || !heap->has_done) {
            leave_place(trace, &places->blocks, heap->addresses[event->block], event->block);
        }
        return true;
    case FLW_TRACE_SEGMENT_ALLOC:
    case FLW_TRACE_SEGMENT_MAP:
        return flw_addressmap_put(&places->segments, event->address,
                                  (uint32_t)(trace->segment_count + i));
    case FLW_TRACE_SEGMENT_FREE:
    case FLW_TRACE_SEGMENT_UNMAP:
        flw_addressmap_remove(&places->segments, event->address);
        return true;
    default:
        return true;
    }
}

static bool walk(const struct flw_final_heap *heap, const struct flw_trace *trace,
                 struct places *places)
{
    size_t most =
        trace->initial_count > trace->segment_count ? trace->initial_count : trace->segment_count;
    bool has_memory = trace->event_count < FLW_ADDRESSMAP_ABSENT - most;
    for (size_t i = 0; has_memory && i < trace->initial_count; i++) {
        has_memory = flw_addressmap_put(&places->blocks, heap->addresses[i], (uint32_t)i);
    }
    for (size_t i = 0; has_memory && i < trace->segment_count; i++) {
        has_memory = flw_addressmap_put(&places->segments, trace->segments[i].address, (uint32_t)i);
    }
    for (size_t i = 0; has_memory && i < trace->event_count; i++) {
        has_memory = walk_event(heap, trace, i, places);
    }
    return has_memory;
}

/* ---- blocks ---- */

static bool find_blocks(struct flw_final_heap *heap, const struct flw_trace *trace,
                        const struct flw_addressmap *places)
{
    heap->blocks = calloc(places->used_count + 1, sizeof(*heap->blocks));
    if (heap->blocks == NULL) {
        return false;
    }
    for (size_t i = 0; i < places->slot_count; i++) {
        uint32_t record = places->slots[i].value;
        if (record != FLW_ADDRESSMAP_ABSENT) {
            heap->blocks[heap->block_count++] = (struct flw_final_heap_block){
                places->slots[i].key, block_of(trace, record), flw_trace_pool(trace, record),
                flw_trace_stack(trace, record)};
        }
    }
    qsort(heap->blocks, heap->block_count, sizeof(*heap->blocks), flw_compare_u64);
    return true;
}

size_t flw_final_heap_find(const struct flw_final_heap *heap, uint64_t address)
{
    return flw_count_below(heap->blocks, heap->block_count, sizeof *heap->blocks, address);
}

/* ---- segments ---- */

/* Return the opposite of a segment event; the two of a pair are neighbours. */
static uint8_t invert(uint8_t op)
{
    return (uint8_t)(FLW_TRACE_SEGMENT_ALLOC + ((op - FLW_TRACE_SEGMENT_ALLOC) ^ 1));
}

/* Make a recording that runs backward, each event replaced by the opposite event: a history finds segments of the start
 * from those of the end, so this one finds those of the end from those of the start. */
static bool turn_around(const struct flw_trace *trace, struct flw_build *build)
{
    bool has_memory = true;
    for (size_t i = 0; has_memory && i < trace->segment_count; i++) {
        has_memory = flw_build_add_segment(build, &trace->segments[i]);
    }
    for (size_t i = trace->event_count; has_memory && i-- > 0;) {
        struct flw_trace_event event = trace->events[i];
        if (event.op >= FLW_TRACE_SEGMENT_ALLOC && event.op <= FLW_TRACE_SEGMENT_UNMAP &&
            event.size_bytes <= UINT64_MAX - event.address) {
            struct flw_trace_context context = {
                .record = build->trace->event_count,
                .pool = flw_trace_pool(trace, trace->initial_count + i)};
            event.op = invert(event.op);
            event.time_ns = 0;
            has_memory =
                flw_build_add_context(build, &context) && flw_build_add_event(build, &event);
        }
    }
    return has_memory;
}

static bool find_recorded_segments(struct flw_final_heap *heap, const struct flw_trace *trace)
{
    struct flw_history history = {0};
    struct flw_build build;
    bool has_memory = flw_build_init(&build, "", "");
    if (has_memory) {
        has_memory = turn_around(trace, &build) && flw_history_resolve(&history, &build);
        struct flw_trace *end = build.trace;
        heap->segments = end->segments;
        heap->segment_count = end->segment_count;
        end->segments = NULL;
        end->segment_count = 0;
        flw_build_finish(&build);
    }
    FLW_SORT(heap->segments, heap->segment_count, flw_compare_u64);
    return has_memory;
}

/* Set each segment's stack: that of the last recorded allocation at the segment's address, else that of the start. */
static void set_segment_stacks(struct flw_final_heap *heap, const struct flw_trace *trace,
                               const struct flw_addressmap *places)
{
    for (size_t i = 0; i < heap->segment_count; i++) {
        uint32_t place = flw_addressmap_find(places, heap->segments[i].address);
        heap->segments[i].stack =
            place == FLW_ADDRESSMAP_ABSENT ? 0
            : place < trace->segment_count
                ? trace->segments[place].stack
                : flw_trace_stack(trace, trace->initial_count + place - trace->segment_count);
    }
}

static bool segments_are_usable(const struct flw_trace *trace)
{
    for (size_t i = 0; i < trace->segment_count; i++) {
        if (trace->segments[i].size_bytes > UINT64_MAX - trace->segments[i].address) {
            return false;
        }
    }
    return trace->has_segments && trace->has_addresses;
}

/* True if each block of the end is in one segment of its stream, and no segments overlap. */
static bool segments_hold_blocks(const struct flw_final_heap *heap, const struct flw_trace *trace)
{
    size_t held = 0;
    for (size_t i = 0; i < heap->segment_count; i++) {
        const struct flw_trace_segment *segment = &heap->segments[i];
        uint64_t end = segment->address + segment->size_bytes;
        if (i + 1 < heap->segment_count && end > segment[1].address) {
            return false;
        }
        size_t at = flw_final_heap_find(heap, segment->address);
        for (; at < heap->block_count && heap->blocks[at].address < end; at++) {
            const struct flw_trace_block *block = &trace->blocks[heap->blocks[at].block];
            held += block->stream == segment->stream &&
                    block->size_bytes <= end - heap->blocks[at].address;
        }
    }
    return held == heap->block_count;
}

/* Make one segment per block. */
static bool make_segments(struct flw_final_heap *heap, const struct flw_trace *trace)
{
    free(heap->segments);
    heap->segments = calloc(heap->block_count + 1, sizeof(*heap->segments));
    heap->segment_count = 0;
    if (heap->segments == NULL) {
        return false;
    }
    for (size_t i = 0; i < heap->block_count; i++) {
        const struct flw_trace_block *block = &trace->blocks[heap->blocks[i].block];
        uint64_t bytes = flw_final_heap_round(block->size_bytes);
        if (bytes > UINT64_MAX - heap->blocks[i].address) {
            bytes = block->size_bytes;
        }
        heap->segments[heap->segment_count++] = (struct flw_trace_segment){
            .address = heap->blocks[i].address,
            .size_bytes = bytes,
            .stream = block->stream,
            .is_large = block->size_bytes > LARGE_BYTES,
            .pool = heap->blocks[i].pool,
        };
    }
    return true;
}

static bool find_segments(struct flw_final_heap *heap, const struct flw_trace *trace,
                          const struct flw_addressmap *places)
{
    if (segments_are_usable(trace)) {
        if (!find_recorded_segments(heap, trace)) {
            return false;
        }
        set_segment_stacks(heap, trace, places);
        heap->has_recorded_segments = segments_hold_blocks(heap, trace);
    }
    return heap->has_recorded_segments || make_segments(heap, trace);
}

bool flw_final_heap_init(struct flw_final_heap *heap, const struct flw_trace *trace)
{
    struct places places = {0};
    *heap = (struct flw_final_heap){0};
    heap->addresses = calloc(trace->block_count + 1, sizeof(*heap->addresses));
    for (size_t i = 0; i < trace->event_count; i++) {
        heap->has_done |= trace->events[i].op == FLW_TRACE_FREE_DONE;
    }
    bool is_done = heap->addresses != NULL && place_blocks(heap, trace) &&
                   walk(heap, trace, &places) && find_blocks(heap, trace, &places.blocks) &&
                   find_segments(heap, trace, &places.segments);
    flw_addressmap_finish(&places.blocks);
    flw_addressmap_finish(&places.segments);
    if (!is_done) {
        flw_final_heap_finish(heap);
    }
    return is_done;
}

void flw_final_heap_finish(struct flw_final_heap *heap)
{
    free(heap->addresses);
    free(heap->blocks);
    free(heap->segments);
    *heap = (struct flw_final_heap){0};
}
