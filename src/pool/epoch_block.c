/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: what a pool in context order knows of one address, and blocks that others may map: those go to
 * the driver when they are freed. Does not: lend.
 */
#include "heap/epoch.h"
#include "pool/pool.h"

FLW_SNAPSHOT bool flw_epoch_owns(const struct flw_pool *pool, uint64_t address)
{
    const struct flw_page_map *map = &pool->heap.map;
    return address <= map->mask && map->units[address >> FLW_UNIT_LOG2] != 0;
}

/* The slot that may hold the address, and what its block takes. */
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
    uint64_t loan = __atomic_load_n(&slot->loan, __ATOMIC_ACQUIRE); /* before the second look */
    uint64_t size_bytes = flw_loan_bytes(loan);
    bool is_lent =
        state == FLW_SLOT_LIVE || state == FLW_SLOT_LIVE_SPECIAL || state == FLW_SLOT_LIVE_USED;
    *out = (struct flw_epoch_block){.base = base,
                                    .size_bytes = size_bytes,
                                    .is_whole = span->kind == FLW_SPAN_RUN,
                                    .is_exported = state == FLW_SLOT_LIVE_USED};
    return is_lent && address >= base && address - base < flw_min(size_bytes, bytes) &&
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
    bool can_withhold = flw_heap_withheld(&pool->heap) != NULL;
    flw_lock_release(&pool->heap.lock);
    if (!can_withhold) {
        return false; /* host memory */
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
    flw_pool_account(cache->hot.account, -(int64_t)flw_loan_bytes(slot->loan));
    cache->run_pushes++;
    cache->run_out_bytes -= flw_run_bytes(span);
    flw_lock_release(&cache->lock);
    flw_pool_settle(pool, cache->hot.account);
    return flw_heap_evict(&pool->heap, span) ? FALLOW_OK : FALLOW_DEVICE_LOST;
}
