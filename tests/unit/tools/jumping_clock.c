/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a library to preload that makes the clock jump: each read of a clock returns at least a second more than
 * the previous read, as if the machine had stopped the program in between.
 */
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

__attribute__((visibility("default"))) int clock_gettime(clockid_t id, struct timespec *now)
{
    static atomic_long seconds;
    int result = (int)syscall(SYS_clock_gettime, id, now);
    now->tv_sec += atomic_fetch_add(&seconds, 1);
    return result;
}
