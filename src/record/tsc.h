/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the recorder's clock: the processor's time stamp counter if it has the same rate on all
 * cores and at all speeds, otherwise CLOCK_MONOTONIC; and the conversion of the ticks to ns. */
#ifndef FLW_RECORD_TSC_H
#define FLW_RECORD_TSC_H

#include <stdbool.h>
#include <stdint.h>

#include "base/bits.h"
#include "base/clock.h"

/* True if the counter can be used instead of the clock. */
bool flw_tsc_is_usable(void);

/* Read the clock. `is_ordered`: not before earlier instructions, which the counter may otherwise
 * precede; about twice the time. */
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

/* The line through two moments. */
struct flw_tsc_line {
    struct flw_tsc_pair from;
    uint64_t scale; /* ns per tick, in steps of 2^-FLW_TSC_SCALE_LOG2 */
};
#define FLW_TSC_SCALE_LOG2 48 /* the error of an hour is at most 0.04 ns */

struct flw_tsc_line flw_tsc_line_through(const struct flw_tsc_pair *from,
                                         const struct flw_tsc_pair *to);

/* Convert a tick between the two moments to ns. Ticks before the first count as the first. */
static inline uint64_t flw_tsc_ns(const struct flw_tsc_line *line, uint64_t ticks)
{
    uint64_t since = ticks > line->from.ticks ? ticks - line->from.ticks : 0;
    return line->from.ns + (uint64_t)((flw_u128)since * line->scale >> FLW_TSC_SCALE_LOG2);
}

#endif
