/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: taking what is there: the stream's and unowned free memory, empty slabs, what caches hold.
 */
#include "heap/state/run_index_inl.h"
#include "pool/ladder/climb.h"
#include "pool/streams/cache.h"

static bool take_slots(struct flw_heap *heap, struct flw_need *need)
{
    need->count =
        flw_heap_take_slots(heap, need->domain, need->class_index, need->want, need->slots);
    return need->count > 0;
}

static struct flw_span *take_slab_run(struct flw_heap *heap, const struct flw_need *need)
{
    struct flw_span *run = NULL;
    if (heap->source.ops->remaps && atomic_load(&heap->reserved_bytes) <= FLW_SMALL_POOL_BYTES) {
        /* Memory first: the smallest, which is empty again the soonest. */
        unsigned step =
            need->spares_waits ? 0 : flw_heap_slab_step(heap, need->domain, need->class_index, 0);
        run = flw_heap_take_crowded(heap, need->domain,
                                    flw_class_slab_units(need->class_index) << step);
    }
    return run != NULL ? run : flw_heap_take_slab_run(heap, need->domain, need->class_index);
}

static bool take_slab(struct flw_heap *heap, struct flw_need *need)
{
    struct flw_span *run = take_slab_run(heap, need);
    return run != NULL && flw_heap_adopt_slab(heap, need->domain, need->class_index, run) &&
           take_slots(heap, need);
}

bool flw_climb_take_slots(struct flw_heap *heap, struct flw_need *need)
{
    return take_slots(heap, need) || take_slab(heap, need);
}

/* heap lock. A climb looks again and again, nearly always in vain. (Runs that are all of a handle have indexes of
 * their own.) */
static bool may_have_run(const struct flw_heap *heap, const struct flw_need *need)
{
    unsigned bin = flw_run_bin(need->unit_count);
    return need->unit_count >= heap->first_dedicated_units ||
           flw_run_index_reaches(&heap->domains[FLW_UNOWNED]->runs, bin) ||
           flw_run_index_reaches(&need->domain->runs, bin);
}

bool flw_climb_take_run(struct flw_heap *heap, struct flw_need *need)
{
    if (!may_have_run(heap, need)) {
        return false;
    }
    need->run = need->is_divided
                    ? flw_heap_take_divided(heap, need->domain, need->unit_count, need->align_units)
                    : flw_heap_take_run(heap, need->domain, need->unit_count, need->align_units);
    return need->run != NULL;
}

bool flw_climb_take(struct flw_heap *heap, struct flw_need *need)
{
    if (flw_need_is_grown(need)) {
        return false;
    }
    flw_lock_acquire(&heap->lock);
    uint64_t refusals = flw_tables_refusals(heap);
    bool is_taken = false;
    if (need->class_index < FLW_CLASS_COUNT) {
        is_taken = flw_climb_take_slots(heap, need);
    } else if (heap->dedicated != NULL) {
        need->run = flw_heap_take_dedicated(heap, need->unit_count,
                                            flw_dedicated_most_units(need->unit_count));
        is_taken = need->run != NULL;
    } else {
        is_taken = flw_climb_take_run(heap, need);
    }
    need->lacks_host = !is_taken && flw_tables_refusals(heap) != refusals;
    flw_lock_release(&heap->lock);
    return is_taken;
}

bool flw_climb_reclaim(struct flw_climb *climb)
{
    flw_lock_acquire(&climb->heap->lock);
    (void)flw_heap_reclaim_slabs(climb->heap);
    flw_lock_release(&climb->heap->lock);
    return flw_climb_take(climb->heap, climb->need);
}

/* What the thread's caches keep for its other streams stays there: the taker could not use it at once. But where
 * memory comes first a small pool has all of it joined. */
static bool keeps_others(const struct flw_climb *climb)
{
    return flw_climb_has_others(climb) &&
           (climb->pool->config.economy != FALLOW_MEMORY_FIRST ||
            atomic_load_explicit(&climb->heap->reserved_bytes, memory_order_relaxed) >
                FLW_SMALL_POOL_BYTES);
}

/* Growth comes next: what this thread holds back must not be the reason for it. (Slots and slabs wait for a climb
 * that finds nothing else.) */
bool flw_climb_own_cache(struct flw_climb *climb)
{
    struct flw_tcache *cache = climb->need->cache;
    if (!keeps_others(climb) || cache == NULL) {
        return flw_climb_own_caches(climb, FLW_CACHES_A_LOOK);
    }
    flw_lock_acquire(&cache->lock);
    flw_lock_acquire(&climb->heap->lock);
    bool any = flw_tcache_flush_runs(cache, climb->heap);
    flw_lock_release(&climb->heap->lock);
    flw_lock_release(&cache->lock);
    return any && flw_climb_take(climb->heap, climb->need); /* else nothing is new */
}

/* Of the thread's caches, among so many of the pool's, which give way to the others then. True: these are all. */
static bool empty_own_caches(const struct flw_climb *climb, uint32_t most,
                             bool (*empty)(struct flw_tcache *cache, struct flw_heap *heap))
{
    struct flw_pool *pool = climb->pool;
    uintptr_t self = flw_thread_token();
    flw_lock_acquire(&pool->lock);
    struct flw_tcache *cache = pool->caches;
    for (; cache != NULL && most > 0; cache = cache->next, most--) {
        if (cache->thread == self) {
            flw_lock_acquire(&cache->lock);
            flw_lock_acquire(&climb->heap->lock);
            (void)empty(cache, climb->heap);
            flw_lock_release(&climb->heap->lock);
            flw_lock_release(&cache->lock);
        }
    }
    flw_pool_begin_caches_at(pool, cache);
    flw_lock_release(&pool->lock);
    return cache == NULL;
}

bool flw_climb_own_caches(struct flw_climb *climb, uint32_t most)
{
    if (!climb->has_emptied_caches) {
        climb->has_emptied_caches = empty_own_caches(climb, most, flw_tcache_flush);
        climb->leaves_caches = !climb->has_emptied_caches;
    }
    return flw_climb_reclaim(climb); /* also where nothing was cached: slabs may be empty by now */
}

bool flw_climb_own_runs(struct flw_climb *climb)
{
    if (climb->has_emptied_caches) {
        return false;
    }
    (void)empty_own_caches(climb, FLW_CACHES_A_LOOK, flw_tcache_flush_runs);
    return flw_climb_take(climb->heap, climb->need);
}

/* To take memory out of caches pays where much is held: with less than this a pool grows first, else
 * two threads that hand little memory to and fro would stop each other at every refill. */
#define DRAIN_FROM_BYTES (16 * FLW_MIB)

/* A slab stays where it is for as long as one block of it is allocated, and keeps the runs around
 * it apart. So while a small pool still grows, what caches and slabs hold free makes room before a
 * new slab is made. Only so often after each growth: a step that repeats does not grow, and pays
 * nothing. */
#define TIDIES_AFTER_GROWTH 1024

/* heap lock */
static bool may_tidy(struct flw_pool *pool)
{
    uint64_t grows = atomic_load_explicit(&pool->heap.count.grows, memory_order_relaxed);
    uint64_t reserved = atomic_load_explicit(&pool->heap.reserved_bytes, memory_order_relaxed);
    if (reserved < DRAIN_FROM_BYTES || reserved > FLW_SMALL_POOL_BYTES) {
        return false;
    }
    if (pool->budget.tidied_growth != grows) {
        pool->budget.tidied_growth = grows;
        pool->budget.tidies_left = TIDIES_AFTER_GROWTH;
    }
    if (pool->budget.tidies_left == 0) {
        return false;
    }
    pool->budget.tidies_left--;
    return true;
}

bool flw_stage_own(struct flw_climb *climb)
{
    struct flw_heap *heap = climb->heap;
    struct flw_need *need = climb->need;
    if (need->class_index == FLW_CLASS_COUNT) {
        return flw_climb_take(heap, need);
    }
    flw_lock_acquire(&heap->lock);
    uint64_t refusals = flw_tables_refusals(heap);
    bool is_taken = take_slots(heap, need);
    bool is_tidy = is_taken || keeps_others(climb) || !may_tidy(climb->pool);
    is_taken = is_taken || (is_tidy && take_slab(heap, need));
    need->lacks_host = !is_taken && flw_tables_refusals(heap) != refusals;
    flw_lock_release(&heap->lock);
    return is_tidy ? is_taken : flw_climb_own_caches(climb, FLW_CACHES_A_LOOK);
}

bool flw_stage_caches(struct flw_climb *climb)
{
    struct flw_pool *pool = climb->pool;
    uint64_t after = atomic_load(&climb->heap->reserved_bytes) + climb->need_bytes;
    if (after <= flw_min(DRAIN_FROM_BYTES, climb->heap->limit_bytes) &&
        (climb->need->flags & FALLOW_REQUEST_NO_GROW) == 0 && !flw_climb_lacks_host(climb)) {
        return false;
    }
    flw_lock_acquire(&pool->lock);
    bool has_other_threads = pool->accounts != NULL && pool->accounts->next != NULL;
    flw_lock_release(&pool->lock);
    return has_other_threads && flw_pool_drain(pool, climb->need->cache, NULL) &&
           flw_climb_reclaim(climb);
}
