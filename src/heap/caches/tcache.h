/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the thread cache: free slots and runs that one thread holds for one order domain of one
 * pool, and emptying it into the heap. Does not: fill itself, or decide when (pool/calls,
 * pool/streams).
 *
 * A hit compares two words of the cache with the call's arguments. Every exception *poisons the
 * key*, so that it costs a hit nothing: a drainer, a capture on the stream, checks that need every
 * call, an ending thread or pool. The slow path then determines which it is.
 *
 * INVARIANTS
 *   1. bin: count <= capacity <= slots there is room for. pushes = count + pops - moved_in +
 *      moved_out.
 *   2. Every slot of a bin has state FREE and is counted as out of the slab.
 *   3. run_bytes is the sum over the run sets; the runs are LIVE to the heap. run_out_bytes -
 *      run_bytes are allocated.
 *   4. key is the pool's handle, or the cache's own address if it has a ring, or one of the two
 *      addresses after it in context order, only while is_open and not is_seized. Before is_open became
 *      false, the key was poisoned and the owner was waited for.
 *   5. Context order: bins and run sets hold unowned memory for allocations. Freed blocks are in
 *      the open frees, which serve no allocation: free slots, counted as out of their slabs, and
 *      the slots of runs that are LIVE to the heap. The heap gives both the context's sequence number when the cache returns them.
 *
 * Synchronization: hot fields and bins by the owner between enter and leave while the key matches;
 * otherwise with `lock`, by the owner or by the thread that seized the cache
 * (pool/streams/seize.h). */
#ifndef FLW_HEAP_CACHES_TCACHE_H
#define FLW_HEAP_CACHES_TCACHE_H

#include "base/asym.h"
#include "base/mutant.h"
#include "heap/state/state.h"

/* 256 B steps: steps of 4 KiB would have too many classes in one entry. */
#define FLW_BIN_TABLE_LOG2  8
#define FLW_BIN_TABLE_COUNT (FLW_CLASS_MAX_BYTES >> FLW_BIN_TABLE_LOG2)

struct flw_bin {
    uint64_t count, capacity;
    uint64_t pops, moved_in, moved_out;
    uint32_t seen_pushes; /* at the last refill: unchanged means that the bin only allocates */
    uint32_t seen_pops;   /* when last full: unchanged means that the bin only receives frees */
    struct flw_slot *slots[];
};

/* Bytes that one thread has allocated and freed of one pool, over all the streams, so that the
 * peak is exact with one thread. Lives as long as the pool. Synchronization: written by the
 * thread; read by any. A reset of the pool's peaks lowers the peak from any thread. */
struct flw_account {
    int64_t requested_bytes;      /* allocated minus freed since the last flush */
    int64_t peak_requested_bytes; /* the maximum since then, or since a reset */
    uintptr_t thread;
    struct flw_account *next;
};

/* Fields that a hit reads and writes. */
struct flw_tcache_hot {
    struct flw_asym asym;
    const void *key;
    CUstream stream;
    uint64_t mask;
    const uint32_t *units;
    unsigned char *spans;
    unsigned char *slots;
    uint64_t slots_mask;
    const uint16_t *bin_of_size; /* (size - 1) >> 8 -> byte offset of the class's bin */
    struct flw_account *account;
    uint64_t stream_number; /* of the domain, as in `allocation` */
};

struct flw_pool;
struct flw_ring;

/* Limit of open frees before an epoch is closed, for one thread or all: 64 MiB as requested (less
 * in a small pool, pool/streams/epoch.h), or this many blocks. */
#define FLW_OPEN_FREE_SLOTS 256
#define FLW_OPEN_FREE_BYTES ((int64_t)(64 * FLW_MIB))

struct flw_tcache {
    struct flw_tcache_hot hot;
    struct flw_lock lock;
    struct flw_pool *pool; /* NULL: the pool is gone; the thread will drop the cache */
    const void *handle;    /* the pool's, as callers pass it */
    struct flw_domain *domain;
    struct flw_tcache *next, *prev;           /* in the pool's list */
    struct flw_tcache *same_next, *same_prev; /* in the list of the domain */
    uintptr_t thread;
    bool is_open;   /* hits are allowed while no thread has seized it */
    bool is_seized; /* one thread has seized it (pool/streams/seize.h) */
    struct flw_tcache *next_seized;
    struct flw_ring *ring;         /* the thread's, in the pool's recording; NULL: not recorded */
    uint32_t recorded_stream;      /* the number in the recording */
    bool is_detached;              /* pool is NULL and no list has the cache: the thread may
                                       drop it at any time */
    uint64_t misses;               /* allocations that missed */
    uint64_t run_pops, run_pushes; /* allocated and freed through this cache */
    uint64_t run_out_bytes;        /* taken from the heap minus returned; includes the runs in
                                       the cache */
    uint64_t run_bytes;
    /* Most bytes of runs that it takes in. The heap does not see hits, so this is 0 while the
     * stream owes no fence (heap.owing): the next free of a run then misses, and the stream owes a
     * fence from then on. */
    uint64_t run_limit_bytes;
    /* bytes of run frees until the next check for a worthwhile fence, and their step
     * (pool/calls/free.c) */
    int64_t fence_left_bytes, fence_step_bytes;
    uint64_t fence_grow_count, fence_credits;
    /* Bins of all other classes have no room and were never used (context order:
     * except by frees). */
    struct flw_class_set used_bins;
    uint64_t bin_bytes;       /* sum of capacity * size: the budget granted to bins */
    uint64_t occupied;        /* bit i clear: run_sets[i] is empty */
    uint64_t context_id;      /* context order: the pool's; 0 elsewhere */
    uint64_t dedicated_bytes; /* context order: heap.dedicated_bytes */
    uint64_t open_free_count;
    int64_t open_free_left_bytes; /* requested bytes left until the open frees are returned to
                                      the heap */
    _Alignas(64) struct flw_run_set run_sets[FLW_RUN_SETS];
    struct flw_slot *open_frees[FLW_OPEN_FREE_SLOTS];
    uint16_t open_free_bins[FLW_OPEN_FREE_SLOTS]; /* offsets of their bins, which show whether all
                                                 are of one class */
    /* the bins follow, each of its own size; see flw_bin_offset */
};

/* Return the byte offset of a class's bin in a cache; FLW_CLASS_COUNT has the bin that never has
 * room. */
uint32_t flw_bin_offset(unsigned class_index);
uint32_t flw_bin_most(unsigned class_index);
const uint16_t *flw_bin_table(void);
/* Return all offsets, that of FLW_CLASS_COUNT last. */
const uint32_t *flw_bin_offsets(void);

static inline struct flw_bin *flw_tcache_bin(struct flw_tcache *cache, unsigned class_index)
{
    return (struct flw_bin *)(void *)((unsigned char *)cache + flw_bin_offset(class_index));
}

/* Mark a class's bin as used, before it gets room or is bypassed. Cache lock held. */
static inline struct flw_bin *flw_tcache_use_bin(struct flw_tcache *cache, unsigned class_index)
{
    flw_class_set_add(&cache->used_bins, class_index);
    return flw_tcache_bin(cache, class_index);
}

/* Return the key of a cache in context order, which no call with a stream compares. */
static inline const void *flw_context_key(const struct flw_tcache_hot *hot, bool is_recorded)
{
    return (const unsigned char *)hot + 1 + is_recorded;
}

/* Return memory for a cache; it is never unmapped and only reused for caches. NULL: no host
 * memory. */
struct flw_tcache *flw_tcache_create(void);
void flw_tcache_drop(struct flw_tcache *cache);
void flw_tcache_renew_lock(void); /* after a fork */

/* Start serving. The caller holds no lock. */
void flw_tcache_bind(struct flw_tcache *cache, struct flw_heap *heap, struct flw_domain *domain);

/* Poison the key, until flw_tcache_release. Returns false if it was poisoned before, so the owner
 * is out. Otherwise the owner may be inside: run a flw_asym_barrier, which serves several poisoned
 * caches, and wait for the owner. */
bool flw_tcache_poison(struct flw_tcache *cache);
void flw_tcache_await(struct flw_tcache *cache);
void flw_tcache_release(struct flw_tcache *cache);
/* Allow or forbid hits from when no thread has seized the cache. To close a cache that is not
 * seized takes a barrier and a wait afterwards. Cache lock held. */
void flw_tcache_set_open(struct flw_tcache *cache, bool is_open);

/* Return all memory in the cache to the domain and mark it. True if there was anything. Cache lock
 * held. */
bool flw_tcache_flush(struct flw_tcache *cache, struct flw_heap *heap);
/* The same for runs only, including depot runs of the domain. Cache and heap lock held. */
bool flw_tcache_flush_runs(struct flw_tcache *cache, struct flw_heap *heap);
/* Return the domain of the cache's allocations: FLW_UNOWNED in context order. */
static inline struct flw_domain *flw_tcache_allocs_of(const struct flw_tcache *cache,
                                                      const struct flw_heap *heap)
{
    return FLW_UNLIKELY(cache->context_id != 0) ? heap->domains[FLW_UNOWNED] : cache->domain;
}

/* Return the open frees to their domain and mark them. True if there were any. Called by the
 * owner, inside or with the cache lock, or by a drainer; heap lock held. */
bool flw_tcache_flush_open_frees(struct flw_tcache *cache, struct flw_heap *heap);

/* Return the most bytes of runs that a cache may hold. */
static inline uint64_t flw_tcache_run_limit(const struct flw_heap *heap)
{
    uint64_t reserved = atomic_load_explicit(&heap->reserved_bytes, memory_order_relaxed);
    return flw_clamp(reserved / 2, 4 * FLW_MIB, 256 * FLW_MIB);
}

/* Set how many bytes of runs the cache takes in from now on: the full limit if the stream owes a
 * fence, or if no other stream could want one. Cache lock held; takes the heap lock. */
void flw_tcache_limit_runs(struct flw_tcache *cache, struct flw_heap *heap);

/* Move all runs out of a full cache: into the depot if other threads share the domain, for a
 * thread that allocates what this one frees; otherwise to the heap. Later frees are hits that the
 * heap does not see, so the stream owes a fence. Called by the owner, inside or with the cache
 * lock; heap lock held. */
void flw_tcache_clear_runs(struct flw_tcache *cache, struct flw_heap *heap);
/* Take a run of the size out of the depot, and more of them into the cache. NULL: none. Called as
 * flw_tcache_clear_runs. */
struct flw_span *flw_tcache_withdraw_run(struct flw_tcache *cache, struct flw_heap *heap,
                                         uint32_t unit_count);

/* ---- runs of exact size. A size has the set and, if another size occupies that, a second one. If
 * neither has room, all runs are moved out (flw_tcache_clear_runs): runs that stay keep their
 * neighbours from joining, and keeping some of them longer was measured to cost more memory.
 * Owner, inside or with the cache lock. */

static inline uint32_t flw_run_set_index(uint32_t unit_count)
{
    return (unit_count * 0x9E3779B1u) >> (32 - FLW_RUN_SETS_LOG2);
}

/* Take a run of the size; NULL: none. */
static inline struct flw_span *flw_tcache_pop_run(struct flw_tcache *cache, uint32_t unit_count)
{
    uint64_t empty = (uint64_t)unit_count << 32;
    uint32_t index = flw_run_set_index(unit_count);
    struct flw_run_set *set = &cache->run_sets[index];
    uint64_t place = set->key - empty - 1;
    if (FLW_UNLIKELY(place >= FLW_RUN_SET_SLOTS)) {
        set = &cache->run_sets[index ^ 1];
        place = set->key - empty - 1;
        if (place >= FLW_RUN_SET_SLOTS) {
            return NULL;
        }
    }
    set->key--;
    cache->run_bytes -= (uint64_t)unit_count * FLW_UNIT_BYTES;
    return set->runs[place];
}

/* Return the place of the next run of a size in a set; out of range: full, or another size's. */
static inline uint64_t flw_run_set_place(struct flw_run_set *set, uint64_t empty)
{
    uint64_t place = set->key - empty;
    if (FLW_UNLIKELY(place >= FLW_RUN_SET_SLOTS) && flw_run_set_count(set) == 0) {
        set->key = empty;
        place = 0;
    }
    return place;
}

/* Add a run. Returns false and changes nothing if there is no room. */
static inline bool flw_tcache_push_run(struct flw_tcache *cache, struct flw_span *run)
{
    uint32_t unit_count = run->u.run.unit_count, index = flw_run_set_index(unit_count);
    uint64_t run_bytes = cache->run_bytes + (uint64_t)unit_count * FLW_UNIT_BYTES;
    if (FLW_UNLIKELY(run_bytes > cache->run_limit_bytes)) {
        return false;
    }
    uint64_t empty = (uint64_t)unit_count << 32;
    struct flw_run_set *set = &cache->run_sets[index];
    uint64_t place = flw_run_set_place(set, empty);
    if (FLW_UNLIKELY(place >= FLW_RUN_SET_SLOTS)) {
        index ^= 1;
        set = &cache->run_sets[index];
        place = flw_run_set_place(set, empty);
        if (place >= FLW_RUN_SET_SLOTS) {
            return false;
        }
    }
    run->u.run.seq = atomic_load_explicit(&cache->domain->seq, memory_order_relaxed) -
                     FLW_MUTANT(CACHED_RUN_MARKED_EARLY);
    set->runs[place] = run;
    set->key++;
    cache->run_bytes = run_bytes;
    cache->occupied |= 1ull << index;
    return true;
}

/* Return the calling thread's cache for a stream. */
struct flw_tcache *flw_thread_find(const void *handle, CUstream stream);
bool flw_thread_add(struct flw_tcache *cache);
/* Make this the thread's cache of the last call. */
void flw_thread_select(struct flw_tcache *cache);
void flw_thread_forget(struct flw_tcache *cache);
/* Called at thread exit for each cache, with no lock held. Set once by the pool layer. */
extern void (*flw_thread_on_exit)(struct flw_tcache *cache);

/* The key of a poisoned cache: an address that no caller has as a pool. */
extern const char flw_no_pool;

/* 8 bytes of initial-exec storage: the cache of the last call, never NULL. */
extern _Thread_local struct flw_tcache_hot *flw_tls_cache
    __attribute__((tls_model("initial-exec")));

/* Probable place of a stream's cache: a direct-mapped table with a cache that never matches in the
 * empty places, so that a switch of streams only tests the key. Written by the thread only. */
#define FLW_SWITCH_PLACES_LOG2 10
#define FLW_SWITCH_PLACES      (1u << FLW_SWITCH_PLACES_LOG2)

struct flw_switchboard {
    uint64_t multiplier;
    struct flw_tcache_hot *places[FLW_SWITCH_PLACES];
};

/* The other 8 bytes of initial-exec storage; never NULL. */
extern _Thread_local struct flw_switchboard *flw_tls_board
    __attribute__((tls_model("initial-exec")));

static inline uint64_t flw_switch_index(uint64_t multiplier, CUstream stream)
{
    return ((uint64_t)(uintptr_t)stream * multiplier) >> (64 - FLW_SWITCH_PLACES_LOG2);
}

static inline struct flw_tcache_hot **flw_switch_place(struct flw_switchboard *board,
                                                       CUstream stream)
{
    return &board->places[flw_switch_index(board->multiplier, stream)];
}

#endif
