/* SPDX-License-Identifier: Apache-2.0 */
#include "common/lanes.h"

#include "trace/trace.h"

#include "common/tool_host.h"

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
