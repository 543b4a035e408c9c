/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the slow half of allocate: what no cached slot or run could serve.
 */
#ifndef FLW_POOL_CALLS_ALLOC_H
#define FLW_POOL_CALLS_ALLOC_H

#include "pool/state/pool.h"

/* Through the gate; by the front (state/extension.h), if the pool has one. */
fallow_status flw_pool_alloc(struct flw_pool *pool, const fallow_request *request,
                             fallow_stream stream, void **out_ptr);
/* The same without a front: raw blocks. */
fallow_status flw_pool_alloc_plain(struct flw_pool *pool, const fallow_request *request,
                                   fallow_stream stream, void **out_ptr);

#endif
