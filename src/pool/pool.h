/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: what one fallow_pool is: its heap, its thread caches, its captures, its statistics.
 *
 * The handle that callers hold is compared, never followed (base/handles.h): that of a destroyed pool is
 * answered with INVALID_POOL.
 */
#ifndef FLW_POOL_POOL_H
#define FLW_POOL_POOL_H

#include <pthread.h>

#include "base/handles.h"
#include "fallow/extend.h"
#include "fallow/fallow.h"
#include "heap/tcache.h"
#include "heap/thread.h"
#include "pool/capture.h"
#include "pool/epoch.h"
#include "pool/gate.h"
#include "pool/sleep.h"
#include "pool/uses.h"

enum flw_rung {
    FLW_RUNG_OWN,        /* own stream's heap and nobody's */
    FLW_RUNG_COMPLETE,   /* blocks whose fence has completed */
    FLW_RUNG_OWN_CACHE,  /* the thread's own caches, empty slabs */
    FLW_RUNG_CACHES,     /* other threads' caches */
    FLW_RUNG_GROW,       /* idle handles, then new ones up to the soft target */
    FLW_RUNG_STEAL,      /* another stream's, a fence already recorded */
    FLW_RUNG_FENCE,      /* another stream's, a fence recorded now */
    FLW_RUNG_REMAP_WAIT, /* wait for the device, then move handles */
    FLW_RUNG_LIMIT,      /* grow to the limit */
    FLW_RUNG_CALLBACK,   /* the user's callback, other pools of the device */
    FLW_RUNG_WAIT,       /* bounded wait for what is pending */
    FLW_RUNG_FAIL,
    FLW_RUNG_COUNT
};

#define FLW_EXTENSIONS_MOST 8

struct flw_extension;

struct flw_pool {
    const void *handle;
    char driver_name[32]; /* the config's, the end of it; "" is the default driver */
    struct flw_heap heap;
    struct flw_driver driver;
    struct fallow_pool_config config; /* defaults resolved */
    CUdevice device;
    bool retains_primary;
    atomic_bool uses_membarrier;
    atomic_bool lost_membarrier, loss_of_it_noted; /* once it was granted (seize.h) */
    /* streams_may_die, debug checks, no membarrier: every call takes the slow path. pool->lock */
    bool divert_all;
    atomic_bool loss_noted;
    uint64_t device_bytes;
    uint64_t context_id; /* context order: what its caches are found by; 0 elsewhere */
    /* context order: of the device's memory that is to stay free, if what idles here is the reason
     * that it does not */
    uint64_t reserve_bytes;

    struct flw_lock seizing; /* FLW_RANK_SEIZE: pool/seize.h; caches leave the list under it, too */
    struct flw_lock lock;    /* FLW_RANK_POOL: caches, captures, streams coming and going */
    struct flw_tcache *caches;
    struct flw_account *accounts; /* one a thread that ever came by */
    atomic_uint cache_count;

    struct flw_lock uses_lock; /* FLW_RANK_USES: notes */
    struct flw_note **notes;   /* 1 << note_log2 buckets of at most one note each, on average */
    uint32_t note_log2;        /* 0: no note yet */
    struct flw_note *unused_notes;
    struct flw_meta note_meta;
    uint64_t note_count;

    atomic_uint open_captures;

    struct flw_gate gate;
    struct flw_sleeper sleeper;
    struct flw_lock import_lock;      /* FLW_RANK_META */
    struct flw_import *imports;       /* what others have exported; import_lock */
    struct flw_import *ended_imports; /* that the driver has refused to give up; import_lock */
    uint64_t
        unsure_peers; /* bit: a device of that number, modulo 64, has access to part of the memory,
                              since the driver refused a change and the way back; the turn */
    uint64_t export_count; /* begun; heap lock */
    _Atomic uint64_t imported_bytes;
    atomic_uint said_refusals; /* bit i: the log has had refusal i of the source, or (one more) that
                                  what was insisted on was refused */

    atomic_uint handle_halvings; /* new handles are so many times smaller (budget.c) */
    atomic_uint strain_level;    /* how often the tight budget does not serve (budget.c) */
    uint64_t strained_allocs;    /* the allocations that strain_level knows of; heap lock */
    uint64_t risen_peak_bytes,
        risen_allocs;               /* the peak that a climb met last, and when; heap lock */
    _Atomic uint64_t settled_grows; /* grows of the heap at the last one of a settled pool */
    uint64_t tidied_growth;         /* the growth that gave tidies_left (ladder.c); heap lock */
    uint32_t tidies_left;
    _Atomic int64_t requested_bytes; /* settled; the caches hold the rest */
    _Atomic int64_t peak_requested_bytes;
    _Atomic uint64_t peak_live_bytes;
    _Atomic int64_t retired_live_bytes; /* of caches that are gone */
    _Atomic uint64_t retired_allocs, retired_frees, retired_misses;
    _Atomic uint64_t special_allocs, special_frees; /* blocks that never pass a cache */
    _Atomic int64_t special_live_bytes;
    _Atomic uint64_t zero_sizes, misuses, ooms, remap_waits;
    _Atomic uint64_t refused_requests; /* since a growth last came about */

    struct flw_lock report_lock; /* FLW_RANK_META: the last out-of-memory report */
    struct fallow_oom_report report;
    _Atomic uint64_t rung_count[FLW_RUNG_COUNT], rung_ns[FLW_RUNG_COUNT];
    _Atomic uint64_t last_climb; /* above the first rung: bytes << 8 | rung + 1; 0 none yet */
    atomic_flag in_callback;

    /* Decay: the largest need since peak_window_ns, and of the window before. */
    _Atomic uint64_t peak_window_bytes, peak_before_bytes;
    _Atomic uint64_t peak_window_ns, decay_ns;
    /* The features in use, from the first on, NULL behind the last (extension.h); each keeps what is its own below. */
    const struct flw_extension *extensions[FLW_EXTENSIONS_MOST + 1];
    struct flw_debug *debug;                  /* NULL: no debug checks */
    struct fallow_recorder *_Atomic recorder; /* NULL: not recorded */
    struct flw_recorder *abandoned_recorder;  /* with the pool, NULL: none */
    pthread_t helper;
    bool has_helper; /* somebody has to join it; helpers.mutex in trim.c */
    atomic_bool helper_stops;
    struct flw_pool *next_abandoned; /* chain of pools whose memory is kept on purpose */
};

/* Is the pool in context order? */
static inline bool flw_pool_has_epochs(const struct flw_pool *pool)
{
    return pool->heap.context_order != NULL;
}

/* ---- table.c */

/* The pool of a handle, or NULL: destroyed, foreign, NULL. Never follows the handle itself. */
struct flw_pool *flw_pool_of(const void *handle);
/* A handle for a pool that is being made, refused until it is published; NULL: the table is full. */
fallow_pool *flw_pool_table_take(void);
/* The pool is complete, its handle included: other threads may come by from now on. */
void flw_pool_table_publish(struct flw_pool *pool);
/* The handle is refused; wait until no other pool's thread is in a visit; the place is another's. */
void flw_pool_table_drop(const void *handle);
void flw_pool_table_await(const void *handle);
void flw_pool_table_free(const void *handle);
/* Call `visit` for every pool of the process, none locked; none is freed during its visit. */
void flw_pool_table_each(void (*visit)(struct flw_pool *pool, void *context), void *context);

/* ---- cache.c */

/* The calling thread's cache for a stream, made on first use. NULL and a status otherwise. */
struct flw_tcache *flw_pool_cache(struct flw_pool *pool, fallow_stream stream,
                                  fallow_status *status);
/* Empty caches into the heap: all, all but mine, or those of one domain. True if anything moved. */
bool flw_pool_drain(struct flw_pool *pool, const struct flw_tcache *but,
                    const struct flw_domain *only);
/* Close caches of a domain for good (retire, loss): threads make new ones on their next call. */
void flw_pool_close_caches(struct flw_pool *pool, const struct flw_domain *domain);
/* Divert or restore the caches of a stream: a capture has begun or ended on it. */
void flw_pool_divert(struct flw_pool *pool, const struct flw_domain *domain);
/* No hits in any cache, those that are made from now on included; or again. */
void flw_pool_close_hits(struct flw_pool *pool, bool is_closed);
/* Owner: fold the thread's requested bytes into the pool's, raising the peak. */
void flw_pool_settle(struct flw_pool *pool, struct flw_account *account);
/* Owner: lent (or, negative, returned). */
void flw_pool_account(struct flw_account *account, int64_t requested_bytes);
/* Now-live requested bytes: settled and not. */
int64_t flw_pool_requested(struct flw_pool *pool);
/* Sums over all caches; exact at quiescent points. Returns live bytes. */
struct flw_pool_totals {
    uint64_t allocs, frees, misses, cached_bytes;
    int64_t live_bytes, requested_bytes, unsettled_peak_bytes;
};
uint64_t flw_pool_live(struct flw_pool *pool, struct flw_pool_totals *out);
/* The domain of a stream, made on first sight; driver calls. */
struct flw_domain *flw_pool_domain(struct flw_pool *pool, fallow_stream stream,
                                   fallow_status *status);
/* The same, if the pool has seen it: NULL otherwise, or with INVALID_STREAM where the handle names none
 * any more. Driver calls where a handle is not believed. */
struct flw_domain *flw_pool_known_domain(struct flw_pool *pool, fallow_stream stream,
                                         fallow_status *status);
/* A handle may name another stream than it did at the last call. */
static inline bool flw_pool_asks_identity(const struct flw_pool *pool)
{
    return pool->config.streams_may_die != 0;
}
void flw_pool_note_special(struct flw_pool *pool, struct flw_account *account,
                           int64_t requested_bytes, int64_t live_bytes);
void flw_pool_cache_exit(struct flw_tcache *cache);
/* At exit or after a fork: no hit any more; no waiting, no lock. */
void flw_pool_poison_all(struct flw_pool *pool);
void flw_lifecycle_renew_lock(void); /* after a fork */
/* The device is lost: from now on every call takes the slow path, which answers for it. */
void flw_pool_note_loss(struct flw_pool *pool);
/* Detach every cache: the pool goes. */
void flw_pool_detach_caches(struct flw_pool *pool);

/* ---- ladder.c */

/* What is wanted: slots of a class, or a run. */
struct flw_need {
    struct flw_domain *domain;
    struct flw_tcache *cache; /* the caller's; NULL for a capture */
    unsigned class_index;     /* FLW_CLASS_COUNT: a run */
    uint32_t unit_count, align_units;
    uint64_t size_bytes; /* as asked, for the peak and the report */
    uint32_t flags, handle_types;
    bool spares_waits; /* memory first: a looser fit rather than another wait between streams */
    bool is_divided;   /* a large one that found no handle for itself: out of several */
    uint32_t want;     /* slots */
    struct flw_slot **slots; /* out */
    uint32_t count;          /* out */
    struct flw_span *run;    /* out */
    bool lacks_host; /* the last look at what lies ready came to nothing for want of host memory */
};
fallow_status flw_ladder_climb(struct flw_pool *pool, struct flw_need *need);
/* Synchronise the context, if a lost stream has memory that no fence covers, or only its place,
 * where that is wanted, and nothing is being captured. True: it is complete now. Driver calls. */
bool flw_pool_sync_uncoverable(struct flw_pool *pool, bool wants_place);
/* Driver calls. Is the stream being captured, if it can be named? */
bool flw_pool_is_capturing(struct flw_pool *pool, struct flw_domain *domain);
/* Driver calls. OK: none that can be named is being captured. CAPTURING; DRIVER: it does not tell. */
fallow_status flw_pool_ask_captures(struct flw_pool *pool);
/* Is a stream that waits for the legacy one, which knows of those that the pool has never seen? */
bool flw_pool_is_blocking_capturing(struct flw_pool *pool);

/* ---- oom.c, stats.c */

/* What the driver has refused and nobody insisted on: a line each, once. Cheap where nothing is new. */
void flw_pool_say_refusals(struct flw_pool *pool);
/* A growth was refused: if it asked for kinds of handles that were insisted on, a line, once. */
void flw_pool_say_insisted(struct flw_pool *pool);
/* Create ended with this status: which call, table or setting it was, and what to do. */
void flw_pool_say_no_heap(const struct flw_pool *pool, fallow_status status);
/* At their smallest the tables found no room; what was there before is. */
void flw_pool_say_no_tables(const struct flw_pool *pool);
void flw_pool_say_small_tables(const struct flw_pool *pool);
/* The driver does not take so many bytes back, or addresses or events alone: the call that it refused last. */
void flw_pool_say_what_stays(const struct flw_pool *pool, uint64_t bytes);

/* Remember why this need failed. */
void flw_oom_report_fill(struct flw_pool *pool, const struct flw_need *need);
/* What fallow_pool_get_stats answers, of a pool that is being visited. */
void flw_pool_read_stats(struct flw_pool *pool, fallow_stats *out_stats);
/* heap lock. What captures own, lent or not. */
uint64_t flw_pool_captured_bytes(const struct flw_pool *pool);

static inline uint64_t flw_not_negative(int64_t value)
{
    return value > 0 ? (uint64_t)value : 0;
}

/* ---- lend.c, return.c: the slow halves of what entry.c has; a front's pair (extension.h) stands before them */

fallow_status flw_pool_alloc(struct flw_pool *pool, const fallow_request *request,
                             fallow_stream stream, void **out_ptr);
fallow_status flw_pool_free(struct flw_pool *pool, void *ptr, fallow_stream stream);
/* The same without a front: raw blocks. */
fallow_status flw_pool_alloc_plain(struct flw_pool *pool, const fallow_request *request,
                                   fallow_stream stream, void **out_ptr);
fallow_status flw_pool_free_plain(struct flw_pool *pool, void *ptr, fallow_stream stream);

/* What a cache may hold in runs. */
uint64_t flw_pool_run_limit(const struct flw_pool *pool);
/* cache lock. Let the bin hold more, up to its room and the cache's budget. */
void flw_pool_widen_bin(const struct flw_pool *pool, struct flw_tcache *cache, struct flw_bin *bin,
                        unsigned class_index);
/* Has enough been freed on the stream for an event? At most one per 16 MiB, and only where another
 * stream could want the memory. */
static inline bool flw_pool_is_stream_fence_due(const struct flw_pool *pool,
                                                const struct flw_domain *domain)
{
    uint64_t unfenced = atomic_load_explicit(&domain->unfenced_bytes, memory_order_relaxed);
    return (unfenced >= 16 * FLW_MIB &&
            atomic_load_explicit(&pool->heap.stream_count, memory_order_relaxed) > 1) ||
           (pool->config.streams_may_die && unfenced > 0);
}
/* Have enough uses been announced? */
static inline bool flw_pool_is_use_fence_due(const struct flw_pool *pool)
{
    const struct flw_heap *heap = &pool->heap;
    return atomic_load_explicit(&heap->unfenced_use_bytes, memory_order_relaxed) >= 16 * FLW_MIB ||
           atomic_load_explicit(&heap->unfenced_use_count, memory_order_relaxed) >= 256;
}
static inline bool flw_pool_is_fence_due(const struct flw_pool *pool,
                                         const struct flw_domain *domain)
{
    return flw_pool_is_stream_fence_due(pool, domain) || flw_pool_is_use_fence_due(pool);
}
/* Owner, inside or alone: fence_left_bytes is used up; start anew. True: a fence is worth it. */
bool flw_pool_earns_fence(const struct flw_pool *pool, struct flw_tcache *cache);
/* After a free through the cache: the events that are due, decay, a loss. Driver calls. */
void flw_pool_keep_up(struct flw_pool *pool, struct flw_tcache *cache, bool earns_fence);

/* ---- trim.c */
void flw_pool_decay(struct flw_pool *pool, bool may_release);
/* The thread that polls; the pool is published. It has ended, too, before a driver's handlers of the exit
 * run. False: it cannot be started. */
bool flw_pool_start_helper(struct flw_pool *pool);
void flw_pool_stop_helper(struct flw_pool *pool); /* none: nothing */
void flw_pool_leave_helper(
    struct flw_pool *pool);        /* the same: it ends by itself, and nobody joins it */
void flw_helpers_forget_all(void); /* in the child of a fork */

/* ---- peer.c */

/* OK: the device exists, is not the pool's own, and reaches it. Else a line to the log. Driver calls. */
fallow_status flw_pool_check_peer(struct flw_pool *pool, int peer);

/* ---- config.c */

/* fallow_pool_create on a driver that is open already, whose table stays the caller's, and under a name:
 * context_id, not 0, is what flw_context_alloc compares with. */
struct flw_pool_place {
    const struct flw_driver *driver;
    uint64_t context_id;
    /* a request from here on is a driver allocation of its own; 0: the default, which is the most, too */
    uint64_t whole_bytes;
    uint64_t reserve_bytes; /* see flw_pool */
};
fallow_status flw_pool_create(const fallow_pool_config *config, const struct flw_pool_place *place,
                              fallow_pool **out_pool);

/* Copy a sized struct of the caller's into ours: an older, shorter one is completed with zeros; a
 * newer, longer one is accepted if what we do not know is zero. VERSION otherwise. */
fallow_status flw_struct_accept(void *ours, size_t our_size, const void *theirs);
/* Copy ours out, as much as the caller's struct_size has room for. */
fallow_status flw_struct_answer(void *theirs, const void *ours, size_t our_size);

/* In a driver section: wait for all work that may use the pool's memory. */
fallow_status flw_pool_await_device(struct flw_pool *pool);
/* The same beside captures too: each known stream by itself; the context only for a stream that cannot be
 * recorded on, and where blocks are lent still. CAPTURING: something was not waited for. */
fallow_status flw_pool_await_all(struct flw_pool *pool);
/* calls. The same for a pool that ends; a driver that refuses is asked again. False: work may be under way,
 * and nothing may be given back. */
bool flw_pool_await_last(struct flw_pool *pool);

/* In the child of a fork: of every feature. */
void flw_extensions_forget_all(void);
/* Out of use without a driver call, a wait or a lock; it has left the table. */
void flw_pool_orphan(struct flw_pool *pool);

void flw_pool_log(const struct flw_pool *pool, fallow_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
