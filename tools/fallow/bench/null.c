/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/null.h"

#pragma GCC diagnostic ignored "-Wunused-parameter"

#define EMPTY(name, library, parameters, arguments) \
    fallow_status fallow_null_##name parameters     \
    {                                               \
        return FALLOW_OK;                           \
    }
FLW_BENCH_OTHERS(EMPTY)

fallow_status fallow_null_alloc(void *pool, size_t size_bytes, fallow_stream stream, void **out_ptr)
{
    *out_ptr = pool;
    return FALLOW_OK;
}
