/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the recordings of mode trace (record/recorder.h): one for each device in use and one for
 * pinned host memory, each thread's access to them, and the names of their files.
 * Does not: hook anything, or keep a list of blocks: the file is everything.
 *
 * FILES  The first device's recording has the given name; "run.ftrace" becomes run.dev1.ftrace for device 1 and run.host.ftrace
 * for host memory. If another process of the run has the name already (runpage.h), or holds the file, the process id is added:
 * run.4711.ftrace. "%p" in the name is the process id from the start. A file appears with the first allocation.
 *
 * EVENTS  ALLOC with the requested bytes, a tag for the kind (enum flw_tracer_kind) and the stream if the call has one, otherwise
 * stream 0; FREE before the driver call, so that it precedes the next allocation of the address; OOM. Frees that the driver refuses
 * are counted and their FREE remains. Allocations and failures have their call stack, if wanted. The device is queried in each call
 * only if there are several.
 *
 * Synchronization: `making` (a system mutex) for a new recording; each thread writes its own
 * counts. Recordings are never freed: a thread inside one may stay there. */
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
    FLW_TRACER_ASYNC = 3, /* stream-ordered, from any pool of the driver */
    FLW_TRACER_HOST = 4   /* pinned; in a file of its own */
};

#define FLW_TRACER_DEVICES    64
#define FLW_TRACER_HOST_PLACE FLW_TRACER_DEVICES /* the recording of host memory */

struct flw_tracer_settings {
    const char *path; /* as given; lives as long as the process. NULL: only counts are kept */
    struct flw_runpage *page; /* NULL: none */
    unsigned stack_depth;     /* frames recorded with allocations (record/callstack.h); 0: none */
    bool enters_python;       /* for the stacks; see there */
};

struct flw_tracer_counts {
    uint64_t allocated_count, freed_count, refused_count; /* refused: frees */
    uint64_t failed_count;                                /* allocations without memory */
    uint64_t allocated_bytes;
    uint64_t file_count, failed_files; /* written so far; could not be created or written */
};

/* Call once, before anything else. */
void flw_tracer_begin(const struct flw_tracer_settings *settings);

/* Record an allocation. `place`: a device's ordinal, or FLW_TRACER_HOST_PLACE. `stream`:
 * identifies the stream; 0: none. Any thread, any time; errno is kept. */
void flw_tracer_allocated(unsigned place, enum flw_tracer_kind kind, uint64_t address,
                          uint64_t bytes, uint64_t stream);
void flw_tracer_freed(unsigned place, uint64_t address, uint64_t stream);
void flw_tracer_refused(void); /* the last free */
void flw_tracer_failed(unsigned place, uint64_t bytes, uint64_t stream);

/* Return the number of the calling thread's own default stream. */
uint64_t flw_tracer_thread_stream(void);

/* At process exit: write the records to the files and end the files. Makes no driver call. */
void flw_tracer_finish(void);

/* In the child of a fork: the files are the parent's. Nothing is recorded until begin. */
void flw_tracer_forget(void);

void flw_tracer_sum(struct flw_tracer_counts *out);

/* Return the path of a recording that other code writes, such as a pool's: named and claimed as
 * above. `number` distinguishes those of one place, from 0. False: too long. */
bool flw_tracer_name_file(const struct flw_tracer_settings *settings, unsigned place,
                          unsigned number, char out[FLW_FILENAME_BYTES]);

#endif
