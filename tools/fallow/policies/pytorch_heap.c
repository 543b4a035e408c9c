/* SPDX-License-Identifier: Apache-2.0 */
#include "policies/pytorch_heap.h"

#include "base/bits.h"

#include "common/tool_host.h"

#define CHUNK_COUNT 512
#define UNRECORDED  (1ull << 63) /* sorts after every real address and equals none */

struct flw_pytorch_chunk {
    struct flw_pytorch_chunk *next;
    struct flw_pytorch_block blocks[CHUNK_COUNT];
};

/* ---- free lists ---- */

static struct flw_pytorch_block *block_of(struct flw_tree_node *node)
{
    return node != NULL ? FLW_CONTAINER(node, struct flw_pytorch_block, node) : NULL;
}

static uint64_t mapped_bytes(const struct flw_pytorch_block *block)
{
    return block->is_unmapped ? 0 : block->size_bytes;
}

/* The order of free blocks. */
struct key {
    uint16_t stream;
    uint64_t size_bytes, segment_number, address;
};

static struct key key_of(const struct flw_pytorch_block *block)
{
    return (struct key){.stream = block->segment->stream,
                        .size_bytes = mapped_bytes(block),
                        .segment_number = block->segment->number,
                        .address = block->address};
}

static bool is_before(const struct flw_pytorch_block *block, const struct key *key)
{
    struct key own = key_of(block);
    return own.stream != key->stream                   ? own.stream < key->stream
           : own.size_bytes != key->size_bytes         ? own.size_bytes < key->size_bytes
           : own.segment_number != key->segment_number ? own.segment_number < key->segment_number
                                                       : own.address < key->address;
}

/* Return the first that is not before. */
static struct flw_tree_node *search(const struct flw_tree *list, struct key key)
{
    struct flw_tree_node *found = NULL, *node = list->root;
    while (node != NULL) {
        bool goes_right = is_before(block_of(node), &key);
        found = goes_right ? found : node;
        node = goes_right ? node->right : node->left;
    }
    return found;
}

static struct flw_pytorch_block *of_stream(struct flw_tree_node *node, uint16_t stream)
{
    struct flw_pytorch_block *block = block_of(node);
    return block != NULL && block->segment->stream == stream ? block : NULL;
}

struct flw_pytorch_block *flw_pytorch_heap_find(const struct flw_tree *list, uint16_t stream,
                                                uint64_t size_bytes)
{
    return of_stream(search(list, (struct key){.stream = stream, .size_bytes = size_bytes}),
                     stream);
}

struct flw_pytorch_block *flw_pytorch_heap_find_less(const struct flw_tree *list, uint16_t stream,
                                                     uint64_t size_bytes)
{
    const struct flw_tree_node *node =
        search(list, (struct key){.stream = stream, .size_bytes = size_bytes});
    return of_stream(node != NULL ? node->previous : list->last, stream);
}

struct flw_pytorch_block *flw_pytorch_heap_first(const struct flw_tree *list)
{
    return block_of(search(list, (struct key){.stream = 0}));
}

struct flw_pytorch_block *flw_pytorch_heap_after(const struct flw_pytorch_block *block)
{
    return block_of(block->node.next);
}

struct flw_pytorch_block *flw_pytorch_heap_before(const struct flw_pytorch_block *block)
{
    return block_of(block->node.previous);
}

static struct flw_tree *list_of(struct flw_pytorch_heap *heap,
                                const struct flw_pytorch_block *block)
{
    return &heap->lists[block->segment->pool][block->is_unmapped];
}

void flw_pytorch_heap_take(struct flw_pytorch_heap *heap, struct flw_pytorch_block *block)
{
    flw_tree_remove(list_of(heap, block), &block->node);
    block->is_free = false;
}

/* ---- blocks ---- */

static struct flw_pytorch_block *new_block(struct flw_pytorch_heap *heap)
{
    if (heap->spares == NULL) {
        struct flw_pytorch_chunk *chunk = flw_host_alloc(1, sizeof *chunk);
        chunk->next = heap->chunks;
        heap->chunks = chunk;
        for (size_t i = CHUNK_COUNT; i-- > 0;) {
            chunk->blocks[i].next = heap->spares;
            heap->spares = &chunk->blocks[i];
        }
    }
    struct flw_pytorch_block *block = heap->spares;
    heap->spares = block->next;
    return block;
}

static void drop_block(struct flw_pytorch_heap *heap, struct flw_pytorch_block *block)
{
    block->next = heap->spares;
    heap->spares = block;
}

struct flw_pytorch_block *flw_pytorch_heap_cut(struct flw_pytorch_heap *heap,
                                               struct flw_pytorch_block *block, uint64_t size_bytes)
{
    struct flw_pytorch_block *rest = new_block(heap);
    *rest = (struct flw_pytorch_block){.address = block->address + size_bytes,
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

/* Join `right` to its left neighbour. */
static void join(struct flw_pytorch_heap *heap, struct flw_pytorch_block *left,
                 struct flw_pytorch_block *right)
{
    left->size_bytes += right->size_bytes;
    left->next = right->next;
    if (left->next != NULL) {
        left->next->previous = left;
    }
    heap->join_count++;
    drop_block(heap, right);
}

static bool can_join(const struct flw_pytorch_block *block, const struct flw_pytorch_block *other)
{
    return other != NULL && other->is_free && other->is_unmapped == block->is_unmapped;
}

struct flw_pytorch_block *flw_pytorch_heap_put(struct flw_pytorch_heap *heap,
                                               struct flw_pytorch_block *block)
{
    struct flw_pytorch_block *previous = block->previous;
    struct flw_pytorch_block *next = block->next;
    struct flw_tree *list = list_of(heap, block);
    uint64_t since = block->since;
    if (can_join(block, next)) {
        flw_pytorch_heap_take(heap, next);
        join(heap, block, next);
    }
    if (can_join(block, previous)) {
        flw_pytorch_heap_take(heap, previous);
        join(heap, previous, block);
        block = previous;
    }
    block->since = since;
    flw_tree_insert_before(list, &block->node, search(list, key_of(block)));
    block->is_free = true;
    return block;
}

/* ---- memory of granules ---- */

bool flw_pytorch_heap_can_expand(const struct flw_device *device)
{
    const struct flw_driver *driver = &device->driver;
    return driver->cuMemAddressReserve != NULL && driver->cuMemAddressFree != NULL &&
           driver->cuMemCreate != NULL && driver->cuMemRelease != NULL &&
           driver->cuMemMap != NULL && driver->cuMemUnmap != NULL && driver->cuMemSetAccess != NULL;
}

static CUdeviceptr granule_address(const struct flw_pytorch_segment *segment, size_t i)
{
    return (CUdeviceptr)(segment->device_address + i * segment->granule_bytes);
}

static void drop_granules(struct flw_pytorch_heap *heap, struct flw_pytorch_segment *segment,
                          size_t begin, size_t end)
{
    const struct flw_driver *driver = &heap->device->driver;
    for (size_t i = begin; i < end; i++) {
        if (segment->handles[i] != 0) {
            heap->call_count += 2;
            driver->cuMemUnmap(granule_address(segment, i), segment->granule_bytes);
            driver->cuMemRelease(segment->handles[i]);
            segment->handles[i] = 0;
        }
    }
}

/* Create the handles of granules, all or none. */
static bool create_granules(struct flw_pytorch_heap *heap, struct flw_pytorch_segment *segment,
                            CUmemLocation location, size_t begin, size_t end)
{
    const struct flw_driver *driver = &heap->device->driver;
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = location};
    for (size_t i = begin; i < end; i++) {
        heap->call_count++;
        if (driver->cuMemCreate(&segment->handles[i], segment->granule_bytes, &properties, 0) !=
            CUDA_SUCCESS) {
            segment->handles[i] = 0;
            heap->call_count += i - begin;
            while (i-- > begin) {
                driver->cuMemRelease(segment->handles[i]);
                segment->handles[i] = 0;
            }
            return false;
        }
    }
    return true;
}

static bool map_granules(struct flw_pytorch_heap *heap, struct flw_pytorch_segment *segment,
                         CUmemLocation location, size_t begin, size_t end)
{
    const struct flw_driver *driver = &heap->device->driver;
    CUmemAccessDesc access = {.location = location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    bool is_done = true;
    for (size_t i = begin; is_done && i < end; i++) {
        heap->call_count++;
        is_done = driver->cuMemMap(granule_address(segment, i), segment->granule_bytes, 0,
                                   segment->handles[i], 0) == CUDA_SUCCESS;
    }
    heap->call_count++;
    return is_done && driver->cuMemSetAccess(granule_address(segment, begin),
                                             (end - begin) * segment->granule_bytes, &access,
                                             1) == CUDA_SUCCESS;
}

static void add_reserved(struct flw_pytorch_heap *heap, uint64_t size_bytes)
{
    heap->grow_count++;
    heap->reserved_bytes += size_bytes;
    heap->peak_reserved_bytes = flw_max(heap->peak_reserved_bytes, heap->reserved_bytes);
}

static size_t granule_of(const struct flw_pytorch_segment *segment, uint64_t address)
{
    return (address - segment->address) / segment->granule_bytes;
}

bool flw_pytorch_heap_map(struct flw_pytorch_heap *heap, struct flw_pytorch_block *block)
{
    const struct flw_device *device = heap->device;
    struct flw_pytorch_segment *segment = block->segment;
    CUmemLocation location = {.type = CU_MEM_LOCATION_TYPE_DEVICE,
                              .id = device->is_sim ? 0 : device->ordinal};
    size_t begin = granule_of(segment, block->address);
    size_t end = granule_of(segment, block->address + block->size_bytes);
    if (!create_granules(heap, segment, location, begin, end)) {
        return false;
    }
    if (!map_granules(heap, segment, location, begin, end)) {
        drop_granules(heap, segment, begin, end);
        return false;
    }
    add_reserved(heap, block->size_bytes);
    block->is_unmapped = false;
    return true;
}

void flw_pytorch_heap_unmap(struct flw_pytorch_heap *heap, struct flw_pytorch_block *block,
                            uint16_t stream)
{
    struct flw_pytorch_segment *segment = block->segment;
    heap->call_count++;
    heap->device->driver.cuStreamSynchronize(heap->device->streams[stream]);
    drop_granules(heap, segment, granule_of(segment, block->address),
                  granule_of(segment, block->address + block->size_bytes));
    heap->reserved_bytes -= block->size_bytes;
    block->is_unmapped = true;
}

/* ---- segments ---- */

/* Add a segment of one block in no list. The caller sets all other fields of the segment. */
static struct flw_pytorch_block *add_segment(struct flw_pytorch_heap *heap,
                                             const struct flw_pytorch_segment *like)
{
    struct flw_pytorch_segment *segment = flw_host_alloc(1, sizeof *segment);
    struct flw_pytorch_block *block = new_block(heap);
    *segment = *like;
    segment->number = heap->orders_by_age ? ++heap->segment_count : 0;
    segment->first = block;
    segment->next = heap->segments;
    if (segment->next != NULL) {
        segment->next->previous = segment;
    }
    heap->segments = segment;
    *block = (struct flw_pytorch_block){.address = segment->address,
                                        .size_bytes = segment->size_bytes,
                                        .segment = segment,
                                        .is_unmapped = segment->granule_bytes != 0};
    return block;
}

struct flw_pytorch_block *flw_pytorch_heap_add(struct flw_pytorch_heap *heap, uint64_t size_bytes,
                                               uint16_t stream, uint8_t pool, uint64_t address)
{
    CUdeviceptr pointer = 0;
    heap->call_count++;
    if (heap->device->driver.cuMemAlloc_v2(&pointer, size_bytes) != CUDA_SUCCESS) {
        return NULL;
    }
    add_reserved(heap, size_bytes);
    return add_segment(heap, &(struct flw_pytorch_segment){
                                 .address = address != 0 ? address : pointer | UNRECORDED,
                                 .device_address = pointer,
                                 .size_bytes = size_bytes,
                                 .stream = stream,
                                 .pool = pool});
}

struct flw_pytorch_block *flw_pytorch_heap_reserve(struct flw_pytorch_heap *heap,
                                                   uint64_t size_bytes, uint64_t granule_bytes,
                                                   uint16_t stream, uint8_t pool)
{
    CUdeviceptr pointer = 0;
    heap->call_count++;
    if (heap->device->driver.cuMemAddressReserve(&pointer, size_bytes, 0, 0, 0) != CUDA_SUCCESS) {
        return NULL;
    }
    struct flw_pytorch_segment segment = {.address = pointer,
                                          .device_address = pointer,
                                          .size_bytes = size_bytes,
                                          .granule_bytes = granule_bytes,
                                          .stream = stream,
                                          .pool = pool};
    segment.handles = flw_host_alloc(size_bytes / granule_bytes, sizeof *segment.handles);
    return flw_pytorch_heap_put(heap, add_segment(heap, &segment));
}

/* Give back all memory and addresses of a segment. */
static void release_memory(struct flw_pytorch_heap *heap, struct flw_pytorch_segment *segment)
{
    const struct flw_driver *driver = &heap->device->driver;
    CUdeviceptr pointer = (CUdeviceptr)segment->device_address;
    heap->call_count++;
    if (segment->granule_bytes == 0) {
        driver->cuMemFree_v2(pointer);
    } else {
        drop_granules(heap, segment, 0, segment->size_bytes / segment->granule_bytes);
        driver->cuMemAddressFree(pointer, segment->size_bytes);
    }
    flw_host_free(segment->handles);
}

void flw_pytorch_heap_drop(struct flw_pytorch_heap *heap, struct flw_pytorch_segment *segment)
{
    if (segment->previous != NULL) {
        segment->previous->next = segment->next;
    } else {
        heap->segments = segment->next;
    }
    if (segment->next != NULL) {
        segment->next->previous = segment->previous;
    }
    heap->reserved_bytes -= mapped_bytes(segment->first);
    release_memory(heap, segment);
    drop_block(heap, segment->first);
    flw_host_free(segment);
}

void flw_pytorch_heap_finish(struct flw_pytorch_heap *heap)
{
    while (heap->segments != NULL) {
        struct flw_pytorch_segment *segment = heap->segments;
        heap->segments = segment->next;
        release_memory(heap, segment);
        flw_host_free(segment);
    }
    while (heap->chunks != NULL) {
        struct flw_pytorch_chunk *next = heap->chunks->next;
        flw_host_free(heap->chunks);
        heap->chunks = next;
    }
}

/* ---- invariants ---- */

static bool list_is_valid(const struct flw_tree *list, bool is_unmapped, size_t expected_count)
{
    const struct flw_pytorch_block *previous = NULL;
    size_t count = 0;
    for (const struct flw_pytorch_block *block = flw_pytorch_heap_first(list); block != NULL;
         block = flw_pytorch_heap_after(block)) {
        struct key key = key_of(block);
        if (!block->is_free || block->is_unmapped != is_unmapped ||
            search(list, key) != &block->node || (previous != NULL && !is_before(previous, &key))) {
            return false;
        }
        previous = block;
        count++;
    }
    return count == expected_count;
}

/* Sums over the blocks of all segments. */
struct sum {
    uint64_t reserved_bytes;
    size_t free_counts[FLW_PYTORCH_POOLS][2];
};

static bool segment_is_valid(const struct flw_pytorch_segment *segment, struct sum *sum)
{
    uint64_t at = segment->address;
    const struct flw_pytorch_block *previous = NULL;
    for (const struct flw_pytorch_block *block = segment->first; block != NULL;
         block = block->next) {
        bool should_be_one = block->is_free && can_join(block, previous);
        bool may_be_unmapped = block->is_free && segment->granule_bytes != 0;
        if (block->address != at || block->previous != previous || block->segment != segment ||
            block->size_bytes == 0 || should_be_one || (block->is_unmapped && !may_be_unmapped)) {
            return false;
        }
        sum->free_counts[segment->pool][block->is_unmapped] += block->is_free;
        sum->reserved_bytes += mapped_bytes(block);
        at += block->size_bytes;
        previous = block;
    }
    return at == segment->address + segment->size_bytes;
}

bool flw_pytorch_heap_is_valid(const struct flw_pytorch_heap *heap)
{
    struct sum sum = {0};
    bool is_valid = true;
    for (const struct flw_pytorch_segment *segment = heap->segments; segment != NULL;
         segment = segment->next) {
        is_valid = is_valid && segment_is_valid(segment, &sum);
    }
    for (size_t pool = 0; is_valid && pool < FLW_PYTORCH_POOLS; pool++) {
        is_valid = list_is_valid(&heap->lists[pool][0], false, sum.free_counts[pool][0]) &&
                   list_is_valid(&heap->lists[pool][1], true, sum.free_counts[pool][1]);
    }
    return is_valid && sum.reserved_bytes == heap->reserved_bytes;
}
