/* SPDX-License-Identifier: Apache-2.0 */
#include "support/pool_under_test.h"

#include <string.h>

#include "policies/naive_pool.h"

static fallow_status naive_create(const struct flw_driver *driver, const fallow_pool_config *config,
                                  void **out_pool)
{
    struct flw_naive *pool = NULL;
    fallow_status status = flw_naive_create(driver, config->device, config->limit_bytes, &pool);
    *out_pool = pool;
    return status;
}

static void naive_destroy(void *pool)
{
    flw_naive_destroy(pool);
}

static fallow_status naive_alloc(void *pool, size_t size, fallow_stream stream, void **out_ptr)
{
    return flw_naive_alloc(pool, size, stream, out_ptr);
}

static fallow_status naive_alloc_aligned(void *pool, size_t size, size_t align,
                                         fallow_stream stream, void **out_ptr)
{
    return flw_naive_alloc_aligned(pool, size, align, stream, out_ptr);
}

static fallow_status naive_free(void *pool, void *ptr, fallow_stream stream)
{
    return flw_naive_free(pool, ptr, stream);
}

static fallow_status naive_free_sized(void *pool, void *ptr, size_t size, fallow_stream stream)
{
    return flw_naive_free_sized(pool, ptr, size, stream);
}

static fallow_status naive_record_use(void *pool, void *ptr, fallow_stream stream)
{
    return flw_naive_record_use(pool, ptr, stream);
}

static fallow_status naive_retire(void *pool, fallow_stream stream)
{
    return flw_naive_retire(pool, stream);
}

static fallow_status naive_trim(void *pool, size_t keep_bytes)
{
    return flw_naive_trim(pool, keep_bytes);
}

static fallow_status naive_get_stats(void *pool, fallow_stats *out_stats)
{
    flw_naive_get_stats(pool, out_stats);
    return FALLOW_OK;
}

const struct flw_put_ops flw_put_naive = {
    .name = "naive",
    .create = naive_create,
    .destroy = naive_destroy,
    .alloc = naive_alloc,
    .alloc_aligned = naive_alloc_aligned,
    .free = naive_free,
    .free_sized = naive_free_sized,
    .record_use = naive_record_use,
    .retire = naive_retire,
    .trim = naive_trim,
    .get_stats = naive_get_stats,
};

const struct flw_put_ops *flw_put_get(size_t i)
{
    static const struct flw_put_ops *const all[] = {
        &flw_put_naive,
#if defined(FLW_PUT_HAS_FALLOW)
        &flw_put_fallow,
#endif
    };
    return i < sizeof all / sizeof *all ? all[i] : NULL;
}

const struct flw_put_ops *flw_put_find(const char *name)
{
    for (size_t i = 0; flw_put_get(i) != NULL; i++) {
        if (strcmp(flw_put_get(i)->name, name) == 0) {
            return flw_put_get(i);
        }
    }
    return NULL;
}
