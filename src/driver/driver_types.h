/* SPDX-License-Identifier: Apache-2.0
 *
 * The driver's types: the toolkit's cuda.h where there is one, else our own small header with the
 * same names and values. `tests/check` compares the two on every machine that has a toolkit.
 */
#ifndef FLW_DRIVER_TYPES_H
#define FLW_DRIVER_TYPES_H

#if defined(FLW_USES_CUDA_H)
#include <cuda.h>
#else
#include "driver/cuda_abi.h"
#endif

#endif
