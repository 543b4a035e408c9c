/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the definition of fp8 rows with groups that share a scale: 128 elements, scale =
 * max(largest |v|, 1e-10) / 448, element = v / scale. quantise.cuh is the device code.
 * Does not: access memory. */
#ifndef FLW_KERNELS_QUANTISE_H
#define FLW_KERNELS_QUANTISE_H

#include <math.h>

enum {
    FLW_QUANTISE_GROUP = 128
};
#define FLW_QUANTISE_LEAST 1e-10f
#define FLW_QUANTISE_TOP   448.0f

/* Return the scale of a group; a NaN does not count. */
static inline float flw_quantise_scale(const float *values)
{
    float largest = FLW_QUANTISE_LEAST;
    for (int i = 0; i < FLW_QUANTISE_GROUP; i++) {
        largest = fmaxf(largest, fabsf(values[i]));
    }
    return largest / FLW_QUANTISE_TOP;
}

#endif
