/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the streams of a host pool, what was freed on each, and the events that cover it.
 *
 *   open     freed since the last event; recorded when it is much, or when memory is wanted
 *   fence    an event and what it covers: everything that was open when it was recorded
 *   lost     freed on a stream that went without notice: its context, waited for, covers it
 *
 * The heap's order domains are not used here: theirs is free memory that has an owner, is reused by
 * that owner at once and handed on in batches and runs of 64 KiB. Here nothing is anybody's before it
 * is complete, and then it is everybody's; single blocks down to 64 B wait. What is left of a domain
 * is a queue of events.
 *
 * One thread at a time makes driver calls for a stream (is_busy); others leave it alone.
 *
 * INVARIANTS
 *   1. A use is in exactly one place: open, a fence, lost, announced by its block, or a busy thread's.
 *   2. A block's `awaits` is the number of its uses in the first three and the last.
 *   3. Fences of a stream are in the order of their events.
 * Synchronization: the pool's lock; driver calls without it.
 */
#ifndef FLW_HOST_HOSTFENCE_H
#define FLW_HOST_HOSTFENCE_H

#include "host/hostblock.h"
#include "host/pin.h"

struct flw_hostpool;

/* Two planted faults, in a test's own build of these sources; elsewhere the constant 0. */
enum flw_host_plant {
    FLW_HOST_PLANT_NONE,
    FLW_HOST_PLANT_NOT_READY_IS_DONE, /* an event that is not ready counts as complete */
    FLW_HOST_PLANT_USE_IGNORED        /* an announced use is forgotten at the free */
};
#if defined(FLW_HOST_PLANTS)
extern enum flw_host_plant flw_host_plant;
#define FLW_HOST_PLANTED(name) (flw_host_plant == FLW_HOST_PLANT_##name)
#else
#define FLW_HOST_PLANTED(name) 0
#endif

struct flw_hostfence {
    struct flw_hostfence *next; /* older to newer; or unused */
    CUevent event;
    CUcontext context; /* the event's */
    CUcontext heir;    /* of lost uses: another one, whose stream has the handle now; or NULL */
    struct flw_hostuse *uses;
};

struct flw_hoststream {
    struct flw_hoststream *next;
    CUstream handle;
    CUcontext context;
    unsigned long long id;
    CUcontext heir; /* lost: where the handle is another stream's now; or NULL */
    bool has_id;
    bool is_known; /* the handle finds it: not retired, not lost */
    bool is_lost;  /* went without notice */
    bool is_busy;  /* a thread makes driver calls for it */
    bool
        refuses_events; /* the driver refused to record one or to ask for one, and has not done it since:
                            waiting for the context completes what is freed there */
    uintptr_t thread; /* CU_STREAM_PER_THREAD: whose; 0: any thread's */
    struct flw_hostuse *open;
    uint32_t open_count;
    uint64_t open_bytes;
    uint32_t announced_count; /* uses of blocks that are still allocated */
    struct flw_hostfence *oldest, *newest;
};

struct flw_hostfences {
    struct flw_meta meta;
    struct flw_hoststream *streams, *last_found;
    struct flw_hostfence *unused;
    struct flw_hostfence *lost; /* uses by context; no event */
    uint32_t stream_count;
    uint64_t event_count, lost_count;
    _Atomic uint64_t query_count, wait_count;
};

bool flw_fences_init(struct flw_hostfences *fences);
/* Driver calls. The events; everything has been waited for. */
void flw_fences_release(struct flw_hostpool *pool);
void flw_fences_finish(struct flw_hostfences *fences);

/* ---- hoststream.c */

/* A number that no other thread ever has: the system gives those of ended threads out again, whose
 * frees another thread's events do not cover. */
uintptr_t flw_hoststream_thread(void);
/* lock. The stream that a handle names for this thread; NULL: none is known. */
struct flw_hoststream *flw_hoststream_known(struct flw_hostfences *fences, CUstream handle);
/* lock on success, no lock held before. The same, made where it is new: may make driver calls. */
fallow_status flw_fences_find(struct flw_hostpool *pool, CUstream handle,
                              struct flw_hoststream **out_stream);
/* lock. A use waits for what the stream has been given so far. */
void flw_fences_add(struct flw_hostpool *pool, struct flw_hoststream *stream,
                    struct flw_hostuse *use);
/* lock. Is there enough for an event? */
bool flw_fences_is_due(const struct flw_hoststream *stream);

/* ---- hostfence.c */

/* Driver calls. Records what is open. CAPTURING: not now. Where it could not be recorded later it
 * is lost at once. */
fallow_status flw_fences_record(struct flw_hostpool *pool, struct flw_hoststream *stream);
/* Driver calls. Reclaims what is complete of one stream, of all (recording first). True: any. */
bool flw_fences_poll(struct flw_hostpool *pool, struct flw_hoststream *stream);
bool flw_fences_poll_all(struct flw_hostpool *pool);
/* Driver calls. Polls until nothing is deferred, `is_enough` says so (with the lock held; may be
 * NULL), or the deadline (flw_clock_fine_ns; UINT64_MAX: none) is over: TIMEOUT. */
fallow_status flw_fences_wait(struct flw_hostpool *pool, uint64_t deadline_ns,
                              bool (*is_enough)(struct flw_hostpool *pool, void *context),
                              void *context);
/* Driver calls. Records what is open and forgets the handle. */
fallow_status flw_fences_retire(struct flw_hostpool *pool, CUstream handle);

/* lock. A sentence; NULL: all hold. */
const char *flw_fences_broken_invariant(struct flw_hostpool *pool);

#endif
