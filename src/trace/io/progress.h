/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: how a reader, a generator and a writer say how far they are. Does not: show it.
 */
#ifndef FLW_TRACE_IO_PROGRESS_H
#define FLW_TRACE_IO_PROGRESS_H

#include <stddef.h>
#include <stdint.h>

#define FLW_TRACE_PROGRESS_EVENTS 16384 /* between two calls, where events are counted */

struct flw_trace_progress {
    const char *verb;  /* "reading", "making", "writing" */
    const char *name;  /* of the file; NULL: it has none */
    const char *unit;  /* of the two below: "bytes", as they lie in the file, or "events" */
    uint64_t done, of; /* of: 0 where the whole is not known */
};

/* Called in the thread that does the work, each 64 to 256 KiB or FLW_TRACE_PROGRESS_EVENTS. NULL, as at first:
 * no one listens. Set it while no trace is worked on; it is the process's. */
extern void (*flw_trace_listener)(const struct flw_trace_progress *progress);

static inline void flw_trace_tell(const struct flw_trace_progress *progress)
{
    if (flw_trace_listener != NULL) {
        flw_trace_listener(progress);
    }
}

#endif
