/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the lock of the slow paths and its order.
 *
 * A lock is held for a few hundred instructions and never over a driver call, a callback or a wait,
 * so it is one word: test-and-set, then spin briefly, then yield. Check builds keep a thread's held
 * ranks and abort when an acquisition is not strictly above them; the list below *is* the lock
 * order.
 */
#ifndef FLW_BASE_LOCK_H
#define FLW_BASE_LOCK_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/check.h"

/* Lowest first. A thread may only take a lock of a higher rank than every lock it holds. */
enum flw_lock_rank {
    FLW_RANK_LIFECYCLE = 1, /* the end of a thread against the end of a pool */
    FLW_RANK_POOL,          /* one pool's lists: streams, caches, captures */
    FLW_RANK_CACHE,         /* one thread cache, against its drainers; never two at once */
    FLW_RANK_USES,          /* a pool's announced uses and tags */
    FLW_RANK_PAGE,          /* a pool's heap: batches, tickets, runs, handles, limits */
    FLW_RANK_META,          /* metadata memory */
    FLW_RANK_RECORD,        /* a recorder's rings, streams and names */
    FLW_RANK_AUDIT,         /* the audit's blocks and page; nothing else is held or taken */
    FLW_RANK_COUNT
};

struct flw_lock {
    atomic_uint held; /* 0 free, 1 held */
    unsigned rank;    /* immutable after init */
};

static inline void flw_lock_init(struct flw_lock *lock, enum flw_lock_rank rank)
{
    atomic_init(&lock->held, 0);
    lock->rank = (unsigned)rank;
}

void flw_lock_wait(struct flw_lock *lock);
#if FLW_CHECK_LEVEL >= 1
void flw_lock_note_acquire(unsigned rank);
void flw_lock_note_release(unsigned rank);
/* True when the calling thread holds no ranked lock: asserted before every driver call. */
bool flw_lock_none_held(void);
#else
static inline void flw_lock_note_acquire(unsigned rank)
{
    (void)rank;
}
static inline void flw_lock_note_release(unsigned rank)
{
    (void)rank;
}
static inline bool flw_lock_none_held(void)
{
    return true;
}
#endif

static inline void flw_lock_acquire(struct flw_lock *lock)
{
    flw_lock_note_acquire(lock->rank);
    if (atomic_exchange_explicit(&lock->held, 1, memory_order_acquire) != 0) {
        flw_lock_wait(lock);
    }
}

static inline bool flw_lock_try(struct flw_lock *lock)
{
    if (atomic_load_explicit(&lock->held, memory_order_relaxed) != 0 ||
        atomic_exchange_explicit(&lock->held, 1, memory_order_acquire) != 0) {
        return false;
    }
    flw_lock_note_acquire(lock->rank);
    return true;
}

static inline void flw_lock_release(struct flw_lock *lock)
{
    flw_lock_note_release(lock->rank);
    atomic_store_explicit(&lock->held, 0, memory_order_release);
}

#endif
