/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: walking a trace to the end.
 */
#include "trace/trace/remains.h"

#include <stdlib.h>

#include "trace/trace/history.h"

#define ROUND_BYTES       UINT64_C(512)
#define LARGE_BYTES       (UINT64_C(1) << 20) /* PyTorch's small pool allocates up to this */
#define FIRST_ADDRESS     (UINT64_C(2) << 20)
#define ADDRESS_LAST_ROOM (UINT64_C(1) << 63)

uint64_t flw_remains_round(uint64_t bytes)
{
    if (bytes > UINT64_MAX - ROUND_BYTES) {
        return bytes;
    }
    return bytes == 0 ? ROUND_BYTES : (bytes + ROUND_BYTES - 1) / ROUND_BYTES * ROUND_BYTES;
}

/* Set the addresses: the recorded ones, else consecutive ones that are never reused. */
static bool place_blocks(struct flw_remains *remains, const struct flw_trace *trace)
{
    uint64_t next = FIRST_ADDRESS;
    for (size_t i = 0; i < trace->block_count; i++) {
        remains->addresses[i] = trace->has_addresses ? trace->blocks[i].address : next;
        uint64_t bytes = flw_remains_round(trace->blocks[i].size_bytes);
        if (!trace->has_addresses &&
            (__builtin_add_overflow(next, bytes, &next) || next > ADDRESS_LAST_ROOM)) {
            return false;
        }
    }
    return true;
}

/* Set each block's pool and stack to those of the record that allocates it. */
static void find_origins(struct flw_remains *remains, const struct flw_trace *trace)
{
    struct flw_trace_walk walk = {0};
    for (size_t i = 0; i < trace->initial_count; i++) {
        remains->pools[i] = flw_trace_walk_context(trace, &walk, i)->pool;
        remains->stacks[i] = flw_trace_stack(trace, i);
    }
    for (size_t i = 0; i < trace->event_count; i++) {
        if (trace->events[i].op == FLW_TRACE_ALLOC) {
            size_t record = trace->initial_count + i;
            uint32_t block = trace->events[i].block;
            remains->pools[block] = flw_trace_walk_context(trace, &walk, record)->pool;
            remains->stacks[block] = flw_trace_stack(trace, record);
        }
    }
}

/* ---- blocks ---- */

static void leave_place(struct flw_addressmap *places, uint64_t address, uint32_t block)
{
    if (flw_addressmap_find(places, address) == block) {
        flw_addressmap_remove(places, address);
    }
}

/* Find the block at each address at the end. */
static bool walk_blocks(const struct flw_remains *remains, const struct flw_trace *trace,
                        struct flw_addressmap *places)
{
    bool has_memory = true;
    for (size_t i = 0; has_memory && i < trace->initial_count; i++) {
        has_memory = flw_addressmap_put(places, remains->addresses[i], (uint32_t)i);
    }
    for (size_t i = 0; has_memory && i < trace->event_count; i++) {
        const struct flw_trace_event *event = &trace->events[i];
        if (event->op == FLW_TRACE_ALLOC) {
            has_memory = flw_addressmap_put(places, remains->addresses[event->block], event->block);
        } else if (event->op == FLW_TRACE_FREE_DONE ||
                   (event->op == FLW_TRACE_FREE && !remains->has_done)) {
            leave_place(places, remains->addresses[event->block], event->block);
        }
    }
    return has_memory;
}

static int compare_blocks(const void *a, const void *b)
{
    const struct flw_remains_block *x = a;
    const struct flw_remains_block *y = b;
    return (x->address > y->address) - (x->address < y->address);
}

static bool find_blocks(struct flw_remains *remains, const struct flw_trace *trace)
{
    struct flw_addressmap places = {0};
    bool has_memory = walk_blocks(remains, trace, &places);
    for (size_t i = 0; has_memory && i < trace->block_count; i++) {
        if (flw_addressmap_find(&places, remains->addresses[i]) == i) {
            remains->blocks[remains->block_count++] =
                (struct flw_remains_block){remains->addresses[i], (uint32_t)i};
        }
    }
    flw_addressmap_finish(&places);
    if (remains->block_count > 0) {
        qsort(remains->blocks, remains->block_count, sizeof(*remains->blocks), compare_blocks);
    }
    return has_memory;
}

size_t flw_remains_find(const struct flw_remains *remains, uint64_t address)
{
    size_t low = 0;
    size_t high = remains->block_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (remains->blocks[middle].address < address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* ---- segments ---- */

static uint8_t invert(uint8_t op)
{
    switch (op) {
    case FLW_TRACE_SEGMENT_ALLOC:
        return FLW_TRACE_SEGMENT_FREE;
    case FLW_TRACE_SEGMENT_FREE:
        return FLW_TRACE_SEGMENT_ALLOC;
    case FLW_TRACE_SEGMENT_MAP:
        return FLW_TRACE_SEGMENT_UNMAP;
    default:
        return FLW_TRACE_SEGMENT_MAP;
    }
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

static int compare_segments(const void *a, const void *b)
{
    const struct flw_trace_segment *x = a;
    const struct flw_trace_segment *y = b;
    return (x->address > y->address) - (x->address < y->address);
}

static bool find_recorded_segments(struct flw_remains *remains, const struct flw_trace *trace)
{
    struct flw_history history = {0};
    struct flw_build build;
    bool has_memory = flw_build_init(&build, "", "");
    if (has_memory) {
        has_memory = turn_around(trace, &build) && flw_history_resolve(&history, &build);
        struct flw_trace *end = build.trace;
        remains->segments = end->segments;
        remains->segment_count = end->segment_count;
        end->segments = NULL;
        end->segment_count = 0;
        flw_build_finish(&build);
    }
    if (remains->segment_count > 0) {
        qsort(remains->segments, remains->segment_count, sizeof(*remains->segments),
              compare_segments);
    }
    return has_memory;
}

/* Find each segment's stack: that of the last recorded allocation at the segment's address, else that of the start. */
static bool find_segment_stacks(struct flw_remains *remains, const struct flw_trace *trace)
{
    struct flw_addressmap places = {0};
    bool has_memory = true;
    for (size_t i = 0; has_memory && i < trace->segment_count; i++) {
        has_memory = flw_addressmap_put(&places, trace->segments[i].address, (uint32_t)i);
    }
    size_t first_event = trace->segment_count;
    has_memory = has_memory && trace->event_count < FLW_ADDRESSMAP_ABSENT - first_event;
    for (size_t i = 0; has_memory && i < trace->event_count; i++) {
        const struct flw_trace_event *event = &trace->events[i];
        uint8_t op = event->op;
        if (op == FLW_TRACE_SEGMENT_ALLOC || op == FLW_TRACE_SEGMENT_MAP) {
            has_memory = flw_addressmap_put(&places, event->address, (uint32_t)(first_event + i));
        } else if (op == FLW_TRACE_SEGMENT_FREE || op == FLW_TRACE_SEGMENT_UNMAP) {
            flw_addressmap_remove(&places, event->address);
        }
    }
    for (size_t i = 0; has_memory && i < remains->segment_count; i++) {
        uint32_t place = flw_addressmap_find(&places, remains->segments[i].address);
        remains->segments[i].stack =
            place == FLW_ADDRESSMAP_ABSENT ? 0
            : place < first_event
                ? trace->segments[place].stack
                : flw_trace_stack(trace, trace->initial_count + place - first_event);
    }
    flw_addressmap_finish(&places);
    return has_memory;
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
static bool segments_hold_blocks(const struct flw_remains *remains, const struct flw_trace *trace)
{
    size_t held = 0;
    for (size_t i = 0; i < remains->segment_count; i++) {
        const struct flw_trace_segment *segment = &remains->segments[i];
        uint64_t end = segment->address + segment->size_bytes;
        if (i + 1 < remains->segment_count && end > segment[1].address) {
            return false;
        }
        size_t at = flw_remains_find(remains, segment->address);
        for (; at < remains->block_count && remains->blocks[at].address < end; at++) {
            const struct flw_trace_block *block = &trace->blocks[remains->blocks[at].block];
            held += block->stream == segment->stream &&
                    block->size_bytes <= end - remains->blocks[at].address;
        }
    }
    return held == remains->block_count;
}

/* Make one segment per block. */
static bool make_segments(struct flw_remains *remains, const struct flw_trace *trace)
{
    free(remains->segments);
    remains->segments = calloc(remains->block_count + 1, sizeof(*remains->segments));
    remains->segment_count = 0;
    if (remains->segments == NULL) {
        return false;
    }
    for (size_t i = 0; i < remains->block_count; i++) {
        const struct flw_trace_block *block = &trace->blocks[remains->blocks[i].block];
        uint64_t bytes = flw_remains_round(block->size_bytes);
        if (bytes > UINT64_MAX - remains->blocks[i].address) {
            bytes = block->size_bytes;
        }
        remains->segments[remains->segment_count++] = (struct flw_trace_segment){
            .address = remains->blocks[i].address,
            .size_bytes = bytes,
            .stream = block->stream,
            .is_large = block->size_bytes > LARGE_BYTES,
            .pool = remains->pools[remains->blocks[i].block],
        };
    }
    return true;
}

static bool find_segments(struct flw_remains *remains, const struct flw_trace *trace)
{
    if (segments_are_usable(trace)) {
        if (!find_recorded_segments(remains, trace) || !find_segment_stacks(remains, trace)) {
            return false;
        }
        remains->has_recorded_segments = segments_hold_blocks(remains, trace);
    }
    return remains->has_recorded_segments || make_segments(remains, trace);
}

bool flw_remains_init(struct flw_remains *remains, const struct flw_trace *trace)
{
    *remains = (struct flw_remains){0};
    remains->addresses = calloc(trace->block_count + 1, sizeof(*remains->addresses));
    remains->pools = calloc(trace->block_count + 1, sizeof(*remains->pools));
    remains->stacks = calloc(trace->block_count + 1, sizeof(*remains->stacks));
    remains->blocks = calloc(trace->block_count + 1, sizeof(*remains->blocks));
    for (size_t i = 0; i < trace->event_count; i++) {
        remains->has_done |= trace->events[i].op == FLW_TRACE_FREE_DONE;
    }
    if (remains->addresses == NULL || remains->pools == NULL || remains->stacks == NULL ||
        remains->blocks == NULL) {
        flw_remains_finish(remains);
        return false;
    }
    find_origins(remains, trace);
    if (!place_blocks(remains, trace) || !find_blocks(remains, trace) ||
        !find_segments(remains, trace)) {
        flw_remains_finish(remains);
        return false;
    }
    return true;
}

void flw_remains_finish(struct flw_remains *remains)
{
    free(remains->addresses);
    free(remains->pools);
    free(remains->stacks);
    free(remains->blocks);
    free(remains->segments);
    *remains = (struct flw_remains){0};
}
