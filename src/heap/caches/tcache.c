/* SPDX-License-Identifier: Apache-2.0 */
#include "heap/caches/tcache.h"

#include <pthread.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "base/mutant.h"
#include "heap/space/run.h"
#include "heap/space/slab.h"
#include "heap/state/thread.h"

/* ---- shape */

#define CACHE_BYTES (56 * FLW_KIB)

static struct {
    uint16_t bin_of_size[FLW_BIN_TABLE_COUNT];
    uint16_t most[FLW_CLASS_COUNT + 1];
    uint32_t offset[FLW_CLASS_COUNT + 1];
} shape;
static pthread_once_t shape_once = PTHREAD_ONCE_INIT;

/* Return the capacity of a class's bin: 1 MiB, but 8 to 128 slots. */
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

const uint32_t *flw_bin_offsets(void)
{
    pthread_once(&shape_once, make_shape);
    return shape.offset;
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
        memset((void *)cache, 0, offsetof(struct flw_tcache, run_sets));
        flw_lock_init(&cache->lock, FLW_RANK_CACHE);
    }
    return cache;
}

/* Clear the used parts of a cache. An unused cache is all zeros after the first fields, except
 * data beyond the counts. */
static void wipe(struct flw_tcache *cache)
{
    for (uint64_t bits = cache->occupied; bits != 0; bits &= bits - 1) {
        cache->run_sets[flw_lowest_bit(bits)].key = 0;
    }
    if (cache->context_id != 0) { /* frees there bypass bins that are not in the set */
        memset((unsigned char *)cache + sizeof *cache, 0, CACHE_BYTES - sizeof *cache);
        return;
    }
    FLW_EACH_CLASS (c, &cache->used_bins) {
        memset((void *)flw_tcache_bin(cache, c), 0, sizeof(struct flw_bin));
    }
}

void flw_tcache_drop(struct flw_tcache *cache)
{
    wipe(cache);
    flw_lock_acquire(&memory.lock);
    cache->next = memory.unused;
    memory.unused = cache;
    flw_lock_release(&memory.lock);
}

/* ---- open, poison, drain */

const char flw_no_pool = 0;

static void set_key(struct flw_tcache *cache, const void *key)
{
    __atomic_store_n(&cache->hot.key, key, __ATOMIC_RELEASE);
}

/* The key that only the two hit paths compare. */
static const void *own_key(const struct flw_tcache *cache)
{
    if (!cache->is_open || cache->is_seized) {
        return &flw_no_pool;
    }
    if (cache->context_id != 0) {
        return flw_context_key(&cache->hot, cache->ring != NULL);
    }
    return cache->ring != NULL ? (const void *)cache : cache->handle;
}

void flw_tcache_bind(struct flw_tcache *cache, struct flw_heap *heap, struct flw_domain *domain)
{
    cache->domain = domain;
    cache->hot.stream = domain->stream;
    cache->hot.stream_number = domain->stream_number;
    cache->hot.mask = heap->map.mask;
    cache->hot.units = heap->map.units;
    cache->hot.spans = heap->map.spans;
    cache->hot.slots = heap->map.slots;
    cache->hot.slots_mask = heap->map.slots_mask;
    cache->hot.bin_of_size = flw_bin_table();
    cache->thread = flw_thread_token();
    set_key(cache, own_key(cache));
}

bool flw_tcache_poison(struct flw_tcache *cache)
{
    flw_lock_acquire(&cache->lock);
    bool may_be_inside = cache->is_open;
    cache->is_seized = true;
    if (!FLW_MUTANT(DRAIN_WITHOUT_POISON)) {
        set_key(cache, own_key(cache));
    }
    flw_lock_release(&cache->lock);
    return may_be_inside;
}

void flw_tcache_await(struct flw_tcache *cache)
{
    flw_asym_wait(&cache->hot.asym);
}

void flw_tcache_release(struct flw_tcache *cache)
{
    flw_lock_acquire(&cache->lock);
    cache->is_seized = false;
    set_key(cache, own_key(cache));
    flw_lock_release(&cache->lock);
}

void flw_tcache_set_open(struct flw_tcache *cache, bool is_open)
{
    cache->is_open = is_open;
    set_key(cache, own_key(cache));
}

static bool empty_depot(struct flw_heap *heap)
{
    struct flw_run_depot *depot = &heap->depot;
    bool any = depot->domain != NULL;
    if (any) {
        flw_heap_put_run_sets(heap, depot->domain, depot->sets, depot->occupied);
        depot->occupied = 0;
        depot->domain = NULL;
    }
    return any;
}

bool flw_tcache_flush_runs(struct flw_tcache *cache, struct flw_heap *heap)
{
    bool any = cache->run_bytes != 0;
    if (!any && heap->depot.domain != cache->domain) {
        return false; /* one among thousands */
    }
    flw_heap_put_run_sets(heap, cache->domain, cache->run_sets, cache->occupied);
    cache->occupied = 0;
    cache->run_out_bytes -= cache->run_bytes;
    cache->run_bytes = 0;
    if (heap->depot.domain == cache->domain) {
        any |= empty_depot(heap);
    }
    return any;
}

void flw_tcache_limit_runs(struct flw_tcache *cache, struct flw_heap *heap)
{
    const struct flw_domain *domain = cache->domain;
    bool is_owed = true;
    if (atomic_load_explicit(&heap->stream_count, memory_order_relaxed) > 1) {
        flw_lock_acquire(&heap->lock);
        is_owed = !flw_domain_is_stream(domain) || domain->is_lost || domain->is_owing;
        flw_lock_release(&heap->lock);
    }
    cache->run_limit_bytes = is_owed ? flw_tcache_run_limit(heap) : 0;
}

void flw_tcache_clear_runs(struct flw_tcache *cache, struct flw_heap *heap)
{
    struct flw_run_depot *depot = &heap->depot;
    flw_domain_owe(heap, cache->domain);
    if (cache->domain->cache_count < 2 || cache->run_bytes == 0) {
        (void)flw_tcache_flush_runs(cache, heap);
        return;
    }
    (void)empty_depot(heap); /* memory that no thread has fetched joins the neighbours */
    depot->domain = cache->domain;
    depot->occupied = cache->occupied;
    for (uint64_t bits = cache->occupied; bits != 0; bits &= bits - 1) {
        unsigned i = flw_lowest_bit(bits);
        depot->sets[i] = cache->run_sets[i];
        cache->run_sets[i].key = 0;
    }
    cache->occupied = 0;
    cache->run_out_bytes -= cache->run_bytes;
    cache->run_bytes = 0;
}

struct flw_span *flw_tcache_withdraw_run(struct flw_tcache *cache, struct flw_heap *heap,
                                         uint32_t unit_count)
{
    uint64_t empty = (uint64_t)unit_count << 32;
    uint64_t bytes = (uint64_t)unit_count * FLW_UNIT_BYTES;
    uint32_t index = flw_run_set_index(unit_count);
    struct flw_run_set *from = &heap->depot.sets[index];
    if (from->key - empty - 1 >= FLW_RUN_SET_SLOTS) {
        from = &heap->depot.sets[index ^ 1];
        if (from->key - empty - 1 >= FLW_RUN_SET_SLOTS) {
            return NULL;
        }
    }
    struct flw_run_set *to = &cache->run_sets[index];
    if (flw_run_set_count(to) != 0) { /* holds another size: the requested one missed */
        index ^= 1;
        to = &cache->run_sets[index];
    }
    struct flw_span *run = from->runs[flw_run_set_count(from) - 1];
    from->key--;
    uint64_t limit = flw_tcache_run_limit(heap);
    uint32_t count = 0, most = flw_run_set_count(to) == 0 ? flw_run_set_count(from) : 0;
    while (count < most && cache->run_bytes + bytes <= limit) {
        to->runs[count] = from->runs[flw_run_set_count(from) - 1];
        from->key--;
        count++;
        cache->run_bytes += bytes;
        cache->run_out_bytes += bytes;
    }
    if (count > 0) {
        to->key = empty + count;
        cache->occupied |= 1ull << index;
    }
    return run;
}

/* True if all open frees are dedicated runs, or of one class. */
static bool are_open_frees_of_one_class(const struct flw_tcache *cache)
{
    uint32_t differ = 0;
    for (uint64_t i = 1; i < cache->open_free_count; i++) {
        differ |= (uint32_t)cache->open_free_bins[i] ^ cache->open_free_bins[0];
    }
    return differ == 0;
}

static void put_open_frees_sorted(struct flw_tcache *cache, struct flw_heap *heap)
{
    struct flw_slot *slots[FLW_OPEN_FREE_SLOTS];
    uint8_t classes[FLW_OPEN_FREE_SLOTS];
    uint32_t ends[FLW_CLASS_COUNT + 1] = {0}, count = (uint32_t)cache->open_free_count;
    for (uint32_t i = 0; i < count; i++) {
        const struct flw_span *span = flw_slot_span(&heap->map, cache->open_frees[i]);
        bool is_slab = span->kind == FLW_SPAN_SLAB;
        classes[i] = is_slab ? span->u.slab.class_index : FLW_CLASS_COUNT;
        ends[classes[i]]++;
    }
    for (unsigned c = 1; c <= FLW_CLASS_COUNT; c++) {
        ends[c] += ends[c - 1];
    }
    for (uint32_t i = count; i-- > 0;) {
        slots[--ends[classes[i]]] = cache->open_frees[i]; /* now the begin of the class */
    }
    for (unsigned c = 0; c < FLW_CLASS_COUNT; c++) {
        if (ends[c + 1] > ends[c]) {
            flw_heap_put_slots(heap, cache->domain, c, slots + ends[c], ends[c + 1] - ends[c]);
        }
    }
    for (uint32_t i = ends[FLW_CLASS_COUNT]; i < count; i++) {
        flw_heap_put_dedicated(heap, cache->domain, flw_slot_span(&heap->map, slots[i]));
    }
}

/* Free slots class by class. */
bool flw_tcache_flush_open_frees(struct flw_tcache *cache, struct flw_heap *heap)
{
    if (cache->open_free_count == 0) {
        return false;
    }
    bool is_of_one = are_open_frees_of_one_class(cache);
    if (is_of_one && cache->open_free_bins[0] == flw_bin_offset(FLW_CLASS_COUNT)) {
        for (uint64_t i = 0; i < cache->open_free_count; i++) {
            flw_heap_put_dedicated(heap, cache->domain,
                                   flw_slot_span(&heap->map, cache->open_frees[i]));
        }
    } else if (is_of_one) {
        const struct flw_span *slab = flw_slot_span(&heap->map, cache->open_frees[0]);
        flw_heap_put_slots(heap, cache->domain, slab->u.slab.class_index, cache->open_frees,
                           (uint32_t)cache->open_free_count);
    } else {
        put_open_frees_sorted(cache, heap);
    }
    heap->open_blocks += cache->open_free_count;
    heap->open_bytes += (uint64_t)(FLW_OPEN_FREE_BYTES - cache->open_free_left_bytes);
    cache->open_free_count = 0;
    cache->open_free_left_bytes = FLW_OPEN_FREE_BYTES;
    return true;
}

static void flush_bin(struct flw_tcache *cache, struct flw_heap *heap, unsigned class_index,
                      struct flw_bin *bin)
{
    flw_heap_put_slots(heap, flw_tcache_allocs_of(cache, heap), class_index, bin->slots,
                       (uint32_t)bin->count);
    if (FLW_MUTANT(DRAIN_WITHOUT_POISON)) {
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL); /* lets the owner run */
    }
    bin->moved_out += bin->count;
    bin->count = 0;
}

bool flw_tcache_flush(struct flw_tcache *cache, struct flw_heap *heap)
{
    bool any = flw_tcache_flush_runs(cache, heap);
    if (cache->context_id != 0) {
        any |= flw_tcache_flush_open_frees(cache, heap);
    }
    for (unsigned word = 0; word < FLW_CLASS_WORDS; word++) { /* most words are empty */
        for (uint64_t bits = cache->used_bins.bits[word]; bits != 0; bits &= bits - 1) {
            unsigned class_index = word * 64 + flw_lowest_bit(bits);
            struct flw_bin *bin =
                (struct flw_bin *)(void *)((unsigned char *)cache + shape.offset[class_index]);
            if (bin->count > 0) {
                flush_bin(cache, heap, class_index, bin);
                any = true;
            }
        }
    }
    return any;
}
