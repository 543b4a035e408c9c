/* SPDX-License-Identifier: Apache-2.0 */
#include "base/backoff.h"

#include <errno.h>
#include <sched.h>
#include <time.h>

#define SPINS      64
#define YIELDS     16
#define SLEEP_NS   20000l
#define SLEEP_MOST 1000000l

void flw_backoff_wait(struct flw_backoff *backoff)
{
    unsigned tries = backoff->tries++;
    if (tries < SPINS) {
        flw_cpu_pause();
        return;
    }
    int saved = errno;
    if (tries < SPINS + YIELDS) {
        (void)sched_yield();
    } else {
        unsigned doublings = tries - SPINS - YIELDS;
        long ns = doublings < 6 ? SLEEP_NS << doublings : SLEEP_MOST;
        backoff->tries -= doublings >= 6; /* far from wrapping */
        (void)nanosleep(&(struct timespec){.tv_nsec = ns}, NULL);
    }
    errno = saved;
}
