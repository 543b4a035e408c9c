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
void flw_sleep_ns(long ns);

/* Between two looks. A millisecond at most. Keeps errno. No cancellation point. */
void flw_backoff_wait(struct flw_backoff *backoff);

#endif
