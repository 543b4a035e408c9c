/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the growth of a trace's arrays.
 * Does not: interpret what is put in.
 */
#include "trace/build.h"

#include <stdlib.h>
#include <string.h>

#include "trace/array.h"

bool flw_build_init(struct flw_build *build, const char *source, const char *format)
{
    *build = (struct flw_build){0};
    build->trace = calloc(1, sizeof(*build->trace));
    if (build->trace == NULL) {
        return false;
    }
    build->trace->source = strdup(source);
    build->trace->format = strdup(format);
    if (build->trace->source == NULL || build->trace->format == NULL) {
        flw_build_finish(build);
        return false;
    }
    return true;
}

bool flw_build_add_event(struct flw_build *build, const struct flw_trace_event *event)
{
    struct flw_trace *trace = build->trace;
    struct flw_trace_event *events =
        flw_array_reserve(trace->events, trace->event_count, &build->event_room, sizeof(*events));
    if (events == NULL) {
        return false;
    }
    trace->events = events;
    events[trace->event_count++] = *event;
    return true;
}

bool flw_build_add_block(struct flw_build *build, const struct flw_trace_block *block)
{
    struct flw_trace *trace = build->trace;
    struct flw_trace_block *blocks =
        flw_array_reserve(trace->blocks, trace->block_count, &build->block_room, sizeof(*blocks));
    if (blocks == NULL) {
        return false;
    }
    trace->blocks = blocks;
    blocks[trace->block_count++] = *block;
    return true;
}

bool flw_build_add_segment(struct flw_build *build, const struct flw_trace_segment *segment)
{
    struct flw_trace *trace = build->trace;
    struct flw_trace_segment *segments = flw_array_reserve(trace->segments, trace->segment_count,
                                                           &build->segment_room, sizeof(*segments));
    if (segments == NULL) {
        return false;
    }
    trace->segments = segments;
    segments[trace->segment_count++] = *segment;
    return true;
}

bool flw_build_add_stream(struct flw_build *build, uint64_t handle, uint16_t *out_stream)
{
    struct flw_trace *trace = build->trace;
    uint32_t known = flw_addressmap_find(&build->streams, handle);
    if (known != FLW_ADDRESSMAP_ABSENT) {
        *out_stream = (uint16_t)known;
        return true;
    }
    if (trace->stream_count == FLW_BUILD_STREAMS_MAX) {
        return false;
    }
    uint64_t *streams = flw_array_reserve(trace->streams, trace->stream_count, &build->stream_room,
                                          sizeof(*streams));
    if (streams == NULL) {
        return false;
    }
    trace->streams = streams;
    if (!flw_addressmap_put(&build->streams, handle, (uint32_t)trace->stream_count)) {
        return false;
    }
    *out_stream = (uint16_t)trace->stream_count;
    streams[trace->stream_count++] = handle;
    return true;
}

struct flw_trace *flw_build_take(struct flw_build *build)
{
    struct flw_trace *trace = build->trace;
    build->trace = NULL;
    flw_build_finish(build);
    return trace;
}

void flw_build_finish(struct flw_build *build)
{
    flw_trace_destroy(build->trace);
    flw_addressmap_finish(&build->streams);
    *build = (struct flw_build){0};
}
