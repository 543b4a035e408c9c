/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: releasing a pool's free memory to the driver, and that of the device's other pools for one
 * that lacks memory.
 * Does not: decide when (extensions/trim.c, ladder/, a wake). */
#ifndef FLW_POOL_STREAMS_RELEASE_H
#define FLW_POOL_STREAMS_RELEASE_H

#include "pool/state/pool.h"

/* Return the deadline of a wait for the device that begins now, by the config's wait_ms; 0: the
 * pool never waits; UINT64_MAX: no deadline. */
static inline uint64_t flw_pool_wait_until(const struct flw_pool *pool)
{
    uint32_t wait_ms = pool->config.wait_ms;
    return wait_ms == UINT32_MAX       ? 0
           : wait_ms == UINT32_MAX - 1 ? UINT64_MAX
                                       : flw_clock_fine_ns() + wait_ms * 1000000ull;
}

/* Fence the streams that this thread can name, query all fences, and dissolve empty slabs. Makes
 * driver calls. */
void flw_pool_complete(struct flw_pool *pool);

/* Release free memory until at most keep_bytes are reserved: from caches of all threads,
 * extensions, slabs. Waits for the device until until_ns; 0: not at all. TIMEOUT: work is left,
 * and a longer wait may release more. The caller is inside the pool's gate. Makes driver calls. */
fallow_status flw_pool_release(struct flw_pool *pool, uint64_t keep_bytes, uint64_t until_ns,
                               uint64_t *out_released_bytes);

/* If more is reserved than a lowered limit permits, release free memory without a wait, until
 * `bytes` more fit. Otherwise as flw_pool_release. */
void flw_pool_keep_limit(struct flw_pool *pool, uint64_t bytes);

/* Let the other pools of the process on the pool's device release up to `bytes` each, as above.
 * Pools that are asleep, or in a turn of their gate, are skipped: only the device is waited for.
 * Makes driver calls. */
fallow_status flw_pool_release_others(const struct flw_pool *pool, uint64_t bytes,
                                      uint64_t until_ns);

#endif
