/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: random traces that have everything that a trace can have, from a seed.
 */
#ifndef FLW_TESTS_TRACE_RANDOM_H
#define FLW_TESTS_TRACE_RANDOM_H

#include "support/test.h"

#include <string.h>

#include "trace/trace/build.h"
#include "trace/trace/measure.h"

#define RANDOM_STREAMS 5

struct random_trace {
    struct flw_build build;
    uint64_t state;
    uint64_t time_ns;
    uint32_t *live; /* block numbers */
    uint32_t *pending;
    size_t live_count, pending_count;
    bool has_times, has_addresses, has_segments, has_stacks;
};

static inline uint64_t random_below(struct random_trace *r, uint64_t end)
{
    return flw_test_random(&r->state) % end;
}

static inline uint64_t random_size(struct random_trace *r)
{
    static const uint64_t often[] = {0, 1, 512, 4096, 1000, 2097152, 20971520};
    return random_below(r, 3) > 0 ? often[random_below(r, sizeof(often) / sizeof(often[0]))]
                                  : flw_test_random(&r->state) >> (24 + random_below(r, 40));
}

static inline uint64_t random_address(struct random_trace *r)
{
    if (!r->has_addresses) {
        return 0;
    }
    return random_below(r, 4) > 0 ? (1 + random_below(r, 64)) * 2097152
                                  : flw_test_random(&r->state) >> random_below(r, 40);
}

static inline void random_context(struct random_trace *r, size_t record)
{
    struct flw_trace_context context = {.record = record};
    const struct flw_trace *trace = r->build.trace;
    if (trace->context_count > 0) {
        context = trace->contexts[trace->context_count - 1];
        context.record = record;
    }
    if (random_below(r, 12) == 0) {
        context.thread = (uint32_t)random_below(r, 3);
        context.tag = (uint32_t)random_below(r, 2) * (uint32_t)flw_test_random(&r->state);
        context.pool = (uint32_t)random_below(r, 2);
    }
    assert_true(flw_build_add_context(&r->build, &context));
}

/* Any byte but 0, of which quotes, backslashes and controls are as many as letters. */
static inline uint32_t random_text(struct random_trace *r)
{
    static const char often[] = "\"\\\n\t\x7F\xC3\xA9\xFF x/";
    char text[FLW_STACK_TEXT_BYTES];
    size_t count = (size_t)(random_below(r, 500) == 0 ? sizeof text : random_below(r, 12));
    for (size_t i = 0; i < count; i++) {
        text[i] = random_below(r, 2) == 0 ? often[random_below(r, sizeof often - 1)]
                                          : (char)(1 + random_below(r, 255));
    }
    uint32_t number;
    assert_true(flw_intern_add_text(&r->build.trace->stacks.texts, text, count, &number));
    return number;
}

/* An old one, or one of old and new frames; 0 now and then, and always where the trace has none. */
static inline uint32_t random_stack(struct random_trace *r)
{
    struct flw_stacks *stacks = &r->build.trace->stacks;
    uint32_t frames[FLW_STACK_DEPTH_MOST], stack = 0;
    if (!r->has_stacks || random_below(r, 8) == 0) {
        return 0;
    }
    if (stacks->lists.count > 0 && random_below(r, 10) > 0) {
        return (uint32_t)random_below(r, stacks->lists.count);
    }
    size_t count = (size_t)(random_below(r, 30) == 0 ? FLW_STACK_DEPTH_MOST : random_below(r, 6));
    for (size_t i = 0; i < count; i++) {
        frames[i] = stacks->frames.count > 0 ? (uint32_t)random_below(r, stacks->frames.count) : 0;
        if (stacks->frames.count == 0 || random_below(r, 8) == 0) {
            struct flw_frame frame = {
                random_text(r), random_text(r),
                (uint32_t)(flw_test_random(&r->state) >> random_below(r, 64))};
            assert_true(flw_intern_add(&stacks->frames, &frame, sizeof frame, &frames[i]));
        }
    }
    assert_true(flw_stacks_add(stacks, frames, count, &stack));
    return stack;
}

static inline void random_remark(struct random_trace *r, size_t record)
{
    struct flw_trace_remark remark = {.record = record};
    if (r->has_stacks && random_below(r, 20) == 0) {
        remark.compile_context = random_below(r, 2) == 0 ? 0 : random_text(r) + 1;
        remark.user_metadata = random_below(r, 2) == 0 ? 0 : random_text(r) + 1;
        assert_true(flw_build_add_remark(&r->build, &remark));
    }
}

static inline void random_start(struct random_trace *r)
{
    struct flw_trace *trace = r->build.trace;
    uint64_t address = 0;
    for (uint64_t i = random_below(r, 20); r->has_segments && i > 0; i--) {
        struct flw_trace_segment segment = {.address = random_address(r),
                                            .size_bytes = random_size(r),
                                            .stream = (uint16_t)random_below(r, RANDOM_STREAMS),
                                            .is_large = random_below(r, 2) == 0,
                                            .is_expandable = random_below(r, 2) == 0,
                                            .pool = (uint32_t)random_below(r, 2),
                                            .stack = random_stack(r)};
        assert_true(flw_build_add_segment(&r->build, &segment));
    }
    for (uint64_t i = random_below(r, 40); i > 0; i--) {
        struct flw_trace_block block = {.address = r->has_addresses ? address : 0,
                                        .size_bytes = random_size(r),
                                        .stream = (uint16_t)random_below(r, RANDOM_STREAMS)};
        address += random_below(r, 2) == 0 ? (block.size_bytes + 511) / 512 * 512
                                           : random_below(r, 100000);
        random_context(r, trace->block_count);
        assert_true(flw_build_set_stack(&r->build, trace->block_count, random_stack(r)));
        r->live[r->live_count++] = (uint32_t)trace->block_count;
        assert_true(flw_build_add_block(&r->build, &block));
        trace->initial_count++;
    }
}

/* A detail where the op has one. */
static inline void random_detail(struct random_trace *r, uint8_t op)
{
    static const char *const names[] = {"step", "forward \"pass\"", "a", "optimizer.step()",
                                        "\xC3\xA9"};
    struct flw_trace_detail detail = flw_build_no_detail();
    const char *name = names[random_below(r, sizeof(names) / sizeof(names[0]))];
    if (op == FLW_TRACE_PHASE_BEGIN || op == FLW_TRACE_PHASE_END || op == FLW_TRACE_CONFIG ||
        (op == FLW_TRACE_MARK && random_below(r, 2) == 0)) {
        assert_true(flw_intern_add_text(&r->build.trace->names, name, strlen(name), &detail.name));
    } else if (op == FLW_TRACE_SYNC_WAIT) {
        detail.other_stream = (uint16_t)random_below(r, RANDOM_STREAMS);
    } else if (op == FLW_TRACE_DROP) {
        detail.lost_count = 1 + (flw_test_random(&r->state) >> random_below(r, 60)) / 2;
    } else if (op == FLW_TRACE_OOM && random_below(r, 4) > 0) {
        uint64_t known = 1 + random_below(r, 3);
        detail.free_bytes = known & 1 ? random_size(r) : FLW_TRACE_UNKNOWN;
        detail.largest_bytes = known & 2 ? random_size(r) : FLW_TRACE_UNKNOWN;
    } else {
        return;
    }
    assert_true(flw_build_add_detail(&r->build, detail));
}

/* The block of an event; UINT32_MAX: there is none for this op now. */
static inline uint32_t random_block(struct random_trace *r, uint8_t op)
{
    uint32_t *list = op == FLW_TRACE_FREE_DONE ? r->pending : r->live;
    size_t *count = op == FLW_TRACE_FREE_DONE ? &r->pending_count : &r->live_count;
    if (*count == 0) {
        return UINT32_MAX;
    }
    size_t at = random_below(r, 2) == 0 ? *count - 1 : (size_t)random_below(r, *count);
    uint32_t block = list[at];
    if (op != FLW_TRACE_USE) {
        list[at] = list[--*count];
    }
    if (op == FLW_TRACE_FREE) {
        r->pending[r->pending_count++] = block;
    }
    return block;
}

static inline void random_event(struct random_trace *r)
{
    struct flw_trace *trace = r->build.trace;
    uint8_t op = (uint8_t)(random_below(r, 3) > 0 ? random_below(r, 3)
                                                  : random_below(r, FLW_TRACE_OP_COUNT));
    bool is_segment = op >= FLW_TRACE_SEGMENT_ALLOC && op <= FLW_TRACE_SEGMENT_UNMAP;
    op = is_segment && !r->has_segments ? FLW_TRACE_ALLOC : op;
    struct flw_trace_event event = {.op = op, .block = UINT32_MAX};
    r->time_ns += r->has_times && random_below(r, 3) > 0 ? 1000 * random_below(r, 5000) : 0;
    event.time_ns = r->time_ns;
    if (flw_trace_op_has_stream(op)) {
        event.stream = (uint16_t)(random_below(r, 4) == 0 ? random_below(r, RANDOM_STREAMS) : 0);
    }
    if (op == FLW_TRACE_ALLOC) {
        struct flw_trace_block block = {
            .address = random_address(r), .size_bytes = random_size(r), .stream = event.stream};
        event.block = (uint32_t)trace->block_count;
        r->live[r->live_count++] = event.block;
        assert_true(flw_build_add_block(&r->build, &block));
    } else if (flw_trace_op_has_block(op)) {
        event.block = random_block(r, op);
        if (event.block == UINT32_MAX) {
            return;
        }
    } else if (is_segment || op == FLW_TRACE_OOM) {
        event.size_bytes = random_size(r);
        event.address = is_segment ? random_address(r) : 0;
    }
    if (event.block != UINT32_MAX) {
        event.address = trace->blocks[event.block].address;
        event.size_bytes = trace->blocks[event.block].size_bytes;
    }
    random_context(r, trace->initial_count + trace->event_count);
    assert_true(
        flw_build_set_stack(&r->build, trace->initial_count + trace->event_count, random_stack(r)));
    random_remark(r, trace->initial_count + trace->event_count);
    assert_true(flw_build_add_event(&r->build, &event));
    random_detail(r, op);
}

/* About `count` events; the caller destroys the trace. */
static inline struct flw_trace *random_trace(uint64_t seed, size_t count)
{
    struct random_trace r = {.state = seed};
    r.live = calloc(count + 64, sizeof(*r.live));
    r.pending = calloc(count + 64, sizeof(*r.pending));
    assert_true(r.live != NULL && r.pending != NULL);
    assert_true(flw_build_init(&r.build, "random", "text"));
    r.has_times = random_below(&r, 4) > 0;
    r.has_addresses = random_below(&r, 4) > 0;
    r.has_segments = random_below(&r, 4) > 0;
    r.has_stacks = random_below(&r, 3) > 0;
    struct flw_trace *trace = r.build.trace;
    trace->has_times = r.has_times;
    trace->has_addresses = r.has_addresses;
    trace->has_segments = r.has_segments;
    trace->device = (int)random_below(&r, 3);
    trace->unknown_free_count = random_below(&r, 2);
    trace->notes = strdup("origin random\n# two words\n");
    for (size_t i = 0; i < RANDOM_STREAMS; i++) {
        uint16_t stream;
        uint64_t handle = i == 0 ? 0 : flw_test_random(&r.state) >> random_below(&r, 60);
        handle = handle < 8 ? 8 + i : handle;
        assert_true(flw_build_add_stream(&r.build, handle - (i == 0 ? 8 : 0), &stream));
    }
    while (trace->stream_count < RANDOM_STREAMS) { /* two handles were one */
        uint16_t stream;
        assert_true(flw_build_add_stream(&r.build, flw_test_random(&r.state), &stream));
    }
    random_start(&r);
    for (size_t i = 0; i < count; i++) {
        random_event(&r);
    }
    assert_null(flw_measure_trace(trace));
    flw_build_end(&r.build, true, &trace);
    assert_true(flw_trace_is_valid(trace));
    free(r.live);
    free(r.pending);
    return trace;
}

#endif
