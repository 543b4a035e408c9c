/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the calling thread's cache for a stream.
 */
#ifndef FLW_POOL_STREAMS_CURRENT_H
#define FLW_POOL_STREAMS_CURRENT_H

#include "pool/state/pool.h"

/* Made on first use. NULL and a status otherwise. */
struct flw_tcache *flw_pool_cache(struct flw_pool *pool, fallow_stream stream,
                                  fallow_status *status);

#endif
