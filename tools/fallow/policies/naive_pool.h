/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the deliberately naive pool: one mutex, cached blocks found by exact size, cuMemAlloc on a
 * miss, an event recorded on every free. It is what a careful person writes in an afternoon: the
 * policy `naive` of a replay, and the oracle that the property tests compare the real pool with.
 * Does not: serve captures (a captured stream is refused), split or join blocks, share memory with
 * other processes, keep its lock away from driver calls. Slow on purpose, correct on purpose.
 *
 * Semantics of arguments, statuses and stream order are those of fallow/fallow.h.
 */
#ifndef FLW_TOOLS_NAIVE_POOL_H
#define FLW_TOOLS_NAIVE_POOL_H

#include <stddef.h>

#include "driver/driver.h"

#include "fallow/fallow.h"

struct flw_naive;

/* driver       stays the caller's and must outlive the pool.
 * limit_bytes  most that the driver may have given; 0 = what the device has. */
fallow_status flw_naive_create(const struct flw_driver *driver, int device, size_t limit_bytes,
                               struct flw_naive **out_pool);
/* Waits for every event, gives everything back, live blocks too. NULL is allowed. */
void flw_naive_destroy(struct flw_naive *pool);

fallow_status flw_naive_alloc(struct flw_naive *pool, size_t size_bytes, fallow_stream stream,
                              void **out_ptr);
/* align_bytes  a power of two of at most 2 MiB; above 512 the block is that much longer. */
fallow_status flw_naive_alloc_aligned(struct flw_naive *pool, size_t size_bytes, size_t align_bytes,
                                      fallow_stream stream, void **out_ptr);
/* CAPTURING, nothing freed, on a captured stream. */
fallow_status flw_naive_free(struct flw_naive *pool, void *ptr, fallow_stream stream);
fallow_status flw_naive_free_sized(struct flw_naive *pool, void *ptr, size_t size_bytes,
                                   fallow_stream stream);
/* On a per-thread default stream only what was given to it before this call is announced. */
fallow_status flw_naive_record_use(struct flw_naive *pool, void *ptr, fallow_stream stream);
fallow_status flw_naive_retire(struct flw_naive *pool, fallow_stream stream);
/* Gives cached blocks back, waiting for them, until at most keep_bytes are reserved. */
fallow_status flw_naive_trim(struct flw_naive *pool, size_t keep_bytes);
/* Exact at any time. Fields that mean nothing here are 0. */
void flw_naive_get_stats(struct flw_naive *pool, fallow_stats *out_stats);

#endif
