/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the arguments of the kernel validate_ids and the twin.
 */
#ifndef FLW_KERNELS_VALIDATE_IDS_H
#define FLW_KERNELS_VALIDATE_IDS_H

#include <stdint.h>

#include "fallow/debug_kernels.h"

enum {
    FLW_VALIDATE_IDS_THREADS = 256
};

struct flw_validate_ids_args {
    const int32_t *ids;             /* [rows, top_k] */
    const int32_t *valid_rows;      /* [1] or NULL */
    fallow_validate_report *report; /* [1] */
    int64_t stride;
    int32_t rows, top_k, id_count;
};

#endif
