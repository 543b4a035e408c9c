/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: which stream a handle names, and its order domain.
 */
#ifndef FLW_POOL_STREAMS_STREAMS_H
#define FLW_POOL_STREAMS_STREAMS_H

#include "pool/state/pool.h"

/* The domain of a stream, made on first sight; driver calls. */
struct flw_domain *flw_pool_domain(struct flw_pool *pool, fallow_stream stream,
                                   fallow_status *status);
/* The same, if the pool has seen it: NULL otherwise, or with INVALID_STREAM where the handle names none
 * any more. Driver calls where a handle is not believed. */
struct flw_domain *flw_pool_known_domain(struct flw_pool *pool, fallow_stream stream,
                                         fallow_status *status);

#endif
