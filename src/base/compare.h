/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: orders of plain numbers, for qsort and bsearch.
 */
#ifndef FLW_BASE_COMPARE_H
#define FLW_BASE_COMPARE_H

#include <stdint.h>

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

#endif
