/* SPDX-License-Identifier: Apache-2.0 */
#include "policies/segheap.h"

#include "common/tool_host.h"

#define CHUNK_COUNT 512

struct flw_segheap_chunk {
    struct flw_segheap_chunk *next;
    struct flw_segheap_block blocks[CHUNK_COUNT];
};

/* ---- free lists ---- */

static struct flw_segheap_block *block_of(struct flw_tree_node *node)
{
    return node != NULL ? FLW_CONTAINER(node, struct flw_segheap_block, node) : NULL;
}

static bool is_before(const struct flw_segheap_block *block, uint16_t stream, uint64_t size_bytes,
                      uint64_t address)
{
    if (block->segment->stream != stream) {
        return block->segment->stream < stream;
    }
    uint64_t own_bytes = block->is_unmapped ? 0 : block->size_bytes;
    return own_bytes != size_bytes ? own_bytes < size_bytes : block->address < address;
}

/* The first that is not before. */
static struct flw_tree_node *search(const struct flw_tree *list, uint16_t stream,
                                    uint64_t size_bytes, uint64_t address)
{
    struct flw_tree_node *found = NULL, *node = list->root;
    while (node != NULL) {
        bool goes_right = is_before(block_of(node), stream, size_bytes, address);
        found = goes_right ? found : node;
        node = goes_right ? node->right : node->left;
    }
    return found;
}

static struct flw_segheap_block *of_stream(struct flw_tree_node *node, uint16_t stream)
{
    struct flw_segheap_block *block = block_of(node);
    return block != NULL && block->segment->stream == stream ? block : NULL;
}

struct flw_segheap_block *flw_segheap_find(const struct flw_tree *list, uint16_t stream,
                                           uint64_t size_bytes)
{
    return of_stream(search(list, stream, size_bytes, 0), stream);
}

struct flw_segheap_block *flw_segheap_find_less(const struct flw_tree *list, uint16_t stream,
                                                uint64_t size_bytes)
{
    const struct flw_tree_node *node = search(list, stream, size_bytes, 0);
    return of_stream(node != NULL ? node->previous : list->last, stream);
}

struct flw_segheap_block *flw_segheap_first(const struct flw_tree *list)
{
    return block_of(search(list, 0, 0, 0));
}

struct flw_segheap_block *flw_segheap_after(const struct flw_segheap_block *block)
{
    return block_of(block->node.next);
}

struct flw_segheap_block *flw_segheap_before(const struct flw_segheap_block *block)
{
    return block_of(block->node.previous);
}

static struct flw_tree *list_of(struct flw_segheap *heap, const struct flw_segheap_block *block)
{
    uint8_t pool = block->segment->pool;
    return block->is_unmapped ? &heap->unmapped[pool] : &heap->mapped[pool];
}

void flw_segheap_take(struct flw_segheap *heap, struct flw_segheap_block *block)
{
    flw_tree_remove(list_of(heap, block), &block->node);
    block->is_free = false;
}

static void insert(struct flw_tree *list, struct flw_segheap_block *block)
{
    uint64_t size_bytes = block->is_unmapped ? 0 : block->size_bytes;
    flw_tree_insert_before(list, &block->node,
                           search(list, block->segment->stream, size_bytes, block->address));
    block->is_free = true;
}

/* ---- blocks ---- */

static struct flw_segheap_block *new_block(struct flw_segheap *heap)
{
    if (heap->spares == NULL) {
        struct flw_segheap_chunk *chunk = flw_host_alloc(1, sizeof *chunk);
        chunk->next = heap->chunks;
        heap->chunks = chunk;
        for (size_t i = CHUNK_COUNT; i-- > 0;) {
            chunk->blocks[i].next = heap->spares;
            heap->spares = &chunk->blocks[i];
        }
    }
    struct flw_segheap_block *block = heap->spares;
    heap->spares = block->next;
    *block = (struct flw_segheap_block){0};
    return block;
}

static void drop_block(struct flw_segheap *heap, struct flw_segheap_block *block)
{
    block->next = heap->spares;
    heap->spares = block;
}

struct flw_segheap_block *flw_segheap_cut(struct flw_segheap *heap, struct flw_segheap_block *block,
                                          uint64_t size_bytes)
{
    struct flw_segheap_block *rest = new_block(heap);
    *rest = (struct flw_segheap_block){.address = block->address + size_bytes,
                                       .size_bytes = block->size_bytes - size_bytes,
                                       .previous = block,
                                       .next = block->next,
                                       .segment = block->segment,
                                       .since = block->since,
                                       .is_unmapped = block->is_unmapped};
    if (rest->next != NULL) {
        rest->next->previous = rest;
    }
    block->next = rest;
    block->size_bytes = size_bytes;
    heap->cut_count++;
    return rest;
}

/* `right` disappears into its left neighbour. */
static void join(struct flw_segheap *heap, struct flw_segheap_block *left,
                 struct flw_segheap_block *right)
{
    left->size_bytes += right->size_bytes;
    left->next = right->next;
    if (left->next != NULL) {
        left->next->previous = left;
    }
    heap->join_count++;
    drop_block(heap, right);
}

static bool can_join(const struct flw_segheap_block *block, const struct flw_segheap_block *other)
{
    return other != NULL && other->is_free && other->is_unmapped == block->is_unmapped;
}

struct flw_segheap_block *flw_segheap_put(struct flw_segheap *heap, struct flw_segheap_block *block)
{
    struct flw_segheap_block *previous = block->previous;
    struct flw_segheap_block *next = block->next;
    uint64_t since = block->since;
    if (can_join(block, next)) {
        flw_segheap_take(heap, next);
        join(heap, block, next);
    }
    if (can_join(block, previous)) {
        flw_segheap_take(heap, previous);
        join(heap, previous, block);
        block = previous;
    }
    block->since = since;
    insert(list_of(heap, block), block);
    return block;
}

void flw_segheap_set_mapped(struct flw_segheap *heap, struct flw_segheap_block *block,
                            bool is_mapped)
{
    if (block->is_unmapped && is_mapped) {
        heap->reserved_bytes += block->size_bytes;
    } else if (!block->is_unmapped && !is_mapped) {
        heap->reserved_bytes -= block->size_bytes;
    }
    block->is_unmapped = !is_mapped;
}

uint64_t flw_segheap_device_address(const struct flw_segheap_block *block)
{
    return block->segment->device_address + (block->address - block->segment->address);
}

/* ---- segments ---- */

struct flw_segheap_segment *flw_segheap_add(struct flw_segheap *heap,
                                            const struct flw_segheap_shape *shape)
{
    struct flw_segheap_segment *segment = flw_host_alloc(1, sizeof *segment);
    struct flw_segheap_block *block = new_block(heap);
    *segment = (struct flw_segheap_segment){.next = heap->segments,
                                            .first = block,
                                            .address = shape->place.address,
                                            .device_address = shape->place.device_address,
                                            .size_bytes = shape->size_bytes,
                                            .granule_bytes = shape->granule_bytes,
                                            .stream = shape->stream,
                                            .pool = shape->pool};
    if (segment->next != NULL) {
        segment->next->previous = segment;
    }
    heap->segments = segment;
    block->address = segment->address;
    block->size_bytes = segment->size_bytes;
    block->segment = segment;
    block->is_unmapped = shape->granule_bytes != 0;
    heap->reserved_bytes += block->is_unmapped ? 0 : segment->size_bytes;
    return segment;
}

void flw_segheap_drop(struct flw_segheap *heap, struct flw_segheap_segment *segment)
{
    if (segment->previous != NULL) {
        segment->previous->next = segment->next;
    } else {
        heap->segments = segment->next;
    }
    if (segment->next != NULL) {
        segment->next->previous = segment->previous;
    }
    heap->reserved_bytes -= segment->first->is_unmapped ? 0 : segment->size_bytes;
    drop_block(heap, segment->first);
    flw_host_free(segment);
}

void flw_segheap_finish(struct flw_segheap *heap)
{
    while (heap->segments != NULL) {
        struct flw_segheap_segment *next = heap->segments->next;
        flw_host_free(heap->segments);
        heap->segments = next;
    }
    while (heap->chunks != NULL) {
        struct flw_segheap_chunk *next = heap->chunks->next;
        flw_host_free(heap->chunks);
        heap->chunks = next;
    }
    *heap = (struct flw_segheap){0};
}

/* ---- invariants ---- */

static bool list_is_valid(const struct flw_tree *list, bool is_unmapped, size_t expected_count)
{
    const struct flw_segheap_block *previous = NULL;
    size_t count = 0;
    for (const struct flw_segheap_block *block = flw_segheap_first(list); block != NULL;
         block = flw_segheap_after(block)) {
        uint64_t size_bytes = is_unmapped ? 0 : block->size_bytes;
        if (!block->is_free || block->is_unmapped != is_unmapped ||
            search(list, block->segment->stream, size_bytes, block->address) != &block->node ||
            (previous != NULL &&
             !is_before(previous, block->segment->stream, size_bytes, block->address))) {
            return false;
        }
        previous = block;
        count++;
    }
    return count == expected_count;
}

/* What the blocks of all segments add up to. */
struct sum {
    uint64_t reserved_bytes;
    size_t mapped_counts[FLW_SEGHEAP_POOLS], unmapped_counts[FLW_SEGHEAP_POOLS];
};

static bool segment_is_valid(const struct flw_segheap_segment *segment, struct sum *sum)
{
    uint64_t at = segment->address;
    const struct flw_segheap_block *previous = NULL;
    for (const struct flw_segheap_block *block = segment->first; block != NULL;
         block = block->next) {
        bool should_be_one =
            previous != NULL && previous->is_free && block->is_free && can_join(block, previous);
        if (block->address != at || block->previous != previous || block->segment != segment ||
            block->size_bytes == 0 || should_be_one) {
            return false;
        }
        if (block->is_unmapped && (!block->is_free || segment->granule_bytes == 0)) {
            return false;
        }
        sum->mapped_counts[segment->pool] += block->is_free && !block->is_unmapped;
        sum->unmapped_counts[segment->pool] += block->is_free && block->is_unmapped;
        sum->reserved_bytes += block->is_unmapped ? 0 : block->size_bytes;
        at += block->size_bytes;
        previous = block;
    }
    return at == segment->address + segment->size_bytes;
}

bool flw_segheap_is_valid(const struct flw_segheap *heap)
{
    struct sum sum = {0};
    for (const struct flw_segheap_segment *segment = heap->segments; segment != NULL;
         segment = segment->next) {
        if (!segment_is_valid(segment, &sum)) {
            return false;
        }
    }
    for (size_t pool = 0; pool < FLW_SEGHEAP_POOLS; pool++) {
        if (!list_is_valid(&heap->mapped[pool], false, sum.mapped_counts[pool]) ||
            !list_is_valid(&heap->unmapped[pool], true, sum.unmapped_counts[pool])) {
            return false;
        }
    }
    return sum.reserved_bytes == heap->reserved_bytes;
}
