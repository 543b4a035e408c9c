/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/streams/cache.h"

#include "base/mutant.h"
#include "pool/state/account.h"
#include "pool/state/settings.h"
#include "pool/streams/seize.h"

/* ---- seizing (seize.h) */

/* True: an owner may be inside, so a barrier and a wait must follow. */
static bool poison(struct flw_pool *pool, const struct flw_domain *domain,
                   const struct flw_tcache *but, struct flw_tcache **out_seized)
{
    bool may_be_inside = false;
    *out_seized = NULL;
    flw_lock_acquire(&pool->lock);
    struct flw_tcache *cache = domain != NULL ? domain->caches : pool->caches;
    for (; cache != NULL; cache = domain != NULL ? cache->same_next : cache->next) {
        if (cache != but) {
            may_be_inside |= flw_tcache_poison(cache);
            cache->next_seized = *out_seized;
            *out_seized = cache;
        }
    }
    flw_lock_release(&pool->lock);
    return may_be_inside;
}

/* After the kernel refused barriers: close every cache, present and future. */
static void do_without_barriers(struct flw_pool *pool)
{
    flw_lock_acquire(&pool->lock);
    pool->divert_all = true;
    for (struct flw_tcache *cache = pool->caches; cache != NULL; cache = cache->next) {
        flw_lock_acquire(&cache->lock);
        flw_tcache_set_open(cache, false);
        flw_lock_release(&cache->lock);
    }
    flw_lock_release(&pool->lock);
    flw_asym_slow_barrier();
    flw_lock_acquire(&pool->lock);
    for (struct flw_tcache *cache = pool->caches; cache != NULL; cache = cache->next) {
        flw_tcache_await(cache);
    }
    flw_lock_release(&pool->lock);
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
        flw_pool_log(
            pool, FALLOW_LOG_WARNING,
            "the kernel refuses membarrier(2), which worked when the pool was created (a "
            "seccomp filter, or no memory): from now on each call takes its cache's lock, and none is a hit; allow "
            "membarrier in the filter to keep the hits");
    }
}

/* ---- empty, open, close */

/* Between a thread's exit and a pool's end. Taken before a pool's own locks. */
static struct flw_lock lifecycle = {.rank = FLW_RANK_LIFECYCLE};

void flw_lifecycle_renew_lock(void)
{
    flw_lock_init(&lifecycle, FLW_RANK_LIFECYCLE);
}

bool flw_pool_drain(struct flw_pool *pool, const struct flw_tcache *but,
                    const struct flw_domain *only)
{
    bool any = false;
    struct flw_tcache *seized = flw_seize(pool, only, but);
    for (struct flw_tcache *cache = seized; cache != NULL; cache = cache->next_seized) {
        flw_lock_acquire(&cache->lock);
        flw_lock_acquire(&pool->heap.lock);
        any |= flw_tcache_flush(cache, &pool->heap);
        flw_lock_release(&pool->heap.lock);
        flw_lock_release(&cache->lock);
    }
    flw_seize_end(pool, seized);
    return any;
}

void flw_pool_list_cache(struct flw_pool *pool, struct flw_tcache *cache)
{
    struct flw_domain *domain = cache->domain;
    cache->next = pool->caches;
    cache->same_next = domain->caches;
    *(cache->next != NULL ? &cache->next->prev : &pool->last_cache) = cache;
    if (cache->same_next != NULL) {
        cache->same_next->same_prev = cache;
    }
    pool->caches = domain->caches = cache;
    pool->cache_count++;
}

/* pool->lock held. */
static void unlist(struct flw_pool *pool, struct flw_tcache *cache)
{
    *(cache->prev != NULL ? &cache->prev->next : &pool->caches) = cache->next;
    *(cache->same_prev != NULL ? &cache->same_prev->same_next : &cache->domain->caches) =
        cache->same_next;
    *(cache->next != NULL ? &cache->next->prev : &pool->last_cache) = cache->prev;
    if (cache->same_next != NULL) {
        cache->same_next->same_prev = cache->same_prev;
    }
    pool->cache_count--;
}

void flw_pool_begin_caches_at(struct flw_pool *pool, struct flw_tcache *cache)
{
    struct flw_tcache *last = cache != NULL ? cache->prev : NULL;
    if (last != NULL) {
        pool->last_cache->next = pool->caches;
        pool->caches->prev = pool->last_cache;
        pool->caches = cache;
        pool->last_cache = last;
        cache->prev = last->next = NULL;
    }
}

/* Empty a cache for good and take it from the pool; the memory stays the thread's. pool->seizing
 * and pool->lock held; the cache is seized, or the caller's own. */
static void detach(struct flw_pool *pool, struct flw_tcache *cache, bool ends_thread)
{
    unlist(pool, cache);
    flw_lock_acquire(&cache->lock);
    flw_tcache_set_open(cache, false);
    flw_lock_acquire(&pool->heap.lock);
    (void)flw_tcache_flush(cache, &pool->heap);
    uint32_t left = --cache->domain->cache_count;
    if (ends_thread && cache->domain->own_thread_only && left == 0) {
        flw_domain_lose_quietly(&pool->heap,
                                cache->domain); /* that stream cannot be named any more */
    }
    if (left == 0) {
        flw_domain_free_place(&pool->heap, cache->domain);
    }
    flw_lock_release(&pool->heap.lock);
    flw_pool_keep_totals(pool, cache);
    cache->is_detached = true;
    flw_lock_release(&cache->lock);
    __atomic_store_n(&cache->pool, NULL, __ATOMIC_RELEASE); /* the thread may drop it now */
}

void flw_pool_close_caches(struct flw_pool *pool, const struct flw_domain *domain)
{
    struct flw_tcache *seized = flw_seize(pool, domain, NULL);
    flw_lock_acquire(&pool->lock);
    for (struct flw_tcache *cache = seized, *next; cache != NULL; cache = next) {
        next = cache->next_seized;
        detach(pool, cache, false);
    }
    flw_lock_release(&pool->lock);
    flw_seize_end(pool, NULL);
}

void flw_pool_detach_caches(struct flw_pool *pool)
{
    flw_pool_close_caches(pool, NULL);
    /* A thread that ends and found the pool before has left it. */
    flw_lock_acquire(&lifecycle);
    flw_lock_release(&lifecycle);
}

/* Move the blocks to their domains, marked. Makes no driver call and needs no barrier: the caller
 * is the owner, and not inside. */
void flw_pool_cache_exit(struct flw_tcache *cache)
{
    flw_lock_acquire(&lifecycle);
    struct flw_pool *pool = __atomic_load_n(&cache->pool, __ATOMIC_ACQUIRE);
    if (pool != NULL) {
        flw_lock_acquire(&pool->seizing);
        flw_lock_acquire(&pool->lock);
        if (cache->pool == pool) { /* no retire was faster */
            detach(pool, cache, true);
        }
        flw_lock_release(&pool->lock);
        flw_lock_release(&pool->seizing);
    }
    flw_lock_release(&lifecycle);
    flw_tcache_drop(cache);
}

/* Open or close a domain's caches, or all with NULL, as permitted now. After the return no hit is
 * under way in a closed one. */
static void reopen(struct flw_pool *pool, const struct flw_domain *domain)
{
    struct flw_tcache *seized = flw_seize(pool, domain, NULL);
    flw_lock_acquire(&pool->lock);
    for (struct flw_tcache *cache = seized; cache != NULL; cache = cache->next_seized) {
        flw_lock_acquire(&cache->lock);
        flw_tcache_set_open(cache, flw_pool_may_open(pool, cache->domain) ||
                                       (FLW_MUTANT(CAPTURE_END_OPENS_CACHES) && domain != NULL &&
                                        !flw_capture_is_on(domain)));
        flw_lock_release(&cache->lock);
    }
    flw_lock_release(&pool->lock);
    flw_seize_end(pool, seized);
}

void flw_pool_close_hits(struct flw_pool *pool, bool is_closed)
{
    flw_lock_acquire(&pool->lock); /* a cache under construction has read it, or will */
    atomic_store(&pool->gate.closes_hits, is_closed);
    flw_lock_release(&pool->lock);
    reopen(pool, NULL);
}

void flw_pool_divert(struct flw_pool *pool, const struct flw_domain *domain)
{
    reopen(pool, domain);
}

void flw_pool_note_loss(struct flw_pool *pool)
{
    if (!flw_heap_is_lost(&pool->heap) || atomic_exchange(&pool->loss_noted, true)) {
        return;
    }
    int error = atomic_load(&pool->heap.lost_error);
    flw_pool_log(
        pool, error == CUDA_ERROR_DEINITIALIZED ? FALLOW_LOG_INFO : FALLOW_LOG_ERROR,
        "the device is lost: %s answered %s; nothing more is allocated, free and destroy do "
        "nothing on the device",
        atomic_load(&pool->heap.lost_call), flw_driver_error_name(&pool->driver, (CUresult)error));
    flw_lock_acquire(&pool->lock);
    pool->divert_all = true;
    flw_lock_release(&pool->lock);
    reopen(pool, NULL);
}

void flw_pool_poison_all(struct flw_pool *pool)
{
    for (struct flw_tcache *cache = pool->caches, *next; cache != NULL; cache = next) {
        next = cache->next;
        cache->is_open = false;
        __atomic_store_n(&cache->hot.key, (const void *)&flw_no_pool, __ATOMIC_RELEASE);
        __atomic_store_n(&cache->pool, NULL, __ATOMIC_RELEASE);
    }
}
