/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the cheapest clock there is for timing single operations, and its conversion to ns.
 * Does not: agree between sockets; one thread's differences only.
 */
#ifndef FLW_TOOL_TICKS_H
#define FLW_TOOL_TICKS_H

#include <stdint.h>

#include "base/clock.h"

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

static inline uint64_t flw_ticks(void)
{
#if defined(__x86_64__)
    return __rdtsc();
#else
    return flw_clock_fine_ns();
#endif
}

struct flw_tick_rate {
    uint64_t first_ticks, first_ns;
};

static inline struct flw_tick_rate flw_ticks_start(void)
{
    struct flw_tick_rate rate = {.first_ticks = flw_ticks(), .first_ns = flw_clock_fine_ns()};
    return rate;
}

/* ns a tick, over the time since the start. */
static inline double flw_ticks_ns(const struct flw_tick_rate *rate)
{
    uint64_t ticks = flw_ticks() - rate->first_ticks;
    uint64_t ns = flw_clock_fine_ns() - rate->first_ns;
    return ticks == 0 ? 1.0 : (double)ns / (double)ticks;
}

/* What reading the clock twice costs by itself: the smallest of a few tries. */
static inline uint64_t flw_ticks_overhead(void)
{
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < 64; i++) {
        uint64_t begin = flw_ticks();
        uint64_t ticks = flw_ticks() - begin;
        least = ticks < least ? ticks : least;
    }
    return least;
}

#endif
