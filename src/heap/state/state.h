/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the state of a heap, the free memory of one pool (batches of slots, slabs, runs, fences,
 * physical handles), the small objects, and the frame around driver calls.
 * Does not: cache for threads (tcache.h), climb the ladder or validate callers' arguments (pool).
 *
 * One lock. The lock is rarely contended: thread caches take and put back whole batches; and with
 * one lock neighbours of different owners can join. No driver call is made under the lock: a
 * function either requires the lock ("heap lock held") or makes driver calls and takes the lock
 * itself.
 *
 * INVARIANTS (flw_heap_broken_invariant recomputes them)
 *   1. Runs partition each range of addresses or segment: starting from the edge, each run leads to the right
 *      neighbour, which begins where the run ends, and the last run leads back to the edge.
 *   2. No two neighbours are free with the same owner, nor both unmapped.
 *   3. A page (granularity) has a handle <=> the page's run is neither unmapped nor reserved. While no growth is under
 *      way, the bytes of created handles add up to reserved_bytes, and those of handles that a wake creates to
 *      asleep_bytes.
 *   4. reserved_bytes <= limit_bytes, always: reserved_bytes is raised before the driver call. After the limit was
 *      lowered, reserved_bytes may equal the amount held then, and does not rise.
 *   5. Of every slab: slots in counted batches + uncarved = free_count <= slot_count, and the points are the join of
 *      the batches' points. */
#ifndef FLW_HEAP_STATE_STATE_H
#define FLW_HEAP_STATE_STATE_H

#include <stdatomic.h>

#include "base/clock.h"
#include "base/lock.h"
#include "driver/answer.h"
#include "driver/section.h"
#include "heap/state/order.h"
#include "heap/state/places.h"
#include "heap/state/refusal.h"
#include "heap/state/stream_ids.h"
#include "memory/page_map.h"

/* Physical memory. Synchronization: the heap lock. */
struct flw_handle {
    struct flw_handle *next, *prev; /* list of idle handles, or of unused ones */
    uint64_t id;                    /* CUmemGenericAllocationHandle */
    uint32_t begin_unit;            /* where it is mapped */
    uint32_t unit_count;
    uint32_t types; /* the kinds: FALLOW_HANDLE_ bits, FLW_HANDLE_RDMA */
    bool is_mapped;
    bool is_asleep;   /* the place is reserved without contents; id 0: it is not created either */
    bool is_fresh;    /* created by a wake under way, without contents */
    bool is_exported; /* importers may have the handle, which serves this one block and is then
                          released */
};

/* Free memory with points of several domains, or a block held back for announced uses.
 * INVARIANT  while waiting, a deferred free is in the queue of the domain of its `awaits`, by ascending number (without
 * order in FLW_UNOWNED's). A run that it holds is DEFERRED and leads back to it; no other run is DEFERRED. */
struct flw_deferred {
    struct flw_deferred *next;
    struct flw_span *run;    /* or NULL */
    struct flw_slot *slot;   /* otherwise a slot */
    struct flw_point awaits; /* the queue that it is in, and the number to wait for */
    uint32_t domain;         /* next owner; FLW_UNOWNED: no domain */
    uint64_t own_seq;        /* of that domain when the block was freed */
    uint32_t point_count;
    uint32_t sweep_next;     /* next domain whose point to read, if there were too many to
                                 store; 0: none */
    bool needs_context_sync; /* no fence can cover it: a stream was lost */
    bool is_in_sync;         /* scratch of a context synchronisation under way */
    struct flw_point points[FLW_POINTS_MAX + 4];
    uint64_t bytes;
};

/* A driver allocation of a source that does not remap. Synchronization: the heap lock. */
struct flw_segment {
    struct flw_segment *next, **link;
    struct flw_span *edge;
    uint64_t address;
    uint64_t bytes; /* counted in reserved_bytes: whole pages of the driver */
    uint32_t begin_unit, unit_count;
};

/* Context order: size from which every request is a driver allocation of its own. */
#define FLW_DEDICATED_BYTES FLW_MIB

#define FLW_RUN_SETS_LOG2 6
#define FLW_RUN_SETS      (1u << FLW_RUN_SETS_LOG2)
#define FLW_RUN_SET_SLOTS 7

/* Runs of one exact size, in one line. `key` is the size in units in the upper half and the count
 * in the lower: a key minus that of an empty set of a size is the place of the next run, or out of
 * range. */
struct flw_run_set {
    uint64_t key;
    struct flw_span *runs[FLW_RUN_SET_SLOTS];
};

static inline uint32_t flw_run_set_count(const struct flw_run_set *set)
{
    return (uint32_t)set->key;
}

/* Runs between one thread's cache and another's, of one domain, as sets; LIVE to the heap.
 * INVARIANT  at most the content of one cache; empty, or the domain has a cache. */
struct flw_run_depot {
    struct flw_domain *domain; /* NULL: empty */
    uint64_t occupied;         /* bit i clear: sets[i] is empty */
    struct flw_run_set sets[FLW_RUN_SETS];
};

struct flw_heap_counters {
    _Atomic uint64_t driver_calls; /* without queries */
    _Atomic uint64_t questions, events, queries, steals, waits, remaps, grows, trims;
    _Atomic uint64_t lost_streams, stream_waits;
    /* Counts events after which an arena must check the order of the leases again: streams retired
     * or lost, sleeps, captures released, announcements of captures that may begin unseen. */
    _Atomic uint64_t order_changes;
};

/* Small objects, reused within their kind (state.c). */
struct flw_objects {
    struct flw_meta meta; /* batches, fences, deferred frees, handles, segments, domains */
    struct flw_batch *unused_batches;
    struct flw_deferred *unused_deferred;
    struct flw_handle *unused_handles;
    struct flw_segment *unused_segments;
    struct flw_fence *unused_fences;
    struct flw_fence *newest_fence; /* chain of all fences */
    uint32_t own_events;            /* approximate number created for fences of its own context */
};

/* A set of domains, by place: a bit per place, then a bit per word of those bits, and so on.
 * INVARIANT  a bit of a later level is set <=> the word is not 0. */
#define FLW_DOMAIN_SET_LEVELS 3
#define FLW_DOMAIN_WORDS      (FLW_DOMAIN_COUNT / 64)
struct flw_domain_set {
    uint64_t words[FLW_DOMAIN_WORDS + FLW_DOMAIN_WORDS / 64 + 1];
};
_Static_assert(FLW_DOMAIN_LOG2 == 6 * FLW_DOMAIN_SET_LEVELS, "the top is one word");

/* State of slab.c for all slabs. */
struct flw_slabs {
    struct flw_domain_set holders; /* all other domains have no batch */
    /* The slabs of their slots have not counted them yet. */
    struct flw_batch *oldest_uncounted, *newest_uncounted;
    struct flw_span *empty[FLW_CLASS_COUNT]; /* every slot is free */
    struct flw_class_set with_empty;         /* classes with a list that is not empty */
    uint64_t bytes;                          /* runs serving slabs */
    /* The byte offset that a hit adds to the cache for a slab: per class, and for slabs that no
     * cache takes (tcache.h). */
    const uint32_t *bin_offsets;
};

/* Addresses of a remapping source, reserved until the pool ends.
 * INVARIANT  a range begins and ends on a page and on a cell. Two ranges may be neighbours, but no run, handle or
 * driver call crosses from one to the other. */
struct flw_range {
    struct flw_range *next;                  /* by address */
    uint64_t reservation, reservation_bytes; /* reserved from the driver; 0: none */
    uint64_t begin_unit, unit_count;         /* the part of the reservation in use */
    struct flw_span *edge;                   /* of the stretch; NULL: no runs yet */
    uint64_t mapped_page_end;                /* no page of the range from here on was ever mapped */
};

/* Usually one range, for which the page map is created. If the driver reserves less than
 * requested, the map covers all addresses, and further ranges are reserved when no place is left
 * (physical/range.c). */
struct flw_ranges {
    struct flw_range first;            /* reserved before there are tables */
    struct flw_range *lowest;          /* of all ranges, ascending; NULL: none */
    uint64_t window_bytes;             /* of addresses that the page map covers */
    struct flw_run_index unmapped;     /* runs of addresses without memory, of all ranges */
    struct flw_refused_growth refused; /* refusals of further ranges */
    _Atomic int refused_answer;        /* CUresult of the last refusal; 0: none */
};

/* Driver allocations of a source that does not remap (grow.c, shrink.c). */
struct flw_segments {
    struct flw_segment *newest;
    struct flw_segment *next_to_release; /* where the search for idle ones continues */
    bool has_odd; /* one began at no multiple of a unit: all are one unit longer now */
};

/* The fences of all domains, in the order of publication: memory that was freed first is queried first.
 * INVARIANT  a published fence that is neither complete nor void is in here and in the domain's list, once each; no other
 * is; those of one domain ascend in both. `next` is one of them. */
struct flw_standing {
    struct flw_fence *oldest, *newest;
    struct flw_fence *next; /* queried alternately with the oldest; NULL: none */
    bool is_turn_of_next;
    uint64_t look; /* number of the present poll; within one, no domain is queried twice */
};

/* Streams with memory that no fence covers yet, the longest-waiting first; the memory is in the heap, or possibly in caches.
 * INVARIANT  in here, once, are the domains with is_owing and no others; each is a tracked stream, so neither retired nor
 * lost, and the place is in use. */
struct flw_owing {
    struct flw_domain *first, *last;
};

struct flw_heap {
    struct flw_lock lock;
    const struct flw_driver *driver;
    CUcontext context;
    uint64_t context_id; /* segments: cuCtxGetId of their context; 0: unknown, or the preload
                        library reports the end of the context */
    struct flw_source source;
    struct flw_page_map map;
    uint64_t base_unit;    /* map.base in units */
    unsigned table_shrink; /* number of halvings of the tables (life.h) */
    struct flw_objects objects;

    /* Order. */
    struct flw_domain **domains; /* FLW_DOMAIN_COUNT places. [0]: FLW_UNOWNED */
    struct flw_places places;
    uint32_t domain_end;      /* one past the highest ever used */
    atomic_uint stream_count; /* domains of tracked streams */
    bool streams_may_die;     /* never pass a stored handle to the driver */
    bool absorbs_unowned;     /* only one stream: the runs join unowned neighbours */
    struct flw_stream_ids stream_ids;
    struct flw_standing standing;
    struct flw_owing owing;
    /* Streams lost since the last flw_pool_cover_lost, and the approximate bytes that they freed
     * without a fence. */
    _Atomic uint64_t lost_bytes, lost_count;
    uint64_t last_cover;      /* number of events of the context recorded for lost streams so far */
    uint32_t recording_count; /* INVARIANT  number of domains with is_recording */
    struct flw_domain_set
        open_users; /* memory that waits for them needs fences that were not recorded yet */
    uint64_t deferred_bytes, deferred_count;
    _Atomic uint64_t unfenced_use_bytes, unfenced_use_count; /* announced uses without a fence
                                                                 yet */
    struct flw_domain
        *multi_stream; /* NULL: complete memory is unowned. Otherwise it stays with the
                                  stream while the stream lives, and memory shared by blocks of
                                  several streams is this domain's, which serves nothing. Only
                                  unmapped does either reach another stream */
    /* Owns memory that must be unmapped before any domain may get it, and serves nothing:
     * exported, freed and complete memory, and memory mapped without access because the driver
     * refused to unmap it. NULL: nothing yet. */
    struct flw_domain *unmap_only;
    /* Context order (NULL, 0 elsewhere): the domain; the owner of complete dedicated runs; size
     * from which a request is a dedicated run; bytes freed since the last epoch was closed. */
    struct flw_domain *context_order, *dedicated;
    uint64_t dedicated_bytes;
    uint64_t open_blocks, open_bytes;

    /* Free memory. */
    struct flw_slabs slabs;
    struct flw_run_depot depot;
    uint64_t live_run_bytes; /* runs allocated or cached, slabs included */
    /* Units from which a run fills a handle; UINT32_MAX: none need to. */
    _Atomic uint32_t dedicated_units;
    uint32_t first_dedicated_units;      /* the first value */
    _Atomic uint32_t released_dedicated; /* handles released for a growth since dedicated_units
                                             rose */

    /* Physical memory. */
    struct flw_ranges ranges;
    struct flw_segments segments;
    struct flw_meta handle_meta;
    struct flw_handle **page_handle;               /* remapping: page -> handle; NULL none */
    uint32_t page_units;                           /* of a page */
    struct flw_handle *idle_handles, *oldest_idle; /* created, not mapped; most recent first */
    _Atomic uint64_t reserved_bytes, peak_reserved_bytes;
    _Atomic uint64_t limit_bytes;    /* changed under the lock */
    uint64_t lowered_from_bytes;     /* reserved and asleep when the limit was set below that;
                                     otherwise 0 */
    _Atomic uint64_t idle_bytes;     /* in idle_handles */
    _Atomic uint64_t asleep_bytes;   /* bytes that a wake must create */
    _Atomic uint64_t exported_bytes; /* of exported handles */
    /* The pool's own copies on the default stream: nothing is unmapped before they are complete. */
    atomic_bool has_open_copies;
    struct flw_refused_growth refused;

    struct flw_heap_counters count;
    _Atomic int lost_error; /* CUresult that lost the device; 0 none */
    const char *_Atomic lost_call;
    _Atomic int last_error; /* last unexpected but survivable CUresult */
    const char *_Atomic last_call;
};

/* Return the most that may be reserved now: the limit, or the amount held when it was lowered.
 * Heap lock held. */
static inline uint64_t flw_heap_most_bytes(const struct flw_heap *heap)
{
    return flw_max(heap->limit_bytes, heap->lowered_from_bytes);
}

/* ---- objects, reused within their kind; heap lock held. NULL: no host memory. */

struct flw_batch *flw_heap_new_batch(struct flw_heap *heap);
void flw_heap_drop_batch(struct flw_heap *heap, struct flw_batch *batch);
struct flw_deferred *flw_heap_new_deferred(struct flw_heap *heap);
void flw_heap_drop_deferred(struct flw_heap *heap, struct flw_deferred *deferred);
struct flw_segment *flw_heap_new_segment(struct flw_heap *heap);
void flw_heap_drop_segment(struct flw_heap *heap, struct flw_segment *segment);
struct flw_handle *flw_heap_new_handle(struct flw_heap *heap);
void flw_heap_drop_handle(struct flw_heap *heap, struct flw_handle *handle);

/* Return an unused fence of the context, NULL: no host memory; or free one. Heap lock held. */
struct flw_fence *flw_fence_new(struct flw_heap *heap, CUcontext context, uint64_t context_id);
void flw_fence_drop(struct flw_heap *heap, struct flw_fence *fence);
/* Give the fence an event; the context is current. NOT_READY: the driver has no memory for one.
 * Makes driver calls. */
CUresult flw_fence_make_event(struct flw_heap *heap, struct flw_fence *fence);
/* Create spare events for the next fences, about as many as were created so far. Creating an event
 * needs a whole section of the pool's own context; the next fences then need none. Makes driver
 * calls in such a section. */
void flw_fence_make_spares(struct flw_heap *heap);

/* Publish a fence: the newest of the domain and of all. Heap lock held. */
static inline void flw_fence_link(struct flw_heap *heap, struct flw_domain *domain,
                                  struct flw_fence *fence)
{
    struct flw_fence *before = heap->standing.newest;
    fence->domain = domain;
    fence->next = NULL;
    fence->previous = domain->newest;
    *(domain->newest != NULL ? &domain->newest->next : &domain->oldest) = fence;
    domain->newest = fence;
    fence->before = before;
    fence->behind = NULL;
    *(before != NULL ? &before->behind : &heap->standing.oldest) = fence;
    heap->standing.newest = fence;
}

/* Remove a complete or void fence. Heap lock held. */
static inline void flw_fence_unlink(struct flw_heap *heap, struct flw_domain *domain,
                                    struct flw_fence *fence)
{
    struct flw_fence *next = fence->next, *previous = fence->previous;
    *(previous != NULL ? &previous->next : &domain->oldest) = next;
    *(next != NULL ? &next->previous : &domain->newest) = previous;
    *(fence->before != NULL ? &fence->before->behind : &heap->standing.oldest) = fence->behind;
    *(fence->behind != NULL ? &fence->behind->before : &heap->standing.newest) = fence->before;
    if (heap->standing.next == fence) {
        heap->standing.next = fence->behind;
    }
    fence->is_unlinked = true;
}

/* Return the word of a bit of a level. */
static inline uint32_t flw_domain_set_word(unsigned level, uint32_t bit)
{
    static const uint32_t begin[FLW_DOMAIN_SET_LEVELS] = {0, FLW_DOMAIN_WORDS,
                                                          FLW_DOMAIN_WORDS + FLW_DOMAIN_WORDS / 64};
    return begin[level] + bit / 64;
}

/* Heap lock held. */
static inline void flw_domain_set_add(struct flw_domain_set *set, const struct flw_domain *domain)
{
    uint32_t bit = domain->index;
    bool has = (set->words[bit / 64] >> (bit % 64) & 1) != 0;
    for (unsigned level = 0; !has && level < FLW_DOMAIN_SET_LEVELS; level++, bit /= 64) {
        set->words[flw_domain_set_word(level, bit)] |= 1ull << (bit % 64);
    }
}

/* True if the domain was in the set. Heap lock held. */
static inline bool flw_domain_set_remove(struct flw_domain_set *set,
                                         const struct flw_domain *domain)
{
    uint32_t bit = domain->index;
    bool had = (set->words[bit / 64] >> (bit % 64) & 1) != 0, is_empty = had;
    for (unsigned level = 0; is_empty && level < FLW_DOMAIN_SET_LEVELS; level++, bit /= 64) {
        uint64_t *word = &set->words[flw_domain_set_word(level, bit)];
        *word &= ~(1ull << (bit % 64));
        is_empty = *word == 0;
    }
    return had;
}

/* Return the first at or after a place; FLW_DOMAIN_COUNT: none. Heap lock held. */
static inline uint32_t flw_domain_set_next(const struct flw_domain_set *set, uint32_t from)
{
    uint32_t bit = from, end = FLW_DOMAIN_COUNT;
    for (unsigned level = 0; bit < end; level++, bit = bit / 64 + 1, end /= 64) {
        uint64_t bits = set->words[flw_domain_set_word(level, bit)] & (~0ull << (bit % 64));
        if (bits != 0) {
            bit = bit / 64 * 64 + flw_lowest_bit(bits);
            while (level-- > 0) {
                bit = bit * 64 + flw_lowest_bit(set->words[flw_domain_set_word(level, bit * 64)]);
            }
            return bit;
        }
    }
    return FLW_DOMAIN_COUNT;
}

/* Heap lock held. */
static inline void flw_heap_push_batch(struct flw_heap *heap, struct flw_domain *domain,
                                       struct flw_batch *batch)
{
    unsigned class_index = batch->class_index;
    flw_domain_set_add(&heap->slabs.holders, domain);
    flw_class_set_add(&domain->with_batches, class_index);
    flw_batch_push(&domain->batches[class_index], batch);
}

/* Append to the streams that owe a fence. Heap lock held. */
static inline void flw_owing_add(struct flw_heap *heap, struct flw_domain *domain)
{
    struct flw_domain *last = heap->owing.last;
    domain->is_owing = true;
    domain->owing_before = last;
    domain->owing_behind = NULL;
    *(last != NULL ? &last->owing_behind : &heap->owing.first) = domain;
    heap->owing.last = domain;
}

/* Remove the debt: a fence is about to cover everything, or none ever will. Heap lock held. */
static inline void flw_domain_owe_nothing(struct flw_heap *heap, struct flw_domain *domain)
{
    struct flw_domain *before = domain->owing_before, *behind = domain->owing_behind;
    if (!domain->is_owing) {
        return;
    }
    domain->is_owing = false;
    *(before != NULL ? &before->owing_behind : &heap->owing.first) = behind;
    *(behind != NULL ? &behind->owing_before : &heap->owing.last) = before;
}

/* Record that the domain needs a later fence, unless it is lost. Heap lock held. */
static inline void flw_domain_owe(struct flw_heap *heap, struct flw_domain *domain)
{
    if (FLW_UNLIKELY(!domain->is_owing) && domain->ops->is_stream && !domain->is_lost &&
        !FLW_MUTANT(OWING_FORGOTTEN)) {
        flw_owing_add(heap, domain);
    }
}

/* Record that memory got the domain's present number: if that is open, the next fence is needed.
 * Heap lock held. */
static inline void flw_domain_want_fence(struct flw_heap *heap, struct flw_domain *domain,
                                         uint64_t bytes)
{
    if (!domain->is_retired || FLW_MUTANT(RETIRED_IS_RECORDED_ON)) {
        domain->unfenced_bytes += bytes;
        flw_domain_owe(heap, domain);
    }
}

/* ---- predicates of the fields */

/* True if complete memory of the domain stays its own. Heap lock held. */
static inline bool flw_domain_keeps(const struct flw_heap *heap, const struct flw_domain *domain)
{
    return FLW_UNLIKELY(heap->multi_stream != NULL) && domain->is_known;
}

static inline bool flw_point_is_complete(const struct flw_heap *heap, const struct flw_point *point)
{
    return point->seq <= heap->domains[point->domain]->completed;
}

/* ---- driver calls */

/* Make the pool's context current and this thread's capture mode relaxed (driver/section.h), so
 * that the following calls neither fail during another thread's capture nor end it. False: the
 * device is lost, or the driver refuses now; flw_heap_not_entered returns which. */
bool flw_heap_enter_driver(struct flw_heap *heap, struct flw_driver_section *section);
void flw_heap_leave_driver(struct flw_heap *heap, struct flw_driver_section *section);
/* Hold a section around calls that may enter several times, so that the first entry serves all.
 * Makes no driver call itself, and for a lost device none at all; ended by flw_heap_leave_driver. */
void flw_heap_hold_driver(struct flw_heap *heap, struct flw_driver_section *section);
/* The same for calls that need fewer parts; none: no driver call. Left by flw_heap_leave_driver.
 * Makes driver calls. */
CUresult flw_heap_enter_parts(struct flw_heap *heap, struct flw_driver_section *section,
                              CUcontext context, unsigned parts);
/* After `result` of a call that by cuda.h needs no context: if another context is current, or
 * none, make the pool's current for another try. Some drivers require one, or return the other
 * context's error. True: repeat the call, then call flw_heap_leave_driver. Makes driver calls. */
bool flw_heap_enter_instead(struct flw_heap *heap, struct flw_driver_section *section,
                            CUcontext context, CUresult result);
/* Enter with the mode and no context, to poll fences, and for handles and mappings. False: the
 * device is lost, or the driver refuses. Makes driver calls. */
bool flw_heap_enter_mode(struct flw_heap *heap, struct flw_driver_section *section);
/* The same with any context; left by flw_heap_leave_driver too. A refusal by another context loses
 * nothing. Makes driver calls. */
CUresult flw_heap_enter_context(struct flw_heap *heap, struct flw_driver_section *section,
                                CUcontext context);

/* Returns false if the context, and all segments with it, was destroyed or reset. The device is
 * lost then, even if another context has the same handle. Makes driver calls. */
bool flw_heap_has_context(struct flw_heap *heap);

/* Count a driver call about to be made. */
static inline void flw_heap_count_call(struct flw_heap *heap)
{
    FLW_ASSERT(flw_lock_none_held());
    atomic_fetch_add_explicit(&heap->count.driver_calls, 1, memory_order_relaxed);
}
/* The same for a query: whether a stream is being captured, or how much memory the device has
 * left. */
static inline void flw_heap_count_question(struct flw_heap *heap)
{
    FLW_ASSERT(flw_lock_none_held());
    atomic_fetch_add_explicit(&heap->count.questions, 1, memory_order_relaxed);
}
/* Remember an unexpected result that changed nothing, for the caller. */
static inline void flw_heap_note_error(struct flw_heap *heap, CUresult error, const char *call)
{
    atomic_store(&heap->last_error, (int)error);
    atomic_store(&heap->last_call, call);
}
/* Return the status of a result (driver/answer.h): OK; DRIVER, NOT_SUPPORTED or CAPTURING for a
 * refusal, which is remembered and loses nothing; DEVICE_LOST. */
fallow_status flw_heap_refuse(struct flw_heap *heap, CUresult result, const char *call);
/* The same for a call that requests memory: OUT_OF_MEMORY has its own status and is not
 * remembered. */
fallow_status flw_heap_answer(struct flw_heap *heap, CUresult result, const char *call);
/* Record that the context is gone with all the contents. */
void flw_heap_lose_device(struct flw_heap *heap, CUresult error, const char *call);
static inline bool flw_heap_is_lost(const struct flw_heap *heap)
{
    return atomic_load_explicit(&heap->lost_error, memory_order_acquire) != 0;
}

/* Return why a section could not be entered. */
static inline fallow_status flw_heap_not_entered(const struct flw_heap *heap)
{
    return flw_heap_is_lost(heap) ? FALLOW_DEVICE_LOST : FALLOW_DRIVER;
}

#endif
