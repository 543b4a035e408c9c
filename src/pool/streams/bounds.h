/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: what a thread cache may hold without asking.
 */
#ifndef FLW_POOL_STREAMS_BOUNDS_H
#define FLW_POOL_STREAMS_BOUNDS_H

#include "pool/state/pool.h"

/* What a cache may hold in runs. */
uint64_t flw_pool_run_limit(const struct flw_pool *pool);
/* cache lock. Let the bin hold more, up to its room and the cache's budget. */
void flw_pool_widen_bin(const struct flw_pool *pool, struct flw_tcache *cache, struct flw_bin *bin,
                        unsigned class_index);

#endif
