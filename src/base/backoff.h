/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: how a thread waits for what another one does soon and does not announce: it spins, then yields,
 * then sleeps, each time for longer. Does not: wait for a lock (lock.h), whose holder wakes it.
 *
 * The sleep is what ends every such wait: where the waiter has a real-time priority (SCHED_FIFO) and
 * the other has none, a processor that both share is not given to the other by a yield.
 */
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

/* Of one wait; starts as 0. */
struct flw_backoff {
    unsigned tries;
};

/* The processor's hint that this is a spin. */
static inline void flw_cpu_pause(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* So long, also where signals come. Keeps errno. No cancellation point, as nanosleep is one: a thread that
 * has been cancelled (pthread_cancel) may be inside a cache here, or hold what others wait for. It ends
 * after the call. */
static inline void flw_sleep_ns(long ns)
{
    struct timespec left = {.tv_nsec = ns};
    int saved = errno;
    while (syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &left, &left) != 0 && errno == EINTR) {
    }
    errno = saved;
}

/* Between two looks. A millisecond at most. Keeps errno. No cancellation point. */
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
        backoff->tries -= doublings >= 6; /* far from wrapping */
        flw_sleep_ns(ns);
    }
}

#endif
