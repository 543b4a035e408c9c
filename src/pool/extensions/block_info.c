/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the description of a block, by any address inside it. */
#include "base/sized.h"
#include "pool/state/extension.h"
#include "pool/state/settings.h"
#include "pool/state/side_records.h"
#include "pool/state/table.h"

FLW_DEFINE_INIT_SIZED(fallow_block)

static enum fallow_block_state state_of(uint64_t word)
{
    switch ((enum flw_slot_state)(word & FLW_SLOT_STATE_MASK)) {
    case FLW_SLOT_LIVE:
    case FLW_SLOT_LIVE_USED:
    case FLW_SLOT_LIVE_SPECIAL:
        return FALLOW_BLOCK_LIVE;
    case FLW_SLOT_LIVE_CAPTURED:
        return FALLOW_BLOCK_CAPTURED;
    case FLW_SLOT_HELD:
        return FALLOW_BLOCK_DEFERRED;
    case FLW_SLOT_FREE:
        break;
    }
    return FALLOW_BLOCK_FREE;
}

static const struct flw_span *run_of(const struct flw_span *span)
{
    return span->kind == FLW_SPAN_SLAB ? span->u.slab.run : span;
}

/* A run's header has the present place, however the run was found. */
static bool contains(const struct flw_span *run, uint64_t unit)
{
    return run->kind == FLW_SPAN_RUN && unit >= run->u.run.begin_unit &&
           unit - run->u.run.begin_unit < run->u.run.unit_count;
}

/* Return the run around a unit of a segment; NULL: none. Heap lock held. */
static const struct flw_span *run_of_segment(const struct flw_heap *heap, uint64_t unit)
{
    const struct flw_segment *segment = heap->segments.newest;
    while (segment != NULL && unit - segment->begin_unit >= segment->unit_count) {
        segment = segment->next;
    }
    const struct flw_span *run = segment != NULL ? segment->edge->u.run.right : NULL;
    while (run != NULL && !contains(run, unit)) {
        run = run->u.run.right;
    }
    return run;
}

/* Return the run of a block around a unit of the range; NULL: none, or a free one. A block of a
 * cell or more has a name in the cell where it begins: walk left to that cell, to the end of an
 * earlier block, or to unmapped addresses. Heap lock held. */
static const struct flw_span *run_of_cells(const struct flw_heap *heap, uint64_t unit)
{
    const struct flw_page_map *map = &heap->map;
    for (uint64_t cell = unit / FLW_CELL_UNITS + 1, last = unit; cell-- > 0;
         last = cell * FLW_CELL_UNITS - 1) {
        uint64_t name = flw_page_map_cells(map)[cell];
        const struct flw_span *run =
            run_of((const struct flw_span *)(const void *)(map->spans + name));
        if (heap->page_handle[last / heap->page_units] == NULL) {
            return NULL;
        }
        if (contains(run, unit)) {
            return run;
        }
        if (contains(run, last) || contains(run, cell * FLW_CELL_UNITS)) {
            return NULL;
        }
    }
    return NULL;
}

/* Return the slab or run that contains an offset; NULL: none with blocks. Heap lock held. */
static const struct flw_span *span_containing(const struct flw_heap *heap, uint64_t offset)
{
    uint64_t unit = offset >> FLW_UNIT_LOG2;
    const struct flw_span *run = run_of(flw_page_map_span_at(&heap->map, offset));
    if (!contains(run, unit)) {
        run = heap->map.has_cells ? run_of_cells(heap, unit) : run_of_segment(heap, unit);
    }
    return run != NULL && run->u.run.slab != NULL ? run->u.run.slab : run;
}

/* Return the caller's part of the front's raw block; false: the address is not in it. */
static bool describe_user(const struct flw_extension *front, struct flw_pool *pool,
                          uint64_t address, fallow_block *block)
{
    struct flw_view view;
    if (!front->view_raw(pool, (uint64_t)(uintptr_t)block->base, &view) ||
        address - view.user >= view.size_bytes) {
        return false;
    }
    block->handle_offset += view.user - (uint64_t)(uintptr_t)block->base;
    block->usable_bytes = view.size_bytes;
    block->requested_bytes = view.size_bytes;
    block->stream_id = view.stream_id;
    block->base = (void *)(uintptr_t)view.user;
    return true;
}

fallow_status fallow_block_info(fallow_pool *handle, const void *ptr, fallow_block *out_block)
{
    struct flw_pool *pool = flw_pool_of(handle);
    if (pool == NULL) {
        return FALLOW_INVALID_POOL;
    }
    if (out_block == NULL) {
        return FALLOW_INVALID_ARGUMENT;
    }
    struct flw_heap *heap = &pool->heap;
    uint64_t address = (uint64_t)(uintptr_t)ptr;
    uint64_t offset = flw_page_map_offset(&heap->map, address);
    fallow_block block = {0};
    const struct flw_slot *slot = NULL;
    if (address - heap->map.base != offset) {
        return FALLOW_INVALID_POINTER;
    }
    flw_lock_acquire(&heap->lock);
    const struct flw_span *span = span_containing(heap, offset);
    if (span != NULL) {
        slot = flw_page_map_slot_at(&heap->map, span, offset);
        block.usable_bytes = flw_span_usable_bytes(span);
    }
    uint64_t word = slot == NULL ? 0 : __atomic_load_n(&slot->word, __ATOMIC_ACQUIRE);
    uint64_t base = word & ~FLW_SLOT_STATE_MASK;
    bool is_known = word != 0 && address >= base && address < base + block.usable_bytes;
    if (is_known) {
        const struct flw_handle *physical = flw_heap_handle_at(heap, base - heap->map.base);
        block.base = (void *)(uintptr_t)base;
        uint64_t allocation = __atomic_load_n(&slot->allocation, __ATOMIC_RELAXED);
        block.requested_bytes = flw_allocation_bytes(allocation);
        block.stream_id = flw_stream_ids_find(&heap->stream_ids, allocation);
        block.state = state_of(word);
        if (physical != NULL) {
            block.handle = physical->id;
            block.handle_bytes = (uint64_t)physical->unit_count << FLW_UNIT_LOG2;
            block.handle_offset =
                base - heap->map.base - ((uint64_t)physical->begin_unit << FLW_UNIT_LOG2);
        }
    }
    flw_lock_release(&heap->lock);
    const struct flw_extension *front = flw_pool_front(pool);
    if (is_known && front != NULL) {
        is_known = describe_user(front, pool, address, &block);
    }
    if (!is_known) {
        return FALLOW_INVALID_POINTER;
    }
    flw_lock_acquire(&pool->side_records.lock);
    const struct flw_side_record *side = flw_side_record_find(pool, base);
    block.tag = side != NULL ? side->tag : 0;
    flw_lock_release(&pool->side_records.lock);
    return flw_struct_answer(out_block, &block, sizeof block);
}
