/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/streams/epoch.h"

#include "heap/order/epoch.h"
#include "pool/state/account.h"
#include "pool/state/table.h"
#include "pool/streams/cache.h"

/* ---- open frees */

void flw_epoch_flush(struct flw_pool *pool, struct flw_tcache *cache)
{
    flw_lock_acquire(&pool->heap.lock);
    (void)flw_tcache_flush_open_frees(cache, &pool->heap);
    flw_lock_release(&pool->heap.lock);
}

void flw_epoch_free(struct flw_pool *pool, struct flw_tcache *cache, struct flw_span *span,
                    struct flw_slot *slot)
{
    int64_t bytes = (int64_t)flw_allocation_bytes(slot->allocation);
    flw_lock_acquire(&cache->lock);
    if (cache->open_free_count == FLW_OPEN_FREE_SLOTS) {
        flw_epoch_flush(pool, cache);
    }
    flw_pool_account(cache->hot.account, -bytes);
    if (span->kind == FLW_SPAN_SLAB) {
        flw_tcache_bin(cache, span->u.slab.class_index)->moved_out++;
    } else {
        cache->run_pushes++;
        cache->run_out_bytes -= flw_run_bytes(span);
    }
    cache->open_free_bins[cache->open_free_count] = (uint16_t)span->bin;
    cache->open_frees[cache->open_free_count++] = slot;
    cache->open_free_left_bytes -= bytes;
    if (cache->open_free_count == FLW_OPEN_FREE_SLOTS || cache->open_free_left_bytes <= 0) {
        flw_epoch_flush(pool, cache);
    }
    flw_lock_release(&cache->lock);
    flw_pool_flush_account(pool, cache->hot.account);
}

/* ---- epochs */

static bool close_epoch(struct flw_pool *pool, bool and_poll)
{
    struct flw_heap *heap = &pool->heap;
    struct flw_driver_section section;
    bool any = false;
    if (flw_captures_are_open() || !flw_heap_enter_driver(heap, &section)) {
        return false;
    }
    (void)flw_domain_fence(heap, heap->context_order);
    if (and_poll) {
        any = flw_heap_poll(heap);
    }
    flw_heap_leave_driver(heap, &section);
    return any;
}

bool flw_epoch_close(struct flw_pool *pool)
{
    return close_epoch(pool, true);
}

void flw_epoch_close_if_due(struct flw_pool *pool)
{
    flw_lock_acquire(&pool->heap.lock);
    bool is_wanted = flw_epoch_is_due(&pool->heap);
    flw_lock_release(&pool->heap.lock);
    if (is_wanted) {
        (void)close_epoch(pool, false);
    }
}

bool flw_epoch_poll(struct flw_heap *heap)
{
    struct flw_driver_section section;
    flw_lock_acquire(&heap->lock);
    bool has_epoch = heap->context_order->newest != NULL;
    flw_lock_release(&heap->lock);
    if (!has_epoch || flw_captures_are_open() || !flw_heap_enter_driver(heap, &section)) {
        return false;
    }
    bool any = flw_heap_poll(heap);
    flw_heap_leave_driver(heap, &section);
    return any;
}

/* Synchronise all contexts if the driver cannot record a context, or refuses to. */
bool flw_epoch_wait(struct flw_heap *heap, uint64_t seq, uint64_t deadline_ns)
{
    struct flw_driver_section section;
    if (flw_captures_are_open() || !flw_heap_enter_driver(heap, &section)) {
        return false;
    }
    bool can_record = heap->context_order->ops->record != NULL;
    fallow_status status =
        can_record ? flw_domain_wait(heap, heap->context_order, seq, deadline_ns) : FALLOW_DRIVER;
    flw_lock_acquire(&heap->lock);
    bool is_refused = !can_record || heap->context_order->refuses_fences;
    flw_lock_release(&heap->lock);
    if (status != FALLOW_OK && status != FALLOW_TIMEOUT && is_refused && deadline_ns != 0) {
        status = flw_epoch_sync(heap);
    }
    flw_heap_leave_driver(heap, &section);
    return status == FALLOW_OK;
}

/* Wait for everything that was ever freed. */
bool flw_epoch_wait_all(struct flw_heap *heap, uint64_t deadline_ns)
{
    flw_lock_acquire(&heap->lock);
    const struct flw_domain *domain = heap->context_order;
    uint64_t seq = domain->seq - (domain->unfenced_bytes == 0);
    bool is_done = seq <= domain->completed;
    flw_lock_release(&heap->lock);
    return is_done || flw_epoch_wait(heap, seq, deadline_ns);
}

/* ---- allocate: runs of one size */

/* Both sets of a size; of large runs one thread keeps few, since others may need them. */
#define FILL_MOST  (2 * FLW_RUN_SET_SLOTS)
#define FILL_BYTES (32 * FLW_MIB)

void flw_epoch_fill_runs(struct flw_pool *pool, struct flw_tcache *cache, uint32_t unit_count)
{
    struct flw_heap *heap = &pool->heap;
    flw_lock_acquire(&heap->lock);
    uint64_t most = flw_min(FILL_MOST, FILL_BYTES / ((uint64_t)unit_count << FLW_UNIT_LOG2));
    for (uint64_t n = 0; n < most && cache->is_open; n++) {
        struct flw_span *run = flw_heap_take_dedicated(heap, unit_count, unit_count);
        if (run == NULL) {
            break;
        }
        bool is_cached = flw_tcache_push_run(cache, run);
        run->u.run.seq = 0; /* complete, unlike runs in a stream's cache */
        if (!is_cached) {
            flw_heap_put_run_at(heap, cache->domain, run);
            break;
        }
        cache->run_out_bytes += flw_run_bytes(run);
    }
    flw_lock_release(&heap->lock);
}

/* ---- release, captures */

uint64_t flw_epoch_expect_sync(struct flw_pool *pool)
{
    struct flw_tcache *cache = flw_thread_find(pool->handle, NULL);
    if (cache != NULL && __atomic_load_n(&cache->pool, __ATOMIC_ACQUIRE) == pool) {
        flw_lock_acquire(&cache->lock);
        flw_epoch_flush(pool, cache);
        flw_lock_release(&cache->lock);
    }
    return flw_epoch_begin_sync(&pool->heap);
}

static void change_order(struct flw_pool *pool, void *context)
{
    (void)context;
    atomic_fetch_add_explicit(&pool->heap.count.order_changes, 1, memory_order_release);
}

void fallow_context_capture_begin(void)
{
    flw_captures_lock();
    flw_captures_unlock(true);
    flw_pool_table_each(change_order, NULL);
}

void fallow_context_capture_end(void)
{
    flw_captures_end();
}

uint64_t flw_epoch_trim(struct flw_pool *pool, uint64_t deadline_ns)
{
    struct flw_heap *heap = &pool->heap;
    (void)flw_pool_drain(pool, NULL, NULL);
    (void)close_epoch(pool, true);
    if (deadline_ns != 0) {
        (void)flw_epoch_wait_all(heap, deadline_ns);
    }
    flw_lock_acquire(&heap->lock);
    (void)flw_heap_reclaim_slabs(heap);
    flw_lock_release(&heap->lock);
    return flw_heap_release_idle(heap, 0, deadline_ns);
}

/* ---- one address; blocks that others may map, which are released when freed */

FLW_SNAPSHOT bool flw_epoch_owns(const struct flw_pool *pool, uint64_t address)
{
    const struct flw_page_map *map = &pool->heap.map;
    return address <= map->mask && map->units[address >> FLW_UNIT_LOG2] != 0;
}

/* Return the slot that may hold the address, and the size of the block. */
static struct flw_slot *slot_around(const struct flw_pool *pool, uint64_t address,
                                    struct flw_span **out_span, uint64_t *out_bytes)
{
    const struct flw_page_map *map = &pool->heap.map;
    uint64_t offset = flw_page_map_offset(map, address);
    struct flw_span *span = flw_page_map_span_at(map, offset);
    bool is_slab = __atomic_load_n(&span->kind, __ATOMIC_RELAXED) == FLW_SPAN_SLAB;
    *out_span = span;
    *out_bytes = is_slab ? flw_class_bytes(span->u.slab.class_index) : flw_run_bytes(span);
    return flw_page_map_slot_at(map, span, offset);
}

FLW_SNAPSHOT bool flw_epoch_find(const struct flw_pool *pool, uint64_t address,
                                 struct flw_epoch_block *out)
{
    struct flw_span *span;
    uint64_t bytes;
    if (!flw_epoch_owns(pool, address)) {
        return false;
    }
    const struct flw_slot *slot = slot_around(pool, address, &span, &bytes);
    uint64_t word = __atomic_load_n(&slot->word, __ATOMIC_ACQUIRE);
    uint64_t state = word & FLW_SLOT_STATE_MASK, base = word - state;
    uint64_t allocation =
        __atomic_load_n(&slot->allocation, __ATOMIC_ACQUIRE); /* before the second read */
    uint64_t size_bytes = flw_allocation_bytes(allocation);
    bool is_live =
        state == FLW_SLOT_LIVE || state == FLW_SLOT_LIVE_SPECIAL || state == FLW_SLOT_LIVE_USED;
    *out = (struct flw_epoch_block){.base = base,
                                    .size_bytes = size_bytes,
                                    .is_dedicated = span->kind == FLW_SPAN_RUN,
                                    .is_exported = state == FLW_SLOT_LIVE_USED};
    return is_live && address >= base && address - base < flw_min(size_bytes, bytes) &&
           __atomic_load_n(&slot->word, __ATOMIC_ACQUIRE) == word;
}

bool flw_epoch_export(struct flw_pool *pool, uint64_t base)
{
    struct flw_span *span;
    uint64_t bytes;
    struct flw_slot *slot = slot_around(pool, base, &span, &bytes);
    uint64_t word = __atomic_load_n(&slot->word, __ATOMIC_ACQUIRE);
    if (span->kind != FLW_SPAN_RUN || word - (word & FLW_SLOT_STATE_MASK) != base) {
        return false;
    }
    flw_lock_acquire(&pool->heap.lock);
    bool has_unmap_only = flw_heap_unmap_only(&pool->heap) != NULL;
    flw_lock_release(&pool->heap.lock);
    if (!has_unmap_only) {
        return false; /* no host memory */
    }
    return word == base + FLW_SLOT_LIVE_USED ||
           ((word == base + FLW_SLOT_LIVE || word == base + FLW_SLOT_LIVE_SPECIAL) &&
            __atomic_compare_exchange_n(&slot->word, &word, base + FLW_SLOT_LIVE_USED, false,
                                        __ATOMIC_ACQ_REL, __ATOMIC_RELAXED));
}

fallow_status flw_epoch_evict(struct flw_pool *pool, struct flw_tcache *cache,
                              struct flw_span *span, struct flw_slot *slot)
{
    flw_lock_acquire(&cache->lock);
    flw_pool_account(cache->hot.account, -(int64_t)flw_allocation_bytes(slot->allocation));
    cache->run_pushes++;
    cache->run_out_bytes -= flw_run_bytes(span);
    flw_lock_release(&cache->lock);
    flw_pool_flush_account(pool, cache->hot.account);
    return flw_heap_evict(&pool->heap, span) ? FALLOW_OK : FALLOW_DEVICE_LOST;
}
