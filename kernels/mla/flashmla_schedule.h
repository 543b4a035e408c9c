/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the arguments of the kernel flashmla_schedule and the twin.
 */
#ifndef FLW_KERNELS_FLASHMLA_SCHEDULE_H
#define FLW_KERNELS_FLASHMLA_SCHEDULE_H

#include <stdint.h>

enum {
    FLW_FLASHMLA_SCHEDULE_THREADS = 1024, /* and requests per step */
    FLW_FLASHMLA_SCHEDULE_PARTS = 1024,   /* at most */
    FLW_FLASHMLA_SCHEDULE_ROW = 8         /* words of a part's row */
};

struct flw_flashmla_schedule_args {
    const int32_t *lengths;     /* [batch] */
    const int32_t *valid_count; /* [1] or NULL */
    int32_t *tile_metadata;     /* [parts, 8], aligned to 16 bytes */
    int32_t *num_splits;        /* [batch + 1] */
    int32_t *flags;             /* [1] or NULL */
    int32_t batch, parts, block_size, overhead;
};

#endif
