/* SPDX-License-Identifier: Apache-2.0
 *
 * The driver's types: from the toolkit's cuda.h if there is one, otherwise from our own small
 * header with the same names and values. `tests/check` compares the two if there is a toolkit. */
#ifndef FLW_DRIVER_TYPES_H
#define FLW_DRIVER_TYPES_H

#if defined(FLW_USES_CUDA_H)
#include <cuda.h>
#else
#include "driver/cuda_abi.h"
#endif

#endif
