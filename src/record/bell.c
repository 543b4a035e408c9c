/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the futex.
 */
#include "record/bell.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_SECOND UINT64_C(1000000000)

void flw_bell_ring(struct flw_bell *bell)
{
    int saved = errno;
    atomic_fetch_add_explicit(&bell->count, 1, memory_order_release);
    (void)syscall(SYS_futex, &bell->count, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
    errno = saved;
}

void flw_bell_wait(struct flw_bell *bell, uint32_t heard, uint64_t most_ns)
{
    struct timespec most = {.tv_sec = (time_t)(most_ns / NS_PER_SECOND),
                            .tv_nsec = (long)(most_ns % NS_PER_SECOND)};
    (void)syscall(SYS_futex, &bell->count, FUTEX_WAIT_PRIVATE, heard, &most, NULL, 0);
}
