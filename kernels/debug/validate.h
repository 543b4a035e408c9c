/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the arguments of the kernel validate and the twin.
 */
#ifndef FLW_KERNELS_VALIDATE_H
#define FLW_KERNELS_VALIDATE_H

#include <stdint.h>

#include "fallow/debug_kernels.h"

enum {
    FLW_VALIDATE_THREADS = 256
};

/* Adjacent rows are one stretch: `is_flat`; otherwise a stretch is a row. An element is read as an
 * unsigned number of the size. */
struct flw_validate_args {
    const void *data;
    const int32_t *valid_rows;      /* [1] or NULL */
    fallow_validate_report *report; /* [1] */
    uint64_t pattern;               /* in every byte of an element; zeros above */
    uint64_t nan_mask, nan_above;   /* NaN: (element & nan_mask) > nan_above; a mask of 0: no NaN */
    int64_t rows, width;
    int64_t stride, stretch; /* elements: from one stretch to the next, and of one */
    uint32_t element_bytes;  /* 1, 2, 4, 8 */
    uint32_t blocks_per_stretch;
    int32_t is_flat, is_vector, is_guard;
};

#endif
