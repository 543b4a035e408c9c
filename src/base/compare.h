/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: orders of plain numbers, and of structures that begin with one: for qsort, bsearch and binary search.
 */
#ifndef FLW_BASE_COMPARE_H
#define FLW_BASE_COMPARE_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

static inline int flw_compare_u32(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a;
    uint32_t y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static inline int flw_compare_u64(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a;
    uint64_t y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Sort an array, which may be NULL if it is empty. */
#define FLW_SORT(array, count, compare) \
    ((count) > 1 ? qsort((array), (count), sizeof *(array), (compare)) : (void)0)

/* Return how many elements of an ascending list begin with a number below `key`. */
static inline size_t flw_count_below(const void *list, size_t count, size_t element_bytes,
                                     uint64_t key)
{
    size_t low = 0;
    size_t high = count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (*(const uint64_t *)(const void *)((const char *)list + middle * element_bytes) < key) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

#endif
