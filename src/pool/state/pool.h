/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: what one fallow_pool is made of: a heap, thread caches, and what each part of the pool keeps between calls. A
 * part that alone reads and writes its fields has a struct of its own here.
 * Does not: do anything with it.
 *
 * The handle that callers hold is compared, never followed (base/handles.h): that of a destroyed pool is
 * answered with INVALID_POOL.
 */
#ifndef FLW_POOL_STATE_POOL_H
#define FLW_POOL_STATE_POOL_H

#include <pthread.h>

#include "base/handles.h"
#include "fallow/extend.h"
#include "fallow/fallow.h"
#include "heap/heap.h"
#include "heap/state/thread.h"
#include "pool/state/gate.h"
#include "pool/state/sleeper.h"

/* One more than a ladder has attempts (ladder/ladder.h): the last is failure. */
#define FLW_STAGE_COUNT 12

#define FLW_EXTENSIONS_MOST 8

struct flw_extension;

/* What callers hold, and how much it was at most (state/account.c). Synchronization: atomics; `accounts` and what
 * caches count are summed under the pool's lock. */
struct flw_usage {
    _Atomic int64_t requested_bytes;        /* settled; the accounts hold the rest */
    _Atomic int64_t peak_requested_bytes;   /* since the pool was made; bounds use it */
    _Atomic int64_t recent_peak_bytes;      /* since the last reset; at most the one above */
    _Atomic int64_t recent_peak_live_bytes; /* most observed since the last reset */
    _Atomic int64_t retired_live_bytes;     /* of caches that are gone */
    _Atomic uint64_t retired_allocs, retired_frees, retired_misses;
    _Atomic uint64_t special_allocs, special_frees; /* blocks that never pass a cache */
    _Atomic int64_t special_live_bytes;
    _Atomic uint64_t zero_sizes, misuses;
    _Atomic uint64_t summed_allocs; /* see flw_pool_allocs */
    atomic_uint sum_left;
};

#define FLW_DEMAND_WINDOWS 8 /* of a quarter of a second: the need of the last two seconds */

/* The largest need since window_ns, and of the windows before, the newest first (state/account.c). */
struct flw_demand {
    _Atomic uint64_t window_bytes, before_bytes[FLW_DEMAND_WINDOWS];
    _Atomic uint64_t window_ns, decay_ns;
};

/* Announced uses and tags (state/side_records.c). */
struct flw_side_records {
    struct flw_lock lock;             /* FLW_RANK_USES: all of it */
    struct flw_side_record **buckets; /* 1 << log2, of at most one record each, on average */
    uint32_t log2;                    /* 0: no record yet */
    struct flw_side_record *unused;
    struct flw_meta meta; /* accounts lie here, too */
    uint64_t count;
};

/* How a climb may grow (ladder/budget.c). Synchronization: atomics; the rest the heap's lock. */
struct flw_budget {
    atomic_uint handle_halvings;             /* new handles are so many times smaller */
    atomic_uint strain_level;                /* how often the tight budget does not serve */
    uint64_t strained_allocs;                /* the allocations that strain_level knows of */
    uint64_t risen_peak_bytes, risen_allocs; /* the peak that a climb met last, and when */
    _Atomic uint64_t settled_grows; /* grows of the heap at the last one of a settled pool */
    _Atomic uint64_t
        waitless_bytes; /* what several streams need to be without waits, as far as seen */
    /* Others find what a stream has freed by its fences. Where none looks for any, none is recorded: a climb that
     * looks allows so many looks and fences until the next one. */
    atomic_uint look_credits;
    /* The next free that is no hit, poll or capture records its fence, if none has come; 0: none. (To a look it owes
     * one as others do.) Its stream is named outside of a call on it then: who destroys it retires it before. */
    _Atomic uint32_t late_domain;
    /* Looks on end that found all work done, that of a fence recorded by them or since the one before, too. */
    atomic_uint prompt_looks;
    atomic_uint late_looks;         /* the same that found some under way */
    _Atomic uint64_t looked_events; /* how many events had been recorded by the last one */
    _Atomic uint64_t quiet_bytes; /* allocated by slow calls since the last look at other streams */
    uint64_t tidied_growth;       /* the growth that gave tidies_left (ladder/take.c) */
    uint32_t tidies_left;
};

/* What climbs came to (ladder/). */
struct flw_climbs {
    _Atomic uint64_t count[FLW_STAGE_COUNT], ns[FLW_STAGE_COUNT];
    _Atomic uint64_t last; /* above the first attempt: bytes << 8 | its place + 1; 0 none yet */
    _Atomic uint64_t remap_waits, ooms;
    _Atomic uint64_t refused_requests; /* since a growth last came about */
    _Atomic uint64_t room_bytes;       /* total that the device had room for at the last query */
    _Atomic uint64_t room_until_ns;    /* time of the next query at the earliest */
    atomic_flag in_callback;
    struct flw_lock report_lock; /* FLW_RANK_META: the report of the last one that failed */
    struct fallow_oom_report report;
};

/* What others have exported (extensions/share.c). */
struct flw_sharing {
    struct flw_lock lock; /* FLW_RANK_META: both lists */
    struct flw_import *imports;
    struct flw_import *ended; /* that the driver has refused to give up */
    uint64_t export_count;    /* begun; heap lock */
    _Atomic uint64_t imported_bytes;
    uint64_t
        unsure_peers; /* bit: a device of that number, modulo 64, has access to part of the memory, since the
                              driver refused a change and the way back; the turn (extensions/peer.c) */
};

/* The thread that polls (extensions/helper.c). */
struct flw_helper {
    pthread_t thread;
    bool is_there; /* somebody has to join it; helpers.mutex */
    atomic_bool stops;
};

struct flw_pool {
    const void *handle;
    char driver_name[32]; /* the config's, the end of it; "" is the default driver */
    struct flw_heap heap;
    struct flw_driver driver;
    struct fallow_pool_config config; /* defaults resolved */
    CUdevice device;
    bool retains_primary;
    uint64_t device_bytes;
    uint64_t context_id; /* context order: what its caches are found by; 0 elsewhere */
    /* Context order: bytes of device memory to leave for others. Before it grows past this the pool
     * releases its own idle memory. */
    uint64_t reserve_bytes;

    struct flw_lock
        seizing;          /* FLW_RANK_SEIZE: streams/seize.h; caches leave the list under it, too */
    struct flw_lock lock; /* FLW_RANK_POOL: caches, captures, streams coming and going */
    struct flw_tcache *caches, *last_cache; /* the list; last_cache: if any */
    struct flw_account *accounts;           /* an account for each thread that ever used the pool */
    atomic_uint cache_count;
    atomic_uint open_captures;
    _Atomic uint64_t
        captured_idle_bytes; /* free in captures that have ended: serves nothing before their release */
    /* streams_may_die, a front, no membarrier: every call takes the slow path. pool->lock */
    bool divert_all;
    atomic_bool loss_noted;
    atomic_bool uses_membarrier;
    atomic_bool lost_membarrier, loss_of_it_noted; /* once it was granted (streams/seize.h) */
    atomic_uint
        said_refusals; /* bit i: the log has had refusal i of the source, or (one more) that what was
                                  insisted on was refused */

    struct flw_usage usage;
    struct flw_demand demand;
    struct flw_side_records side_records;
    struct flw_gate gate;
    struct flw_budget budget;
    struct flw_climbs climbs;

    /* The features in use, from the first on, NULL behind the last (state/extension.h); what follows is theirs. */
    const struct flw_extension *extensions[FLW_EXTENSIONS_MOST + 1];
    struct flw_debug *debug;                  /* NULL: no debug checks */
    struct fallow_recorder *_Atomic recorder; /* NULL: not recorded */
    atomic_bool sees_stacks;                  /* its recording has them */
    struct flw_recorder *abandoned_recorder;  /* with the pool, NULL: none */
    struct flw_sleeper sleeper;
    struct flw_sharing sharing;
    struct flw_helper helper;
    /* Set by the plug-in; NULL: none. Announce the capture that the stream is in, if an id of graph memory is open
     * (plugin.h). True if a capture may begin unseen. Driver calls. */
    bool (*announce)(struct flw_pool *pool, fallow_stream stream);
    struct flw_pool *next_abandoned; /* chain of pools whose memory is kept on purpose */
};

/* To so much a balanced pool of several streams grows rather than wait, whatever they need. */
static inline uint64_t flw_waitless_most(uint64_t peak_bytes)
{
    return peak_bytes + peak_bytes * 45 / 100;
}

/* May one more look be made at what other streams have, or a fence be recorded for theirs? */
static inline bool flw_budget_take_credit(struct flw_budget *budget)
{
    unsigned credits = atomic_load_explicit(&budget->look_credits, memory_order_relaxed);
    if (credits == 0) {
        return false;
    }
    atomic_store_explicit(&budget->look_credits, credits - 1, memory_order_relaxed);
    return true;
}

/* Is the device done with all that it is given by the time somebody looks? Then a fence that is recorded when memory
 * is wanted tells as much as one that was recorded at the free, and is one for all that was freed by then. */
#define FLW_PROMPT_LOOKS 32

static inline bool flw_budget_is_prompt(const struct flw_budget *budget)
{
    return atomic_load_explicit(&budget->prompt_looks, memory_order_relaxed) >= FLW_PROMPT_LOOKS;
}

/* One look that found something under way is no proof that the device has much of it: on one that else keeps pace the
 * next stages find out. */
#define FLW_LATE_LOOKS 2

static inline bool flw_budget_falls_behind(const struct flw_budget *budget)
{
    return atomic_load_explicit(&budget->late_looks, memory_order_relaxed) >= FLW_LATE_LOOKS;
}

/* Is the pool in context order? */
static inline bool flw_pool_has_epochs(const struct flw_pool *pool)
{
    return pool->heap.context_order != NULL;
}

/* A handle may name another stream than it did at the last call. */
static inline bool flw_pool_asks_identity(const struct flw_pool *pool)
{
    return pool->config.streams_may_die != 0;
}

static inline uint64_t flw_not_negative(int64_t value)
{
    return value > 0 ? (uint64_t)value : 0;
}

#endif
