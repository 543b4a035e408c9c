/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: order domains: what "everything given before" means for a piece of freed memory. The heap
 * knows three verbs only: *mark* (with the domain's sequence number, under the lock), *fence* (make
 * an event cover every sequence number so far), *completed* (the largest sequence number seen
 * complete).
 *
 *   stream    a CUDA stream: the next work on it comes after all earlier work, so its own memory is
 *             reused at once and never fenced
 *   capture   one stream inside one graph capture: as a stream, but never fenced
 *   context   everything in a context: memory is reusable only when its epoch's event is complete. A
 *             heap in context order has one such domain (epoch.h)
 *
 * Sequence numbers count up and never restart, so a point of a domain whose place was reused stays
 * complete.
 */
#ifndef FLW_HEAP_STATE_ORDER_H
#define FLW_HEAP_STATE_ORDER_H

#include "base/mutant.h"
#include "heap/state/batch.h"
#include "heap/state/run_index.h"
#include "memory/class_set.h"
#include "memory/source.h"

struct flw_domain;
struct flw_fence;
struct flw_heap;
struct flw_deferred;
struct flw_tcache;

struct flw_order_ops {
    const char *name;
    bool is_stream;
    bool reuses_at_once; /* its free memory serves it before any fence */
    /* Driver calls, no lock held; a stream's in a section that fits it, the fence with an event. NULL: cannot
     * be fenced. */
    CUresult (*record)(struct flw_heap *heap, const struct flw_domain *domain,
                       struct flw_fence *fence);
    /* Work given to the domain from now on comes after the event. NULL: it cannot wait on the
     * device. */
    CUresult (*wait)(struct flw_heap *heap, const struct flw_domain *domain, CUevent event);
};

extern const struct flw_order_ops flw_order_stream;
extern const struct flw_order_ops flw_order_capture;
/* A capture's, released, with blocks still allocated. */
extern const struct flw_order_ops flw_order_released;
extern const struct flw_order_ops flw_order_context;
/* The same where the driver cannot record a context: only a synchronisation completes. */
extern const struct flw_order_ops flw_order_unrecorded;
/* Of no stream: heap.mixed. */
extern const struct flw_order_ops flw_order_mixed;

/* A recorded event and the sequence numbers it covers; while it stands, in two lists (struct flw_standing).
 * Synchronization: the heap lock. */
struct flw_fence {
    struct flw_fence *next;     /* older to newer within a domain, or unused, or one of `others` */
    struct flw_fence *previous; /* within a domain */
    /* Context order: of the other live contexts; the fence is complete when all are (epoch.h). */
    struct flw_fence *others;
    struct flw_fence *older_made;      /* of all that the heap has ever made */
    struct flw_fence *before, *behind; /* of all that stand, in the order of their records */
    struct flw_domain *domain;
    CUevent event;
    CUcontext context;
    uint64_t
        context_id; /* its domain's: a handle may be another's by the time an event is used again */
    uint64_t seq;
    uint32_t use_count; /* callers that query or wait on it without the lock */
    bool is_unlinked;   /* complete or void: unused as soon as no caller holds it */
};

/* INVARIANTS
 *   1. completed < seq; every fence's seq is in (completed, seq) unless complete; fences
 *      ascend.
 *   2. Batches and runs of the domain carry numbers in (0, seq].
 *   3. Domain 0 owns unowned memory: no fences; everything in its lists is complete.
 *   4. A place is free (ops NULL) only when every point that names the place is complete, and no capture has
 *      raised capture_count.
 *   5. The fences of a stream that is no longer tracked are all cleared.
 * Synchronization: the heap lock, but ops, index, context, stream, id: immutable while it lives. */
struct flw_domain {
    const struct flw_order_ops *ops; /* NULL: this place is unused */
    uint32_t index;
    CUstream stream;
    CUcontext context;
    uint64_t context_id;       /* cuCtxGetId of a foreign one; 0 the pool's own, or unknown */
    uint64_t id;               /* cuStreamGetId; 0 unknown */
    uint64_t stream_number;    /* its number, as in `allocation` (stream_ids.h); a capture's: its
                               stream's */
    bool is_known;             /* found by its handle (false once retired or lost): places.h */
    bool is_lost;              /* destroyed without retire: cannot be fenced */
    bool is_retired;           /* its last fence is recorded and covers all it will ever own */
    bool own_thread_only;      /* CU_STREAM_PER_THREAD: only its thread may record on it */
    bool is_foreign;           /* stream of another context, used only by announced uses */
    uintptr_t thread;          /* own_thread_only: its token (thread.h) */
    uint32_t cache_count;      /* thread caches of the domain */
    struct flw_tcache *caches; /* these caches, linked by same_next. Guarded by the pool's lock */
    struct flw_domain
        *next_place;      /* in the chain of its handle, or in the list of free places (places.h) */
    uint64_t sync_seq;    /* scratch of a context synchronisation under way */
    uint64_t checked_seq; /* scratch of the checker */
    uint64_t
        cover; /* lost stream: number of the context-wide event that covers it, ascending; 0: none */
    uint64_t cover_seq;      /* the sequence number that the event covers */
    uint32_t capture;        /* a capture's domain: 1 + the capture's place */
    uint64_t captured_bytes; /* a capture's domain: its slabs, without live blocks */
    uint64_t captured_live;  /* a capture's domain: blocks allocated */
    uint32_t captured_by;    /* a stream's domain: capture under way on it, 0 none. Atomic */
    uint64_t captured_seq; /* of a fence over all that the stream was given before that; 0: none */
    uint32_t
        capture_count; /* a stream's domain: captures with memory that the stream took part in. Such captures
                                mark memory with the stream's number when they end and are released, so
                                the place is kept until then, even if the stream is destroyed */

    /* What the next fence will carry; starts at 1. Raised under the lock by a sequentially
     * consistent increment *before* the fence is recorded, so that an owner who reads an older
     * value without the lock has freed before that record: a cached run keeps the sequence number
     * of its own free. */
    _Atomic uint64_t seq;
    uint64_t completed;
    _Atomic uint64_t unfenced_bytes; /* freed since the last fence was taken: > 0 where any
                                        point is open, that is, equal to seq */
    bool is_recording;               /* a fence has been taken and is not published yet */
    atomic_bool is_user; /* others' blocks were freed of which a use by it had been announced */
    /* Its fences up to this sequence number are in no capture that goes on: the stream has said so
     * since they were recorded. Only these are asked for and waited for; asking for the others
     * might end a capture. */
    uint64_t cleared;
    bool is_behind; /* its newest fence was not done when it was asked last */
    unsigned
        done_asks; /* fences on end that were done when they were asked: the next ask leaps (wait.c) */
    unsigned leap_from;    /* after more of them than that: it doubles where a leap goes too far */
    uint64_t unready_look; /* the last one that found its oldest fence not done */
    bool refuses_fences; /* the driver refused to record one, or to ask for one, and has not done it
                            since: a synchronisation of the context completes what it owns */
    uint32_t naming_count; /* threads that ask the driver about the stream right now */
    struct flw_fence *oldest, *newest;

    struct flw_point after[FLW_POINTS_MAX];      /* what it has been made to wait for: work
                                               up to these points comes before its next work */
    uint32_t after_next;                         /* whose place the next one gets */
    struct flw_deferred *waiting, *waiting_last; /* deferred frees that wait for its fences, by
                                                    ascending number; last: if any */
    uint64_t ceded; /* the look for whose sake its caches last gave way (pool/ladder/steal.c) */
    bool is_owing;  /* in heap.owing */
    struct flw_domain *owing_before, *owing_behind;

    uint32_t slab_count[FLW_CLASS_COUNT]; /* slabs made for the domain: slabs grow with demand */
    uint32_t slab_units[FLW_CLASS_COUNT]; /* units of these slabs */
    struct flw_class_set with_batches;    /* no other class has a batch here */
    /* Free memory of the domain. All zeros in a free place, so that a new stream need not clear this. */
    struct flw_batch_list batches[FLW_CLASS_COUNT];
    struct flw_span *current[FLW_CLASS_COUNT]; /* slab with uncarved slots, or NULL */
    struct flw_run_index runs;
    struct flw_run_index dedicated_runs; /* runs that are each all of a handle */
};

/* lock. Are there fences that must not be asked for before the stream was asked for a capture? */
static inline bool flw_domain_has_uncleared(const struct flw_domain *domain)
{
    return domain->newest != NULL && domain->newest->seq > domain->cleared;
}

/* lock. The sequence number of what is freed now. A retired stream takes no fence any more: what
 * reaches it late was given to the device before its last one. */
static inline uint64_t flw_domain_free_seq(const struct flw_domain *domain)
{
    return domain->seq - (domain->is_retired && !FLW_MUTANT(RETIRED_IS_RECORDED_ON));
}

/* lock. False, too, of a place that is unused. */
static inline bool flw_domain_is_stream(const struct flw_domain *domain)
{
    return domain->ops != NULL && domain->ops->is_stream;
}

/* True for the legacy stream. It is never captured, but a record on it would end the captures of streams that wait for
 * it. */
static inline bool flw_domain_is_legacy(const struct flw_domain *domain)
{
    return domain->ops == &flw_order_stream &&
           (uintptr_t)domain->stream <= (uintptr_t)CU_STREAM_LEGACY;
}

/* lock */
static inline bool flw_domain_has_runs(const struct flw_domain *domain)
{
    return domain->runs.run_count > 0 || domain->dedicated_runs.run_count > 0;
}

/* lock */
static inline uint64_t flw_domain_run_bytes(const struct flw_domain *domain)
{
    return (domain->runs.unit_count_total + domain->dedicated_runs.unit_count_total)
           << FLW_UNIT_LOG2;
}

#endif
