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
/* Let a growable block grow in place until it has request->size_bytes; the first call makes it, at a multiple of 2 MiB. Its
 * addresses stay, and it is freed as any other, after flw_growable_end. Not inside a capture. NOT_SUPPORTED: the
 * pool's memory is no mapped handles, or has a front, or the addresses do not suffice; others as flw_pool_alloc, and
 * nothing has changed. */
fallow_status flw_pool_grow(struct flw_pool *pool, struct flw_growable *growable,
                            const fallow_request *request, fallow_stream stream);
/* Unmap its end, which no work uses, down to request->size_bytes, as far as whole handles go; they are idle then. */
fallow_status flw_pool_cut(struct flw_pool *pool, struct flw_growable *growable,
                           const fallow_request *request, fallow_stream stream);

#endif
