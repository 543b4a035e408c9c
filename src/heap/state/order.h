/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: order domains, which define the work that precedes a free. The heap uses three operations:
 * *mark* (store the domain's sequence number with freed memory, under the lock), *fence* (record
 * an event that covers every sequence number so far), *complete* (the largest sequence number
 * found complete).
 *
 *   stream    a CUDA stream: the next work follows all earlier work, so its own memory is reused at
 *             once and never fenced
 *   capture   one stream inside one graph capture: as a stream, but never fenced
 *   context   all work in a context: memory is reusable only when the epoch's event is complete. A
 *             heap in context order has one such domain (epoch.h)
 *
 * Sequence numbers increase and never restart, so a point of a domain whose place was reused stays
 * complete. */
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
    bool reuses_at_once; /* the domain may reuse the free memory before any fence */
    /* Record an event; makes driver calls with no lock held, for a stream in a suitable section,
     * for a fence with an event. NULL: cannot be fenced. */
    CUresult (*record)(struct flw_heap *heap, const struct flw_domain *domain,
                       struct flw_fence *fence);
    /* Order the domain's later work after the event. NULL: it cannot wait on the device. */
    CUresult (*wait)(struct flw_heap *heap, const struct flw_domain *domain, CUevent event);
};

extern const struct flw_order_ops flw_order_stream;
extern const struct flw_order_ops flw_order_capture;
/* Of a released capture with live blocks. */
extern const struct flw_order_ops flw_order_released;
extern const struct flw_order_ops flw_order_context;
/* The same if the driver cannot record a context: only a synchronisation completes work. */
extern const struct flw_order_ops flw_order_unrecorded;
/* Of no stream: heap.multi_stream. */
extern const struct flw_order_ops flw_order_no_stream;

/* A recorded event and the sequence numbers that it covers; in two lists while outstanding (struct
 * flw_standing).
 * Synchronization: the heap lock. */
struct flw_fence {
    struct flw_fence *next;     /* older to newer within a domain, or unused, or one of
                                    `others` */
    struct flw_fence *previous; /* within a domain */
    /* Context order: fences of the other live contexts; the fence is complete when all are
     * (epoch.h). */
    struct flw_fence *others;
    struct flw_fence *older_made;      /* of all fences that the heap has created */
    struct flw_fence *before, *behind; /* of all outstanding ones, in the order of their
                                           records */
    struct flw_domain *domain;
    CUevent event;
    CUcontext context;
    uint64_t context_id; /* of the domain: a handle may belong to another context when an event is
                        reused */
    uint64_t seq;
    uint32_t use_count; /* callers that query it or wait for it without the lock */
    bool is_unlinked;   /* complete or void: unused as soon as no caller holds it */
};

/* INVARIANTS
 *   1. completed < seq; every fence's seq is in (completed, seq) unless complete; fences
 *      ascend.
 *   2. Batches and runs of the domain have numbers in (0, seq].
 *   3. Domain 0 owns unowned memory: no fences; everything in the lists is complete.
 *   4. A place is free (ops NULL) only if every point with this place is complete, and no capture has
 *      raised capture_count.
 *   5. The fences of a stream that is no longer tracked are all cleared.
 * Synchronization: the heap lock; ops, index, context, stream, id are immutable while it lives. */
struct flw_domain {
    const struct flw_order_ops *ops; /* NULL: the place is unused */
    uint32_t index;
    CUstream stream;
    CUcontext context;
    uint64_t context_id;           /* cuCtxGetId of a foreign context; 0: the pool's own, or
                                   unknown */
    uint64_t id;                   /* cuStreamGetId; 0 unknown */
    uint64_t stream_number;        /* number in `allocation` (stream_ids.h); of a capture: the
                                   stream's */
    bool is_known;                 /* found by the handle (false once retired or lost): places.h */
    bool is_lost;                  /* destroyed without retire: cannot be fenced */
    bool is_retired;               /* the last fence is recorded and covers everything that it will
                                   ever own */
    bool own_thread_only;          /* CU_STREAM_PER_THREAD: only the thread may record on it */
    bool is_foreign;               /* stream of another context, only for announced uses */
    uintptr_t thread;              /* own_thread_only: the token (thread.h) */
    uint32_t cache_count;          /* thread caches of the domain */
    struct flw_tcache *caches;     /* these caches, linked by same_next; under the pool's lock */
    struct flw_domain *next_place; /* in the chain of the handle, or in the list of free places
                              (places.h) */
    uint64_t sync_seq;             /* scratch of a context synchronisation under way */
    uint64_t checked_seq;          /* scratch of the checker */
    uint64_t
        cover; /* lost stream: number of the context's event that covers it, ascending; 0: none */
    uint64_t cover_seq;      /* sequence number that the event covers */
    uint32_t capture;        /* a capture's domain: 1 + the capture's place */
    uint64_t captured_bytes; /* a capture's domain: bytes of the slabs without live blocks */
    uint64_t captured_live;  /* a capture's domain: blocks allocated */
    uint32_t captured_by;    /* a stream's domain: present capture of the stream, 0 none;
                                 atomic */
    uint64_t captured_seq;   /* of a fence over all work of the stream before that; 0: none */
    uint32_t capture_count; /* a stream's domain: captures with memory that the stream took part in.
                           Such captures mark memory with the stream's number when they end and
                           are released, so the place is kept until then, even if the stream is
                           destroyed */

    /* Sequence number of the next fence; starts at 1. Raised under the lock by a sequentially
     * consistent increment *before* the fence is recorded. So an owner that reads an older value
     * without the lock has freed before that record: a cached run keeps the sequence number of its
     * own free. */
    _Atomic uint64_t seq;
    uint64_t completed;
    _Atomic uint64_t unfenced_bytes; /* freed since the last fence was taken: > 0 if any point
                                         is open, that is, equal to seq */
    bool is_recording;               /* a fence is taken and not published yet */
    atomic_bool is_user; /* blocks of other streams with announced uses by this stream were
                             freed */
    /* Fences up to this sequence number belong to no open capture: the stream was queried after
     * their record. Only these may be queried and waited for; doing so with others might end a
     * capture. */
    uint64_t cleared;
    bool is_behind;        /* the newest fence was incomplete when last queried */
    unsigned done_asks;    /* consecutive queries that found fences complete: the next query leaps
                       (wait.c) */
    unsigned leap_from;    /* number of these before a leap; doubles if a leap goes too far */
    uint64_t unready_look; /* the last poll that found the oldest fence incomplete */
    bool refuses_fences;   /* the driver refused to record or query a fence, and has not done so
                             since: only a synchronisation of the context completes the memory */
    uint32_t naming_count; /* threads that are querying the driver about the stream */
    struct flw_fence *oldest, *newest;

    struct flw_point after[FLW_POINTS_MAX];      /* ordered after these points: work up to them
                                                     precedes the next work */
    uint32_t after_next;                         /* the next place to overwrite */
    struct flw_deferred *waiting, *waiting_last; /* deferred frees that wait for the fences, by
                                                     ascending number; last: if any */
    uint64_t ceded; /* the poll for which the caches were last emptied (pool/ladder/steal.c) */
    bool is_owing;  /* in heap.owing */
    struct flw_domain *owing_before, *owing_behind;

    uint32_t slab_count[FLW_CLASS_COUNT]; /* slabs created for the domain: slabs grow with
                                              demand */
    uint32_t slab_units[FLW_CLASS_COUNT]; /* units of these slabs */
    struct flw_class_set with_batches;    /* all other classes have no batch here */
    /* Free memory of the domain. All zeros in a free place, so that a new stream need not clear
     * it. */
    struct flw_batch_list batches[FLW_CLASS_COUNT];
    struct flw_span *current[FLW_CLASS_COUNT]; /* slab with uncarved slots, or NULL */
    struct flw_run_index runs;
    struct flw_run_index dedicated_runs; /* runs that fill a handle each */
};

/* True if the stream must be queried for a capture before some of the fences are.
 * Heap lock held. */
static inline bool flw_domain_has_uncleared(const struct flw_domain *domain)
{
    return domain->newest != NULL && domain->newest->seq > domain->cleared;
}

/* Return the sequence number of memory freed now. A retired stream takes no more fences: the late
 * frees were submitted before the last one. Heap lock held. */
static inline uint64_t flw_domain_free_seq(const struct flw_domain *domain)
{
    return domain->seq - (domain->is_retired && !FLW_MUTANT(RETIRED_IS_RECORDED_ON));
}

/* False also for an unused place. Heap lock held. */
static inline bool flw_domain_is_stream(const struct flw_domain *domain)
{
    return domain->ops != NULL && domain->ops->is_stream;
}

/* True for the legacy stream. It is never captured, but a record on it would end the captures of
 * streams that wait for it. */
static inline bool flw_domain_is_legacy(const struct flw_domain *domain)
{
    return domain->ops == &flw_order_stream &&
           (uintptr_t)domain->stream <= (uintptr_t)CU_STREAM_LEGACY;
}

/* Heap lock held. */
static inline bool flw_domain_has_runs(const struct flw_domain *domain)
{
    return domain->runs.run_count > 0 || domain->dedicated_runs.run_count > 0;
}

/* Heap lock held. */
static inline uint64_t flw_domain_run_bytes(const struct flw_domain *domain)
{
    return (domain->runs.unit_count_total + domain->dedicated_runs.unit_count_total)
           << FLW_UNIT_LOG2;
}

#endif
