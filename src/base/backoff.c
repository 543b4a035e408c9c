/* SPDX-License-Identifier: Apache-2.0 */
#include "base/backoff.h"

#include <errno.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SPINS      64
#define YIELDS     16
#define SLEEP_NS   20000l
#define SLEEP_MOST 1000000l

void flw_sleep_ns(long ns)
{
    struct timespec left = {.tv_nsec = ns};
    int saved = errno;
    while (syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &left, &left) != 0 && errno == EINTR) {
    }
    errno = saved;
}

void flw_backoff_wait(struct flw_backoff *backoff)
{
    unsigned tries = backoff->tries++;
    if (tries < SPINS) {
        flw_cpu_pause();
        return;
    }
    if (tries < SPINS + YIELDS) {
        int saved = errno;
        (void)sched_yield();
        errno = saved;
    } else {
        unsigned doublings = tries - SPINS - YIELDS;
        long ns = doublings < 6 ? SLEEP_NS << doublings : SLEEP_MOST;
        backoff->tries -= doublings >= 6; /* far from wrapping */
        flw_sleep_ns(ns);
    }
}
