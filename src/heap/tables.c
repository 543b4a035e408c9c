/* SPDX-License-Identifier: Apache-2.0 */
#include "heap/tables.h"

#include "heap/heap.h"

#define OBJECT_ARENA_BYTES (16 * FLW_GIB)
#define OBJECT_ARENA_LEAST (32 * FLW_MIB)
#define NOTE_ARENA_BYTES   (1 * FLW_GIB)
#define NOTE_ARENA_LEAST   (4 * FLW_MIB)
#define SHARE              4 /* of what a limit leaves these take one part */

uint64_t flw_tables_object_bytes(unsigned shrink)
{
    return flw_max(OBJECT_ARENA_BYTES >> shrink, OBJECT_ARENA_LEAST);
}

uint64_t flw_tables_note_bytes(unsigned shrink)
{
    return flw_max(NOTE_ARENA_BYTES >> shrink, NOTE_ARENA_LEAST);
}

/* As large as what they cover. */
static uint64_t fixed_bytes(const struct flw_heap *heap)
{
    bool remaps = heap->source.ops->remaps;
    uint64_t handle_bytes =
        remaps ? heap->range_bytes / heap->source.granularity_bytes * sizeof *heap->page_handle : 0;
    return flw_page_map_name_bytes(remaps, flw_heap_span_of_addresses(heap)) + handle_bytes;
}

static uint64_t shrinking_bytes(unsigned shrink)
{
    return flw_page_map_block_bytes(shrink) + flw_tables_object_bytes(shrink) +
           flw_tables_note_bytes(shrink);
}

uint64_t flw_tables_reserve_bytes(const struct flw_heap *heap, unsigned shrink)
{
    return fixed_bytes(heap) + shrinking_bytes(shrink);
}

unsigned flw_tables_choose(const struct flw_heap *heap, uint64_t allowance)
{
    uint64_t fixed = fixed_bytes(heap);
    uint64_t room = allowance > fixed ? (allowance - fixed) / SHARE : 0;
    unsigned shrink = 0;
    while (shrink < FLW_TABLE_SHRINK_MAX && shrinking_bytes(shrink) > room) {
        shrink++;
    }
    return shrink;
}

static uint64_t refusals_of(const struct flw_meta *meta)
{
    return __atomic_load_n(&meta->refusals, __ATOMIC_RELAXED);
}

uint64_t flw_tables_refusals(const struct flw_heap *heap)
{
    return refusals_of(&heap->map.span_meta) + refusals_of(&heap->map.slot_meta) +
           refusals_of(&heap->object_meta);
}

static bool is_full(const struct flw_meta *meta)
{
    return __atomic_load_n(&meta->is_full, __ATOMIC_RELAXED);
}

bool flw_tables_are_full(const struct flw_heap *heap)
{
    return is_full(&heap->map.span_meta) || is_full(&heap->map.slot_meta) ||
           is_full(&heap->object_meta);
}
