/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/streams/seize.h"

#include "pool/state/settings.h"

/* True: somebody may be inside one, so that a barrier and a wait are due. */
static bool poison(struct flw_pool *pool, const struct flw_domain *domain,
                   const struct flw_tcache *but, struct flw_tcache **out_seized)
{
    bool may_be_inside = false;
    *out_seized = NULL;
    flw_lock_acquire(&pool->lock);
    for (struct flw_tcache *cache = pool->caches; cache != NULL; cache = cache->next) {
        if (cache != but && (domain == NULL || cache->domain == domain)) {
            may_be_inside |= flw_tcache_poison(cache);
            cache->next_seized = *out_seized;
            *out_seized = cache;
        }
    }
    flw_lock_release(&pool->lock);
    return may_be_inside;
}

/* The kernel refuses barriers from now on. Every cache is closed; one that is made later is, too. */
static void do_without_barriers(struct flw_pool *pool)
{
    flw_lock_acquire(&pool->lock);
    pool->divert_all = true;
    struct flw_tcache *first = pool->caches;
    for (struct flw_tcache *cache = first; cache != NULL; cache = cache->next) {
        flw_lock_acquire(&cache->lock);
        flw_tcache_set_open(cache, false);
        flw_lock_release(&cache->lock);
    }
    flw_lock_release(&pool->lock);
    flw_asym_settle();
    for (struct flw_tcache *cache = first; cache != NULL; cache = cache->next) {
        flw_tcache_await(cache);
    }
    atomic_store(&pool->uses_membarrier, false);
    atomic_store(&pool->lost_membarrier, true);
}

struct flw_tcache *flw_seize(struct flw_pool *pool, const struct flw_domain *domain,
                             const struct flw_tcache *but)
{
    struct flw_tcache *seized;
    flw_lock_acquire(&pool->seizing);
    if (!poison(pool, domain, but, &seized)) {
        return seized;
    }
    if (!flw_asym_barrier()) {
        do_without_barriers(pool);
    }
    for (struct flw_tcache *cache = seized; cache != NULL; cache = cache->next_seized) {
        flw_tcache_await(cache);
    }
    return seized;
}

void flw_seize_end(struct flw_pool *pool, struct flw_tcache *seized)
{
    for (struct flw_tcache *cache = seized; cache != NULL; cache = cache->next_seized) {
        flw_tcache_release(cache);
    }
    flw_lock_release(&pool->seizing);
    if (FLW_UNLIKELY(atomic_load(&pool->lost_membarrier)) &&
        !atomic_exchange(&pool->loss_of_it_noted, true)) {
        flw_pool_log(pool, FALLOW_LOG_WARNING,
                     "the kernel refuses membarrier(2), which it granted when the pool was made (a "
                     "seccomp filter, or no memory): no call is a hit any more, each takes its "
                     "cache's lock; a filter that allows membarrier keeps the hits");
    }
}
