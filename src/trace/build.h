/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a trace while a reader fills it: the room of its arrays and the numbers of its streams.
 * Does not: check what it is given; flw_measure_trace does when the reader is done.
 */
#ifndef FLW_TRACE_BUILD_H
#define FLW_TRACE_BUILD_H

#include "trace/addressmap.h"
#include "trace/trace.h"

#define FLW_BUILD_STREAMS_MAX 65535

struct flw_build {
    struct flw_trace *trace;
    size_t event_room;
    size_t block_room;
    size_t segment_room;
    size_t stream_room;
    struct flw_addressmap streams; /* recorded handle -> index */
};

/* Each returns false when there is no memory; the build stays as it was. */
bool flw_build_init(struct flw_build *build, const char *source, const char *format);
bool flw_build_add_event(struct flw_build *build, const struct flw_trace_event *event);
bool flw_build_add_block(struct flw_build *build, const struct flw_trace_block *block);
bool flw_build_add_segment(struct flw_build *build, const struct flw_trace_segment *segment);

/* The index of a recorded handle, a new one where it is seen first. Also false beyond
 * FLW_BUILD_STREAMS_MAX. */
bool flw_build_add_stream(struct flw_build *build, uint64_t handle, uint16_t *out_stream);

/* The trace, which the caller owns; the rest is released. */
struct flw_trace *flw_build_take(struct flw_build *build);

/* Release everything that was not taken. */
void flw_build_finish(struct flw_build *build);

#endif
