/* SPDX-License-Identifier: Apache-2.0 */
#include "common/program.h"

#include "base/bits.h"

#include "common/tool_host.h"

#include "trace/trace/trace.h"

/* ---- lanes ---- */

static bool has_private_pools(const struct flw_trace *trace)
{
    bool has = false;
    for (size_t i = 0; i < trace->context_count; i++) {
        has |= trace->contexts[i].pool != 0;
    }
    for (size_t i = 0; i < trace->segment_count; i++) {
        has |= trace->segments[i].pool != 0;
    }
    return has;
}

uint16_t flw_lanes_find(const struct flw_lanes *lanes, uint32_t pool, uint16_t stream)
{
    size_t i = 0;
    if (pool == 0) {
        return stream;
    }
    while (i < lanes->count && (lanes->list[i].pool != pool || lanes->list[i].stream != stream)) {
        i++;
    }
    return i == lanes->count ? UINT16_MAX : (uint16_t)(lanes->stream_count + i);
}

/* Return the lane, added if new. UINT16_MAX: there are too many. */
static uint16_t find_or_add(struct flw_lanes *lanes, uint32_t pool, uint16_t stream)
{
    uint16_t lane = flw_lanes_find(lanes, pool, stream);
    if (lane != UINT16_MAX || lanes->stream_count + lanes->count + 1 >= UINT16_MAX) {
        return lane;
    }
    bool is_known = false;
    for (size_t i = 0; i < lanes->count; i++) {
        is_known |= lanes->list[i].pool == pool;
    }
    lanes->pool_count += !is_known;
    FLW_HOST_GROW(lanes->list, lanes->capacity, lanes->count + 1);
    lanes->list[lanes->count] = (struct flw_lane){.pool = pool, .stream = stream};
    return (uint16_t)(lanes->stream_count + lanes->count++);
}

static bool read_blocks(struct flw_lanes *lanes, const struct flw_trace *trace)
{
    struct flw_trace_walk walk = {0};
    for (size_t i = 0; i < trace->initial_count + trace->event_count; i++) {
        const struct flw_trace_context *context = flw_trace_walk_context(trace, &walk, i);
        uint32_t number = (uint32_t)i;
        if (i >= trace->initial_count) {
            const struct flw_trace_event *event = &trace->events[i - trace->initial_count];
            number = event->block;
            if (event->op != FLW_TRACE_ALLOC) {
                continue;
            }
        }
        const struct flw_trace_block *block = &trace->blocks[number];
        uint16_t lane = find_or_add(lanes, context->pool, block->stream);
        if (lane == UINT16_MAX) {
            return false;
        }
        lanes->block_lanes[number] = lane;
        if (context->pool != 0) {
            lanes->list[lane - lanes->stream_count].alloc_count += block->size_bytes != 0;
        }
    }
    return true;
}

/* Find all lanes. Returns false if there are too many; finish_lanes is still necessary. */
static bool init_lanes(struct flw_lanes *lanes, const struct flw_trace *trace, size_t stream_count)
{
    *lanes = (struct flw_lanes){.stream_count = stream_count};
    if (!has_private_pools(trace)) {
        return true;
    }
    lanes->block_lanes = flw_host_alloc(trace->block_count, sizeof *lanes->block_lanes);
    bool is_done = read_blocks(lanes, trace);
    for (size_t i = 0; is_done && i < trace->segment_count; i++) {
        const struct flw_trace_segment *segment = &trace->segments[i];
        is_done = find_or_add(lanes, segment->pool, segment->stream) != UINT16_MAX;
    }
    return is_done;
}

static void finish_lanes(struct flw_lanes *lanes)
{
    flw_host_free(lanes->list);
    flw_host_free(lanes->block_lanes);
    lanes->list = NULL;
    lanes->block_lanes = NULL;
}

/* ---- ops ---- */

/* A program under construction. */
struct builder {
    struct flw_program *program;
    uint8_t *use_counts; /* by block */
    uint64_t live_bytes;
    uint64_t pending_units; /* advance of the clock since the last op */
};

static void push(struct builder *builder, struct flw_op op)
{
    struct flw_program *program = builder->program;
    op.advance_units = builder->pending_units;
    builder->pending_units = 0;
    program->ops[program->op_count++] = op;
}

static void push_alloc(struct builder *builder, uint32_t block, const struct flw_trace_block *of)
{
    struct flw_program *program = builder->program;
    builder->live_bytes += of->size_bytes;
    program->max_live_bytes = flw_max(program->max_live_bytes, builder->live_bytes);
    if (of->size_bytes == 0) {
        program->zero_count++;
        return;
    }
    push(builder, (struct flw_op){.size_bytes = of->size_bytes,
                                  .address = of->address,
                                  .block = block,
                                  .stream = of->stream,
                                  .kind = FLW_OP_ALLOC});
}

/* Push the op of a free, a use or a completed free; none for a block of 0 bytes. */
static void push_later(struct builder *builder, struct flw_op op, uint8_t trace_op,
                       const struct flw_trace_block *block)
{
    struct flw_program *program = builder->program;
    uint8_t *use_count = &builder->use_counts[op.block];
    op.size_bytes = block->size_bytes;
    if (trace_op == FLW_TRACE_FREE) {
        op.kind = op.stream == block->stream ? FLW_OP_FREE : FLW_OP_FREE_ELSEWHERE;
        op.use_count = *use_count;
        program->crosses_streams |= op.kind == FLW_OP_FREE_ELSEWHERE;
        builder->live_bytes -= block->size_bytes;
    } else if (trace_op == FLW_TRACE_USE) {
        op.kind = FLW_OP_USE;
        if (program->use_masks == NULL) {
            program->use_masks = flw_host_alloc(program->block_count, sizeof *program->use_masks);
        }
        program->use_masks[op.block] |= 1ull << (op.stream % 64);
        program->crosses_streams = true;
        *use_count += *use_count < UINT8_MAX;
    } else {
        const struct flw_op *last = &program->ops[program->op_count - 1]; /* the free came before */
        op.kind = FLW_OP_FREE_DONE;
        if (last->block == op.block &&
            (last->kind == FLW_OP_FREE || last->kind == FLW_OP_FREE_ELSEWHERE)) {
            return; /* complete at once */
        }
    }
    if (op.size_bytes != 0) {
        push(builder, op);
    }
}

static void push_event(struct builder *builder, const struct flw_trace *trace,
                       const struct flw_trace_event *event)
{
    struct flw_op op = {.size_bytes = event->size_bytes,
                        .address = event->address,
                        .block = event->block,
                        .stream = event->stream};
    switch (event->op) {
    case FLW_TRACE_ALLOC:
        builder->program->alloc_count++;
        push_alloc(builder, event->block, &trace->blocks[event->block]);
        return;
    case FLW_TRACE_FREE:
    case FLW_TRACE_USE:
    case FLW_TRACE_FREE_DONE:
        push_later(builder, op, event->op, &trace->blocks[event->block]);
        return;
    case FLW_TRACE_SEGMENT_ALLOC:
        op.kind = FLW_OP_SEGMENT;
        break;
    case FLW_TRACE_SEGMENT_FREE:
    case FLW_TRACE_SEGMENT_UNMAP:
    case FLW_TRACE_EMPTY_CACHE:
        op.kind = FLW_OP_SEGMENT_FREE;
        break;
    case FLW_TRACE_SYNC_DEVICE:
        op.stream = FLW_OP_EVERY_STREAM;
        op.kind = FLW_OP_SYNC;
        break;
    case FLW_TRACE_SYNC_STREAM:
    case FLW_TRACE_SYNC_EVENT:
        op.kind = FLW_OP_SYNC;
        break;
    default: /* mapped granules and marks only advance the clock */
        return;
    }
    push(builder, op);
}

static void build(struct builder *builder, const struct flw_trace *trace, bool by_time)
{
    struct flw_program *program = builder->program;
    for (size_t i = 0; i < trace->initial_count; i++) {
        push_alloc(builder, (uint32_t)i, &trace->blocks[i]);
    }
    program->initial_count = program->op_count;
    uint64_t last_ns = 0;
    for (size_t i = 0; i < trace->event_count; i++) {
        const struct flw_trace_event *event = &trace->events[i];
        if (!by_time) {
            builder->pending_units++;
        } else if (event->time_ns > last_ns) {
            builder->pending_units += event->time_ns - last_ns;
            last_ns = event->time_ns;
        }
        size_t op_count = program->op_count;
        push_event(builder, trace, event);
        if (program->op_count != op_count) {
            program->op_bits[i / 64] |= UINT64_C(1) << i % 64;
        }
    }
    push(builder, (struct flw_op){.kind = FLW_OP_PASS});
}

struct flw_program *flw_program_create(const struct flw_trace *trace, bool by_time)
{
    struct flw_program *program = flw_host_alloc(1, sizeof *program);
    struct builder builder = {.program = program,
                              .use_counts = flw_host_alloc(trace->block_count, 1)};
    program->event_count = trace->event_count;
    size_t most_ops = trace->initial_count + trace->event_count + 1;
    program->ops = flw_host_alloc(most_ops, sizeof *program->ops);
    program->op_bits = flw_host_alloc(trace->event_count / 64 + 1, sizeof *program->op_bits);
    program->block_count = trace->block_count;
    program->stream_count = trace->stream_count == 0 ? 1 : trace->stream_count;
    bool is_done = init_lanes(&program->lanes, trace, program->stream_count);
    if (is_done) {
        build(&builder, trace, by_time);
    } else {
        flw_program_destroy(program);
    }
    flw_host_free(builder.use_counts);
    return is_done ? program : NULL;
}

void flw_program_shrink(struct flw_program *program)
{
    finish_lanes(&program->lanes);
    flw_host_free(program->ops);
    flw_host_free(program->op_bits);
    flw_host_free(program->use_masks);
    program->ops = NULL;
    program->op_bits = program->use_masks = NULL;
}

void flw_program_destroy(struct flw_program *program)
{
    if (program != NULL) {
        flw_program_shrink(program);
        flw_host_free(program);
    }
}
