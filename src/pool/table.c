/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the process's table of pools. A handle is an address inside the table: place and
 * generation. Places are reused oldest first, and each hands out FLW_GENERATIONS different handles
 * before one comes again.
 */
#include <sys/mman.h>

#include "pool/pool.h"

#define PLACES      1024
#define GENERATIONS 64

struct place {
    struct flw_pool *_Atomic pool; /* NULL: nobody's */
    _Atomic uint32_t generation;
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

fallow_pool *flw_pool_table_enter(struct flw_pool *pool)
{
    struct place *oldest = NULL;
    flw_lock_acquire(&table.lock);
    if (table.places == NULL) {
        void *memory = mmap(NULL, PLACES * sizeof(struct place), PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        table.places = memory == MAP_FAILED ? NULL : memory;
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

void flw_pool_table_each(void (*visit)(struct flw_pool *pool, void *context), void *context)
{
    for (uint32_t i = 0; table.places != NULL && i < PLACES; i++) {
        struct flw_pool *pool = atomic_load(&table.places[i].pool);
        if (pool != NULL) {
            visit(pool, context);
        }
    }
}
