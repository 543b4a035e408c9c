/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the lock of the slow paths and the lock order.
 *
 * A lock is held for a few hundred instructions, and never over a driver call, a callback or a
 * wait, except FLW_RANK_SEIZE. A waiter spins for about as long, since the holder is usually
 * running, and then sleeps in the kernel, so that a holder that has lost the processor to the
 * waiter (SCHED_FIFO beside an ordinary thread) gets it back. A lock word with the holder's id
 * would let the kernel give the holder the waiter's priority (FUTEX_LOCK_PI); the price would be a
 * read of the thread id in each acquire and release. malloc's locks, which all these threads take
 * too, also do without.
 *
 * A release is a store and a read of is_awaited, without a locked instruction. The processor may
 * do the read before the store is visible and so miss a thread that falls asleep just then; a
 * sleeper therefore checks the lock again after a millisecond.
 *
 * Check builds track the ranks of each thread's locks and abort if an acquisition is not strictly
 * above all of them. The list below is the lock order. */
#ifndef FLW_BASE_LOCK_H
#define FLW_BASE_LOCK_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/bits.h"
#include "base/check.h"

/* Lowest first. A thread may only take a lock of a higher rank than every lock it holds. */
enum flw_lock_rank {
    FLW_RANK_LIFECYCLE = 1, /* end of a thread versus end of a pool */
    FLW_RANK_SEIZE,         /* a pool's draining of the caches; held over a membarrier and a
                                wait */
    FLW_RANK_POOL,          /* one pool's lists: streams, caches, captures */
    FLW_RANK_CACHE,         /* one thread cache: owner's slow path and drainers; never two at
                                once */
    FLW_RANK_USES,          /* a pool's announced uses and tags */
    FLW_RANK_PAGE,          /* a pool's heap: batches, sequence numbers, runs, handles, limits */
    FLW_RANK_META,          /* metadata memory */
    FLW_RANK_RECORD,        /* a recorder's rings, streams and names */
    FLW_RANK_AUDIT,         /* the audit's blocks and page; no other lock is held or taken */
    FLW_RANK_COUNT
};

struct flw_lock {
    atomic_uint held;    /* 1: held */
    unsigned is_awaited; /* 1: a thread may sleep until the release; atomic */
    unsigned rank;       /* immutable after init */
};

static inline void flw_lock_init(struct flw_lock *lock, enum flw_lock_rank rank)
{
    *lock = (struct flw_lock){.rank = (unsigned)rank};
}

void flw_lock_wait(struct flw_lock *lock); /* wait until the caller holds the lock */
void flw_lock_wake(struct flw_lock *lock);
#if FLW_CHECK_LEVEL >= 1
void flw_lock_note_acquire(unsigned rank);
void flw_lock_note_release(unsigned rank);
/* True if the calling thread holds no ranked lock; asserted before every driver call. */
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

/* (Without a sanitizer a plain read, which is one instruction with the compare.) */
static inline bool flw_lock_is_awaited(const struct flw_lock *lock)
{
#if defined(__x86_64__) && !defined(FLW_TSAN)
    atomic_signal_fence(memory_order_seq_cst);
    return lock->is_awaited == 1; /* "!= 0" would compile to a load and a test */
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
