/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: waking a sleeping thread. A ring between reading the count and sleeping is not lost. */
#ifndef FLW_BASE_WAKEUP_H
#define FLW_BASE_WAKEUP_H

#include <errno.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Counts the rings. Zeros are a valid initial value. */
struct flw_wakeup {
    _Atomic uint32_t count;
};

static inline uint32_t flw_wakeup_count(const struct flw_wakeup *wakeup)
{
    return atomic_load_explicit(&wakeup->count, memory_order_acquire);
}

/* Wake all waiters; a system call. */
static inline void flw_wakeup_signal(struct flw_wakeup *wakeup)
{
    int saved = errno;
    atomic_fetch_add_explicit(&wakeup->count, 1, memory_order_release);
    (void)syscall(SYS_futex, &wakeup->count, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
    errno = saved;
}

/* Sleep until the count differs from `heard`, for at most most_ns; may return earlier. Not a
 * cancellation point. */
static inline void flw_wakeup_wait(struct flw_wakeup *wakeup, uint32_t heard, uint64_t most_ns)
{
    struct timespec most = {.tv_sec = (time_t)(most_ns / UINT64_C(1000000000)),
                            .tv_nsec = (long)(most_ns % UINT64_C(1000000000))};
    int saved = errno;
    (void)syscall(SYS_futex, &wakeup->count, FUTEX_WAIT_PRIVATE, heard, &most, NULL, 0);
    errno = saved;
}

#endif
