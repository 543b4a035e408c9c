/* SPDX-License-Identifier: Apache-2.0 */
#include "heap/tcache.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "base/mutant.h"
#include "heap/thread.h"

/* ---- shape */

#define CACHE_BYTES (56 * FLW_KIB)

static struct {
    uint16_t bin_of_size[FLW_BIN_TABLE_COUNT];
    uint16_t most[FLW_CLASS_COUNT + 1];
    uint32_t offset[FLW_CLASS_COUNT + 1];
} shape;
static pthread_once_t shape_once = PTHREAD_ONCE_INIT;

/* A megabyte of a class, at least 8 slots, at most 128. */
static uint64_t bin_most(unsigned class_index)
{
    return class_index == FLW_CLASS_COUNT
               ? 0
               : flw_clamp(FLW_MIB / flw_class_bytes(class_index), 8, 128);
}

static void make_shape(void)
{
    uint32_t at = (uint32_t)flw_align_up(sizeof(struct flw_tcache), 64);
    for (unsigned c = 0; c <= FLW_CLASS_COUNT; c++) {
        shape.offset[c] = at;
        shape.most[c] = (uint16_t)bin_most(c);
        at += (uint32_t)(sizeof(struct flw_bin) + shape.most[c] * sizeof(struct flw_slot *));
    }
    FLW_ASSERT(at <= CACHE_BYTES && CACHE_BYTES <= UINT16_MAX);
    for (uint32_t i = 0; i < FLW_BIN_TABLE_COUNT; i++) {
        shape.bin_of_size[i] = (uint16_t)shape.offset[flw_class_of(
            ((uint64_t)i + 1 - (FLW_MUTANT(CLASS_OFF_BY_ONE) && i > 0)) << FLW_BIN_TABLE_LOG2)];
    }
}

uint32_t flw_bin_most(unsigned class_index)
{
    return shape.most[class_index];
}

uint32_t flw_bin_offset(unsigned class_index)
{
    return shape.offset[class_index];
}

const uint16_t *flw_bin_table(void)
{
    pthread_once(&shape_once, make_shape);
    return shape.bin_of_size;
}

/* ---- memory of caches: process-wide, never unmapped */

static struct {
    struct flw_lock lock;
    struct flw_tcache *unused;
} memory = {.lock = {.rank = FLW_RANK_META}};

#define CHUNK_CACHES 16

void flw_tcache_renew_lock(void)
{
    flw_lock_init(&memory.lock, FLW_RANK_META);
}

struct flw_tcache *flw_tcache_create(void)
{
    flw_lock_acquire(&memory.lock);
    if (memory.unused == NULL) {
        unsigned char *chunk = mmap(NULL, CHUNK_CACHES * CACHE_BYTES, PROT_READ | PROT_WRITE,
                                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        for (unsigned i = 0; chunk != MAP_FAILED && i < CHUNK_CACHES; i++) {
            struct flw_tcache *cache = (struct flw_tcache *)(void *)(chunk + i * CACHE_BYTES);
            cache->next = memory.unused;
            memory.unused = cache;
        }
    }
    struct flw_tcache *cache = memory.unused;
    if (cache != NULL) {
        memory.unused = cache->next;
    }
    flw_lock_release(&memory.lock);
    if (cache != NULL) {
        memset((void *)cache, 0, CACHE_BYTES);
        flw_lock_init(&cache->lock, FLW_RANK_CACHE);
    }
    return cache;
}

void flw_tcache_drop(struct flw_tcache *cache)
{
    flw_lock_acquire(&memory.lock);
    cache->next = memory.unused;
    memory.unused = cache;
    flw_lock_release(&memory.lock);
}

/* ---- open, divert, drain */

static void set_key(struct flw_tcache *cache, const void *key)
{
    __atomic_store_n(&cache->hot.key, key, __ATOMIC_RELEASE);
}

void flw_tcache_bind(struct flw_tcache *cache, struct flw_heap *heap, struct flw_domain *domain)
{
    cache->domain = domain;
    cache->hot.stream = domain->stream;
    cache->hot.base = heap->map.base;
    cache->hot.mask = heap->map.mask;
    cache->hot.units = heap->map.units;
    cache->hot.spans = heap->map.spans;
    cache->hot.slots = heap->map.slots;
    cache->hot.slots_mask = heap->map.slots_mask;
    cache->hot.bin_of_size = flw_bin_table();
    cache->thread = flw_thread_token();
    set_key(cache, cache->is_open ? cache->handle : &flw_no_pool);
}

void flw_tcache_poison(struct flw_tcache *cache)
{
    flw_lock_acquire(&cache->lock);
    if (!FLW_MUTANT(DRAIN_WITHOUT_POISON)) {
        set_key(cache, &flw_no_pool);
    }
}

void flw_tcache_await(struct flw_tcache *cache)
{
    flw_asym_wait(&cache->hot.asym);
}

void flw_tcache_release(struct flw_tcache *cache)
{
    set_key(cache, cache->is_open ? cache->handle : &flw_no_pool);
    flw_lock_release(&cache->lock);
}

bool flw_tcache_flush_runs(struct flw_tcache *cache, struct flw_heap *heap)
{
    bool any = cache->run_bytes != 0;
    for (; cache->occupied != 0; cache->occupied &= cache->occupied - 1) {
        struct flw_run_set *set = &cache->run_sets[flw_lowest_bit(cache->occupied)];
        for (uint32_t count = flw_run_set_count(set); count > 0; count--) {
            flw_heap_put_run_at(heap, cache->domain, set->runs[count - 1]);
        }
        set->key = 0;
    }
    cache->run_out_bytes -= cache->run_bytes;
    cache->run_bytes = 0;
    return any;
}

bool flw_tcache_flush(struct flw_tcache *cache, struct flw_heap *heap)
{
    bool any = flw_tcache_flush_runs(cache, heap);
    for (unsigned c = 0; c < FLW_CLASS_COUNT; c++) {
        struct flw_bin *bin = flw_tcache_bin(cache, c);
        if (bin->count > 0) {
            flw_heap_put_slots(heap, cache->domain, c, bin->slots, (uint32_t)bin->count);
            if (FLW_MUTANT(DRAIN_WITHOUT_POISON)) {
                nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL); /* its owner comes by */
            }
            bin->moved_out += bin->count;
            bin->count = 0;
            any = true;
        }
    }
    return any;
}
