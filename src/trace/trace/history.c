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
#include "base/compare.h"
#include "record/array.h"
#include "trace/trace/largearray.h"

#define SMALL_SEGMENT_BYTES (2 * FLW_MIB) /* PyTorch's small pool takes exactly this at a time */

bool flw_history_add_block(struct flw_history *history, const struct flw_history_block *block)
{
    return FLW_ARRAY_ADD(history->blocks, history->block_count, history->block_room, *block);
}

void flw_history_finish(struct flw_history *history)
{
    free(history->blocks);
    *history = (struct flw_history){0};
}

/* What the build of a recording becomes. */
struct resolution {
    struct flw_history *history;
    struct flw_build *build;
    struct flw_trace was; /* the recorded details, contexts, remarks, stacks and segments */
    const struct flw_trace_event *events; /* the recorded ones, until resolve_events */
    size_t event_count;
};

/* ---- blocks, backward ---- */

/* Undo one event in the map from addresses to live blocks: numbers of blocks of the end, and beyond those, of the free
 * that restored the block. A free restores the block; of a request and the completion, the request is undone last. If
 * the later heap has a block at that address, that block's allocation was lost, and the earlier block replaces that
 * block. A waiting block of the end belongs to the last free. */
static bool undo_event(const struct resolution *r, struct flw_addressmap *places, size_t event)
{
    const struct flw_history *history = r->history;
    uint64_t address = r->events[event].address;
    uint32_t there;
    switch (r->events[event].op) {
    case FLW_TRACE_ALLOC:
        flw_addressmap_remove(places, address);
        return true;
    case FLW_TRACE_FREE:
        there = flw_addressmap_find(places, address);
        if (there < history->block_count && history->blocks[there].waits) {
            return true;
        }
        /* fall through */
    case FLW_TRACE_FREE_DONE:
        return flw_addressmap_put(places, address, (uint32_t)(history->block_count + event));
    default:
        return true;
    }
}

static struct flw_history_block block_of(const struct resolution *r, uint32_t number)
{
    struct flw_history_block block = {0};
    if (number < r->history->block_count) {
        block = r->history->blocks[number];
        block.block.freed = false;
    } else { /* the stack of a free is not that of the allocation */
        size_t event = number - r->history->block_count;
        const struct flw_trace_event *from = &r->events[event];
        block.block = (struct flw_trace_block){
            .address = from->address, .size_bytes = from->size_bytes, .stream = from->stream};
        block.pool = flw_trace_pool(&r->was, event);
    }
    return block;
}

/* Add the blocks that are left, in address order. */
static bool add_initial_blocks(const struct resolution *r, const struct flw_addressmap *places)
{
    struct flw_build *build = r->build;
    size_t count = 0;
    struct flw_history_block *blocks = calloc(places->used_count + 1, sizeof(*blocks));
    bool has_memory = blocks != NULL;
    for (size_t i = 0; has_memory && i < places->slot_count; i++) {
        uint32_t number = places->slots[i].value;
        if (number != FLW_ADDRESSMAP_ABSENT) {
            blocks[count++] = block_of(r, number);
        }
    }
    FLW_SORT(blocks, count, flw_compare_u64);
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

static bool resolve_blocks(struct resolution *r)
{
    struct flw_history *history = r->history;
    struct flw_addressmap places = {0};
    bool has_memory = r->event_count < FLW_ADDRESSMAP_ABSENT - history->block_count;
    for (size_t i = 0; has_memory && i < history->block_count; i++) {
        has_memory = flw_addressmap_put(&places, history->blocks[i].block.address, (uint32_t)i);
    }
    history->double_count = history->block_count - places.used_count;
    for (size_t i = r->event_count; has_memory && i-- > 0;) {
        has_memory = undo_event(r, &places, i);
    }
    has_memory = has_memory && add_initial_blocks(r, &places);
    flw_addressmap_finish(&places);
    return has_memory;
}

/* ---- segments, backward ---- */

/* The latest whole segment at each address. */
struct seen {
    struct flw_trace_segment *at;
    size_t count, room;
    struct flw_addressmap places;
};

static bool see(struct seen *seen, const struct flw_trace_segment *segment)
{
    return flw_addressmap_put(&seen->places, segment->address, (uint32_t)seen->count) &&
           FLW_ARRAY_ADD(seen->at, seen->count, seen->room, *segment);
}

/* Add the whole segments of the start: those of the end, without the allocated, with the freed. */
static bool resolve_whole_segments(const struct resolution *r)
{
    struct seen seen = {0};
    bool has_memory = true;
    for (size_t i = 0; has_memory && i < r->was.segment_count; i++) {
        has_memory = r->was.segments[i].is_expandable || see(&seen, &r->was.segments[i]);
    }
    for (size_t i = r->event_count; has_memory && i-- > 0;) {
        const struct flw_trace_event *event = &r->events[i];
        if (event->op == FLW_TRACE_SEGMENT_ALLOC) {
            flw_addressmap_remove(&seen.places, event->address);
        } else if (event->op == FLW_TRACE_SEGMENT_FREE) {
            has_memory = see(&seen, &(struct flw_trace_segment){
                                        .address = event->address,
                                        .size_bytes = event->size_bytes,
                                        .stream = event->stream,
                                        .is_large = event->size_bytes != SMALL_SEGMENT_BYTES,
                                        .pool = flw_trace_pool(&r->was, i)});
        }
    }
    for (size_t i = 0; has_memory && i < seen.count; i++) {
        if (flw_addressmap_find(&seen.places, seen.at[i].address) == i) {
            has_memory = flw_build_add_segment(r->build, &seen.at[i]);
        }
    }
    free(seen.at);
    flw_addressmap_finish(&seen.places);
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
        if (!FLW_ARRAY_ADD(edges->at, edges->count, edges->room, pair[i])) {
            return false;
        }
    }
    return true;
}

/* Order by stream, then by address; at the same address ends are before begins. */
static int compare_edges(const void *a, const void *b)
{
    const struct edge *x = a, *y = b;
    int order = x->stream - y->stream;
    order = order != 0 ? order : flw_compare_u64(&x->address, &y->address);
    return order != 0 ? order : x->delta - y->delta;
}

static bool collect_edges(const struct resolution *r, struct edges *edges)
{
    for (size_t i = 0; i < r->was.segment_count; i++) {
        const struct flw_trace_segment *segment = &r->was.segments[i];
        enum edge_pool pool = segment->is_large ? POOL_LARGE : POOL_SMALL;
        if (segment->is_expandable && !add_range(edges, segment, 1, pool)) {
            return false;
        }
    }
    for (size_t i = 0; i < r->event_count; i++) {
        const struct flw_trace_event *event = &r->events[i];
        bool is_map = event->op == FLW_TRACE_SEGMENT_MAP;
        if (is_map || event->op == FLW_TRACE_SEGMENT_UNMAP) {
            struct flw_trace_segment range = {.address = event->address,
                                              .size_bytes = event->size_bytes,
                                              .stream = event->stream,
                                              .pool = flw_trace_pool(&r->was, i)};
            if (!add_range(edges, &range, is_map ? -1 : 1, POOL_UNKNOWN)) {
                return false;
            }
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

static bool resolve_expandable_segments(const struct resolution *r)
{
    struct edges edges = {0};
    struct run run = {{0}, POOL_UNKNOWN};
    bool has_memory = collect_edges(r, &edges);
    FLW_SORT(edges.at, edges.count, compare_edges);
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
            has_memory = extend_run(r->build, &run, &from, edges.at[i].address);
        }
        cover = next;
    }
    has_memory = has_memory && flush_run(r->build, &run);
    free(edges.at);
    return has_memory;
}

/* ---- forward ---- */

/* Turns the recorded events into the trace's within one array: written events are before those still to be read.
 * INVARIANT  trace->event_count <= next <= end. */
struct forward {
    const struct resolution *r;
    struct flw_build *build;
    struct flw_addressmap places; /* address -> live or waiting block there */
    struct flw_trace_walk walk;   /* over the recording */
    size_t recorded;              /* index of the present event */
    size_t next, end;             /* events still to be read */
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

/* Add an event with the context, the remark and the stack of the present one. */
static bool add_event(struct forward *f, const struct flw_trace_event *event, bool has_stack)
{
    const struct flw_trace *trace = f->build->trace, *was = &f->r->was;
    size_t record = trace->initial_count + trace->event_count;
    bool has_memory = flw_build_add_event(f->build, event);
    if (trace->context_count + was->context_count != 0) {
        struct flw_trace_context context = *flw_trace_walk_context(was, &f->walk, f->recorded);
        context.record = record;
        has_memory = has_memory && flw_build_add_context(f->build, &context);
    }
    if (was->remark_count != 0) {
        struct flw_trace_remark remark = *flw_trace_walk_remark(was, &f->walk, f->recorded);
        remark.record = record;
        has_memory = has_memory && flw_build_add_remark(f->build, &remark);
    }
    uint32_t stack = has_stack ? flw_trace_stack(was, f->recorded) : 0;
    return has_memory && flw_build_set_stack(f->build, record, stack);
}

static bool add_block_event(struct forward *f, const struct flw_trace_event *event, uint8_t op,
                            uint32_t block, bool has_stack)
{
    struct flw_trace_event out = *event;
    out.op = op;
    out.block = block;
    out.address = f->build->trace->blocks[block].address;
    out.size_bytes = f->build->trace->blocks[block].size_bytes;
    return add_event(f, &out, has_stack);
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
        if (!make_gap(f) || !add_block_event(f, &lost, FLW_TRACE_FREE, old, false)) {
            return false; /* the stack of the free is lost too */
        }
    }
    uint32_t number = (uint32_t)trace->block_count;
    struct flw_trace_block block = {
        .address = event->address, .size_bytes = event->size_bytes, .stream = event->stream};
    return flw_addressmap_put(&f->places, event->address, number) &&
           flw_build_add_block(f->build, &block) &&
           add_block_event(f, event, FLW_TRACE_ALLOC, number, true);
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
    return add_block_event(f, event, op, block, true);
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
        const struct flw_trace_detail *detail =
            flw_trace_walk_detail(&f->r->was, &f->walk, f->recorded);
        out.block = UINT32_MAX;
        return add_event(f, &out, true) &&
               (detail == NULL || flw_build_add_detail(f->build, *detail));
    }
    }
}

static bool resolve_events(const struct resolution *r)
{
    struct flw_build *build = r->build;
    struct flw_trace *trace = build->trace;
    struct forward f = {.r = r, .build = build, .end = r->event_count};
    size_t block_count = trace->block_count; /* counted first, to take no more memory than needed */
    for (size_t i = 0; i < r->event_count; i++) {
        block_count += r->events[i].op == FLW_TRACE_ALLOC;
    }
    trace->event_count = 0;
    bool has_memory = flw_build_reserve_blocks(build, block_count);
    for (size_t i = 0; has_memory && i < trace->initial_count; i++) {
        has_memory = flw_addressmap_put(&f.places, trace->blocks[i].address, (uint32_t)i);
    }
    for (; has_memory && f.recorded < r->event_count; f.recorded++) {
        struct flw_trace_event event = trace->events[f.next++];
        has_memory = forward_event(&f, &event);
    }
    for (size_t i = 0; has_memory && i < r->history->block_count; i++) {
        uint32_t block = flw_addressmap_find(&f.places, r->history->blocks[i].block.address);
        if (r->history->blocks[i].waits && block != FLW_ADDRESSMAP_ABSENT) {
            trace->blocks[block].waits = true;
        }
    }
    flw_addressmap_finish(&f.places);
    return has_memory;
}

bool flw_history_resolve(struct flw_history *history, struct flw_build *build)
{
    struct resolution r = {.history = history,
                           .build = build,
                           .events = build->trace->events,
                           .event_count = build->trace->event_count};
    flw_build_take_sides(build, &r.was);
    bool has_memory = resolve_blocks(&r) && resolve_whole_segments(&r) &&
                      resolve_expandable_segments(&r) && resolve_events(&r);
    flw_trace_shrink(&r.was);
    return has_memory;
}
