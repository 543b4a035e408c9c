/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: waiting for an event that another thread causes soon and does not announce: spin, then
 * yield, then sleep, each time longer. Does not: wait for a lock (lock.h), whose holder wakes the
 * waiter.
 *
 * The sleep guarantees progress: if the waiter has a real-time priority (SCHED_FIFO) and the other
 * thread has none, a yield does not give it the processor that both share. */
#ifndef FLW_BASE_BACKOFF_H
#define FLW_BASE_BACKOFF_H

#include <errno.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define FLW_BACKOFF_SPINS   64
#define FLW_BACKOFF_YIELDS  16
#define FLW_BACKOFF_NS      20000l
#define FLW_BACKOFF_MOST_NS 1000000l

/* Progress of one wait; starts as 0. */
struct flw_backoff {
    unsigned tries;
};

/* Hint to the processor that this is a spin loop. */
static inline void flw_cpu_pause(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Sleep for `ns`, without regard to signals. Keeps errno. Not a cancellation point, unlike
 * nanosleep: a cancelled thread (pthread_cancel) may be inside a cache here, or hold a lock. */
static inline void flw_sleep_ns(long ns)
{
    struct timespec left = {.tv_nsec = ns};
    int saved = errno;
    while (syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &left, &left) != 0 && errno == EINTR) {
    }
    errno = saved;
}

/* Wait between two polls, for at most a millisecond. Keeps errno. Not a cancellation point. */
static inline void flw_backoff_wait(struct flw_backoff *backoff)
{
    unsigned tries = backoff->tries++;
    if (tries < FLW_BACKOFF_SPINS) {
        flw_cpu_pause();
        return;
    }
    if (tries < FLW_BACKOFF_SPINS + FLW_BACKOFF_YIELDS) {
        int saved = errno;
        (void)sched_yield();
        errno = saved;
    } else {
        unsigned doublings = tries - FLW_BACKOFF_SPINS - FLW_BACKOFF_YIELDS;
        long ns = doublings < 6 ? FLW_BACKOFF_NS << doublings : FLW_BACKOFF_MOST_NS;
        backoff->tries -= doublings >= 6; /* prevents overflow */
        flw_sleep_ns(ns);
    }
}

#endif
