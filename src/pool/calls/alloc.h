/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the slow half of allocate: requests that no cached slot or run serves. */
#ifndef FLW_POOL_CALLS_ALLOC_H
#define FLW_POOL_CALLS_ALLOC_H

#include "pool/state/pool.h"

/* Allocate through the gate; by the front (state/extension.h), if the pool has one. */
fallow_status flw_pool_alloc(struct flw_pool *pool, const fallow_request *request,
                             fallow_stream stream, void **out_ptr);
/* Allocate raw blocks, without a front. */
fallow_status flw_pool_alloc_plain(struct flw_pool *pool, const fallow_request *request,
                                   fallow_stream stream, void **out_ptr);
/* Grow a block in place to request->size_bytes. The first call allocates the block, at a multiple
 * of 2 MiB. Call flw_growable_end before an ordinary free. Not inside a capture. NOT_SUPPORTED:
 * the pool does not map handles, has a front, or too few addresses are left behind the block;
 * other errors as flw_pool_alloc. A failure changes nothing. */
fallow_status flw_pool_grow(struct flw_pool *pool, struct flw_growable *growable,
                            const fallow_request *request, fallow_stream stream);
/* Unmap whole handles from the block's end, which no work uses, down to request->size_bytes. The
 * handles become idle. */
fallow_status flw_pool_cut(struct flw_pool *pool, struct flw_growable *growable,
                           const fallow_request *request, fallow_stream stream);

#endif
