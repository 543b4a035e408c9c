/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: host time. The coarse clock (a few milliseconds, cheap) is for decay, the fine one for
 * deadlines and measurements. A hit reads neither. */
#ifndef FLW_BASE_CLOCK_H
#define FLW_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t flw_clock_read(clockid_t id)
{
    struct timespec now;
    clock_gettime(id, &now);
    return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

static inline uint64_t flw_clock_fine_ns(void)
{
    return flw_clock_read(CLOCK_MONOTONIC);
}

static inline uint64_t flw_clock_coarse_ns(void)
{
    return flw_clock_read(CLOCK_MONOTONIC_COARSE);
}

#endif
