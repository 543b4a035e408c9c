/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the size classes and the shape of each class's slab, all computed by the formula below.
 *
 *   class 0          256 B
 *   classes 1..8     multiples of 512 B to 4 KiB
 *   classes 9..72    eight per doubling from 4 KiB to 1 MiB
 *
 * Every class from 512 B up is a multiple of 512 B, and so are its slots' addresses. Waste: up to
 * 4 KiB at most 511 B; up to 1 MiB at most 12.5 % of the request (the step of a doubling is an
 * eighth of its lower end). */
#ifndef FLW_MEMORY_SIZE_CLASS_H
#define FLW_MEMORY_SIZE_CLASS_H

#include <stdint.h>

#include "base/bits.h"

#define FLW_UNIT_BYTES      (64 * FLW_KIB) /* runs and slabs consist of units */
#define FLW_UNIT_LOG2       16
#define FLW_CLASS_COUNT     73
#define FLW_CLASS_MAX_BYTES FLW_MIB
#define FLW_SLAB_STEPS      9  /* sizes: the smallest times 2^0 .. 2^8 */
#define FLW_SLAB_MAX_UNITS  64 /* 4 MiB, except for very large classes */
#define FLW_SLAB_MANY_SLOTS 256

/* Return the smallest class that holds size_bytes; 1 <= size_bytes <= FLW_CLASS_MAX_BYTES. */
static inline unsigned flw_class_of(uint64_t size_bytes)
{
    if (size_bytes <= 256) {
        return 0;
    }
    if (size_bytes <= 4096) {
        return (unsigned)((size_bytes + 511) / 512);
    }
    unsigned doubling = flw_log2_floor(size_bytes - 1); /* 12 .. 19 */
    uint64_t above = size_bytes - 1 - (1ull << doubling);
    return 9 + (doubling - 12) * 8 + (unsigned)(above >> (doubling - 3));
}

static inline uint64_t flw_class_bytes(unsigned class_index)
{
    if (class_index == 0) {
        return 256;
    }
    if (class_index <= 8) {
        return 512ull * class_index;
    }
    return (uint64_t)(9 + (class_index - 9) % 8) << (9 + (class_index - 9) / 8);
}

/* Return the units of the class's smallest slab: the fewest with a tail of at most 3 %. */
static inline uint32_t flw_class_slab_units(unsigned class_index)
{
    uint64_t size = flw_class_bytes(class_index);
    for (uint32_t units = (uint32_t)flw_div_up(size, FLW_UNIT_BYTES);; units++) {
        uint64_t bytes = units * FLW_UNIT_BYTES;
        if (bytes >= size && (bytes % size) * 100 <= bytes * 3) {
            return units;
        }
    }
}

/* Return the class for a request with an alignment: the smallest that is a multiple of the
 * alignment and holds the size; FLW_CLASS_COUNT if none does (use a run). Slots of such a class
 * have the alignment, because a slab's base is aligned to a unit. */
static inline unsigned flw_class_of_aligned(uint64_t size_bytes, uint64_t align_bytes)
{
    if (size_bytes > FLW_CLASS_MAX_BYTES || align_bytes > FLW_UNIT_BYTES) {
        return FLW_CLASS_COUNT;
    }
    for (unsigned i = flw_class_of(size_bytes); i < FLW_CLASS_COUNT; i++) {
        if (flw_class_bytes(i) % align_bytes == 0) {
            return i;
        }
    }
    return FLW_CLASS_COUNT;
}

/* Largest request with a run or class size that does not overflow. */
#define FLW_REQUEST_MAX (1ull << 46)

/* Return the bytes that a request occupies: its class, or whole units. */
static inline uint64_t flw_request_usable_bytes(uint64_t size_bytes)
{
    return size_bytes <= FLW_CLASS_MAX_BYTES ? flw_class_bytes(flw_class_of(size_bytes))
                                             : flw_align_up(size_bytes, FLW_UNIT_BYTES);
}

#endif
