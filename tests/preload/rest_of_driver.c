/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: every entry point of the driver's list, weak and without use, for a driver of tests that is to
 * have them all and answers only some.
 * Does not: answer any.
 */
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
