/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the calls that are timed, and libfallow-null.so, a library with empty ones: a loop linked to it costs as much
 * as the loop and the way into a shared library.
 */
#ifndef FLW_TOOL_BENCH_NULL_H
#define FLW_TOOL_BENCH_NULL_H

#include "fallow/fallow.h"

/* X(name, function in libfallow without the prefix, parameters, arguments) */
#define FLW_BENCH_ALLOC(X)                                                                 \
    X(alloc, alloc, (void *pool, size_t size_bytes, fallow_stream stream, void **out_ptr), \
      (pool, size_bytes, stream, out_ptr))
#define FLW_BENCH_OTHERS(X)                                                                       \
    X(free, free, (void *pool, void *ptr, fallow_stream stream), (pool, ptr, stream))             \
    X(free_sized, free_sized, (void *pool, void *ptr, size_t size_bytes, fallow_stream stream),   \
      (pool, ptr, size_bytes, stream))                                                            \
    X(record_use, record_use, (void *pool, void *ptr, fallow_stream stream), (pool, ptr, stream)) \
    X(poll, pool_poll, (void *pool), (pool))
#define FLW_BENCH_CALLS(X) FLW_BENCH_ALLOC(X) FLW_BENCH_OTHERS(X)

#define X(name, library, parameters, arguments) \
    FALLOW_API fallow_status fallow_null_##name parameters;
FLW_BENCH_CALLS(X)
#undef X

#endif
