/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: what mode trace puts on record: a recording (record/recorder.h) for each device that is used,
 * one for pinned host memory, and each thread's way into them; the names of their files.
 * Does not: hook anything, or keep what is allocated: a file is all there is.
 *
 * FILES  The first device's recording has the name that was given; "run.ftrace" makes
 * run.dev1.ftrace of device 1's and run.host.ftrace of host memory's. Where another process of the
 * run has the name already (runpage.h), or holds the file, the process's number goes in too:
 * run.4711.ftrace. "%p" in the name stands for the number from the start. Files appear with the first
 * allocation.
 *
 * EVENTS  ALLOC with the bytes asked for, a tag for the kind (enum flw_tracer_kind) and the stream where
 * the call names one, else stream 0; FREE before the driver has it, so that no thread that is given
 * the same address comes before it; OOM. What the driver refuses after all is counted and leaves
 * its FREE behind. Allocations and failures have the stack that they were asked for in, where that is wanted. A
 * device is asked for at each call only where there are several.
 *
 * Synchronization: `making` (a mutex of the system) for a new recording; each thread's counts by
 * itself. Recordings are never freed: who is inside one may stay there.
 */
#ifndef FLW_PRELOAD_TRACER_H
#define FLW_PRELOAD_TRACER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "preload/filename.h"

struct flw_runpage;

enum flw_tracer_kind { /* tags of a trace */
    FLW_TRACER_PLAIN = 0,
    FLW_TRACER_PITCH = 1,
    FLW_TRACER_MANAGED = 2,
    FLW_TRACER_ASYNC = 3, /* stream-ordered, from whatever pool of the driver */
    FLW_TRACER_HOST = 4   /* pinned; in a file of its own */
};

#define FLW_TRACER_DEVICES    64
#define FLW_TRACER_HOST_PLACE FLW_TRACER_DEVICES /* the recording of host memory */

struct flw_tracer_settings {
    const char *path; /* as given; there while the process lives. NULL: only counts are kept */
    struct flw_runpage *page; /* NULL: none */
    unsigned
        stack_depth; /* frames that allocations are recorded with (record/callstack.h); 0: none */
    bool enters_python; /* for them; see there */
};

struct flw_tracer_counts {
    uint64_t allocated_count, freed_count, refused_count; /* refused: frees */
    uint64_t failed_count;                                /* allocations without memory */
    uint64_t allocated_bytes;
    uint64_t file_count, failed_files; /* written so far; could not be made or written */
};

/* Once, before anything else. */
void flw_tracer_begin(const struct flw_tracer_settings *settings);

/* `place`: a device's ordinal, or FLW_TRACER_HOST_PLACE. `stream`: what tells it from others; 0: none
 * is named. Any thread, any time; errno is kept. */
void flw_tracer_allocated(unsigned place, enum flw_tracer_kind kind, uint64_t address,
                          uint64_t bytes, uint64_t stream);
void flw_tracer_freed(unsigned place, uint64_t address, uint64_t stream);
void flw_tracer_refused(void); /* the last free */
void flw_tracer_failed(unsigned place, uint64_t bytes, uint64_t stream);

/* What stands for the calling thread's own default stream. */
uint64_t flw_tracer_thread_stream(void);

/* The process ends: what is on record goes to the files, and they get their ends. No driver call. */
void flw_tracer_finish(void);

/* In the child of a fork: the files are the parent's. Nothing goes on record until begin. */
void flw_tracer_forget(void);

void flw_tracer_sum(struct flw_tracer_counts *out);

/* The path of a recording that something else keeps, such as a pool's: named and claimed as above.
 * `number` tells those of one place apart, from 0. False: it would be too long. */
bool flw_tracer_name_file(const struct flw_tracer_settings *settings, unsigned place,
                          unsigned number, char out[FLW_FILENAME_BYTES]);

#endif
