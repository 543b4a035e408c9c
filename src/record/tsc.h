/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the recorder's clock: the processor's time stamp counter where it counts alike on all cores
 * and at all speeds, else CLOCK_MONOTONIC; and the way from its ticks to ns.
 */
#ifndef FLW_RECORD_TSC_H
#define FLW_RECORD_TSC_H

#include <stdbool.h>
#include <stdint.h>

#include "base/bits.h"
#include "base/clock.h"

/* May the counter be read instead of the clock? */
bool flw_tsc_is_usable(void);

/* `is_ordered`: not before what comes before it in the program, which the counter may be read ahead
 * of otherwise; about twice the time. */
static inline uint64_t flw_tsc_read(bool uses_tsc, bool is_ordered)
{
#if defined(__x86_64__)
    if (FLW_LIKELY(uses_tsc)) {
        unsigned core;
        return is_ordered ? __builtin_ia32_rdtscp(&core) : __builtin_ia32_rdtsc();
    }
#endif
    (void)uses_tsc;
    (void)is_ordered;
    return flw_clock_fine_ns();
}

/* One moment on both clocks. */
struct flw_tsc_pair {
    uint64_t ticks, ns;
};

struct flw_tsc_pair flw_tsc_pair_now(bool uses_tsc);

/* The ns of a tick between two moments, on the line through them. Ticks before `from` are taken for
 * it. */
uint64_t flw_tsc_ns(const struct flw_tsc_pair *from, const struct flw_tsc_pair *to, uint64_t ticks);

#endif
