/* SPDX-License-Identifier: Apache-2.0 */
#include "policies/pytorch_expand.h"

#include "base/bits.h"

#define SMALL_GRANULE_BYTES (2 * FLW_MIB)
#define LARGE_GRANULE_BYTES (20 * FLW_MIB)

static struct flw_pytorch_range range_of(const struct flw_segheap_block *block)
{
    const struct flw_segheap_segment *segment = block->segment;
    return (struct flw_pytorch_range){.segment_address = segment->device_address,
                                      .segment_bytes = segment->size_bytes,
                                      .address = flw_segheap_device_address(block),
                                      .size_bytes = block->size_bytes,
                                      .granule_bytes = segment->granule_bytes,
                                      .stream = segment->stream};
}

/* ---- growing ---- */

/* Do free blocks, mapped or not, cover `size_bytes` from here on? */
static bool has_room(const struct flw_segheap_block *block, uint64_t size_bytes)
{
    uint64_t room_bytes = 0;
    for (; block != NULL && block->is_free && room_bytes < size_bytes; block = block->next) {
        room_bytes += block->size_bytes;
    }
    return room_bytes >= size_bytes;
}

/* Unmapped, or free and followed by an unmapped one. */
static struct flw_segheap_block *find_candidate(const struct flw_pytorch_expand *expand,
                                                uint8_t pool, uint64_t size_bytes, uint16_t stream)
{
    struct flw_segheap_block *unmapped = flw_segheap_find(&expand->heap->unmapped[pool], stream, 0);
    while (unmapped != NULL && unmapped->segment->stream == stream) {
        bool has_front = unmapped->previous != NULL && unmapped->previous->is_free;
        struct flw_segheap_block *block = has_front ? unmapped->previous : unmapped;
        if (has_room(block, size_bytes)) {
            return block;
        }
        unmapped = flw_segheap_after(unmapped);
    }
    return NULL;
}

static struct flw_segheap_block *add_segment(const struct flw_pytorch_expand *expand, uint8_t pool,
                                             uint16_t stream)
{
    uint64_t granule_bytes = pool == 0 ? SMALL_GRANULE_BYTES : LARGE_GRANULE_BYTES;
    struct flw_segheap_shape shape = {
        .size_bytes = flw_div_up(expand->address_room_bytes, granule_bytes) * granule_bytes,
        .granule_bytes = granule_bytes,
        .stream = stream,
        .pool = pool};
    if (!expand->source->reserve(expand->source->context, shape.size_bytes, granule_bytes,
                                 &shape.place)) {
        return NULL;
    }
    return flw_segheap_put(expand->heap, flw_segheap_add(expand->heap, &shape)->first);
}

/* Memory for the front of an unmapped block. The free block that it is now a part of; NULL: none. */
static struct flw_segheap_block *map_front(const struct flw_pytorch_expand *expand,
                                           struct flw_segheap_block *block, uint64_t size_bytes)
{
    uint64_t granule_bytes = block->segment->granule_bytes;
    uint64_t mapped_bytes = flw_div_up(size_bytes, granule_bytes) * granule_bytes;
    struct flw_segheap *heap = expand->heap;
    flw_segheap_take(heap, block);
    if (block->size_bytes > mapped_bytes) {
        (void)flw_segheap_put(heap, flw_segheap_cut(heap, block, mapped_bytes));
    }
    struct flw_pytorch_range range = range_of(block);
    if (!expand->source->map(expand->source->context, &range)) {
        (void)flw_segheap_put(heap, block);
        return NULL;
    }
    flw_segheap_set_mapped(heap, block, true);
    return flw_segheap_put(heap, block);
}

struct flw_segheap_block *flw_pytorch_expand_for(const struct flw_pytorch_expand *expand,
                                                 uint8_t pool, uint64_t size_bytes, uint16_t stream)
{
    struct flw_segheap_block *block = find_candidate(expand, pool, size_bytes, stream);
    if (block == NULL) {
        block = add_segment(expand, pool, stream);
        if (block == NULL || block->size_bytes < size_bytes) {
            return NULL;
        }
    }
    if (block->is_unmapped) {
        block = map_front(expand, block, flw_min(block->size_bytes, size_bytes));
    }
    while (block != NULL && block->size_bytes < size_bytes) {
        struct flw_segheap_block *next = block->next;
        block = map_front(expand, next, flw_min(next->size_bytes, size_bytes - block->size_bytes));
    }
    if (block != NULL) {
        flw_segheap_take(expand->heap, block);
    }
    return block;
}

/* ---- freeing ---- */

/* The whole granules inside a free block lose their memory. Where the walk goes on. */
static struct flw_segheap_block *unmap_inside(const struct flw_pytorch_expand *expand,
                                              struct flw_segheap_block *block)
{
    struct flw_segheap *heap = expand->heap;
    uint64_t granule_bytes = block->segment->granule_bytes;
    uint64_t offset = block->address - block->segment->address;
    uint64_t begin = flw_div_up(offset, granule_bytes) * granule_bytes;
    uint64_t end = (offset + block->size_bytes) / granule_bytes * granule_bytes;
    if (begin >= end) {
        return block;
    }
    flw_segheap_take(heap, block);
    struct flw_segheap_block *middle = block;
    if (begin > offset) {
        middle = flw_segheap_cut(heap, block, begin - offset);
        (void)flw_segheap_put(heap, block);
    }
    struct flw_segheap_block *rest = NULL;
    if (middle->size_bytes > end - begin) {
        rest = flw_segheap_cut(heap, middle, end - begin);
    }
    struct flw_pytorch_range range = range_of(middle);
    expand->source->unmap(expand->source->context, &range);
    flw_segheap_set_mapped(heap, middle, false);
    middle = flw_segheap_put(heap, middle);
    if (rest != NULL) {
        (void)flw_segheap_put(heap, rest);
    }
    return middle;
}

void flw_pytorch_expand_release(const struct flw_pytorch_expand *expand)
{
    struct flw_segheap_segment *next = NULL;
    for (struct flw_segheap_segment *segment = expand->heap->segments; segment != NULL;
         segment = next) {
        next = segment->next;
        if (segment->granule_bytes == 0 || segment->stream >= expand->first_private) {
            continue;
        }
        struct flw_segheap_block *block = segment->first; /* there is one */
        do {
            if (block->is_free && !block->is_unmapped) {
                block = unmap_inside(expand, block);
            }
            block = block->next;
        } while (block != NULL);
        if (segment->first->is_unmapped && segment->first->next == NULL) {
            flw_segheap_take(expand->heap, segment->first);
            expand->source->unreserve(expand->source->context, segment->device_address);
            flw_segheap_drop(expand->heap, segment);
        }
    }
}

/* Memory at the end of the heap's life: every mapped stretch of whole granules. */
static void unmap_all(const struct flw_pytorch_expand *expand, struct flw_segheap_segment *segment)
{
    struct flw_segheap_block *first = segment->first;
    while (first != NULL) {
        struct flw_pytorch_range range = range_of(first);
        struct flw_segheap_block *next = first->next;
        while (next != NULL && next->is_unmapped == first->is_unmapped) {
            range.size_bytes += next->size_bytes;
            next = next->next;
        }
        if (!first->is_unmapped) {
            expand->source->unmap(expand->source->context, &range);
        }
        first = next;
    }
}

void flw_pytorch_expand_finish(const struct flw_pytorch_expand *expand)
{
    for (struct flw_segheap_segment *segment = expand->heap->segments; segment != NULL;
         segment = segment->next) {
        if (segment->granule_bytes != 0) {
            unmap_all(expand, segment);
            expand->source->unreserve(expand->source->context, segment->device_address);
        }
    }
}
