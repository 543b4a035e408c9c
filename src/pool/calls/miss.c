/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the call that no cache serves: from the handle to its pool. Does not: serve it (alloc.c, free.c).
 */
#include <errno.h>

#include "pool/calls/alloc.h"
#include "pool/calls/free.h"
#include "pool/calls/hit_context.h"
#include "pool/state/table.h"
#include "pool/streams/epoch.h"

fallow_status flw_entry_alloc(fallow_pool *handle, size_t size_bytes, size_t align_bytes,
                              fallow_stream stream, void **out_ptr)
{
    int saved = errno;
    struct flw_pool *pool = flw_pool_of(handle);
    fallow_status status = FALLOW_INVALID_POOL;
    if (out_ptr == NULL) {
        return FALLOW_INVALID_ARGUMENT;
    }
    *out_ptr = NULL;
    if (pool != NULL && flw_pool_has_epochs(pool) && align_bytes <= FLW_EPOCH_LEAST_BYTES &&
        flw_context_alloc_of(pool, size_bytes, out_ptr)) {
        status = FALLOW_OK;
    } else if (pool != NULL) {
        fallow_request request = {
            .struct_size = sizeof request, .size_bytes = size_bytes, .align_bytes = align_bytes};
        status = flw_pool_alloc(pool, &request, stream, out_ptr);
    }
    errno = saved;
    return status;
}

fallow_status flw_entry_free(fallow_pool *handle, void *ptr, fallow_stream stream)
{
    int saved = errno;
    struct flw_pool *pool = flw_pool_of(handle);
    fallow_status status = pool == NULL ? FALLOW_INVALID_POOL
                           : flw_pool_has_epochs(pool) && flw_context_free_to(pool, ptr)
                               ? FALLOW_OK
                               : flw_pool_free(pool, ptr, stream);
    errno = saved;
    return status;
}
