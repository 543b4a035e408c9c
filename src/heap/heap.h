/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the free memory of one pool: batches of slots, slabs, runs, fences, physical handles.
 * Does not: cache for threads (tcache), climb the ladder or speak to callers (pool).
 *
 * One lock. Everything here is the slow path of a slow path: thread caches take and return whole
 * batches, so a lock a batch is nothing, and one lock lets neighbours of different owners meet. It
 * is never held over a driver call: a function either needs it held (`lock` in its comment) or
 * makes driver calls and takes it itself (`calls`).
 *
 * INVARIANTS (flw_heap_broken_invariant recomputes them)
 *   1. Runs partition each stretch of addresses, the range or a segment: from its edge each leads to its
 *      right neighbour, which begins where it ends, and so back to the edge.
 *   2. No two neighbours are free with the same owner, nor both unmapped.
 *   3. A page (granularity) has a handle <=> its run is not unmapped. Handles that are created add
 *      up to reserved_bytes while no growth is under way; those that sleep, to asleep_bytes.
 *   4. reserved_bytes <= limit_bytes, always: it is raised before the driver is asked.
 *   5. Of every slab: slots in counted batches + uncarved = free_count <= slot_count, and its stamps
 *      are the join of theirs.
 */
#ifndef FLW_HEAP_HEAP_H
#define FLW_HEAP_HEAP_H

#include <stdatomic.h>

#include "base/clock.h"
#include "base/lock.h"
#include "driver/answer.h"
#include "driver/section.h"
#include "heap/lender.h"
#include "heap/order.h"
#include "heap/refusal.h"
#include "memory/page_map.h"

/* Physical memory. Synchronization: the heap lock. */
struct flw_handle {
    struct flw_handle *next, *prev; /* idle list, or unused */
    uint64_t id;                    /* CUmemGenericAllocationHandle */
    uint32_t begin_unit;            /* where it is mapped */
    uint32_t unit_count;
    uint32_t types; /* what it carries: FALLOW_HANDLE_ bits, FLW_HANDLE_RDMA */
    bool is_mapped;
    bool is_asleep; /* its place is kept, nothing is to be found there; id 0: not created either */
    bool is_fresh;  /* created by a wake that is under way: nothing is in it */
    bool is_exported; /* importers may have it: it serves this one block and goes */
};

/* Free memory whose stamps are of several domains, or a block held back for announced uses. */
struct flw_pending {
    struct flw_pending *next;
    struct flw_span *run;    /* a whole run, or NULL */
    struct flw_slot *slot;   /* else a slot */
    struct flw_stamp awaits; /* whose queue it is in, and until when */
    uint32_t domain;         /* who gets it; FLW_NOBODY: nobody */
    uint64_t own_ticket;     /* of that domain when the block was freed */
    uint32_t stamp_count;
    uint32_t sweep_next;     /* the next domain to get a stamp of, where too many came for all to be
                                kept; 0: none */
    bool needs_context_sync; /* no fence can cover it: a stream was lost */
    bool is_in_sync;         /* scratch of a context synchronisation under way */
    struct flw_stamp stamps[FLW_STAMPS_MAX + 4];
    uint64_t bytes;
};

/* A driver allocation of a source that does not remap. Synchronization: the heap lock. */
struct flw_segment {
    struct flw_segment *next, **link;
    struct flw_span *edge;
    uint64_t address;
    uint32_t begin_unit, unit_count;
};

/* In context order a request from here on, at the latest, is a driver allocation of its own. */
#define FLW_WHOLE_BYTES FLW_MIB

#define FLW_RUN_SETS_LOG2 6
#define FLW_RUN_SETS      (1u << FLW_RUN_SETS_LOG2)
#define FLW_RUN_SET_SLOTS 7

/* Runs of one exact size: one line. `key` is the size in units in the upper half, their count in the
 * lower: a key less that of an empty set of a size is the place of the next run, or out of range. */
struct flw_run_set {
    uint64_t key;
    struct flw_span *runs[FLW_RUN_SET_SLOTS];
};

/* Runs on their way from one thread's cache to another's, of one domain, as sets; LIVE to the heap.
 * INVARIANT  at most what one cache may hold; empty, or its domain has a cache. */
struct flw_run_depot {
    struct flw_domain *domain; /* NULL: empty */
    uint64_t occupied;         /* bit i clear: sets[i] is empty */
    struct flw_run_set sets[FLW_RUN_SETS];
};

struct flw_heap_counters {
    _Atomic uint64_t driver_calls, events, queries, steals, waits, remaps, grows, trims;
    _Atomic uint64_t lost_streams, stream_waits;
    _Atomic uint64_t gone_streams; /* retired and lost: their handles may be others' by now */
};

struct flw_heap {
    struct flw_lock lock;
    const struct flw_driver *driver;
    CUcontext context;
    struct flw_source source;
    struct flw_page_map map;
    uint64_t base_unit; /* map.base in units */
    uint64_t range_bytes;
    uint64_t reservation, reservation_bytes; /* what the driver set aside for it; 0: nothing */
    unsigned table_shrink;                   /* its tables were halved so often (tables.h) */
    struct flw_meta object_meta;             /* batches, fences, pendings, handles, domains */
    struct flw_batch *unused_batches;
    /* Their slabs know nothing of them yet. */
    struct flw_batch *oldest_uncounted, *newest_uncounted;
    struct flw_fence *unused_fences;
    struct flw_fence *newest_made; /* every fence there is, wherever it is */
    uint32_t own_events;           /* made so far for fences of its own context, roughly */
    struct flw_pending *unused_pendings;
    struct flw_handle *unused_handles;

    struct flw_domain *domains[FLW_DOMAIN_COUNT]; /* [0]: nobody */
    uint32_t domain_end;                          /* one past the highest ever used */
    atomic_uint stream_count;                     /* domains that are known streams */

    uint64_t pending_bytes, pending_count;
    _Atomic uint64_t unfenced_use_bytes, unfenced_use_count; /* announced uses not fenced yet */
    struct flw_span *empty_slabs[FLW_CLASS_COUNT];           /* slabs with every slot free */
    _Atomic uint64_t empty_slab_count;

    struct flw_run_depot depot;
    struct flw_lenders lenders;

    struct flw_span *edge;         /* of the range (remapping sources), or NULL */
    struct flw_run_index unmapped; /* address space only (remapping sources) */
    struct flw_meta handle_meta;
    struct flw_segment *segments, *unused_segments;
    struct flw_segment *next_to_release;           /* where a look for idle ones goes on */
    uint64_t mapped_page_end;                      /* no page from here on was ever mapped */
    struct flw_handle **page_handle;               /* remapping: page -> handle; NULL none */
    uint32_t page_units;                           /* units a page */
    struct flw_handle *idle_handles, *oldest_idle; /* created, mapped nowhere; most recent first */

    _Atomic uint64_t reserved_bytes, peak_reserved_bytes;
    uint64_t limit_bytes;
    _Atomic uint64_t idle_bytes;     /* in idle_handles */
    _Atomic uint64_t asleep_bytes;   /* what a wake has to get */
    _Atomic uint64_t exported_bytes; /* handles that are exported */
    atomic_bool
        has_open_copies;     /* the pool's own, on the default stream: nothing is unmapped before
                                        they have been waited for */
    uint64_t live_run_bytes; /* runs lent or cached, slabs included */
    uint64_t slab_bytes;     /* runs serving slabs */
    /* A run for so many or more is all of one handle; UINT32_MAX: none has to. */
    _Atomic uint32_t whole_units;
    uint32_t first_whole_units;    /* at first */
    _Atomic uint32_t given_wholes; /* given back for a growth, since whole_units rose */
    bool streams_may_die;          /* a stored handle is never named to the driver */
    bool absorbs_nobody;           /* one stream only: its runs join nobody's neighbours */
    bool has_odd_segments;         /* one began at no multiple of a unit: all are longer now */
    /* Context order (NULL, 0 elsewhere): its domain; the owner of whole runs that are complete; from
     * how many bytes on a request is a whole run; what was freed since the last epoch was closed. */
    struct flw_domain *context_order, *whole;
    uint64_t whole_bytes;
    uint64_t open_blocks, open_bytes;
    struct flw_domain *mixed; /* NULL: complete memory is nobody's. Else it stays with its stream
                                    while that lives; what blocks of several streams had shared is
                                    this domain's, which lends nothing. Only unmapped does either
                                    come to another stream */

    /* Owns what nobody may get before it is unmapped; lends nothing. What was exported, freed and
     * complete; what is mapped without access, since the driver refused to unmap it. NULL: nothing yet. */
    struct flw_domain *withheld;

    struct flw_refused_growth refused;
    struct flw_heap_counters count;
    _Atomic int lost_error; /* CUresult that lost the device; 0 none */
    const char *_Atomic lost_call;
    _Atomic int last_error; /* last unexpected but survivable CUresult */
    const char *_Atomic last_call;
};

struct flw_heap_config {
    const struct flw_driver *driver;
    CUcontext context;
    /* NULL: remapping where the device can and the driver lets it, else segments */
    const struct flw_source_ops *source;
    int device;
    uint64_t device_bytes;
    uint64_t limit_bytes;
    const int *peers;
    uint32_t peer_count;
    uint32_t
        handle_types;  /* insisted on; 0: what there is, and less of it where the driver refuses */
    bool keeps_owners; /* see heap.mixed */
    bool is_context_order; /* see heap.context_order; the source has segments */
};

/* What the names of the page map cover: the reserved range, or the whole address space. */
uint64_t flw_heap_span_of_addresses(const struct flw_heap *heap);

/* calls. Nothing stays on failure, but what a sentence about it is made of: source and range. */
fallow_status flw_heap_init(struct flw_heap *heap, const struct flw_heap_config *config);
/* calls. Everything back to the driver, which is asked again for what it refuses; the caller has waited for
 * the fences. False: it kept something, so many bytes of memory, or addresses or events alone. */
bool flw_heap_give_back(struct flw_heap *heap, uint64_t *out_kept_bytes);
/* The tables. `is_lost`: without giving back first. */
void flw_heap_finish(struct flw_heap *heap, bool is_lost);

/* ---- objects (lock). NULL: host memory. */
struct flw_batch *flw_heap_new_batch(struct flw_heap *heap);
void flw_heap_drop_batch(struct flw_heap *heap, struct flw_batch *batch);
struct flw_pending *flw_heap_new_pending(struct flw_heap *heap);
void flw_heap_drop_pending(struct flw_heap *heap, struct flw_pending *pending);
struct flw_segment *flw_heap_new_segment(struct flw_heap *heap);
void flw_heap_drop_segment(struct flw_heap *heap, struct flw_segment *segment);
struct flw_handle *flw_heap_new_handle(struct flw_heap *heap);
void flw_heap_drop_handle(struct flw_heap *heap, struct flw_handle *handle);

/* ---- domains (domain.c) */

/* lock. A new domain, or NULL (table full, host memory). */
struct flw_domain *flw_domain_create(struct flw_heap *heap, const struct flw_order_ops *ops,
                                     CUstream stream, CUcontext context, uint64_t id);
/* lock. The known stream domain of a handle (and id, where both are known); NULL. */
struct flw_domain *flw_domain_find(const struct flw_heap *heap, CUstream stream);

/* takes the lock. The next domain in use from *cursor on (begin with 0, nobody is left out); NULL
 * at the end. What it says of itself may have changed when the caller looks. */
struct flw_domain *flw_domain_next(struct flw_heap *heap, uint32_t *cursor);

/* take the lock. Between the two the domain's stream may be named to the driver, for a question that
 * lasts no time: a retire, after which the caller may destroy it, waits. False: it may not be. */
bool flw_domain_begin_naming(struct flw_heap *heap, struct flw_domain *domain, bool foreign_only);
void flw_domain_end_naming(struct flw_heap *heap, struct flw_domain *domain);
/* calls; for who may name the stream. OK: it is not being captured, and its fences are cleared. Else
 * CAPTURING, INVALID_STREAM, DRIVER, DEVICE_LOST. */
fallow_status flw_domain_ask_capture(struct flw_heap *heap, struct flw_domain *domain);

/* lock. The domain has done everything up to ticket: its old memory becomes nobody's. */
void flw_domain_complete(struct flw_heap *heap, struct flw_domain *domain, uint64_t ticket);

/* lock. Does memory of the domain stay its own when it is complete? */
static inline bool flw_domain_keeps(const struct flw_heap *heap, const struct flw_domain *domain)
{
    return FLW_UNLIKELY(heap->mixed != NULL) && domain->is_known;
}

/* lock. Free the place of a stream's domain that is forgotten and owns nothing any more. */
void flw_domain_free_place(struct flw_heap *heap, struct flw_domain *domain);

/* lock. The domain's handle is gone and nothing covers its memory: all of it needs a context sync.
 */
void flw_domain_lose(struct flw_heap *heap, struct flw_domain *domain);

/* The same where it is no mistake: a thread's default stream when the thread ends. */
void flw_domain_lose_quietly(struct flw_heap *heap, struct flw_domain *domain);

/* calls. cuCtxSynchronize: completes everything of this context, the unfenced included, and of the
 * contexts of lost foreign streams. Else CAPTURING, DRIVER: nothing is known complete. */
fallow_status flw_heap_sync_context(struct flw_heap *heap);

/* ---- fences (fence.c; the first four heap.c) */

/* lock. A fence of the context, unused; NULL: host memory. And back. */
struct flw_fence *flw_fence_new(struct flw_heap *heap, CUcontext context, uint64_t context_id);
void flw_fence_drop(struct flw_heap *heap, struct flw_fence *fence);
/* calls, the fence's context current. It has an event; NOT_READY: the driver has no memory for one. */
CUresult flw_fence_make_event(struct flw_heap *heap, struct flw_fence *fence);
/* calls, in a whole section of the pool's own context, which an event takes: so as many more as it has made
 * so far, within reason, lie ready for the next fences. */
void flw_fence_make_spares(struct flw_heap *heap);

/* lock. Can this thread have a fence recorded on the domain? `is_own`: inside a call on its stream. */
bool flw_domain_can_fence(const struct flw_heap *heap, const struct flw_domain *domain,
                          bool is_own);

/* calls. Make an event cover every ticket so far. OK also when another thread is at it or nothing
 * was stamped since the last one. INVALID_STREAM: it is gone, the domain is now lost. WOULD_WAIT: not
 * now, or not by this thread. DRIVER: refused (domain.refuses_fences). */
fallow_status flw_domain_fence(struct flw_heap *heap, struct flw_domain *domain);
/* The same inside a call on the domain's own stream: where streams may die without notice, only then
 * is its handle good for a record. */
fallow_status flw_domain_fence_own(struct flw_heap *heap, struct flw_domain *domain);

/* calls. See that all of its fences that stand are cleared: those that a capture may have taken are void
 * then, and WOULD_WAIT says so. */
fallow_status flw_domain_clear(struct flw_heap *heap, struct flw_domain *domain);

/* calls. Ask the newest fences of every domain; hand what is complete to nobody. True if anything
 * completed. */
bool flw_heap_poll(struct flw_heap *heap);

/* calls. Wait on the host until `ticket` of the domain is complete; fences first if need be. */
fallow_status flw_domain_wait(struct flw_heap *heap, struct flw_domain *domain, uint64_t ticket,
                              uint64_t deadline_ns);

/* calls. Order `taker` after ticket of `donor`, fencing it first if `may_record`. */
fallow_status flw_domain_order_after(struct flw_heap *heap, struct flw_domain *taker,
                                     struct flw_domain *donor, uint64_t ticket, bool may_record);

/* lock. Has the taker been ordered after that ticket of the donor's already? */
bool flw_domain_is_after(const struct flw_domain *taker, const struct flw_domain *donor,
                         uint64_t ticket);

/* ---- pendings (pending.c); lock */

/* A block that no cache takes is free memory of the domain, stamped now. */
void flw_heap_put_block(struct flw_heap *heap, struct flw_domain *domain, struct flw_slot *slot);
void flw_heap_hold_pending(struct flw_heap *heap, struct flw_pending *pending);
/* The same for one that is counted already. */
void flw_heap_queue_pending(struct flw_heap *heap, struct flw_pending *pending);
/* Is there one that only a synchronisation of the context completes? */
bool flw_heap_has_lost_pending(const struct flw_heap *heap);
/* Those that are there when a synchronisation begins are done when it ends. */
void flw_heap_begin_sync_of_pendings(struct flw_heap *heap);
void flw_heap_end_sync_of_pendings(struct flw_heap *heap);

/* Pendings whose stamps are complete go to their owners. True if any did. Cost: one look a domain,
 * and those that may be done. */
bool flw_heap_settle_pendings(struct flw_heap *heap);

static inline bool flw_stamp_is_complete(const struct flw_heap *heap, const struct flw_stamp *stamp)
{
    return stamp->ticket <= heap->domains[stamp->domain]->completed;
}

/* ---- slots (slab.c); lock */

/* Up to want free slots of a class for the domain: its own batches, nobody's, uncarved ones. Their
 * words are FREE. 0: none without a new slab. */
uint32_t flw_heap_take_slots(struct flw_heap *heap, struct flw_domain *domain, unsigned class_index,
                             uint32_t want, struct flw_slot **out);
/* Return slots, stamped now. */
void flw_heap_put_slots(struct flw_heap *heap, struct flw_domain *domain, unsigned class_index,
                        struct flw_slot *const *slots, uint32_t count);
/* Make a slab of the class from a LIVE run; one that is no slab's size, or when the class has a
 * slab to carve already, goes to the domain as free memory. False: host memory; the run is free
 * again. */
bool flw_heap_adopt_slab(struct flw_heap *heap, struct flw_domain *domain, unsigned class_index,
                         struct flw_span *run);
/* A released capture's slab is an ordinary one, whose slots caches may hold. The store is atomic:
 * frees of its other slots read it. */
void flw_heap_open_slab(struct flw_span *slab);
/* A batch that another domain owned, now ordered before the domain's next work. */
void flw_heap_adopt_batch(struct flw_heap *heap, struct flw_domain *domain,
                          struct flw_batch *batch);
/* The next slab of a class is its smallest times 2^step: step 0 at first, to FLW_SLAB_MAX_UNITS with
 * demand. Where that would be few slots and the class holds 256 times as much, to
 * FLW_SLAB_MANY_SLOTS, so that the headers are little beside the slots; at most `most_units` then.
 */
unsigned flw_heap_slab_step(const struct flw_domain *domain, unsigned class_index,
                            uint64_t most_units);
/* A free mapped run for the next slab of a class, LIVE: of the largest step that there is one for.
 * NULL: none. */
struct flw_span *flw_heap_take_slab_run(struct flw_heap *heap, struct flw_domain *domain,
                                        unsigned class_index);
/* place.c: the same for a small pool, of exactly so many units and where slabs are already. A slab stays
 * for as long as one block of it is lent, and with it every page that it touches; there a page is much. */
struct flw_span *flw_heap_take_crowded(struct flw_heap *heap, struct flw_domain *domain,
                                       uint32_t unit_count);
/* Make the uncarved slots of its current slab a batch, so that they can change hands. */
void flw_heap_carve_rest(struct flw_heap *heap, struct flw_domain *domain, unsigned class_index);
/* Turn slabs with no slot out into free runs. True if any was. */
bool flw_heap_reclaim_slabs(struct flw_heap *heap);
/* Make all batches of `from` the property of `to` with to's present ticket. */
void flw_heap_move_slots(struct flw_heap *heap, struct flw_domain *from, struct flw_domain *to);

/* ---- runs (run.c); lock */

/* A free mapped run of the domain or nobody, cut to unit_count, LIVE; from whole_units on all of one
 * handle, of little more. NULL: none, or host memory. */
struct flw_span *flw_heap_take_run(struct flw_heap *heap, struct flw_domain *domain,
                                   uint32_t unit_count, uint32_t align_units);
/* The same, however many: out of as many handles as it comes. */
struct flw_span *flw_heap_take_divided(struct flw_heap *heap, struct flw_domain *domain,
                                       uint32_t unit_count, uint32_t align_units);
/* A run of domain.wholes for so many units; NULL: none. */
struct flw_span *flw_heap_find_whole(const struct flw_heap *heap,
                                     const struct flw_run_index *wholes, uint32_t unit_count,
                                     uint32_t align_units);
/* The same out of this free run, which is large enough. */
struct flw_span *flw_heap_take_from(struct flw_heap *heap, struct flw_span *run,
                                    uint32_t unit_count, uint32_t align_units);
/* A LIVE run becomes free memory of the domain, stamped now, and joins its neighbours. */
void flw_heap_put_run(struct flw_heap *heap, struct flw_domain *domain, struct flw_span *run);
/* The same for a run that a cache kept: stamped with the ticket of its own free. */
void flw_heap_put_run_at(struct flw_heap *heap, struct flw_domain *domain, struct flw_span *run);
/* The same with a given stamp. */
void flw_heap_put_run_stamped(struct flw_heap *heap, uint32_t owner, uint64_t ticket,
                              struct flw_span *run);
/* Cut a run in two at `unit_count` from its begin; the run keeps the front, the rest is returned
 * with the same state, in no index. NULL: host memory, run unchanged. */
struct flw_span *flw_run_split(struct flw_heap *heap, struct flw_span *run, uint32_t unit_count);
/* Join an unindexed run with free neighbours of the same owner and state; returns the run to index.
 */
struct flw_span *flw_run_join(struct flw_heap *heap, struct flw_span *run);
/* A stretch of addresses with one run: its edge, a header that is nobody's memory and stands left of
 * its first run and right of its last, so that every run has neighbours. */
void flw_run_open_stretch(struct flw_span *edge, struct flw_span *run);
/* Its neighbours become each other's. */
static inline void flw_run_unlink(const struct flw_span *run)
{
    run->u.run.left->u.run.right = run->u.run.right;
    run->u.run.right->u.run.left = run->u.run.left;
}
/* Take a free or unmapped run out of whatever index holds it. */
void flw_run_unindex(struct flw_heap *heap, struct flw_span *run);
void flw_run_index_by_state(struct flw_heap *heap, struct flw_span *run);
static inline uint64_t flw_run_bytes(const struct flw_span *run)
{
    return (uint64_t)run->u.run.unit_count * FLW_UNIT_BYTES;
}
/* What a block of the run or slab holds, which may be more than was asked for. */
static inline uint64_t flw_span_usable_bytes(const struct flw_span *span)
{
    return span->kind == FLW_SPAN_SLAB ? flw_class_bytes(span->u.slab.class_index)
                                       : flw_run_bytes(span);
}
static inline uint64_t flw_run_address(const struct flw_heap *heap, const struct flw_span *run)
{
    return heap->map.base + (uint64_t)run->u.run.begin_unit * FLW_UNIT_BYTES;
}
/* Set a LIVE run's slot to its address, free. (A whole run is known to the map for good.) */
void flw_run_arm_slot(struct flw_heap *heap, struct flw_span *run);
/* Context order: a complete whole run of unit_count to most_units, LIVE. NULL: none. */
struct flw_span *flw_heap_take_whole(struct flw_heap *heap, uint32_t unit_count,
                                     uint32_t most_units);
/* A LIVE whole run becomes free memory of the domain in context order, stamped now. */
void flw_heap_put_whole(struct flw_heap *heap, struct flw_domain *domain, struct flw_span *run);
/* What is lent for a request of so many: an eighth more at most. */
static inline uint32_t flw_whole_most_units(uint32_t unit_count)
{
    return unit_count + unit_count / 8;
}
static inline bool flw_run_is_whole(const struct flw_span *run)
{
    return run->u.run.is_whole;
}

/* ---- growth (grow.c); calls */

struct flw_grow_request {
    struct flw_domain *domain; /* the run becomes LIVE for it */
    uint32_t unit_count;
    uint32_t align_units;
    uint64_t budget_bytes; /* reserved may reach this by new handles */
    uint64_t handle_bytes; /* of a new handle, preferably; 0: the granularity */
    uint64_t ahead_bytes;  /* map at least so much, where budget and hole allow */
    uint64_t beyond_bytes; /* and so much more than is missing */
    uint32_t handle_types; /* exportable: one handle of its own */
    bool is_single_handle; /* a handle or segment of its own, all of it */
    bool is_whole;         /* with is_single_handle, or in context order: a whole run */
    bool is_exact;         /* no more than the need */
    bool insists;          /* the driver is asked, whatever it refused before */
};
/* lock; nobody else has the heap yet. What the probe could not take back is the heap's: to be unmapped, lent
 * or given back when the driver lets it. */
void flw_heap_adopt_left(struct flw_heap *heap);
/* Make a mapped run: address space with the fewest missing pages, idle handles, new handles. Where the
 * driver has no memory for more than the need, it is asked for that alone.
 * OUT_OF_MEMORY: budget, limit or the driver; DRIVER, NOT_SUPPORTED: the driver refused; WOULD_WAIT: it
 * refused the like of it and was not asked now (refusal.h). Nothing changed then but that there may be more
 * idle handles. */
fallow_status flw_heap_grow(struct flw_heap *heap, const struct flw_grow_request *request,
                            struct flw_span **out_run);
/* takes the lock. Did the driver refuse a new handle or segment of so many bytes, and give none since; 0: the
 * mapping of one that is at hand. What goes back to it then does not come again. */
bool flw_heap_refuses(struct flw_heap *heap, uint64_t bytes);
/* takes the lock. Things have changed: the next growth asks. */
void flw_heap_forget_refusal(struct flw_heap *heap);
/* Unmap complete, idle memory (oldest first) until want_bytes are idle handles, or back at the driver, where
 * they were whole runs' or exported; returns what was. What the driver refuses to unmap stays mapped, and
 * free. */
uint64_t flw_heap_unmap_idle(struct flw_heap *heap, uint64_t want_bytes);
/* Give idle handles or segments back until reserved <= keep_bytes. Returns what was given back; what the
 * driver refuses stays the pool's. */
uint64_t flw_heap_release_idle(struct flw_heap *heap, uint64_t keep_bytes);
/* A LIVE whole run goes to the driver, now; nobody may use it any more. Where that is refused it is
 * withheld, whose domain there is. False: the device is lost. */
bool flw_heap_evict(struct flw_heap *heap, struct flw_span *run);
/* lock. The handle behind a byte offset, or NULL. */
struct flw_handle *flw_heap_handle_at(const struct flw_heap *heap, uint64_t offset);

/* ---- sharing (shrink.c) */

/* lock. The domain heap.withheld, made if it is not there. NULL: host memory. */
struct flw_domain *flw_heap_withheld(struct flw_heap *heap);
/* lock. From now on importers may have the handle. False: host memory. */
bool flw_heap_mark_exported(struct flw_heap *heap, struct flw_handle *handle);
void flw_heap_unmark_exported(struct flw_heap *heap, struct flw_handle *handle);
/* calls. Handles that were exported and whose blocks are freed and complete go back; what the driver
 * refuses stays for the next time. */
void flw_heap_release_exported(struct flw_heap *heap);

/* ---- sleep (sleep.c); calls. Nobody else gets, maps or gives back memory meanwhile; blocks may be
 * freed. */

/* Unmap and give back everything but what was exported; the addresses stay set aside. DRIVER: as
 * before, contents too. ASLEEP: nor was that to be had; asleep with all of its memory, contents too. */
fallow_status flw_heap_sleep(struct flw_heap *heap);
/* In a driver section. Unmap all handles, those that were exported or not; addresses and handles stay. What
 * is refused stays mapped and ends it, or (`goes_on`) does not. The last refusal. */
CUresult flw_heap_unmap_all(struct flw_heap *heap, bool with_exported, bool goes_on);
/* Create and map it all again. OUT_OF_MEMORY, DRIVER: asleep as before. OK: flw_heap_end_wake is to
 * follow. */
fallow_status flw_heap_wake(struct flw_heap *heap);
/* It is awake; or, contents could not be put back, asleep again. */
fallow_status flw_heap_end_wake(struct flw_heap *heap, bool is_awake);
/* calls. Copies of the pool's own (has_open_copies) are over. False: the driver refuses to wait for them. */
bool flw_heap_end_copies(struct flw_heap *heap);
/* calls. Run `set` over every mapped handle, in order; where one fails, `undo` over those before it, as
 * far as it is not refused. */
typedef CUresult (*flw_heap_stretch_function)(struct flw_heap *heap, uint64_t address,
                                              uint64_t bytes, const void *context);
CUresult flw_heap_each_stretch(struct flw_heap *heap, flw_heap_stretch_function set,
                               flw_heap_stretch_function undo, const void *context);

/* ---- driver calls */

/* Make the pool's context current and this thread's capture mode relaxed (driver/section.h), so that what
 * follows neither fails under nor kills somebody's capture. False: the device is lost, or the driver refuses
 * now; flw_heap_not_entered says which. */
bool flw_heap_enter_driver(struct flw_heap *heap, struct flw_driver_section *section);
void flw_heap_leave_driver(struct flw_heap *heap, struct flw_driver_section *section);
/* Around a call that may enter more than once: the first pays for all. No driver call by itself, and
 * for a lost device none at all; ended by flw_heap_leave_driver. */
void flw_heap_hold_driver(struct flw_heap *heap, struct flw_driver_section *section);
/* Driver calls. The same for calls that need less; none: no driver call. Left by flw_heap_leave_driver. */
CUresult flw_heap_enter_parts(struct flw_heap *heap, struct flw_driver_section *section,
                              CUcontext context, unsigned parts);
/* Driver calls. For a look at fences, and for handles and mappings: the mode, no context. False: the device is
 * lost, or the driver refuses. */
bool flw_heap_enter_mode(struct flw_heap *heap, struct flw_driver_section *section);
/* Driver calls. The same of any context, left by flw_heap_leave_driver too. What another one refuses loses
 * nothing. */
CUresult flw_heap_enter_context(struct flw_heap *heap, struct flw_driver_section *section,
                                CUcontext context);

/* Count a driver call about to be made. */
static inline void flw_heap_count_call(struct flw_heap *heap)
{
    FLW_ASSERT(flw_lock_none_held());
    atomic_fetch_add_explicit(&heap->count.driver_calls, 1, memory_order_relaxed);
}
/* An answer that was not expected and changed nothing: remembered for the caller. */
static inline void flw_heap_note_error(struct flw_heap *heap, CUresult error, const char *call)
{
    atomic_store(&heap->last_error, (int)error);
    atomic_store(&heap->last_call, call);
}
/* What an answer comes to (driver/answer.h): OK; a refusal, which is remembered and by which nothing is
 * lost: DRIVER, NOT_SUPPORTED, CAPTURING; DEVICE_LOST, where it says so. */
fallow_status flw_heap_refuse(struct flw_heap *heap, CUresult result, const char *call);
/* The same of a call that asks for memory: OUT_OF_MEMORY is its own answer, and nothing to remember. */
fallow_status flw_heap_answer(struct flw_heap *heap, CUresult result, const char *call);
/* The context is gone, and all that was in it. */
void flw_heap_lose_device(struct flw_heap *heap, CUresult error, const char *call);
static inline bool flw_heap_is_lost(const struct flw_heap *heap)
{
    return atomic_load_explicit(&heap->lost_error, memory_order_acquire) != 0;
}

/* Why a section could not be entered. */
static inline fallow_status flw_heap_not_entered(const struct flw_heap *heap)
{
    return flw_heap_is_lost(heap) ? FALLOW_DEVICE_LOST : FALLOW_DRIVER;
}

/* Stops nobody: the caller holds the lock and knows that no growth is under way. NULL: valid, else
 * the sentence that is broken. */
const char *flw_heap_broken_invariant(const struct flw_heap *heap);

#endif
