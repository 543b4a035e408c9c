/* SPDX-License-Identifier: Apache-2.0 */
#include "common/program.h"

#include "common/tool_host.h"

#include "trace/trace/trace.h"

/* ---- lanes ---- */

static bool has_private_pools(const struct flw_trace *trace)
{
    for (size_t i = 0; i < trace->context_count; i++) {
        if (trace->contexts[i].pool != 0) {
            return true;
        }
    }
    for (size_t i = 0; i < trace->segment_count; i++) {
        if (trace->segments[i].pool != 0) {
            return true;
        }
    }
    return false;
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

/* Makes it where there is none. UINT16_MAX: there are too many. */
static uint16_t find_or_add(struct flw_lanes *lanes, uint32_t pool, uint16_t stream)
{
    uint16_t lane = flw_lanes_find(lanes, pool, stream);
    if (lane != UINT16_MAX || lanes->stream_count + lanes->count + 1 >= UINT16_MAX) {
        return lane;
    }
    lanes->list =
        flw_host_grow(lanes->list, &lanes->capacity, lanes->count + 1, sizeof *lanes->list);
    bool is_known = false;
    for (size_t i = 0; i < lanes->count; i++) {
        is_known |= lanes->list[i].pool == pool;
    }
    lanes->pool_count += !is_known;
    lanes->list[lanes->count++] = (struct flw_lane){.pool = pool, .stream = stream};
    return (uint16_t)(lanes->stream_count + lanes->count - 1);
}

static bool read_blocks(struct flw_lanes *lanes, const struct flw_trace *trace)
{
    struct flw_trace_walk walk = {0};
    for (size_t i = 0; i < trace->initial_count + trace->event_count; i++) {
        const struct flw_trace_context *context = flw_trace_walk_context(trace, &walk, i);
        bool is_initial = i < trace->initial_count;
        const struct flw_trace_event *event =
            is_initial ? NULL : &trace->events[i - trace->initial_count];
        if (!is_initial && event->op != FLW_TRACE_ALLOC) {
            continue;
        }
        uint32_t number = is_initial ? (uint32_t)i : event->block;
        const struct flw_trace_block *block = &trace->blocks[number];
        uint16_t lane = find_or_add(lanes, context->pool, block->stream);
        if (lane == UINT16_MAX) {
            return false;
        }
        lanes->block_lanes[number] = lane;
        if (lane >= lanes->stream_count) {
            lanes->list[lane - lanes->stream_count].alloc_count += block->size_bytes != 0;
        }
    }
    return true;
}

bool flw_lanes_init(struct flw_lanes *lanes, const struct flw_trace *trace, size_t stream_count)
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

void flw_lanes_finish(struct flw_lanes *lanes)
{
    flw_host_free(lanes->list);
    flw_host_free(lanes->block_lanes);
}

/* ---- ops ---- */

/* What building needs besides the program. */
struct builder {
    struct flw_program *program;
    uint8_t *use_counts; /* a block */
    uint64_t live_bytes;
    uint64_t pending_units; /* clock that no op has carried yet */
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
    if (of->size_bytes == 0) {
        program->zero_count++;
        return;
    }
    builder->live_bytes += of->size_bytes;
    if (builder->live_bytes > program->max_live_bytes) {
        program->max_live_bytes = builder->live_bytes;
    }
    push(builder, (struct flw_op){.size_bytes = of->size_bytes,
                                  .address = of->address,
                                  .block = block,
                                  .stream = of->stream,
                                  .kind = FLW_OP_ALLOC});
}

static void push_free(struct builder *builder, struct flw_op op,
                      const struct flw_trace_block *block)
{
    op.size_bytes = block->size_bytes;
    op.kind = op.stream == block->stream ? FLW_OP_FREE : FLW_OP_FREE_ELSEWHERE;
    builder->program->crosses_streams |= op.kind == FLW_OP_FREE_ELSEWHERE;
    op.use_count = builder->use_counts[op.block];
    builder->live_bytes -= block->size_bytes;
    if (op.size_bytes != 0) {
        push(builder, op);
    }
}

static void push_use(struct builder *builder, struct flw_op op, const struct flw_trace_block *block)
{
    struct flw_program *program = builder->program;
    if (program->use_masks == NULL) {
        program->use_masks = flw_host_alloc(program->block_count, sizeof *program->use_masks);
    }
    program->use_masks[op.block] |= 1ull << (op.stream % 64);
    op.size_bytes = block->size_bytes;
    op.kind = FLW_OP_USE;
    program->crosses_streams = true;
    if (builder->use_counts[op.block] < UINT8_MAX) {
        builder->use_counts[op.block]++;
    }
    if (op.size_bytes != 0) {
        push(builder, op);
    }
}

/* Nothing where it directly follows its free. */
static void push_free_done(struct builder *builder, struct flw_op op,
                           const struct flw_trace_block *block)
{
    const struct flw_program *program = builder->program;
    const struct flw_op *last = &program->ops[program->op_count - 1]; /* there is its free */
    op.kind = FLW_OP_FREE_DONE;
    op.size_bytes = block->size_bytes;
    bool is_at_once = last->block == op.block &&
                      (last->kind == FLW_OP_FREE || last->kind == FLW_OP_FREE_ELSEWHERE);
    if (op.size_bytes != 0 && !is_at_once) {
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
        break;
    case FLW_TRACE_FREE:
        push_free(builder, op, &trace->blocks[event->block]);
        break;
    case FLW_TRACE_USE:
        push_use(builder, op, &trace->blocks[event->block]);
        break;
    case FLW_TRACE_FREE_DONE:
        push_free_done(builder, op, &trace->blocks[event->block]);
        break;
    case FLW_TRACE_SEGMENT_ALLOC:
        op.kind = FLW_OP_SEGMENT;
        push(builder, op);
        break;
    case FLW_TRACE_SEGMENT_FREE:
    case FLW_TRACE_SEGMENT_UNMAP:
    case FLW_TRACE_EMPTY_CACHE:
        op.kind = FLW_OP_SEGMENT_FREE;
        push(builder, op);
        break;
    case FLW_TRACE_SYNC_DEVICE:
        op.stream = FLW_OP_EVERY_STREAM;
        op.kind = FLW_OP_SYNC;
        push(builder, op);
        break;
    case FLW_TRACE_SYNC_STREAM:
    case FLW_TRACE_SYNC_EVENT:
        op.kind = FLW_OP_SYNC;
        push(builder, op);
        break;
    default: /* mapped granules, marks: clock only */
        break;
    }
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
    bool is_done = flw_lanes_init(&program->lanes, trace, program->stream_count);
    if (is_done) {
        build(&builder, trace, by_time);
    } else {
        flw_program_destroy(program);
    }
    flw_host_free(builder.use_counts);
    return is_done ? program : NULL;
}

void flw_program_destroy(struct flw_program *program)
{
    if (program == NULL) {
        return;
    }
    flw_lanes_finish(&program->lanes);
    flw_host_free(program->ops);
    flw_host_free(program->op_bits);
    flw_host_free(program->use_masks);
    flw_host_free(program);
}
