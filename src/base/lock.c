/* SPDX-License-Identifier: Apache-2.0 */
#include "base/lock.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/backoff.h"

/* About the time of a running holder; a holder that is not running may need this processor. */
#define SPINS 64

/* Interval at which a sleeper checks the lock itself. */
#define SLEEP_NS 1000000l

static bool take_soon(struct flw_lock *lock)
{
    for (unsigned spins = 0; spins < SPINS; spins++) {
        if (atomic_load_explicit(&lock->held, memory_order_relaxed) == 0 && flw_lock_take(lock)) {
            return true;
        }
        flw_cpu_pause(); /* a read only, so that the line stays shared */
    }
    return false;
}

/* A thread that has slept leaves is_awaited set: others may still sleep, and its own release wakes
 * one. */
void flw_lock_wait(struct flw_lock *lock)
{
    const struct timespec most = {.tv_nsec = SLEEP_NS};
    struct flw_backoff backoff = {0};
    int saved = errno;
    if (take_soon(lock)) {
        return;
    }
    for (;;) {
        __atomic_store_n(&lock->is_awaited, 1, __ATOMIC_SEQ_CST);
        if (flw_lock_take(lock)) {
            break;
        }
        if (syscall(SYS_futex, &lock->held, FUTEX_WAIT_PRIVATE, 1, &most) != 0 && errno != EAGAIN &&
            errno != EINTR && errno != ETIMEDOUT) {
            flw_backoff_wait(&backoff); /* a sandbox without futexes */
        }
    }
    errno = saved;
}

/* The lock is free already. */
void flw_lock_wake(struct flw_lock *lock)
{
    int saved = errno;
    __atomic_store_n(&lock->is_awaited, 0, __ATOMIC_RELAXED);
    (void)syscall(SYS_futex, &lock->held, FUTEX_WAKE_PRIVATE, 1);
    errno = saved;
}

#if FLW_CHECK_LEVEL >= 1
/* Bit r is set while a lock of rank r is held. Initial-exec: other models allocate on first use. */
static _Thread_local unsigned held_ranks __attribute__((tls_model("initial-exec")));

void flw_lock_note_acquire(unsigned rank)
{
    FLW_ASSERT(rank < FLW_RANK_COUNT && (held_ranks >> rank) == 0);
    held_ranks |= 1u << rank;
}

void flw_lock_note_release(unsigned rank)
{
    FLW_ASSERT((held_ranks & (1u << rank)) != 0);
    held_ranks &= ~(1u << rank);
}

bool flw_lock_none_held(void)
{
    return held_ranks == 0;
}
#endif
