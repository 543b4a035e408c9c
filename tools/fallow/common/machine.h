/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: facts of the machine of a measurement, binding a thread to a processor, preemptions; the cheapest clock for
 * single operations, which is valid within one thread; the median.
 */
#ifndef FLW_TOOL_MACHINE_H
#define FLW_TOOL_MACHINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/clock.h"

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

void flw_machine_cpu_name(char *name, size_t bytes);
const char *flw_machine_compiler(void);
size_t flw_machine_cpu_count(void);
/* Bind the calling thread to allowed CPU n modulo their number. Returns false if refused. */
bool flw_machine_pin(size_t n);
/* Return the number of times that the calling thread was preempted. */
uint64_t flw_machine_switches(void);

/* ---- single operations ---- */

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

/* Return the ns of a tick since the start. */
static inline double flw_ticks_ns(const struct flw_tick_rate *rate)
{
    uint64_t ticks = flw_ticks() - rate->first_ticks;
    uint64_t ns = flw_clock_fine_ns() - rate->first_ns;
    return ticks == 0 ? 1.0 : (double)ns / (double)ticks;
}

/* Return the least ticks between two readings of the clock. */
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

/* ---- series ---- */

static inline int flw_median_compare(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

/* Sort the values and return their median; 0 of none. */
static inline double flw_median(double *values, size_t count)
{
    if (count == 0) {
        return 0;
    }
    qsort(values, count, sizeof *values, flw_median_compare);
    return count % 2 == 1 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

#endif
