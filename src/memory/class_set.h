/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a set of size classes, one bit each, so that loops skip all other classes. */
#ifndef FLW_MEMORY_CLASS_SET_H
#define FLW_MEMORY_CLASS_SET_H

#include <stdbool.h>
#include <string.h>

#include "memory/size_class.h"

#define FLW_CLASS_WORDS ((FLW_CLASS_COUNT + 63) / 64)

struct flw_class_set {
    uint64_t bits[FLW_CLASS_WORDS];
};

/* (Whole stores: statistics read the sets of all caches without synchronisation.) */
static inline void flw_class_set_add(struct flw_class_set *set, unsigned class_index)
{
    uint64_t *bits = &set->bits[class_index / 64];
    __atomic_store_n(bits, *bits | 1ull << (class_index % 64), __ATOMIC_RELAXED);
}

static inline void flw_class_set_remove(struct flw_class_set *set, unsigned class_index)
{
    set->bits[class_index / 64] &= ~(1ull << (class_index % 64));
}

static inline bool flw_class_set_has(const struct flw_class_set *set, unsigned class_index)
{
    return (set->bits[class_index / 64] >> (class_index % 64) & 1) != 0;
}

static inline struct flw_class_set flw_class_set_all(void)
{
    struct flw_class_set all;
    memset(&all, 0xFF, sizeof all);
    return all;
}

/* Return the intersection. */
static inline struct flw_class_set flw_class_set_both(const struct flw_class_set *a,
                                                      const struct flw_class_set *b)
{
    struct flw_class_set both;
    for (unsigned word = 0; word < FLW_CLASS_WORDS; word++) {
        both.bits[word] = a->bits[word] & b->bits[word];
    }
    return both;
}

/* Return the first class at or after `from`; FLW_CLASS_COUNT if there is none. */
static inline unsigned flw_class_set_next(const struct flw_class_set *set, unsigned from)
{
    for (; from < FLW_CLASS_COUNT; from = (from / 64 + 1) * 64) {
        uint64_t bits = __atomic_load_n(&set->bits[from / 64], __ATOMIC_RELAXED) >> (from % 64);
        if (bits != 0) {
            return from + flw_lowest_bit(bits);
        }
    }
    return FLW_CLASS_COUNT;
}

/* Loop over the classes of a set. The body may remove the present class. */
#define FLW_EACH_CLASS(c, set)                                           \
    for (unsigned c = flw_class_set_next((set), 0); c < FLW_CLASS_COUNT; \
         c = flw_class_set_next((set), c + 1))

#endif
