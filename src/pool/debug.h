/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the pair of calls that lend and take back where debug checks are on: poison, red zones,
 * quarantine, the list of leaks. They stand before the ordinary slow pair and use nothing but it.
 *
 *   raw block    | front zone | what the caller gets, size bytes | back zone |
 *
 * Zones and poison are written on the stream that a block is lent on. At its free the zones are
 * copied to a pinned ring on the stream that it is freed on, and compared by a later call that finds
 * the copy complete. Nothing is done inside a capture: that is counted as a check left out.
 */
#ifndef FLW_POOL_DEBUG_H
#define FLW_POOL_DEBUG_H

#include <stdbool.h>

#include "fallow/fallow.h"

struct flw_pool;
struct flw_lent_block;

/* What only a debug pool knows of a block. */
struct flw_debug_block {
    uint64_t user, size_bytes; /* what the caller holds */
    uint64_t stream_id;        /* of the stream that it was lent on */
};

/* Driver calls. The checks of the config; NOT_SUPPORTED where memory has no contents to check. */
fallow_status flw_debug_create(struct flw_pool *pool);

/* No thread is in the pool and the device is done: the last results, the leaks, the end. is_lost:
 * without a driver call. */
void flw_debug_finish(struct flw_pool *pool, bool is_lost);

fallow_status flw_debug_alloc(struct flw_pool *pool, const fallow_request *request,
                              fallow_stream stream, void **out_ptr);
fallow_status flw_debug_free(struct flw_pool *pool, void *ptr, fallow_stream stream);
fallow_status flw_debug_free_sized(struct flw_pool *pool, void *ptr, size_t size_bytes,
                                   fallow_stream stream);

/* The raw block of a live pointer of the caller's; NULL: there is none. */
void *flw_debug_raw(struct flw_pool *pool, void *ptr);
/* The live block whose raw block begins at `raw`; false: there is none. */
bool flw_debug_describe(struct flw_pool *pool, uint64_t raw, struct flw_debug_block *out_block);

/* Every block that a caller holds; its stream's id in the place of a loan. `visit` runs under a lock. */
void flw_debug_each(struct flw_pool *pool,
                    void (*visit)(void *context, const struct flw_lent_block *block),
                    void *context);

/* Compare the copies that have arrived. Never waits. Driver calls. */
void flw_debug_poll(struct flw_pool *pool);
/* Out of quarantine: all; or what was freed on one stream, which no thread names when this returns. True
 * if there was any. Driver calls. */
bool flw_debug_release(struct flw_pool *pool, fallow_stream stream, bool all_streams);

struct flw_debug_counts {
    uint64_t damaged, left_out;
};
struct flw_debug_counts flw_debug_count(struct flw_pool *pool);

#endif
