/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a trace under construction: the room of the arrays and the numbers of the streams.
 * Does not: check the input; flw_measure_trace does that at the end.
 */
#ifndef FLW_TRACE_TRACE_BUILD_H
#define FLW_TRACE_TRACE_BUILD_H

#include "record/addressmap.h"
#include "trace/trace/notes.h"
#include "trace/trace/trace.h"

#define FLW_BUILD_STREAMS_MAX 65535

struct flw_build {
    struct flw_trace *trace;
    size_t segment_room;
    size_t stream_room;
    size_t detail_room;
    size_t context_room;
    size_t remark_room;
    struct flw_addressmap streams; /* recorded handle -> index */
    struct flw_notes notes;        /* of the trace, until they are taken */
};

/* Each function returns false if memory runs out and then leaves the build unchanged. */
bool flw_build_init(struct flw_build *build, const char *source, const char *format);
bool flw_build_add_event(struct flw_build *build, const struct flw_trace_event *event);
bool flw_build_add_block(struct flw_build *build, const struct flw_trace_block *block);
bool flw_build_reserve_events(struct flw_build *build, size_t count); /* exact count, if known */
bool flw_build_reserve_blocks(struct flw_build *build, size_t count);
bool flw_build_add_segment(struct flw_build *build, const struct flw_trace_segment *segment);

/* Return the index of a recorded handle; a new handle gets the next index. Also returns false beyond
 * FLW_BUILD_STREAMS_MAX. */
bool flw_build_add_stream(struct flw_build *build, uint64_t handle, uint16_t *out_stream);

/* Add the detail of the last event. */
bool flw_build_add_detail(struct flw_build *build, struct flw_trace_detail detail);
struct flw_trace_detail flw_build_no_detail(void);

/* Set the context of context->record and of all later records. Call for records in order, before or after adding the
 * records. */
bool flw_build_add_context(struct flw_build *build, const struct flw_trace_context *context);

/* Set the remark in the same way. */
bool flw_build_add_remark(struct flw_build *build, const struct flw_trace_remark *remark);

/* Set the stack of a record (struct flw_trace_context); 0: none. */
bool flw_build_set_stack(struct flw_build *build, size_t record, uint32_t stack);

/* Move the details, contexts, remarks, stacks of records and segments to *out, a trace without anything else. */
void flw_build_take_sides(struct flw_build *build, struct flw_trace *out);

/* End the build. If is_whole, the caller owns *out_trace; else *out_trace is NULL. Everything else is released. */
void flw_build_end(struct flw_build *build, bool is_whole, struct flw_trace **out_trace);

/* Release everything. */
void flw_build_finish(struct flw_build *build);

#endif
