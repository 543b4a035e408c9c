/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: what a pool knows of its sleeps: who watches, what was saved, which tags' contents outlived
 * which sleeps.
 */
#ifndef FLW_POOL_SLEEP_H
#define FLW_POOL_SLEEP_H

#include "base/lock.h"
#include "fallow/sleep.h"

#define FLW_SLEEP_WATCHERS 16

struct flw_sleep_watcher {
    fallow_before_sleep_function before_sleep;
    fallow_after_wake_function after_wake;
    void *context;
};

/* Contents of a block, in one of the chunks. */
struct flw_saved_block {
    uint64_t address, size_bytes;
    unsigned char *copy;
};

/* A tag that every sleep from number `since` to the last one has saved. */
struct flw_kept_tag {
    uint32_t tag;
    uint64_t since;
};

/* Synchronization: the turn (gate.h), but for watchers and kept tags (lock) and the atomics. */
struct flw_sleeper {
    struct flw_lock lock; /* FLW_RANK_META */
    struct flw_sleep_watcher watchers[FLW_SLEEP_WATCHERS];
    uint32_t watcher_count;
    struct flw_kept_tag *kept;
    uint32_t kept_count;
    uint64_t all_kept_since; /* the same of every tag; 0: the last sleep dropped some */

    struct flw_saved_block *saved;
    size_t saved_count;
    void **chunks; /* pinned host memory */
    size_t chunk_count;
    _Atomic uint64_t saved_bytes;
    _Atomic uint64_t serial; /* of the last sleep, counted from 1 */
};

struct flw_pool;
struct flw_extension;

/* Enlisted by the first sleep: its poll gives back what a failure has left of copies. */
extern const struct flw_extension flw_sleep_extension;

/* ---- sleep_watch.c */

/* Those that are there when a turn begins. */
struct flw_sleep_watch {
    struct flw_sleep_watcher watchers[FLW_SLEEP_WATCHERS];
    uint32_t count;
};
void flw_sleep_look_up(struct flw_sleeper *sleeper, struct flw_sleep_watch *watch);
/* True: nobody refused. Else those that were asked are told again by flw_sleep_tell_awake. */
bool flw_sleep_ask(struct flw_sleep_watch *watch);
void flw_sleep_tell_awake(const struct flw_sleep_watch *watch);

/* ---- sleep_contents.c */

/* Room for what a sleep by this request will note: taken before anything has happened. */
struct flw_kept_tag *flw_sleep_make_kept(const fallow_sleep_request *request);
/* The sleep has come about. Takes `kept`. */
void flw_sleep_note_kept(struct flw_sleeper *sleeper, const fallow_sleep_request *request,
                         struct flw_kept_tag *kept);
/* Driver calls, the turn held, all work complete. Copy out what the request wants kept; and back. What
 * was taken before a failure flw_sleep_forget_saved gives back. */
fallow_status flw_sleep_save(struct flw_pool *pool, const fallow_sleep_request *request);
fallow_status flw_sleep_restore(struct flw_pool *pool);
/* Driver calls, but `is_lost`. Whatever of the copies there is; what may be written still, or the driver
 * refuses to enter for, stays. */
void flw_sleep_forget_saved(struct flw_pool *pool, bool is_lost);
/* Have blocks with the tag kept their contents in all sleeps after number `serial`? */
bool flw_sleep_has_kept(struct flw_pool *pool, uint32_t tag, uint64_t serial);

#endif
