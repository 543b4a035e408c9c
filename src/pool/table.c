/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the process's table of pools, and what a fork leaves of them.
 */
#include <pthread.h>

#include "heap/ctxsync.h"
#include "heap/epoch.h"
#include "pool/pool.h"

static struct flw_handle_place places[1024];
static struct flw_handles table = FLW_HANDLES(FLW_HANDLE_POOL, places);

struct flw_pool *flw_pool_of(const void *handle)
{
    return flw_handles_find(&table, handle);
}

static void orphan(void *object, void *context)
{
    struct flw_pool *pool = object;
    (void)context;
    (void)flw_handles_drop(&table, pool->handle);
    flw_pool_orphan(pool);
}

/* In the child of a fork the driver is dead, other threads are gone, and whatever lock one of them
 * held stays held. So the child has no pools: their handles are refused, their memory stays as it
 * is, unseen, and the locks of the process are new. */
static void forget_pools(void)
{
    flw_lifecycle_renew_lock();
    flw_tcache_renew_lock();
    flw_epoch_renew_locks();
    flw_ctxsync_renew();
    flw_helpers_forget_all();
    flw_handles_each(&table, orphan, NULL);
    flw_handles_forget(&table);
    flw_captures_forget_all();
    flw_extensions_forget_all();
}

static void watch_forks(void)
{
    (void)pthread_atfork(NULL, NULL, forget_pools);
}

fallow_pool *flw_pool_table_take(void)
{
    static pthread_once_t forks_once = PTHREAD_ONCE_INIT;
    pthread_once(&forks_once, watch_forks);
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
