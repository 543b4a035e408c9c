/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the progress reports of readers, generators and writers.
 * Does not: show them.
 */
#ifndef FLW_TRACE_IO_PROGRESS_H
#define FLW_TRACE_IO_PROGRESS_H

#include <stddef.h>
#include <stdint.h>

#define FLW_TRACE_PROGRESS_EVENTS 16384 /* between two calls, if events are counted */

struct flw_trace_progress {
    const char *verb;  /* "reading", "making", "writing" */
    const char *name;  /* of the file; NULL: none */
    const char *unit;  /* of the two below: "bytes" of the file, or "events" */
    uint64_t done, of; /* of: 0 if the total is unknown */
};

/* Called in the working thread after each 64 to 256 KiB or FLW_TRACE_PROGRESS_EVENTS. NULL, the initial value: no
 * calls. Global; set it only while no trace is read, made or written. */
extern void (*flw_trace_listener)(const struct flw_trace_progress *progress);

static inline void flw_trace_tell(const struct flw_trace_progress *progress)
{
    if (flw_trace_listener != NULL) {
        flw_trace_listener(progress);
    }
}

#endif
