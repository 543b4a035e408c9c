/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the fat binaries inside the library, one per kernel: image.c places <name>.fatbin between
 * two symbols. Without nvcc there are none and FLW_IMAGE is NULL. The build defines
 * FLW_KERNEL_GENERATIONS. */
#ifndef FLW_KERNELS_IMAGE_H
#define FLW_KERNELS_IMAGE_H

#include "common/kernel_list.h"

#if defined(FLW_KERNEL_GENERATIONS)
#define X(name) extern const unsigned char flw_image_##name[];
FLW_KERNEL_LIST(X)
#undef X
#define FLW_IMAGE(name) flw_image_##name
#else
#define FLW_IMAGE(name)        NULL
#define FLW_KERNEL_GENERATIONS ""
#endif

#endif
