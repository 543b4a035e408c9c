/* SPDX-License-Identifier: Apache-2.0 */
#include "pytorch_record.h"

#include <string.h>

#include "trace/trace.h"

#include "tool_host.h"

/* --- lanes -------------------------------------------------------------------------------------- */

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

static bool add_lane(struct flw_pytorch_record *record, uint32_t pool, uint16_t stream)
{
    if (record->lane_count == record->lane_capacity) {
        size_t capacity = record->lane_capacity == 0 ? 8 : 2 * record->lane_capacity;
        struct flw_pytorch_lane *lanes = flw_host_alloc(capacity, sizeof *lanes);
        if (lanes == NULL || record->stream_count + capacity >= UINT16_MAX) {
            flw_host_free(lanes, capacity, sizeof *lanes);
            return false;
        }
        if (record->lane_count != 0) {
            memcpy(lanes, record->lanes, record->lane_count * sizeof *lanes);
        }
        flw_host_free(record->lanes, record->lane_capacity, sizeof *lanes);
        record->lanes = lanes;
        record->lane_capacity = capacity;
    }
    record->lanes[record->lane_count++] = (struct flw_pytorch_lane){pool, stream};
    return true;
}

uint16_t flw_pytorch_record_find_lane(struct flw_pytorch_record *record, uint32_t pool,
                                      uint16_t stream)
{
    if (pool == 0) {
        return stream;
    }
    size_t i = 0;
    while (i < record->lane_count &&
           (record->lanes[i].pool != pool || record->lanes[i].stream != stream)) {
        i++;
    }
    if (i == record->lane_count && !add_lane(record, pool, stream)) {
        return UINT16_MAX;
    }
    return (uint16_t)(record->stream_count + i);
}

static bool read_lanes(struct flw_pytorch_record *record)
{
    const struct flw_trace *trace = record->trace;
    struct flw_trace_walk walk = {0};
    record->block_lanes = flw_host_alloc(trace->block_count, sizeof *record->block_lanes);
    if (record->block_lanes == NULL) {
        return false;
    }
    for (size_t i = 0; i < trace->initial_count + trace->event_count; i++) {
        const struct flw_trace_context *context = flw_trace_walk_context(trace, &walk, i);
        bool is_initial = i < trace->initial_count;
        const struct flw_trace_event *event =
            is_initial ? NULL : &trace->events[i - trace->initial_count];
        if (!is_initial && event->op != FLW_TRACE_ALLOC) {
            continue;
        }
        uint32_t block = is_initial ? (uint32_t)i : event->block;
        uint16_t lane =
            flw_pytorch_record_find_lane(record, context->pool, trace->blocks[block].stream);
        if (lane == UINT16_MAX) {
            return false;
        }
        record->block_lanes[block] = lane;
    }
    return true;
}

/* --- frees -------------------------------------------------------------------------------------- */

static bool read_frees(struct flw_pytorch_record *record)
{
    const struct flw_trace *trace = record->trace;
    uint64_t *alloc_counts = flw_host_alloc(trace->block_count, sizeof *alloc_counts);
    record->are_late = flw_host_alloc(trace->block_count, sizeof *record->are_late);
    bool has_memory = alloc_counts != NULL && record->are_late != NULL;
    bool is_any_late = false;
    uint64_t alloc_count = 0;
    for (size_t i = 0; has_memory && i < trace->event_count; i++) {
        const struct flw_trace_event *event = &trace->events[i];
        if (event->op == FLW_TRACE_ALLOC) {
            alloc_count++;
        } else if (event->op == FLW_TRACE_FREE) {
            alloc_counts[event->block] = alloc_count;
        } else if (event->op == FLW_TRACE_FREE_DONE && alloc_counts[event->block] != alloc_count) {
            record->are_late[event->block] = true;
            is_any_late = true;
        }
    }
    flw_host_free(alloc_counts, trace->block_count, sizeof *alloc_counts);
    if (!is_any_late) {
        flw_host_free(record->are_late, trace->block_count, sizeof *record->are_late);
        record->are_late = NULL;
    }
    return has_memory;
}

/* --- life --------------------------------------------------------------------------------------- */

bool flw_pytorch_record_init(struct flw_pytorch_record *record, const struct flw_trace *trace,
                             size_t stream_count)
{
    *record = (struct flw_pytorch_record){.trace = trace, .stream_count = stream_count};
    return (!has_private_pools(trace) || read_lanes(record)) && read_frees(record);
}

void flw_pytorch_record_finish(struct flw_pytorch_record *record)
{
    size_t block_count = record->trace == NULL ? 0 : record->trace->block_count;
    flw_host_free(record->lanes, record->lane_capacity, sizeof *record->lanes);
    flw_host_free(record->block_lanes, block_count, sizeof *record->block_lanes);
    flw_host_free(record->are_late, block_count, sizeof *record->are_late);
}

uint16_t flw_pytorch_record_lane(const struct flw_pytorch_record *record, uint32_t block)
{
    return record->block_lanes == NULL ? record->trace->blocks[block].stream
                                       : record->block_lanes[block];
}

uint16_t flw_pytorch_record_stream(const struct flw_pytorch_record *record, uint16_t lane)
{
    return lane < record->stream_count ? lane : record->lanes[lane - record->stream_count].stream;
}

bool flw_pytorch_record_is_late(const struct flw_pytorch_record *record, uint32_t block)
{
    return record->are_late != NULL && record->are_late[block];
}
