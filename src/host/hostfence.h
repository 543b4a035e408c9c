/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the streams of a host pool, the blocks freed on each, and the events that cover the frees.
 *
 *   open     freed since the last event; recorded when there are many, or when memory is needed
 *   fence    an event and the uses that it covers: everything that was open at the record
 *   lost     freed on a stream that ended without notice: covered by waiting for the context
 *
 * The heap's order domains are not used here: their free memory has an owner, which reuses it at
 * once, and moves in batches and runs of 64 KiB. Here no freed block has an owner before it is
 * complete, then any caller may get it, and single blocks down to 64 B wait. What is left of a
 * domain is a queue of events.
 *
 * One thread at a time makes driver calls for a stream (is_busy); others leave the stream alone.
 *
 * INVARIANTS
 *   1. A use is in exactly one place: open, a fence, lost, announced by the block, or a busy thread's.
 *   2. A block's `awaits` is the number of the uses in the first three and the last.
 *   3. Fences of a stream are in the order of their events.
 * Synchronization: the pool's lock; driver calls without it. */
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
    CUcontext context; /* of the event */
    CUcontext heir;    /* of lost uses: another context with a stream that has the handle now;
                           or NULL */
    struct flw_hostuse *uses;
};

struct flw_hoststream {
    struct flw_hoststream *next;
    CUstream handle;
    CUcontext context;
    unsigned long long id;
    CUcontext heir; /* lost: the context of another stream that has the handle now; or NULL */
    bool has_id;
    bool is_known;       /* found by the handle: not retired, not lost */
    bool is_lost;        /* ended without notice */
    bool is_busy;        /* a thread makes driver calls for it */
    bool refuses_events; /* the driver refused to record or query an event, and has not done so
                            since: waiting for the context completes the frees */
    uintptr_t thread;    /* CU_STREAM_PER_THREAD: the thread; 0: any thread's */
    struct flw_hostuse *open;
    uint32_t open_count;
    uint64_t open_bytes;
    uint32_t announced_count; /* uses of live blocks */
    struct flw_hostfence *oldest, *newest;
};

struct flw_hostfences {
    struct flw_meta meta;
    struct flw_hoststream *streams, *last_found;
    struct flw_hostfence *unused;
    struct flw_hostfence *lost; /* uses by context, without an event */
    uint32_t stream_count;
    uint64_t event_count, lost_count;
    _Atomic uint64_t query_count, wait_count;
};

bool flw_fences_init(struct flw_hostfences *fences);
/* Destroy the events, after everything was waited for. Makes driver calls. */
void flw_fences_release(struct flw_hostpool *pool);
void flw_fences_finish(struct flw_hostfences *fences);

/* ---- hoststream.c */

/* Return a number that no other thread ever has: the system reuses thread ids, but another
 * thread's events do not cover an ended thread's frees. */
uintptr_t flw_hoststream_thread(void);
/* Return the tracked stream of a handle for this thread; NULL: none. Lock held. */
struct flw_hoststream *flw_hoststream_known(struct flw_hostfences *fences, CUstream handle);
/* The same, created if new: may make driver calls. Returns with the lock held on success; no lock
 * held before. */
fallow_status flw_fences_find(struct flw_hostpool *pool, CUstream handle,
                              struct flw_hoststream **out_stream);
/* Let a use wait for the stream's present work. Lock held. */
void flw_fences_add(struct flw_hostpool *pool, struct flw_hoststream *stream,
                    struct flw_hostuse *use);
/* True if there is enough for an event. Lock held. */
bool flw_fences_is_due(const struct flw_hoststream *stream);

/* ---- hostfence.c */

/* Record the open uses. CAPTURING: not now. Uses that could not be recorded later are lost at
 * once. Makes driver calls. */
fallow_status flw_fences_record(struct flw_hostpool *pool, struct flw_hoststream *stream);
/* Reclaim the complete blocks of one stream, or of all (recording first). True: any. Makes driver
 * calls. */
bool flw_fences_poll(struct flw_hostpool *pool, struct flw_hoststream *stream);
bool flw_fences_poll_all(struct flw_hostpool *pool);
/* Poll until nothing is deferred, `is_enough` returns true (called with the lock held; may be
 * NULL), or the deadline (flw_clock_fine_ns; UINT64_MAX: none) is over: TIMEOUT. Makes driver
 * calls. */
fallow_status flw_fences_wait(struct flw_hostpool *pool, uint64_t deadline_ns,
                              bool (*is_enough)(struct flw_hostpool *pool, void *context),
                              void *context);
/* Record the open uses and forget the handle. Makes driver calls. */
fallow_status flw_fences_retire(struct flw_hostpool *pool, CUstream handle);

/* Return a description of the first violation; NULL: none. Lock held. */
const char *flw_fences_broken_invariant(struct flw_hostpool *pool);

#endif
