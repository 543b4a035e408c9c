/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the calling thread's cache for a stream. */
#ifndef FLW_POOL_STREAMS_CURRENT_H
#define FLW_POOL_STREAMS_CURRENT_H

#include "pool/state/pool.h"

/* Return the cache, created on first use; NULL and a status on failure. */
struct flw_tcache *flw_pool_cache(struct flw_pool *pool, fallow_stream stream,
                                  fallow_status *status);
/* Return the calling thread's account, created on first use. NULL: no host memory. Takes the
 * pool's lock. */
struct flw_account *flw_pool_own_account(struct flw_pool *pool);

#endif
