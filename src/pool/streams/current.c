/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/streams/current.h"

#include "pool/state/extension.h"
#include "pool/streams/cache.h"
#include "pool/streams/streams.h"

/* Return the calling thread's account, or that of a dead thread with the same token. NULL: no host
 * memory. pool->lock held. */
static struct flw_account *find_account(struct flw_pool *pool)
{
    uintptr_t self = flw_thread_token();
    struct flw_account *account = pool->accounts;
    while (account != NULL && account->thread != self) {
        account = account->next;
    }
    if (account == NULL) {
        flw_lock_acquire(&pool->side_records.lock);
        account = flw_meta_extend(&pool->side_records.meta, FLW_LINE_PAIR, FLW_LINE_PAIR);
        flw_lock_release(&pool->side_records.lock);
        if (account != NULL) {
            *account = (struct flw_account){.thread = self, .next = pool->accounts};
            pool->accounts = account;
        }
    }
    return account;
}

struct flw_account *flw_pool_own_account(struct flw_pool *pool)
{
    flw_lock_acquire(&pool->lock);
    struct flw_account *account = find_account(pool);
    flw_lock_release(&pool->lock);
    return account;
}

/* False: no host memory. pool->lock held. */
static bool tell_extensions(struct flw_pool *pool, struct flw_tcache *cache,
                            const struct flw_domain *domain)
{
    bool is_done = true;
    FLW_EACH_EXTENSION (pool, row, cache_made) {
        is_done &= row->cache_made(pool, cache, domain);
    }
    return is_done;
}

static struct flw_tcache *make_cache(struct flw_pool *pool, fallow_stream stream,
                                     struct flw_domain *domain)
{
    struct flw_tcache *cache = flw_tcache_create();
    if (cache == NULL) {
        return NULL;
    }
    cache->pool = pool;
    cache->handle = pool->handle;
    cache->run_limit_bytes = pool->context_id != 0 ? 16 * FLW_MIB : 0; /* nothing was freed yet */
    cache->hot.stream = stream;
    cache->context_id = pool->context_id;
    cache->dedicated_bytes = pool->heap.dedicated_bytes;
    cache->open_free_left_bytes = FLW_OPEN_FREE_BYTES;
    cache->hot.account = flw_pool_own_account(pool);
    if (cache->hot.account == NULL || !flw_thread_add(cache)) {
        flw_tcache_drop(cache);
        return NULL;
    }
    flw_lock_acquire(&pool->lock);
    cache->is_open = flw_pool_may_open(pool, domain);
    if (!tell_extensions(pool, cache, domain)) {
        flw_lock_release(&pool->lock);
        flw_thread_forget(cache);
        flw_tcache_drop(cache);
        return NULL;
    }
    flw_tcache_bind(cache, &pool->heap, domain);
    cache->hot.stream = stream;
    flw_pool_list_cache(pool, cache);
    flw_lock_acquire(&pool->heap.lock);
    domain->cache_count++;
    flw_lock_release(&pool->heap.lock);
    flw_lock_release(&pool->lock);
    return cache;
}

struct flw_tcache *flw_pool_cache(struct flw_pool *pool, fallow_stream stream,
                                  fallow_status *status)
{
    struct flw_tcache *cache = flw_thread_find(pool->handle, stream);
    struct flw_domain *domain = NULL;
    *status = FALLOW_OK;
    if (cache == NULL || flw_pool_asks_identity(pool)) {
        domain = flw_pool_domain(pool, stream, status);
        if (domain == NULL) {
            return NULL;
        }
    }
    /* Only after the domain is found: another thread may just have closed the cache, and the place
     * of the domain may now be the new stream's. */
    if (cache != NULL && (__atomic_load_n(&cache->pool, __ATOMIC_ACQUIRE) != pool ||
                          (domain != NULL && domain != cache->domain))) {
        flw_thread_forget(cache);
        flw_pool_cache_exit(cache);
        cache = NULL;
    }
    if (cache == NULL) {
        domain = domain != NULL ? domain : flw_pool_domain(pool, stream, status);
        if (domain == NULL) {
            return NULL;
        }
        cache = make_cache(pool, stream, domain);
        if (cache == NULL) {
            *status = FALLOW_OUT_OF_HOST_MEMORY;
            return NULL;
        }
    }
    flw_thread_select(cache);
    return cache;
}
