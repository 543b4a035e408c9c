/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the fields of a fallow_pool: a heap, thread caches, and the state of each part of the
 * pool. A part that is the only reader and writer of the fields has a struct of its own here.
 *
 * The handle that callers hold is never dereferenced (base/handles.h): that of a destroyed pool
 * returns INVALID_POOL. */
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

/* One more than the attempts of a ladder (ladder/ladder.h): the last is failure. */
#define FLW_STAGE_COUNT 12

#define FLW_EXTENSIONS_MOST 8

struct flw_extension;

/* Memory that callers hold, and the peaks (state/account.c). Synchronization: atomics; `accounts`
 * and counts of caches are summed under the pool's lock. */
struct flw_usage {
    _Atomic int64_t requested_bytes;        /* flushed; the accounts hold the rest */
    _Atomic int64_t peak_requested_bytes;   /* since the pool was created; used by bounds */
    _Atomic int64_t recent_peak_bytes;      /* since the last reset; at most the one above */
    _Atomic int64_t recent_peak_live_bytes; /* largest observed since the last reset */
    _Atomic int64_t retired_live_bytes;     /* of caches that are gone */
    _Atomic uint64_t retired_allocs, retired_frees, retired_misses;
    _Atomic uint64_t special_allocs, special_frees; /* blocks that no cache handles */
    _Atomic int64_t special_live_bytes;
    _Atomic uint64_t zero_sizes, misuses;
    _Atomic uint64_t summed_allocs; /* see flw_pool_allocs */
    atomic_uint sum_left;
};

#define FLW_DEMAND_WINDOWS 8 /* of a quarter of a second: the need of the last two seconds */

/* The largest need since window_ns, and of the windows before, newest first (state/account.c). */
struct flw_demand {
    _Atomic uint64_t window_bytes, before_bytes[FLW_DEMAND_WINDOWS];
    _Atomic uint64_t window_ns, decay_ns;
};

/* Announced uses and tags (state/side_records.c). */
struct flw_side_records {
    struct flw_lock lock;             /* FLW_RANK_USES: all of it */
    struct flw_side_record **buckets; /* 1 << log2 of them, with at most one record each on
                                          average */
    uint32_t log2;                    /* 0: no record yet */
    struct flw_side_record *unused;
    struct flw_meta meta; /* the accounts are here too */
    uint64_t count;
};

/* How a climb may grow (ladder/budget.c). Synchronization: atomics; the rest under the heap's
 * lock. */
struct flw_budget {
    atomic_uint handle_halvings;             /* halvings of the size of new handles */
    atomic_uint strain_level;                /* how often the tight budget was not enough */
    uint64_t strained_allocs;                /* the allocations that strain_level includes */
    uint64_t risen_peak_bytes, risen_allocs; /* the peak at the last climb, and the allocations
                                                 then */
    _Atomic uint64_t steady_grows; /* growths of the heap at the last one in steady state */
    _Atomic uint64_t
        waitless_bytes; /* bytes that several streams need to run without waits, as observed */
    /* Other streams learn of a stream's freed memory by the fences, which are recorded only if
     * others poll: a climb that polls grants so many polls and fences until the next one. */
    atomic_uint look_credits;
    /* The domain with a fence left to the next free that misses, poll or capture, unless another
     * fence comes first; 0: none. (For a poll the fence is due like any other.) The event is
     * then recorded outside a call on the stream: retire the stream before destroying it. */
    _Atomic uint32_t late_domain;
    /* Consecutive polls that found every fence complete, including fences recorded since the
     * previous poll. */
    atomic_uint prompt_looks;
    atomic_uint late_looks;         /* consecutive polls that found some incomplete */
    _Atomic uint64_t looked_events; /* events recorded up to the last poll */
    _Atomic uint64_t quiet_bytes;   /* allocated by slow calls since the last poll of other
                                      streams */
    uint64_t tidied_growth;         /* the growth that set tidies_left (ladder/take.c) */
    uint32_t tidies_left;
};

/* Results of climbs (ladder/). */
struct flw_climbs {
    _Atomic uint64_t count[FLW_STAGE_COUNT], ns[FLW_STAGE_COUNT];
    _Atomic uint64_t last; /* above the first attempt: bytes << 8 | the place + 1; 0 none yet */
    _Atomic uint64_t remap_waits, ooms;
    _Atomic uint64_t refused_requests; /* since a growth last succeeded */
    _Atomic uint64_t room_bytes;       /* total that the device had room for at the last query */
    _Atomic uint64_t room_until_ns;    /* time of the next query at the earliest */
    atomic_flag in_callback;
    struct flw_lock report_lock; /* FLW_RANK_META: the report of the last failure */
    struct fallow_oom_report report;
};

/* Exports and imports (extensions/share.c). */
struct flw_sharing {
    struct flw_lock lock; /* FLW_RANK_META: both lists */
    struct flw_import *imports;
    struct flw_import *ended; /* the driver refused to release these */
    uint64_t export_count;    /* exports begun; heap lock */
    _Atomic uint64_t imported_bytes;
    uint64_t unsure_peers; /* bit: a device of that number, modulo 64, can access part of the
                          memory, since the driver refused a change and the undo; the turn
                          (extensions/peer.c) */
};

/* The thread that polls (extensions/helper.c). */
struct flw_helper {
    pthread_t thread;
    bool is_there; /* a thread must join it; helpers.mutex */
    atomic_bool stops;
};

struct flw_pool {
    const void *handle;
    char driver_name[32]; /* the end of the config's; "" is the default driver */
    struct flw_heap heap;
    struct flw_driver driver;
    struct fallow_pool_config config; /* with defaults resolved */
    CUdevice device;
    bool retains_primary;
    uint64_t device_bytes;
    uint64_t context_id; /* context order: key of the caches; 0 elsewhere */
    /* Context order: device memory to leave to others. The pool releases its own idle memory
     * before it grows beyond this. */
    uint64_t reserve_bytes;

    struct flw_lock seizing; /* FLW_RANK_SEIZE: streams/seize.h; also taken to remove caches from
                              the list */
    struct flw_lock lock;    /* FLW_RANK_POOL: caches, captures, creation and end of streams */
    struct flw_tcache *caches, *last_cache; /* the list; last_cache: if any */
    struct flw_account *accounts;           /* one per thread that ever used the pool */
    atomic_uint cache_count;
    atomic_uint open_captures;
    _Atomic uint64_t
        captured_idle_bytes; /* free in ended captures: serves nothing before their release */
    /* streams_may_die, a front, no membarrier: every call takes the slow path. pool->lock */
    bool divert_all;
    atomic_bool loss_noted;
    atomic_bool uses_membarrier;
    atomic_bool lost_membarrier, loss_of_it_noted; /* it was granted before (streams/seize.h) */
    atomic_uint said_refusals; /* bit i: refusal i of the source was logged; the bit after the last:
                           the refusal of a required feature */

    struct flw_usage usage;
    struct flw_demand demand;
    struct flw_side_records side_records;
    struct flw_gate gate;
    struct flw_budget budget;
    struct flw_climbs climbs;

    /* The features in use, ended by NULL (state/extension.h); the following fields are theirs. */
    const struct flw_extension *extensions[FLW_EXTENSIONS_MOST + 1];
    struct flw_debug *debug;                  /* NULL: no debug checks */
    struct fallow_recorder *_Atomic recorder; /* NULL: not recorded */
    atomic_bool sees_stacks;                  /* the recording has call stacks */
    struct flw_recorder *abandoned_recorder;  /* abandoned with the pool; NULL: none */
    struct flw_sleeper sleeper;
    struct flw_sharing sharing;
    struct flw_helper helper;
    /* Set by the plug-in; NULL: none. Announce the stream's capture, if an id of graph memory is
     * open (plugin.h). True if a capture may begin unseen. Makes driver calls. */
    bool (*announce)(struct flw_pool *pool, fallow_stream stream);
    struct flw_pool *next_abandoned; /* chain of pools with memory that is kept on purpose */
};

/* Up to this size a balanced pool of several streams grows rather than waits, whatever the streams
 * need. */
static inline uint64_t flw_waitless_most(uint64_t peak_bytes)
{
    return peak_bytes + peak_bytes * 45 / 100;
}

/* Take the credit for one poll of other streams, or a fence for their polls. */
static inline bool flw_budget_take_credit(struct flw_budget *budget)
{
    unsigned credits = atomic_load_explicit(&budget->look_credits, memory_order_relaxed);
    if (credits == 0) {
        return false;
    }
    atomic_store_explicit(&budget->look_credits, credits - 1, memory_order_relaxed);
    return true;
}

/* True if the device completes all work before the next poll. Then a fence recorded when memory is
 * needed is as useful as one recorded at the free, and covers everything freed until then. */
#define FLW_PROMPT_LOOKS 32

static inline bool flw_budget_is_prompt(const struct flw_budget *budget)
{
    return atomic_load_explicit(&budget->prompt_looks, memory_order_relaxed) >= FLW_PROMPT_LOOKS;
}

/* One poll that found work is no proof of much work: with a device that otherwise keeps pace, the
 * next stages decide. */
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

/* True if a handle may belong to another stream than at the last call. */
static inline bool flw_pool_asks_identity(const struct flw_pool *pool)
{
    return pool->config.streams_may_die != 0;
}

static inline uint64_t flw_not_negative(int64_t value)
{
    return value > 0 ? (uint64_t)value : 0;
}

#endif
