/* SPDX-License-Identifier: Apache-2.0
 *
 * The entry points that the thin driver must export and nobody calls in a bench: each refuses.
 */
#include "driver/driver_types.h"
#include "driver/entry_points.h"

#define X(need, symbol, since, before, parameters)                                   \
    __attribute__((weak, visibility("default"))) CUresult CUDAAPI symbol parameters; \
    __attribute__((weak, visibility("default"))) CUresult CUDAAPI symbol parameters  \
    {                                                                                \
        return CUDA_ERROR_NOT_SUPPORTED;                                             \
    }
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
FLW_DRIVER_ENTRY_POINTS(X)
#pragma GCC diagnostic pop
#undef X
