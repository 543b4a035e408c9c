/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: libfallow-null.so, a library that allocates nothing: the signatures of the timed calls with
 * empty bodies. A loop linked to it costs what the loop and the way into a shared library cost.
 */
#ifndef FLW_TOOL_BENCH_NULL_H
#define FLW_TOOL_BENCH_NULL_H

#include "fallow/fallow.h"

FALLOW_API fallow_status fallow_null_alloc(fallow_pool *pool, size_t size_bytes,
                                           fallow_stream stream, void **out_ptr);
FALLOW_API fallow_status fallow_null_free(fallow_pool *pool, void *ptr, fallow_stream stream);
FALLOW_API fallow_status fallow_null_free_sized(fallow_pool *pool, void *ptr, size_t size_bytes,
                                                fallow_stream stream);
FALLOW_API fallow_status fallow_null_record_use(fallow_pool *pool, void *ptr, fallow_stream stream);
FALLOW_API fallow_status fallow_null_poll(fallow_pool *pool);

#endif
