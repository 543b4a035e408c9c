/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/state/table.h"

static struct flw_handle_place places[1024];
static struct flw_handles table = FLW_HANDLES(FLW_HANDLE_POOL, places);

struct flw_pool *flw_pool_of(const void *handle)
{
    return flw_handles_find(&table, handle);
}

fallow_pool *flw_pool_table_take(void)
{
    return flw_handles_take(&table);
}

void flw_pool_table_publish(struct flw_pool *pool)
{
    flw_handles_publish(&table, pool->handle, pool);
}

void flw_pool_table_drop(const void *handle)
{
    (void)flw_handles_drop(&table, handle);
}

void flw_pool_table_await(const void *handle)
{
    flw_handles_await(&table, handle);
}

void flw_pool_table_free(const void *handle)
{
    flw_handles_free(&table, handle);
}

void flw_pool_table_forget(void)
{
    flw_handles_forget(&table);
}

struct visit {
    void (*function)(struct flw_pool *pool, void *context);
    void *context;
};

static void call(void *pool, void *context)
{
    const struct visit *visit = context;
    visit->function(pool, visit->context);
}

void flw_pool_table_each(void (*visit)(struct flw_pool *pool, void *context), void *context)
{
    struct visit both = {.function = visit, .context = context};
    flw_handles_each(&table, call, &both);
}
