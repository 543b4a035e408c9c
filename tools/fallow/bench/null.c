/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/null.h"

fallow_status fallow_null_alloc(fallow_pool *pool, size_t size_bytes, fallow_stream stream,
                                void **out_ptr)
{
    (void)size_bytes;
    (void)stream;
    *out_ptr = pool;
    return FALLOW_OK;
}

fallow_status fallow_null_free(fallow_pool *pool, void *ptr, fallow_stream stream)
{
    (void)pool;
    (void)ptr;
    (void)stream;
    return FALLOW_OK;
}

fallow_status fallow_null_free_sized(fallow_pool *pool, void *ptr, size_t size_bytes,
                                     fallow_stream stream)
{
    (void)pool;
    (void)ptr;
    (void)size_bytes;
    (void)stream;
    return FALLOW_OK;
}

fallow_status fallow_null_record_use(fallow_pool *pool, void *ptr, fallow_stream stream)
{
    (void)pool;
    (void)ptr;
    (void)stream;
    return FALLOW_OK;
}

fallow_status fallow_null_poll(fallow_pool *pool)
{
    (void)pool;
    return FALLOW_OK;
}
