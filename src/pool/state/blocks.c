/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the walk over spans and slots.
 */
#include "pool/state/blocks.h"

#include "pool/state/side_records.h"

/* Describe a slot; false: not allocated. `owner` is the domain of a captured block. Both locks
 * held. */
static bool describe(struct flw_pool *pool, const struct flw_slot *slot, uint32_t owner,
                     struct flw_live_block *block)
{
    uint64_t word = __atomic_load_n(&slot->word, __ATOMIC_ACQUIRE);
    uint64_t state = word & FLW_SLOT_STATE_MASK;
    if (state == FLW_SLOT_FREE || state == FLW_SLOT_HELD) {
        return false;
    }
    block->address = word & ~FLW_SLOT_STATE_MASK;
    /* Only a block that has a tag, or may have one, has a side record. */
    const struct flw_side_record *side =
        state == FLW_SLOT_LIVE ? NULL : flw_side_record_find(pool, block->address);
    block->tag = side != NULL ? side->tag : 0;
    block->capture = state == FLW_SLOT_LIVE_CAPTURED ? pool->heap.domains[owner]->capture : 0;
    uint64_t allocation = __atomic_load_n(&slot->allocation, __ATOMIC_RELAXED);
    block->stream_id = flw_stream_ids_find(&pool->heap.stream_ids, allocation);
    block->size_bytes = flw_allocation_bytes(allocation);
    return true;
}

void flw_blocks_each(struct flw_pool *pool,
                     void (*visit)(void *context, const struct flw_live_block *block),
                     void *context)
{
    struct flw_heap *heap = &pool->heap;
    flw_lock_acquire(&pool->side_records.lock);
    flw_lock_acquire(&heap->lock);
    struct flw_span *span = flw_page_map_next_span(&heap->map, NULL);
    for (; span != NULL; span = flw_page_map_next_span(&heap->map, span)) {
        bool is_slab = span->kind == FLW_SPAN_SLAB;
        uint32_t count = is_slab ? span->u.slab.carved_count : 1;
        uint32_t owner = is_slab ? span->u.slab.domain : span->u.run.owner;
        struct flw_live_block block = {.usable_bytes = flw_span_usable_bytes(span)};
        for (uint32_t i = 0; i < count; i++) {
            if (describe(pool, flw_span_slot(&heap->map, span, i), owner, &block)) {
                visit(context, &block);
            }
        }
    }
    flw_lock_release(&heap->lock);
    flw_lock_release(&pool->side_records.lock);
}
