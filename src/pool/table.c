/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the process's table of pools. A handle is an address inside the table: place and
 * generation. Places are reused oldest first, and each hands out GENERATIONS different handles
 * before one comes again.
 */
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>

#include "heap/ctxsync.h"
#include "heap/epoch.h"
#include "pool/recording.h"

#define PLACES      1024
#define GENERATIONS 64

struct place {
    struct flw_pool *_Atomic pool; /* NULL: nobody's */
    _Atomic uint32_t generation;
    _Atomic uint32_t visitors; /* threads that look at the pool on behalf of another one */
    uint64_t last_used;
    unsigned char handles[GENERATIONS]; /* only their addresses matter */
};

static struct {
    struct flw_lock lock;
    struct place *places;
    uint64_t clock;
} table = {.lock = {.rank = FLW_RANK_POOL_TABLE}};

static struct place *place_of(const void *handle, uint32_t *out_generation)
{
    uintptr_t at = (uintptr_t)handle, base = (uintptr_t)table.places;
    if (table.places == NULL || at < base || at >= base + PLACES * sizeof(struct place)) {
        return NULL;
    }
    struct place *place = &table.places[(at - base) / sizeof(struct place)];
    uintptr_t first = (uintptr_t)place->handles;
    if (at < first || at >= first + GENERATIONS) {
        return NULL;
    }
    *out_generation = (uint32_t)(at - first);
    return place;
}

struct flw_pool *flw_pool_of(const void *handle)
{
    uint32_t generation;
    struct place *place = place_of(handle, &generation);
    if (place == NULL ||
        atomic_load_explicit(&place->generation, memory_order_relaxed) % GENERATIONS !=
            generation) {
        return NULL;
    }
    return atomic_load_explicit(&place->pool, memory_order_acquire);
}

/* In the child of a fork the driver is dead, other threads are gone, and whatever lock one of them
 * held stays held. So the child has no pools: their handles are refused, their memory stays as it
 * is, unseen, and the locks of the process are new. */
static void forget_pools(void)
{
    flw_lock_init(&table.lock, FLW_RANK_POOL_TABLE);
    flw_lifecycle_renew_lock();
    flw_tcache_renew_lock();
    flw_captures_renew_lock();
    flw_recorders_renew_lock();
    flw_epoch_renew_locks();
    flw_ctxsync_renew();
    for (uint32_t i = 0; i < PLACES; i++) {
        struct flw_pool *pool = atomic_exchange(&table.places[i].pool, NULL);
        atomic_store(&table.places[i].visitors, 0);
        if (pool != NULL) {
            flw_pool_orphan(pool);
        }
    }
}

static void watch_forks(void)
{
    (void)pthread_atfork(NULL, NULL, forget_pools);
}

fallow_pool *flw_pool_table_enter(struct flw_pool *pool)
{
    static pthread_once_t forks_once = PTHREAD_ONCE_INIT;
    struct place *oldest = NULL;
    flw_lock_acquire(&table.lock);
    if (table.places == NULL) {
        void *memory = mmap(NULL, PLACES * sizeof(struct place), PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        table.places = memory == MAP_FAILED ? NULL : memory;
    }
    if (table.places != NULL) {
        pthread_once(&forks_once, watch_forks);
    }
    for (uint32_t i = 0; table.places != NULL && i < PLACES; i++) {
        struct place *place = &table.places[i];
        if (atomic_load(&place->pool) == NULL &&
            (oldest == NULL || place->last_used < oldest->last_used)) {
            oldest = place;
        }
    }
    fallow_pool *handle = NULL;
    if (oldest != NULL) {
        oldest->last_used = ++table.clock;
        uint32_t generation = atomic_fetch_add(&oldest->generation, 1) + 1;
        handle = (fallow_pool *)(void *)&oldest->handles[generation % GENERATIONS];
        pool->number = (uint32_t)(oldest - table.places);
        atomic_store_explicit(&oldest->pool, pool, memory_order_release);
    }
    flw_lock_release(&table.lock);
    return handle;
}

void flw_pool_table_leave(const void *handle)
{
    uint32_t generation;
    flw_lock_acquire(&table.lock);
    struct place *place = place_of(handle, &generation);
    atomic_store(&place->pool, NULL);
    flw_lock_release(&table.lock);
}

void flw_pool_table_await(const void *handle)
{
    uint32_t generation;
    const struct place *place = place_of(handle, &generation);
    while (atomic_load(&place->visitors) != 0) {
        sched_yield();
    }
}

/* A visitor announces itself before it looks, the end of a pool takes it out before it looks for
 * visitors: one of the two sees the other. */
void flw_pool_table_each(void (*visit)(struct flw_pool *pool, void *context), void *context)
{
    for (uint32_t i = 0; table.places != NULL && i < PLACES; i++) {
        struct place *place = &table.places[i];
        if (atomic_load_explicit(&place->pool, memory_order_relaxed) == NULL) {
            continue;
        }
        atomic_fetch_add(&place->visitors, 1);
        struct flw_pool *pool = atomic_load(&place->pool);
        if (pool != NULL) {
            visit(pool, context);
        }
        atomic_fetch_sub(&place->visitors, 1);
    }
}
