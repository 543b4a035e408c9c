/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the arguments of the kernel restore_counters and the twin.
 */
#ifndef FLW_KERNELS_RESTORE_COUNTERS_H
#define FLW_KERNELS_RESTORE_COUNTERS_H

#include <stdint.h>

enum {
    FLW_RESTORE_THREADS = 512
};

struct flw_restore_counters_args {
    int32_t *counters; /* [consumers, count] */
    int32_t *restored; /* [consumers] or NULL */
    int64_t stride;
    int32_t consumers, count;
    int32_t is_vector; /* 16 bytes at a time */
};

#endif
