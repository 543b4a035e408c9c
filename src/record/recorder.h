/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a recording: the rings, the thread that empties them into a file, dumps.
 * Does not: produce records. The user writes records into the rings, looks up the initial blocks,
 * and makes sure that no thread writes records any more before the recording ends.
 *
 * There are two kinds. One writes a file: a thread, the flusher, empties the rings when one is
 * half full or a record has waited for some time, and passes everything to the operating system
 * each time, as a chunk of the file. The other keeps the records in the rings until a dump is
 * requested: a file of its own each, complete or absent.
 *
 * Synchronization: `io` for the file and for dumps; a lock that may be held over writing, so it is
 * never taken with a ranked lock held. Rings are only added while the recorder lives. */
#ifndef FLW_RECORD_RECORDER_H
#define FLW_RECORD_RECORDER_H

#include <pthread.h>

#include "fallow/status.h"
#include "record/trace_file.h"

/* The user of a recorder. */
struct flw_recorder_host {
    void *context;
    /* List every live block, in any order (initial_blocks.h). */
    void (*look_up)(void *context, struct flw_initial_blocks *initial, struct flw_names *names);
    /* Make sure that no thread writes records any more. Called after the file has failed, at most
     * once, on any thread, with no lock held. */
    void (*detach)(void *context);
    /* Log one line for the user, with no lock held. */
    void (*log)(void *context, bool is_error, const char *line);
    const char *when_lost; /* advice on how records find room; NULL: the user has no means */
};

struct flw_recorder_settings {
    const char *path; /* NULL: none */
    uint64_t ring_bytes;
    bool waits;      /* threads wait if their ring is full */
    bool keeps_last; /* no file except dumps */
    bool is_fenced;  /* no membarrier from the start */
    int dump_signal; /* 0: none */
    uint32_t device;
    struct flw_callstacks
        *callstacks; /* of the rings' records (flw_ring_tell_stack), the host's; NULL: none */
    struct flw_recorder_host host;
};

struct flw_recorder {
    struct flw_recorder_settings settings;
    char *path; /* NULL: none */
    bool uses_tsc;
    uint64_t wall_ns;
    struct flw_tsc_pair zero, last; /* origin of times; end of the file */
    /* Between these two every thread recorded: outside, records of other threads are missing. */
    uint64_t begin_ticks;
    _Atomic uint64_t end_ticks;
    struct flw_names names;
    struct flw_lock lock;           /* FLW_RANK_RECORD: creating rings */
    atomic_bool is_fenced;          /* the owners of rings order their own stores; never reset */
    struct flw_ring *_Atomic rings; /* newest first */
    uint32_t ring_count;
    struct flw_wakeup wakeup; /* wakes the flusher */
    pthread_mutex_t io;
    struct flw_trace_file *trace_file; /* of the file */
    pthread_t flusher;
    bool has_flusher;
    atomic_int stage; /* OVER: the flusher ends */
    atomic_bool is_abandoned;
    _Atomic uint64_t unheard;  /* records of threads without memory for a ring */
    const char *failure;       /* of the file; NULL: none; under io */
    atomic_bool has_to_detach; /* it has failed and this was not reported yet */
    uint32_t seen_signals;
    uint32_t process;
};

/* Errors: IO (the log names the file), OUT_OF_HOST_MEMORY. Afterwards rings may be requested. */
fallow_status flw_recorder_create(const struct flw_recorder_settings *settings,
                                  struct flw_recorder **out_recorder);

/* Record everything from now on: look up the initial blocks, begin the file, start the flusher. */
fallow_status flw_recorder_begin(struct flw_recorder *recorder);

/* Return the ring of a thread, created on first use. NULL: no host memory. */
struct flw_ring *flw_recorder_ring(struct flw_recorder *recorder, uintptr_t token);

/* Pass all records so far to the operating system. IO: the file has failed, now or before. */
fallow_status flw_recorder_flush(struct flw_recorder *recorder);

/* Write the contents of the rings as the file `path`. */
fallow_status flw_recorder_dump(struct flw_recorder *recorder, const char *path);

/* List the call stacks that hold live blocks, as of the last write (trace_file.h). 0 if nothing is
 * written, no stacks are recorded, or a write is taking long. The caller holds no ranked lock. */
size_t flw_recorder_list_holders(struct flw_recorder *recorder, struct flw_trace_file_holder *out,
                                 size_t most, struct flw_trace_file_holder *out_rest);

/* From now on some threads' records may be missing; no thread waits for room. */
void flw_recorder_close(struct flw_recorder *recorder);

/* After the detach, write the rest and end the file; waits for the flusher. IO as above;
 * RECORDS_LOST: the file is complete except for records that the log counts. */
fallow_status flw_recorder_finish(struct flw_recorder *recorder);
void flw_recorder_destroy(struct flw_recorder *recorder);

/* Abandon without waits and locks: threads may still write records, so the rings stay. The
 * flusher, if there is one, ends the file by itself. In the child of a fork the file is the
 * parent's. */
void flw_recorder_abandon(struct flw_recorder *recorder);

static inline bool flw_recorder_is_over(const struct flw_recorder *recorder)
{
    return atomic_load(&recorder->stage) == FLW_RING_OVER;
}

/* Call before checking whether rings' owners are out (ring.h). If the kernel refuses membarrier,
 * the owners order their own stores from then on; that first call takes 20 ms. */
void flw_recorder_order(struct flw_recorder *recorder);

/* Count each delivery of the signal and dump the recorders that use it. BUSY: the program has a
 * handler for it. INVALID_ARGUMENT: no such signal. */
fallow_status flw_dumpsignal_acquire(int number);
void flw_dumpsignal_release(int number);
uint32_t flw_dumpsignal_count(int number);
void flw_dumpsignal_forget(int number); /* in the child of a fork */

#endif
