/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the arguments of the kernel poison and the twin.
 */
#ifndef FLW_KERNELS_POISON_H
#define FLW_KERNELS_POISON_H

#include <stdint.h>

enum {
    FLW_POISON_THREADS = 256
};

struct flw_poison_args {
    void *memory;
    int64_t bytes;
    uint32_t pattern; /* in each of the four bytes */
};

#endif
