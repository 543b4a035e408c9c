/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: giving a pool's free memory back to the driver: of one pool, and of the others of a device for one that lacks
 * memory.
 * Does not: decide when (extensions/trim.c, ladder/, a wake).
 */
#ifndef FLW_POOL_STREAMS_RELEASE_H
#define FLW_POOL_STREAMS_RELEASE_H

#include "pool/state/pool.h"

/* Return the deadline of a wait for the device that begins now, by the config's wait_ms; 0: the pool never waits;
 * UINT64_MAX: no deadline. */
static inline uint64_t flw_pool_wait_until(const struct flw_pool *pool)
{
    uint32_t wait_ms = pool->config.wait_ms;
    return wait_ms == UINT32_MAX       ? 0
           : wait_ms == UINT32_MAX - 1 ? UINT64_MAX
                                       : flw_clock_fine_ns() + wait_ms * 1000000ull;
}

/* Fence, where this thread can name the stream, and query all that was freed. Dissolve empty slabs. Driver calls. */
void flw_pool_complete(struct flw_pool *pool);

/* Release free memory until at most keep_bytes are reserved: of caches of all threads, of extensions, of slabs.
 * Waits for the device until until_ns; 0: not at all. TIMEOUT: work is left, and a longer wait may release more. The
 * caller is inside the pool's gate. Driver calls. */
fallow_status flw_pool_release(struct flw_pool *pool, uint64_t keep_bytes, uint64_t until_ns,
                               uint64_t *out_released_bytes);

/* Release free memory without a wait if more is reserved than a lowered limit allows, until `bytes` more fit.
 * Otherwise as flw_pool_release. */
void flw_pool_keep_limit(struct flw_pool *pool, uint64_t bytes);

/* Have the other pools of the process that are on the pool's device release up to `bytes` each, as above. Pools that
 * are asleep, or in a turn of their gate, are left out: nothing is waited for but the device. Driver calls. */
fallow_status flw_pool_release_others(const struct flw_pool *pool, uint64_t bytes,
                                      uint64_t until_ns);

#endif
