/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: integer arithmetic on sizes and bit masks, and the two branch hints. */
#ifndef FLW_BASE_BITS_H
#define FLW_BASE_BITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FLW_LIKELY(x)   __builtin_expect(!!(x), 1)
#define FLW_UNLIKELY(x) __builtin_expect(!!(x), 0)
/* Reads of counters that their owner writes without synchronisation. By design, a sum is exact if
 * no owner runs and an estimate otherwise. */
#if defined(FLW_TSAN)
#define FLW_SNAPSHOT        __attribute__((no_sanitize("thread"), noinline))
#define FLW_SNAPSHOT_INLINE static __attribute__((no_sanitize("thread"), noinline, unused))
#else
#define FLW_SNAPSHOT
#define FLW_SNAPSHOT_INLINE static inline
#endif
#define FLW_NOINLINE __attribute__((noinline))
#define FLW_INLINE   inline __attribute__((always_inline))

__extension__ typedef unsigned __int128 flw_u128;

#define FLW_KIB (1024ull)
#define FLW_MIB (1024ull * FLW_KIB)
#define FLW_GIB (1024ull * FLW_MIB)

/* A cache line has 64 B and the adjacent-line prefetcher loads pairs, so data of different threads
 * is 128 B apart. */
#define FLW_LINE_PAIR 128

static inline bool flw_is_pow2(uint64_t x)
{
    return x != 0 && (x & (x - 1)) == 0;
}

/* Return floor(log2(x)); x > 0. */
static inline unsigned flw_log2_floor(uint64_t x)
{
    return 63u ^ (unsigned)__builtin_clzll(x);
}

/* Return the index of the lowest set bit; x > 0. */
static inline unsigned flw_lowest_bit(uint64_t x)
{
    return (unsigned)__builtin_ctzll(x);
}

/* Return the next multiple of a power of two. The caller excludes an overflow. */
static inline uint64_t flw_align_up(uint64_t x, uint64_t pow2)
{
    return (x + pow2 - 1) & ~(pow2 - 1);
}

static inline uint64_t flw_align_down(uint64_t x, uint64_t pow2)
{
    return x & ~(pow2 - 1);
}

static inline uint64_t flw_div_up(uint64_t x, uint64_t divisor)
{
    return x / divisor + (x % divisor != 0);
}

static inline uint64_t flw_min(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline uint64_t flw_max(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static inline uint64_t flw_clamp(uint64_t x, uint64_t low, uint64_t high)
{
    return x < low ? low : x > high ? high : x;
}

#endif
