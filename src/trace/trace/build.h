/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a trace while a reader fills it: the room of its arrays and the numbers of its streams.
 * Does not: check what it is given; flw_measure_trace does when the reader is done.
 */
#ifndef FLW_TRACE_TRACE_BUILD_H
#define FLW_TRACE_TRACE_BUILD_H

#include "record/addressmap.h"
#include "trace/trace/trace.h"

#define FLW_BUILD_STREAMS_MAX 65535

struct flw_build {
    struct flw_trace *trace;
    size_t segment_room;
    size_t stream_room;
    size_t name_room;
    size_t detail_room;
    size_t context_room;
    size_t remark_room;
    struct flw_addressmap streams; /* recorded handle -> index */
    struct flw_addressmap names;   /* hash -> index */
};

/* Each returns false when there is no memory; the build stays as it was. */
bool flw_build_init(struct flw_build *build, const char *source, const char *format);
bool flw_build_add_event(struct flw_build *build, const struct flw_trace_event *event);
bool flw_build_add_block(struct flw_build *build, const struct flw_trace_block *block);
bool flw_build_reserve_blocks(struct flw_build *build, size_t count); /* exactly, where known */
bool flw_build_add_segment(struct flw_build *build, const struct flw_trace_segment *segment);

/* The index of a recorded handle, a new one where it is seen first. Also false beyond
 * FLW_BUILD_STREAMS_MAX. */
bool flw_build_add_stream(struct flw_build *build, uint64_t handle, uint16_t *out_stream);

/* The index of a name, a new one where it is seen first. */
bool flw_build_add_name(struct flw_build *build, const char *name, size_t bytes,
                        uint32_t *out_name);

/* Of the event added last; flw_build_no_detail says nothing. */
bool flw_build_add_detail(struct flw_build *build, struct flw_trace_detail detail);
struct flw_trace_detail flw_build_no_detail(void);

/* Of context->record and what follows it; call for records in order, before or after adding them. */
bool flw_build_add_context(struct flw_build *build, const struct flw_trace_context *context);

/* The same of a remark. */
bool flw_build_add_remark(struct flw_build *build, const struct flw_trace_remark *remark);

/* The stack of a record (struct flw_trace_context), 0: none. */
bool flw_build_set_stack(struct flw_build *build, size_t record, uint32_t stack);

/* The trace is the caller's where it is whole, else *out_trace is NULL; the rest is released. */
void flw_build_end(struct flw_build *build, bool is_whole, struct flw_trace **out_trace);

/* Release everything. */
void flw_build_finish(struct flw_build *build);

#endif
