/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: reading a recording in a test: validate it and count the events. Does not: make one. */
#ifndef FLW_TESTS_SUPPORT_RECORDING_H
#define FLW_TESTS_SUPPORT_RECORDING_H

#include "support/test.h"

#include "trace/formats/formats.h"
#include "trace/trace/trace.h"

/* The caller's to destroy. */
static inline struct flw_trace *flw_recording_read_file(const char *path)
{
    char message[FLW_TRACE_MESSAGE_BYTES] = "";
    struct flw_trace *trace = NULL;
    if (!flw_trace_read(path, -1, &trace, message)) {
        fail_msg("%s", message);
    }
    assert_true(flw_trace_is_valid(trace));
    return trace;
}

static inline struct flw_trace *flw_recording_read(const char *directory, const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    return flw_recording_read_file(path);
}

static inline size_t flw_recording_count(const struct flw_trace *trace, enum flw_trace_op op)
{
    size_t count = 0;
    for (size_t i = 0; i < trace->event_count; i++) {
        count += trace->events[i].op == op;
    }
    return count;
}

#endif
