/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: every entry point in the driver's list as a weak, unused function, for test drivers that
 * must export all and implement some. */
#include "driver/driver_types.h"
#include "driver/entry_points.h"

#pragma GCC diagnostic ignored "-Wunused-parameter"

#define X(need, symbol, since, before, parameters)                                   \
    __attribute__((weak, visibility("default"))) CUresult CUDAAPI symbol parameters; \
    CUresult CUDAAPI symbol parameters                                               \
    {                                                                                \
        return CUDA_ERROR_NOT_SUPPORTED;                                             \
    }
FLW_DRIVER_ENTRY_POINTS(X)
#undef X
