/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: what the files of the ladders share: one climb, and what its stages are made of. Does not:
 * show anything of it to the rest of the pool, which climbs (ladder.h).
 */
#ifndef FLW_POOL_LADDER_CLIMB_H
#define FLW_POOL_LADDER_CLIMB_H

#include "pool/ladder/ladder.h"

/* To this size what is pinned without need is a large part of a pool. */
#define FLW_SMALL_POOL_BYTES (512 * FLW_MIB)

/* What the stages share. */
struct flw_climb {
    bool is_steady; /* see budget.c; false: not, or not known yet */
    struct flw_pool *pool;
    struct flw_heap *heap;
    struct flw_need *need;
    uint64_t peak_bytes; /* P, and free memory in ended captures */
    uint64_t
        first_bytes; /* to this much the pool grows before it looks for what other streams keep in caches */
    uint64_t
        shared_bytes; /* balanced, several streams: to this much rather than wait; 0: not known yet, or not so */
    uint64_t need_bytes;                     /* what a growth has to map */
    uint64_t held_bytes;                     /* reserved before it */
    uint64_t risen_peak_bytes, risen_allocs; /* has_risen: the pool's before it */
    bool has_risen;
    fallow_status status; /* of the last failure worth telling: a driver's refusal before no room */
    uint64_t look;        /* the last one at other streams (struct flw_standing); 0: none yet */
    bool has_emptied_caches; /* those of the thread: nothing comes into them while it climbs */
    bool leaves_caches;      /* some of these, since there are more than a look takes */
    bool has_released_kept;  /* what extensions kept back is out */
    bool knows_reserve, eats_reserve; /* context order: an answer for the whole climb */
    bool is_headless; /* a growth found no host memory for its headers, so no other growth helps */
    bool skips_backoff; /* call the driver even if an earlier call was refused */
    bool is_refused;    /* the last growth was refused, by the driver or after a similar refusal */
    bool
        awaits_device; /* releasing segments, or memory of other pools, waits for the device's work */
    fallow_status gate_status; /* ASLEEP: try nothing more */
    uint64_t waited_ns;        /* of wait_ms: by waits with a deadline */
    uint64_t until_ns;         /* deadline of the current wait; 0: none */
    uint64_t keep_bytes;       /* reserved bytes that a release leaves */
};

/* It wants a handle of its own: only growth makes one. */
static inline bool flw_need_is_single(const struct flw_need *need)
{
    return (need->flags & (FALLOW_REQUEST_EXPORT_FD | FALLOW_REQUEST_EXPORT_FABRIC |
                           FALLOW_REQUEST_DEDICATED)) != 0;
}

/* True if free memory cannot serve the need. */
static inline bool flw_need_is_grown(const struct flw_need *need)
{
    return need->growable != NULL || flw_need_is_single(need);
}

/* It gets all of a handle. Once freed, the run serves only such requests. */
static inline bool flw_need_is_dedicated(const struct flw_heap *heap, const struct flw_need *need)
{
    return need->class_index == FLW_CLASS_COUNT && !flw_need_is_grown(need) && !need->is_divided &&
           need->unit_count >= heap->dedicated_units;
}

/* True if a segment made for the need is never cut. */
static inline bool flw_need_is_whole_segment(const struct flw_heap *heap,
                                             const struct flw_need *need)
{
    bool is_large = need->unit_count >= heap->dedicated_units && !need->is_divided;
    return !heap->source.ops->remaps && need->class_index == FLW_CLASS_COUNT &&
           (is_large || heap->dedicated != NULL);
}

/* Are there several streams, so that what one of them frees may serve another? */
static inline bool flw_climb_has_others(const struct flw_climb *climb)
{
    return atomic_load_explicit(&climb->heap->stream_count, memory_order_relaxed) > 1;
}

/* The host has no memory for a table. Free memory of other threads or streams may still serve.
 * Growing cannot, nor can waiting for the device or a callback: these yield device memory, and host
 * memory is what is missing. */
static inline bool flw_climb_lacks_host(const struct flw_climb *climb)
{
    return climb->is_headless || climb->need->lacks_host;
}

/* What served the need, for readers in publish/. One atomic word, so that a reader never sees
 * halves of two climbs. */
static inline void flw_climb_note_last(struct flw_pool *pool, const struct flw_need *need,
                                       unsigned stage)
{
    atomic_store_explicit(&pool->climbs.last, need->size_bytes << 8 | ((uint64_t)stage + 1),
                          memory_order_relaxed);
}

/* Try one stage, counted and timed by its place. */
static inline bool flw_climb_try(struct flw_climb *climb, unsigned stage,
                                 bool (*attempt)(struct flw_climb *climb))
{
    uint64_t begin = flw_clock_fine_ns();
    bool is_done = attempt(climb);
    atomic_fetch_add_explicit(&climb->pool->climbs.count[stage], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&climb->pool->climbs.ns[stage], flw_clock_fine_ns() - begin,
                              memory_order_relaxed);
    if (is_done) {
        flw_climb_note_last(climb->pool, climb->need, stage);
    }
    return is_done;
}

/* ---- take.c: what lies ready for the stream, its own or unowned. take takes the heap lock;
 * take_slots and take_run need it. */
bool flw_climb_take(struct flw_heap *heap, struct flw_need *need);
bool flw_climb_take_slots(struct flw_heap *heap, struct flw_need *need);
bool flw_climb_take_run(struct flw_heap *heap, struct flw_need *need);
/* The same after slabs without a block out have become runs; after what the calling thread's caches
 * hold has gone to the heap, too. */
bool flw_climb_reclaim(struct flw_climb *climb);
bool flw_climb_own_cache(struct flw_climb *climb);
/* Try again after flushing the calling thread's caches for every stream, among at most this many of the pool's caches:
 * the most recently made or the least recently visited. */
#define FLW_CACHES_A_LOOK 4096
bool flw_climb_own_caches(struct flw_climb *climb, uint32_t most);
/* The same of the runs alone, among FLW_CACHES_A_LOOK. */
bool flw_climb_own_runs(struct flw_climb *climb);
/* The first stage: what lies ready, unless tidying is due first. */
bool flw_stage_own(struct flw_climb *climb);
/* Out of other threads' caches. */
bool flw_stage_caches(struct flw_climb *climb);

/* ---- budget.c */
/* Return a growth request for the need, at any place. */
struct flw_grow_request flw_climb_request(const struct flw_heap *heap, const struct flw_need *need);
uint64_t flw_climb_tight_budget(const struct flw_climb *climb);
uint64_t flw_climb_loose_budget(const struct flw_climb *climb);
uint64_t flw_climb_first_budget(const struct flw_climb *climb);
/* What may be held before anybody waits. */
uint64_t flw_climb_most_budget(const struct flw_climb *climb);
/* How much a growth has to map for the need. */
void flw_climb_want_units(struct flw_climb *climb, uint32_t unit_count);
/* calls. Grow within the budget; a new slab or run is the need's. */
bool flw_climb_grow_within(struct flw_climb *climb, uint64_t budget_bytes);
/* calls. Grow within the budget by moving what is idle, if it has to be. */
bool flw_climb_grow_or_move(struct flw_climb *climb, uint64_t budget_bytes);
/* calls. Several streams, balanced: what is complete moves, without a wait. */
bool flw_climb_move_finished(struct flw_climb *climb);
/* calls. To the limit. */
bool flw_climb_grow_to_limit(struct flw_climb *climb);
/* True if idle memory may be released to the driver in exchange for the memory that is needed: the driver was not
 * asked for it, or has too little. False if the driver would refuse: the released memory would then be lost to the pool.
 * A climb that skips the back-off may try once more, as often as heap/refusal.h permits. Takes the heap lock. */
bool flw_climb_may_exchange(struct flw_climb *climb);
bool flw_stage_grow(struct flw_climb *climb);
/* Without more memory the request fails from here on, or waits. */
bool flw_stage_limit(struct flw_climb *climb);
/* Nothing served: the peak has not risen. */
void flw_climb_forget_rise(const struct flw_climb *climb);

/* ---- steal.c, calls, but may_steal: what other streams have freed. */

/* What they have finished with, the first freed first. */
bool flw_climb_take_finished(struct flw_climb *climb);
/* The same of all there is: every cache of the thread, every fence. Cost: grows with the number of streams. */
bool flw_climb_take_complete(struct flw_climb *climb);
/* Several streams: the need was served without a look at the others; after enough such, one. */
void flw_climb_keep_up(struct flw_climb *climb);
/* May the taker wait for another stream? */
bool flw_climb_may_steal(const struct flw_climb *climb);
/* Of the streams whose fences have stood for longest. */
bool flw_stage_steal(struct flw_climb *climb);
/* Of any. Cost: grows with the number of streams. */
bool flw_climb_steal_any(struct flw_climb *climb);
/* heap lock. May its memory change hands? */
bool flw_climb_is_donor(const struct flw_domain *donor, const struct flw_need *need);
/* heap lock. The streams whose fences have stood for longest; how many. */
#define FLW_DONORS_MOST 8
uint32_t flw_climb_oldest_donors(const struct flw_heap *heap, const struct flw_need *need,
                                 struct flw_domain *donors[FLW_DONORS_MOST]);

/* ---- several.c, calls: what was freed while other streams used it; neighbours of several owners. */
bool flw_climb_take_several(struct flw_climb *climb);

/* ---- deadline.c */
/* calls. Return the device memory that the driver has left; UINT64_MAX: unknown. */
uint64_t flw_climb_device_free(struct flw_heap *heap);
/* True if the host may wait for the device. */
bool flw_climb_may_wait(const struct flw_climb *climb);
/* calls. Return the result of `wait`, or false if the host may not wait. All waits of a climb share wait_ms. Without
 * a deadline (UINT64_MAX) is one that `comes_before_growth` if the driver has the memory: nothing is refused then. */
bool flw_climb_wait(struct flw_climb *climb, bool comes_before_growth,
                    bool (*wait)(struct flw_climb *climb, uint64_t until_ns));
/* calls. Release idle memory until keep_bytes are reserved. Returns false if nothing was released. For segments this
 * waits for the device, if the climb may wait. */
bool flw_climb_release(struct flw_climb *climb, uint64_t keep_bytes);

/* ---- wait.c */
bool flw_stage_remap_wait(struct flw_climb *climb);
bool flw_stage_wait(struct flw_climb *climb);

/* ---- oom.c, calls */
/* The caller's callback, then other pools of the device, without a wait. */
bool flw_stage_callback(struct flw_climb *climb);
/* Make other pools of the device release free memory, waiting for their work until until_ns (0: not at all), and grow
 * into the released memory. Does nothing if the pool's own limit prevents the growth. */
bool flw_climb_ask_others(struct flw_climb *climb, uint64_t until_ns);

/* ---- oom.c */
/* Nothing served: the answer, after what there is to report of it and to log. `fail` is the last place of the
 * ladder; may_come (NULL: no) tells, under the heap lock, whether memory that serves may be free once the device
 * has done more, which is WOULD_WAIT to a request that does not wait. */
fallow_status flw_climb_fail(struct flw_climb *climb, unsigned fail,
                             bool (*may_come)(const struct flw_heap *heap,
                                              const struct flw_need *need));

#endif
