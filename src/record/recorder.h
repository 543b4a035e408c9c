/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a recording: its rings, the thread that empties them into a file, dumps.
 * Does not: know what is recorded. Whoever does makes the rings' records, looks up what was there at
 * the beginning, and sees to it that no thread puts records any more before it ends.
 *
 * Two kinds. One writes a file: a thread, the flusher, empties the rings when one is half full or
 * something has waited for some time, and hands all of it to the operating system each time: a chunk of
 * the file. The other keeps what the rings hold
 * until it is asked for a dump: a file of its own each, complete or absent.
 *
 * Synchronization: `io` for the file and for dumps; a lock that may be held over writing, so it is
 * never taken with a ranked lock held. Rings are only added while the recorder lives.
 */
#ifndef FLW_RECORD_RECORDER_H
#define FLW_RECORD_RECORDER_H

#include <pthread.h>

#include "fallow/status.h"
#include "record/scribe.h"

/* The recorded. */
struct flw_recorder_host {
    void *context;
    /* Every block that is allocated, in any order (warm.h). */
    void (*look_up)(void *context, struct flw_warm *warm, struct flw_names *names);
    /* See to it that no thread puts records any more. Called when the file has failed, at most once,
     * from any thread, no lock held. */
    void (*detach)(void *context);
    /* One line for the user. No lock held. */
    void (*log)(void *context, bool is_error, const char *line);
    const char *when_lost; /* how threads' records find room; NULL: the user has no way */
};

struct flw_recorder_settings {
    const char *path; /* NULL: none */
    uint64_t ring_bytes;
    bool waits;      /* threads wait where their ring is full */
    bool keeps_last; /* no file but dumps */
    bool is_fenced;  /* no membarrier, from the beginning */
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
    struct flw_tsc_pair zero, last; /* what times are counted from; until when the file goes */
    /* Between these two every thread recorded: what is outside lacks the others' share. */
    uint64_t begin_ticks;
    _Atomic uint64_t end_ticks;
    struct flw_names names;
    struct flw_lock lock;           /* FLW_RANK_RECORD: making rings */
    atomic_bool is_fenced;          /* the owners of rings order their own stores; only ever set */
    struct flw_ring *_Atomic rings; /* newest first */
    uint32_t ring_count;
    struct flw_bell bell; /* wakes the flusher */
    pthread_mutex_t io;
    struct flw_scribe *scribe; /* of the file */
    pthread_t flusher;
    bool has_flusher;
    atomic_int stage; /* OVER: the flusher ends */
    atomic_bool is_abandoned;
    _Atomic uint64_t unheard;  /* records of threads that there was no memory for a ring for */
    const char *failure;       /* of the file; NULL: none. Under io */
    atomic_bool has_to_detach; /* it has failed and this was not said yet */
    uint32_t seen_signals;
    uint32_t process;
};

/* Errors: IO (the log names the file), OUT_OF_HOST_MEMORY. Rings may be asked for from now on. */
fallow_status flw_recorder_create(const struct flw_recorder_settings *settings,
                                  struct flw_recorder **out_recorder);

/* From now on everything is on record: look up what was there, begin the file, start the flusher. */
fallow_status flw_recorder_begin(struct flw_recorder *recorder);

/* The ring of a thread, made on first sight. NULL: no host memory. */
struct flw_ring *flw_recorder_ring(struct flw_recorder *recorder, uintptr_t token);

/* All that has been put by now goes to the operating system. IO: the file has failed, now or before. */
fallow_status flw_recorder_flush(struct flw_recorder *recorder);

/* What the rings hold becomes the file `path`. */
fallow_status flw_recorder_dump(struct flw_recorder *recorder, const char *path);

/* Which call stacks hold what is live, as of what was written last (scribe.h). 0 where nothing is written, no stacks
 * are recorded, or writing takes its time. No ranked lock is held by the caller. */
size_t flw_recorder_list_holders(struct flw_recorder *recorder, struct flw_scribe_holder *out,
                                 size_t most, struct flw_scribe_holder *out_rest);

/* From now on some threads' records may be missing; no thread waits for room. */
void flw_recorder_close(struct flw_recorder *recorder);

/* Detached. Write the rest and end the file; waits for the flusher. IO as above; RECORDS_LOST: the file
 * has its end and lacks records, the log says how many. */
fallow_status flw_recorder_finish(struct flw_recorder *recorder);
void flw_recorder_destroy(struct flw_recorder *recorder);

/* No waiting, no lock: threads may be putting records still, so the rings stay. The flusher, where
 * there is one, ends the file by itself. In the child of a fork: the file is the parent's. */
void flw_recorder_abandon(struct flw_recorder *recorder);

static inline bool flw_recorder_is_over(const struct flw_recorder *recorder)
{
    return atomic_load(&recorder->stage) == FLW_RING_OVER;
}

/* Before a look whether rings' owners are out (ring.h). Where the kernel refuses membarrier, by now, the
 * owners order their own stores from then on; that once it takes 20 ms. */
void flw_recorder_order(struct flw_recorder *recorder);

/* Every delivery of the signal is counted, and dumps what the recorders of it keep. BUSY: the program
 * has a handler for it. INVALID_ARGUMENT: no such signal. */
fallow_status flw_dumpsignal_acquire(int number);
void flw_dumpsignal_release(int number);
uint32_t flw_dumpsignal_count(int number);
void flw_dumpsignal_forget(int number); /* in the child of a fork */

#endif
