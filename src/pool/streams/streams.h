/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the stream of a handle, and the order domain. */
#ifndef FLW_POOL_STREAMS_STREAMS_H
#define FLW_POOL_STREAMS_STREAMS_H

#include "pool/state/pool.h"

/* Return the domain of a stream, created on first sight; makes driver calls. */
struct flw_domain *flw_pool_domain(struct flw_pool *pool, fallow_stream stream,
                                   fallow_status *status);
/* The same if the pool has seen the stream; otherwise NULL, or INVALID_STREAM if the handle
 * belongs to no stream any more. Makes driver calls if handles may be stale. */
struct flw_domain *flw_pool_known_domain(struct flw_pool *pool, fallow_stream stream,
                                         fallow_status *status);

#endif
