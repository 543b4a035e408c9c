/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the growth of a trace's arrays.
 * Does not: interpret the contents.
 */
#include "trace/trace/build.h"

#include <stdlib.h>
#include <string.h>

#include "record/array.h"
#include "trace/trace/largearray.h"

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
    return FLW_LARGEARRAY_ADD(trace->events, trace->event_count, trace->event_room, *event);
}

bool flw_build_add_block(struct flw_build *build, const struct flw_trace_block *block)
{
    struct flw_trace *trace = build->trace;
    return FLW_LARGEARRAY_ADD(trace->blocks, trace->block_count, trace->block_room, *block);
}

bool flw_build_reserve_events(struct flw_build *build, size_t count)
{
    return FLW_LARGEARRAY_HOLDS(build->trace->events, count, build->trace->event_room);
}

bool flw_build_reserve_blocks(struct flw_build *build, size_t count)
{
    return FLW_LARGEARRAY_HOLDS(build->trace->blocks, count, build->trace->block_room);
}

bool flw_build_add_segment(struct flw_build *build, const struct flw_trace_segment *segment)
{
    struct flw_trace *trace = build->trace;
    return FLW_ARRAY_ADD(trace->segments, trace->segment_count, build->segment_room, *segment);
}

bool flw_build_add_stream(struct flw_build *build, uint64_t handle, uint16_t *out_stream)
{
    struct flw_trace *trace = build->trace;
    uint32_t known = flw_addressmap_find(&build->streams, handle);
    if (known != FLW_ADDRESSMAP_ABSENT) {
        *out_stream = (uint16_t)known;
        return true;
    }
    *out_stream = (uint16_t)trace->stream_count;
    return trace->stream_count < FLW_BUILD_STREAMS_MAX &&
           FLW_ARRAY_FITS(trace->streams, trace->stream_count, build->stream_room) &&
           flw_addressmap_put(&build->streams, handle, (uint32_t)trace->stream_count) &&
           FLW_ARRAY_ADD(trace->streams, trace->stream_count, build->stream_room, handle);
}

struct flw_trace_detail flw_build_no_detail(void)
{
    return (struct flw_trace_detail){.free_bytes = FLW_TRACE_UNKNOWN,
                                     .largest_bytes = FLW_TRACE_UNKNOWN,
                                     .name = FLW_TRACE_NO_NAME};
}

bool flw_build_add_detail(struct flw_build *build, struct flw_trace_detail detail)
{
    struct flw_trace *trace = build->trace;
    detail.event = trace->event_count - 1;
    return FLW_ARRAY_ADD(trace->details, trace->detail_count, build->detail_room, detail);
}

bool flw_build_add_context(struct flw_build *build, const struct flw_trace_context *context)
{
    static const struct flw_trace_context none = {0};
    struct flw_trace *trace = build->trace;
    size_t count = trace->context_count;
    return flw_trace_context_is(count == 0 ? &none : &trace->contexts[count - 1], context) ||
           FLW_ARRAY_ADD(trace->contexts, trace->context_count, build->context_room, *context);
}

bool flw_build_add_remark(struct flw_build *build, const struct flw_trace_remark *remark)
{
    static const struct flw_trace_remark none = {0};
    struct flw_trace *trace = build->trace;
    size_t count = trace->remark_count;
    return flw_trace_remark_is(count == 0 ? &none : &trace->remarks[count - 1], remark) ||
           FLW_ARRAY_ADD(trace->remarks, trace->remark_count, build->remark_room, *remark);
}

bool flw_build_set_stack(struct flw_build *build, size_t record, uint32_t stack)
{
    struct flw_trace *trace = build->trace;
    if (stack != 0) {
        if (!FLW_LARGEARRAY_FITS(trace->record_stacks, record, trace->record_stack_room)) {
            return false;
        }
        trace->record_stacks[record] = stack;
        trace->record_stack_count =
            record + 1 > trace->record_stack_count ? record + 1 : trace->record_stack_count;
    }
    return true;
}

void flw_build_take_sides(struct flw_build *build, struct flw_trace *out)
{
    struct flw_trace *trace = build->trace;
#define MOVE(member) (out->member = trace->member, trace->member = 0)
    *out = (struct flw_trace){0};
    MOVE(details), MOVE(detail_count), MOVE(contexts), MOVE(context_count);
    MOVE(remarks), MOVE(remark_count), MOVE(segments), MOVE(segment_count);
    MOVE(record_stacks), MOVE(record_stack_count), MOVE(record_stack_room);
#undef MOVE
    build->detail_room = build->context_room = build->remark_room = build->segment_room = 0;
}

void flw_build_end(struct flw_build *build, bool is_whole, struct flw_trace **out_trace)
{
    *out_trace = is_whole ? build->trace : NULL;
    if (is_whole) {
        build->trace = NULL;
    }
    flw_build_finish(build);
}

void flw_build_finish(struct flw_build *build)
{
    flw_trace_destroy(build->trace);
    flw_addressmap_finish(&build->streams);
    flw_notes_finish(&build->notes);
    *build = (struct flw_build){0};
}
