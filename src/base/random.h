/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: pseudo-random numbers (splitmix64), the same on every machine, because recorded figures
 * and printed seeds depend on them. Does not: seed itself, or keep secrets. */
#ifndef FLW_BASE_RANDOM_H
#define FLW_BASE_RANDOM_H

#include <stdint.h>

/* Return the next number of a state; any state is valid. */
static inline uint64_t flw_random_next(uint64_t *state)
{
    uint64_t x = *state += UINT64_C(0x9E3779B97F4A7C15);
    x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
    return x ^ (x >> 31);
}

#endif
