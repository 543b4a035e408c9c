/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the walk back (initial blocks and segments) and the walk forward (block numbers).
 * Does not: fail on gaps in a recording: a block with a lost allocation is left out and the block's frees are counted
 * as unknown; a lost free is inserted before the address is allocated again.
 */
#include "trace/trace/history.h"

#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "record/array.h"
#include "trace/trace/largearray.h"

#define SMALL_SEGMENT_BYTES (2 * FLW_MIB) /* PyTorch's small pool takes exactly this at a time */

/* ---- collecting ---- */

bool flw_history_add_event(struct flw_history *history, const struct flw_trace_event *event)
{
    return FLW_LARGEARRAY_ADD(history->events, history->event_count, history->event_room, *event);
}

bool flw_history_reserve_events(struct flw_history *history, size_t count)
{
    return FLW_LARGEARRAY_HOLDS(history->events, count, history->event_room);
}

bool flw_history_add_detail(struct flw_history *history, struct flw_trace_detail detail,
                            uint32_t *out_number)
{
    if (!FLW_ARRAY_FITS(history->details, history->detail_count, history->detail_room) ||
        history->detail_count >= UINT32_MAX) {
        return false;
    }
    *out_number = (uint32_t)history->detail_count;
    history->details[history->detail_count++] = detail;
    return true;
}

bool flw_history_set_pool(struct flw_history *history, uint32_t pool)
{
    while (pool != 0 && history->pool_count < history->event_count) {
        if (!FLW_ARRAY_FITS(history->pools, history->pool_count, history->pool_room)) {
            return false;
        }
        history->pools[history->pool_count++] = 0;
    }
    if (pool != 0) {
        history->pools[history->event_count - 1] = pool;
    }
    return true;
}

bool flw_history_set_stack(struct flw_history *history, uint32_t stack)
{
    if (stack != 0) {
        if (!FLW_LARGEARRAY_HOLDS(history->stacks, history->event_count, history->stack_room)) {
            return false;
        }
        history->stacks[history->event_count - 1] = stack; /* those between have none (0) */
        history->stack_count = history->event_count;
    }
    return true;
}

bool flw_history_set_remark(struct flw_history *history, struct flw_trace_remark remark)
{
    static const struct flw_trace_remark none = {0};
    size_t count = history->remark_count;
    const struct flw_trace_remark *last = count == 0 ? &none : &history->remarks[count - 1];
    if (flw_trace_remark_is(last, &remark)) {
        return true;
    }
    if (!FLW_ARRAY_FITS(history->remarks, count, history->remark_room)) {
        return false;
    }
    remark.record = history->event_count - 1;
    history->remarks[history->remark_count++] = remark;
    return true;
}

bool flw_history_add_block(struct flw_history *history, const struct flw_history_block *block)
{
    return FLW_ARRAY_ADD(history->blocks, history->block_count, history->block_room, *block);
}

bool flw_history_add_segment(struct flw_history *history, const struct flw_trace_segment *segment)
{
    return FLW_ARRAY_ADD(history->segments, history->segment_count, history->segment_room,
                         *segment);
}

void flw_history_finish(struct flw_history *history)
{
    flw_largearray_free(history->events, history->event_room, sizeof(*history->events));
    free(history->details);
    free(history->pools);
    free(history->remarks);
    flw_largearray_free(history->stacks, history->stack_room, sizeof(*history->stacks));
    free(history->blocks);
    free(history->segments);
    *history = (struct flw_history){0};
}

/* ---- blocks, backward ---- */

/* The heap during the walk: the live block at each address, as the number of a block of the end, or beyond those, of
 * the free that restored it. */
struct heap {
    const struct flw_history *history;
    struct flw_addressmap places;
};

/* Undo one event. A free restores the block; of a request and the completion, the request is undone last. If the later
 * heap has a block at that address, that block's allocation was lost, and the earlier block replaces that block. A
 * waiting block of the end belongs to the last free. */
static bool undo_event(struct heap *heap, size_t event)
{
    const struct flw_history *history = heap->history;
    uint64_t address = history->events[event].address;
    uint32_t there;
    switch (history->events[event].op) {
    case FLW_TRACE_ALLOC:
        flw_addressmap_remove(&heap->places, address);
        return true;
    case FLW_TRACE_FREE:
        there = flw_addressmap_find(&heap->places, address);
        if (there < history->block_count && history->blocks[there].waits) {
            return true;
        }
        /* fall through */
    case FLW_TRACE_FREE_DONE:
        return flw_addressmap_put(&heap->places, address, (uint32_t)(history->block_count + event));
    default:
        return true;
    }
}

static struct flw_history_block block_of(const struct heap *heap, uint32_t number)
{
    const struct flw_history *history = heap->history;
    if (number < history->block_count) {
        struct flw_history_block block = history->blocks[number];
        block.block.freed = false;
        return block;
    }
    size_t event = number - history->block_count;
    const struct flw_trace_event *from = &history->events[event];
    return (struct flw_history_block){
        {.address = from->address, .size_bytes = from->size_bytes, .stream = from->stream},
        flw_history_pool(history, event),
        0,
        false}; /* the stack of a free is not that of the allocation */
}

static int compare_blocks(const void *a, const void *b)
{
    uint64_t x = ((const struct flw_history_block *)a)->block.address;
    uint64_t y = ((const struct flw_history_block *)b)->block.address;
    return (x > y) - (x < y);
}

/* Add the blocks that are left, in address order. */
static bool add_initial_blocks(const struct heap *heap, struct flw_build *build)
{
    size_t count = 0;
    struct flw_history_block *blocks = calloc(heap->places.used_count + 1, sizeof(*blocks));
    bool has_memory = blocks != NULL;
    for (size_t i = 0; has_memory && i < heap->places.slot_count; i++) {
        uint32_t number = heap->places.slots[i].value;
        if (number != FLW_ADDRESSMAP_ABSENT) {
            blocks[count++] = block_of(heap, number);
        }
    }
    if (count > 0) {
        qsort(blocks, count, sizeof(*blocks), compare_blocks);
    }
    for (size_t i = 0; has_memory && i < count; i++) {
        struct flw_trace_context context = {.record = i, .pool = blocks[i].pool};
        has_memory = flw_build_add_context(build, &context) &&
                     flw_build_add_block(build, &blocks[i].block) &&
                     flw_build_set_stack(build, i, blocks[i].stack);
    }
    build->trace->initial_count = build->trace->block_count;
    free(blocks);
    return has_memory;
}

static bool resolve_blocks(struct flw_history *history, struct flw_build *build)
{
    struct heap heap = {.history = history};
    bool has_memory = history->event_count < FLW_ADDRESSMAP_ABSENT - history->block_count;
    for (size_t i = 0; has_memory && i < history->block_count; i++) {
        has_memory =
            flw_addressmap_put(&heap.places, history->blocks[i].block.address, (uint32_t)i);
    }
    history->double_count = history->block_count - heap.places.used_count;
    for (size_t i = history->event_count; has_memory && i-- > 0;) {
        has_memory = undo_event(&heap, i);
    }
    has_memory = has_memory && add_initial_blocks(&heap, build);
    flw_addressmap_finish(&heap.places);
    return has_memory;
}

/* ---- segments, backward ---- */

/* Find the whole segments of the start: those of the end, without the allocated, with the freed. */
static bool resolve_whole_segments(const struct flw_history *history, struct flw_build *build)
{
    struct flw_history seen = {0};
    struct flw_addressmap places = {0};
    bool has_memory = true;
    for (size_t i = 0; has_memory && i < history->segment_count; i++) {
        const struct flw_trace_segment *segment = &history->segments[i];
        if (!segment->is_expandable) {
            has_memory =
                flw_addressmap_put(&places, segment->address, (uint32_t)seen.segment_count) &&
                flw_history_add_segment(&seen, segment);
        }
    }
    for (size_t i = history->event_count; has_memory && i-- > 0;) {
        const struct flw_trace_event *event = &history->events[i];
        if (event->op == FLW_TRACE_SEGMENT_ALLOC) {
            flw_addressmap_remove(&places, event->address);
        } else if (event->op == FLW_TRACE_SEGMENT_FREE) {
            struct flw_trace_segment segment = {
                .address = event->address,
                .size_bytes = event->size_bytes,
                .stream = event->stream,
                .is_large = event->size_bytes != SMALL_SEGMENT_BYTES,
                .pool = flw_history_pool(history, i),
            };
            has_memory =
                flw_addressmap_put(&places, segment.address, (uint32_t)seen.segment_count) &&
                flw_history_add_segment(&seen, &segment);
        }
    }
    for (size_t i = 0; has_memory && i < seen.segment_count; i++) {
        if (flw_addressmap_find(&places, seen.segments[i].address) == i) {
            has_memory = flw_build_add_segment(build, &seen.segments[i]);
        }
    }
    flw_history_finish(&seen);
    flw_addressmap_finish(&places);
    return has_memory;
}

/* Expandable segments are ranges, mapped and unmapped piece by piece. At every address
 *     mapped at the start = mapped at the end + times unmapped - times mapped,
 * so one sweep over the sorted edges of all ranges gives the initial ones. */
struct edge {
    uint64_t address;
    uint16_t stream;
    int8_t delta;
    uint8_t pool; /* enum edge_pool */
    uint32_t private_pool;
    uint32_t stack; /* of a segment of the end with this first address */
};

enum edge_pool {
    POOL_SMALL,
    POOL_LARGE,
    POOL_UNKNOWN
};

struct edges {
    struct edge *at;
    size_t count, room;
};

static bool add_range(struct edges *edges, const struct flw_trace_segment *range, int delta,
                      enum edge_pool pool)
{
    uint64_t end = range->address + range->size_bytes;
    const struct edge pair[2] = {
        {range->address, range->stream, (int8_t)delta, (uint8_t)pool, range->pool, range->stack},
        {end, range->stream, (int8_t)-delta, (uint8_t)pool, range->pool, 0},
    };
    for (size_t i = 0; i < 2; i++) {
        if (!FLW_ARRAY_FITS(edges->at, edges->count, edges->room)) {
            return false;
        }
        edges->at[edges->count++] = pair[i];
    }
    return true;
}

/* Order by stream, then by address; at the same address ends are before begins. */
static int compare_edges(const void *a, const void *b)
{
    const struct edge *x = a;
    const struct edge *y = b;
    if (x->stream != y->stream) {
        return x->stream < y->stream ? -1 : 1;
    }
    if (x->address != y->address) {
        return x->address < y->address ? -1 : 1;
    }
    return (x->delta > y->delta) - (x->delta < y->delta);
}

static bool collect_edges(const struct flw_history *history, struct edges *edges)
{
    for (size_t i = 0; i < history->segment_count; i++) {
        const struct flw_trace_segment *segment = &history->segments[i];
        enum edge_pool pool = segment->is_large ? POOL_LARGE : POOL_SMALL;
        if (segment->is_expandable && !add_range(edges, segment, 1, pool)) {
            return false;
        }
    }
    for (size_t i = 0; i < history->event_count; i++) {
        const struct flw_trace_event *event = &history->events[i];
        const struct flw_trace_segment range = {.address = event->address,
                                                .size_bytes = event->size_bytes,
                                                .stream = event->stream,
                                                .pool = flw_history_pool(history, i)};
        bool is_map = event->op == FLW_TRACE_SEGMENT_MAP;
        if ((is_map || event->op == FLW_TRACE_SEGMENT_UNMAP) &&
            !add_range(edges, &range, is_map ? -1 : 1, POOL_UNKNOWN)) {
            return false;
        }
    }
    return true;
}

/* A complete run of mapped addresses; adjacent runs of the same pool are joined. */
struct run {
    struct flw_trace_segment segment;
    uint8_t pool;
};

static bool flush_run(struct flw_build *build, struct run *run)
{
    if (run->segment.size_bytes == 0) {
        return true;
    }
    run->segment.is_large = run->pool == POOL_UNKNOWN
                                ? run->segment.size_bytes > SMALL_SEGMENT_BYTES
                                : run->pool == POOL_LARGE;
    bool has_memory = flw_build_add_segment(build, &run->segment);
    run->segment.size_bytes = 0;
    return has_memory;
}

static bool extend_run(struct flw_build *build, struct run *run, const struct edge *from,
                       uint64_t end)
{
    bool adjoins =
        run->segment.size_bytes > 0 && run->segment.stream == from->stream &&
        run->segment.pool == from->private_pool &&
        run->segment.address + run->segment.size_bytes == from->address &&
        (run->pool == from->pool || run->pool == POOL_UNKNOWN || from->pool == POOL_UNKNOWN);
    if (!adjoins) {
        if (!flush_run(build, run)) {
            return false;
        }
        run->segment = (struct flw_trace_segment){.address = from->address,
                                                  .stream = from->stream,
                                                  .is_expandable = true,
                                                  .pool = from->private_pool,
                                                  .stack = from->stack};
        run->pool = POOL_UNKNOWN;
    }
    run->segment.size_bytes += end - from->address;
    run->pool = run->pool == POOL_UNKNOWN ? from->pool : run->pool;
    return true;
}

static bool resolve_expandable_segments(const struct flw_history *history, struct flw_build *build)
{
    struct edges edges = {0};
    struct run run = {{0}, POOL_UNKNOWN};
    bool has_memory = collect_edges(history, &edges);
    if (has_memory && edges.count > 0) {
        qsort(edges.at, edges.count, sizeof(*edges.at), compare_edges);
    }
    int64_t cover = 0;
    struct edge from = {0};
    uint8_t pool = POOL_UNKNOWN;
    for (size_t i = 0; has_memory && i < edges.count; i++) {
        int64_t next = cover + edges.at[i].delta;
        if (edges.at[i].pool != POOL_UNKNOWN) {
            pool = edges.at[i].delta > 0 ? edges.at[i].pool : POOL_UNKNOWN;
        }
        if (cover <= 0 && next > 0) {
            from = edges.at[i];
            from.pool = pool;
        } else if (cover > 0 && next <= 0 && edges.at[i].address > from.address) {
            has_memory = extend_run(build, &run, &from, edges.at[i].address);
        }
        cover = next;
    }
    has_memory = has_memory && flush_run(build, &run);
    free(edges.at);
    return has_memory;
}

/* ---- forward ---- */

/* Turns the history's events into the trace's within one array: written events are before those still to be read.
 * INVARIANT  trace->event_count <= next <= end. */
struct forward {
    const struct flw_history *history;
    struct flw_build *build;
    struct flw_addressmap places; /* address -> live or waiting block there */
    uint32_t pool, stack;         /* of the present event */
    struct flw_trace_remark remark;
    size_t next_remark;
    size_t next, end; /* events still to be read */
};

/* Make room for one more event than was read, counting the last one read. */
static bool make_gap(struct forward *f)
{
    struct flw_trace *trace = f->build->trace;
    size_t gap = (f->end - f->next) / 8 + 64;
    if (trace->event_count + 2 <= f->next) {
        return true;
    }
    if (!FLW_LARGEARRAY_HOLDS(trace->events, f->end + gap, trace->event_room)) {
        return false;
    }
    memmove(trace->events + f->next + gap, trace->events + f->next,
            (f->end - f->next) * sizeof(*trace->events));
    f->next += gap;
    f->end += gap;
    return true;
}

static bool add_event(struct forward *f, const struct flw_trace_event *event)
{
    const struct flw_trace *trace = f->build->trace;
    struct flw_trace_context context = {.record = trace->initial_count + trace->event_count,
                                        .pool = f->pool};
    f->remark.record = context.record;
    return flw_build_add_context(f->build, &context) && flw_build_add_event(f->build, event) &&
           flw_build_set_stack(f->build, context.record, f->stack) &&
           flw_build_add_remark(f->build, &f->remark);
}

static bool add_block_event(struct forward *f, const struct flw_trace_event *event, uint8_t op,
                            uint32_t block)
{
    struct flw_trace_event out = *event;
    out.op = op;
    out.block = block;
    out.address = f->build->trace->blocks[block].address;
    out.size_bytes = f->build->trace->blocks[block].size_bytes;
    return add_event(f, &out);
}

static bool forward_alloc(struct forward *f, const struct flw_trace_event *event)
{
    struct flw_trace *trace = f->build->trace;
    uint32_t old = flw_addressmap_find(&f->places, event->address);
    if (old != FLW_ADDRESSMAP_ABSENT && !trace->blocks[old].freed) {
        struct flw_trace_event lost = *event;
        lost.stream = trace->blocks[old].stream;
        trace->lost_free_count++;
        trace->blocks[old].freed = true;
        uint32_t stack = f->stack;
        f->stack = 0; /* the stack of the free is lost too */
        if (!make_gap(f) || !add_block_event(f, &lost, FLW_TRACE_FREE, old)) {
            return false;
        }
        f->stack = stack;
    }
    uint32_t number = (uint32_t)trace->block_count;
    struct flw_trace_block block = {
        .address = event->address, .size_bytes = event->size_bytes, .stream = event->stream};
    return flw_addressmap_put(&f->places, event->address, number) &&
           flw_build_add_block(f->build, &block) &&
           add_block_event(f, event, FLW_TRACE_ALLOC, number);
}

static bool forward_free(struct forward *f, const struct flw_trace_event *event)
{
    struct flw_trace *trace = f->build->trace;
    uint32_t block = flw_addressmap_find(&f->places, event->address);
    bool is_done = event->op == FLW_TRACE_FREE_DONE;
    if (block == FLW_ADDRESSMAP_ABSENT || (!is_done && trace->blocks[block].freed)) {
        trace->unknown_free_count++;
        return true;
    }
    /* A completion without a request counts as both. */
    uint8_t op = is_done && trace->blocks[block].freed ? FLW_TRACE_FREE_DONE : FLW_TRACE_FREE;
    trace->blocks[block].freed = true;
    if (is_done) {
        flw_addressmap_remove(&f->places, event->address);
    }
    return add_block_event(f, event, op, block);
}

static bool forward_event(struct forward *f, const struct flw_trace_event *event)
{
    switch (event->op) {
    case FLW_TRACE_ALLOC:
        return forward_alloc(f, event);
    case FLW_TRACE_FREE:
    case FLW_TRACE_FREE_DONE:
        return forward_free(f, event);
    default: {
        struct flw_trace_event out = *event;
        out.block = UINT32_MAX;
        return add_event(f, &out) &&
               (event->block == UINT32_MAX ||
                flw_build_add_detail(f->build, f->history->details[event->block]));
    }
    }
}

/* Reserve the blocks by counting allocations, to take no more memory than needed. */
static bool reserve_blocks(const struct flw_history *history, struct flw_build *build)
{
    size_t count = build->trace->block_count;
    for (size_t i = 0; i < history->event_count; i++) {
        count += history->events[i].op == FLW_TRACE_ALLOC;
    }
    return flw_build_reserve_blocks(build, count);
}

static bool resolve_events(struct flw_history *history, struct flw_build *build)
{
    struct forward f = {.history = history, .build = build, .end = history->event_count};
    struct flw_trace *trace = build->trace;
    size_t count = history->event_count;
    bool has_memory = reserve_blocks(history, build);
    trace->events = history->events;
    trace->event_room = history->event_room;
    history->events = NULL;
    history->event_count = 0;
    history->event_room = 0;
    for (size_t i = 0; has_memory && i < trace->initial_count; i++) {
        has_memory = flw_addressmap_put(&f.places, trace->blocks[i].address, (uint32_t)i);
    }
    for (size_t i = 0; has_memory && i < count; i++) {
        struct flw_trace_event event = trace->events[f.next++];
        f.pool = flw_history_pool(history, i);
        f.stack = flw_history_stack(history, i);
        if (f.next_remark < history->remark_count && history->remarks[f.next_remark].record == i) {
            f.remark = history->remarks[f.next_remark++];
        }
        has_memory = forward_event(&f, &event);
    }
    for (size_t i = 0; has_memory && i < history->block_count; i++) {
        uint32_t block = flw_addressmap_find(&f.places, history->blocks[i].block.address);
        if (history->blocks[i].waits && block != FLW_ADDRESSMAP_ABSENT) {
            trace->blocks[block].waits = true;
        }
    }
    flw_addressmap_finish(&f.places);
    return has_memory;
}

bool flw_history_resolve(struct flw_history *history, struct flw_build *build)
{
    return resolve_blocks(history, build) && resolve_whole_segments(history, build) &&
           resolve_expandable_segments(history, build) && resolve_events(history, build);
}
