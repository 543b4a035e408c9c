/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the lock of the slow paths and its order.
 *
 * A lock is held for a few hundred instructions and never over a driver call, a callback or a wait, but
 * for FLW_RANK_SEIZE. Whoever finds it held spins for about as long, since the holder is mostly running,
 * and then sleeps in the kernel: a holder that has lost its processor to the waiter (SCHED_FIFO beside
 * an ordinary thread) gets it back. A word that says who holds it would let the kernel give the
 * holder the waiter's priority against a third thread in between (FUTEX_LOCK_PI); that costs each
 * acquire and release a look at the thread's number, and is what malloc's locks, which all these
 * threads take as well, do without.
 *
 * A release is a store and a look whether somebody sleeps, with no locked instruction. The processor may
 * look before its store is seen, and so miss one who falls asleep at this moment: a sleeper looks again
 * by itself after a millisecond.
 *
 * Check builds keep a thread's held ranks and abort when an acquisition is not strictly above them;
 * the list below *is* the lock order.
 */
#ifndef FLW_BASE_LOCK_H
#define FLW_BASE_LOCK_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/bits.h"
#include "base/check.h"

/* Lowest first. A thread may only take a lock of a higher rank than every lock it holds. */
enum flw_lock_rank {
    FLW_RANK_LIFECYCLE = 1, /* the end of a thread against the end of a pool */
    FLW_RANK_SEIZE,         /* a pool's seizure of its caches: over a membarrier and a wait */
    FLW_RANK_POOL,          /* one pool's lists: streams, caches, captures */
    FLW_RANK_CACHE,         /* one thread cache: owner's slow path, drainers; never two at once */
    FLW_RANK_USES,          /* a pool's announced uses and tags */
    FLW_RANK_PAGE,          /* a pool's heap: batches, sequence numbers, runs, handles, limits */
    FLW_RANK_META,          /* metadata memory */
    FLW_RANK_RECORD,        /* a recorder's rings, streams and names */
    FLW_RANK_AUDIT,         /* the audit's blocks and page; nothing else is held or taken */
    FLW_RANK_COUNT
};

struct flw_lock {
    atomic_uint held;    /* 1: it is */
    unsigned is_awaited; /* 1: somebody may sleep until it is free. Atomic */
    unsigned rank;       /* immutable after init */
};

static inline void flw_lock_init(struct flw_lock *lock, enum flw_lock_rank rank)
{
    *lock = (struct flw_lock){.rank = (unsigned)rank};
}

void flw_lock_wait(struct flw_lock *lock); /* until it is the caller's */
void flw_lock_wake(struct flw_lock *lock);
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

static inline bool flw_lock_take(struct flw_lock *lock)
{
    return (atomic_fetch_or_explicit(&lock->held, 1, memory_order_acquire) & 1) == 0;
}

static inline void flw_lock_acquire(struct flw_lock *lock)
{
    flw_lock_note_acquire(lock->rank);
    if (FLW_UNLIKELY(!flw_lock_take(lock))) {
        flw_lock_wait(lock);
    }
}

static inline bool flw_lock_try(struct flw_lock *lock)
{
    bool is_taken = flw_lock_take(lock);
    if (is_taken) {
        flw_lock_note_acquire(lock->rank);
    }
    return is_taken;
}

/* (A plain look, where nothing watches for it, is one instruction with its compare.) */
static inline bool flw_lock_is_awaited(const struct flw_lock *lock)
{
#if defined(__x86_64__) && !defined(FLW_TSAN)
    atomic_signal_fence(memory_order_seq_cst);
    return lock->is_awaited == 1; /* not "!= 0", which becomes a load and a test */
#else
    return __atomic_load_n(&lock->is_awaited, __ATOMIC_RELAXED) != 0;
#endif
}

static inline void flw_lock_release(struct flw_lock *lock)
{
    flw_lock_note_release(lock->rank);
    atomic_store_explicit(&lock->held, 0, memory_order_release);
    if (FLW_UNLIKELY(flw_lock_is_awaited(lock))) {
        flw_lock_wake(lock);
    }
}

#endif
