/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the median of a series of measurements.
 */
#ifndef FLW_TOOL_MEDIAN_H
#define FLW_TOOL_MEDIAN_H

#include <stddef.h>
#include <stdlib.h>

static inline int flw_median_compare(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

/* Middle of `count` values, 0 of none; sorts them. */
static inline double flw_median(double *values, size_t count)
{
    if (count == 0) {
        return 0;
    }
    qsort(values, count, sizeof *values, flw_median_compare);
    return count % 2 == 1 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

#endif
