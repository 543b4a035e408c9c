/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the arguments of the kernel expert_counts and the twin.
 */
#ifndef FLW_KERNELS_EXPERT_COUNTS_H
#define FLW_KERNELS_EXPERT_COUNTS_H

#include "moe/expert_ids.h"

struct flw_expert_counts_args {
    struct flw_expert_ids ids;
    int32_t *counts;          /* [experts] or NULL; so are all outputs */
    int32_t *offsets;         /* [experts + 1] */
    int32_t *ends;            /* [experts] */
    int32_t *positions;       /* [count] */
    int32_t *m_indices;       /* [rows] */
    int32_t *masked_m;        /* [experts] */
    int32_t *problem_sizes_1; /* [experts, 3] */
    int32_t *problem_sizes_2; /* [experts, 3] */
    int32_t *flags;           /* [1] or NULL */
    int64_t rows;
    int64_t masked_rows; /* rows of one expert in the masked form */
    int32_t align;
    int32_t width, intermediate;
    int32_t is_masked; /* positions are those of the masked form */
};

#endif
