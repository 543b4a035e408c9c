/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: integer rules that host, twin and kernel share: clamping a length, a saturated int32 sum,
 * a quotient by a divisor known at launch.
 * Does not: access memory. */
#ifndef FLW_KERNELS_INTEGER_H
#define FLW_KERNELS_INTEGER_H

#include <stdint.h>

#include "fallow/kernels.h"

#ifdef __CUDACC__
#define FLW_HOST_DEVICE __host__ __device__
#else
#define FLW_HOST_DEVICE
#endif

/* Clamp value to [least, most]. */
FLW_HOST_DEVICE static inline int64_t flw_clamp(int64_t value, int64_t least, int64_t most)
{
    return value < least ? least : value > most ? most : value;
}

/* Longer lengths count as this, so that no sum of 65,536 exceeds 64 bits. */
#define FLW_LONGEST (((int64_t)1 << 46) - 1)

/* Return given + delta clamped to [0, most], with flags for clamping. */
FLW_HOST_DEVICE static inline int64_t flw_bound_length(int64_t given, int64_t delta, int64_t most,
                                                       int32_t *bits)
{
    int64_t bounded = given > FLW_LONGEST    ? FLW_LONGEST
                      : given < -FLW_LONGEST ? -FLW_LONGEST
                                             : given;
    int64_t length = bounded + delta;
    if (length < 0) {
        *bits |= FALLOW_FLAG_NEGATIVE;
        return 0;
    }
    if (length > most) {
        *bits |= FALLOW_FLAG_CLAMPED;
        return most;
    }
    return length;
}

/* Saturate a sum to int32. */
FLW_HOST_DEVICE static inline int32_t flw_saturate_i32(int64_t value, int32_t *bits)
{
    if (value > INT32_MAX) {
        *bits |= FALLOW_FLAG_OVERFLOW;
        return INT32_MAX;
    }
    return (int32_t)value;
}

/* x / d as a multiplication, for 0 <= x < 2^31 and 1 <= d < 2^31.
 *
 * With s = 31 + ceil(log2 d) and m = floor(2^s / d) + 1, x m / 2^s is above x / d by at most
 * x / 2^s < 1 / d, so that the floors are equal; m < 2^32 since 2^ceil(log2 d) <= 2 (d - 1), or d is
 * a power of two. */
struct flw_divisor {
    uint32_t multiplier; /* m */
    uint32_t shift;      /* s */
};

static inline struct flw_divisor flw_divisor_of(int32_t d)
{
    uint32_t log2 = 0;
    while (((int64_t)1 << log2) < d) {
        log2++;
    }
    return (struct flw_divisor){.multiplier =
                                    (uint32_t)(((uint64_t)1 << (31 + log2)) / (uint64_t)d + 1),
                                .shift = 31 + log2};
}

FLW_HOST_DEVICE static inline int32_t flw_divide(int32_t x, struct flw_divisor divisor)
{
    return (int32_t)((uint64_t)(uint32_t)x * divisor.multiplier >> divisor.shift);
}

#endif
